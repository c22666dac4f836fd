"""Every store gives the same histories as memory: the same bytes, whatever is run and whatever fails."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any
from zlib import crc32

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import penstock
from penstock import activity
from penstock.adapters.memory import MemoryStore
from penstock.adapters.postgres import PostgresStore
from penstock.adapters.sqlite.store import SqliteStore
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
        await engine.register(document)
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
        suppress_health_check=[
            HealthCheck.too_slow,
            HealthCheck.data_too_large,
            HealthCheck.filter_too_much,
            HealthCheck.function_scoped_fixture,
        ],
    )


def same_as_memory(
    make: Callable[[Callable[[], float]], Store], document: dict[str, Any], seed: int
) -> None:
    memory_clock, other_clock = SkipClock(), SkipClock()
    memory = asyncio.run(
        histories(MemoryStore(clock=memory_clock.now), memory_clock, document, seed)
    )
    other = asyncio.run(histories(make(other_clock.now), other_clock, document, seed))

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
    """There time passes in the middle of a commit: what else comes in meanwhile changes nothing."""
    assume(not examine_document(document).errors)
    place = f"{postgres_url}?schema=s{next(_schemas)}"
    same_as_memory(lambda clock: PostgresStore(place, clock=clock), document, seed)
