"""Every public function of schedules, queues, batches and keyed starts, with a wrong value in every place (SPEC 4.4, 4.6,
4.10). The places are those of the signatures, so that a new one is walked too."""

from __future__ import annotations

import asyncio
import inspect
import itertools
from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock import Debounce, Engine, Rejected, Singleton
from penstock.engine.batches import LocalBatches
from penstock.engine.schedule_acts import ScheduleActs
from penstock.model.queue import QueueOptions
from penstock.model.schedule import Calendar
from penstock.ports.schedules import Schedules
from penstock.ports.store import Query
from penstock.testing.harness import Harness, SkipClock, harness
from support.stores import Make
from support.wrong import WRONG, complaint, named, places

DEFINITION = {"id": "d", "tasks": {"s": {"type": "signal", "name": "go"}}}
WORDS = [
    name for name in places(Schedules.create)[0] if name not in ("id", "paused", "by", "reason")
]
FUNCTIONS: list[tuple[str, Callable[..., Any], tuple[str, ...]]] = [
    *((f"schedules.{n}", f, tuple(WORDS) if n in ("create", "update") else ())
      for n, f in inspect.getmembers(ScheduleActs, inspect.isfunction) if n[0] != "_" and n not in ("declare", "follow")),
    *((f"batches.{n}", f, ()) for n, f in inspect.getmembers(LocalBatches, inspect.isfunction)
      if n[0] != "_" and n != "wait"),
    ("batch", Engine.batch, Query.__struct_fields__),
    ("set_queue", Engine.set_queue, QueueOptions.__struct_fields__),
    ("queues", Engine.queues, ()),
]  # fmt: skip
"""Its name on the engine, its signature, and the words that a `**parameter` takes."""
NUMBERS = itertools.count(1)


@pytest.fixture
async def engine(
    make_store: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Harness]:
    monkeypatch.chdir(tmp_path)  # some of the wrong values are good names of files
    clock = SkipClock()
    async with harness(store=make_store(clock=clock.now), clock=clock) as made:
        await made.register(DEFINITION)
        await made.start("d", id="r")
        yield made


async def right(engine: Harness, name: str) -> dict[str, Any]:
    """What a call needs to go well."""
    here = f"s{next(NUMBERS)}"
    match name.partition("."):
        case ("schedules", _, "create"):
            return {"id": here, "definition": "d", "every": "1h"}
        case ("schedules", _, _):
            await engine.schedules.create(here, "d", every="1h", paused=True)
            return {"id": here, "begin": "2025-12-31T22:00:00Z", "end": "2025-12-31T23:00:00Z"}
        case ("batches", _, "start"):
            return {"act": "pause", "query": Query(definition="none"), "arguments": {}}
        case ("batches", _, _):
            return {"id": "none"}
        case ("batch", _, _):
            return {"act": "pause", "definition": "none"}
        case _:
            return {"name": "q"}


@pytest.mark.parametrize("name", [name for name, _, _ in FUNCTIONS])
async def test_a_wrong_value_works_or_is_refused_clearly(engine: Harness, name: str) -> None:
    function, words = next((f, w) for n, f, w in FUNCTIONS if n == name)
    found: list[str] = []
    plain, required = places(function)
    good: dict[str, Any] = {}
    whose: Any = engine
    for part in name.split("."):
        whose = getattr(whose, part)
    for place in dict.fromkeys([*plain, *words]):
        for wrong in WRONG:
            if name in ("schedules.create", "schedules.delete") or not good:
                good = await right(engine, name)
            given = {k: v for k, v in good.items() if k in required or k in words}
            problem = await complaint(lambda: whose(**{**given, place: wrong}))  # noqa: B023
            if problem:
                found.append(f"{name}({place}={named(wrong)}): {problem}")
    await engine.settle()
    assert not found, f"{len(found)} calls:\n" + "\n".join(found)
    # Nothing of it harmed the engine, and what it kept can be read.
    assert await engine.schedules.list() is not None
    assert await engine.batches.list() is not None
    run = await engine.get("r")
    await run.signal("go")
    await engine.settle()
    assert await run.status() in ("COMPLETED", "PAUSED")


