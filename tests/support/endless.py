"""Definitions by chance with cycles of which it is not plain whether they end (SPEC 3.4).

Each pass changes what its condition reads, or does not; numbers are small, so that what ends does so soon.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from support.graphs import Document, Draw

GOES_ON = (
    "data.n > 0", "data.n < 6", "data.n != 0", "iteration < 4", "data.n > 0 && iteration < 5", "data.n > 0 || data.m > 0",
    "data.n < data.m", "tasks.a.output > 2", "data.n < input.n", "data.n >= 2 && data.m < 9", "true",
    "data.n * 2 < 9", "iteration < input.n",
)  # fmt: skip
UPDATES = (
    "data.n - 1", "data.n + 1", "data.n - 2", "data.n", "0", "data.n - tasks.a.output", "data.m - 1", "data.m + 1",
    "data.n - data.m", "data.n % 3", "data.n > 3 ? data.n - 1 : 0", "data.n * 2",
)  # fmt: skip


def negated(condition: str) -> str:
    return f"!({condition})"


@st.composite
def endless(draw: Draw) -> Document:
    def pick(*choices: Any) -> Any:
        return draw(st.sampled_from(choices))

    small = {"type": "integer", "minimum": pick(0, 1), "maximum": 5}
    tasks: Document = {
        "a": {"do": "x", "outputSchema": small},
        "b": {"do": "x"},
    }
    for name in ("n", "m"):
        if pick(True, True, False):
            update = pick(*UPDATES)
            tasks[pick("a", "b")].setdefault("onComplete", []).append({"set": {name: update}})
    if pick(True, False, False):
        tasks["b"]["when"] = pick("data.n > 2", "iteration < 3", "tasks.a.output > 1")
    condition = pick(*GOES_ON)
    document: Document = {
        "id": "flow",
        "inputSchema": {
            "type": "object",
            "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 6}},
            "required": ["n"],
        },
        "data": {"n": {"value": pick(0, 3, 5)}, "m": {"value": pick(0, 4)}},
    }
    inner: Document = {"tasks": tasks, "links": [{"from": "a", "to": "b"}]}
    shape = pick("while", "until", "natural", "max")
    if shape == "natural":
        inner["links"].append({"from": "b", "to": "a", "when": condition})
        inner["links"].append({"from": "b", "to": "out", "when": negated(condition)})
        inner["tasks"]["out"] = {"do": "x"}
        return {**document, **inner}
    word = "until" if shape == "until" else "while"
    text = negated(condition) if shape == "until" else condition
    if "tasks.a" in text and word == "while":
        text = "data.n > 0"  # before the first pass there is no `a`
    loop: Document = {"type": "loop", word: text, "body": inner}
    if shape == "max":
        loop["max"] = 7
    return {**document, "tasks": {"again": loop, "last": {"do": "x"}}, "links": [{"from": "again", "to": "last"}]}  # fmt: skip
