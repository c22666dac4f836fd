"""Blocks of README and docs that are no Python: definitions say what their page says, commands are ones that exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from penstock.cli.main import MODULES, tree
from penstock.verify.structure import examine_text

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WEB = {"django.md", "fastapi.md", "litestar.md"}
"""Their blocks are parts of examples/web, to which tests/embedding/test_web.py holds them."""


def blocks(page: Path, language: str) -> list[str]:
    return [text for named, text in FENCED.findall(page.read_text()) if named == language]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_block_is_of_a_kind_that_is_tested(page: Path) -> None:
    kinds = {language for language, _ in FENCED.findall(page.read_text())}
    assert kinds <= {"python", "yaml", "sh", ""} | ({"py"} if page.name in WEB else set())


@pytest.mark.parametrize(
    "page", [p for p in PAGES if blocks(p, "yaml") and p.parent.name != "errors"], ids=name
)
def test_a_definition_is_right(page: Path) -> None:
    """Those of error pages are wrong as the page says: `tests/unit/verify/test_error_pages.py`."""
    for text in blocks(page, "yaml"):
        whole = text if "\ntasks:" in text else text + "tasks: {pay: {do: charge}}\n"
        assert examine_text(whole).findings == []


def commands(page: Path) -> list[str]:
    """Lines that are one command, without what is said about it further right."""
    lines = [
        line for kind in ("", "sh") for text in blocks(page, kind) for line in text.splitlines()
    ]
    return [
        each.strip()
        for line in lines
        for each in re.split(r"\s{3,}", line.strip().removeprefix("$ "))
        if each.startswith("penstock ")
    ]


@pytest.mark.parametrize("page", [p for p in PAGES if commands(p)], ids=name)
def test_a_command_that_is_shown_exists_and_takes_its_words(page: Path) -> None:
    for line in commands(page):
        words = shlex.split(line.partition(" | jq")[0].partition(" > ")[0])[1:]
        if "|" in words:  # a list of commands
            assert {word for word in words if word.islower() and word != "|"} <= MODULES.keys(), (
                line
            )
            continue
        command: click.Command = tree
        context = click.Context(tree)
        while isinstance(command, click.Group):
            found = command.get_command(context, words.pop(0))
            assert found is not None, line
            command = found
        command.make_context(line, words)  # refuses what it does not take
