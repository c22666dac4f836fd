"""The shipped laws of a bus, held against ours; and what the one in process adds."""

from __future__ import annotations

import asyncio

import pytest

from penstock.adapters import memory_bus
from penstock.adapters.clock import SystemClock
from penstock.adapters.memory_bus import MemoryBus
from penstock.errors import Busy, Unacknowledged
from penstock.model.envelope import Envelope
from penstock.testing.conformance.bus import BusLaws, Ears, Factory, event, opened


class TestMemory(BusLaws):
    @pytest.fixture
    def factory(self) -> Factory:
        return lambda: MemoryBus(SystemClock())

    async def test_a_full_queue_is_busy_and_refuses_the_whole_batch(
        self, factory: Factory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(memory_bus, "DEPTH_MAX", 3)
        go = asyncio.Event()

        async def slow(envelope: Envelope) -> None:
            await go.wait()

        async with opened(factory) as bus:
            quick = Ears()
            await bus.subscribe(["a"], slow, name="slow")
            await bus.subscribe(["b"], quick)
            await bus.publish_batch([event("a"), event("a")], wait=False)
            with pytest.raises(Busy, match="slow"):
                await bus.publish_batch([event("b"), event("a"), event("a")])
            assert quick.data == []
            await bus.publish_batch([event("b"), event("a"), event("a")], qos="at-most-once")
            assert bus.status().lost == 2
            await bus.publish_batch([event("a"), event("a")], wait=False)
            assert [each.error for each in bus.dead_letters()] == ["its queue is full"] * 2
            go.set()

    async def test_who_is_not_acknowledged_in_time_may_wait_on(
        self, factory: Factory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(memory_bus, "ACKNOWLEDGED_SECONDS_MAX", 0.05)
        go, heard = asyncio.Event(), list[str]()

        async def slow(envelope: Envelope) -> None:
            await go.wait()
            heard.append(envelope.id)

        async with opened(factory) as bus:
            await bus.subscribe(["a"], slow)
            with pytest.raises(Unacknowledged):
                await bus.publish(event("a", id="one"))
            go.set()
            await bus.publish(event("a", id="one"))

        assert heard == ["one"]

    async def test_a_receiver_that_hangs_is_given_up(
        self, factory: Factory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(memory_bus, "RECEIVER_SECONDS_MAX", 0.02)
        monkeypatch.setattr(memory_bus, "TRIES_MAX", 1)

        async def hangs(envelope: Envelope) -> None:
            await asyncio.Event().wait()

        async with opened(factory) as bus:
            await bus.subscribe(["a"], hangs)
            await bus.publish(event("a"))
            assert "Timeout" in bus.dead_letters()[0].error
