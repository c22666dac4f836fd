"""What a Store keeps beside the events, and how it deletes (SPEC 4.10)."""

from __future__ import annotations

from msgspec.structs import replace

from penstock.errors import Fenced, RevisionConflict, StoreError
from penstock.model.packing import erased
from penstock.ports.store import Query, Snapshot
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


class KeepingLaws:
    # -- beside the events

    async def test_blobs_are_written_with_their_events_or_not_at_all(
        self, factory: Factory
    ) -> None:
        async with opened(factory) as store:
            large = bytes(range(256)) * 8000
            first = replace(new("a"), blobs={b"d1": large, b"d2": b""})
            late = replace(new("a"), blobs={b"d3": b"late"})
            outcome, conflict = await store.append([first, late])
            row = kept(first, outcome)
            assert isinstance(conflict, RevisionConflict)
            assert await store.blobs(row.key, [b"d1", b"d2", b"d3"]) == {b"d1": large, b"d2": b""}
            (row,) = await put(store, replace(more(row), blobs={b"d1": large, b"d4": b"4"}))
            (other,) = await put(store, new("b"))
            assert await store.blobs(other.key, [b"d1"]) == {}
        async with opened(factory) as store:
            assert await store.blobs(row.key, [b"d1", b"d4"]) == {b"d1": large, b"d4": b"4"}
            (row,) = await put(
                store,
                more(row, open=False, status="COMPLETED"),
            )
            await put(store, new("c"))
            while (await store.purge([row.key])).left:
                pass
            assert await store.blobs(row.key, [b"d1", b"d4"]) == {}

    async def test_an_erased_payload_leaves_its_digest_and_a_valid_chain(
        self, factory: Factory
    ) -> None:
        async with opened(factory) as store:
            first = replace(
                new(
                    "a",
                    b"one",
                    b"two",
                    b"three",
                    open=False,
                    status="FAILED",
                    attributes=b'{"k":1}',
                ),
                blobs={b"d1": b"1", b"d2": b"2"},
            )
            row, other = await put(store, first, new("b", b"open"))
            await store.save_snapshots([(row.key, Snapshot(3, b"state", row.hash))])
            gone = {seq: erased(payload, b"{}") for seq, payload in ((2, b"two"), (3, b"three"))}
            for key, payloads in (
                (row.key, {2: b"other"}),
                (row.key, {2: gone[3]}),
                (row.key, {9: gone[2]}),
                (other.key, {1: erased(b"open", b"")}),
                (other.key + 7, {1: b""}),
            ):
                await refused(StoreError, store.erase(key, payloads))
            assert (await store.payloads(row.key, [2]))[2] == b"two"
            for _ in range(2):
                await store.erase(row.key, gone, blobs=[b"d1"], attributes=True)
            row = replace(row, attributes=b"{}")
            assert await store.find("a") == row
            assert await store.count(Query(attributes={"k": 1})) == 0
            events = await store.events(row.key)
            assert [e.payload for e in events] == [b"one", gone[2], gone[3]]
            check_chain(row, events)
            assert [e.payload for e in await store.follow(after=1, limit=2)] == [gone[2], gone[3]]
            assert await store.blobs(row.key, [b"d1", b"d2"]) == {b"d2": b"2"}
            assert await store.snapshot(row.key) is None
            copy = replace(new("copy"), payloads=[e.payload for e in events])
            copy.row.revision = 3
            (copied,) = await put(store, copy)
            check_chain(copied, await store.events(copied.key))

    # -- deleting

    async def test_closed_runs_are_found_by_key(self, factory: Factory) -> None:
        async with opened(factory) as store:
            rows = await put(
                store,
                *(
                    new(f"r{n}", open=n % 3 > 0, status=("FAILED", "RUNNING")[n % 3 > 0])
                    for n in range(9)
                ),
            )
            closed = [row for row in rows if not row.open]
            assert await store.closed_runs() == closed
            assert await store.closed_runs(limit=2) == closed[:2]
            assert await store.closed_runs(after=closed[0].key, limit=1) == closed[1:2]
            assert await store.closed_runs(after=closed[-1].key) == []

    async def test_a_purged_run_is_gone_and_the_others_are_whole(self, factory: Factory) -> None:
        async with opened(factory) as store:
            rows = await put(
                store,
                *(
                    new(
                        f"r{n}",
                        b"1",
                        b"2",
                        b"3",
                        open=n == 2,
                        status=("FAILED", "RUNNING")[n == 2],
                        attributes=b'{"k":1}',
                        parent="p\nkey",
                    )
                    for n in range(6)
                ),
            )
            await store.save_snapshots([(row.key, Snapshot(3, b"s", row.hash)) for row in rows])
            keys = [row.key for row in rows]
            gone = await store.purge([keys[0], keys[2], keys[3], keys[5], keys[5] + 9])
            assert (gone.runs, gone.events, gone.left) == (2, 6, False)
            left = [rows[n] for n in (1, 2, 4, 5)]
            assert await store.list(Query(attributes={"k": 1})) == left[::-1]
            assert await store.count(Query(parent="p")) == 4
            assert await store.find("r0") is None
            assert await store.find_many(keys) == {row.key: row for row in left}
            assert await store.events(keys[0]) == []
            assert set(await store.snapshots_many(keys)) == {row.key for row in left}
            for row in left:
                check_chain(row, await store.events(row.key))
            followed = await store.follow(after=0, limit=7)
            assert [e.position for e in followed] == [4, 5, 6, 7, 8, 9, 13]
            assert [e.position for e in await store.follow(after=9, limit=2)] == [13, 14]
            assert (await store.purge([])).runs == 0
            (again,) = await put(store, new("r0", b"again"))
            assert again.key > keys[5]
            assert again.position == 19

    async def test_the_newest_run_and_event_stay(self, factory: Factory) -> None:
        async with opened(factory) as store:
            a, b = await put(store, new("a"), new("b", open=False, status="FAILED"))
            (a,) = await put(store, more(a, b"end", open=False, status="COMPLETED"))
            gone = await store.purge([a.key, b.key])
            assert (gone.runs, gone.events, gone.left) == (1, 1, True)
            assert await store.find("a") is None
            assert await store.find("b") == b
            assert await store.head() == 3
            assert (await store.purge([])).left
        async with opened(factory) as store:
            (c,) = await put(store, new("c"))
            assert (c.key, c.position) == (b.key + 1, 4)
            gone = await store.purge([b.key])
            assert (gone.runs, gone.events, gone.left) == (1, 2, False)
            assert [e.key for e in await store.follow(after=0)] == [c.key]

    async def test_a_long_history_is_purged_in_parts(self, factory: Factory) -> None:
        async with opened(factory) as store:
            long = new("a", *(b"%d" % n for n in range(250)), open=False, status="COMPLETED")
            row, _ = await put(store, long, new("b"))
            gone = await store.purge([row.key], limit=100)
            assert (gone.runs, gone.events, gone.left) == (1, 100, True)
            assert await store.find("a") is None
        async with opened(factory) as store:  # as after a crash
            assert (await store.purge([], limit=100)).events == 100
            gone = await store.purge([], limit=100)
            assert (gone.events, gone.left) == (50, False)
            assert len(await store.follow(after=0)) == 1

    async def test_only_the_owner_purges(self, factory: Factory) -> None:
        async with opened(factory) as one, opened(factory) as two:
            first = await one.claim("node-1", "")
            assert first is not None
            row, _ = await put(one, new("a", open=False, status="COMPLETED"), new("b"))
            await one.release(first)
            second = await two.claim("node-2", "")
            assert second is not None
            await refused(Fenced, one.purge([row.key], token=first.token))
            assert await one.find("a") == row
            assert (await two.purge([row.key], token=second.token)).runs == 1
