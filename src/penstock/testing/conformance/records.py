"""Definitions, global data and records in a Store (SPEC 4.6)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from msgspec.structs import replace

from penstock.errors import Rejected, RevisionConflict
from penstock.ports.store import DefinitionRow, Record, Store
from penstock.testing.conformance.histories import Factory, opened, refused


class RecordsLaws:
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
