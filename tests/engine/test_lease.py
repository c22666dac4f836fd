"""The lease is renewed every 2 s whatever else the owner is at (SPEC 4.8): else a healthy one is taken over from."""

from __future__ import annotations

import asyncio

from penstock.adapters.memory import MemoryStore
from penstock.adapters.memory_bus import MemoryBus
from penstock.engine.engine import Engine, Settings
from penstock.engine.recovery import RENEW_SECONDS, Ownership
from penstock.engine.runs import LocalRuns
from penstock.ports.store import Owner, Pulse, Record, Row
from penstock.sdk.worker import LocalActivities
from penstock.sdk.workflow import Registry
from penstock.testing.harness import SkipClock


class Slow(MemoryStore):
    """Some questions are not answered until the gate is open; how often the lease was renewed."""

    closed = ""
    renewals = 0

    def gate(self) -> asyncio.Event:
        self._gate = asyncio.Event()
        return self._gate

    async def records(self, kind: str, *, after: str = "", limit: int = 1000) -> list[Record]:
        if self.closed == "records":
            await self._gate.wait()
        return await super().records(kind, after=after, limit=limit)

    async def open_runs(self, *, after: int = 0, limit: int = 1000) -> list[Row]:
        if self.closed == "open_runs":
            await self._gate.wait()
        return await super().open_runs(after=after, limit=limit)

    async def pulse(self, owner: Owner) -> Pulse:
        self.renewals += 1
        return await super().pulse(owner)


def engine_on(store: Slow, clock: SkipClock) -> LocalRuns:
    worker = LocalActivities(Registry([]), clock, watch=False)
    core = Engine(store, worker, clock, bus=MemoryBus(clock), settings=Settings(drain_seconds=0))
    return LocalRuns(core, Ownership(core))


async def let_pass(clock: SkipClock, rounds: int) -> None:
    for _ in range(rounds):
        clock.move(clock.now() + RENEW_SECONDS)
        for _ in range(20):
            await asyncio.sleep(0)


async def test_while_a_look_around_takes_long() -> None:
    clock = SkipClock()
    store = Slow(clock=clock.now)
    runs = engine_on(store, clock)
    await runs.engine.open()
    assert await runs.ownership.open()
    gate, store.closed = store.gate(), "records"

    await let_pass(clock, 6)

    assert store.renewals >= 5
    gate.set()
    await runs.close()


async def test_while_recovery_takes_long() -> None:
    clock = SkipClock()
    store = Slow(clock=clock.now)
    runs = engine_on(store, clock)
    await runs.engine.open()
    gate, store.closed = store.gate(), "open_runs"
    opening = asyncio.ensure_future(runs.ownership.open())
    await asyncio.sleep(0.01)

    await let_pass(clock, 6)

    assert store.renewals >= 5
    assert not opening.done()
    gate.set()
    assert await opening
    await runs.close()


async def test_who_waits_for_a_recovery_is_woken_when_it_is_over_or_not_ours_any_more() -> None:
    clock = SkipClock()
    store = Slow(clock=clock.now)
    core = engine_on(store, clock).engine
    for end in (core.recovered, core.disown):
        core.own(Owner("me", 1, "", since=0.0, renewed_at=0.0), 0)
        waiting = asyncio.ensure_future(core.until_recovered())
        await asyncio.sleep(0)
        assert not waiting.done()

        end()
        await asyncio.wait_for(waiting, timeout=5)
        await core.until_recovered()  # at once
