"""The 43 control-flow patterns: each definition runs as its trace says, and the page is made of them (SPEC 14)."""

from __future__ import annotations

import asyncio
import runpy
from pathlib import Path
from typing import Any

import pytest

from penstock.dsl.load import load
from penstock.verify.verification import verify
from support.acts import seen, stage

ROOT = Path(__file__).parents[2]
PAGE = runpy.run_path(str(ROOT / "docs" / "concepts" / "patterns.py"))
PATTERNS: list[tuple[Path, str, dict[str, Any]]] = PAGE["patterns"]()
NAMES = (
    "Sequence", "Parallel Split", "Synchronization", "Exclusive Choice", "Simple Merge", "Multi-Choice",
    "Structured Synchronizing Merge", "Multi-Merge", "Structured Discriminator", "Arbitrary Cycles", "Implicit Termination",
    "Multiple Instances without Synchronization", "Multiple Instances with a priori Design-Time Knowledge",
    "Multiple Instances with a priori Run-Time Knowledge", "Multiple Instances without a priori Run-Time Knowledge",
    "Deferred Choice", "Interleaved Parallel Routing", "Milestone", "Cancel Task", "Cancel Case", "Structured Loop", "Recursion",
    "Transient Trigger", "Persistent Trigger", "Cancel Region", "Cancel Multiple Instance Task", "Complete Multiple Instance Task",
    "Blocking Discriminator", "Cancelling Discriminator", "Structured Partial Join", "Blocking Partial Join",
    "Cancelling Partial Join", "Generalized AND-Join", "Static Partial Join for Multiple Instances",
    "Cancelling Partial Join for Multiple Instances", "Dynamic Partial Join for Multiple Instances",
    "Acyclic Synchronizing Merge", "General Synchronizing Merge", "Critical Section", "Interleaved Routing", "Thread Merge",
    "Thread Split", "Explicit Termination",
)  # fmt: skip
"""In the order of the revised list: WCP-1 to WCP-43."""


def test_all_are_there_with_a_score_and_a_reason() -> None:
    assert [(about["pattern"], name) for _, name, about in PATTERNS] == list(enumerate(NAMES, 1))
    for file, name, about in PATTERNS:
        assert about["score"] in PAGE["SCORES"], name
        assert ("why" in about) == (about["score"] != "+"), name
        assert file.name.startswith(f"{about['pattern']:02}-"), file
        assert load(file.read_text()).definition.id == f"wcp-{file.stem}"


def test_the_page_is_up_to_date() -> None:
    page = (ROOT / "docs" / "concepts" / "patterns.md").read_text(encoding="utf-8")

    assert page == PAGE["page"](), "make docs writes it anew"
    for number, name in enumerate(NAMES, 1):
        assert f"\n## {number}. {name} (" in page


@pytest.mark.parametrize("file", PAGE["FILES"], ids=lambda file: file.stem)
def test_it_runs_as_its_traces_say(file: Path) -> None:
    text = file.read_text()
    definition = load(text).definition
    traces: list[str] = definition.metadata["runs"]
    assert traces

    async def main() -> None:
        async with stage() as (engine, stubs):
            await engine.register(text)
            for trace in traces:
                lines = trace.splitlines()
                acts = [line.partition(" =>")[0] for line in lines[:-1]]
                assert await seen(engine, stubs, definition.id, acts) == lines

    asyncio.run(main())


@pytest.mark.parametrize("file", PAGE["FILES"], ids=lambda file: file.stem)
def test_it_is_verified_as_far_as_the_page_says(file: Path) -> None:
    verification = verify(load(file.read_text()))
    rules = {proof.rule for proof in verification.proofs} - {"3.7"}

    assert rules >= {"3.1", "3.2"}
    unproved = {r: v for r in sorted(rules) if (v := verification.verdict(r)) != "proved"}
    assert unproved == load(file.read_text()).definition.metadata.get("unproved", {})
    assert verification.errors == []


def test_a_cycle_with_two_entries_is_refused_as_the_page_says() -> None:
    """Why pattern 10 is no +."""
    loaded = load("""
id: two-entries
tasks: {a: {do: a}, b: {do: b}, c: {do: c}}
links:
  - {from: a, to: b, when: input.first}
  - {from: a, to: c, when: "!input.first"}
  - {from: b, to: c, when: tasks.b.output}
  - {from: c, to: b, when: tasks.c.output}
""")
    assert [f.code for f in verify(loaded).errors] == ["cycle-irreducible"]
