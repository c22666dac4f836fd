"""What only a file shared by processes can do wrong: locks, full disks, damage, death, lost answers."""

# ruff: noqa: ASYNC222, ASYNC240 (a test may wait: nothing else runs in its loop)
from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.adapters.sqlite import SqliteStore, connections, database, listing
from penstock.errors import (
    Fenced,
    RevisionConflict,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreLocked,
    StoreTooNew,
)
from penstock.ports.store import Appended, Query, Record, Row
from penstock.testing.conformance.store import check_chain, more, new, put


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@asynccontextmanager
async def opened(path: Path, **options: Any) -> AsyncGenerator[SqliteStore, None]:
    store = SqliteStore(path, **options)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@contextmanager
def process(code: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Another Python; it is killed at the end if it is still there."""
    child = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield child
    finally:
        child.kill()
        child.wait()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                pipe.close()


def said(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def tell(child: subprocess.Popen[str], line: str = "") -> None:
    assert child.stdin is not None
    child.stdin.write(line + "\n")
    child.stdin.flush()


HOLD = """
import sqlite3, sys, time
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.readline()
time.sleep(float(sys.argv[2]))
db.execute("ROLLBACK")
"""


# -- a database that is busy


@pytest.mark.parametrize("threaded", [False, True])
async def test_a_busy_database_is_tried_again_while_the_loop_goes_on(
    path: Path, threaded: bool
) -> None:
    async with opened(path, threaded=threaded, busy_seconds_max=60) as store:
        (row,) = await put(store, new("a"))
        with process(HOLD, path, 0) as child:
            assert said(child) == "held"
            writing = asyncio.ensure_future(store.append([more(row, b"late")]))
            turns = 0
            while store.stats()["busy"] < 2 or turns < 10:  # of the loop, while it is tried again
                await asyncio.sleep(0.001)
                turns += 1
                assert await store.find("a") is not None  # reading is never locked out
                assert not writing.done()
            tell(child)
            (outcome,) = await asyncio.wait_for(writing, 60)
        assert isinstance(outcome, Appended)


async def test_a_database_that_stays_locked_is_said_to_be_and_nothing_is_written(
    path: Path,
) -> None:
    async with opened(path, busy_seconds_max=0.15) as store:
        (row,) = await put(store, new("a"))
        with process(HOLD, path, 0) as child:
            assert said(child) == "held"
            begun = time.perf_counter()
            with pytest.raises(StoreLocked, match="stayed locked") as caught:
                await store.append([more(row), new("b")])
            assert time.perf_counter() - begun >= 0.15
            assert caught.value.hint
            with pytest.raises(StoreLocked):
                await store.claim("node", "")
            assert await store.find("a") == row
            assert await store.find("b") is None
            tell(child)
            child.wait()
        assert await store.claim("node", "") is not None
        await put(store, more(row), new("b"))


async def test_reads_never_see_what_is_not_committed(path: Path) -> None:
    seen: list[Row | None] = []

    class Peeking(sqlite3.Connection):
        def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
            if sql == "COMMIT" and reader is not None:
                found = reader.execute("SELECT count(*) FROM runs WHERE id = 'a'").fetchone()
                seen.append(found[0])
            return super().execute(sql, *values)

    reader = None
    store = SqliteStore(path)
    store.connection_class = Peeking
    await store.open()
    reader = store._db.reader  # pyright: ignore[reportPrivateUsage]
    await put(store, new("a"))
    assert seen == [0]
    assert await store.find("a") is not None
    await store.close()


async def test_a_slow_listing_is_not_waited_for_and_can_be_cancelled(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forever = (
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    )
    async with opened(path) as store:
        (row,) = await put(store, new("a"))
        assert await store.list(Query()) == [row]
        with monkeypatch.context() as patched:
            patched.setattr(listing, "counting", lambda db, query: (forever, []))
            counting = asyncio.ensure_future(store.count(Query()))
            listed = asyncio.ensure_future(store.list(Query()))
            await asyncio.sleep(0.05)
            (row,) = await put(store, more(row))
            assert not counting.done()
            counting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await counting
        assert await listed == [row]
        assert await store.count(Query()) == 1


# -- disks


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs of 1 MiB, where we may mount one."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip("a tmpfs cannot be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


async def fill_up_and_recover(store: SqliteStore, make_room: Any) -> None:
    rows: list[Row] = await put(store, new("first"))
    refused: StoreError | None = None
    for n in range(200):
        try:
            rows += await put(store, new(f"r{n}", b"x" * 9000), new(f"s{n}", b"y" * 9000))
        except StoreError as error:
            refused = error
            break
    assert isinstance(refused, StoreFull), refused
    assert "full" in str(refused)
    head = await store.head()
    assert head == len(rows)
    for row in rows:
        assert await store.find(row.id) == row
    with pytest.raises(StoreFull):
        await store.append([new("again", b"z" * 50_000)])
    assert await store.head() == head
    make_room(store)
    rows += await put(store, new("after", b"z" * 50_000))
    assert await store.head() == head + 1
    for row in rows:
        check_chain(row, await store.events(row.key))


async def test_a_full_disk_refuses_whole_and_the_store_goes_on(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"b" * 400_000)
    async with opened(small_disk / "store.db") as store:
        await fill_up_and_recover(store, lambda _: ballast.unlink())


async def test_a_database_at_its_page_limit_refuses_whole_and_goes_on(path: Path) -> None:
    """The same where no small disk can be had: SQLite's own limit says SQLITE_FULL too."""

    def limit(store: SqliteStore, pages: int) -> None:
        writer = store._db.writer  # pyright: ignore[reportPrivateUsage]
        assert writer is not None
        writer.execute(f"PRAGMA max_page_count={pages}")

    async with opened(path) as store:
        limit(store, 100)
        await fill_up_and_recover(store, lambda store: limit(store, 10_000))


async def test_a_file_that_may_not_grow_is_an_error_and_the_store_goes_on(path: Path) -> None:
    resource = pytest.importorskip("resource")
    async with opened(path) as store:
        (row,) = await put(store, new("a"))
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        size = os.stat(f"{path}-wal").st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 5000, hard))
        try:
            with pytest.raises(StoreError, match="disk"):
                await store.append([more(row, b"x" * 100_000)])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert await store.find("a") == row
        (row,) = await put(store, more(row, b"x" * 100_000))
        check_chain(row, await store.events(row.key))


