"""A Store reads back what was appended: in order, in bulk, by every filter."""

from __future__ import annotations

import random
from typing import Any

from msgspec.structs import replace

from penstock.ports.store import Query, Row, Snapshot, Stored
from penstock.testing.conformance.histories import Factory, check_chain, more, new, opened, put


class ReadingLaws:
    # -- positions, following

    async def test_positions_rise_in_commit_order(self, factory: Factory) -> None:
        async with opened(factory) as one, opened(factory) as two:
            seen: list[Stored] = []
            rows: dict[str, Row] = {}
            chance = random.Random(4)
            for turn in range(40):
                writer = (one, two)[turn % 2]
                group = [
                    more(rows[id], b"m") if id in rows else new(id, b"s", b"t")
                    for id in chance.sample([f"r{n}" for n in range(10)], 4)
                ]
                for row in await put(writer, *group):
                    rows[row.id] = row
                if turn % 3 == 0:
                    after = seen[-1].position if seen else 0
                    seen += await (two, one)[turn % 2].follow(after=after, limit=5)
            while part := await one.follow(after=seen[-1].position, limit=7):
                assert len(part) <= 7
                seen += part
            positions = [e.position for e in seen]
            assert positions == sorted(set(positions))
            assert positions[-1] == await two.head()
            assert len(seen) == sum(row.revision for row in rows.values())
            for row in rows.values():
                check_chain(row, [e for e in seen if e.key == row.key])

    # -- reading in bulk

    async def test_events_after_and_limit(self, factory: Factory) -> None:
        async with opened(factory) as store:
            (row,) = await put(store, new("a", *(b"%d" % n for n in range(1, 11))))

            async def read(**how: Any) -> list[bytes]:
                return [e.payload for e in await store.events(row.key, **how)]

            assert await read(after=7) == [b"8", b"9", b"10"]
            assert await read(limit=2) == [b"1", b"2"]
            assert await read(after=3, limit=2) == [b"4", b"5"]
            assert await read(after=10) == []
            assert await read(limit=0) == []
            assert await store.events(row.key + 1) == []
            assert await store.payloads(row.key, [2, 10, 11, 2]) == {2: b"2", 10: b"10"}
            assert await store.payloads(row.key + 1, [1]) == {}

    async def test_bulk_reads_answer_for_each_key(self, factory: Factory) -> None:
        async with opened(factory) as store:
            rows = await put(store, *(new(f"r{n}", b"a", b"b", b"c") for n in range(1200)))
            tails = await store.events_many({row.key: row.key % 4 for row in rows})
            assert list(tails) == [row.key for row in rows]
            for key, events in tails.items():
                assert [e.seq for e in events] == list(range(key % 4 + 1, 4))
                assert all(e.key == key for e in events)
            assert await store.events_many({}) == {}
            unknown = rows[-1].key + 1
            assert await store.events_many({unknown: 0}) == {unknown: []}
            found = await store.find_many([row.key for row in rows] + [unknown])
            assert found == {row.key: row for row in rows}
            newest = await store.find_newest([*(row.id for row in rows), "nobody", "\0"])
            assert newest == {row.id: row for row in rows}
            assert await store.find_newest([]) == {}
            every = list(range(1, 1101))
            (long,) = await put(store, new("long", *(b"%d" % n for n in every)))
            assert await store.payloads(long.key, every) == {n: b"%d" % n for n in every}

    async def test_open_runs_are_found_by_key(self, factory: Factory) -> None:
        async with opened(factory) as store:
            rows = await put(store, *(new(f"r{n}") for n in range(10)))
            closing = [
                more(row, open=False, status="COMPLETED") for row in rows if row.key % 3 == 0
            ]
            await put(store, *closing, new("born-closed", open=False, status="FAILED"))
            still = [row for row in rows if row.key % 3]

            assert await store.open_runs() == still
            assert await store.open_runs(limit=2) == still[:2]
            assert await store.open_runs(after=still[1].key, limit=3) == still[2:5]
            assert await store.open_runs(after=still[-1].key) == []

    # -- snapshots

    async def test_the_newest_snapshot_replaces_the_one_before(self, factory: Factory) -> None:
        async with opened(factory) as store:
            one, two, three = await put(store, new("a"), new("b"), new("c"))
            await store.save_snapshots([])
            first, second = Snapshot(1, b"first", b"h1"), Snapshot(5, b"second", b"h5")
            await store.save_snapshots([(one.key, first), (two.key, first)])
            assert await store.snapshot(one.key) == first
            await store.save_snapshots([(one.key, second)])
            await store.save_snapshots([(one.key, Snapshot(4, b"late", b"h4"))])

            assert await store.snapshot(one.key) == second
            assert await store.snapshot(three.key) is None
            many = await store.snapshots_many([one.key, two.key, three.key])
            assert many == {one.key: second, two.key: first}
            assert await store.snapshots_many([]) == {}

    # -- listing

    async def test_runs_are_listed_newest_first_by_every_filter(self, factory: Factory) -> None:
        async with opened(factory) as store:
            await put(
                store,
                new("a1", created_at=10.0, attributes=b'{"city":"Ulm","n":1}'),
                new("a2", created_at=20.0, attributes=b'{"city":"Ulm","n":2.0}', paused=True),
                new("b1", created_at=30.0, definition="ship", parent="a1\nship[1]"),
                new("b2", created_at=40.0, definition="ship", version="2", parent="a1\nship[2]"),
                new("b3", created_at=50.0, definition="ship", parent="a11\nship"),
                new("c1", open=False, status="COMPLETED", attributes=b'{"n":true}'),
                new("c1", generation=2, status="WAITING"),
                new("d%1", open=False, status="FAILED"),
            )

            async def ids(**fields: Any) -> list[str]:
                query = Query(**fields)
                rows = await store.list(query)
                assert await store.count(query) == len(rows)
                assert [r.key for r in rows] == sorted((r.key for r in rows), reverse=True)
                return [f"{row.id}/{row.generation}".removesuffix("/1") for row in rows]

            assert await ids() == ["d%1", "c1/2", "c1", "b3", "b2", "b1", "a2", "a1"]
            assert await ids(status="RUNNING") == ["b3", "b2", "b1", "a2", "a1"]
            assert await ids(status="WAITING") == ["c1/2"]
            assert await ids(status="OPEN") == ["c1/2", "b3", "b2", "b1", "a2", "a1"]
            assert await ids(status="CLOSED") == ["d%1", "c1"]
            assert await ids(status="COMPLETED") == ["c1"]
            assert await ids(status="FAILED") == ["d%1"]
            assert await ids(status="CANCELLED") == []
            assert await ids(status="PAUSED") == ["a2"]
            assert await ids(definition="ship") == ["b3", "b2", "b1"]
            assert await ids(definition="ship", version="2") == ["b2"]
            assert await ids(definition="ship", status="OPEN", version="1") == ["b3", "b1"]
            assert await ids(definition="shi") == []
            assert await ids(parent="a1") == ["b2", "b1"]
            assert await ids(parent="a1", created_after=35.0) == ["b2"]
            assert await ids(id_prefix="a") == ["a2", "a1"]
            assert await ids(id_prefix="d%") == ["d%1"]
            assert await ids(id_prefix="%") == []
            assert await ids(id_prefix="c1") == ["c1/2", "c1"]
            assert await ids(id_prefix="c1", newest_generation=True) == ["c1/2"]
            assert await ids(newest_generation=True, status="COMPLETED") == []
            assert await ids(created_after=20.0, created_before=40.0) == ["b1", "a2"]
            assert await ids(created_before=10.0) == []
            assert await ids(created_after=2000.0) == []
            assert await ids(attributes={"city": "Ulm"}) == ["a2", "a1"]
            assert await ids(attributes={"city": "Ulm", "n": 2}) == ["a2"]
            assert await ids(attributes={"n": 1}) == ["a1"]
            assert await ids(attributes={"n": 1.0}) == ["a1"]
            assert await ids(attributes={"n": True}) == ["c1"]
            assert await ids(attributes={"n": "1"}) == []
            assert await ids(attributes={"city": "Ulm"}, status="PAUSED") == ["a2"]
            assert await store.list(Query(limit=0)) == []

    async def test_listing_by_an_attribute_sees_its_newest_value(self, factory: Factory) -> None:
        async with opened(factory) as store:
            (row,) = await put(store, new("a", attributes=b'{"stage":1,"city":"Ulm"}'))
            (row,) = await put(store, more(row, attributes=b'{"stage":2,"city":"Ulm"}'))
            assert await store.list(Query(attributes={"stage": 1})) == []
            assert await store.list(Query(attributes={"stage": 2, "city": "Ulm"})) == [row]
            (row,) = await put(store, more(row, attributes=b"{}"))
            assert await store.count(Query(attributes={"city": "Ulm"})) == 0

    async def test_pages_have_no_gap_and_no_duplicate_while_runs_are_added(
        self, factory: Factory
    ) -> None:
        async with opened(factory) as store:
            rows: list[Row] = []
            for n in range(6):
                rows += await put(
                    store,
                    *(
                        new(f"p{n}-{m}", definition=("order", "ship")[m % 2], attributes=b'{"k":1}')
                        for m in range(20)
                    ),
                )
            every = [row.key for row in reversed(rows)]
            for number, (query, expected) in enumerate(
                [
                    (Query(limit=7), every),
                    (Query(limit=7, definition="ship"), every[::2]),
                    (Query(limit=7, status="OPEN"), every),
                    (Query(limit=7, attributes={"k": 1}), every),
                    (Query(limit=7, id_prefix="p"), every),
                    (Query(limit=7, created_after=0.0), every),
                ]
            ):
                start = rows[-1].key + 1
                seen: list[int] = []
                while page := await store.list(replace(query, after=seen[-1] if seen else start)):
                    seen += [row.key for row in page]
                    fresh = f"p-new-{number}-{len(seen)}"
                    await put(store, new(fresh, definition="ship", attributes=b'{"k":1}'))
                assert seen == expected, query
