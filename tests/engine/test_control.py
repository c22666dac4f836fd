"""Control beyond the plain acts: command ids, if_exists, messages, updates, tokens, operators' hands (SPEC 4.4, 4.9)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import CompleteLater, Rejected, Retry, RunFailed, activity, current
from penstock.adapters.memory import MemoryStore
from penstock.adapters.sqlite.store import SqliteStore
from penstock.engine.generations import Generations
from penstock.ports.store import Record
from penstock.testing.harness import Harness, SkipClock, harness

CALLS: list[Any] = []
TOKENS: list[str] = []
BROKEN: set[str] = set()


@activity
async def work(name: str = "") -> str:
    CALLS.append(name)
    if name in BROKEN:
        raise penstock.Fail(f"{name} is broken")
    return name


@activity(retry=Retry(attempts=5, first=600, jitter=0))
async def flaky() -> str:
    CALLS.append("flaky")
    if len(CALLS) == 1:
        raise RuntimeError("not yet")
    return "ok"


@activity(retry=Retry(attempts=3, first=10, jitter=0), timeout=60)
async def outside() -> None:
    TOKENS.append(current().token)
    raise CompleteLater


@activity
def outside_in_a_thread() -> None:
    TOKENS.append(current().token)
    raise CompleteLater


@activity
async def undo(value: Any) -> None:
    CALLS.append(f"undo {value}")
    if "undo" in BROKEN:
        raise penstock.Fail("cannot")


ACTIVITIES = [work, flaky, outside, outside_in_a_thread, undo]


@pytest.fixture(autouse=True)
def _fresh() -> None:
    CALLS.clear()
    TOKENS.clear()
    BROKEN.clear()


@pytest.fixture(params=["memory", "sqlite"])
async def engine(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Harness]:
    clock = SkipClock()
    store = (
        MemoryStore(clock=clock.now)
        if request.param == "memory"
        else SqliteStore(tmp_path / "a.db", clock=clock.now)
    )
    async with harness(activities=ACTIVITIES, store=store, clock=clock) as made:
        for definition in (WAITS, TIMED, RETRIES, OUTSIDE):
            await made.register(definition)
        yield made


WAITS = {
    "id": "waits",
    "tasks": {"s": {"type": "signal", "name": "go", "reply": "tasks.s.output + 1"}},
}
TIMED = {
    "id": "timed",
    "tasks": {
        "t": {"type": "timer", "delay": "1h"},
        "a": {"do": "work", "inputs": {"name": {"value": "a"}}, "after": "t"},
        "h": {
            "do": "work",
            "inputs": {"name": {"value": "h"}},
            "after": {"from": "t", "on": "error"},
        },
    },
}
RETRIES = {"id": "retries", "tasks": {"f": {"do": "flaky"}}}
OUTSIDE = {"id": "outside", "tasks": {"o": {"do": "outside"}}}


async def code(doing: Any) -> str:
    with pytest.raises(penstock.PenstockError) as caught:
        await doing
    return caught.value.code


# --- ids of commands -----------------------------------------------------------------------------------------


async def test_a_repeated_command_changes_nothing_for_a_day(engine: Harness) -> None:
    run = await engine.start("waits", id="r")
    await run.pause(command_id="c1")
    await run.resume()
    await run.pause(command_id="c1")
    assert await run.status() == "WAITING"
    assert await code(run.cancel(command_id="c1")) == "key-reused"
    assert await code(run.pause(reason="another", command_id="c1")) == "key-reused"
    await engine.skip(hours=25)
    await run.pause(command_id="c1")
    assert await run.status() == "PAUSED"


async def test_a_refused_command_is_decided_anew(engine: Harness) -> None:
    run = await engine.start("timed", id="r")
    assert await code(run.skip("a", command_id="c1")) == "task-not-waiting"
    await run.fire("t", command_id="c0")
    await engine.finish(run)
    assert await code(run.skip("a", command_id="c1")) == "run-closed"
    await run.fire(
        "t", command_id="c0"
    )  # accepted before: the same answer, though the run has ended


async def test_a_signal_is_known_for_a_day_by_its_message_id(engine: Harness) -> None:
    run = await engine.start("waits", id="r")
    await run.signal("go", 1, message_id="m")
    await run.signal("go", 1, message_id="m")
    assert await code(run.signal("go", 2, message_id="m")) == "key-reused"
    assert (await engine.types(run)).count("signal_received") == 1


async def test_a_retry_and_a_reset_are_done_once_by_their_id(engine: Harness) -> None:
    run = await engine.start("timed", id="r")
    await run.cancel()
    await engine.settle()
    assert await run.retry(command_id="again") == 2
    assert await run.retry(command_id="again") == 2
    token = (await run.preview(1)).token
    assert await run.reset(1, token=token, command_id="back") == 3
    assert await run.reset(1, token=token, command_id="back") == 3
    assert await run.retry(command_id="again") == 2
    assert await code(run.retry("t", command_id="again")) == "key-reused"
    assert (await run.show()).generation == 3


# --- starts --------------------------------------------------------------------------------------------------


async def test_if_exists_attaches_rejects_replaces_or_waits_for_the_close(engine: Harness) -> None:
    run = await engine.start("waits", 1, id="r")
    assert (await engine.start("waits", 1, id="r")).id == "r"
    assert await code(engine.start("waits", 2, id="r")) == "id-taken"
    assert await code(engine.start("waits", 1, id="r", if_exists="reject")) == "id-taken"
    assert await code(engine.start("waits", 1, id="r", if_exists="after-close")) == "run-open"
    assert await code(engine.start("waits", 1, id="r", if_exists="maybe")) == "if-exists-unknown"

    await engine.start("timed", 2, id="r", if_exists="replace", created_by="ann")
    old, new = await run.show(generation=1), await run.show()
    assert (old.status, new.generation, new.definition, new.input) == ("TERMINATED", 2, "timed", 2)
    assert (await run.history(generation=1))[-1].event.generation == 2  # type: ignore[union-attr]
    await engine.finish(run)
    await engine.start("waits", 3, id="r", if_exists="after-close")
    assert (await run.show()).generation == 3
    await run.signal("go", 4)
    assert await engine.finish(run) == 4


async def test_an_idempotency_key_starts_once(engine: Harness) -> None:
    first = await engine.start("waits", 1, idempotency_key="order 7")
    second = await engine.start("waits", 1, idempotency_key="order 7")
    assert first.id == second.id
    assert await code(engine.start("waits", 2, idempotency_key="order 7")) == "key-reused"
    third = await engine.start(
        "waits", 1, id="mine", idempotency_key="order 8", if_exists="replace"
    )
    again = await engine.start(
        "waits", 1, id="mine", idempotency_key="order 8", if_exists="replace"
    )
    assert (await again.show()).generation == 1
    assert third.id == again.id == "mine"


async def test_a_signal_starts_its_run_in_one_commit(engine: Harness) -> None:
    run = await engine.signal_with_start("waits", None, "go", 5, id="r", created_by="ann")
    assert await engine.finish(run) == 5
    rows = [item.position for item in await run.history()]
    assert rows == list(range(rows[0], rows[0] + len(rows)))
    again = await engine.signal_with_start("waits", None, "go", 6, id="r")
    assert await engine.finish(again) == 6
    assert (await again.show()).generation == 2
    assert (
        await code(engine.signal_with_start("waits", None, "nope", id="x")) == "signal-undeclared"
    )
    assert await code(engine.get("x")) == "not-found"
    open_ = await engine.start("timed", id="t")
    assert await code(engine.signal_with_start("timed", None, "go", id="t")) == "signal-undeclared"
    assert (await open_.show()).generation == 1


async def test_a_signal_that_starts_takes_what_a_start_takes(engine: Harness) -> None:
    later = timedelta(hours=1)
    run = await engine.signal_with_start(
        "waits", None, "go", 1, id="r", delay=later, deadline=timedelta(hours=2), key="k"
    )
    await engine.settle()
    assert await run.status() == "CREATED"
    assert (await engine.list(attributes={"key": "k"}))[0].id == "r"
    assert await engine.finish(run) == 1
    for _ in range(2):
        await engine.signal_with_start("waits", None, "go", 1, id="r", idempotency_key="i")
    assert (await run.show()).generation == 2


async def test_a_signal_that_starts_may_refuse_or_replace_what_is_there(engine: Harness) -> None:
    async def send(mode: str, message: str) -> None:
        await engine.signal_with_start(
            "both", None, "go", 1, id="r", if_exists=mode, message_id=message
        )

    tasks = {name: {"type": "signal", "name": name} for name in ("go", "end")}
    await engine.register({"id": "both", "tasks": tasks})
    run = await engine.start("both", id="r")
    assert await code(send("reject", "1")) == "id-taken"
    assert await code(send("after-close", "1")) == "run-open"
    assert await code(send("maybe", "1")) == "if-exists-unknown"
    assert await engine.types(run) == ["run_started"]
    for mode in ("replace", "replace", "reject", "after-close"):
        await send(mode, "1")
        assert (await run.show()).generation == 2
    await run.signal("end")
    await engine.finish(run)
    await send("after-close", "2")
    assert (await run.show()).generation == 3


async def test_a_signal_that_starts_keeps_to_the_limits(engine: Harness) -> None:
    tasks = {name: {"type": "signal", "name": name} for name in ("go", "end")}
    limits = {"runs": 1, "over": "refuse"}
    await engine.register({"id": "both", "tasks": tasks, "limits": limits})
    first = await engine.signal_with_start("both", None, "go", id="1")
    assert await code(engine.signal_with_start("both", None, "go", id="2")) == "busy"
    assert await code(engine.get("2")) == "not-found"
    await engine.signal_with_start("both", None, "end", id="1")  # for one that is there
    await engine.finish(first)
    other = await engine.signal_with_start("both", None, "go", id="2")
    assert await code(engine.signal_with_start("both", None, "go", id="1")) == "busy"
    assert await code(engine.start("both", id="1", if_exists="after-close")) == "busy"
    await other.signal("end")
    await engine.finish(other)
    again = await engine.start("both", 1, id="1", if_exists="after-close")
    assert (await again.show()).generation == 2


PARENT = {
    "id": "parent",
    "tasks": {"c": {"type": "subworkflow", "config": {"definition": "waits"}}},
}


async def test_a_child_that_is_waited_for_is_not_replaced(engine: Harness) -> None:
    await engine.register(PARENT)
    parent = await engine.start("parent", id="P")
    await engine.settle()
    replacing = engine.start("waits", 1, id="P/c", if_exists="replace")
    assert await code(replacing) == "run-has-parent"
    child = await engine.get("P/c")
    assert (await child.show()).generation == 1
    await child.signal("go", 1)
    assert await engine.finish(parent) == 1
    again = await engine.start("waits", 1, id="P/c", if_exists="replace")
    assert (await again.show()).generation == 2


@pytest.mark.parametrize("act", ["replace", "after-close"])
async def test_a_start_in_place_of_a_run_stops_the_children_of_that(
    engine: Harness, act: str
) -> None:
    await engine.register(PARENT)
    run = await engine.start("parent", id="P")
    await engine.settle()
    if act == "after-close":
        await run.terminate()
    run = await engine.start("parent", {"again": 1}, id="P", if_exists=act)
    await engine.settle()
    for id, status in (("P", "WAITING"), ("P/c", "CANCELLED"), ("P~2/c", "WAITING")):
        assert (id, await (await engine.get(id)).status()) == (id, status)
    await (await engine.get("P~2/c")).signal("go", 1)
    assert await engine.finish(run) == 1


async def test_the_children_of_several_generations_are_stopped(engine: Harness) -> None:
    await engine.register(PARENT)
    await engine.start("parent", id="P")
    for number in range(3):
        await engine.settle()
        await engine.start("parent", number, id="P", if_exists="replace")
    await engine.settle()
    assert {row.id for row in await engine.list(status="OPEN")} == {"P", "P~4/c"}


async def test_a_start_that_opens_a_generation_remembers_command_ids(engine: Harness) -> None:
    for message, generation in (("m1", 1), ("m2", 2), ("m1", 2), ("m2", 2)):
        run = await engine.signal_with_start("waits", None, "go", 1, id="x", message_id=message)
        await engine.finish(run)
        assert (await run.show()).generation == generation
    again = engine.signal_with_start("waits", None, "go", 2, id="x", message_id="m1")
    assert await code(again) == "key-reused"
    run = await engine.start("waits", id="t")
    await run.terminate(command_id="c")
    await engine.start("waits", id="t", if_exists="after-close")
    await run.terminate(command_id="c")
    assert await run.status() == "WAITING"
    await engine.skip(25 * 3600)
    await run.terminate(command_id="c")
    assert await run.status() == "TERMINATED"


async def test_a_message_finds_its_run_by_key(engine: Harness) -> None:
    await engine.start("waits", id="a", key="order-7")
    await engine.start("waits", id="b", key="order-8", attributes={"region": "eu"})
    assert await code(engine.message("go", 1, key="order-9")) == "receiver-unknown"
    assert await code(engine.message("go", 1)) == "receiver-missing"
    await engine.start("timed", id="c", key="order-7")
    assert await code(engine.message("go", 1, key="order-7")) == "receiver-ambiguous"

    run = await engine.message("go", 1, key="order-7", definition="waits")
    assert await engine.finish(run) == 1
    assert (await engine.message("go", 2, attributes={"region": "eu"})).id == "b"


async def test_attributes_are_changed_and_found(engine: Harness) -> None:
    run = await engine.start("waits", id="a", attributes={"region": "eu", "tier": 1})
    await run.set_attributes({"region": "us", "tier": None, "vip": True}, by="ann", reason="moved")
    assert (await run.show()).attributes == {"region": "us", "vip": True}
    assert [row.id for row in await engine.list(attributes={"region": "us"})] == ["a"]
    assert await engine.list(attributes={"region": "eu"}) == []
    await run.set_attributes({"region": "us"})
    assert (await engine.types(run)).count("attributes_changed") == 1
    too_many = {str(n): n for n in range(300)}
    assert await code(run.set_attributes(too_many)) == "attributes-too-many"
    assert await code(engine.start("waits", id="b", attributes=too_many)) == "attributes-too-many"
    assert await code(engine.get("b")) == "not-found"


# --- updates -------------------------------------------------------------------------------------------------


async def test_an_update_is_answered_by_an_event(engine: Harness) -> None:
    run = await engine.start("waits", id="r")
    assert await run.update("go", 1, command_id="u") == 2
    assert await run.update("go", 1, command_id="u") == 2
    assert await engine.types(run) == [
        "run_started", "signal_received", "update_answered", "run_completed",
    ]  # fmt: skip
    other = await engine.start("waits", id="other")
    asked = asyncio.ensure_future(other.update("go", "text"))
    with pytest.raises(Rejected) as caught:
        await asked
    assert caught.value.code == "update-failed"


async def test_an_update_that_was_answered_before_a_reset_is_answered_so_again(
    engine: Harness,
) -> None:
    run = await engine.start("waits", id="r")
    assert await run.update("go", 1, command_id="u") == 2
    await run.reset(1, token=(await run.preview(1)).token, reason="again")
    assert await asyncio.wait_for(run.update("go", 1, command_id="u"), 20) == 2


async def test_a_signal_that_comes_as_the_next_generation_is_opened_is_not_refused(
    engine: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await engine.start("waits", id="r")
    token = (await run.preview(1)).token
    core = engine.core
    snapshots_many = core.store.snapshots_many

    async def meanwhile(keys: Any) -> Any:
        """Between the row of the run and its events another generation is opened, of which nobody here knows yet."""
        monkeypatch.undo()
        monkeypatch.setattr(core, "refresh", lambda id: None)
        await Generations(core).reset("r", 1, token=token)
        monkeypatch.undo()
        return await snapshots_many(keys)

    core.cache.pop("r")
    monkeypatch.setattr(core.store, "snapshots_many", meanwhile)
    await run.signal("go", 5)
    assert await engine.finish(run) == 5
    assert (await run.show()).generation == 2


async def test_an_answer_goes_to_all_who_asked_that_run_and_to_nobody_else(engine: Harness) -> None:
    a, b = await engine.start("waits", id="a"), await engine.start("waits", id="b")
    asked = [a.update("go", 1, command_id="u"), b.update("go", 5, command_id="u")]
    asked.append(a.update("go", 1, command_id="u"))
    assert await asyncio.wait_for(asyncio.gather(*asked), 60) == [2, 6, 2]


async def test_an_update_from_another_process_is_answered_when_the_owner_takes_it(
    tmp_path: Path,
) -> None:
    later = {
        "id": "later",
        "tasks": {
            "first": {"type": "signal", "name": "first"},
            "s": {"type": "signal", "name": "go", "reply": "tasks.s.output * 2", "after": "first"},
        },
    }
    url = f"sqlite:///{tmp_path / 'a.db'}"
    async with penstock.open(url) as owner, penstock.open(url, execute=False) as other:
        await owner.register(later)
        run = await owner.start("later", id="r")
        asked = asyncio.ensure_future((await other.get("r")).update("go", 21))
        while "signal_received" not in [item.type for item in await run.history()]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await run.signal("first")
        assert await asyncio.wait_for(asked, 60) == 42
        ended = asyncio.ensure_future((await other.get("r")).update("go", 1))
        assert await code(asyncio.wait_for(ended, 60)) in ("run-closed", "update-unanswered")


# --- completion from outside ---------------------------------------------------------------------------------


async def test_an_attempt_is_completed_from_outside(engine: Harness) -> None:
    run = await engine.start("outside", id="r")
    await engine.settle()
    assert [each.kind for each in await run.why()] == ["token"]
    await engine.complete(TOKENS[0], {"paid": True})
    assert await engine.finish(run) == {"paid": True}
    assert await code(engine.complete(TOKENS[0], 1)) == "run-closed"
    assert await code(engine.complete("nonsense", 1)) == "token-invalid"


async def test_a_failure_from_outside_is_retried_and_the_old_token_is_refused(
    engine: Harness,
) -> None:
    run = await engine.start("outside", id="r")
    await engine.settle()
    await engine.fail(TOKENS[0], "declined", code="declined")
    assert await code(engine.complete(TOKENS[0], 1)) == "stale-attempt"
    await engine.skip(seconds=11)
    assert len(TOKENS) == 2
    await engine.fail(TOKENS[1], "declined", final=True)
    with pytest.raises(RunFailed, match="declined"):
        await engine.finish(run)


async def test_an_attempt_that_nobody_completes_times_out(engine: Harness) -> None:
    run = await engine.start("outside", id="r")
    await engine.skip(seconds=59)
    assert await run.status() == "RUNNING"
    await engine.skip(seconds=2)
    assert (await engine.types(run))[-1] == "task_retried"
    await run.cancel()
    with pytest.raises(RunFailed, match="CANCELLED"):
        await engine.finish(run)


async def test_a_token_outlives_a_restart(tmp_path: Path) -> None:
    clock, path = SkipClock(), tmp_path / "a.db"
    thread = {"id": "thread", "tasks": {"o": {"do": "outside_in_a_thread"}}}
    async with harness(
        activities=ACTIVITIES, store=SqliteStore(path, clock=clock.now), clock=clock
    ) as engine:
        await engine.register(thread)
        await engine.start("thread", id="r")
        await engine.settle()
        engine.core.broken = RuntimeError("not a clean end")
    async with harness(
        activities=ACTIVITIES, store=SqliteStore(path, clock=clock.now), clock=clock
    ) as engine:
        run = await engine.get("r")
        await engine.settle()
        assert await engine.types(run) == ["run_started", "task_deferred"]
        await engine.complete(TOKENS[0], 7)
        assert await engine.finish(run) == 7
        assert len(TOKENS) == 1


# --- operators' hands ----------------------------------------------------------------------------------------


async def test_a_waiting_retry_is_fired_skipped_or_failed(engine: Harness) -> None:
    run = await engine.start("retries", id="a")
    await engine.settle()
    await run.fire("f", by="ann", reason="it is up again")
    assert await engine.finish(run) == "ok"
    assert CALLS == ["flaky", "flaky"]
    event = next(i.event for i in await run.history() if i.type == "retry_fired")
    assert (event.by, event.reason) == ("ann", "it is up again")  # type: ignore[union-attr]

    CALLS.clear()
    run = await engine.start("retries", id="b")
    await engine.settle()
    await run.skip("f", by="ann")
    assert await engine.finish(run) is None
    CALLS.clear()
    run = await engine.start("retries", id="c")
    await engine.settle()
    await run.fail("f", by="ann", reason="no use")
    with pytest.raises(RunFailed, match="no use"):
        await engine.finish(run)
    assert await engine.skip(hours=1) is None
    assert CALLS == ["flaky"]


async def test_a_timer_is_fired_skipped_or_failed(engine: Harness) -> None:
    fired = await engine.start("timed", id="fired")
    await fired.fire("t")
    skipped = await engine.start("timed", id="skipped")
    await skipped.skip("t")
    failed = await engine.start("timed", id="failed")
    await failed.fail("t", by="ann")
    await engine.settle()
    assert sorted(CALLS) == ["a", "a", "h"]
    assert {await run.status() for run in (fired, skipped, failed)} == {"COMPLETED"}
    waits = await engine.start("waits", id="waits")
    assert await code(waits.fire("s")) == "not-fireable"
    await waits.skip("s")
    assert await waits.status() == "COMPLETED"


async def test_an_undo_that_failed_is_decided_by_an_operator(engine: Harness) -> None:
    task = {"do": "work", "compensate": "undo"}
    named = {name: {**task, "inputs": {"name": {"value": name}}} for name in "abc"}
    named["b"]["after"], named["c"]["after"] = "a", "b"
    named["x"] = {"do": "work", "inputs": {"name": {"value": "x"}}, "after": "c"}
    await engine.register({"id": "saga", "tasks": named})
    BROKEN.update({"x", "undo"})
    run = await engine.start("saga", id="r")
    await engine.settle()
    assert await run.status() == "COMPENSATING"
    assert [each.key for each in await run.why()] == ["c", "b", "a"]
    await run.resolve_undo("a", "accept", by="ann", reason="by hand")
    await run.resolve_undo("b", "skip", by="ann", reason="never mind")
    assert await code(run.resolve_undo("a", "accept")) == "undo-not-failed"
    assert await code(run.resolve_undo("c", "ignore")) == "act-unknown"
    assert await run.status() == "COMPENSATING"
    BROKEN.discard("undo")
    CALLS.clear()
    await run.resolve_undo("c", "retry", by="ann")
    with pytest.raises(RunFailed, match="x is broken"):
        await engine.finish(run)
    assert CALLS == ["undo c"]


async def test_a_paused_definition_begins_nothing_and_loses_nothing(engine: Harness) -> None:
    timed = await engine.start("timed", id="before")
    await engine.pause_definition("timed", by="ann", reason="incident 4")
    held = await engine.start("timed", id="after")
    await engine.skip(hours=2)
    assert CALLS == []
    assert [each.kind for each in await held.why()] == ["attempt", "pause"]
    assert (await engine.paused_definitions())[0].reason == "incident 4"
    assert await code(engine.pause_definition("nope")) == "not-found"

    await engine.resume_definition("timed", by="ann")
    assert await code(engine.resume_definition("timed")) == "definition-not-paused"
    await engine.settle()
    assert CALLS == ["a", "a"]
    assert await timed.status() == await held.status() == "COMPLETED"


async def test_who_paused_and_who_resumed_a_definition_is_kept(engine: Harness) -> None:
    assert await engine.definition_acts("timed") == []
    for number in (1, 2):
        await engine.pause_definition("timed", by="ann", reason=f"incident {number}")
        await engine.skip(60)
        await engine.resume_definition("timed", by="bob", reason=f"mended {number}")
    await engine.pause_definition("timed", by="eve")
    told = [(each.act, each.by, each.reason) for each in await engine.definition_acts("timed")]
    assert told == [
        ("pause", "ann", "incident 1"), ("resume", "bob", "mended 1"),
        ("pause", "ann", "incident 2"), ("resume", "bob", "mended 2"), ("pause", "eve", ""),
    ]  # fmt: skip
    assert await code(engine.definition_acts("nope")) == "not-found"


async def test_a_pause_that_cannot_be_read_pauses_is_said_and_can_be_ended(
    engine: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    store = engine.core.store
    await engine.pause_definition("timed", by="ann")
    await store.drop("paused", ["timed"])
    await store.put(
        [
            Record("paused", "timed", b'{"definition": 5'),
            Record("definition-acts", "timed", b"\xff"),
        ]
    )
    await engine.core.load_paused()
    run = await engine.start("timed")
    await engine.skip(hours=2)
    assert CALLS == []
    (paused,) = await engine.paused_definitions()
    assert paused.definition == "timed"
    assert "cannot be read" in paused.reason
    assert "record.corrupt" in caplog.text
    await engine.resume_definition("timed", by="bob")
    assert await engine.paused_definitions() == []
    assert [(each.act, each.by) for each in await engine.definition_acts("timed")] == [
        ("pause", None),
        ("resume", "bob"),
    ]
    await engine.finish(run)


async def test_a_definition_paused_elsewhere_is_paused_at_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    async with penstock.open(url, activities=ACTIVITIES) as owner:
        await owner.register({"id": "one", "tasks": {"a": {"do": "work"}}})
        async with penstock.open(url, execute=False) as other:
            await other.pause_definition("one")
            while "one" not in owner._runs.engine.attempts.paused:  # type: ignore[attr-defined]  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            run = await other.start("one", id="r")
            await asyncio.sleep(0.05)
            assert CALLS == []
            await other.resume_definition("one")
            assert await asyncio.wait_for(run.result(), 60) == ""