# -- files that are not what they should be


async def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="does not exist") as caught:
        await SqliteStore(tmp_path / "nowhere" / "store.db").open()
    assert "mkdir" in str(caught.value.hint)
    with pytest.raises(StoreError, match="is a folder"):
        await SqliteStore(tmp_path).open()


async def test_a_newer_schema_is_refused_untouched(path: Path) -> None:
    async with opened(path) as store:
        await put(store, new("a"))
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version=999")
    db.close()
    before = path.read_bytes()
    with pytest.raises(StoreTooNew, match="999"):
        await SqliteStore(path).open()
    assert path.read_bytes() == before


async def test_a_database_of_another_application_is_refused_untouched(path: Path) -> None:
    for script in ("CREATE TABLE runs (x)", "CREATE TABLE notes (x); PRAGMA user_version=1"):
        path.unlink(missing_ok=True)
        db = sqlite3.connect(path)
        db.executescript(script)
        db.close()
        before = path.read_bytes()
        with pytest.raises(StoreError, match="another application"):
            await SqliteStore(path).open()
        assert path.read_bytes() == before


async def test_a_file_that_is_no_database_is_refused_untouched(path: Path) -> None:
    path.write_bytes(b"dear diary, " * 1000)
    with pytest.raises(StoreCorrupt, match="not a SQLite database") as caught:
        await SqliteStore(path).open()
    assert caught.value.hint
    assert path.read_bytes() == b"dear diary, " * 1000


