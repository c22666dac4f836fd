"""Definitions that break a rule, found with the right code and place and a counterexample that reproduces; and near misses.

In `bad/RULE/NAME.yaml` the first line says code, line and level; what is in `clean/RULE` is proved by its rule.
"""

from __future__ import annotations

import pathlib

import pytest

from penstock.core.plan import Plan
from penstock.verify.rehearsal import rehearse
from penstock.verify.scenario import Scenario
from penstock.verify.structure import examine_file
from penstock.verify.verification import Verification, verify

HERE = pathlib.Path(__file__).parent
RULES = {
    "branches": "3.3",
    "termination": "3.4",
    "races": "3.5",
    "dataflow": "3.6",
    "compensation": "3.7",
}
SILENT = {"branch-dead", "loop-unbounded"}
"""Codes of warnings that no run can show."""


def _files(kind: str) -> list[str]:
    return sorted(
        str(path.relative_to(HERE / kind)) for rule in RULES for path in (HERE / kind / rule).glob("*.yaml")
    )  # fmt: skip


def _verified(path: pathlib.Path) -> tuple[Verification, Plan]:
    examined = examine_file(path)
    assert examined.loaded is not None
    assert not examined.errors, examined.errors
    return verify(examined.loaded), Plan(examined.loaded.definition)


@pytest.mark.parametrize("name", _files("bad"))
def test_what_is_wrong_is_found(name: str) -> None:
    path = HERE / "bad" / name
    code, line, level = path.read_text().splitlines()[0].removeprefix("# ").split()

    verification, plan = _verified(path)

    rule = RULES[name.split("/")[0]]
    found = [f for f in verification.findings if f.code == code and f.place.line == int(line)]
    assert found, verification.findings
    assert found[0].level == level
    assert found[0].hint
    assert verification.verdict(rule) == ("refuted" if level == "error" else "unknown")
    if level == "error" or code not in SILENT:
        assert isinstance(found[0].counterexample, Scenario)
        rehearsal = rehearse(plan, found[0].counterexample)
        assert rehearsal.shown, rehearsal.why


@pytest.mark.parametrize("name", _files("clean"))
def test_what_is_right_is_proved(name: str) -> None:
    verification, _ = _verified(HERE / "clean" / name)

    rule = RULES[name.split("/")[0]]
    assert [f for f in verification.findings if f.level == "error"] == []
    assert verification.verdict(rule) == "proved", verification


def test_there_are_enough_of_them() -> None:
    for kind in ("bad", "clean"):
        for rule in RULES:
            assert len([name for name in _files(kind) if name.startswith(rule)]) >= 5
