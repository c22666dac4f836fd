"""Runs are driven into loops and out of them: neither a `while` nor an `until` leaves a good definition in doubt (SPEC 3.2)."""

from __future__ import annotations

import pytest

from penstock.dsl.load import load
from penstock.verify.verification import verify

GOOD = {
    "while reads the input": """
inputSchema: {type: boolean}
tasks:
  again: {type: loop, while: input, max: 9, body: {do: work}}
""",
    "while counts up to an input": """
inputSchema: {type: object, required: [n], properties: {n: {type: integer}}}
tasks:
  again: {type: loop, while: iteration < input.n, max: 9, body: {do: work}}
  last: {do: last, after: again}
""",
    "while reads the task before": """
tasks:
  look: {do: look, outputSchema: {type: boolean}}
  again: {type: loop, while: tasks.look.output, max: 9, body: {do: work}, after: look}
""",
    "until reads an output of which nothing is known": """
tasks:
  again:
    type: loop
    until: tasks.answer.output == "yes"
    max: 9
    body: {tasks: {answer: {do: answer}}}
  last: {do: last, after: again}
""",
    "a loop in a loop": """
inputSchema: {type: object, required: [deep], properties: {deep: {type: boolean}}}
tasks:
  outer:
    type: loop
    until: tasks.enough.output == true
    max: 9
    body:
      tasks:
        inner: {type: loop, while: input.deep, max: 9, body: {do: work}}
        enough: {do: enough, after: inner}
""",
    "a map that waits for enough items": """
inputSchema: {type: array}
tasks:
  many: {type: map, items: input, more: bidder, n: 3, body: {do: bid}}
  last: {do: last, after: many}
""",
}


@pytest.mark.parametrize("text", GOOD.values(), ids=GOOD)
def test_each_task_is_seen_to_run(text: str) -> None:
    verification = verify(load(f"id: good\n{text}"))

    assert verification.verdict("3.2") == "proved", verification.findings


def test_a_pass_that_no_input_begins_is_still_found() -> None:
    verification = verify(
        load("""
id: never
inputSchema: {type: object, required: [n], properties: {n: {type: integer, maximum: 3}}}
tasks:
  again: {type: loop, while: input.n > 3, max: 9, body: {do: work}}
  last: {do: last, after: again}
""")
    )

    assert "never-runs" in [finding.code for finding in verification.findings]