async def test_a_damaged_page_is_said_to_be(path: Path) -> None:
    async with opened(path) as store:
        await put(store, *(new(f"r{n}", b"x" * 500) for n in range(300)))
    content = bytearray(path.read_bytes())
    for page in range(3, len(content) // 4096):
        content[page * 4096 : page * 4096 + 200] = b"\xff" * 200
    path.write_bytes(content)
    store = SqliteStore(path)
    with pytest.raises(StoreCorrupt, match="damaged"):
        async with opened(path) as store:
            await store.follow(after=0)
    await store.close()


async def test_a_run_whose_row_and_events_disagree_is_refused_alone(path: Path) -> None:
    async with opened(path) as store:
        a, b = await put(store, new("a", b"1", b"2"), new("b"))
        db = sqlite3.connect(path)
        db.execute("UPDATE runs SET revision = 1 WHERE id = 'a'")
        db.commit()
        db.close()
        a.revision = 1
        outcomes = await store.append([more(a), more(b), new("c")])
        assert [type(o) for o in outcomes] == [StoreCorrupt, Appended, Appended]


async def test_a_migration_that_fails_leaves_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = database.migrations()
    next_one = max(good) + 1
    broken = {**good, next_one: "CREATE TABLE extra (x); INSERT INTO nowhere VALUES (1);"}
    monkeypatch.setattr(database, "migrations", lambda: broken)
    with pytest.raises(StoreError, match="nowhere"):
        await SqliteStore(path).open()
    monkeypatch.setattr(database, "migrations", lambda: good)
    async with opened(path) as store:
        await put(store, new("a"))
    fixed = {**good, next_one: "CREATE TABLE extra (x); INSERT INTO extra VALUES (1);"}
    monkeypatch.setattr(database, "migrations", lambda: fixed)
    async with opened(path) as store:
        assert await store.find("a") is not None
        assert store.describe()["user_version"] == next_one


async def test_a_store_that_is_not_open_says_so(path: Path) -> None:
    store = SqliteStore(path)
    with pytest.raises(StoreError, match="not open"):
        await store.append([new("a")])
    with pytest.raises(StoreError, match="not open"):
        await store.find("a")
    with pytest.raises(StoreError, match="not open"):
        await store.claim("node", "")
    await store.close()


# -- many processes

OPEN_AND_WRITE = """
import asyncio, sys
from penstock.adapters.sqlite import SqliteStore
from penstock.testing.conformance.store import new, put
async def main():
    print("ready", flush=True)
    sys.stdin.readline()
    store = SqliteStore(sys.argv[1])
    await store.open()
    for n in range(20):
        await put(store, new(f"{sys.argv[2]}-{n}"))
    await store.close()
    print("done", flush=True)
asyncio.run(main())
"""


async def test_four_processes_open_a_fresh_database_at_once(path: Path) -> None:
    with (
        process(OPEN_AND_WRITE, path, "a") as a,
        process(OPEN_AND_WRITE, path, "b") as b,
        process(OPEN_AND_WRITE, path, "c") as c,
        process(OPEN_AND_WRITE, path, "d") as d,
    ):
        children = (a, b, c, d)
        assert [said(child) for child in children] == ["ready"] * 4
        for child in children:
            tell(child)
        assert [said(child) for child in children] == ["done"] * 4
    async with opened(path) as store:
        assert await store.count(Query()) == 80
        assert [e.position for e in await store.follow(after=0)] == list(range(1, 81))
    assert integrity(path) == "ok"


def integrity(path: Path) -> str:
    db = sqlite3.connect(path)
    try:
        return db.execute("PRAGMA integrity_check").fetchone()[0]
    finally:
        db.close()


OWN = """
import asyncio, sys
from penstock.adapters.sqlite import SqliteStore
async def main():
    store = SqliteStore(sys.argv[1])
    await store.open()
    owner = await store.claim("the first", "/its/socket")
    print(owner and owner.token, flush=True)
    sys.stdin.readline()
asyncio.run(main())
"""


async def test_the_standby_gets_it_at_once_when_the_owner_is_killed(path: Path) -> None:
    async with opened(path) as store:
        with process(OWN, path) as child:
            assert said(child) == "1"
            assert await store.claim("the second", "") is None
            shown = await store.owner()
            assert shown is not None
            assert (shown.node, shown.address, shown.pid) == ("the first", "/its/socket", child.pid)
            child.send_signal(signal.SIGKILL)
            child.wait()
            owner = await store.claim("the second", "")
        assert owner is not None
        assert owner.token == 2
        (outcome,) = await store.append([new("late", token=1)])
        assert isinstance(outcome, Fenced)


async def test_another_store_of_this_process_stands_by_whatever_path_it_took(
    path: Path, tmp_path: Path
) -> None:
    link = tmp_path / "link.db"
    async with opened(path) as one:
        link.symlink_to(path)
        async with opened(link) as two:
            assert await one.claim("one", "") is not None
            for _ in range(3):
                assert await two.claim("two", "") is None
            with process(OWN, path) as child:
                assert (
                    said(child) == "None"
                )  # the tries of `two` have not dropped the lock of `one`
        with process(OWN, path) as child:
            assert said(child) == "None"


async def test_a_forked_child_neither_owns_nor_disturbs(path: Path) -> None:
    async with opened(path) as store:
        await put(store, new("a"))
        owner = await store.claim("parent", "")
        assert owner is not None
        child = os.fork()
        if child == 0:  # pragma: no cover
            status = 1
            try:
                store._db.live(store._db.writer)  # pyright: ignore[reportPrivateUsage]
            except StoreError as error:
                status = 0 if "fork" in str(error) else 2
            finally:
                os._exit(status)
        _, status = os.waitpid(child, 0)
        assert status == 0
        with process(OWN, path) as other:
            assert said(other) == "None"
        await put(store, new("b", token=owner.token))


WRITE_ALONG = """
import asyncio, sys
from penstock.adapters.sqlite import SqliteStore
from penstock.testing.conformance.store import new, more
async def main():
    store = SqliteStore(sys.argv[1])
    await store.open()
    print("ready", flush=True)
    for n in range(150):
        row = await store.find("shared")
        await store.append([new(f"other-{n}", b"o" * 300), more(row, b"other")])
    await store.close()
    print("done", flush=True)
asyncio.run(main())
"""


@pytest.mark.parametrize("threaded", [False, True])
async def test_the_log_stays_short_while_others_write_too(
    path: Path, threaded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "WAL_FRAMES_MAX", 100)
    async with opened(path, threaded=threaded) as store:
        await put(store, new("shared"))
        owner = await store.claim("node", "")
        assert owner is not None
        with process(WRITE_ALONG, path) as child:
            assert said(child) == "ready"
            mine = 0
            for n in range(300):
                row = await store.find("shared")
                assert row is not None
                outcomes = await store.append(
                    [new(f"mine-{n}", b"m" * 300), more(row, b"mine", token=owner.token)]
                )
                assert isinstance(outcomes[0], Appended), outcomes[0]
                if isinstance(outcomes[1], Appended):
                    mine += 1
                else:
                    assert isinstance(outcomes[1], RevisionConflict)
                await asyncio.sleep(0)
            done = asyncio.get_running_loop().run_in_executor(None, said, child)
            assert await done == "done"
        for n in range(
            20
        ):  # the other may have been the last to write, and only the owner tidies up
            await put(store, new(f"last-{n}", b"m" * 4000))
        assert store.stats()["checkpoints"] > 10
        db = sqlite3.connect(path)
        _, frames, _ = db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        db.close()
        assert frames < 4 * 100
        row = await store.find("shared")
        assert row is not None
        events = await store.events(row.key)
        check_chain(row, events)
        assert sum(e.payload == b"mine" for e in events) == mine
        assert await store.count(Query(id_prefix="mine-")) == 300
        assert await store.count(Query(id_prefix="other-")) == 150
    assert integrity(path) == "ok"


# -- lost answers


class Forgetful(sqlite3.Connection):
    """Its next COMMITs fail: before or after they were done."""

    fail: str | None = None

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        if sql != "COMMIT" or type(self).fail is None:
            return super().execute(sql, *values)
        how, type(self).fail = type(self).fail, None
        if how == "after":
            super().execute(sql)
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_BUSY if how == "busy" else sqlite3.SQLITE_IOERR
        error.sqlite_errorname = "SQLITE_IOERR_FSYNC"
        raise error


@pytest.mark.parametrize("threaded", [False, True])
async def test_after_a_lost_answer_its_own_append_is_looked_for(path: Path, threaded: bool) -> None:
    store = SqliteStore(path, threaded=threaded)
    store.connection_class = Forgetful
    await store.open()
    a, b = await put(store, new("a"), new("b"))
    group = [more(a, b"1", b"2"), new("c"), new("b"), more(b, b"3")]

    Forgetful.fail = "before"
    with pytest.raises(StoreError, match="SQLITE_IOERR_FSYNC"):
        await store.append(group)
    assert await store.find("a") == a
    assert await store.find("c") is None
    assert await store.head() == 2

    Forgetful.fail = "after"
    outcomes = await store.append(group)
    assert [type(o) for o in outcomes] == [Appended, Appended, RevisionConflict, Appended]
    for id, outcome in zip(("a", "c", "b"), (outcomes[0], outcomes[1], outcomes[3]), strict=True):
        assert isinstance(outcome, Appended)
        row = await store.find(id)
        assert row is not None
        assert (row.key, row.position, row.hash) == (outcome.key, outcome.position, outcome.hash)
        check_chain(row, await store.events(row.key))
    assert await store.head() == 6

    Forgetful.fail = "busy"
    row = await store.find("c")
    assert row is not None
    (outcome,) = await store.append([more(row)])
    assert isinstance(outcome, Appended)
    assert store.stats()["busy"] >= 1
    await store.close()


async def test_after_a_lost_answer_its_own_records_are_looked_for(path: Path) -> None:
    store = SqliteStore(path)
    store.connection_class = Forgetful
    await store.open()
    group = [Record("k", "a", b"1"), Record("k", "a", b"2", 1), Record("k", "b", b"3", 7)]
    Forgetful.fail = "before"
    with pytest.raises(StoreError, match="SQLITE_IOERR_FSYNC"):
        await store.put(group)
    assert await store.records("k") == []
    Forgetful.fail = "after"
    outcomes = await store.put(group)
    assert [type(o) for o in outcomes] == [Record, Record, RevisionConflict]
    assert await store.records("k") == [Record("k", "a", b"2", 2)]
    with pytest.raises(StoreError, match="cannot be stored"):
        await store.put([Record("k", "c", b"1"), Record("k", "\ud800", b"2")])
    assert await store.record("k", "c") is None
    await store.close()


async def test_a_log_that_others_made_long_is_copied_back_too(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "WAL_FRAMES_MAX", 500)
    monkeypatch.setattr(connections, "LOG_BYTES_KEPT", 1_000_000)
    async with opened(path) as store, opened(path) as other:
        assert await store.claim("node", "") is not None
        for n in range(20):
            await put(other, new(f"other-{n}", b"x" * 60_000))
        assert other.stats()["checkpoints"] == 0
        for n in range(20):
            await put(store, new(f"mine-{n}"))
        assert store.stats()["checkpoints"] >= 1


async def test_who_is_cancelled_leaves_a_whole_append_or_none(path: Path) -> None:
    async with opened(path, threaded=True) as store:
        for n in range(30):
            writing = asyncio.ensure_future(store.append([new(f"r{n}", b"1", b"2")]))
            for _ in range(n % 6):
                await asyncio.sleep(0.0002)
            writing.cancel()
            await asyncio.wait([writing])
            row = await store.find(f"r{n}")
            if row is not None:
                check_chain(row, await store.events(row.key))
        await put(store, new("after"))


# -- what the schema promises


async def test_the_newest_position_and_key_cannot_be_given_twice(path: Path) -> None:
    async with opened(path) as store:
        await put(store, new("a"), new("b"))
    db = sqlite3.connect(path)
    for statement in ("DELETE FROM events", "DELETE FROM runs WHERE id = 'b'"):
        with pytest.raises(sqlite3.IntegrityError, match="must stay"):
            db.execute(statement)
    db.rollback()
    db.execute("DELETE FROM events WHERE position = 1")
    db.commit()
    db.close()


@pytest.mark.parametrize(
    "query",
    [
        Query(),
        Query(status="OPEN"),
        Query(status="FAILED"),
        Query(definition="order"),
        Query(attributes={"n": 1}),
        Query(created_after=5.0, created_before=6.0),
        Query(definition="order", after=40),
        Query(attributes={"n": 1}, status="RUNNING", newest_generation=True),
    ],
    ids=str,
)
async def test_a_page_is_read_in_order_without_sorting(path: Path, query: Query) -> None:
    async with opened(path) as store:
        await put(store, *(new(f"r{n}", attributes=b'{"n":1}') for n in range(50)))
    db = sqlite3.connect(path)
    text, values = listing.page(db, query)
    plan = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {text}", values)]
    db.close()
    assert not any("TEMP B-TREE" in step for step in plan), plan


def test_the_text_after_a_prefix() -> None:
    assert listing.after_prefix("ab") == "ac"
    assert listing.after_prefix("a\ud7ff") == "a\ue000"
    assert listing.after_prefix("a\U0010ffff") == "b"
    assert listing.after_prefix("\U0010ffff") is None
