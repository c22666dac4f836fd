"""Every code that Penstock can say has its page, which `penstock explain` prints (STYLE 5)."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = {page.stem for page in (ROOT / "docs" / "errors").glob("*.md")}


def codes() -> dict[str, str]:
    """Codes by where they are said: of errors, refusals, failures and findings."""
    found: dict[str, str] = {}
    for file in (ROOT / "src" / "penstock").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            said: list[ast.expr] = []
            if isinstance(node, ast.Call):
                name = (
                    node.func.attr
                    if isinstance(node.func, ast.Attribute)
                    else getattr(node.func, "id", "")
                )
                if name == "Rejected" and node.args:
                    said.append(node.args[0])
                if name in ("Failure", "failure_of", "Finding"):
                    said.extend(k.value for k in node.keywords if k.arg == "code")
            if isinstance(node, ast.ClassDef):
                for each in node.body:
                    if (
                        isinstance(each, ast.Assign)
                        and getattr(each.targets[0], "id", "") == "code"
                    ):
                        said.append(each.value)
            for value in said:
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    found[value.value] = str(file.relative_to(ROOT))
    return found


def test_every_code_has_a_page() -> None:
    known = codes()

    assert len(known) > 50
    assert {code: where for code, where in known.items() if code not in PAGES} == {}


def test_a_code_names_its_noun_first_and_stands_alone() -> None:
    """`id-invalid`, not `invalid-id`; only a definition's words are `unknown-…` and `duplicate-…` (STYLE 4.17)."""
    assert [code for code in PAGES if code.startswith(("invalid-", "missing-", "bad-"))] == []
    parts = {code: tuple(sorted(code.split("-"))) for code in PAGES}
    assert len(set(parts.values())) == len(parts), "two codes of the same words"
