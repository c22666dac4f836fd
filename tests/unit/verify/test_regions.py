"""A scope is taken apart where one link leads in and one leads out."""

from __future__ import annotations

from typing import Any

from penstock.core.plan import Plan
from penstock.dsl.load import load, load_document
from penstock.verify.regions import Fragment, decompose


def apart(text: str) -> set[frozenset[str]]:
    top = decompose(Plan(load("id: it\n" + text).definition).root)
    return {fragment.nodes for fragment in top.every() if fragment is not top}


def names(text: str) -> frozenset[str]:
    return frozenset(text.split())


NESTED = """\
tasks:
  a: {do: x}
  b: {do: x, after: a}
  c: {do: x, after: b}
  d: {do: x, after: b}
  e: {do: x, after: [c, d]}
  f: {do: x, after: a}
  g: {do: x, after: [e, f]}
"""


def test_what_one_link_leads_into_and_one_out_of_is_a_fragment() -> None:
    assert names("b c d e") in apart(NESTED)
    assert names("a b c d e f g") in apart(NESTED)


def test_a_link_that_crosses_keeps_it_together() -> None:
    crossed = NESTED.replace("f: {do: x, after: a}", "f: {do: x, after: [a, c]}")
    assert names("b c d e") not in apart(crossed)
    assert names("a b c d e f g") in apart(crossed)


def test_what_is_cancelled_from_outside_is_not_taken_apart() -> None:
    stopped = NESTED + "  stop: {type: cancel, tasks: [d], after: f}\n"
    assert names("b c d e") not in apart(stopped)
    harmless = NESTED + "  stop: {type: cancel, tasks: [f], after: g}\n"
    assert names("b c d e") in apart(harmless)


def test_a_long_row_is_taken_in_pieces() -> None:
    tasks: dict[str, Any] = {"t0": {"do": "x"}}
    for n in range(1, 500):
        tasks[f"t{n}"] = {"do": "x", "after": f"t{n - 1}"}
    top = decompose(Plan(load_document({"id": "row", "tasks": tasks}).definition).root)

    def widest(fragment: Fragment) -> int:
        hidden = {id for part in fragment.inner for id in part.nodes}
        return len(fragment.nodes - hidden) + len(fragment.inner)

    assert max(widest(fragment) for fragment in top.every()) <= 20