async def test_a_wrong_value_inside_of_another_is_refused_clearly(engine: Harness) -> None:
    found: list[str] = []
    for wrong in WRONG:
        calls: dict[str, Callable[[], Any]] = {}
        for words in (
            *({"calendar": {"times": ["09:00"], part: [wrong]}} for part in Calendar.__struct_fields__),
            *({"calendar": {"times": ["09:00"], part: wrong}} for part in Calendar.__struct_fields__),
            {"calendar": [wrong]}, {"cron": [wrong]}, {"cron": "* * * * *", "exclude": [wrong]},
            {"every": "1h", "attributes": {"a": wrong}}, {"every": "1h", "metadata": {"a": wrong}},
        ):  # fmt: skip
            id = f"s{next(NUMBERS)}"
            calls[f"create({named(words)})"] = partial(engine.schedules.create, id, "d", **words)
        for act, arguments in (
            ("signal", {"name": wrong}), ("signal", {"name": "go", "payload": wrong}), ("attributes", {"values": wrong}),
            ("attributes", {"values": {"a": wrong}}), ("retry", {"task": wrong}), ("fire", {"key": wrong}),
            ("undo", {"key": wrong, "act": "skip"}), ("undo", {"key": "s", "act": wrong}),
        ):  # fmt: skip
            calls[f"batch({act}, {named(arguments)})"] = partial(
                engine.batch, act, arguments=arguments, definition="d"
            )
        calls[f"batch(attributes={named(wrong)})"] = partial(
            engine.batch, "pause", attributes={"a": wrong}
        )
        for name, call in calls.items():
            if problem := await complaint(call):
                found.append(f"{name}: {problem}")
    await engine.settle()
    assert not found, f"{len(found)} calls:\n" + "\n".join(found)
    for batch in await engine.batches.list():
        assert batch.state == "done", batch
        assert "internal" not in batch.refused, batch


@pytest.mark.parametrize("option", ["singleton", "debounce"])
async def test_a_wrong_key_of_a_start_is_refused_clearly(engine: Harness, option: str) -> None:
    found: list[str] = []
    made: list[Any] = [*WRONG]
    for wrong in WRONG:
        made += [Singleton(wrong), Singleton("k", attach=wrong)]
        made += [Debounce(wrong, 1), Debounce("k", wrong), Debounce("k", 1, at_most=wrong)]
    for wrong in made:
        problem = await complaint(lambda: engine.start("d", **{option: wrong}))  # noqa: B023
        if problem:
            found.append(f"start({option}={named(wrong)}): {problem}")
    await engine.settle()
    assert not found, f"{len(found)} calls:\n" + "\n".join(found)
    await engine.skip(hours=1)
    assert await (await engine.get("r")).status() == "WAITING"


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ({"cron": "0 0 30 2 *"}, "cron-never", "never fires"),
        ({"cron": "0 0 31 4,6 *"}, "cron-never", "never fires"),
        ({"every": "1h", "zone": "Europe/Berln"}, "zone-unknown", "Europe/Berln"),
        ({"every": "1h", "catch_up": -1}, "schedule-invalid", "`catch_up`: -1 is not"),
        ({"every": "1h", "catch_up": "-1h"}, "schedule-invalid", "-1h"),
        ({"every": "1h", "buffer": 0}, "schedule-invalid", "`buffer` is 0"),
        ({"every": "1h", "jitter": 10**400}, "schedule-invalid", "`jitter`"),
        ({"every": timedelta(0)}, "interval-invalid", "too short"),
        ({"every": "1h", "until": "1999-01-01"}, "schedule-never", "never fires"),
    ],
)
async def test_a_schedule_that_means_nothing_is_refused(
    words: dict[str, Any], code: str, says: str
) -> None:
    async with harness() as engine:
        await engine.register(DEFINITION)
        with pytest.raises(Rejected) as refused:
            await engine.schedules.create("s", "d", **words)
        assert refused.value.code == code
        assert says in refused.value.message
        assert refused.value.hint
        assert await engine.schedules.list() == []


async def test_ten_years_are_made_up_for_with_progress_or_refused_with_where_to_stop() -> None:
    async with harness() as engine:
        await engine.register({"id": "d", "tasks": {"a": {"type": "transform", "set": {"n": "1"}}}})
        await engine.schedules.create("minutes", "d", cron="* * * * *", paused=True)
        with pytest.raises(Rejected) as refused:
            await engine.schedules.backfill("minutes", "2016-01-01", "2026-01-01")
        assert refused.value.code == "backfill-too-large"
        assert "2016-01-07T22:39:00Z" in str(refused.value.hint)

        await engine.schedules.create("days", "d", cron="0 0 * * *")
        job = await engine.schedules.backfill("days", "2016-01-01", "2025-12-31")
        assert job.total == 3653
        seen = [each.done for each in (await engine.schedules.get("days")).backfills]
        while seen[-1] < 3653 and (there := (await engine.schedules.get("days")).backfills):
            seen.append(there[0].done)
            await asyncio.sleep(0)
        assert seen == sorted(seen)
        assert len(set(seen)) > 30  # a hundred at a time
        await engine.settle()
        view = await engine.schedules.get("days")
        assert (view.counts.started, view.backfills) == (3653, [])
        with pytest.raises(Rejected, match="`begin` is no time"):
            await engine.schedules.backfill("days", "yesterday", "today")


async def test_a_jitter_beyond_the_interval_is_never_as_late_as_the_next() -> None:
    async with harness() as engine:
        await engine.register({"id": "d", "tasks": {"a": {"type": "transform", "set": {"n": "1"}}}})
        await engine.schedules.create("s", "d", every="1h", jitter="30d")
        await engine.skip(days=2)
        rows = sorted(await engine.list(limit=100), key=lambda row: row.id)
        assert len(rows) >= 47
        for row in rows:
            late = row.created_at - datetime.fromisoformat(row.id.partition("/")[2]).timestamp()
            assert 0 <= late < 3600
