"""Bus events over kill -9: what was acknowledged reaches the runs that wait, once and in order (SPEC 2.2, 7.1)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

import penstock
from crash.bus import EVENTS, RUNS, Orders
from crash.harness import KILLED, Nursery

POINTS = {
    "one": ("route.before", "route.after", "decided.event_received", "stored.event_received", "append.after"),
    "batch": ("route.kept", "route.before", "route.after", "route.dropped", "stored.event_received"),
    "run": ("outbox.before", "route.after", "stored.published", "outbox.saved", "stored.event_received"),
}  # fmt: skip


@pytest.fixture(scope="module")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    with Nursery(tmp_path_factory.mktemp("bus") / "errors", "crash.bus") as nursery:
        yield nursery


@pytest.mark.parametrize("mode", sorted(POINTS))
async def test_what_was_acknowledged_is_there_once_and_in_order(
    nursery: Nursery, tmp_path: Path, mode: str
) -> None:
    for number, point in enumerate(POINTS[mode]):
        database, log = tmp_path / f"{point}.db", tmp_path / f"{point}.log"
        count = 1 if number % 2 else 3
        whole = Orders(str(database), str(log), mode)
        killed = replace(whole, point=point, count=count)
        assert nursery.live(killed) == KILLED, (point, nursery.words())
        assert nursery.live(whole) == 0, (point, nursery.words())
        async with penstock.open(f"sqlite:///{database}", execute=False) as engine:
            for n in range(RUNS):
                run = await engine.get(f"w{n}")
                history = await run.history()
                ids = [item.event.id for item in history if item.type == "event_received"]
                assert len(ids) == len(set(ids)) == EVENTS, (point, ids)
                assert (await run.result()) == {"got": list(range(EVENTS))}, point
