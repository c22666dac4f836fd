"""Runs in files: archive, restore, export, import, backup, signed roots; and files that were damaged (SPEC 6, 18)."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import activity
from penstock.adapters.memory import MemoryStore
from penstock.adapters.sqlite.store import SqliteStore
from penstock.engine.archive import Archives
from penstock.engine.engine import Settings
from penstock.engine.roots import KIND as ROOT
from penstock.ports.store import Store
from penstock.testing.harness import Harness, SkipClock, harness
from penstock.wiring import restore
from support.stores import Make

KEY = b"a key that the database does not have"


@activity
async def make(text: str, times: int = 1) -> str:
    return text * times


DOCUMENT: dict[str, Any] = {
    "id": "two",
    "tasks": {
        "small": {"do": "make", "inputs": {"text": {"from": "input"}}},
        "middle": {
            "do": "make",
            "after": ["small"],
            "inputs": {"text": {"from": "input"}, "times": {"value": 5000}},
        },
        "large": {
            "do": "make",
            "after": ["middle"],
            "inputs": {"text": {"from": "input"}, "times": {"value": 600_000}},
        },
    },
    "outputs": {"small": "tasks.small.output", "size": "size(tasks.large.output)"},
}
WAITS = {"id": "waits", "tasks": {"a": {"type": "signal", "config": {"name": "go"}}}}


def begun(store: Store, clock: SkipClock | None = None, *, key: bytes | None = KEY) -> Any:
    settings = Settings(drain_seconds=0, audit_key=key)
    return harness(activities=[make], store=store, clock=clock, settings=settings)


@pytest.fixture
async def engine(make_store: Make) -> AsyncIterator[Harness]:
    async with begun(make_store()) as made:
        await filled(made)
        yield made


async def filled(engine: Harness) -> None:
    await engine.register(DOCUMENT)
    await engine.register(WAITS)
    for n in range(4):
        run = await engine.start("two", f"t{n}", id=f"r{n}", attributes={"n": n})
        await engine.finish(run)
        await engine.skip(hours=1)
    await engine.start("waits", 1, id="open")


async def ids(engine: Harness) -> list[str]:
    return [row.id for row in await engine.list(limit=100)]


async def test_archived_runs_leave_the_store_and_can_still_be_read(
    engine: Harness, tmp_path: Path
) -> None:
    before = {id: await (await engine.get(id)).history() for id in ("r0", "r1", "r2")}
    shown = await (await engine.get("r1")).show()
    middle = await (await engine.get("r1")).show(at=2)

    archived = await engine.data.archive(tmp_path, older_than=1.5 * 3600)

    assert archived is not None
    assert archived.runs == 3
    assert await ids(engine) == ["open", "r3"]
    assert [row.id for row in await engine.data.archived()] == ["r2", "r1", "r0"]
    assert [row.id for row in await engine.data.archived(attributes={"n": 1})] == ["r1"]
    assert await engine.data.archived(definition="none") == []
    run = await engine.get("r1")
    assert [(i.seq, i.event, i.hash) for i in await run.history()] == [
        (i.seq, i.event, i.hash) for i in before["r1"]
    ]
    assert await run.show() == shown
    assert await run.show(at=2) == middle
    moment = datetime.fromtimestamp(before["r1"][-1].at, UTC)
    assert await run.show(at=moment) == shown
    assert await run.result() == {"small": "t1", "size": 1_200_000}
    assert await engine.data.payload("r1", 4) == "t1" * 600_000
    assert await run.status() == "COMPLETED"
    assert [change.seq async for change in run.watch()] == [1, 2, 3, 4, 5]
    assert await engine.audit() == []
    assert await engine.data.archive(tmp_path, older_than=1.5 * 3600) is None

    assert await engine.data.restore("r1") == 1
    assert await engine.data.restore("r1") == 0
    assert await ids(engine) == ["r1", "open", "r3"]
    assert [i.hash for i in await run.history()] == [i.hash for i in before["r1"]]
    assert await run.result() == {"small": "t1", "size": 1_200_000}
    assert await engine.audit() == []


async def test_an_archive_that_was_cut_off_is_finished_later(
    engine: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    async def killed(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Archives, "_record", killed)
        with pytest.raises(Killed):
            await engine.data.archive(tmp_path)
    assert len(await ids(engine)) == 5, "a file that is not recorded changes nothing"
    with monkeypatch.context() as patch:
        patch.setattr(Archives, "_purge", killed)
        with pytest.raises(Killed):
            await engine.data.archive(tmp_path)
    assert len(await ids(engine)) == 5
    assert await engine.audit() == []
    assert await engine.data.archive(tmp_path, definition="none") is None
    assert await ids(engine) == ["open"]
    assert len(await engine.data.archived()) == 4
    assert all(archive.deleted for archive in await engine.data.archives())


async def test_an_export_is_taken_elsewhere_as_it_was(
    engine: Harness, make_store: Make, tmp_path: Path
) -> None:
    file = tmp_path / "runs.jsonl.zst"
    await engine.data.erase("r3", by="ann", reason="asked", tasks=["small"])
    assert await engine.data.export(file, definition="two") == 4
    with pytest.raises(penstock.PenstockError) as caught:
        await engine.data.export(file)
    assert caught.value.code == "file-exists"
    history = await (await engine.get("r3")).history()
    async with begun(make_store("other")) as other:
        assert await other.data.import_runs(file) == 4
        assert await other.data.import_runs(file) == 0
        run = await other.get("r3")
        assert [(i.event, i.hash) for i in await run.history()] == [
            (i.event, i.hash) for i in history
        ]
        assert await (await other.get("r0")).result() == {"small": "t0", "size": 1_200_000}
        assert await other.list(attributes={"n": 2}) != []
        assert await other.audit() == ["run r3: event 2 was erased, and nothing says by whom"]
    async with begun(make_store("third")) as third:
        await third.register(DOCUMENT)
        await third.finish(await third.start("two", "other", id="r2"))
        with pytest.raises(penstock.PenstockError) as caught:
            await third.data.import_runs(file)
        assert caught.value.code == "id-taken"
        assert await ids(third) == ["r2"]


async def test_an_open_run_goes_on_where_it_is_imported(
    engine: Harness, make_store: Make, tmp_path: Path
) -> None:
    file = tmp_path / "open.jsonl.zst"
    await engine.data.export(file, status="OPEN")
    async with begun(make_store("other")) as other:
        with pytest.raises(penstock.PenstockError) as caught:
            await other.data.import_runs(file)
        assert caught.value.code == "run-open"
        assert await ids(other) == []
        assert await other.data.import_runs(file, take_open=True) == 1
        await other.settle()
        run = await other.get("open")
        await run.signal("go", 7)
        assert await other.finish(run) == 7


def damages(file: Path) -> list[bytes]:
    whole = file.read_bytes()
    found = [b"", whole[:50], whole[:-1], whole[: len(whole) // 2], whole + b"x", b"x" * 500]
    for place in [*range(5, len(whole), len(whole) // 40), len(whole) - 70, len(whole) - 100]:
        found.append(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    return found


async def test_a_damaged_file_is_refused_and_changes_nothing(
    engine: Harness, make_store: Make, tmp_path: Path
) -> None:
    file, bad = tmp_path / "runs.jsonl.zst", tmp_path / "bad.jsonl.zst"
    await engine.data.export(file, definition="two")
    async with begun(make_store("other")) as other:
        for damaged in damages(file):
            _write(bad, damaged)
            with pytest.raises(penstock.PenstockError) as caught:
                await other.data.import_runs(bad)
            assert caught.value.code == "bundle-damaged", caught.value
        assert await ids(other) == []
        assert await other.core.store.definitions() == []
        with pytest.raises(penstock.PenstockError) as caught:
            await other.data.import_runs(tmp_path / "none.jsonl.zst")
        assert caught.value.code == "bundle-damaged"
        other.core.settings.audit_key = b"another"
        with pytest.raises(penstock.PenstockError, match="not of this key"):
            await other.data.import_runs(file)


async def test_a_damaged_archive_is_found_and_not_restored(engine: Harness, tmp_path: Path) -> None:
    archived = await engine.data.archive(tmp_path)
    assert archived is not None
    file = Path(archived.path)
    whole = _read(file)
    _write(file, whole[:300] + bytes([whole[300] ^ 1]) + whole[301:])
    (problem,) = await engine.audit()
    assert problem.startswith(f"archive {file}: ")
    before = await ids(engine)
    with pytest.raises(penstock.PenstockError) as caught:
        await engine.data.restore("r0")
    assert caught.value.code == "bundle-damaged"
    assert await ids(engine) == before
    _write(file, whole)
    assert await engine.audit() == []
    assert await engine.data.restore("r0") == 1


def _read(file: Path) -> bytes:
    return file.read_bytes()


def _write(file: Path, content: bytes) -> None:
    file.write_bytes(content)


# -- backups


async def test_a_backup_is_made_while_the_engine_works_and_restored(tmp_path: Path) -> None:
    path, copy, again = (tmp_path / name for name in ("a.db", "copy.db", "again.db"))
    async with begun(SqliteStore(path)) as engine:
        await filled(engine)
        await engine.data.backup(copy)
        await engine.start("two", "later", id="later")
        with pytest.raises(penstock.PenstockError) as caught:
            await engine.data.backup(copy)
        assert caught.value.code == "file-exists"
        with pytest.raises(penstock.PenstockError):
            await engine.data.backup(tmp_path / "none" / "copy.db")
    restore(f"sqlite:///{again}", str(copy))
    with pytest.raises(penstock.PenstockError):
        restore(f"sqlite:///{again}", str(copy))
    async with begun(SqliteStore(again)) as engine:
        assert await ids(engine) == ["open", "r3", "r2", "r1", "r0"]
        assert await engine.audit() == []
        run = await engine.get("open")
        await run.signal("go", 3)
        assert await engine.finish(run) == 3


async def test_what_is_no_backup_is_refused(tmp_path: Path) -> None:
    text, other, target = tmp_path / "text", tmp_path / "other.db", tmp_path / "target.db"
    _write(text, b"x" * 5000)
    db = sqlite3.connect(other)
    db.execute("CREATE TABLE notes (x)")
    db.close()
    for file in (text, other, tmp_path / "none"):
        with pytest.raises(penstock.PenstockError):
            restore(f"sqlite:///{target}", str(file))
        assert not _is_there(target)


def _is_there(file: Path) -> bool:
    return file.exists()


async def test_a_store_in_memory_has_no_backup(tmp_path: Path) -> None:
    async with begun(MemoryStore()) as engine:
        with pytest.raises(penstock.PenstockError) as caught:
            await engine.data.backup(tmp_path / "x")
        assert caught.value.code == "backup-unsupported"


# -- roots


async def test_roots_sign_what_is_new_and_audit_checks_them(engine: Harness) -> None:
    assert await engine.data.sign() == 1
    assert await engine.data.sign() == 0
    await (await engine.get("open")).signal("go", 1)
    await engine.settle()
    assert await engine.data.sign() == 1
    assert await engine.audit() == []
    store = engine.core.store
    await store.drop(ROOT, ["000000000001"])
    assert await engine.audit() == ["root 2: the root before it is missing or another"]
    engine.core.settings.audit_key = b"another"
    assert await engine.audit() == ["root 2: its signature is not of this key"]
    engine.core.settings.audit_key = None
    with pytest.raises(penstock.PenstockError) as caught:
        await engine.data.sign()
    assert caught.value.code == "audit-key-missing"


async def test_old_roots_go_with_their_runs_and_no_others_can(make_store: Make) -> None:
    async with begun(make_store("roots")) as engine:
        await engine.register(DOCUMENT)
        store = engine.core.store
        for n in range(6):
            await engine.finish(await engine.start("two", "t", id=f"r{n}"))
            assert await engine.data.sign() == 1
            if n >= 2:  # all but the last two are gone
                row = await store.find(f"r{n - 2}")
                assert row is not None
                while (await store.purge([row.key])).again:
                    pass
            assert await engine.audit() == []
        assert [each.id for each in await store.records(ROOT)] == [
            "000000000004", "000000000005", "000000000006",
        ]  # fmt: skip
        await store.drop(ROOT, ["000000000004"])
        assert await engine.audit() == ["root 5: the root before it is missing or another"]


async def test_a_file_without_a_signature_is_no_import_where_there_is_a_key(
    make_store: Make, tmp_path: Path
) -> None:
    file = tmp_path / "x.jsonl.zst"
    async with begun(make_store("a"), key=None) as engine:
        await engine.register(DOCUMENT)
        await engine.finish(await engine.start("two", "t", id="r"))
        await engine.data.export(file)
    async with begun(make_store("b")) as engine:
        with pytest.raises(penstock.PenstockError) as caught:
            await engine.data.import_runs(file)
        assert (caught.value.code, bool(caught.value.hint)) == ("bundle-unsigned", True)
        assert await engine.list() == []


async def test_a_history_written_anew_is_found_by_its_root(tmp_path: Path) -> None:
    """Its chain fits, but it is another."""
    real, forged = tmp_path / "real.db", tmp_path / "forged.db"
    for path, text in ((real, "paid"), (forged, "owed")):
        async with begun(SqliteStore(path)) as engine:
            await engine.register(WAITS)
            await engine.finish(await _signalled(engine, text))
            if path == real:
                await engine.data.sign()
    db = sqlite3.connect(real)
    db.execute("ATTACH ? AS forged", (str(forged),))
    db.execute(
        "UPDATE events SET (payload, hash) = (SELECT payload, hash FROM forged.events f"
        " WHERE f.position = events.position)"
    )
    db.execute("UPDATE runs SET hash = (SELECT hash FROM forged.runs)")
    db.commit()
    db.close()
    async with begun(SqliteStore(real)) as engine:
        assert await engine.audit("r") == []
        assert await engine.audit() == [
            "run r: its history up to event 3 is not what it was, as root 1 says"
        ]


async def _signalled(engine: Harness, text: str) -> Any:
    run = await engine.start("waits", id="r")
    await run.signal("go", text)
    return run


async def test_an_older_copy_in_place_of_the_store_is_found(tmp_path: Path) -> None:
    path, copy = tmp_path / "a.db", tmp_path / "copy.db"
    async with begun(SqliteStore(path)) as engine:
        await filled(engine)
        await engine.data.backup(copy)
        await engine.finish(await engine.start("two", "x", id="later"))
        await engine.data.sign()
        records = await engine.core.store.records(ROOT)
    shutil.move(copy, path)
    async with begun(SqliteStore(path)) as engine:
        await engine.core.store.put(
            [penstock.ports.store.Record(ROOT, r.id, r.value) for r in records]  # type: ignore[attr-defined]
        )
        assert await engine.audit() == [
            "the store ends before root 1: an older copy is in its place"
        ]


async def test_an_imported_run_was_perhaps_begun_elsewhere(
    make_store: Make, tmp_path: Path
) -> None:
    calls: list[str] = []

    @activity(once=True)
    async def pay() -> None:
        calls.append("pay")
        await asyncio.Event().wait()

    paying = {"id": "paying", "tasks": {"a": {"do": "pay"}}}
    file = tmp_path / "open.jsonl.zst"
    async with harness(activities=[pay], store=make_store()) as engine:
        await engine.register(paying)
        run = await engine.start("paying", id="p")
        while not calls:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        assert "task_started" in [each.type for each in await run.history()]
        assert await engine.data.export(file) == 1

    async with harness(activities=[], store=make_store("other")) as other:
        with pytest.raises(penstock.Rejected, match="is not known here"):
            await other.data.import_runs(file, take_open=True)
        assert await ids(other) == []
    async with harness(activities=[pay], store=make_store("another")) as other:
        assert await other.data.import_runs(file, take_open=True) == 1
        taken = await other.get("p")
        with pytest.raises(penstock.RunFailed) as failed:
            await other.finish(taken)
        assert "whether it took effect is not known" in str(failed.value)
        assert calls == ["pay"]
        assert await other.data.import_runs(file, take_open=True) == 0  # it is here, and went on
        assert await other.audit() == []


async def test_erased_data_does_not_come_back_from_an_archive_that_was_cut_off(
    engine: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def cut(self: Archives, keys: list[int]) -> None:
        raise RuntimeError("killed here")

    with monkeypatch.context() as patched:
        patched.setattr(Archives, "_purge", cut)
        with pytest.raises(RuntimeError):
            await engine.data.archive(tmp_path)
    await engine.skip(hours=1)
    assert await engine.data.erase("r1", by="me", reason="asked for") > 0
    await engine.skip(hours=1)
    await engine.data.archive(tmp_path)
    run = await engine.get("r1")
    assert "t1" not in str(await run.show())
    assert await engine.audit() == []

    await engine.skip(hours=1)
    newest, _ = await engine.data.archives()
    os.unlink(newest.path)  # the file from before the erasure is all there is
    assert await engine.audit() != []  # and the index that was read is forgotten
    assert "t1" not in str(await (await engine.get("r1")).show())
    assert await engine.data.restore("r1") == 1
    assert "t1" not in str(await (await engine.get("r1")).show())
    assert await engine.audit("r1") == []


async def test_a_lost_archive_keeps_nobody_from_the_others(
    make_store: Make, tmp_path: Path
) -> None:
    async with begun(make_store()) as engine:
        await engine.register(DOCUMENT)
        for n in range(3):
            await engine.finish(await engine.start("two", f"t{n}", id=f"r{n}"))
            await engine.skip(hours=1)
            if n:
                await engine.data.archive(tmp_path)
        newest, _ = await engine.data.archives()
        os.unlink(newest.path)
        assert await engine.audit() != []  # and the index that was read is forgotten
        assert [row.id for row in await engine.data.archived()] == ["r0"]
        assert (await (await engine.get("r0")).show()).status == "COMPLETED"
        assert await engine.data.restore("r0") == 1
        with pytest.raises(penstock.PenstockError) as caught:
            await engine.get("r1")
        assert caught.value.code == "bundle-damaged"
        await engine.finish(await engine.start("two", "t3", id="r3"))
        assert await engine.data.archive(tmp_path) is not None


async def test_an_impossible_path_is_a_clear_error(engine: Harness, tmp_path: Path) -> None:
    for path in (tmp_path / ("x" * 300), tmp_path / "a\0b", Path("/proc/x.zst")):
        with pytest.raises(penstock.PenstockError):
            await engine.data.export(path)


async def test_an_id_that_is_used_again_is_no_alarm(make_store: Make) -> None:
    async with begun(make_store()) as engine:
        await engine.register(DOCUMENT)
        await engine.finish(await engine.start("two", "one", id="x"))
        await engine.data.sign()
        await engine.data.erase("x", by="me", reason="asked for")
        await engine.finish(await engine.start("two", "two", id="y"))
        row = await engine.core.store.find("x")
        assert row is not None
        await engine.core.store.purge([row.key])
        await engine.skip(hours=1)
        await engine.finish(await engine.start("two", "other", id="x"))
        assert await engine.audit() == []
        assert await engine.data.erasures("x") == []
