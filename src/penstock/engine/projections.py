"""All projections that this process serves: it says that it lives, and looks for those that nobody follows any more (SPEC 4.1).

One of them, and what a kill does to it: `engine/projection.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.engine.listeners import checked_types
from penstock.engine.projection import (
    BEATS,
    KEPT,
    KIND,
    NODE,
    PACE_SECONDS,
    TRIES_MAX,
    Beat,
    Course,
    Projection,
)
from penstock.errors import NotFound, Rejected, StoreError, shown
from penstock.ports.projections import EventBatch, ProjectionView
from penstock.ports.store import Record

if TYPE_CHECKING:
    from penstock.engine.engine import Engine

log = logging.getLogger("penstock.engine")

BEAT_SECONDS = 2.0
FORGET_SECONDS = 3600.0
BATCH_MAX = 10_000
NAME_CHARACTERS_MAX = 100


class Projections:
    """All projections that this process serves."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._here: dict[str, Projection] = {}
        self._task: asyncio.Task[None] | None = None
        self._unfollow: Callable[[], None] | None = None
        self._beat: Record | None = None

    async def add(
        self,
        name: str,
        handler: Callable[[EventBatch], Any],
        *,
        types: Sequence[str] | None = None,
        batch: int = 500,
        position: Callable[[int], Any] | None = None,
        swap: Callable[[int], Any] | None = None,
    ) -> None:
        _check(name, handler, batch)
        if name in self._here:
            raise Rejected("projection-taken", f"this process serves a projection `{name}` already")
        projection = self._here[name] = Projection(
            self._engine, name, handler, types=checked_types(types), batch=batch, position=position, swap=swap
        )  # fmt: skip
        try:
            await self._say_alive()
            await projection.claim(await self._beats())
        except BaseException:
            del self._here[name]
            raise
        if self._task is None:
            self._unfollow = self._engine.following.follow(self._woken)
            self._task = asyncio.get_running_loop().create_task(
                self._keep(), name="penstock.projections"
            )

    def _woken(self, _others: bool) -> None:
        for projection in self._here.values():
            projection.wake()

    def quiet(self) -> bool:
        return all(each.quiet() for each in self._here.values())

    async def _keep(self) -> None:
        """Say that we live, look for what others asked for, take over from who does not live any more."""
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            try:
                if any(each.following for each in self._here.values()):
                    await self._say_alive()
                beats: dict[str, Beat] | None = None
                for projection in list(self._here.values()):
                    if projection.following:
                        await projection.look()
                    else:
                        beats = await self._beats() if beats is None else beats
                        await projection.claim(beats)
            except StoreError as error:
                log.warning("projections.behind", extra={"error": str(error)})

    async def _say_alive(self) -> None:
        engine, beat = self._engine, self._beat
        now = engine.clock.now()
        value = msgspec.json.encode(Beat(0 if engine.owner is None else engine.owner.token))
        for _ in range(TRIES_MAX):
            revision = 0 if beat is None else beat.revision
            (put,) = await engine.store.put(
                [Record(NODE, engine.node, value, revision, expires=now + FORGET_SECONDS)]
            )
            if isinstance(put, Record):
                self._beat = put
                return
            beat = await engine.store.record(NODE, engine.node)

    async def _beats(self) -> dict[str, Beat]:
        found: dict[str, Beat] = {}
        for record in await self._engine.store.records(NODE):
            found[record.id] = BEATS.decode(record.value)
            found[record.id].revision = record.revision
        return found

    async def remove(self, name: str, *, forget: bool = False) -> None:
        projection = self._here.pop(name, None)
        if projection is not None:
            await projection.close()
        if forget:
            await self._engine.store.drop(KIND, [name])

    async def rebuild(self, name: str, *, again: bool = False) -> int:
        """Ask whoever follows to fill the next target from the beginning; gives its number."""
        here = self._here.get(name)
        for _ in range(TRIES_MAX):
            record = await self._engine.store.record(KIND, name)
            if record is None:
                raise NotFound(f"no projection `{name}`", hint="engine.project(…) makes one")
            kept = KEPT.decode(record.value)
            if kept.rebuild is not None and not again:
                raise Rejected(
                    "projection-rebuilding",
                    f"projection `{name}` is being rebuilt, as target {kept.rebuild.target}",
                    hint="wait for it, or rebuild(again=True) to give that up and begin anew",
                )
            target = max(kept.live.target, kept.rebuild.target if kept.rebuild else 0) + 1
            kept.rebuild = Course(target)
            (put,) = await self._engine.store.put(
                [Record(KIND, name, msgspec.json.encode(kept), record.revision)]
            )
            if isinstance(put, Record):
                if here is not None:
                    await here.look()
                return target
        raise Rejected(
            "projection-contended", f"others keep changing projection `{name}`", hint="try again"
        )

    async def caught_up(self, name: str) -> None:
        """Until it has seen all that is in the log now."""
        store = self._engine.store
        head = await store.head()
        while True:
            here = self._here.get(name)
            if here is not None and here.kept is not None:
                position = here.kept.live.position
            else:
                record = await store.record(KIND, name)
                if record is None:
                    raise NotFound(f"no projection `{name}`", hint="engine.project(…) makes one")
                position = KEPT.decode(record.value).live.position
            if position >= head:
                return
            await asyncio.sleep(
                PACE_SECONDS if here is not None and here.following else 10 * PACE_SECONDS
            )

    async def views(self) -> list[ProjectionView]:
        store = self._engine.store
        head, after, found = await store.head(), "", list[ProjectionView]()
        while page := await store.records(KIND, after=after):
            after = page[-1].id
            for record in page:
                here = self._here.get(record.id)
                kept = here.kept if here is not None and here.kept else KEPT.decode(record.value)
                rebuild = None if kept.rebuild is None else kept.rebuild.view(head)
                following = here is not None and here.following
                found.append(
                    ProjectionView(record.id, kept.live.view(head), rebuild, kept.holder, following)
                )
        return found

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        if self._unfollow is not None:
            self._unfollow()
        await asyncio.gather(*(self.remove(name) for name in list(self._here)))
        if self._beat is not None:
            try:
                await self._engine.store.drop(NODE, [self._engine.node])
            except StoreError:
                log.warning("projections.unreleased")
            self._beat = None


def _check(name: str, handler: Any, batch: int) -> None:
    if not name or len(name) > NAME_CHARACTERS_MAX or not name.isprintable():
        raise Rejected(
            "projection-invalid",
            f"a projection's name has 1 to {NAME_CHARACTERS_MAX} printable characters, not {shown(name, 80)}",
            hint="give a text such as revenue",
        )
    if not callable(handler):
        raise Rejected(
            "projection-invalid",
            f"{shown(handler, 80)} cannot be called with a batch",
            hint="give a function of one argument",
        )
    if not 1 <= batch <= BATCH_MAX:
        raise Rejected(
            "projection-invalid",
            f"a batch has 1 to {BATCH_MAX} events, not {batch}",
            hint="leave it out",
        )
