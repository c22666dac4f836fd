"""The laws of every Bus, for pytest with pytest-asyncio.

    class TestMine(BusLaws):
        @pytest.fixture
        def factory(self):
            return lambda: MyBus("localhost")

Each call of the factory gives a bus of its own, unopened, on which nobody subscribes yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, cast

import pytest
from msgspec import Raw
from msgspec.json import encode

from penstock.errors import Rejected
from penstock.model.envelope import RUN, Envelope
from penstock.ports.bus import Bus

Factory = Callable[[], Bus]
WAIT_SECONDS = 20.0
_numbers = count()


def event(topic: str = "a.b", data: Any = None, *, run: str = "", id: str = "") -> Envelope:
    return Envelope(
        id=id or f"e{next(_numbers)}",
        topic=topic,
        type=topic,
        raw=Raw(encode(data)),
        metadata={RUN: run} if run else {},
    )


@asynccontextmanager
async def opened(factory: Factory) -> AsyncGenerator[Bus]:
    bus = factory()
    await bus.open()
    try:
        yield bus
    finally:
        await bus.close()


class Ears:
    """A subscriber that remembers; fails as often as it is told to, for each event."""

    def __init__(self, *, failures: int = 0) -> None:
        self.heard: list[Envelope] = []
        self.tries: list[str] = []
        self._failures = failures

    async def __call__(self, envelope: Envelope) -> None:
        self.tries.append(envelope.id)
        if self.tries.count(envelope.id) <= self._failures:
            raise RuntimeError("not today")
        await asyncio.sleep(0)
        self.heard.append(envelope)

    @property
    def data(self) -> list[Any]:
        return [each.data for each in self.heard]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


class BusLaws:
    """See the module's docstring."""

    async def test_each_who_subscribes_hears_what_fits_its_patterns(self, factory: Factory) -> None:
        async with opened(factory) as bus:
            exact, word, rest, several = Ears(), Ears(), Ears(), Ears()
            await bus.subscribe(["orders.paid"], exact)
            await bus.subscribe(["orders.*"], word)
            await bus.subscribe(["orders.>"], rest)
            await bus.subscribe(["orders.paid", "users.*"], several)
            for topic in ("orders.paid", "orders.paid.late", "orders", "users.new"):
                await bus.publish(event(topic, topic))

            assert exact.data == ["orders.paid"]
            assert word.data == ["orders.paid"]
            assert rest.data == ["orders.paid", "orders.paid.late"]
            assert several.data == ["orders.paid", "users.new"]

    async def test_an_envelope_arrives_as_it_was(self, factory: Factory) -> None:
        async with opened(factory) as bus:
            ears = Ears()
            await bus.subscribe([">"], ears)
            sent = Envelope("e", "a.b", "kind", 12.5, "me", Raw(b'{"n":[1,2]}'), {"k": "v"})
            await bus.publish(sent)

            (got,) = ears.heard
            assert (got.id, got.topic, got.type, got.time, got.source) == (
                "e", "a.b", "kind", 12.5, "me"
            )  # fmt: skip
            assert got.data == {"n": [1, 2]}
            assert got.metadata == {"k": "v"}

    async def test_nobody_can_change_an_event_for_another(self, factory: Factory) -> None:
        seen: list[Any] = []

        async def spoil(envelope: Envelope) -> None:
            envelope.data["n"] = 0
            seen.append(envelope.data["n"])

        async with opened(factory) as bus:
            await bus.subscribe([">"], spoil)
            await bus.subscribe([">"], spoil)
            await bus.publish(event("a", {"n": 1}))

        assert seen == [1, 1]

    async def test_of_a_group_one_hears_each_event(self, factory: Factory) -> None:
        async with opened(factory) as bus:
            one, two, alone = Ears(), Ears(), Ears()
            await bus.subscribe(["a"], one, group="team")
            await bus.subscribe(["a"], two, group="team")
            await bus.subscribe(["a"], alone)
            for number in range(20):
                await bus.publish(event("a", number, run=f"r{number}"))

            assert sorted(one.data + two.data) == list(range(20))
            assert one.data
            assert two.data
            assert sorted(alone.data) == list(range(20))

    async def test_order_is_kept_per_run_though_it_fails_on_the_way(self, factory: Factory) -> None:
        async with opened(factory) as bus:
            ears, group = Ears(failures=1), (Ears(), Ears())
            await bus.subscribe(["a"], ears)
            for each in group:
                await bus.subscribe(["a"], each, group="team")
            events = [event("a", [run, n], run=run) for n in range(4) for run in ("x", "y", "z")]
            await asyncio.gather(*(bus.publish(each) for each in events))
            await until(lambda: len(ears.heard) == 12)

            for heard in (ears.data,):
                for run in ("x", "y", "z"):
                    assert [n for r, n in heard if r == run] == [0, 1, 2, 3]
            assert sum(len(each.heard) for each in group) == 12

    async def test_one_that_fails_keeps_nothing_from_others_and_leaves_dead_letters(
        self, factory: Factory
    ) -> None:
        async with opened(factory) as bus:
            bad, good = Ears(failures=99), Ears()
            await bus.subscribe(["a"], bad, name="bad")
            await bus.subscribe(["a"], good)
            await bus.publish(event("a", 1, id="one"), wait=False)
            await bus.publish(event("a", 2, id="two"), wait=False)
            await until(lambda: good.data == [1, 2])
            await until(lambda: bus.status().dead == 2)

            letters = bus.dead_letters()
            assert [(each.envelope.id, each.subscriber) for each in letters] == [
                ("one", "bad"), ("two", "bad")
            ]  # fmt: skip
            assert "not today" in letters[0].error
            assert bad.tries.count("one") == letters[0].tries > 1

    async def test_what_fails_once_is_given_again(self, factory: Factory) -> None:
        async with opened(factory) as bus:
            ears = Ears(failures=1)
            await bus.subscribe(["a"], ears)
            await bus.publish(event("a", 1))

            assert ears.data == [1]
            assert bus.status().dead == 0
            assert bus.status().subscribers[0].failed == 1

    async def test_at_most_once_is_tried_once_and_not_waited_for(self, factory: Factory) -> None:
        async with opened(factory) as bus:
            ears = Ears(failures=1)
            await bus.subscribe(["a"], ears)
            await bus.publish(event("a", 1), qos="at-most-once")
            assert ears.tries == []
            await until(lambda: bus.status().lost == 1)

            assert ears.data == []
            assert len(ears.tries) == 1
            assert bus.status().dead == 0

    async def test_the_default_quality_can_be_changed_while_running(self, factory: Factory) -> None:
        async with opened(factory) as bus:
            ears = Ears()
            await bus.subscribe(["a"], ears)
            bus.set_qos("at-most-once")
            await bus.publish(event("a", 1))
            assert ears.data == []
            bus.set_qos("at-least-once")
            await bus.publish(event("a", 2))

            assert ears.data == [1, 2]
            assert bus.qos == bus.status().qos == "at-least-once"
            with pytest.raises(Rejected, match="quality"):
                bus.set_qos(cast("Any", "sometimes"))

    async def test_the_same_id_is_the_same_event(self, factory: Factory) -> None:
        async with opened(factory) as bus:
            ears = Ears()
            await bus.subscribe(["a"], ears)
            for _ in range(3):
                await bus.publish(event("a", 1, id="same"))

            assert ears.data == [1]
            assert bus.status().duplicates == 2

    async def test_a_batch_is_all_or_none(self, factory: Factory) -> None:
        async with opened(factory) as bus:
            ears = Ears()
            await bus.subscribe([">"], ears)
            with pytest.raises(Rejected, match="no topic"):
                await bus.publish_batch([event("a"), event("not a topic")])
            await asyncio.sleep(0.02)
            assert ears.data == []

            await bus.publish_batch([event("a", n, run="r") for n in range(50)])
            assert ears.data == list(range(50))
            await bus.publish_batch([])
            assert bus.status().published == 50

    async def test_who_has_unsubscribed_hears_nothing_more(self, factory: Factory) -> None:
        async with opened(factory) as bus:
            gone, stays = Ears(), Ears()
            subscription = await bus.subscribe(["a"], gone, group="team", name="gone")
            await bus.subscribe(["a"], stays, group="team")
            await bus.unsubscribe(subscription)
            await bus.unsubscribe(subscription)
            for n in range(4):
                await bus.publish(event("a", n))

            assert gone.data == []
            assert stays.data == [0, 1, 2, 3]
            assert subscription.name == "gone"
            assert len(bus.status().subscribers) == 1

    async def test_plain_functions_can_subscribe(self, factory: Factory) -> None:
        heard: list[Any] = []
        async with opened(factory) as bus:
            await bus.subscribe(["a"], lambda envelope: heard.append(envelope.data))
            await bus.publish(event("a", 1))

        assert heard == [1]

    async def test_what_makes_no_sense_is_refused(self, factory: Factory) -> None:
        async with opened(factory) as bus:
            for patterns, receiver, said in (
                (["a..b"], Ears(), "no pattern"),
                (["a.>.b"], Ears(), "no pattern"),
                ([], Ears(), "at least one"),
                (["a"], 3, "cannot be called"),
            ):
                with pytest.raises(Rejected, match=said):
                    await bus.subscribe(patterns, cast("Any", receiver))
            for topic in ("", "a b", "a.*", ".a", "x" * 300):
                with pytest.raises(Rejected, match="no topic"):
                    await bus.publish(event(topic))
            with pytest.raises(Rejected, match="quality"):
                await bus.publish(event("a"), qos=cast("Any", "twice"))
        with pytest.raises(Rejected, match="closed"):
            await bus.publish(event("a"))
