"""A counterexample that was run on an engine, step by step, for people and for machines."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.cli.follow import Followed
from penstock.cli.output import paint, visible
from penstock.core.plan import Plan
from penstock.verify.scenario import told
from penstock.verify.telling import comes_to

if TYPE_CHECKING:
    from penstock.dsl.load import Loaded
    from penstock.ports.runs import HistoryItem
    from penstock.testing.acting import Moment, Performance
    from penstock.verify.scenario import Scenario


def played(loaded: Loaded, scenario: Scenario, performance: Performance) -> Iterator[str]:
    """What was done, what the engine made of it, and whether that is what was said."""
    yield _styled(
        "on the engine (memory store, skipping clock, activities as the counterexample says):",
        "title",
    )
    yield from _moments(loaded, scenario.input, performance.moments)
    if performance.twin is not None:
        yield ""
        yield _styled("and in the other order:", "title")
        yield from _moments(loaded, scenario.input, performance.twin)
    yield ""
    if performance.seen.shown:
        yield f"{_styled('it happens as the report says', 'completed')}: {visible(comes_to(scenario))}"
    else:
        yield f"{_styled('it does not happen as the report says', 'failed')}: {visible(performance.seen.why)}"


def _moments(loaded: Loaded, input: Any, moments: list[Moment]) -> Iterator[str]:
    followed = Followed("counterexample", Plan(loaded.definition, loaded.vocabulary))
    known: dict[int, str] = {}
    for number, moment in enumerate(moments, 1):
        given = f"start with input {msgspec.json.encode(input).decode()}"
        said = given if moment.step is None else told(moment.step)
        yield visible(f"{number}. {said}")
        for item in moment.items:
            followed.take(item.seq, item.event)
            line = followed.lines[-1]
            who = line.key or "run"
            yield _styled(f"     {visible(f'{who}: {line.text}')}", "detail")
            links = followed.links()
            for index in sorted(links.keys() - known.keys()):
                link = loaded.definition.links[index]
                yield _styled(
                    f"     link {visible(f'{link.from_} → {link.to}')}: {links[index]}", "detail"
                )
            known = links
    yield f"   the run is {followed.status}"


def played_json(performance: Performance) -> dict[str, Any]:
    def steps(moments: list[Moment]) -> list[dict[str, Any]]:
        return [
            {
                "step": None if moment.step is None else msgspec.to_builtins(moment.step),
                "events": [{"seq": item.seq, **_event(item)} for item in moment.items],
            }
            for moment in moments
        ]  # fmt: skip

    outcome = performance.seen.outcome
    return {
        "shown": performance.seen.shown,
        "why": performance.seen.why,
        "status": None if outcome is None else outcome.status,
        "code": None if outcome is None else outcome.code,
        "steps": steps(performance.moments),
        "twin": None if performance.twin is None else steps(performance.twin),
    }


def _event(item: HistoryItem) -> dict[str, Any]:
    data: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(item.event))
    return data


def _styled(text: str, style: str) -> str:
    return paint(text, style, sys.stdout)
