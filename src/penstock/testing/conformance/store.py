"""The laws of every Store, for pytest with pytest-asyncio.

    class TestMine(StoreLaws):
        @pytest.fixture
        def factory(self, tmp_path):
            return lambda: MyStore(tmp_path / "store")

Each call of the factory gives one more store, unopened, on the same data: as another process would see it.
"""

from __future__ import annotations

import random

from penstock.adapters.memory import MemoryStore
from penstock.ports.store import DefinitionRow, Query, Snapshot
from penstock.testing.conformance.appending import AppendingLaws
from penstock.testing.conformance.histories import (
    Factory,
    check_chain,
    kept,
    more,
    new,
    opened,
    put,
    refused,
)
from penstock.testing.conformance.keeping import KeepingLaws
from penstock.testing.conformance.owning import OwningLaws
from penstock.testing.conformance.reading import ReadingLaws
from penstock.testing.conformance.records import RecordsLaws
from penstock.testing.conformance.reference import same

__all__ = ["Factory", "StoreLaws", "check_chain", "kept", "more", "new", "opened", "put", "refused"]


class StoreLaws(AppendingLaws, ReadingLaws, KeepingLaws, RecordsLaws, OwningLaws):
    """Subclass it, give it the fixture `factory`, and every test here and in its parts must pass."""

    async def test_opening_again_finds_everything(self, factory: Factory) -> None:
        async with opened(factory) as store:
            await store.open()
            owner = await store.claim("node", "")
            assert owner is not None
            (row, _) = await put(store, new("a", b"1", b"2", attributes=b'{"k":1}'), new("b"))
            await store.save_snapshots([(row.key, Snapshot(2, b"state", row.hash))])
            definition = await store.publish(DefinitionRow("order", "", 0, b"{}", b"d", 1.0))
            await store.set_global({"g": b"1"})
        await store.close()
        async with opened(factory) as store:
            assert await store.find("a") == row
            check_chain(row, await store.events(row.key))
            assert await store.snapshot(row.key) == Snapshot(2, b"state", row.hash)
            assert await store.definitions() == [definition]
            assert await store.data_global() == {"g": b"1"}
            assert await store.list(Query(attributes={"k": 1})) == [row]
            assert await store.head() == 3
            again = await store.claim("node", "")
            assert again is not None
            assert again.token > owner.token
            (third,) = await put(store, new("c"))
            assert third.key > row.key + 1
            assert third.position == 4

    async def test_counts_say_what_was_done(self, factory: Factory) -> None:
        async with opened(factory) as store:
            names = {"commits", "appends", "events", "syncs", "conflicts", "busy"}
            assert names <= set(store.stats())
            before = store.stats()
            await store.append([new("a", b"1", b"2"), new("b"), new("a")])
            after = store.stats()
            gained = {name: after[name] - before[name] for name in names - {"syncs", "busy"}}
            assert gained == {"commits": 1, "appends": 2, "events": 3, "conflicts": 1}

    async def test_it_does_what_the_reference_does(self, factory: Factory) -> None:
        """Random groups and queries, seeded: the same answers as the memory store's, one by one."""
        reference = MemoryStore()
        async with opened(factory) as store:
            for seed in range(3):
                await same(store, reference, random.Random(seed), groups=40)
