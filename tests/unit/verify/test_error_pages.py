"""Every code has a page, and its example shows what it says."""

from __future__ import annotations

import ast
import pathlib
import re

import pytest

import penstock.dsl
import penstock.verify
from penstock.dsl.finding import CODES
from penstock.verify.structure import examine_text
from penstock.verify.verification import verify

PAGES = pathlib.Path(__file__).parents[3] / "docs" / "errors"
ACTIVITIES = ("charge", "refund", "ship", "review", "revise")
SAYERS = ("Finding", "Problem", "Stop", "_say", "add", "add_inside")


@pytest.mark.parametrize("code", sorted(CODES))
def test_a_page_explains_the_code_and_its_example_has_it(code: str) -> None:
    page = (PAGES / f"{code}.md").read_text("utf-8")
    example = re.search(r"```yaml\n(.*?)```", page, re.DOTALL)

    assert page.startswith(f"# {code}\n")
    assert example is not None
    examined = examine_text(example[1], activities=ACTIVITIES)
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
