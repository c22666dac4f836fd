"""Queues as their user meets them: limits, rates, keys, priorities, tenants, changes while running (SPEC 4.10, 5.1)."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import activity
from penstock.adapters.memory import MemoryStore
from penstock.adapters.sqlite.store import SqliteStore
from penstock.engine.queueing import ALL, STATE
from penstock.engine.settings import Settings
from penstock.errors import PenstockError, Rejected
from penstock.ports.runs import WhyView
from penstock.ports.store import Record
from penstock.testing.harness import Harness, SkipClock, harness

BEGUN: list[Any] = []
ENDED: list[Any] = []
GATES: dict[Any, asyncio.Event] = {}
NOW: Counter[Any] = Counter()
MOST: Counter[Any] = Counter()


@pytest.fixture(autouse=True)
def _fresh() -> None:
    for each in (BEGUN, ENDED, GATES, NOW, MOST):
        each.clear()


@activity
async def work(value: Any = None) -> Any:
    """Goes on when the test says so."""
    BEGUN.append(value)
    gate = GATES.setdefault(value, asyncio.Event())
    await gate.wait()
    ENDED.append(value)
    return value


@activity
async def quick(value: Any = None) -> Any:
    BEGUN.append(value)
    return value


@activity
async def counted(key: str) -> None:
    NOW[key] += 1
    MOST[key] = max(MOST[key], NOW[key])
    for _ in range(20):
        await asyncio.sleep(0)
    NOW[key] -= 1


ACTIVITIES = [work, quick, counted]
IN = "id: {id}\ntasks:\n  a: {{do: {do}, queue: {queue}, inputs: {{value: {{from: input}}}}}}"


async def go(engine: Harness, *values: Any) -> None:
    for value in values:
        GATES.setdefault(value, asyncio.Event()).set()
    await engine.settle()


def only(views: list[WhyView]) -> WhyView:
    (view,) = views
    return view


async def test_a_queue_has_its_own_limit_and_why_names_it() -> None:
    async with harness(
        activities=ACTIVITIES, settings=Settings(drain_seconds=0, queues={"mail": {"limit": 2}})
    ) as engine:
        await engine.register(IN.format(id="d", do="work", queue="mail"))
        await engine.register(IN.format(id="e", do="quick", queue="web"))
        runs = [await engine.start("d", number) for number in range(4)]
        await engine.settle()
        assert BEGUN == [0, 1]
        why = only(await runs[2].why())
        assert why.kind == "quota"
        assert "queue `mail`: 2 of 2 taken, 1 others wait" in why.message
        assert await engine.finish(await engine.start("e", "other")) == "other"

        mail = {view.name: view for view in await engine.queues()}["mail"]
        assert (mail.running, mail.waiting, mail.limit) == (2, 2, 2)
        await engine.skip(5)
        assert {v.name: v.oldest_wait for v in await engine.queues()}["mail"] == 5.0
        await go(engine, 0, 1, 2, 3)
        assert BEGUN == [0, 1, "other", 2, 3]


async def test_a_queue_is_changed_while_it_works_and_that_is_kept(tmp_path: Path) -> None:
    store, clock = MemoryStore(), SkipClock()
    async with harness(activities=ACTIVITIES, store=store, clock=clock) as engine:
        await engine.register(IN.format(id="d", do="work", queue="mail"))
        await engine.set_queue("mail", limit=1, by="ann", reason="the server is slow")
        for number in range(4):
            await engine.start("d", number)
        await engine.settle()
        assert BEGUN == [0]
        await engine.set_queue("mail", limit=3, by="bob")
        await engine.settle()
        assert BEGUN == [0, 1, 2]
        await go(engine, 0, 1, 2, 3)
        assert BEGUN == [0, 1, 2, 3]
    async with harness(activities=ACTIVITIES, store=store, clock=clock) as engine:
        (mail,) = [view for view in await engine.queues() if view.name == "mail"]
        assert (mail.limit, mail.by) == (3, "bob")
        await engine.set_queue("mail", limit=None, rate=2)
        (mail,) = [view for view in await engine.queues() if view.name == "mail"]
        assert (mail.limit, mail.rate) == (None, 2)


async def test_a_damaged_record_of_how_queues_stand_hides_no_queue(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "a.db")
    async with penstock.open(f"sqlite:///{tmp_path}/a.db", execute=False) as other:
        await other.set_queue("mail", limit=1)
        await store.open()
        for value in (b"{", b"\xff", b"[]"):
            kept = await store.record(STATE, ALL)
            await store.put([Record(STATE, ALL, value, 0 if kept is None else kept.revision)])
            assert [(view.name, view.limit) for view in await other.queues()] == [("mail", 1)]
        await store.close()


async def test_another_process_changes_and_sees_the_queues(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    async with penstock.open(url, activities=ACTIVITIES) as owner:
        await owner.register(IN.format(id="d", do="work", queue="mail"))
        async with penstock.open(url, execute=False) as other:
            await other.set_queue("mail", limit=1, by="ann", reason="test")
            deadline = time.monotonic() + 60
            while not any(view.limit == 1 for view in await owner.queues()):
                assert time.monotonic() < deadline
                await asyncio.sleep(0.05)
            runs = [await owner.start("d", number) for number in range(3)]
            deadline = time.monotonic() + 60
            while {v.name: v.waiting for v in await other.queues()}.get("mail") != 2:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.05)
            (why,) = await (await other.get(runs[2].id)).why()
            assert "2 attempts wait in its queue `mail`, 1 of 1 are under way" in why.message
        for number, run in enumerate(runs):
            GATES.setdefault(number, asyncio.Event()).set()
            assert await run.result() == number


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("mail", {"limit": 0}, "whole number from 1"),
        ("mail", {"limit": 1.5}, "whole number"),
        ("mail", {"limit": True}, "whole number"),
        ("mail", {"rate": 0}, "number from"),
        ("mail", {"rate": float("nan")}, "number from"),
        ("mail", {"rate": "fast"}, "number from"),
        ("mail", {"speed": 1}, "no `speed`"),
        ("mail", {"reserve": 1000}, "reserve 1000 places, and the node has 1000"),
        ("mail", {"limit": None, "reserve_high": 1}, "has no limit"),
        ("mail", {"limit": 2, "reserve_high": 2}, "at least one|has 2 places"),
        ("", {"limit": 1}, "1 to 100 printable"),
        ("x" * 101, {"limit": 1}, "1 to 100 printable"),
        ("a\nb", {"limit": 1}, "1 to 100 printable"),
        ("\ud800", {"limit": 1}, "not a text|printable"),
    ],
)
async def test_options_that_make_no_sense_are_refused_and_change_nothing(
    name: str, options: dict[str, Any], says: str
) -> None:
    async with harness(activities=ACTIVITIES) as engine:
        await engine.set_queue("mail", limit=7)
        before = await engine.queues()
        with pytest.raises(PenstockError, match=says):
            await engine.set_queue(name, **options)
        assert await engine.queues() == before
        if name == "mail":
            with pytest.raises(Rejected, match=says):
                Settings(queues={name: options})


async def test_a_rate_is_kept_over_time() -> None:
    async with harness(
        activities=ACTIVITIES, settings=Settings(queues={"mail": {"rate": 50}}, drain_seconds=0)
    ) as engine:
        await engine.register(IN.format(id="d", do="quick", queue="mail"))
        runs = [await engine.start("d", number) for number in range(200)]
        await engine.settle()
        assert len(BEGUN) == 1
        why = only(await runs[150].why())
        assert "rate of queue `mail`: 50 per second" in why.message
        assert why.due == pytest.approx(engine.clock.now() + 0.02)
        await engine.skip(1)
        assert len(BEGUN) == 51
        await engine.skip(3)
        assert len(BEGUN) == 200


async def test_a_rate_is_kept_in_real_time() -> None:
    settings = Settings(queues={"mail": {"rate": 50, "burst": 5}})
    async with penstock.open("memory:rate", activities=ACTIVITIES, settings=settings) as engine:
        await engine.register(IN.format(id="d", do="quick", queue="mail"))
        began = time.monotonic()
        runs = [await engine.start("d", number) for number in range(55)]
        await asyncio.gather(*[run.result() for run in runs])
        took = time.monotonic() - began
    assert took >= 1.0 - 0.02


async def test_attempts_of_one_key_never_overlap() -> None:
    document = (
        "id: d\ntasks:\n"
        "  a: {do: counted, inputs: {key: {from: input, path: $.account}},"
        " limits: {key: 'input.account', concurrency: 2}}\n"
    )
    async with harness(activities=ACTIVITIES) as engine:
        await engine.register(document)
        runs = await asyncio.gather(
            *[engine.start("d", {"account": f"k{number % 3}"}) for number in range(60)]
        )
        for run in runs:
            await engine.finish(run)
    assert MOST == {"k0": 2, "k1": 2, "k2": 2}


async def test_a_key_of_the_definition_counts_all_its_tasks_and_may_have_a_name() -> None:
    document = (
        "id: {id}\nlimits: {{key: input.k, name: account}}\ntasks:\n"
        "  a: {{do: work, inputs: {{value: {{template: '{id}a'}}}}}}\n"
        "  b: {{do: work, inputs: {{value: {{template: '{id}b'}}}}}}\n"
    )
    async with harness(activities=ACTIVITIES) as engine:
        for id in "xy":
            await engine.register(document.format(id=id))
        one = await engine.start("x", {"k": 7})
        two = await engine.start("y", {"k": 7})
        other = await engine.start("y", {"k": "8"})
        await engine.settle()
        assert BEGUN == ["xa", "ya"]
        assert "its key account:7: 1 of 1 under way" in (await two.why())[0].message
        await go(engine, "ya", "yb")
        await engine.finish(other)
        await go(engine, "xa")
        assert BEGUN[3:] == ["xb"]
        await go(engine, "xb")
        await engine.finish(one)
        await engine.finish(two)


async def test_a_key_that_cannot_be_told_fails_the_task() -> None:
    document = "id: d\ntasks:\n  a: {do: quick, limits: {key: input.account}}"
    async with harness(activities=ACTIVITIES) as engine:
        await engine.register(document)
        run = await engine.start("d", {"other": 1})
        with pytest.raises(penstock.PenstockError, match="key limit of `a`"):
            await engine.finish(run)
        assert BEGUN == []


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        ("{key: nobody.x}", "nobody"),
        ("{key: 'input.', concurrency: 1}", ""),
        ("{concurrency: 1}", ""),
        ("{key: input.a, concurrency: 0}", ""),
        ("{key: input.a, much: 1}", "much"),
    ],
)
async def test_limits_of_a_task_are_checked(limits: str, says: str) -> None:
    async with harness(activities=ACTIVITIES) as engine:
        with pytest.raises(PenstockError) as caught:
            await engine.register(f"id: d\ntasks:\n  a: {{do: quick, limits: {limits}}}")
        assert says in str(getattr(caught.value, "findings", "")) + str(caught.value)


async def test_a_task_has_its_own_priority_and_ageing_lets_low_ones_through() -> None:
    document = (
        "id: {id}\ntasks:\n  a: {{do: work, priority: {id}, inputs: {{value: {{from: input}}}}}}"
    )
    options = {"default": {"limit": 1, "longest_wait": 30}}
    async with harness(
        activities=ACTIVITIES, settings=Settings(queues=options, drain_seconds=0)
    ) as engine:
        for id in ("high", "low"):
            await engine.register(document.format(id=id))
        await engine.start("high", 0)
        await engine.start("low", "low")
        for second in range(1, 60):
            await engine.start("high", second)
            await engine.skip(1)
            await go(engine, BEGUN[-1])
            if "low" in BEGUN:
                break
        # After 30 s it gets one of the next two places.
        assert 29 <= BEGUN.index("low") <= 32


async def test_a_tenant_with_few_runs_is_done_early() -> None:
    options = {"default": {"limit": 1}}
    async with harness(
        activities=ACTIVITIES,
        settings=Settings(queues=options, tenant="attributes.customer", drain_seconds=0),
    ) as engine:
        await engine.register("id: d\ntasks:\n  a: {do: work, inputs: {value: {from: input}}}")
        for number in range(200):
            await engine.start("d", f"a{number}", attributes={"customer": "a"})
        for number in range(10):
            await engine.start("d", f"b{number}", attributes={"customer": "b"})
        for _ in range(25):
            await go(engine, BEGUN[-1])
        assert {f"b{number}" for number in range(10)} <= set(BEGUN)


async def test_a_backlog_delays_no_other_queue_in_a_real_engine() -> None:
    """100,000 attempts of a map wait for 50 places that are all taken; another queue's run is done at once."""
    document = "id: bulk\ntasks:\n  m: {type: map, items: 'input', body: {do: work, queue: bulk}}\n"
    settings = Settings(max_concurrent_tasks_per_node=50, drain_seconds=0)
    async with penstock.open("memory:backlog", activities=ACTIVITIES, settings=settings) as engine:
        await engine.register(document)
        await engine.register(IN.format(id="d", do="quick", queue="web"))
        await (await engine.start("d", 0)).result()
        await engine.start("bulk", list(range(100_000)))
        await asyncio.sleep(0)
        assert {v.name: v.waiting for v in await engine.queues()}["bulk"] > 99_900
        waiting = {v.name: v.waiting for v in await engine.queues()}["bulk"]
        for number in range(50):
            assert await asyncio.wait_for((await engine.start("d", number)).result(), 60) == number
        # Not one of those before it in time had to go first.
        assert {v.name: v.waiting for v in await engine.queues()}["bulk"] == waiting


