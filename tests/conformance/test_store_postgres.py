"""What PostgreSQL alone can do to a store: lost answers, cut connections, a server that dies, two who write at once."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, cast

import asyncpg
import pytest
from msgspec.structs import replace

from penstock.adapters.groups import Group
from penstock.adapters.postgres import PostgresStore, database
from penstock.adapters.postgres.appending import WRITE, Batch
from penstock.adapters.postgres.hints import NotifyHints
from penstock.errors import Fenced, Rejected, RevisionConflict, StoreError, StoreLocked, StoreTooNew
from penstock.ports.store import Appended, Record, Row
from penstock.testing.conformance.store import check_chain, more, new, put
from penstock.wiring import store_of
from support.postgres import Server, serving
from support.proxy import proxied


@asynccontextmanager
async def opened(url: str, **how: Any) -> AsyncGenerator[PostgresStore]:
    store = PostgresStore(url, **how)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def connected(url: str) -> AsyncGenerator[Any]:
    db = cast("Any", await asyncpg.connect(url, server_settings={"search_path": "penstock"}))
    try:
        yield db
    finally:
        await db.close()


async def written_by_hand(db: Any, *appends: Any) -> None:
    """The statement of an append, inside whatever transaction is open."""
    group = Group(appends)
    await db.fetchrow(WRITE, *Batch(group, {}).arguments(1, judged=False))


# -- positions in commit order


async def test_a_follower_misses_nothing_while_a_writer_holds_its_transaction_open(
    postgres_url: str,
) -> None:
    async with opened(postgres_url) as store, connected(postgres_url) as slow:
        transaction = slow.transaction()
        await transaction.start()
        await written_by_hand(slow, new("slow"))
        quick = asyncio.ensure_future(put(store, new("quick")))
        await asyncio.sleep(0.2)
        before = await store.follow(after=0)
        await transaction.commit()
        (row,) = await quick
        after = before[-1].position if before else 0
        seen = before + await store.follow(after=after)

        assert [event.position for event in seen] == [1, 2]
        assert seen[1].key == row.key
        # The quick one had to wait, or it would have got a position that hides the slow one's.
        assert before == []


async def test_followers_see_every_position_in_order_under_many_writers(postgres_url: str) -> None:
    async with opened(postgres_url) as one, opened(postgres_url) as two, opened(postgres_url) as me:
        seen: list[int] = []
        done = False

        async def write(store: PostgresStore, name: str) -> None:
            for n in range(60):
                await put(store, *(new(f"{name}{n}-{m}") for m in range(n % 4 + 1)))

        async def follow() -> None:
            while True:
                last = done
                part = await me.follow(after=seen[-1] if seen else 0, limit=17)
                seen.extend(event.position for event in part)
                if last and not part:
                    return

        following = asyncio.ensure_future(follow())
        await asyncio.gather(write(one, "a"), write(two, "b"))
        done = True
        await following
        assert seen == list(range(1, await me.head() + 1))


async def test_who_keeps_the_lock_for_too_long_is_told_of(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "LOCK_SECONDS_MAX", 1)
    async with opened(postgres_url) as store, connected(postgres_url) as slow:
        async with slow.transaction():
            await written_by_hand(slow, new("slow"))
            with pytest.raises(StoreLocked):
                await store.append([new("quick")])
        await put(store, new("quick"))


# -- lost answers, lost connections


async def test_after_a_lost_answer_the_store_finds_its_own_append(postgres_url: str) -> None:
    async with proxied(postgres_url) as (proxy, url), opened(url) as store:
        (row,) = await put(store, new("a"))

        for step in range(3):
            lost = proxy.lost
            proxy.lose_answers = step % 2 == 0
            proxy.lose_answers_to = None if step % 2 == 0 else b"COMMIT"  # judged: a transaction
            group = [
                more(row, b"%d" % step),
                new(f"n{step}", attributes=b'{"k":1}'),
                new("a", b"refused"),
            ][: 2 + step % 2]
            outcomes = await store.append(group)
            assert proxy.lost == lost + 1

            assert isinstance(outcomes[0], Appended)
            assert isinstance(outcomes[1], Appended)
            if len(outcomes) == 3:
                assert isinstance(outcomes[2], RevisionConflict)
            row = replace(
                group[0].row,
                key=outcomes[0].key,
                hash=outcomes[0].hash,
                position=outcomes[0].position,
            )
            assert await store.find("a") == row
            fresh = await store.find(f"n{step}")
            assert fresh is not None
            assert (fresh.key, fresh.position) == (outcomes[1].key, outcomes[1].position)
            check_chain(row, await store.events(row.key))


async def test_a_question_that_arrives_after_its_asker_gave_up_does_nothing(
    postgres_url: str,
) -> None:
    """It is sent again only once the old session is over, so that it cannot be written a second time."""
    async with proxied(postgres_url) as (proxy, url), opened(url) as store:
        (row,) = await put(store, new("a"))
        proxy.hold_questions = True
        (row,) = await put(store, more(row, b"once"))
        assert proxy.lost == 1
        proxy.release()
        await asyncio.sleep(0.1)

        assert await store.find("a") == row
        assert [e.payload for e in await store.events(row.key)] == [b"started", b"once"]


async def test_a_record_whose_answer_was_lost_is_written_once(postgres_url: str) -> None:
    async with proxied(postgres_url) as (proxy, url), opened(url) as store:
        (kept,) = await store.put([Record("k", "a", b"1")])
        assert isinstance(kept, Record)
        proxy.lose_answers_to = b"COMMIT"
        outcomes = await store.put([replace(kept, value=b"2"), Record("k", "b", b"x", 7)])

        assert proxy.lost == 1
        assert outcomes[0] == Record("k", "a", b"2", 2)
        assert isinstance(outcomes[1], RevisionConflict)
        assert outcomes[1].actual == 0
        assert await store.records("k") == [outcomes[0]]


async def appended_through(store: PostgresStore, name: str, until: asyncio.Event) -> Row:
    """Append to one run as an engine does, deciding anew after each conflict; nothing may be lost or doubled."""
    (row,) = await put(store, new(name))
    step = 0
    while not until.is_set():
        step += 1
        (outcome,) = await store.append([more(row, b"%d" % step)])
        assert isinstance(outcome, Appended), outcome
        row = replace(
            row,
            revision=row.revision + 1,
            key=outcome.key,
            hash=outcome.hash,
            position=outcome.position,
        )
    assert await store.find(name) == row
    events = await store.events(row.key)
    check_chain(row, events)
    assert [e.payload for e in events[1:]] == [b"%d" % n for n in range(1, step + 1)]
    return row


async def test_cut_connections_lose_and_double_nothing(postgres: Server, postgres_url: str) -> None:
    async with opened(postgres_url) as one, opened(postgres_url) as two:
        over = asyncio.Event()
        writing = [
            asyncio.ensure_future(appended_through(store, f"{name}{n}", over))
            for name, store in (("a", one), ("b", two))
            for n in range(3)
        ]
        for _ in range(8):
            await asyncio.to_thread(postgres.cut, postgres_url)
            await asyncio.sleep(0.1)
        over.set()
        rows = await asyncio.gather(*writing)
        assert sum(row.revision for row in rows) > 12
        assert one.stats()["reconnects"] > 0


async def test_a_killed_server_loses_and_doubles_nothing() -> None:
    with serving() as server:
        url = server.create()
        async with opened(url, away_seconds_max=30) as store:
            over = asyncio.Event()
            writing = [
                asyncio.ensure_future(appended_through(store, f"r{n}", over)) for n in range(3)
            ]
            for _ in range(2):
                await asyncio.sleep(0.2)
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.start)
            await asyncio.sleep(0.2)
            over.set()
            await asyncio.gather(*writing)


async def test_a_server_that_is_away_is_said_clearly_and_in_bounded_time() -> None:
    with serving() as server:
        url = server.create()
        async with opened(url, away_seconds_max=0.5) as store:
            (row,) = await put(store, new("a"))
            server.stop()
            begun = time.monotonic()
            for doing in (
                store.append([more(row)]),
                store.find("a"),
                store.put([Record("k", "a", b"")]),
                store.claim("node", ""),
            ):
                with pytest.raises(StoreError, match="out of reach") as caught:
                    await doing
                assert "running" in (caught.value.hint or "")
            assert time.monotonic() - begun < 10
            server.start()
            await put(store, more(row))


async def test_bad_addresses_are_refused_without_a_word_of_the_password(postgres: Server) -> None:
    for url, said in (
        (postgres.url("no_such_database"), "does not exist"),
        (f"postgresql://nobody_such:secret@127.0.0.1:{postgres.port}/postgres", "does not"),
        ("postgresql://u:secret@127.0.0.1:1/x", "out of reach"),
    ):
        store = PostgresStore(url, away_seconds_max=0.2)
        with pytest.raises(StoreError, match=said) as caught:
            await store.open()
        assert "secret" not in str(caught.value)
        await store.close()
    for url in ("postgresql://h:99999/x", "postgresql://h/x?schema=A-b", "postgresql://h:abc/x"):
        with pytest.raises(Rejected) as refused:
            PostgresStore(url)
        assert refused.value.code == "store-url"


# -- what the server promises


@pytest.mark.parametrize("name", ["fsync", "full_page_writes", "synchronous_commit"])
async def test_a_server_that_may_lose_commits_is_refused_unless_asked_for(name: str) -> None:
    with serving(**{name: "off"}) as server:
        url = server.create()
        with pytest.raises(StoreError, match=f"{name}=off") as caught:
            await PostgresStore(url).open()
        assert "unsafe=1" in (caught.value.hint or "")
        async with opened(f"{url}?unsafe=1") as store:
            await put(store, new("a"))


async def test_a_role_or_database_that_may_lose_commits_is_refused(
    postgres: Server, postgres_url: str
) -> None:
    name = postgres_url.rpartition("/")[2]
    postgres.execute(f'ALTER DATABASE "{name}" SET synchronous_commit = off')
    with pytest.raises(StoreError, match="synchronous_commit=off"):
        await PostgresStore(postgres_url).open()
    postgres.execute(f'ALTER DATABASE "{name}" RESET synchronous_commit')
    async with opened(postgres_url):
        pass


# -- the schema


async def test_of_many_who_open_a_fresh_database_one_makes_the_schema(postgres_url: str) -> None:
    stores = [PostgresStore(postgres_url) for _ in range(6)]
    await asyncio.gather(*(store.open() for store in stores))
    for n, store in enumerate(stores):
        await put(store, new(f"r{n}"))
        await store.close()


async def test_an_older_version_goes_on_while_a_newer_one_migrates(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(postgres_url) as old:
        over = asyncio.Event()
        writing = asyncio.ensure_future(appended_through(old, "a", over))
        number = max(database.migrations()) + 1
        steps = {
            **database.migrations(),
            number: "CREATE TABLE more (n int); ALTER TABLE runs ADD x int;",
        }
        with monkeypatch.context() as patch:
            patch.setattr(database, "migrations", lambda: steps)
            async with opened(postgres_url) as newer:
                await put(newer, new("b"))
        await asyncio.sleep(0.1)
        over.set()
        await writing
        with pytest.raises(StoreTooNew, match=f"version {number}"):
            await PostgresStore(postgres_url).open()


async def test_schemas_are_apart_and_others_are_left_alone(
    postgres: Server, postgres_url: str
) -> None:
    async with (
        opened(f"{postgres_url}?schema=one") as one,
        opened(f"{postgres_url}?schema=two") as two,
    ):
        await put(one, new("a"))
        assert await two.find("a") is None
        first, second = await one.claim("1", ""), await two.claim("2", "")
        assert first is not None
        assert second is not None
    postgres.execute("CREATE SCHEMA theirs; CREATE TABLE theirs.runs (n int)", postgres_url)
    with pytest.raises(StoreError, match="another application"):
        await PostgresStore(f"{postgres_url}?schema=theirs").open()


async def test_a_text_that_postgresql_cannot_keep_is_refused_alone(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        bad, huge, good = await store.append([new("a\0b"), new("big", generation=2**40), new("ok")])
        assert isinstance(bad, StoreError)
        assert isinstance(huge, StoreError)
        assert isinstance(good, Appended)
        assert await store.find("a\0b") is None
        assert await store.find("\ud800") is None


def test_a_missing_driver_is_said_with_what_to_install() -> None:
    code = (
        "import sys; sys.modules['asyncpg'] = None\n"
        "import penstock.wiring as w\n"
        "try: w.store_of('postgresql://h/d', lambda: 0.0)\n"
        "except Exception as e: print(e.code, '|', e.hint)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "driver-missing | pip install 'penstock[postgres]'"


def test_the_url_chooses_the_store() -> None:
    for url in ("postgresql://h/d", "postgres://u:p@h:5433/d?schema=x"):
        store, hints = store_of(url, time.time)
        assert isinstance(store, PostgresStore)
        assert isinstance(hints, NotifyHints)


# -- ownership


async def expire(url: str, seconds: float = 7.0) -> None:
    async with connected(url) as db:
        await db.execute("UPDATE owner SET renewed_at = renewed_at - $1", seconds)


async def test_a_lease_that_is_over_is_taken_over_and_the_one_before_is_fenced(
    postgres_url: str,
) -> None:
    async with opened(postgres_url) as one, opened(postgres_url) as two:
        first = await one.claim("one", "")
        assert first is not None
        (row,) = await put(one, new("a", token=first.token))
        await expire(postgres_url, 5.0)
        assert await two.claim("two", "") is None
        await expire(postgres_url, 2.0)
        second = await two.claim("two", "")
        assert second is not None
        assert second.token == first.token + 1
        (outcome,) = await one.append([more(row, token=first.token)])
        assert isinstance(outcome, Fenced)
        with pytest.raises(Fenced):
            await one.renew(first)
        assert await one.claim("one", "") is None
        await two.renew(second)
        # The lock is the new one's now: its end is seen at once, before its lease is over.
        await two.close()
        third = await one.claim("one", "")
        assert third is not None
        assert third.token == second.token + 1


async def test_nothing_of_the_owner_before_commits_after_the_next_one_has_begun(
    postgres_url: str,
) -> None:
    async with opened(postgres_url) as one, opened(postgres_url) as two, opened(postgres_url) as me:
        for turn in range(5):
            first = await one.claim("one", "")
            assert first is not None
            token, count = first.token, 0

            async def write(token: int = token, turn: int = turn) -> int:
                for n in range(10_000):
                    outcome, _ = await one.append(
                        [new(f"{turn}-{n}", b"old", token=token), new(f"{turn}x{n}", b"free")]
                    )
                    if isinstance(outcome, Fenced):
                        return n
                raise AssertionError("never fenced")

            writing = asyncio.ensure_future(write())
            await asyncio.sleep(0.03)
            await expire(postgres_url)
            second = await two.claim("two", "")
            head = await me.head()
            count = await writing
            assert second is not None
            assert count > 0
            late = [e for e in await me.follow(after=head, limit=100_000) if e.payload == b"old"]
            assert late == []
            with pytest.raises(Fenced):
                await one.renew(first)
            await two.release(second)


async def test_an_owner_whose_session_was_cut_goes_on_if_nobody_came(
    postgres: Server, postgres_url: str
) -> None:
    async with opened(postgres_url) as one, opened(postgres_url) as two:
        first = await one.claim("one", "")
        assert first is not None
        postgres.cut(postgres_url)
        renewed = await one.renew(first)
        assert renewed.token == first.token
        assert await two.claim("two", "") is None
        await put(one, new("a", token=first.token))


# -- hints


async def test_hints_arrive_with_the_commit_and_the_listener_comes_back(
    postgres: Server, postgres_url: str
) -> None:
    hints = NotifyHints(postgres_url)
    heard: asyncio.Queue[str] = asyncio.Queue()
    async with opened(postgres_url) as store:
        owner = await store.claim("node", hints.listen(heard.put_nowait))
        assert owner is not None
        try:
            await until_heard(store, heard, "a")
            await put(store, new("own", token=owner.token), new("other"))
            async with asyncio.timeout(60):
                assert await heard.get() == "other"
            await store.append([new("other"), new("b")])
            async with asyncio.timeout(60):
                assert await heard.get() == "b"
            await asyncio.to_thread(postgres.cut, postgres_url)
            await until_heard(store, heard, "c")
        finally:
            hints.close()


async def until_heard(store: PostgresStore, heard: asyncio.Queue[str], name: str) -> None:
    """The listener needs a moment to be there."""
    for n in range(100):
        await put(store, new(f"{name}{n}"))
        try:
            async with asyncio.timeout(0.1):
                assert (await heard.get()).startswith(name)
                break
        except TimeoutError:
            continue
    else:
        raise AssertionError("nothing was heard")
    while not heard.empty():
        heard.get_nowait()
