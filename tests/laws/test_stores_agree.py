"""Every store gives the same histories as memory: the same bytes, whatever is run and whatever fails.

For that its calls take no time of the engine's loop (`InStep`): where time passes, two things that are under way at once, a
child that begins and a signal that arrives, may be recorded in either order. There the outcome is the same (SPEC 2.6).
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import tempfile
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, cast
from zlib import crc32

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

import penstock
from penstock import activity
from penstock.adapters.memory import MemoryStore
from penstock.adapters.postgres import PostgresStore
from penstock.adapters.sqlite.store import SqliteStore
from penstock.model.codec import decode_event
from penstock.model.events import TaskCompleted
from penstock.ports.store import Query, Store
from penstock.sdk.worker import current
from penstock.testing.harness import SkipClock, harness
from penstock.verify.structure import examine_document
from support.definitions import CHILD, documents

_schemas = count()
EXAMPLES = int(os.environ.get("PENSTOCK_EXAMPLES", "40"))


@activity
async def x(n: int = 0, items: Any = None) -> Any:
    here = current()
    luck = crc32(f"{here.run_id}/{here.key}/{here.attempt}".encode()) % 10
    if luck == 0:
        raise penstock.Fail("bad luck")
    if luck < 3:
        raise RuntimeError("try again")
    return {"n": luck} if luck < 8 else "y" * 5000


@activity
async def undo(*given: Any) -> None:
    if crc32(current().key.encode()) % 7 == 0:
        raise penstock.Fail("cannot be undone")


async def histories(
    store: Store, clock: SkipClock, document: dict[str, Any], seed: int
) -> dict[str, list[bytes]]:
    async with harness(activities=[x, undo], store=store, clock=clock) as engine:
        await engine.register(CHILD)
        await engine.register(document, force="made by chance: bad ones must agree too")
        run = await engine.start("flow", {"n": seed % 4, "items": [1, 2]}, id="run")
        for step, name in enumerate(("go", "add", "stop", "add", "go")):
            await engine.skip(seconds=7)
            try:
                await run.signal(name, None if name == "add" and step > 2 else step)
            except penstock.Rejected:
                continue
        await engine.skip(minutes=5)
        with contextlib.suppress(penstock.Rejected):
            await run.terminate(reason="enough")
        await engine.settle()
        return {
            row.id: [each.payload for each in await store.events(row.key)]
            for row in await store.list(Query(limit=1000))
        }


def examples(count: int) -> settings:
    return settings(
        max_examples=count,
        deadline=None,
        derandomize="PENSTOCK_EXAMPLES" not in os.environ,
        database=None,
        phases=[Phase.explicit, Phase.generate]
        + [Phase.shrink] * ("PENSTOCK_SHRINK" in os.environ),
        suppress_health_check=[
            HealthCheck.too_slow,
            HealthCheck.data_too_large,
            HealthCheck.filter_too_much,
            HealthCheck.function_scoped_fixture,
        ],
    )


class InStep:
    """A store whose calls block: nothing else happens meanwhile, as in memory."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if not inspect.iscoroutinefunction(found):
            return found

        async def call(*given: Any, **named: Any) -> Any:
            return asyncio.run_coroutine_threadsafe(found(*given, **named), self._loop).result()

        return call

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def same_as_memory(
    make: Callable[[Callable[[], float]], Store], document: dict[str, Any], seed: int
) -> None:
    memory_clock, other_clock = SkipClock(), SkipClock()
    memory = asyncio.run(
        histories(MemoryStore(clock=memory_clock.now), memory_clock, document, seed)
    )
    store = InStep(make(other_clock.now))
    try:
        other = asyncio.run(histories(cast("Store", store), other_clock, document, seed))
    finally:
        store.end()

    assert memory.keys() == other.keys()
    for id, events in memory.items():
        assert other[id] == events, id


@examples(EXAMPLES)
@given(document=documents(), seed=st.integers(0, 1000))
def test_sqlite_gives_the_same_histories_as_memory(document: dict[str, Any], seed: int) -> None:
    assume(not examine_document(document).errors)
    with tempfile.TemporaryDirectory() as folder:
        same_as_memory(
            lambda clock: SqliteStore(Path(folder) / "a.db", clock=clock), document, seed
        )


@examples(max(8, EXAMPLES // 4))
@given(document=documents(), seed=st.integers(0, 1000))
def test_postgres_gives_the_same_histories_as_memory(
    postgres_url: str, document: dict[str, Any], seed: int
) -> None:
    assume(not examine_document(document).errors)
    place = f"{postgres_url}?schema=s{next(_schemas)}"
    same_as_memory(lambda clock: PostgresStore(place, clock=clock), document, seed)


# -- where time passes


def steady() -> list[Any]:
    """Those of above, without bad luck."""

    @activity
    async def undo(*given: Any) -> None: ...

    @activity
    async def x(n: int = 0, items: Any = None) -> Any:
        here = current()
        luck = crc32(f"{here.run_id}/{here.key}".encode()) % 10
        return luck if luck < 9 else "y" * 5000

    return [x, undo]


async def outcome(store: Store, clock: SkipClock, document: dict[str, Any], seed: int) -> Any:
    """How the run ended, with what, and which tasks were done in it and its children."""
    async with harness(activities=steady(), store=store, clock=clock) as engine:
        await engine.register(CHILD)
        await engine.register(document, force="made by chance: bad ones must agree too")
        run = await engine.start("flow", {"n": seed % 4, "items": [1, 2]}, id="run")
        try:
            result = await engine.finish(run)
        except penstock.RunFailed as error:
            return error.status  # which tasks were done before is a matter of order
        await engine.skip(minutes=5)  # children that nobody waits for
        done: list[tuple[str, str]] = []
        for row in await store.list(Query(limit=1000)):
            for each in await store.events(row.key):
                event = decode_event(each.payload)
                if isinstance(event, TaskCompleted):
                    done.append((row.id, event.key))
        return result, sorted(done)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
@examples(max(8, EXAMPLES // 4))
@given(document=documents(calm=True), seed=st.integers(0, 1000))
def test_where_time_passes_in_a_commit_the_outcome_is_the_same(
    kind: str, request: pytest.FixtureRequest, document: dict[str, Any], seed: int
) -> None:
    """What comes in meanwhile is recorded in another order, and nothing is lost or done twice."""
    assume(not examine_document(document).errors)
    memory_clock, other_clock = SkipClock(), SkipClock()
    memory = asyncio.run(outcome(MemoryStore(clock=memory_clock.now), memory_clock, document, seed))
    with tempfile.TemporaryDirectory() as folder:
        store: Store = SqliteStore(Path(folder) / "a.db", clock=other_clock.now)
        if kind == "postgres":
            url = request.getfixturevalue("postgres_url")
            store = PostgresStore(f"{url}?schema=s{next(_schemas)}", clock=other_clock.now)
        assert asyncio.run(outcome(store, other_clock, document, seed)) == memory
