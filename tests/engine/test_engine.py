"""The engine as its user meets it: control, waits, children, limits, restarts (SPEC 4.3 to 4.10)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import Retry, activity
from penstock.adapters.sqlite.store import SqliteStore
from penstock.engine.engine import Settings
from penstock.testing.harness import Harness, SkipClock, harness

CALLS: list[Any] = []


@activity
async def note(value: Any = None) -> Any:
    CALLS.append(value)
    return value


@activity(retry=Retry(attempts=3, first=10, jitter=0))
async def flaky(fails: int) -> int:
    CALLS.append("flaky")
    if CALLS.count("flaky") <= fails:
        raise RuntimeError("not yet")
    return CALLS.count("flaky")


@activity
async def fails() -> None:
    raise RuntimeError("broken")


@activity
def in_thread(value: int) -> int:
    return value + 1


@activity
async def waits() -> None:
    await asyncio.Event().wait()


@activity
async def beats() -> Any:
    from penstock.sdk.worker import current

    here = current()
    if here.progress is None:
        here.heartbeat({"done": 40})
        raise RuntimeError("halfway")
    return here.progress


@activity
async def spoil(value: Any, constant: list[int]) -> list[int]:
    value["x"].append(2)
    constant.append(2)
    return [len(value["x"]) - 1, len(constant) - 1]


ACTIVITIES = [note, flaky, fails, in_thread, waits, beats, spoil]


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    CALLS.clear()


@pytest.fixture
async def engine() -> AsyncIterator[Harness]:
    async with harness(activities=ACTIVITIES) as made:
        yield made


async def started(
    engine: Harness, document: str, input: Any = None, **options: Any
) -> penstock.Run:
    registered = await engine.register(document)
    return await engine.start(registered.id, input, **options)


async def test_parameters_that_no_input_names_are_found_by_name(engine: Harness) -> None:
    run = await started(engine, "id: d\ntasks:\n  a: {do: in_thread}\n", {"value": 41})

    assert await engine.finish(run) == 42


async def test_a_retry_waits_as_its_policy_says(engine: Harness) -> None:
    run = await started(engine, "id: d\ntasks:\n  a: {do: flaky, inputs: {fails: {value: 2}}}\n")
    begin = engine.clock.now()

    assert await engine.finish(run) == 3
    assert engine.clock.now() - begin == pytest.approx(30)  # 10, then 20
    assert (await engine.types(run)).count("task_retried") == 2


async def test_pause_holds_attempts_and_timers_and_resume_shifts_what_is_relative(
    engine: Harness,
) -> None:
    run = await started(
        engine,
        "id: d\ntasks:\n  t: {type: timer, delay: 60s}\n  n: {do: note, after: [t], inputs: {value: {value: 1}}}\n",
    )
    await engine.skip(30)
    await run.pause(by="ada", reason="lunch")
    await engine.skip(hours=5)
    assert await run.status() == "PAUSED"
    assert next(w.kind for w in await run.why()) == "pause"
    assert CALLS == []

    await run.resume(by="ada")
    await engine.skip(29)
    assert CALLS == []
    await engine.skip(2)
    assert await engine.finish(run) == 1


async def test_cancel_ends_waits_undoes_and_keeps_the_cause(engine: Harness) -> None:
    run = await started(
        engine,
        "id: d\ntasks:\n"
        "  a: {do: note, inputs: {value: {value: did}}, compensate: {activity: note, inputs: {value: {value: undid}}}}\n"
        "  s: {type: signal, name: go, after: [a]}\n",
    )
    await engine.settle()
    await run.cancel(by="ada", reason="changed my mind")

    with pytest.raises(penstock.RunFailed) as caught:
        await engine.finish(run)
    assert caught.value.status == "CANCELLED"
    assert CALLS == ["did", "undid"]


async def test_cancel_gives_attempts_thirty_seconds(engine: Harness) -> None:
    run = await started(engine, "id: d\ntasks:\n  a: {do: waits}\n")
    await engine.settle()
    await run.cancel()

    with pytest.raises(penstock.RunFailed) as caught:
        await engine.finish(run)
    assert caught.value.status == "CANCELLED"


async def test_terminate_undoes_nothing(engine: Harness) -> None:
    run = await started(
        engine,
        "id: d\ntasks:\n  a: {do: note, inputs: {value: {value: did}}, compensate: note}\n"
        "  s: {type: signal, name: go, after: [a]}\n",
    )
    await engine.settle()
    await run.terminate(reason="enough")

    with pytest.raises(penstock.RunFailed) as caught:
        await engine.finish(run)
    assert caught.value.status == "TERMINATED"
    assert CALLS == ["did"]


async def test_the_runs_own_timeout_ends_it_timed_out(engine: Harness) -> None:
    run = await started(
        engine, "id: d\ntimeouts: {run: 1h}\ntasks:\n  s: {type: signal, name: go}\n"
    )

    with pytest.raises(penstock.RunFailed) as caught:
        await engine.finish(run)
    assert caught.value.status == "TIMED_OUT"


async def test_a_signal_that_comes_before_its_waiter_is_kept(engine: Harness) -> None:
    run = await started(
        engine,
        "id: d\ntasks:\n  t: {type: timer, delay: 1h}\n  s: {type: signal, name: go, after: [t]}\n",
    )
    await run.signal("go", "early", message_id="m1")
    await run.signal("go", "early", message_id="m1")

    assert await engine.finish(run) == "early"
    assert (await engine.types(run)).count("signal_received") == 1


async def test_an_update_is_answered_by_the_task_that_takes_it(engine: Harness) -> None:
    run = await started(
        engine,
        "id: d\ntasks:\n  s: {type: signal, name: add, reply: 'tasks.s.output * 2'}\n  n: {type: signal, name: end, after: [s]}\n",
    )

    assert await run.update("add", 21) == 42


async def test_a_query_reads_the_run_as_it_is(engine: Harness) -> None:
    run = await started(
        engine,
        "id: d\nqueries: {total: 'data.total + 1'}\ntasks:\n"
        "  a: {type: transform, set: {total: '41'}}\n  s: {type: signal, name: go, after: [a]}\n",
    )

    assert await run.query("total") == 42
    with pytest.raises(penstock.Rejected) as caught:
        await run.query("totl")
    assert caught.value.code == "query-unknown"


async def test_a_form_is_claimed_delegated_and_filled_in(engine: Harness) -> None:
    run = await started(
        engine,
        "id: d\ntasks:\n  f: {type: form, assignee: finance, due: 1h, "
        "schema: {type: object, required: [ok], properties: {ok: {type: boolean}}}}\n",
    )
    await run.claim("f", by="ada")
    with pytest.raises(penstock.Rejected) as caught:
        await run.claim("f", by="bob")
    assert caught.value.code == "form-claimed"
    await run.delegate("f", by="ada", to="bob")
    await engine.skip(hours=2)
    with pytest.raises(penstock.Rejected) as caught:
        await run.submit("f", {"ok": "yes"}, by="bob")
    assert caught.value.code == "form-invalid"
    await run.submit("f", {"ok": True}, by="bob")

    assert await engine.finish(run) == {"ok": True}
    assert "form_escalated" in await engine.types(run)


async def test_a_child_gives_its_result_and_what_can_be_undone(engine: Harness) -> None:
    await engine.register(
        "id: pay\ntasks:\n  charge: {do: note, inputs: {value: {from: input, path: $.card}}, compensate: note}\n"
    )
    run = await started(
        engine,
        "id: d\ntasks:\n  sub: {type: subworkflow, definition: pay, inputs: {card: {value: '4242'}}}\n"
        "  bad: {do: fails, after: [sub]}\n",
        id="parent",
    )

    with pytest.raises(penstock.RunFailed):
        await engine.finish(run)
    assert CALLS == ["4242", "4242"]
    history = await run.history()
    undone = [item.event for item in history if item.type == "undo_completed"]
    assert [event.key for event in undone] == ["sub/charge"]
    child = await engine.get("parent/sub")
    assert await child.status() == "COMPLETED"


async def test_a_child_of_a_definition_that_does_not_exist_fails_its_task(engine: Harness) -> None:
    run = await started(engine, "id: d\ntasks:\n  sub: {type: subworkflow, definition: nobody}\n")

    with pytest.raises(penstock.RunFailed) as caught:
        await engine.finish(run)
    assert caught.value.failure.code == "child-failed"


async def test_recursion_of_subworkflows_has_a_limit(engine: Harness) -> None:
    run = await started(engine, "id: d\ntasks:\n  sub: {type: subworkflow, definition: d}\n")

    with pytest.raises(penstock.RunFailed) as caught:
        await engine.finish(run)
    failure = caught.value.failure
    while failure.cause is not None:
        failure = failure.cause
    assert failure.code in ("depth-exceeded", "child-failed")


async def test_progress_of_a_heartbeat_reaches_the_next_attempt(engine: Harness) -> None:
    run = await started(engine, "id: d\ntasks:\n  a: {do: beats, retry: 2}\n")

    assert await engine.finish(run) == {"done": 40}


async def test_listeners_hear_of_events_and_never_harm_a_run(engine: Harness) -> None:
    heard: list[str] = []

    def broken(change: Any) -> None:
        raise RuntimeError("listener")

    engine.on(None, lambda change: heard.append(change.type))
    engine.on("run_started", broken)
    run = await started(
        engine,
        "id: d\ntasks:\n  p: {type: publish, topic: orders, payload: {n: '${input.n}'}}\n",
        {"n": 7},
    )

    await engine.finish(run)
    assert heard == ["run_started", "published", "run_completed"]
    published = (await run.history())[1].event
    assert (published.topic, bytes(published.payload)) == ("orders", b'{"n":7}')


async def test_a_signal_to_another_run_arrives_once(engine: Harness) -> None:
    other = await started(engine, "id: waiter\ntasks:\n  s: {type: signal, name: go}\n", id="w-1")
    run = await started(
        engine,
        "id: d\ntasks:\n  a: {do: note, onComplete: [{signal: {run: w-1, name: go, payload: {from: '${run.id}'}}}]}\n",
        id="sender",
    )

    await engine.finish(run)
    assert await engine.finish(other) == {"from": "sender"}


async def test_watch_gives_what_has_happened_and_what_happens(engine: Harness) -> None:
    run = await started(engine, "id: d\ntasks:\n  s: {type: signal, name: go}\n")

    async def watched() -> list[str]:
        return [change.type async for change in run.watch()]

    watching = asyncio.create_task(watched())
    await engine.settle()
    await run.signal("go", 1)
    assert await watching == ["run_started", "signal_received", "run_completed"]


async def test_high_priority_goes_first_then_the_earliest_deadline() -> None:
    gate = asyncio.Event()

    @activity
    async def gated(name: str) -> None:
        CALLS.append(name)
        await gate.wait()

    async with harness(
        activities=[gated], settings=Settings(max_concurrent_tasks_per_node=1, drain_seconds=0)
    ) as engine:
        await engine.register("id: d\ntasks:\n  a: {do: gated}\n")
        runs = [await engine.start("d", {"name": "first"})]
        await engine.settle()
        for name, options in (
            ("low", {"priority": "low"}),
            ("normal", {}),
            ("late", {"priority": "high"}),
            ("soon", {"priority": "high", "deadline": penstock_deadline(60)}),
        ):
            runs.append(await engine.start("d", {"name": name}, **options))
        gate.set()
        for run in runs:
            await engine.finish(run)
    assert CALLS == ["first", "soon", "late", "normal", "low"]


def penstock_deadline(seconds: float) -> Any:
    from datetime import timedelta

    return timedelta(seconds=seconds)


async def test_too_many_open_runs_are_refused_as_busy_and_nothing_is_dropped() -> None:
    async with harness(
        activities=ACTIVITIES, settings=Settings(max_concurrent_workflows=2, drain_seconds=0)
    ) as engine:
        await engine.register("id: d\ntasks:\n  s: {type: signal, name: go}\n")
        first = await engine.start("d")
        await engine.start("d")
        with pytest.raises(penstock.Busy):
            await engine.start("d")
        await first.signal("go")
        await engine.finish(first)
        await engine.start("d")
        assert len(await engine.list()) == 3


async def test_a_run_goes_on_where_it_was_after_a_restart(tmp_path: Path) -> None:
    clock = SkipClock()
    document = (
        "id: d\ntasks:\n  m: {type: map, items: 'input.xs', limit: 2, body: {do: note, inputs: {value: {from: item}}}}\n"
        "  t: {type: timer, delay: 1h, after: [m]}\n  s: {type: signal, name: go, after: [t]}\n"
        "  r: {type: transform, set: {out: 'tasks.m.output'}, after: [s]}\n"
    )
    async with harness(
        activities=ACTIVITIES, store=SqliteStore(tmp_path / "a.db"), clock=clock
    ) as engine:
        await started(engine, document, {"xs": [1, 2, 3]}, id="r")
        await engine.settle()
        await (await engine.get("r")).pause()
    async with harness(
        activities=ACTIVITIES, store=SqliteStore(tmp_path / "a.db"), clock=clock
    ) as engine:
        run = await engine.get("r")
        await run.resume()
        await engine.skip(hours=2)
        await run.signal("go")
        assert await engine.finish(run) == {"out": [1, 2, 3]}
        assert await engine.audit() == []
    assert sorted(CALLS) == [1, 2, 3]


async def test_large_outputs_are_read_by_reference(tmp_path: Path) -> None:
    big = "x" * 50_000
    document = (
        "id: d\ntasks:\n  a: {do: note, inputs: {value: {from: input}}}\n  s: {type: signal, name: go, after: [a]}\n"
        "  r: {type: transform, set: {n: 'tasks.a.output.size() + input.size()'}, after: [s]}\n"
        "  b: {do: note, inputs: {value: {from: a}}, after: [r]}\n"
    )
    async with harness(activities=ACTIVITIES, store=SqliteStore(tmp_path / "a.db")) as engine:
        run = await started(engine, document, big, id="r")
        await engine.settle()
    async with harness(activities=ACTIVITIES, store=SqliteStore(tmp_path / "a.db")) as engine:
        run = await engine.get("r")
        await run.signal("go")
        assert await engine.finish(run) == big
        assert (await run.show()).data == {"n": 100_000}


async def test_a_second_engine_stands_by_and_its_commands_reach_the_owner(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/shop.db"
    async with penstock.open(url, activities=ACTIVITIES, node="first") as owner:
        async with penstock.open(url, activities=ACTIVITIES, node="second") as standby:
            await standby.register(
                "id: d\ntasks:\n  s: {type: signal, name: go}\n  n: {do: note, after: [s], inputs: {value: {from: s}}}\n"
            )
            run = await standby.start("d", id="r")
            await run.signal("go", "hello")
            assert await asyncio.wait_for(run.result(), 60) == "hello"
            holder = await standby.owner()
            assert holder is not None
            assert holder.node == "first"
        assert owner.stats()["events"] >= 2
    assert CALLS == ["hello"]


async def test_global_data_is_seen_and_the_value_used_is_recorded(engine: Harness) -> None:
    await engine.set_global(rate=3)
    run = await started(
        engine,
        "id: d\ntasks:\n  a: {do: note, inputs: {value: '${global.rate * 2}'}}\n  s: {type: signal, name: go, after: [a]}\n",
    )
    await engine.settle()
    await engine.set_global(rate=None)

    assert CALLS == [6]
    assert await engine.global_data() == {}
    await run.signal("go", 1)
    assert await engine.finish(run) == 1


async def test_an_attempt_that_waits_too_long_for_a_place_fails() -> None:
    async with harness(
        activities=ACTIVITIES, settings=Settings(max_concurrent_tasks_per_node=1, drain_seconds=0)
    ) as engine:
        await started(engine, "id: blocker\ntasks:\n  a: {do: waits}\n")
        await engine.settle()
        run = await started(
            engine, "id: d\ntasks:\n  a: {do: note, timeout: {scheduleToStart: 30s}}\n"
        )

        with pytest.raises(penstock.RunFailed) as caught:
            await engine.finish(run)
    assert caught.value.failure.code == "schedule-to-start"
    assert CALLS == []


async def test_an_activity_may_change_its_arguments_without_harm(engine: Harness) -> None:
    run = await started(
        engine,
        "id: d\ntasks:\n"
        "  a: {do: note, inputs: {value: {from: input}}}\n"
        "  b: {do: spoil, after: [a], inputs: {value: {from: a}, constant: {value: [1]}}}\n"
        "  c: {do: spoil, after: [b], inputs: {value: {from: a}, constant: {value: [1]}}}\n",
        {"x": [1], "big": "y" * 5000},
    )

    assert await engine.finish(run) == [1, 1]


async def test_a_run_can_be_seen_as_it_was(engine: Harness) -> None:
    run = await started(
        engine,
        "id: d\ntasks:\n  a: {type: transform, set: {n: '1'}}\n  s: {type: signal, name: go, after: [a]}\n"
        "  b: {type: transform, set: {n: '2'}, after: [s]}\n",
    )
    before = datetime.fromtimestamp(engine.clock.now(), UTC)
    await run.snapshot("before", by="ada")
    await engine.skip(60)
    await run.signal("go")
    await engine.finish(run)

    assert (await run.show()).data == {"n": 2}
    for moment in ("before", 1, before):
        seen = await run.show(moment)
        assert (seen.status, seen.data) == ("WAITING", {"n": 1})
    for moment in ("after", 99, datetime(1999, 1, 1, tzinfo=UTC)):
        with pytest.raises(penstock.NotFound):
            await run.show(moment)
