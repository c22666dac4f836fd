"""Histories for people: what a run did, in lines that can be compared, kept as golden files, and told to new code."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from penstock.engine.programs import tell
from penstock.model import events as e
from penstock.model import intents as i
from penstock.model.codec import decode_event, encode_event
from penstock.ports.runs import HistoryItem
from penstock.ports.store import Row, RunKey, Snapshot, Stored
from penstock.sdk.client import Run
from penstock.sdk.functions import Functions


def lines_of(history: Iterable[HistoryItem]) -> list[str]:
    """One line for each thing that happened, and, of a workflow function, what it wanted then; without times and ids."""
    made: list[str] = []
    begun = 0.0
    function = False
    for item in history:
        event = item.event
        if isinstance(event, e.RunStarted):
            begun, function = event.at, event.version == "function"
        if isinstance(event, e.TaskStarted | e.TaskProgressed):
            continue  # progress, which a busy machine makes more or less of
        made.append(f"{_after(event.at - begun)} {_told(event)}")
        if function:
            for raw in event.outcomes:
                made += [f"    {_wanted(each, begun)}" for each in i.DECODER.decode(raw)]
    return made


def _told(event: e.Event) -> str:
    match event:
        case e.RunStarted():
            return f"started {event.definition} with {_text(event.input)}"
        case e.TaskCompleted():
            return f"{event.key} completed: {_text(event.output)}"
        case e.TaskFailed():
            return f"{event.key} failed: {event.failure.code}: {event.failure.message}"
        case e.TaskRetried():
            return f"{event.key} attempt {event.attempt} failed: {event.failure.code}: {event.failure.message}"
        case e.SignalReceived():
            return f"{'update' if event.update else 'signal'} {event.name}: {_text(event.payload)}"
        case e.ChildClosed():
            return f"{event.key} ended {event.status}: {_text(event.output)}"
        case e.RunCompleted():
            return f"completed: {_text(event.output)}"
        case e.RunFailed():
            return f"failed: {event.failure.code}: {event.failure.message}"
        case e.UpdateAnswered():
            return f"answered: {event.refused or _text(event.output)}"
        case e.Published():
            return f"published {event.topic}: {_text(event.payload)}"
        case e.SignalSent():
            return f"sent {event.name}: {_text(event.payload)}"
        case _:
            key = getattr(event, "key", "")
            return f"{key} {event.type}".strip()


def _wanted(intent: i.Intent, begun: float) -> str:
    match intent:
        case i.Call():
            undo = f", undo {intent.undo}" if intent.undo else ""
            return f"call {intent.key} {_text(intent.arguments)}{undo}"
        case i.Sleep():
            return f"{intent.key} until {_after(intent.due - begun)}"
        case i.Await():
            until = "" if intent.due is None else f" until {_after(intent.due - begun)}"
            return f"wait for {intent.key}{until}"
        case i.Child():
            return f"start {intent.key} {_text(intent.input)}"
        case i.Drop():
            return f"give up {intent.key}"
        case i.Note():
            return f"note {intent.key} {_text(intent.value)}"
        case i.Finish():
            return f"return {_text(intent.output)}"
        case i.Break():
            return f"raise {intent.failure.code}: {intent.failure.message}"
        case _:
            return f"{type(intent).__name__.lower()} {getattr(intent, 'key', '')}".strip()


def _after(seconds: float) -> str:
    """`+30d1h5s`, exact."""
    whole, rest = divmod(round(seconds, 3), 60)
    minutes, hours, days = int(whole) % 60, int(whole) // 60 % 24, int(whole) // 1440
    parts = [f"{n}{unit}" for n, unit in ((days, "d"), (hours, "h"), (minutes, "m")) if n]
    if rest or not parts:
        parts.append(f"{round(rest, 3):g}s")
    return "+" + "".join(parts)


def _text(raw: Any) -> str:
    text = bytes(raw).decode()
    return text if len(text) <= 200 else f"{text[:199]}…"


class Golden:
    """Histories kept in a folder: what runs did when a test was written, and what they must do ever after."""

    def __init__(self, folder: Path, *, write: bool) -> None:
        self.folder, self._write = folder, write

    async def check(self, run: Run[Any], name: str) -> None:
        """The run did what the golden history `name` says; the difference is shown line by line."""
        history = await run.history()
        found = lines_of(history)
        path = self.folder / f"{name}.history"
        if self._write or not path.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            path.write_text("\n".join(found) + "\n", encoding="utf-8")
            events = [encode_event(item.event) for item in history]
            (self.folder / f"{name}.jsonl").write_bytes(b"".join(each + b"\n" for each in events))
            return
        kept = path.read_text(encoding="utf-8").splitlines()
        if kept != found:
            difference = "\n".join(
                difflib.unified_diff(kept, found, f"{path} (golden)", "this run", lineterm="", n=2)
            )
            raise AssertionError(
                f"the run does not do what {path} says; --penstock-golden writes it anew if that is meant\n{difference}"
            )

    async def replay(self, name: str, *workflows: Any) -> None:
        """The code of today fits the golden history: a run that was open then would go on."""
        lines = (self.folder / f"{name}.jsonl").read_bytes().splitlines()
        await replayed(workflows, lines)


async def replayed(workflows: Iterable[Any], events: Iterable[bytes]) -> None:
    """Tell a history, as stored, to workflow functions; Nondeterminism if it does not fit."""
    stored = [Stored(0, 0, seq, payload, b"") for seq, payload in enumerate(events, 1)]
    first = decode_event(stored[0].payload)
    assert isinstance(first, e.RunStarted)
    row = Row(
        id=first.id, generation=first.generation, definition=first.definition, version=first.version, status="RUNNING",
        revision=len(stored), created_at=first.at, updated_at=first.at,
    )  # fmt: skip
    program = await tell(Functions(workflows, guard=True), row, _Events(stored))
    program.close()


class _Events:
    """Events in memory, read as from a store."""

    def __init__(self, stored: list[Stored]) -> None:
        self._stored = stored

    async def events(
        self, key: RunKey, *, after: int = 0, limit: int | None = None
    ) -> list[Stored]:
        return self._stored[after:]

    async def events_many(self, keys: Any) -> dict[RunKey, list[Stored]]:
        return dict.fromkeys(keys, self._stored)

    async def payloads(self, key: RunKey, seqs: Sequence[int]) -> dict[int, bytes]:
        return {seq: self._stored[seq - 1].payload for seq in seqs}

    async def blobs(self, key: RunKey, digests: Any) -> dict[bytes, bytes]:
        return {}

    async def snapshots_many(self, keys: Any) -> dict[RunKey, Snapshot]:
        return {}


class Steps:
    """What a run did, for assertions."""

    def __init__(self, history: Iterable[HistoryItem]) -> None:
        self._history = list(history)

    @property
    def lines(self) -> list[str]:
        return lines_of(self._history)

    @property
    def types(self) -> list[str]:
        return [item.event.type for item in self._history]

    def outputs(self, name: str) -> list[Any]:
        """What the activity, or task, of that name gave, in the order in which it did."""
        return [
            msgspec.json.decode(item.event.output)
            for item in self._history
            if isinstance(item.event, e.TaskCompleted) and _named(item.event.key) == name
        ]

    def failures(self, name: str) -> list[str]:
        """The codes with which it failed for good."""
        return [
            item.event.failure.code
            for item in self._history
            if isinstance(item.event, e.TaskFailed) and _named(item.event.key) == name
        ]

    def calls(self, name: str) -> list[Any]:
        """What a workflow function called the activity with, in order."""
        return [
            msgspec.json.decode(each.arguments)
            for item in self._history
            for raw in item.event.outcomes
            for each in i.DECODER.decode(raw)
            if isinstance(each, i.Call) and each.activity == name
        ]

    def undone(self) -> list[str]:
        """Keys of what was undone, in order."""
        return [item.event.key for item in self._history if isinstance(item.event, e.UndoCompleted)]


def _named(key: str) -> str:
    return key.rpartition("/")[2].partition("#")[0]
