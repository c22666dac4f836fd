"""Counterexamples are runnable: each finding that has one happens on a real engine as the report says (SPEC 3)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.cli.main import main
from penstock.dsl.load import load, load_file
from penstock.testing.acting import act
from penstock.verify.scenario import (
    Complete,
    EndChild,
    Fail,
    Fire,
    Scenario,
    Shows,
    Signal,
    Step,
    Submit,
)
from penstock.verify.verification import verify
from verify.corpus import SILENT, files, path_of, wanted

BAD = [
    name
    for name in files("bad")
    if not name.startswith("structure/")
    and any(each.code not in SILENT for each in wanted(path_of("bad", name)))
]


async def acted(loaded: Any) -> set[str]:
    """The codes whose counterexamples were run."""
    codes: set[str] = set()
    for finding in verify(loaded).findings:
        if isinstance(finding.counterexample, Scenario):
            performance = await act(loaded, finding.counterexample)
            assert performance.seen.shown, (finding, performance.seen.why)
            codes.add(finding.code)
    return codes


@pytest.mark.parametrize("name", BAD)
async def test_a_counterexample_happens_on_the_engine(name: str) -> None:
    path = path_of("bad", name)
    codes = await acted(load_file(path))
    assert codes <= SHOWN.keys()
    assert {each.code for each in wanted(path)} - SILENT <= codes


SHOWN = {each.code: name for name in BAD for each in wanted(path_of("bad", name)) if each.code not in SILENT}  # fmt: skip
"""Every kind of finding that has a counterexample, and a definition that has it."""


@pytest.mark.parametrize("code", sorted(SHOWN))
def test_the_command_runs_it(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(path_of("bad", SHOWN[code]))
    main(["verify", file, "--json"])
    findings = json.loads(capsys.readouterr().out)["findings"]
    numbers = [each["number"] for each in findings if each["code"] == code and each["number"]]
    assert numbers

    for number in numbers:
        assert main(["verify", file, "--run", str(number)]) == 0
        said = capsys.readouterr().out
        assert f"[{code}]: " in said
        assert "it happens as the report says: " in said


FLOW = """\
id: it
tasks:
  ask: {type: signal, name: go, timeout: 1m}
  pay: {do: pay, after: ask, compensate: refund}
  rest: {type: timer, delay: 2d, after: pay}
  sign: {type: form, schema: {type: object}, after: rest}
  sub: {type: subworkflow, definition: other, after: sign}
  own: {type: subworkflow, definition: it, after: sub}
  each: {type: map, items: "[1, 2]", body: {do: y}, after: own}
data: {n: 0}
"""
STEPS: tuple[Step, ...] = (
    Signal("go", {"a": 1}),
    Complete("pay", 5),
    Fire("rest"),
    Submit("sign", {"name": "Ann"}),
    EndChild("sub", {"ok": True}),
    EndChild("own", 7),
    Complete("each[1]/y", "b"),
    Complete("each[0]/y", "a"),
)


async def test_every_kind_of_step_can_be_acted() -> None:
    scenario = Scenario({}, STEPS, Shows(status="COMPLETED", task="own", task_status="COMPLETED"))
    performance = await act(load(FLOW), scenario)
    assert performance.seen.why == ""
    assert [len(moment.items) > 0 for moment in performance.moments] == [True] * 9
    assert performance.seen.outcome is not None
    assert performance.seen.outcome.result == ["a", "b"]


async def test_failures_timeouts_and_children_that_fail() -> None:
    loaded = load(FLOW)
    for steps, code in (
        ((Fire("ask"),), "timeout"),
        ((Signal("go"), Fail("pay", "broke", "it broke")), "broke"),
        ((*STEPS[:4], EndChild("sub", code="lost")), "lost"),
    ):
        performance = await act(loaded, Scenario({}, steps, Shows(status="FAILED")))
        assert performance.seen.shown, performance.seen.why
        assert performance.seen.outcome is not None
        assert code in performance.seen.outcome.code or code == "lost"


async def test_what_does_not_happen_is_not_said_to() -> None:
    loaded = load(FLOW)
    for steps, why in (
        ((Complete("pay", 5),), "step 2: `pay` has no attempt under way"),
        ((Fire("pay"),), "step 2: `pay` waits for no time"),
        ((EndChild("sub"),), "step 2: `sub` has begun no run"),
        ((Submit("sign", {}),), "step 2: "),
        ((Signal("go"),), "the run is "),
    ):
        performance = await act(loaded, Scenario({}, steps, Shows(status="FAILED")))
        assert not performance.seen.shown
        assert performance.seen.why.startswith(why), performance.seen.why


async def test_an_input_that_is_refused_is_no_counterexample() -> None:
    loaded = load("id: it\ninputSchema: {type: integer}\ntasks: {a: {do: x}}\n")
    performance = await act(loaded, Scenario("no", (), Shows(status="RUNNING")))
    assert performance.seen.why.startswith("the start is refused: ")


async def test_two_orders_are_acted_one_after_the_other() -> None:
    loaded = load(
        "id: it\ndata: {n: 0}\ntasks:\n"
        "  a: {do: x, onComplete: [{set: {n: '1'}}]}\n  b: {do: x, onComplete: [{set: {n: '2'}}]}\n"
    )
    steps = (Complete("a"), Complete("b"))
    for differs, shown in (("data.n", True), ("status", False)):
        scenario = Scenario({}, steps, Shows(twin=steps[::-1], differs=differs))
        performance = await act(loaded, scenario)
        assert performance.seen.shown is shown
        assert performance.twin is not None
        assert [moment.step for moment in performance.twin] == [None, *steps[::-1]]
