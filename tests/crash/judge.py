"""Judges a database after all its runs have ended: by its histories, by the trace that activities left, by arithmetic.

Nothing here trusts the engine that wrote it: states are folded anew, hash chains computed anew, results computed in
`workload.py`.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from importlib import import_module
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from crash.workload import Wanted
from penstock.adapters.postgres.store import PostgresStore
from penstock.adapters.sqlite.store import SqliteStore
from penstock.core.functions import FUNCTION, FunctionPlan
from penstock.core.plan import Plan
from penstock.core.values import decode
from penstock.engine.audit import audit
from penstock.engine.history import History, fold
from penstock.model import events as e
from penstock.model.codec import decode_definition, decode_event, encode_run
from penstock.model.failure import Failure
from penstock.model.run import Run
from penstock.ports.store import Row, Store

ACKNOWLEDGED = {"pause": e.RunPaused, "resume": e.RunResumed, "cancel": e.CancelRequested}
TERMINAL = (
    e.RunCompleted, e.RunFailed, e.RunCancelled, e.RunTimedOut, e.RunTerminated, e.RunContinued,
)  # fmt: skip
UNDOABLE = re.compile(r"(~\d+/)?(step|deaf)#")
"""Steps of functions that are undone, if all is."""


@dataclass
class Verdict:
    """What was seen, and what should never be: each a list of complaints."""

    runs: int = 0
    acknowledged: int = 0
    executions: int = 0
    losses: int = 0
    """Attempts recorded as lost."""
    events: Counter[str] = field(default_factory=Counter[str])
    """What there is in the histories, by type."""
    lost: list[str] = field(default_factory=list[str])
    """Acknowledged, or done in the life that nobody ended, and not there."""
    repeated: list[str] = field(default_factory=list[str])
    """Begun again though its result was recorded, or under the same number."""
    stuck: list[str] = field(default_factory=list[str])
    poisoned: list[str] = field(default_factory=list[str])
    wrong: list[str] = field(default_factory=list[str])

    def add(self, other: Verdict) -> None:
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))

    @property
    def complaints(self) -> list[str]:
        return [
            f"{name}: {text}"
            for name in ("lost", "repeated", "stuck", "poisoned", "wrong")
            for text in getattr(self, name)
        ]


@dataclass
class Trace:
    """What activities and clients saw, in order."""

    begins: dict[tuple[str, str], list[int]]
    acks: set[tuple[str, str]]
    ends: set[tuple[str, str, int]] = field(default_factory=set[tuple[str, str, int]])
    """What was done in the life that nobody ended, if it is told apart."""

    @classmethod
    def of(cls, lines: Iterable[str]) -> Trace:
        begins: dict[tuple[str, str], list[int]] = defaultdict(list)
        acks: set[tuple[str, str]] = set()
        ends: set[tuple[str, str, int]] = set()
        last_life = False
        for line in lines:
            word, run, *rest = line.split()
            if word == "begin":
                begins[run, rest[0]].append(int(rest[1]))
            elif word == "ack":
                acks.add((run, rest[0]))
            elif word == "life":
                last_life = True
                ends.clear()
            elif word == "end" and last_life:
                ends.add((run, rest[0], int(rest[1])))
        return cls(begins, acks, ends)


class Books:
    """Histories as they are stored."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._plans: dict[tuple[str, str], Plan] = {}
        self.values = History(store, self.plan)

    async def plan(self, definition: str, version: str) -> Plan:
        plan = self._plans.get((definition, version))
        if plan is None and version == FUNCTION:
            plan = self._plans[definition, version] = FunctionPlan(definition)
        if plan is None:
            row = await self.store.definition(definition, version)
            assert row is not None, definition
            plan = self._plans[definition, version] = Plan(decode_definition(row.document))
        return plan


def judge(
    database: Path | str, log: Path, numbers: Iterable[int], book: str = "workload"
) -> Verdict:
    """All of these runs must have ended, as they should."""
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    wanted = import_module(f"crash.{book}").wanted
    return asyncio.run(_judge(database, Trace.of(lines), [wanted(n) for n in numbers]))


async def _judge(database: Path | str, trace: Trace, wants: Sequence[Wanted]) -> Verdict:
    url = str(database)
    store = PostgresStore(url) if "://" in url else SqliteStore(url)
    await store.open()
    try:
        return await examine(store, trace, wants)
    finally:
        await store.close()


