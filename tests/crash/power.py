"""Power loss: a workload is recorded down to its writes and syncs, then cut off at many places, reopened and judged.

`crash/disk.py` says how, and why that is faithful. At each cut: nothing half-written, every chain whole, all that was
acknowledged before is there, nothing had begun that was not on disk; then an engine recovers and ends all runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import pickle
import random
import signal
import sqlite3
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

import penstock
from crash import disk, victim, workload
from crash.harness import Nursery, Story
from crash.judge import Books, Trace, Verdict, judge
from penstock.adapters.sqlite import connections as sqlite_connections
from penstock.adapters.sqlite.store import SqliteStore
from penstock.engine import points
from penstock.engine.audit import audit
from penstock.engine.engine import Settings
from penstock.engine.history import fold
from penstock.errors import PenstockError
from penstock.model.codec import decode_event
from penstock.ports.store import Append, Appended, Store

RUNS = 40
DATABASE = "penstock.db"
SECONDS_MAX = 250


class Orders(msgspec.Struct):
    """Record into `folder`, or (`cuts`) judge the cuts of what was recorded there."""

    folder: str
    cuts: list[int] | None = None
    answer: str = ""
    seed: int = 0
    lying: bool = False
    only_look: bool = False
    runs: int = RUNS


def main(orders: Orders) -> int:
    signal.alarm(SECONDS_MAX)
    logging.basicConfig(level=logging.ERROR)
    if orders.cuts is None:
        record(Path(orders.folder), orders.runs)
    else:
        verdict = cut_all(orders)
        Path(orders.answer).write_bytes(msgspec.json.encode(verdict))
    return 0


# --- recording -----------------------------------------------------------------------------------------------


def record(folder: Path, runs: int) -> None:
    recorder = disk.Recorder()
    vfs = disk.Vfs(recorder)
    points.reach = None
    victim.small()
    sqlite_connections.WAL_FRAMES_MAX = 40
    SqliteStore.connection_class = disk.Connection  # type: ignore[assignment]
    append = SqliteStore.append

    async def noted(self: SqliteStore, appends: Sequence[Append]) -> list[Appended | Exception]:
        results = await append(self, appends)
        for each, result in zip(appends, results, strict=True):
            if isinstance(result, Appended):
                recorder.note("stored", each.row.id, each.row.revision, result.hash)
        return results

    SqliteStore.append = noted  # type: ignore[method-assign]
    workload.trace = victim.trace = lambda *words: recorder.note("line", " ".join(map(str, words)))
    workload.seconds_max = 0.004
    (folder / "live").mkdir()
    asyncio.run(_work(folder / "live", runs))
    del vfs
    (folder / "ops").write_bytes(pickle.dumps(recorder.ops))


async def _work(folder: Path, runs: int) -> None:
    # Twice, so that closing, opening again and a log that is begun anew are among what is cut.
    for first, last in ((0, runs // 2), (runs // 2, runs)):
        settings = Settings(cache_runs=40)
        async with penstock.open(
            f"sqlite:///{folder / DATABASE}", activities=workload.ACTIVITIES, settings=settings
        ) as engine:
            for definition in workload.DEFINITIONS:
                await engine.register(definition)
            async with asyncio.TaskGroup() as group:
                for number in range(first, last):
                    group.create_task(victim.drive(engine, workload.wanted(number), set()))
                    await asyncio.sleep(0.001)


# --- cutting -------------------------------------------------------------------------------------------------


def cut_all(orders: Orders) -> Verdict:
    folder = Path(orders.folder)
    ops: list[disk.Op] = pickle.loads((folder / "ops").read_bytes())
    platter = disk.Platter(ops, lying=orders.lying)
    verdict = Verdict()
    for cut in sorted(orders.cuts or ()):
        platter.forward(cut)
        dice = random.Random(f"{orders.seed}/{cut}")
        place = folder / f"cut-{cut}-{orders.seed}"
        place.mkdir()
        platter.leave(place, dice)
        one = _cut(place, ops[:cut], orders)
        verdict.add(one)
        if not one.complaints:
            for file in place.iterdir():
                file.unlink()
            place.rmdir()
    return verdict


def _cut(place: Path, before: Sequence[disk.Op], orders: Orders) -> Verdict:
    notes = [op[1:] for op in before if op[0] == "note"]
    lines = [note[1] for note in notes if note[0] == "line"]
    verdict = Verdict()
    database = place / DATABASE
    asyncio.run(_look(database, notes, verdict))
    if orders.only_look or verdict.complaints:
        verdict.wrong = [f"{place.name}: {text}" for text in verdict.wrong]
        return verdict
    log = place / "log"
    log.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    finished = asyncio.run(victim.live(victim.Orders(str(database), str(log), last=orders.runs)))
    if not finished:
        verdict.stuck.append(place.name)
    verdict.add(judge(database, log, range(orders.runs)))
    return verdict


async def _look(database: Path, notes: Sequence[Sequence[Any]], verdict: Verdict) -> None:
    """The files as they were left, before any engine touches them."""
    SqliteStore.connection_class = sqlite3.Connection
    store = SqliteStore(database)
    try:
        await store.open()
        await _check(store, database, notes, verdict)
    except (PenstockError, sqlite3.Error) as error:
        verdict.wrong.append(f"{type(error).__name__}: {error}")
    finally:
        await store.close()


async def _check(
    store: Store, database: Path, notes: Sequence[Sequence[Any]], verdict: Verdict
) -> None:
    with sqlite3.connect(database) as db:
        verdict.wrong += [text for (text,) in db.execute("PRAGMA integrity_check") if text != "ok"]
    db.close()
    verdict.wrong += await audit(store)
    newest: dict[str, tuple[int, bytes]] = {}
    for note in notes:
        if note[0] == "stored":
            newest[note[1]] = (note[2], note[3])
    books = Books(store)
    begins = Trace.of(note[1] for note in notes if note[0] == "line").begins
    attempts: dict[str, dict[str, int]] = {}
    for (run, key), numbers in begins.items():
        attempts.setdefault(run, {})[key] = max(numbers)
    for id, (revision, hash) in newest.items():
        row = await store.find(id)
        stored = [] if row is None else await store.events(row.key)
        if len(stored) < revision or stored[revision - 1].hash != hash:
            verdict.lost.append(
                f"{database.parent.name}: {id} was stored up to {revision}, and has {len(stored)}"
            )
            continue
        assert row is not None
        # Nothing has begun that the events on disk do not want.
        plan = await books.plan(row.definition, row.version)
        flow = fold(replace(row), plan, None, stored).flow
        events = [decode_event(each.payload) for each in stored]
        for key, attempt in attempts.get(id, {}).items():
            bare = key.removeprefix("undo:")
            known = [
                getattr(event, "attempt", 0)
                for event in events
                if getattr(event, "key", "") == bare
            ]
            if bare in flow.run.undoing and bare != key:
                known.append(flow.run.undoing[bare].attempt)
            elif bare in flow.run.ending and bare == key:
                known.append(flow.run.ending[bare].attempt)
            elif not flow.run.closed:
                with contextlib.suppress(KeyError):
                    known.append(flow.locate(bare)[3].attempt)
            if attempt > max(known, default=0):
                verdict.wrong.append(
                    f"{database.parent.name}: {id} {key} began as {attempt} before that was on disk"
                )
    for id in attempts:
        if id not in newest:
            verdict.wrong.append(f"{database.parent.name}: {id} began before it was stored")


# --- from outside --------------------------------------------------------------------------------------------


def _made(kind: type[Counter[str]], value: dict[str, int]) -> Counter[str]:
    return kind(value)


def cuts(
    folder: Path,
    *,
    count: int,
    seed: int,
    lying: bool = False,
    only_look: bool = False,
    workers: int = 2,
    runs: int = RUNS,
) -> Story:
    """Record once, cut at `count` places; kills are cuts here."""
    story = Story("power")
    home = folder / f"power-{seed}{'-lying' if lying else ''}"
    home.mkdir()
    errors = folder / f"errors-power-{seed}"
    plain = Orders(str(home), seed=seed, lying=lying, only_look=only_look, runs=runs)
    with Nursery(errors, "crash.power") as nursery:
        nursery.bear(plain)
        if nursery.wait(SECONDS_MAX) != 0:
            story.verdict.wrong.append(f"recording failed: {errors.read_text()[-2000:]}")
            return story
    ops: list[disk.Op] = pickle.loads((home / "ops").read_bytes())
    places = choose(ops, count, random.Random(seed))

    def part(number: int) -> Verdict:
        answer = home / f"answer-{number}"
        with Nursery(errors, "crash.power") as nursery:
            nursery.bear(replace(plain, cuts=places[number::workers], answer=str(answer)))
            status = nursery.wait(SECONDS_MAX)
        if status != 0:
            return Verdict(wrong=[f"cutting ended with {status}: {errors.read_text()[-2000:]}"])
        return msgspec.json.decode(answer.read_bytes(), type=Verdict, dec_hook=_made)

    with ThreadPoolExecutor(workers) as pool:
        for verdict in pool.map(part, range(workers)):
            story.verdict.add(verdict)
    story.kills = len(places)
    story.restarts = len(places)
    return story


def choose(ops: Sequence[disk.Op], count: int, dice: random.Random) -> list[int]:
    """Half of them anywhere; half just before or after a sync, where the difference is made."""
    syncs = [
        place for place, op in enumerate(ops) if op[0] in ("sync", "truncate", "names", "delete")
    ]
    found: set[int] = set()
    while len(found) < count:
        if len(found) % 2:
            found.add(dice.choice(syncs) + dice.choice((0, 1, 2)))
        else:
            found.add(dice.randint(1, len(ops)))
    return sorted(found)
