"""Loops that never wait are tried few times and not far, and what is not known of them is said (SPEC 3)."""

from __future__ import annotations

from time import process_time

import pytest

from penstock.core.plan import Plan
from penstock.dsl.load import load
from penstock.testing.acting import act
from penstock.verify.rehearsal import SCOPES_MAX, rehearse
from penstock.verify.scenario import Scenario, Shows
from penstock.verify.verification import verify

RUNAWAYS = {
    "a loop": """\
id: k
data: {i: {value: 1.0}}
tasks:
  l: {type: loop, while: data.i > 0.0, body: {type: transform, set: {i: data.i - 1e-20}}}
""",
    "a loop by an input": """\
id: k
inputSchema: {type: object, required: [step], properties: {step: {type: integer}}}
data: {i: {value: 100}}
tasks:
  l: {type: loop, while: data.i > 0, body: {type: transform, set: {i: data.i - input.step}}}
""",
    "a cycle": """\
id: k
data: {i: {value: 1.0}}
tasks:
  t: {type: transform, set: {i: data.i - 1e-20}}
  g: {type: gateway, kind: exclusive, after: t}
  z: {type: transform, set: {j: "1"}}
links:
  - {from: g, to: t, when: data.i > 0.0}
  - {from: g, to: z, when: data.i <= 0.0}
""",
}


@pytest.mark.parametrize("name", RUNAWAYS)
def test_a_loop_that_never_waits_is_left_soon(name: str) -> None:
    began = process_time()
    found = verify(load(RUNAWAYS[name]))
    assert process_time() - began < 2
    assert "loop-unbounded" in {finding.code for finding in found.findings}
    assert not [finding for finding in found.findings if finding.level == "error"]


def test_a_rehearsal_says_that_it_gave_up() -> None:
    plan = Plan(load(RUNAWAYS["a loop"]).definition)
    seen = rehearse(plan, Scenario({}, (), Shows(status="FAILED")))
    assert not seen.shown
    assert seen.why == f"one step begins more than {SCOPES_MAX} passes without a wait"


def test_what_was_not_shown_is_told_without_a_stray_space() -> None:
    plan = Plan(load("id: k\ntasks: {a: {do: a}}\n").definition)
    seen = rehearse(plan, Scenario({}, (), Shows(status="FAILED")))
    assert seen.why == "the run is RUNNING, not FAILED"


async def test_a_condition_on_the_time_is_acted_at_the_time_of_the_rehearsal() -> None:
    loaded = load("""\
id: tim
inputSchema: {type: object, required: [at], properties: {at: {type: string, format: date-time}}}
tasks:
  t: {type: timer, until: "${input.at}"}
  g: {type: gateway, kind: exclusive, after: t}
  a: {do: a}
  b: {do: b}
links:
  - {from: g, to: a, when: "timestamp(input.at) < now"}
  - {from: g, to: b, when: "timestamp(input.at) > now"}
""")
    scenarios = [
        finding.counterexample
        for finding in verify(loaded).findings
        if finding.level == "error" and isinstance(finding.counterexample, Scenario)
    ]
    assert scenarios
    for scenario in scenarios:
        performance = await act(loaded, scenario)
        assert performance.seen.shown, performance.seen.why
