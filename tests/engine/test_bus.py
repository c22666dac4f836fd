"""The bus and the runs that wait for what it carries (SPEC 2.2 `event`, 7.1)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import Rejected, RunFailed, activity
from penstock.errors import PayloadTooLarge, StoreError
from penstock.model.envelope import Envelope
from penstock.testing.harness import harness

WAITS = """
id: waits
tasks:
  paid: {type: event, topic: orders.paid, where: event.data.order == input, timeout: 1d}
  ship: {do: ship, after: paid, inputs: {what: {from: paid}}}
"""
TELLS = """
id: tells
tasks:
  tell: {type: publish, topic: orders.paid, payload: {order: "${input}"}}
"""


@activity
async def ship(what: Any) -> Any:
    return what


async def test_an_event_wakes_the_runs_that_it_belongs_to_and_no_others() -> None:
    async with harness(activities=[ship]) as engine:
        await engine.register(WAITS)
        one, two = await engine.start("waits", 1), await engine.start("waits", 2)
        await engine.bus.publish("orders.paid", {"order": 1}, id="e-1", source="bank")
        await engine.settle()

        assert await one.result() == {"order": 1}
        history = await one.history()
        received = next(item.event for item in history if item.type == "event_received")
        assert (received.id, received.source, received.keys) == ("e-1", "bank", ["paid"])
        (why,) = await two.why()
        assert (why.kind, why.key) == ("event", "paid")
        assert "orders.paid" in why.message


async def test_an_event_of_another_topic_or_type_is_not_taken() -> None:
    document = {
        "id": "typed",
        "tasks": {
            "e": {"type": "event", "config": {"topic": "a.*", "type": "good", "where": "true"}}
        },
    }
    async with harness() as engine:
        await engine.register(document)
        run = await engine.start("typed")
        await engine.bus.publish("a.b", 1, type="bad")
        await engine.bus.publish("a.b.c", 2, type="good")
        await engine.settle()
        assert (await run.show()).status == "WAITING"
        await engine.bus.publish("a.b", 3, type="good")

        assert await engine.finish(run) == 3


async def test_the_same_event_is_taken_once() -> None:
    document = {
        "id": "twice",
        "tasks": {
            "again": {
                "type": "loop",
                "until": "iteration == 2",
                "body": {"type": "event", "topic": "tick", "where": "true"},
            }
        },
    }
    async with harness() as engine:
        await engine.register(document)
        run = await engine.start("twice")
        for _ in range(3):
            await engine.bus.publish("tick", 1, id="same")
        assert (await engine.types(run)).count("event_received") == 1
        await engine.bus.publish("tick", 2, id="other")

        assert await engine.finish(run) == 2


async def test_all_tasks_that_wait_for_it_take_it_but_of_a_gateway_one() -> None:
    both = {
        "id": "both",
        "tasks": {
            "a": {"type": "event", "topic": "go", "where": "true"},
            "b": {"type": "event", "topic": "go", "where": "event.data > 0"},
            "g": {"type": "gateway", "kind": "event"},
            "c": {"type": "event", "topic": "go", "where": "true", "after": "g"},
            "d": {"type": "event", "topic": ">", "where": "true", "after": "g"},
            "late": {"type": "timer", "delay": "1h", "after": "g"},
        },
    }
    async with harness() as engine:
        await engine.register(both)
        run = await engine.start("both")
        await engine.bus.publish("go", 1)

        assert await engine.finish(run) == {"a": 1, "b": 1, "c": 1}
        statuses = {task.key: task.status for task in (await run.show()).tasks}
        assert (statuses["d"], statuses["late"]) == ("CANCELLED", "CANCELLED")


async def test_a_wait_for_an_event_times_out_and_can_be_skipped() -> None:
    async with harness(activities=[ship]) as engine:
        await engine.register(WAITS)
        late, skipped = await engine.start("waits", 1), await engine.start("waits", 2)
        with pytest.raises(Rejected, match="only somebody else"):
            await skipped.fire("paid")
        await skipped.skip("paid")
        assert await engine.finish(skipped) is None

        with pytest.raises(RunFailed, match=r"waited in vain for an event on `orders\.paid`"):
            await engine.finish(late)
        assert await engine.bus.publish("orders.paid", {"order": 1})


async def test_an_event_that_where_cannot_read_harms_no_run_and_is_kept_as_a_dead_letter() -> None:
    async with harness(activities=[ship]) as engine:
        await engine.register(WAITS)
        run = await engine.start("waits", 1)
        await engine.bus.publish("orders.paid", {"other": 1}, id="odd")

        assert (await run.show()).status == "WAITING"
        (letter,) = engine.bus.dead_letters()
        assert letter.subscriber == f"run:{run.id}"
        assert "`where` of `paid`" in letter.error
        await engine.bus.publish("orders.paid", {"order": 1})
        assert await engine.finish(run) == {"order": 1}


async def test_what_a_run_publishes_is_heard_once_it_is_on_disk_in_order() -> None:
    heard: list[Envelope] = []
    stored: list[int] = []

    async with harness(activities=[ship]) as engine:

        async def hear(envelope: Envelope) -> None:
            heard.append(envelope)
            run = await engine.get(envelope.run)
            stored.append([i.type for i in await run.history()].count("published"))

        await engine.register(WAITS)
        await engine.register(TELLS)
        await engine.bus.subscribe("orders.>", hear)
        waiting = await engine.start("waits", 7)
        tells = await engine.start("tells", 7)
        await engine.settle()

        assert await waiting.result() == {"order": 7}
        (envelope,) = heard
        assert envelope.id == f"{tells.id}/1/2"
        assert envelope.wire()["metadata"] == {"workflow_id": tells.id, "definition": "tells"}
        assert envelope.source == f"run:{tells.id}/tell"
        assert stored == [1]


async def test_actions_publish_too() -> None:
    document = {
        "id": "acts",
        "tasks": {
            "a": {
                "do": "ship",
                "inputs": {"what": 1},
                "onComplete": [
                    {"publish": {"topic": "done", "payload": 1}},
                    {"notify": {"to": "ann"}},
                ],
            }
        },
    }
    heard: list[tuple[str, Any]] = []
    async with harness(activities=[ship]) as engine:
        await engine.register(document)
        await engine.bus.subscribe(
            ">", lambda envelope: heard.append((envelope.topic, envelope.data))
        )
        await engine.finish(await engine.start("acts"))
        for _ in range(200):
            await engine.settle()
            if len(heard) == 2:
                break
            await asyncio.sleep(0.01)

        assert heard == [("done", 1), ("workflow.notify", {"to": "ann"})]


@pytest.mark.parametrize("topic", ["a b", "", ">", "a..b", None, 3])
@pytest.mark.parametrize("action", [False, True])
async def test_a_task_that_publishes_to_what_is_no_topic_fails_and_nobody_hears_it(
    topic: Any, action: bool
) -> None:
    message = {"topic": "${input}", "payload": 1}
    task: dict[str, Any] = {"type": "publish", **message}
    if action:
        task = {"do": "ship", "inputs": {"what": 1}, "onComplete": {"publish": message}}
    heard: list[Any] = []
    async with harness(activities=[ship]) as engine:
        await engine.register({"id": "tells", "tasks": {"a": task}}, force="a test", by="ann")
        await engine.bus.subscribe(">", heard.append)
        run = await engine.start("tells", topic)
        with pytest.raises(RunFailed, match="is no topic") as caught:
            await engine.finish(run)
        assert caught.value.failure.code == "topic-invalid"
        await engine.settle()
        assert heard == []
        assert engine.bus.dead_letters() == []


@pytest.mark.parametrize("topic", ["a b", "", "a..b", "a.>.b", None, 3])
async def test_a_task_that_waits_for_what_is_no_topic_fails(topic: Any) -> None:
    task = {"type": "event", "topic": "${input}", "where": "true"}
    async with harness() as engine:
        await engine.register({"id": "waits", "tasks": {"a": task}}, force="a test", by="ann")
        run = await engine.start("waits", topic)
        with pytest.raises(RunFailed, match="is no topic") as caught:
            await engine.finish(run)
        assert caught.value.failure.code == "topic-invalid"


async def test_a_definition_that_publishes_to_what_is_no_topic_is_refused() -> None:
    async with harness() as engine:
        for task in (
            {"type": "publish", "topic": "a b", "payload": 1},
            {"do": "x", "onComplete": {"publish": {"topic": "orders.>", "payload": 1}}},
        ):
            with pytest.raises(penstock.DefinitionInvalid, match="is no topic"):
                await engine.register({"id": "bad", "tasks": {"e": task}})


async def test_what_is_no_event_and_no_pattern_is_refused() -> None:
    async with harness() as engine:
        bus: Any = engine.bus
        for patterns in (3, b"a", ["a", 3]):
            with pytest.raises(Rejected, match="no pattern of topics"):
                await bus.subscribe(patterns, print)
        for events, said in (([1], "event 0 is 1"), (3, "no list"), ({"topic": "a"}, "no list")):
            with pytest.raises(Rejected, match=said):
                await bus.publish_batch(events)
        twice = [{"topic": "a", "data": 1, "id": "z"}, {"topic": "a", "data": 2, "id": "z"}]
        with pytest.raises(Rejected, match="id `z` and differ"):
            await bus.publish_batch(twice)
        assert await bus.publish_batch([twice[0], twice[0]]) == ["z", "z"]


async def test_a_batch_reaches_waiting_runs_in_order_or_not_at_all() -> None:
    document = {
        "id": "three",
        "tasks": {
            "all": {
                "type": "loop",
                "until": "iteration == 3",
                "body": {"type": "event", "topic": "n", "where": "true"},
            }
        },
        "outputs": {"last": "tasks.all.output"},
    }
    async with harness() as engine:
        await engine.register(document)
        run = await engine.start("three")
        with pytest.raises(Rejected, match="no topic"):
            await engine.bus.publish_batch([{"topic": "n", "data": 1}, {"topic": "n n"}])
        assert "event_received" not in await engine.types(run)
        ids = await engine.bus.publish_batch([{"topic": "n", "data": k} for k in (1, 2, 3)])
        await engine.settle()

        received = [i.event for i in await run.history() if i.type == "event_received"]
        assert [event.id for event in received] == ids
        assert await run.result() == {"last": 3}
        assert await engine.core.store.records("bus") == []


@pytest.mark.parametrize(
    ("arguments", "named", "said"),
    [
        (("a b",), {}, "no topic"),
        ((3,), {}, "not a text"),
        (("a", {"x": float("nan")}), {}, "NaN|nan"),
        (("a",), {"id": ""}, "1 to 200"),
        (("a",), {"id": "x" * 201}, "1 to 200"),
        (("a",), {"qos": "never"}, "quality"),
    ],
)
async def test_what_makes_no_sense_is_refused_and_nobody_hears_it(
    arguments: tuple[Any, ...], named: dict[str, Any], said: str
) -> None:
    heard: list[Any] = []
    async with harness() as engine:
        await engine.bus.subscribe(">", heard.append)
        with pytest.raises(penstock.PenstockError, match=said):
            await engine.bus.publish(*arguments, **named)
        with pytest.raises(PayloadTooLarge):
            await engine.bus.publish("a", "x" * 2_000_000)
        with pytest.raises(Rejected, match="has no `tpoic`"):
            await engine.bus.publish_batch([{"topic": "a", "tpoic": 1}])
        await engine.settle()
    assert heard == []


async def test_a_definition_with_an_event_that_cannot_be_is_refused() -> None:
    async with harness() as engine:
        for task, said in (
            ({"type": "event", "topic": "a b", "where": "true"}, "neither a topic"),
            ({"type": "event", "topic": "a"}, "where"),
            ({"type": "event", "where": "true"}, "topic"),
            ({"type": "event", "topic": "a", "where": "evnt.data"}, "evnt"),
            ({"type": "event", "topic": "a", "where": "true", "timeout": "soon"}, "duration"),
        ):
            with pytest.raises(penstock.DefinitionInvalid, match=said):
                await engine.register({"id": "bad", "tasks": {"e": task}})
        await engine.register(
            {"id": "ok", "tasks": {"e": {"type": "event", "topic": "a.${input}", "where": "true"}}}
        )
        run = await engine.start("ok", "x")
        await engine.bus.publish("a.x", 1)
        assert await engine.finish(run) == 1


async def test_a_store_that_fails_leaves_the_publisher_unanswered_and_a_repeat_is_heard_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with harness(activities=[ship]) as engine:
        await engine.register(WAITS)
        run = await engine.start("waits", 1)
        await engine.settle()
        store = engine.core.store
        append = store.append

        async def fails(appends: Any) -> Any:
            raise StoreError("disk is gone")

        monkeypatch.setattr(store, "append", fails)
        with pytest.raises(StoreError):
            await engine.bus.publish("orders.paid", {"order": 1}, id="e")
        monkeypatch.setattr(store, "append", append)
        await engine.bus.publish("orders.paid", {"order": 1}, id="e")
        assert await engine.finish(run) == {"order": 1}
        assert (await engine.types(run)).count("event_received") == 1


async def test_what_another_process_publishes_reaches_the_runs_of_the_owner(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    heard: list[Any] = []
    async with penstock.open(url, activities=[ship]) as owner:
        await owner.register(WAITS)
        await owner.bus.subscribe("orders.*", heard.append)
        run = await owner.start("waits", 1)
        async with penstock.open(url, execute=False) as other:
            await other.bus.publish("orders.paid", {"order": 1}, id="far")
            assert await asyncio.wait_for(run.result(), 10) == {"order": 1}
        async with asyncio.timeout(10):
            while not heard:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    assert [each.id for each in heard] == ["far"]


async def test_it_is_the_same_on_postgresql(postgres_url: str) -> None:
    async with penstock.open(postgres_url, activities=[ship]) as owner:
        await owner.register(WAITS)
        await owner.register(TELLS)
        first, second, third = [await owner.start("waits", n, id=f"p{n}") for n in (1, 2, 3)]
        await owner.bus.publish("orders.paid", {"order": 1})
        await owner.start("tells", 2)
        async with penstock.open(postgres_url, execute=False) as other:
            await other.bus.publish_batch(
                [{"topic": "orders.paid", "data": {"order": n}} for n in (9, 3)]
            )
        for run, order in ((first, 1), (second, 2), (third, 3)):
            assert await asyncio.wait_for(run.result(), 20) == {"order": order}


async def test_what_was_published_while_nobody_owned_the_database_is_not_lost(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    async with penstock.open(url, activities=[ship]) as owner:
        await owner.register(WAITS)
        await owner.start("waits", 1, id="r")
    async with penstock.open(url, execute=False) as other:
        await other.bus.publish("orders.paid", {"order": 1})
    async with penstock.open(url, activities=[ship]) as owner:
        run = await owner.get("r")
        assert await asyncio.wait_for(run.result(), 10) == {"order": 1}


async def test_a_reset_publishes_nothing_a_second_time() -> None:
    heard: list[str] = []
    document = {
        "id": "once",
        "tasks": {
            "tell": {"type": "publish", "topic": "told", "payload": 1},
            "wait": {"type": "signal", "after": "tell"},
            "more": {"type": "publish", "topic": "told", "payload": 2, "after": "wait"},
        },
    }
    async with harness() as engine:
        await engine.register(document)

        async def hear(envelope: Envelope) -> None:
            heard.append(envelope.id)

        await engine.bus.subscribe("told", hear)
        run = await engine.start("once", id="r")
        await engine.settle()
        await run.reset(2, token=(await run.preview(2)).token)
        await engine.settle()
        await (await engine.get("r")).signal("wait")
        await engine.settle()

        assert heard == ["r/1/2", "r/2/5"]


async def test_the_synchronous_twin_has_the_bus(tmp_path: Path) -> None:
    def work() -> Any:
        heard: list[Any] = []
        with penstock.sync.open(f"sqlite:///{tmp_path}/a.db", activities=[ship]) as engine:
            engine.register(WAITS)
            subscription = engine.bus.subscribe("orders.>", heard.append)
            run = engine.start("waits", 1)
            engine.bus.publish("orders.paid", {"order": 1})
            result = run.result()
            engine.bus.unsubscribe(subscription)
            assert engine.bus.status().delivered == 1
        return result, [each.data for each in heard]

    assert await asyncio.to_thread(work) == ({"order": 1}, [{"order": 1}])