async def examine(store: Store, trace: Trace, wants: Sequence[Wanted]) -> Verdict:
    verdict = Verdict(runs=len(wants), acknowledged=len(trace.acks))
    verdict.executions = sum(map(len, trace.begins.values()))
    verdict.wrong += await audit(store)
    books = Books(store)
    for want in wants:
        row = await store.find(want.id)
        if row is None:
            lost = (want.id, "start") in trace.acks
            (verdict.lost if lost else verdict.stuck).append(f"{want.id} is not there")
            continue
        await _run(books, row, trace, want, verdict)
        for key in want.children:
            child = await store.find(f"{want.id}/{key}")
            if child is None:
                verdict.wrong.append(f"{want.id} has no child {key}")
            else:
                await _run(books, child, trace, None, verdict)
    return verdict


async def _run(books: Books, row: Row, trace: Trace, want: Wanted | None, verdict: Verdict) -> None:
    events: list[e.Event] = []
    done: list[str] = []
    """Keys, those of generations before the last by its number."""
    for generation in range(1, row.generation):
        before = await books.store.find(row.id, generation)
        assert before is not None
        past = (await _generation(books, before, trace, verdict))[0]
        events += past
        done += [f"~{generation}/{key}" for key in _done(past)]
    last, run = await _generation(books, row, trace, verdict)
    events += last
    done += _done(last)
    if want is None:
        return
    name, first = row.id, events[0]
    assert isinstance(first, e.RunStarted)
    if (first.definition, decode(bytes(first.input))) != (want.definition, want.input):
        verdict.wrong.append(f"{name} was started with something else")
    if row.generation != want.generations and not row.open:
        verdict.wrong.append(f"{name} has {row.generation} generations, not {want.generations}")
    _signals(name, events, trace, want, verdict)
    _updates(name, events, trace, want, verdict)
    missing = set(want.must) - set(done)
    if missing and not row.open:
        verdict.wrong.append(f"{name} ended without {sorted(missing)}")
    undone = tuple(event.key for event in events if isinstance(event, e.UndoCompleted))
    undo = want.undone
    if undo is None:
        plain = row.version != FUNCTION
        undo = tuple(key for key in reversed(done) if plain or UNDOABLE.match(key))
    code = "" if run.failure is None else run.failure.code
    if (row.status, code, undone) != (want.status, want.code, undo) and not row.open:
        verdict.wrong.append(
            f"{name} ended {row.status} {code} {undone}, not {want.status} {want.code} {undo}"
        )
    elif row.status == "COMPLETED":
        result = (
            decode(run.result)
            if run.result is not None
            else await books.values.value(row.key, run.result_ref)
        )
        if result != want.result:
            verdict.wrong.append(f"{name} gave {result!r}, not {want.result!r}")


def _done(events: Sequence[e.Event]) -> list[str]:
    return [event.key for event in events if isinstance(event, e.TaskCompleted)]


async def _generation(
    books: Books, row: Row, trace: Trace, verdict: Verdict
) -> tuple[list[e.Event], Run]:
    """One history: whole, ended, and the state is its fold."""
    stored = await books.store.events(row.key)
    events = [decode_event(each.payload) for each in stored]
    name = row.id if row.generation == 1 else f"{row.id}~{row.generation}"
    if row.open:
        last = ", ".join(event.type for event in events[-3:])
        verdict.stuck.append(f"{name} is {row.status} after {last}")
    verdict.events.update(event.type for event in events)
    _attempts(name, events, trace, verdict)
    ends = [place for place, event in enumerate(events) if isinstance(event, TERMINAL)]
    if not row.open and ends != [len(events) - 1]:
        verdict.wrong.append(f"{name} has terminal events at {ends} of {len(events)}")
    # The state is the fold of the events, and a snapshot changes nothing.
    plan = await books.plan(row.definition, row.version)
    entry = fold(replace(row), plan, None, stored)
    run = entry.flow.run
    due = run.dues[0][0] if run.dues else None
    facts = (run.status, run.revision, run.ended_at is None, run.paused, due, entry.hash)
    if facts != (row.status, row.revision, row.open, row.paused, row.next_due, row.hash):
        verdict.wrong.append(f"{name}: its row is not what its events say")
    snapshot = await books.store.snapshot(row.key)
    if snapshot is not None:
        tail = stored[snapshot.revision :]
        again = fold(replace(row), plan, snapshot, tail)
        if encode_run(again.flow.run) != encode_run(run):
            verdict.wrong.append(
                f"{name}: its snapshot at {snapshot.revision} and its tail give another state"
            )
    return events, run


