"""Every Python block of README and docs runs, twice; every link between pages leads somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from crash.harness import Nursery
from penstock.model.events import Event
from support.pages import LIFE_SECONDS_MAX, Orders

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
DATABASE = re.compile(r"\b[\w.-]+\.db\b")
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)(?:#[^)]*)?\)")


@pytest.fixture(scope="module")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    with Nursery(tmp_path_factory.mktemp("pages") / "errors", "support.pages") as nursery:
        yield nursery


@pytest.mark.parametrize(
    "page",
    [p for p in PAGES if BLOCK.search(p.read_text())],
    ids=lambda p: str(p.relative_to(ROOT)),
)
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path, nursery: Nursery) -> None:
    script = tmp_path / "page.py"
    script.write_text("\n".join(BLOCK.findall(page.read_text())))
    # With nothing there: in a process that has imported nothing but what the page imports.
    done = subprocess.run(
        [sys.executable, "-W", "error", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=LIFE_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # With what the first left.
    assert nursery.live(Orders(str(script), str(tmp_path))) == 0, nursery.words()


def test_each_page_has_a_database_of_its_own() -> None:
    used: dict[str, str] = {"demo.db": "make run"}
    for page in PAGES:
        for name in {
            n for block in BLOCK.findall(page.read_text()) for n in DATABASE.findall(block)
        }:
            assert name not in used, f"{page.name}: {name} is that of {used[name]}"
            used[name] = page.name


def test_the_index_names_every_page_but_those_of_errors() -> None:
    index = ROOT / "docs" / "README.md"
    named = {(index.parent / target).resolve() for target in LINK.findall(index.read_text())}

    assert {p for p in PAGES if p.parent.name != "errors" and p != index} <= named


def test_the_page_on_listeners_names_every_type_of_event() -> None:
    page = (ROOT / "docs" / "howto" / "listeners.md").read_text()
    named = re.findall(r"`(\w+)`", page[page.index("\nTypes: ") :])

    assert named == sorted(kind.__struct_config__.tag for kind in get_args(Event))


@pytest.mark.parametrize(
    "page", [*PAGES, ROOT / "ARCHITECTURE.md"], ids=lambda p: str(p.relative_to(ROOT))
)
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        assert (page.parent / target).exists(), f"{page.name}: {target}"
