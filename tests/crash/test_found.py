"""What the crash tests found, each as small as it can be shown."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import Rejected, RunFailed, activity
from penstock.adapters.sqlite.store import SqliteStore
from penstock.engine import recovery
from penstock.engine.engine import Settings
from penstock.engine.inbox import Item
from penstock.engine.recovery import Ownership
from penstock.engine.runs import LocalRuns
from penstock.engine.turns import Turns
from penstock.errors import StoreError
from penstock.ports.store import Append, Appended

begun: list[str] = []
some: asyncio.Event


@activity
async def waits(name: str) -> None:
    begun.append(name)
    some.set()
    await asyncio.Event().wait()


WAITS = {"id": "waits", "tasks": {"a": {"do": "waits", "inputs": {"name": {"from": "input"}}}}}


@pytest.fixture(autouse=True)
async def _none_begun() -> None:
    global some
    some = asyncio.Event()
    begun.clear()


def as_a_kill_leaves_it(database: Path) -> Path:
    """A copy of the files of a database that is in use."""
    copy = database.with_name(f"copy-of-{database.name}")
    for end in ("", "-wal"):
        Path(f"{copy}{end}").write_bytes(Path(f"{database}{end}").read_bytes())
    return copy


async def test_a_run_cancelled_before_its_attempt_has_begun_ends_at_once() -> None:
    settings = Settings(max_concurrent_tasks_per_node=1, drain_seconds=0)
    async with penstock.open("memory:", activities=[waits], settings=settings) as engine:
        await engine.register(WAITS)
        await engine.start("waits", "first")
        second = await engine.start("waits", "second")

        await second.cancel()
        with pytest.raises(RunFailed, match="CANCELLED"):
            await asyncio.wait_for(second.result(), 60)
        assert begun == ["first"]


async def test_after_a_crash_an_attempt_begins_only_once_the_loss_of_the_last_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = tmp_path / "penstock.db"
    settings = Settings(drain_seconds=0)
    async with penstock.open(
        f"sqlite:///{database}", activities=[waits], settings=settings
    ) as engine:
        await engine.register(WAITS)
        await engine.start("waits", "a", id="a")
        await asyncio.wait_for(some.wait(), 60)
        copy = as_a_kill_leaves_it(database)

    append = SqliteStore.append
    refused = asyncio.Event()

    async def refuse(self: Any, appends: Sequence[Append]) -> list[Appended | Exception]:
        if not refused.is_set():
            refused.set()
            raise StoreError("not now")
        return await append(self, appends)

    monkeypatch.setattr(SqliteStore, "append", refuse)
    begun.clear()
    async with penstock.open(f"sqlite:///{copy}", activities=[waits], settings=settings) as engine:
        await asyncio.wait_for(refused.wait(), 60)
        for _ in range(20):
            await asyncio.sleep(0)
        assert begun == []
        some.clear()
        await asyncio.wait_for(some.wait(), 60)
        assert "task_lost" in [item.event.type for item in await (await engine.get("a")).history()]
        assert begun == ["a"]


@activity(once=True)
async def waits_once(name: str) -> None:
    begun.append(name)
    if len(begun) == 3:
        some.set()
    await asyncio.Event().wait()


ONCE = {"id": "once", "tasks": {"a": {"do": "waits_once", "inputs": {"name": {"from": "input"}}}}}


async def test_a_hint_during_recovery_begins_nothing_that_a_dead_process_had_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(drain_seconds=0)
    path = tmp_path / "penstock.db"
    async with penstock.open(
        f"sqlite:///{path}", activities=[waits_once], settings=settings
    ) as engine:
        await engine.register(ONCE)
        for name in "abc":
            await engine.start("once", name, id=name)
        await asyncio.wait_for(some.wait(), 60)
        copy = as_a_kill_leaves_it(path)
    begun.clear()

    monkeypatch.setattr(recovery, "CHUNK", 1)
    take = Ownership._take

    def take_and_hear(self: Any, run_id: str, entry: Any, *, clean: bool) -> None:
        take(self, run_id, entry, clean=clean)
        if run_id == "a":
            self._engine.following.heard("c")

    monkeypatch.setattr(Ownership, "_take", take_and_hear)
    async with penstock.open(
        f"sqlite:///{copy}", activities=[waits_once], settings=settings
    ) as engine:
        for name in "abc":
            with pytest.raises(RunFailed, match="at most once"):
                await asyncio.wait_for((await engine.get(name)).result(), 60)
    assert begun == []


async def test_a_run_started_during_recovery_is_not_taken_for_one_of_the_dead_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(drain_seconds=0)
    path = tmp_path / "penstock.db"
    async with penstock.open(f"sqlite:///{path}", activities=[waits], settings=settings) as engine:
        await engine.register(WAITS)
        for name in "abc":
            await engine.start("waits", name, id=name)
        copy = as_a_kill_leaves_it(path)
    begun.clear()

    monkeypatch.setattr(recovery, "CHUNK", 1)
    take, starts = Ownership._take, list[asyncio.Future[str]]()

    def take_and_start(self: Any, run_id: str, entry: Any, *, clean: bool) -> None:
        take(self, run_id, entry, clean=clean)
        if run_id == "a":
            runs = LocalRuns(self._engine, self)
            starts.append(asyncio.ensure_future(runs.start("waits", "d", id="d")))
            self._engine.post("a", Item(None, read=lambda flow: None))

    monkeypatch.setattr(Ownership, "_take", take_and_start)
    async with penstock.open(f"sqlite:///{copy}", activities=[waits], settings=settings) as engine:
        await starts[0]
        await (await engine.get("d")).why()  # all that was in its inbox before is done
        types = [item.event.type for item in await (await engine.get("d")).history()]
        assert types == ["run_started"]
        assert begun.count("d") == 1


@activity
async def gives(value: int) -> int:
    return value + 1


GIVES = {
    "id": "gives",
    "tasks": {"a": {"do": "gives", "inputs": {"value": {"from": "input", "path": "$.n"}}}},
}
PARENT = {
    "id": "parent",
    "tasks": {"sub": {"type": "subworkflow", "definition": "gives", "inputs": {"n": {"value": 1}}}},
}
LISTENER = {"id": "listener", "tasks": {"go": {"type": "signal", "name": "go"}}}
SENDER = {
    "id": "sender",
    "tasks": {
        "a": {
            "do": "gives",
            "inputs": {"value": {"value": 1}},
            "onComplete": [
                {"signal": {"run": "listener", "name": "go", "payload": "${tasks.a.output}"}}
            ],
        }
    },
}


@pytest.mark.parametrize(
    ("definition", "victim"), [("parent", "run/sub"), ("parent", "run"), ("sender", "listener")]
)
async def test_a_store_that_fails_for_a_moment_costs_no_child_and_no_signal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, definition: str, victim: str
) -> None:
    """Whichever append of that run fails, once each: its start by its parent, its end told to its parent, a delivery."""
    append, failed = SqliteStore.append, set[int]()
    armed = asyncio.Event()

    async def fail_once(self: Any, appends: Sequence[Append]) -> list[Appended | Exception]:
        for each in appends:
            if armed.is_set() and each.row.id == victim and each.expected not in failed:
                failed.add(each.expected)
                raise StoreError("not now")
        return await append(self, appends)

    monkeypatch.setattr(SqliteStore, "append", fail_once)
    url = f"sqlite:///{tmp_path / 'penstock.db'}"
    async with penstock.open(url, activities=[gives]) as engine:
        for each in (GIVES, PARENT, LISTENER, SENDER):
            await engine.register(each)
        listener = await engine.start("listener", id="listener")
        run = await engine.start(definition, id="run")
        armed.set()

        assert await asyncio.wait_for(run.result(), 10) == 2
        if definition == "sender":
            assert await asyncio.wait_for(listener.result(), 10) == 2
        assert failed


async def test_a_signal_repeated_after_its_run_has_ended_gets_the_answer_of_the_first() -> None:
    async with penstock.open("memory:") as engine:
        await engine.register(LISTENER)
        run = await engine.start("listener")
        await run.signal("go", 1, message_id="m")
        assert await run.result() == 1

        await run.signal("go", 1, message_id="m")
        with pytest.raises(Rejected, match="has ended"):
            await run.signal("go", 1, message_id="n")


async def test_an_end_whose_results_could_not_be_stored_is_not_taken_for_a_clean_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(drain_seconds=0)
    url = f"sqlite:///{tmp_path / 'penstock.db'}"

    async def fail(self: Any, appends: Sequence[Append]) -> list[Appended | Exception]:
        raise StoreError("never again")

    with monkeypatch.context() as patch:
        async with penstock.open(url, activities=[waits_once], settings=settings) as engine:
            await engine.register(ONCE)
            begun.extend("xy")  # so that the next sets the event
            await engine.start("once", "a", id="a")
            await asyncio.wait_for(some.wait(), 60)
            patch.setattr(SqliteStore, "append", fail)

    async with penstock.open(url, activities=[waits_once], settings=settings) as engine:
        with pytest.raises(RunFailed, match="at most once"):
            await asyncio.wait_for((await engine.get("a")).result(), 60)
    assert begun == ["x", "y", "a"]


async def test_a_run_that_leaves_the_memory_while_others_are_loaded_is_loaded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with penstock.open(f"sqlite:///{tmp_path / 'penstock.db'}") as engine:
        await engine.register(LISTENER)
        run = await engine.start("listener")
        local = engine._runs
        assert isinstance(local, LocalRuns)
        load = Turns.load
        left = [1]

        async def load_and_forget(self: Any, run_ids: Sequence[str]) -> None:
            await load(self, run_ids)
            if left:
                left.pop()
                local.engine.refresh(run.id)  # a hint comes at that moment

        monkeypatch.setattr(Turns, "load", load_and_forget)
        local.engine.refresh(run.id)
        await run.signal("go", 1)
        assert await asyncio.wait_for(run.result(), 60) == 1
        assert not left
