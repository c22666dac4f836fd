"""The generated pages of docs/reference say what the code says (STYLE 5)."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "reference"
PAGES: dict[str, str] = runpy.run_path(str(FOLDER / "generate.py"))["pages"]()


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_up_to_date(name: str) -> None:
    assert (FOLDER / name).read_text(encoding="utf-8") == PAGES[name], "make docs writes it anew"


@pytest.mark.parametrize("name", ["settings.md", "events.md"])
def test_every_setting_and_field_has_a_meaning(name: str) -> None:
    assert [line for line in PAGES[name].splitlines() if line.endswith("| |")] == []