def _updates(
    name: str, events: Sequence[e.Event], trace: Trace, want: Wanted, verdict: Verdict
) -> None:
    """What was answered is in the history, once."""
    answers = [event for event in events if isinstance(event, e.UpdateAnswered)]
    for number, (_, _, answer) in enumerate(want.updates):
        id = f"{name}:update:{number}"
        found = [decode(bytes(each.output)) for each in answers if each.id == id]
        if (name, f"update:{id}") in trace.acks and not found:
            verdict.lost.append(f"{name}: update {number}")
        elif found not in ([], [answer]):
            verdict.wrong.append(f"{name}: update {number} was answered {found}, not {answer}")


def _attempts(name: str, events: Sequence[e.Event], trace: Trace, verdict: Verdict) -> None:
    """Each attempt begins at most once, none after the one whose result was recorded, and none is lost for good."""
    done: dict[str, int] = {}
    seen: set[tuple[str, int]] = set()
    losses: list[tuple[str, int]] = []
    completed: set[tuple[str, int]] = set()
    stopped = False
    for event in events:
        match event:
            case e.TaskCompleted() | e.TaskFailed() | e.UndoCompleted():
                key = _key(event)
                if key in done:
                    verdict.wrong.append(f"{name}: {key} has two results")
                done[key] = event.attempt
                seen.add((key, event.attempt))
                if not isinstance(event, e.TaskFailed):
                    completed.add((key, event.attempt))
                elif _mentions(event.failure, "poison"):
                    verdict.poisoned.append(f"{name}: {key}")
            case e.TaskLost() | e.UndoLost():
                losses.append((_key(event), event.attempt))
                seen.add(losses[-1])
            case e.TaskRetried():
                seen.add((event.key, event.attempt))
            case e.CancelRequested() | e.TimeoutReached():
                stopped = True
            case _:
                pass
    verdict.losses += len(losses)
    for key, attempt in losses:
        if (key, attempt + 1) not in seen and (not stopped or key.startswith("undo:")):
            verdict.stuck.append(
                f"{name}: no attempt of {key} follows the loss of attempt {attempt}"
            )
    for run, key, attempt in trace.ends:
        if run == name and (key, attempt) not in completed:
            verdict.lost.append(f"{name}: attempt {attempt} of {key} was done and nobody says so")
    for key, attempt in done.items():
        begun = trace.begins.get((name, key), [])
        if len(set(begun)) != len(begun):
            verdict.repeated.append(f"{name}: {key} began as {begun}")
        elif begun and max(begun) > attempt:
            verdict.repeated.append(
                f"{name}: {key} was done by attempt {attempt} and began as {begun}"
            )
        elif (key, attempt) in completed and attempt not in begun:
            verdict.wrong.append(
                f"{name}: {key} has a result of attempt {attempt} and began as {begun}"
            )


def _key(event: Any) -> str:
    """Undos are told apart from what they undo, as in the trace."""
    return f"undo:{event.key}" if isinstance(event, e.UndoCompleted | e.UndoLost) else event.key


def _mentions(failure: Failure | None, code: str) -> bool:
    return failure is not None and (failure.code == code or _mentions(failure.cause, code))


def _signals(
    name: str, events: Sequence[e.Event], trace: Trace, want: Wanted, verdict: Verdict
) -> None:
    received = [event.id for event in events if isinstance(event, e.SignalReceived)]
    if len(set(received)) != len(received) and want.generations == 1:
        verdict.wrong.append(f"{name} received a signal twice: {received}")
    for word, kind in ACKNOWLEDGED.items():
        if (name, word) in trace.acks and not any(isinstance(event, kind) for event in events):
            verdict.lost.append(f"{name}: {word}")
    for run, word in trace.acks:
        if (
            run == name
            and word.startswith("signal:")
            and word.removeprefix("signal:") not in received
        ):
            verdict.lost.append(f"{name}: {word}")
