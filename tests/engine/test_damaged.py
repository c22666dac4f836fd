"""Files and connections that are not what they should be: each is refused with code and hint, and changes nothing (SPEC 6, 18)."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.adapters.sqlite.store import SqliteStore
from penstock.engine import bundle
from penstock.engine.bundle import Header, Reader, Writer
from penstock.engine.settings import Settings
from penstock.testing.harness import Harness, harness
from penstock.wiring import restore
from support.stores import Make

KEY = b"a key that the database does not have"
DOCUMENT = {"id": "d", "tasks": {"a": {"type": "transform", "config": {"set": {"x": "input"}}}}}


def begun(store: Any, key: bytes | None = KEY) -> Any:
    return harness(store=store, settings=Settings(drain_seconds=0, audit_key=key))


async def filled(engine: Harness) -> None:
    await engine.register(DOCUMENT)
    for n in range(3):
        await engine.finish(await engine.start("d", "text" * 200 * (n + 1), id=f"r{n}"))
        await engine.skip(hours=1)


def no_file(file: Path) -> None:
    file.unlink()


def empty(file: Path) -> None:
    file.write_bytes(b"")


def a_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def cut_off(file: Path) -> None:
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])


def cut_by_one(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def longer(file: Path) -> None:
    file.write_bytes(file.read_bytes() + b"more")


def flipped(file: Path) -> None:
    """A bit in each part of it."""
    whole = bytearray(file.read_bytes())
    for place in range(50, len(whole), 100):
        whole[place] ^= 1
    file.write_bytes(whole)


def another_kind(file: Path) -> None:
    file.write_bytes(b"# not what it should be\n" * 100)


def zeros(file: Path) -> None:
    file.write_bytes(bytes(len(file.read_bytes())))


def rewritten(file: Path, **header: Any) -> None:
    """The same runs, by another header."""
    reader = Reader(file, KEY)
    runs = [reader.run(each) for each in reader.index.runs]
    definitions = list(reader.definitions())
    file.unlink()
    writer = Writer(file, Header(**{"penstock": "runs", "format": 1, "made_at": 0.0, **header}))
    for definition in definitions:
        writer.define(definition)
    for run in runs:
        writer.add(run)
    writer.finish(KEY)


def newer(file: Path) -> None:
    rewritten(file, format=bundle.FORMAT + 1)


def of_another_program(file: Path) -> None:
    rewritten(file, penstock="something else")


Damage = Callable[[Path], None]
DAMAGES: list[Damage] = [
    no_file, empty, a_folder, cut_off, cut_by_one, longer, flipped, another_kind, zeros, newer, of_another_program,
]  # fmt: skip


async def refused(call: Any, *codes: str) -> penstock.PenstockError:
    with pytest.raises(penstock.PenstockError) as caught:
        await call
    assert caught.value.code in codes, caught.value
    assert caught.value.hint, caught.value
    return caught.value


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_damaged_bundle_is_not_imported(damage: Damage, tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl.zst"
    async with begun(SqliteStore(tmp_path / "a.db")) as engine:
        await filled(engine)
        await engine.data.export(file)
    damage(file)
    async with begun(SqliteStore(tmp_path / "b.db")) as engine:
        await refused(engine.data.import_runs(file), "bundle-damaged")
        assert await engine.list() == []
        assert await engine.core.store.definitions() == []


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_damaged_archive_is_neither_read_nor_restored(
    damage: Damage, tmp_path: Path
) -> None:
    path = tmp_path / "a.db"
    async with begun(SqliteStore(path)) as engine:
        await filled(engine)
        archived = await engine.data.archive(tmp_path)
        assert archived is not None
        assert archived.runs == 2
    damage(Path(archived.path))
    async with begun(SqliteStore(path)) as engine:  # which has read nothing of it
        (problem,) = await engine.audit()
        assert archived.path in problem
        await refused(engine.data.restore("r0"), "bundle-damaged")
        await refused(_shown(engine, "r0"), "bundle-damaged")
        assert [row.id for row in await engine.list()] == ["r2"]
        await engine.finish(await engine.start("d", "goes on", id="more"))


async def _shown(engine: Harness, id: str) -> Any:
    return await (await engine.get(id)).show()


async def test_a_file_of_another_key(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl.zst"
    async with begun(SqliteStore(tmp_path / "a.db"), b"another") as engine:
        await filled(engine)
        await engine.data.export(file)
    async with begun(SqliteStore(tmp_path / "b.db")) as engine:
        await refused(engine.data.import_runs(file), "bundle-damaged")


def older_program(file: Path) -> None:
    """A database, but of somebody else."""
    file.unlink()
    with closing(sqlite3.connect(file)) as db:
        db.execute("CREATE TABLE other (x)")
        db.commit()


def newer_schema(file: Path) -> None:
    with closing(sqlite3.connect(file)) as db:
        db.execute("PRAGMA user_version = 999")


BACKUPS: list[Damage] = [
    no_file, empty, a_folder, cut_off, another_kind, zeros, older_program, newer_schema, flipped,
]  # fmt: skip


@pytest.mark.parametrize("damage", BACKUPS)
async def test_a_damaged_backup_is_not_restored(damage: Damage, tmp_path: Path) -> None:
    copy, target = tmp_path / "copy.db", tmp_path / "again.db"
    async with begun(SqliteStore(tmp_path / "a.db")) as engine:
        await filled(engine)
        await engine.data.backup(copy)
    if damage is flipped:
        _break_page(copy)
    else:
        damage(copy)
    with pytest.raises(penstock.PenstockError) as caught:
        restore(f"sqlite:///{target}", str(copy))
    assert caught.value.code != "error"
    assert caught.value.hint, caught.value
    assert [name for name in os.listdir(tmp_path) if "again" in name] == []


def _break_page(file: Path) -> None:
    """The header of a page in the middle: what SQLite looks at when it checks."""
    whole = bytearray(file.read_bytes())
    place = 4096 * (len(whole) // 8192)
    whole[place : place + 8] = b"\xff" * 8
    file.write_bytes(whole)


async def test_what_is_not_there_cannot_be_erased_restored_or_read(make_store: Make) -> None:
    async with begun(make_store()) as engine:
        await filled(engine)
        data = engine.data
        who: dict[str, Any] = {"by": "me", "reason": "asked for"}
        before = await _histories(engine)
        for call in (
            data.erase("none", **who),
            data.erase("r0", tasks=["none"], **who),
            data.erase("r0", events=[0], **who),
            data.erase("r0", events=[99], **who),
            data.erasures("none"),
            data.restore("none"),
            data.payload("none", 1),
            data.payload("r0", 0),
            data.payload("r0", 99),
            engine.audit("none"),
        ):
            await refused(call, "not-found")
        await refused(data.erase("r0", by="", reason=""), "who-missing")
        assert await data.erase("r0", tasks=[], **who) == 0
        assert await data.erase("r0", events=[], **who) == 0
        assert await _histories(engine) == before
        assert await engine.audit() == []


async def _histories(engine: Harness) -> list[Any]:
    return [await (await engine.get(row.id)).history() for row in await engine.list()]


def nonsense() -> Iterator[tuple[str, Any]]:
    for value in (-1, float("nan"), float("inf"), True, "soon", b"x", [], {}, 10**400, object()):
        yield "retention", value
        yield "roots_every", value
    yield "roots_every", 0
    yield "roots_every", None
    for value in (1, True, "", b"", [], object(), "\ud800"):
        yield "audit_key", value


@pytest.mark.parametrize(("name", "value"), list(nonsense()))
def test_settings_that_make_no_sense_are_refused(name: str, value: Any) -> None:
    with pytest.raises(penstock.PenstockError) as caught:
        Settings(**{name: value})
    assert caught.value.code in ("limit-invalid", "audit-key-invalid")
    assert name in caught.value.message
    assert caught.value.hint
