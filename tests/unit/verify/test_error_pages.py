"""Every code has a page, and its example shows what it says."""

from __future__ import annotations

import ast
import pathlib
import re
from typing import Any

import pytest

import penstock.dsl
import penstock.verify
from penstock.adapters.entry_points import InstalledPlugins
from penstock.dsl.finding import CODES
from penstock.plugin import Attempt, Problem, TaskType
from penstock.verify.structure import examine_text
from penstock.verify.verification import verify

PAGES = pathlib.Path(__file__).parents[3] / "docs" / "errors"
ACTIVITIES = ("charge", "refund", "ship", "review", "revise")
SAYERS = ("Finding", "Problem", "Stop", "_say", "add", "add_inside")


class Slug(TaskType):
    def check(self, config: dict[str, Any]) -> list[Problem]:
        return [Problem("letters run into each other", ("separator",))]

    async def execute(self, attempt: Attempt) -> None: ...


class Clumsy(TaskType):
    def check(self, config: dict[str, Any]) -> list[Problem]:
        raise LookupError("it stumbles")

    async def execute(self, attempt: Attempt) -> None: ...


PLUGINS = InstalledPlugins({"slug": Slug, "clumsy": Clumsy, "archive": None}, installed=False)


@pytest.mark.parametrize("code", sorted(CODES))
def test_a_page_explains_the_code_and_its_example_has_it(code: str) -> None:
    page = (PAGES / f"{code}.md").read_text("utf-8")
    example = re.search(r"```yaml\n(.*?)```", page, re.DOTALL)

    assert page.startswith(f"# {code}\n")
    assert example is not None
    examined = examine_text(example[1], activities=ACTIVITIES, plugins=PLUGINS.added)
    found = {finding.code for finding in examined.findings}
    if not found:
        assert examined.loaded is not None
        found = {finding.code for finding in verify(examined.loaded).findings}
        assert code in found
        return
    assert found == {code}


def test_no_code_is_said_that_is_not_listed() -> None:
    said: set[str] = set()
    for package in (penstock.dsl, penstock.verify):
        for file in pathlib.Path(package.__path__[0]).glob("*.py"):
            for node in ast.walk(ast.parse(file.read_text("utf-8"))):
                match node:
                    case ast.Call(
                        func=ast.Name(id=name) | ast.Attribute(attr=name),
                        args=[ast.Constant(value=str(code)), *_],
                    ) if name in SAYERS:
                        said.add(code)
                    case _:
                        pass

    assert said <= CODES
    assert len(said) > 25
