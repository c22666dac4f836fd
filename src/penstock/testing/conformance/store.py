"""The laws of every Store, for pytest with pytest-asyncio.

    class TestMine(StoreLaws):
        @pytest.fixture
        def factory(self, tmp_path):
            return lambda: MyStore(tmp_path / "store")

Each call of the factory gives one more store, unopened, on the same data: as another process would see it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from msgspec.structs import replace

from penstock.adapters.memory import MemoryStore
from penstock.errors import Fenced, PenstockError, Rejected, RevisionConflict, StoreError
from penstock.model.chain import link, prefix
from penstock.model.packing import erased
from penstock.ports.store import (
    Append,
    Appended,
    DefinitionRow,
    Query,
    Record,
    Row,
    Snapshot,
    Store,
    Stored,
)

Factory = Callable[[], Store]
E = TypeVar("E", bound=PenstockError)


@asynccontextmanager
async def opened(factory: Factory) -> AsyncGenerator[Store]:
    store = factory()
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def new(id: str, *payloads: bytes, token: int | None = None, **fields: Any) -> Append:
    """The first append of a run."""
    payloads = payloads or (b"started",)
    row = Row(
        id=id,
        generation=fields.pop("generation", 1),
        definition=fields.pop("definition", "order"),
        version=fields.pop("version", "1"),
        status=fields.pop("status", "RUNNING"),
        revision=len(payloads),
        created_at=fields.pop("created_at", 1000.0),
        updated_at=fields.pop("updated_at", 1000.0),
        **fields,
    )
    return Append(row=row, expected=0, payloads=list(payloads), token=token)


def more(row: Row, *payloads: bytes, token: int | None = None, **fields: Any) -> Append:
    """The next append of a run, from its row as it was read."""
    payloads = payloads or (b"more",)
    after = replace(row, revision=row.revision + len(payloads), **fields)
    return Append(
        row=after, expected=row.revision, payloads=list(payloads), previous=row.hash, token=token
    )


def kept(append: Append, outcome: Appended | Exception) -> Row:
    """The row that must be stored now."""
    assert isinstance(outcome, Appended), outcome
    return replace(append.row, key=outcome.key, hash=outcome.hash, position=outcome.position)


async def put(store: Store, *appends: Append) -> list[Row]:
    """Append all of them; none may be refused."""
    outcomes = await store.append(appends)
    return [kept(a, o) for a, o in zip(appends, outcomes, strict=True)]


async def refused(kind: type[E], doing: Awaitable[object]) -> E:
    try:
        await doing
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} expected, but it was done")


def check_chain(row: Row, events: Sequence[Stored]) -> None:
    """A whole history links up, byte for byte, to the head in the row."""
    head, start = b"", prefix(row.id, row.generation)
    for seq, event in enumerate(events, 1):
        head = link(head, start, seq, event.payload)
        assert (event.seq, event.key, event.hash) == (seq, row.key, head), (row, event)
    assert head == row.hash, row
    assert len(events) == row.revision, row
    assert events[-1].position == row.position, row


class StoreLaws:
    """Subclass it, give it the fixture `factory`, and every test below must pass."""

    # -- appending

    async def test_an_append_is_read_back_as_it_was_given(self, factory: Factory) -> None:
        append = new(
            "order-1",
            b"one",
            b"",
            bytes(range(256)),
            generation=7,
            definition="payments/refund",
            version="2.0",
            status="WAITING",
            created_at=1234.5678,
            updated_at=1234.75,
            priority=2,
            paused=True,
            next_due=99.25,
            deadline=100.5,
            created_by="ann",
            parent="order-0\nship",
            attributes=b'{"city":"Ulm"}',
        )
        async with opened(factory) as store:
            (row,) = await put(store, append)

            assert await store.find("order-1") == row
            assert await store.find("order-1", 7) == row
            assert await store.find("order-1", 6) is None
            assert await store.find("order-2") is None
            assert await store.find_many([row.key, row.key + 1]) == {row.key: row}
            assert [e.payload for e in await store.events(row.key)] == append.payloads
            check_chain(row, await store.events(row.key))

    async def test_the_row_changes_with_its_events(self, factory: Factory) -> None:
        async with opened(factory) as store:
            (row,) = await put(store, new("a", next_due=5.0))
            changes: list[dict[str, Any]] = [
                {"status": "WAITING", "next_due": None, "paused": True, "priority": 0},
                {"version": "2", "deadline": 8.0, "attributes": b'{"a":1,"b":"x"}'},
                {"attributes": b'{"b":"y"}', "paused": False},
                {"attributes": b"{}", "updated_at": 1001.5},
                {"status": "FAILED", "open": False, "ended_at": 1002.0, "attributes": b'{"c":[1]}'},
            ]
            for change in changes:
                (row,) = await put(store, more(row, b"x", b"y", **change))

                assert await store.find("a") == row
                check_chain(row, await store.events(row.key))

    async def test_what_the_caller_keeps_is_its_own(self, factory: Factory) -> None:
        append = new("a")
        async with opened(factory) as store:
            (row,) = await put(store, append)
            append.row.status = "changed afterwards"
            read = await store.find("a")
            assert read is not None
            assert read == replace(row, status="RUNNING")
            read.status = "changed by a reader"
            again = await store.find("a")
            assert again is not None
            assert again.status == "RUNNING"

    async def test_many_runs_are_one_commit(self, factory: Factory) -> None:
        async with opened(factory) as store:
            before = store.stats()["commits"]
            rows = await put(store, *(new(f"r{n}", b"a", b"b") for n in range(450)))

            assert store.stats()["commits"] == before + 1
            assert len({row.key for row in rows}) == 450
            found = await store.find_many([row.key for row in rows])
            assert found == {row.key: row for row in rows}
            rows = await put(store, *(more(row, b"c", b"d", b"e") for row in rows))
            assert store.stats()["commits"] == before + 2
            for row, events in zip(
                rows, (await store.events_many({r.key: 0 for r in rows})).values(), strict=True
            ):
                check_chain(row, events)

    async def test_nothing_to_append_is_nothing(self, factory: Factory) -> None:
        async with opened(factory) as store:
            assert await store.append([]) == []
            assert await store.head() == 0

    async def test_a_revision_too_low_or_too_high_is_refused(self, factory: Factory) -> None:
        async with opened(factory) as store:
            (row,) = await put(store, new("a", b"1", b"2", b"3"))
            low = replace(more(replace(row, revision=2)), previous=row.hash)
            high = replace(more(replace(row, revision=4)), previous=row.hash)
            for append in (low, high):
                (outcome,) = await store.append([append])

                assert isinstance(outcome, RevisionConflict)
                assert (outcome.run_id, outcome.expected) == ("a", append.expected)
                assert outcome.actual == 3
            assert await store.find("a") == row
            assert await store.head() == 3
            check_chain(row, await store.events(row.key))

    async def test_another_head_at_the_same_revision_is_refused(self, factory: Factory) -> None:
        async with opened(factory) as store:
            (row,) = await put(store, new("a"))
            (outcome,) = await store.append([more(replace(row, hash=b"x" * 32))])

            assert isinstance(outcome, RevisionConflict)
            assert await store.find("a") == row

    async def test_a_taken_id_and_generation_is_refused(self, factory: Factory) -> None:
        async with opened(factory) as store:
            (row,) = await put(store, new("a", b"1", b"2"))
            (outcome,) = await store.append([new("a", b"other")])
            assert isinstance(outcome, RevisionConflict)
            assert (outcome.expected, outcome.actual) == (0, 2)
            first, second = await store.append([new("b", b"first"), new("b", b"second")])
            assert isinstance(first, Appended)
            assert isinstance(second, RevisionConflict)
            assert [e.payload for e in await store.events(first.key)] == [b"first"]
            (next_one,) = await put(store, new("a", generation=2))
            assert await store.find_newest(["a"]) == {"a": next_one}
            assert await store.find("a") == next_one
            assert await store.find("a", 1) == row

    async def test_a_run_that_is_not_there_is_refused(self, factory: Factory) -> None:
        async with opened(factory) as store:
            (row,) = await put(store, new("a"))
            (outcome,) = await store.append([more(replace(row, key=row.key + 5, id="b"))])

            assert isinstance(outcome, RevisionConflict)
            assert await store.head() == 1

    async def test_none_harms_another(self, factory: Factory) -> None:
        """In every place of a group, a refused one leaves nothing behind and takes nobody along."""
        async with opened(factory) as store:
            for guilty in range(6):
                name = f"g{guilty}-"
                rows = await put(store, *(new(f"{name}{n}", b"x") for n in range(3)))
                group = [
                    more(rows[0], b"ok"),
                    new(f"{name}3", b"ok", attributes=b'{"n":3}'),
                    more(rows[1], b"ok", b"ok", open=False, status="COMPLETED"),
                    new(f"{name}4", b"ok"),
                    more(rows[2], b"ok", attributes=b'{"n":2}'),
                ]
                bad = [
                    more(replace(rows[0], revision=5), b"bad"),
                    new(f"{name}1", b"bad", attributes=b'{"n":9}'),
                ][guilty % 2]
                group.insert(guilty, bad)
                head = await store.head()

                outcomes = await store.append(group)

                assert [isinstance(o, RevisionConflict) for o in outcomes] == [
                    n == guilty for n in range(6)
                ]
                events = await store.follow(after=head)
                assert [e.payload for e in events] == [b"ok"] * 6
                assert [e.position for e in events] == list(range(head + 1, head + 7))
                for append, outcome in zip(group, outcomes, strict=True):
                    if append is not bad:
                        row = kept(append, outcome)
                        assert await store.find(row.id) == row
                        check_chain(row, await store.events(row.key))
                listed = await store.list(Query(attributes={"n": 3}, id_prefix=name))
                assert [row.id for row in listed] == [f"{name}3"]
                assert await store.count(Query(attributes={"n": 9})) == 0

    async def test_two_appends_stand_or_fall_together(self, factory: Factory) -> None:
        """The end of one generation and the beginning of the next (`Append.also`)."""
        async with opened(factory) as store:
            (row,) = await put(store, new("a", attributes=b'{"n":1}'))
            end = more(row, b"end", status="CONTINUED", open=False)
            begin = new("a", b"copy", b"reset", generation=2, attributes=b'{"n":2}')
            begin.also = end
            (outcome,) = await store.append([begin])
            second = kept(begin, outcome)
            assert await store.find("a") == second
            first = await store.find("a", 1)
            assert first is not None
            assert (first.status, first.open, first.revision) == ("CONTINUED", False, 2)
            check_chain(first, await store.events(first.key))
            check_chain(second, await store.events(second.key))

            head = await store.head()
            for refused_first in (True, False):
                outcomes = await self._torn(store, second, refused_first=refused_first)
                assert isinstance(outcomes[0], RevisionConflict)
                assert isinstance(outcomes[1], Appended)
                assert await store.find("a") == second
                assert await store.find("a", 3) is None
                assert await store.head() == head + 1
                head += 1

    async def _torn(
        self, store: Store, row: Row, *, refused_first: bool
    ) -> list[Appended | Exception]:
        """A pair of which one is refused, beside an append that is good."""
        stale = replace(row, revision=row.revision - 1)
        if refused_first:  # the new generation is taken
            begin = new("a", b"x", generation=1)
            begin.also = more(row, b"end", attributes=b'{"n":9}')
        else:  # the old one went on meanwhile
            begin = new("a", b"x", generation=3)
            begin.also = more(stale, b"end")
        return await store.append([begin, new(f"beside-{refused_first}")])

    async def test_appends_of_one_run_in_one_group_follow_each_other(
        self, factory: Factory
    ) -> None:
        async with opened(factory) as store:
            (row,) = await put(store, new("a", b"1"))
            one = more(row, b"2", status="WAITING")
            start = prefix("a", 1)
            middle = replace(one.row, hash=link(row.hash, start, 2, b"2"))
            two = more(middle, b"3", b"4", open=False, status="COMPLETED", attributes=b'{"x":1}')
            late = more(middle, b"too late")

            outcomes = await store.append([one, two, late])

            assert isinstance(outcomes[0], Appended)
            assert isinstance(outcomes[2], RevisionConflict)
            after = kept(two, outcomes[1])
            assert await store.find("a") == after
            check_chain(after, await store.events(row.key))

    async def test_an_append_that_makes_no_sense_is_refused_alone(self, factory: Factory) -> None:
        async with opened(factory) as store:
            (row,) = await put(store, new("a"))
            wrong = more(row, b"x")
            wrong.row.revision = 9
            surrogate = new("\ud800")
            odd = new("c", attributes=b"not json")
            outcomes = await store.append(
                [wrong, replace(new("x"), payloads=[]), surrogate, odd, new("b")]
            )

            for outcome in outcomes[:4]:
                assert isinstance(outcome, StoreError)
            assert isinstance(outcomes[4], Appended)
            assert await store.find("a") == row
            assert await store.head() == 2

    async def test_of_writers_that_race_one_wins_each_revision(self, factory: Factory) -> None:
        async with opened(factory) as one, opened(factory) as two, opened(factory) as three:
            await put(one, new("a"))

            async def write(store: Store, name: bytes, count: int) -> int:
                conflicts = 0
                while count:
                    row = await store.find("a")
                    assert row is not None
                    await asyncio.sleep(0)
                    (outcome,) = await store.append([more(row, name)])
                    if isinstance(outcome, Appended):
                        count -= 1
                    else:
                        assert isinstance(outcome, RevisionConflict)
                        conflicts += 1
                return conflicts

            await asyncio.gather(
                write(one, b"one", 20), write(two, b"two", 20), write(three, b"three", 20)
            )
            row = await two.find("a")
            assert row is not None
            events = await three.events(row.key)
            check_chain(row, events)
            for name in (b"one", b"two", b"three"):
                assert sum(e.payload == name for e in events) == 20

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

    # -- definitions, global data

    async def test_definitions_are_kept_by_version(self, factory: Factory) -> None:
        def definition(version: str, digest: bytes, id: str = "order") -> DefinitionRow:
            return DefinitionRow(id, version, 0, b"{" + digest + b"}", digest, 5.5, "ann")

        async with opened(factory) as store:
            assert await store.definition("order") is None
            one = await store.publish(definition("1.0", b"a"))
            assert one == replace(definition("1.0", b"a"), number=1)
            again = replace(definition("1.0", b"a"), created_at=9.0, created_by="bob")
            assert await store.publish(again) == one
            error = await refused(Rejected, store.publish(definition("1.0", b"b")))
            assert error.code == "version-exists"
            two = await store.publish(definition("", b"b"))
            assert (two.version, two.number) == ("2", 2)
            assert await store.publish(definition("", b"b")) == two
            three = await store.publish(definition("4", b"c"))
            four = await store.publish(definition("", b"a"))
            assert (three.number, four.number) == (3, 4)
            assert four.version not in ("1.0", "2", "4")
            other = await store.publish(definition("1.0", b"z", id="a-first"))

            assert await store.definition("order") == four
            assert await store.definition("order", "1.0") == one
            assert await store.definition("order", "3") is None
            assert await store.definitions() == [other, one, two, three, four]

    async def test_global_data_is_set_and_dropped(self, factory: Factory) -> None:
        async with opened(factory) as one, opened(factory) as two:
            assert await one.data_global() == {}
            await one.set_global({"rate": b"1.5", "city": b'"Ulm"'})
            await two.set_global({"rate": b"2", "city": None, "absent": None})
            assert await one.data_global() == {"rate": b"2"}

    # -- records

    async def test_a_record_is_written_by_compare_and_set(self, factory: Factory) -> None:
        async with opened(factory) as one, opened(factory) as two:
            assert await one.record("schedule", "a") is None
            wanted = Record("schedule", "a", b'{"n":1}', due=5.5, expires=9.25)
            (first,) = await one.put([wanted])
            assert isinstance(first, Record)
            assert first == replace(wanted, revision=1)
            assert await two.record("schedule", "a") == first
            assert await two.record("batch", "a") is None
            (second,) = await two.put([replace(first, value=b"[]", due=None, expires=None)])
            assert second == Record("schedule", "a", b"[]", 2)
            assert await one.record("schedule", "a") == second
            for expected in (0, 1, 3):
                (outcome,) = await one.put([Record("schedule", "a", b"late", expected)])
                assert isinstance(outcome, RevisionConflict)
                assert (outcome.run_id, outcome.expected, outcome.actual) == ("a", expected, 2)
            (outcome,) = await one.put([Record("schedule", "b", b"1", 4)])
            assert isinstance(outcome, RevisionConflict)
            assert outcome.actual == 0
            assert await two.records("schedule") == [second]
            assert await one.put([]) == []

    async def test_records_of_one_commit_stand_alone(self, factory: Factory) -> None:
        async with opened(factory) as store:
            (kept_one,) = await store.put([Record("k", "kept", b"1")])
            before = store.stats()["commits"]
            outcomes = await store.put(
                [
                    Record("k", "x", b"1"),
                    Record("k", "kept", b"lost"),
                    Record("k", "x", b"2", 1),
                    Record("k", "x", b"3", 1),
                    Record("other", "x", b"4"),
                ]
            )
            assert store.stats()["commits"] == before + 1
            assert [getattr(o, "revision", None) for o in outcomes] == [1, None, 2, None, 1]
            assert await store.records("k") == [kept_one, Record("k", "x", b"2", 2)]

    async def test_records_are_found_by_id_and_by_due_time(self, factory: Factory) -> None:
        async with opened(factory) as store:
            ids = ["A", "B", "a", "a/1", "b", "ä", "€", "😀"]
            # By code points, as everywhere: no collation of a machine decides the order.
            await store.put(
                [
                    Record("s", id, b"{}", due=None if n % 3 == 0 else 100.0 - n)
                    for n, id in enumerate(ids)
                ]
            )
            await store.put([Record("t", "z", b"{}", due=1.0)])

            async def found(doing: Awaitable[list[Record]]) -> list[str]:
                return [record.id for record in await doing]

            assert await found(store.records("s")) == ids
            assert await found(store.records("s", limit=2)) == ["A", "B"]
            assert await found(store.records("s", after="a", limit=2)) == ["a/1", "b"]
            assert await found(store.records("s", after="😀")) == []
            assert await found(store.records_due("s", until=99.0)) == ["😀", "ä", "b", "a", "B"]
            assert await found(store.records_due("s", until=98.0)) == ["😀", "ä", "b", "a"]
            assert await found(store.records_due("s", until=98.0, limit=1)) == ["😀"]
            assert await found(store.records_due("s", until=1.0)) == []

    async def test_records_are_dropped_and_expire(self, factory: Factory) -> None:
        async with opened(factory) as store:
            await store.put([Record("s", f"{n}", b"{}", expires=float(n)) for n in range(1, 7)])
            await store.put([Record("t", "x", b"{}", expires=2.5), Record("t", "stays", b"{}")])
            await store.drop("s", ["1", "9"])
            assert await store.drop_expired(until=4.0, limit=2) == 2
            assert await store.drop_expired(until=4.0) == 2
            assert await store.drop_expired(until=4.0) == 0
            assert [r.id for r in await store.records("s")] == ["5", "6"]
            assert [r.id for r in await store.records("t")] == ["stays"]
            (again,) = await store.put([Record("s", "1", b"new")])
            assert again == Record("s", "1", b"new", 1)

    async def test_of_writers_that_race_for_a_record_one_wins_each_revision(
        self, factory: Factory
    ) -> None:
        async with opened(factory) as one, opened(factory) as two:

            async def count_up(store: Store, times: int) -> None:
                while times:
                    there = await store.record("k", "n") or Record("k", "n", b"0")
                    await asyncio.sleep(0)
                    wanted = replace(there, value=b"%d" % (int(there.value) + 1))
                    (outcome,) = await store.put([wanted])
                    times -= isinstance(outcome, Record)

            await asyncio.gather(count_up(one, 30), count_up(two, 30))
            assert await one.record("k", "n") == Record("k", "n", b"60", 60)

    # -- ownership

    async def test_one_owns_and_the_others_stand_by(self, factory: Factory) -> None:
        async with opened(factory) as one, opened(factory) as two:
            assert await one.owner() is None
            first = await one.claim("node-1", "/run/one")
            assert first is not None
            assert (first.node, first.address) == ("node-1", "/run/one")
            assert await two.claim("node-2", "") is None
            assert await one.claim("node-1", "") is None
            assert first.clean
            assert await two.owner() == replace(first, clean=False)
            renewed = await one.renew(first)
            assert renewed.renewed_at >= first.renewed_at
            assert await two.owner() == renewed
            await two.set_global({"a": b"1", "b": b"2"})
            await put(two, new("x", b"1", b"2"))
            pulse = await one.pulse(renewed)
            assert (pulse.owner.token, pulse.head) == (first.token, 2)
            assert pulse.data == {"a": b"1", "b": b"2"}
            assert await two.owner() == pulse.owner
            renewed = pulse.owner

            await one.release(renewed)
            second = await two.claim("node-2", "")
            assert second is not None
            assert second.token > first.token
            assert second.clean
            assert await one.claim("node-1", "") is None

    async def test_an_older_token_is_refused(self, factory: Factory) -> None:
        async with opened(factory) as one, opened(factory) as two:
            first = await one.claim("node-1", "")
            assert first is not None
            (row,) = await put(one, new("a", token=first.token))
            await one.release(first)
            second = await two.claim("node-2", "")
            assert second is not None
            commandless, ok = more(row, b"old", token=first.token), new("c", b"own")
            outcomes = await one.append(
                [commandless, new("b", b"old", token=first.token), ok, new("d", token=second.token)]
            )

            assert [type(o) for o in outcomes] == [Fenced, Fenced, Appended, Appended]
            assert isinstance(outcomes[0], Fenced)
            assert (outcomes[0].token, outcomes[0].newest) == (first.token, second.token)
            assert await one.find("a") == row
            assert await one.find("b") is None
            await refused(Fenced, one.renew(first))
            await refused(Fenced, one.pulse(first))
            await one.release(first)
            assert await one.owner() == replace(second, clean=False)
            assert await one.claim("node-1", "") is None
            (row,) = await put(one, more(row, b"a command's own events"))
            await put(two, more(row, token=second.token))

    async def test_closing_lets_go_of_ownership(self, factory: Factory) -> None:
        async with opened(factory) as two:
            async with opened(factory) as one:
                first = await one.claim("node-1", "")
                assert first is not None
                assert await two.claim("node-2", "") is None
            second = await two.claim("node-2", "")
            assert second is not None
            assert second.token > first.token

    # -- as a whole

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
                await _same(store, reference, random.Random(seed), groups=40)


STATUSES = ("RUNNING", "WAITING", "COMPENSATING", "COMPLETED", "FAILED", "CANCELLED")


async def _same(store: Store, reference: Store, chance: random.Random, *, groups: int) -> None:
    for _ in range(groups):
        if chance.random() < 0.2:
            keys = [chance.randint(1, 80) for _ in range(5)]
            limit = chance.choice((1, 5, 100))
            purged = await store.purge(keys, limit=limit)
            assert purged == await reference.purge(keys, limit=limit)
        group = [await _random_append(reference, chance) for _ in range(chance.randint(1, 12))]
        outcomes = await store.append(group)
        theirs = await reference.append(group)
        for append, ours, right in zip(group, outcomes, theirs, strict=True):
            assert _shown(ours) == _shown(right), (append, ours, right)
        for _ in range(4):
            query = _random_query(chance)
            assert await store.list(query) == await reference.list(query), query
            assert await store.count(query) == await reference.count(query), query
    assert await store.follow(after=0, limit=100_000) == await reference.follow(
        after=0, limit=100_000
    )
    assert await store.open_runs(limit=10_000) == await reference.open_runs(limit=10_000)


def _shown(outcome: Appended | Exception) -> object:
    return (type(outcome), str(outcome)) if isinstance(outcome, Exception) else outcome


async def _random_append(reference: Store, chance: random.Random) -> Append:
    id = f"run-{chance.randint(1, 60)}"
    payloads = [chance.randbytes(chance.randint(0, 40)) for _ in range(chance.choice((1, 1, 1, 3)))]
    row = await reference.find(id)
    status = chance.choice(STATUSES)
    fields: dict[str, Any] = {
        "status": status,
        "open": status in STATUSES[:3],
        "paused": chance.random() < 0.2,
        "priority": chance.randint(0, 2),
        "updated_at": chance.random() * 100,
        "next_due": chance.choice((None, chance.random())),
        "attributes": chance.choice((b"{}", b'{"k":1}', b'{"k":2,"m":"x"}', b'{"m":[1,{"a":2}]}')),
    }
    if row is None or (not row.open and chance.random() < 0.7) or chance.random() < 0.1:
        fields |= {
            "generation": 1 if row is None else row.generation + chance.choice((0, 1, 1)),
            "definition": chance.choice(("order", "ship", "order/sub")),
            "created_at": float(chance.randint(0, 50)),
            "parent": chance.choice((None, f"run-{chance.randint(1, 9)}\nkey")),
        }
        return new(id, *payloads, **fields)
    if chance.random() < 0.1:
        row.revision = max(0, row.revision + chance.choice((-1, 1)))
    if chance.random() < 0.5:
        del fields["attributes"]
    return more(row, *payloads, **fields)


def _random_query(chance: random.Random) -> Query:
    fields: dict[str, Any] = {
        "status": chance.choice((*STATUSES, "OPEN", "CLOSED", "PAUSED")),
        "definition": chance.choice(("order", "ship", "none")),
        "version": chance.choice(("1", "2")),
        "attributes": chance.choice(({"k": 1}, {"k": 2, "m": "x"}, {"m": [1, {"a": 2}]})),
        "id_prefix": chance.choice(("run-1", "run-", "r", "x")),
        "parent": f"run-{chance.randint(1, 9)}",
        "created_after": float(chance.randint(0, 50)),
        "created_before": float(chance.randint(0, 50)),
        "after": chance.randint(1, 80),
        "newest_generation": True,
    }
    chosen = chance.sample(sorted(fields), chance.choice((0, 1, 1, 2, 2, 3)))
    return Query(limit=chance.choice((1, 5, 100)), **{name: fields[name] for name in chosen})
