"""A Store appends whole or not at all, at the revision that was expected, and none harms another (SPEC 4.2)."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec.structs import replace

from penstock.errors import RevisionConflict, StoreError
from penstock.model.chain import link, prefix
from penstock.ports.store import Appended, Query, Row, Store
from penstock.testing.conformance.histories import (
    Factory,
    check_chain,
    kept,
    more,
    new,
    opened,
    put,
)


class AppendingLaws:
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
