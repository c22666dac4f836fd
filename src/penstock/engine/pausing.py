"""Definitions that operators have paused: which, by whom and why, and who let them go on (SPEC 4.9).

That one is paused is told by its record being there, whatever is in it: one that cannot be read still pauses. A resume is
written down before the record is dropped: killed in between, the definition is still paused and can be resumed again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.json import Decoder

from penstock.engine import points
from penstock.engine.checks import check_texts
from penstock.engine.records import read, readable, tell, written
from penstock.engine.verdicts import forced_acts
from penstock.errors import NotFound, Rejected, RevisionConflict, StoreCorrupt
from penstock.ports.control import DefinitionAct, PausedDefinition
from penstock.ports.store import Record

if TYPE_CHECKING:
    from penstock.engine.engine import Engine

PAUSED = "paused"
"""The kind of the records that name paused definitions."""
ACTS = "definition-acts"
ACTS_MAX = 100
"""Acts on one definition that are kept, the newest."""
TRIES_MAX = 20
_PAUSE = Decoder(PausedDefinition)
_ACTS = Decoder(list[DefinitionAct])


class Pausing:
    """See the module's docstring."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        engine.tending.serve(PAUSED, self._look)

    async def pause(self, definition: str, *, by: str | None, reason: str) -> None:
        check_texts(definition=definition, by=by, reason=reason)
        store = self._engine.store
        if not await self._engine.known.exists(definition):
            raise _unknown(definition)
        if await store.record(PAUSED, definition) is not None:
            return
        value = PausedDefinition(definition, self._engine.clock.now(), by, reason)
        # Refused if another was first: then it is paused all the same.
        await store.put([Record(PAUSED, definition, written(_PAUSE, value))])
        await self._tell(definition)

    async def resume(self, definition: str, *, by: str | None, reason: str) -> None:
        check_texts(definition=definition, by=by, reason=reason)
        store, now = self._engine.store, self._engine.clock.now()
        for _ in range(TRIES_MAX):
            record = await store.record(PAUSED, definition)
            if record is None:
                raise Rejected(
                    "definition-not-paused",
                    f"definition `{definition:.80}` is not paused",
                    hint="`paused_definitions` lists those that are",
                )
            kept, acts = await self._acts(definition)
            acts = [
                *_with_pause(acts, _pause_of(record)),
                DefinitionAct("resume", now, by, reason),
            ]
            revision = 0 if kept is None else kept.revision
            value = written(_ACTS, acts[-ACTS_MAX:])
            (put,) = await store.put([Record(ACTS, definition, value, revision)])
            if not isinstance(put, RevisionConflict):
                break
        else:
            raise Rejected(
                "definition-contended", f"others keep resuming `{definition}`", hint="try again"
            )
        if points.reach is not None:
            points.reach("resume.written")
        await store.drop(PAUSED, [definition])
        if points.reach is not None:
            points.reach("resume.dropped")
        await self._tell(definition)

    async def paused(self) -> list[PausedDefinition]:
        return [_pause_of(each) for each in await self._engine.paused_records()]

    async def acts(self, definition: str) -> list[DefinitionAct]:
        """Who paused, resumed and forced it, when and why; the oldest first."""
        check_texts(definition=definition)
        store = self._engine.store
        if not await self._engine.known.exists(definition):
            raise _unknown(definition)
        record = await store.record(PAUSED, definition)
        _, acts = await self._acts(definition)
        acts = acts if record is None else _with_pause(acts, _pause_of(record))
        forced = await forced_acts(self._engine, definition)
        return sorted([*forced, *acts], key=lambda act: act.at)

    async def _acts(self, definition: str) -> tuple[Record | None, list[DefinitionAct]]:
        record = await self._engine.store.record(ACTS, definition)
        for _, acts in readable(_ACTS, [] if record is None else [record]):
            return record, acts
        return record, []

    async def _tell(self, definition: str) -> None:
        """In force at once here, and by a hint where the runs are executed."""
        if self._engine.owner is not None:
            await self._engine.load_paused()
        else:
            await self._engine.tell_owner([f"{PAUSED}\n{definition}"])

    async def _look(self, definition: str) -> None:
        await self._engine.load_paused()


def _unknown(definition: str) -> NotFound:
    return NotFound(
        f"no definition `{definition:.80}` is registered", hint="`engine.register(…)` adds one"
    )


def _pause_of(record: Record) -> PausedDefinition:
    try:
        return read(_PAUSE, record)
    except StoreCorrupt as error:
        tell(record, error)
        return PausedDefinition(record.id, 0.0, None, "who paused it, and why, cannot be read")


def _with_pause(acts: list[DefinitionAct], pause: PausedDefinition) -> list[DefinitionAct]:
    """The acts, and the pause that is in force, once."""
    act = DefinitionAct("pause", pause.at, pause.by, pause.reason)
    last = next((each for each in reversed(acts) if each.act == "pause"), None)
    return acts if last == act else [*acts, act]
