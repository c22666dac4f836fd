"""An open run out of a file, as a process takes it over after a crash (SPEC 4.8, 18).

Where it came from, attempts may have begun: they are recorded as lost in the very commit that brings the run here, so
that nobody, whoever owns the database, begins one of a `once` activity again. Killed before the commit nothing is here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from penstock.core.owed import owed
from penstock.core.turn import Turn, turn
from penstock.core.values import Need
from penstock.engine.history import Entry, History, Source
from penstock.errors import Rejected
from penstock.model import commands as c
from penstock.model.chain import link, prefix
from penstock.model.effects import Abandon, Execute
from penstock.ports.store import Append

if TYPE_CHECKING:
    from penstock.engine.bundle import WholeRun
    from penstock.engine.engine import Engine

NEEDS_MAX = 20


async def taken_over(engine: Engine, whole: WholeRun, source: Source) -> Append:
    """The append that brings it here; refused if nobody here knows whether a begun attempt may be made again."""
    history = History(source, engine.plan)
    entry = await _loaded(history, whole)
    lost = _lost(engine, entry)
    outcome = await _turn(engine, history, whole, entry, lost)
    payloads, blobs = [each.payload for each in whole.events], dict(whole.blobs)
    if outcome.events:
        more = engine.commits.append_of(entry, outcome.events)
        payloads += more.payloads
        blobs |= more.blobs
    return Append(
        row=replace(entry.row, key=0, hash=b""), expected=0, payloads=payloads, blobs=blobs
    )


async def check_takeable(
    whole: WholeRun, source: Source, plans: Callable[[str, str], Any], served: Callable[[str], bool]
) -> None:
    """Refused as `taken_over` would be, before there is a database or anything in it."""
    entry = await _loaded(History(source, plans), whole)
    for effect in owed(entry.flow.run):
        if isinstance(effect, Abandon) or (isinstance(effect, Execute) and not effect.undo):
            _check_known(served, entry, effect.key)


def head_of(append: Append) -> bytes:
    """The hash of its last event, as the chain says."""
    head, start = append.previous, prefix(append.row.id, append.row.generation)
    for seq, payload in enumerate(append.payloads, append.expected + 1):
        head = link(head, start, seq, payload)
    return head


async def _loaded(history: History, whole: WholeRun) -> Entry:
    entry = (await history.load([replace(whole.row)]))[whole.row.id]
    if isinstance(entry, Exception):
        raise entry
    return entry


async def _turn(
    engine: Engine, history: History, whole: WholeRun, entry: Entry, commands: list[c.Command]
) -> Turn:
    for _ in range(NEEDS_MAX):
        entry.flow.globals = engine.globals
        try:
            return turn(entry.flow, commands)
        except Need as need:
            again = await _loaded(history, whole)
            await history.bring(again.flow, again.row.key, need.refs | set(entry.flow.values))
            entry.flow, entry.row, entry.attributes = again.flow, again.row, again.attributes
    raise Rejected("advance-limit", f"run {whole.row.id} asks for ever more of its values")


def _lost(engine: Engine, entry: Entry) -> list[c.Command]:
    run, now = entry.flow.run, engine.clock.now()
    commands: list[c.Command] = []
    for effect in owed(run):
        if not isinstance(effect, Execute | Abandon):
            continue
        undo = isinstance(effect, Execute) and effect.undo
        if not undo:
            _check_known(lambda name: engine.activities.get(name) is not None, entry, effect.key)
        commands.append(
            c.LoseTask(
                at=now, key=effect.key, attempt=effect.attempt, once=engine.attempts.once(entry, effect.key),
                undo=undo, generation=run.generation,
            )
        )  # fmt: skip
    return commands


def _check_known(served: Callable[[str], bool], entry: Entry, key: str) -> None:
    """Whether an activity runs at most once is known only where it is served."""
    try:
        _, _, node, state = entry.flow.locate(key)
    except KeyError:
        return
    activity = str(node.config.get("activity", ""))
    if (
        node.type == "activity"
        and state.started
        and not node.config.get("once")
        and not served(activity)
    ):
        raise Rejected(
            "run-open",
            f"an attempt of `{key}` of run {entry.row.id} was under way, and whether `{activity}` may be called again"
            " is not known here; nothing was imported",
            hint=f"import it from a program that has the activity: engine.data.import_runs(…) with `{activity}`",
        )