async def test_who_waits_too_long_is_told_what_it_waited_for() -> None:
    document = "id: d\ntasks:\n  a: {do: work, queue: mail, timeout: {scheduleToStart: 5s}}"
    async with harness(
        activities=ACTIVITIES, settings=Settings(queues={"mail": {"limit": 1}}, drain_seconds=0)
    ) as engine:
        await engine.register(document)
        await engine.start("d")
        run = await engine.start("d")
        with pytest.raises(penstock.PenstockError, match="waited 5 s for a place in queue `mail`"):
            await engine.finish(run)
        assert {v.name: v.waiting for v in await engine.queues()}["mail"] == 0


async def test_what_waits_when_the_process_ends_goes_on_in_the_next() -> None:
    store, clock = MemoryStore(), SkipClock()
    settings = Settings(queues={"mail": {"limit": 1}}, drain_seconds=0)
    async with harness(
        activities=ACTIVITIES, store=store, clock=clock, settings=settings
    ) as engine:
        await engine.register(IN.format(id="d", do="work", queue="mail"))
        ids = [(await engine.start("d", number)).id for number in range(5)]
        await engine.settle()
        assert BEGUN == [0]
    async with harness(
        activities=ACTIVITIES, store=store, clock=clock, settings=settings
    ) as engine:
        await engine.settle()
        await go(engine, *range(5))
        for number, id in enumerate(ids):
            assert await engine.finish(await engine.get(id)) == number
    assert Counter(ENDED) == Counter(range(5))


@activity
def blocks(value: Any = None) -> Any:
    BEGUN.append(value)
    time.sleep(0.02)
    return value


async def test_a_backlog_of_threads_in_one_queue_does_not_delay_those_of_another() -> None:
    """Two threads and 100 that wait for them: another queue's attempt gets the next thread that is free."""
    document = (
        "id: bulk\ntasks:\n  m: {type: map, items: 'input',"
        " body: {do: blocks, queue: bulk, inputs: {value: {from: item}}}}\n"
    )
    async with penstock.open("memory:threads", activities=[blocks], threads=2) as engine:
        await engine.register(document)
        await engine.register(IN.format(id="d", do="blocks", queue="web"))
        bulk = await engine.start("bulk", list(range(100)))
        assert await (await engine.start("d", "mine")).result() == "mine"
        assert len(BEGUN) <= 8
        await bulk.result()
