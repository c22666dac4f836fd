"""Starting many runs in one call: checked first, then in group commits of bounded size (SPEC 4.4, 4.10).

All that can be known without the store is checked before anything is started. Then a few groups at a time are in the inbox,
so that others' commands wait for one or two commits and not for all; the answer of a group is one future.

A kill between two groups leaves the runs of the groups before on disk, each of them whole; of a group that was on its way
all or none. The same call with the same ids goes on from there: a run that exists with the same input is attached to.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from penstock.core.plan import Plan
from penstock.core.values import decode
from penstock.engine.checks import checked_id
from penstock.engine.inbox import Item
from penstock.errors import (
    Busy,
    PenstockError,
    Rejected,
    StartsRefused,
    StartsStopped,
)
from penstock.model import commands as c
from penstock.model.payload import encode_payload
from penstock.ports.runs import Progress

if TYPE_CHECKING:
    from penstock.engine.engine import Engine

GROUP_RUNS_MAX = 250
GROUPS_AHEAD = 2
"""In the inbox at a time: while one is written the next is made."""
ROOM_SECONDS = 0.05
PATIENCE_SECONDS = 30.0
"""A limit that gives no room for so long ends the call with `busy`."""

Attach = Callable[[c.StartRun, Plan, str], Awaitable[None]]
"""A run of that id exists: Rejected if it has another definition or input."""


class _Slot:
    """The answer to one start, which counts for its group: what the engine takes for a future."""

    __slots__ = ("_group", "_place")

    def __init__(self, group: _Group, place: int) -> None:
        self._group, self._place = group, place

    def done(self) -> bool:
        return False

    def set_result(self, result: Any, /) -> None:
        self._group.answered()

    def set_exception(self, exception: Any, /) -> None:
        self._group.errors[self._place] = exception
        self._group.answered()


class _Group:
    """The starts of one commit, more or less."""

    __slots__ = ("_left", "_then", "all", "errors", "places")

    def __init__(self, places: Sequence[int], then: Callable[[], None]) -> None:
        self.places, self._then = places, then
        self.errors: dict[int, Exception] = {}
        self._left = len(places)
        self.all: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not places:
            self.all.set_result(None)

    def answered(self) -> None:
        self._left -= 1
        if not self._left:
            self._then()
            if not self.all.done():  # it is if nobody waits any more
                self.all.set_result(None)


class BulkStart:
    """One call: `check` it, then `run` it."""

    def __init__(self, engine: Engine, attach: Attach) -> None:
        self._engine, self._attach_to = engine, attach
        self._raws: list[bytes] = []
        self._ids: list[str] = []
        self._named = False
        self._started = 0

    def check(self, inputs: Sequence[Any], ids: Sequence[str] | None, plan: Plan) -> None:
        """Inputs that can be kept, ids that are valid and different: all of them, or StartsRefused and nothing begun."""
        bad: dict[int, Exception] = {}
        for place, given in enumerate(inputs):
            try:
                self._raws.append(encode_payload(given))
                if plan.check is not None:
                    plan.check(self._raws[-1])
            except PenstockError as error:
                bad[place] = error
                if len(self._raws) == place:
                    self._raws.append(b"")
        if ids is None:
            self._ids = [uuid.uuid4().hex for _ in inputs]
        else:
            self._named = True
            self._ids = list(ids)
            if len(self._ids) != len(inputs):
                raise Rejected(
                    "starts-invalid",
                    f"there are {len(inputs)} inputs and {len(self._ids)} ids",
                    hint="give one id for each input, in the same order",
                )
            self._check_ids(bad)
        self._refuse(bad)

    def _check_ids(self, bad: dict[int, Exception]) -> None:
        first: dict[str, int] = {}
        for place, id in enumerate(self._ids):
            try:
                if type(id) is not str:
                    raise Rejected("id-invalid", f"{id!r:.80} is not a text")
                checked_id(id)
                before = first.setdefault(id, place)
                if before != place:
                    raise Rejected("id-taken", f"id {id} is that of number {before} too")
            except PenstockError as error:
                bad.setdefault(place, error)

    async def run(
        self, one: c.StartRun, plan: Plan, progress: Callable[[Progress], None] | None
    ) -> Sequence[str]:
        """Start them all as `one` says, but for id and input."""
        self._one, self._plan, self._definition = one, plan, one.definition
        self._check_schema(plan)
        await self._groups(progress)
        return self._ids

    def _command(self, place: int) -> c.StartRun:
        one = self._one
        return replace(
            one, at=self._engine.clock.now(), id=self._ids[place], input=self._raws[place],
            metadata=one.metadata and dict(one.metadata), attributes=one.attributes and dict(one.attributes),
        )  # fmt: skip

    def _check_schema(self, plan: Plan) -> None:
        schema = plan.input_schema
        if schema is None:
            return
        bad: dict[int, Exception] = {}
        for place, raw in enumerate(self._raws):
            if problems := schema.problems(decode(raw)):
                bad[place] = Rejected(
                    "input-invalid", f"it does not fit the inputSchema: {problems}"
                )
        self._refuse(bad)

    async def _groups(self, progress: Callable[[Progress], None] | None) -> None:
        plan, total, place = self._plan, len(self._ids), 0
        refusing = plan.runs_max is not None and plan.definition.limits.get("over") == "refuse"
        wanted, ahead = (1, 1) if refusing else (GROUP_RUNS_MAX, GROUPS_AHEAD)
        flying: deque[_Group] = deque()
        bad: dict[int, Exception] = {}
        try:
            while (place < total or flying) and not bad:
                while place < total and len(flying) < ahead:
                    size = await self._room(wanted, flying)
                    if not size:
                        break  # those on their way make room
                    places = range(place, min(place + size, total))
                    flying.append(await self._begin(places, bad))
                    place = places.stop
                if flying:
                    await self._end(flying.popleft(), bad)
                    if progress is not None:
                        progress(Progress(self._started, total))
        finally:
            while flying:  # begun is begun: what becomes of it is part of the answer
                await self._end(flying.popleft(), bad)
        self._refuse(bad)

    async def _room(self, wanted: int, flying: Sequence[_Group]) -> int:
        """How many may be begun now; waits for one while none of ours is on its way, `busy` in the end."""
        engine, waited = self._engine, 0.0
        while True:
            busy: Busy | None = None
            settings, admission = engine.settings, engine.admission
            size = min(wanted, settings.inbox_max - engine.backlog)
            if engine.owner is not None:
                size = min(size, settings.runs_max - engine.open_runs - admission.starting)
            try:
                await admission.check(self._plan, None)
            except Busy as error:
                busy = error
            if size > 0 and busy is None:
                return size
            if flying:
                return 0
            if waited >= PATIENCE_SECONDS:
                busy = busy or Busy("the limit of open runs, or of waiting commands, is reached")
                raise self._stopped(busy) from busy
            await engine.clock.sleep(ROOM_SECONDS)
            waited += ROOM_SECONDS

    async def _begin(self, places: range, bad: dict[int, Exception]) -> _Group:
        """Into the inbox; without those that a call before this one has started."""
        wanted: Sequence[int] = places
        if self._named and await self._begun_before(places):
            wanted = [place for place in places if not await self._exists(place, bad)]
            self._started += len(places) - len(wanted) - sum(place in bad for place in places)
        engine, definition, count = self._engine, self._definition, len(wanted)
        engine.check_open()
        group = _Group(wanted, lambda: engine.admission.end(definition, count))
        engine.admission.begin(definition, count)
        for place in wanted:
            engine.heavy.weigh(self._ids[place], self._raws[place])
            engine.post(
                self._ids[place], Item(self._command(place), _Slot(group, place), self._plan)
            )
        return group

    async def _begun_before(self, places: range) -> bool:
        """Groups are written from first to last: a call that was cut off left a beginning of them."""
        find, ids = self._engine.store.find, self._ids
        if await find(ids[places.start]) is not None:
            return True
        return await find(ids[places.stop - 1]) is not None

    async def _exists(self, place: int, bad: dict[int, Exception]) -> bool:
        if await self._engine.store.find(self._ids[place]) is None:
            return False
        await self._attach(place, bad)
        return True

    async def _attach(self, place: int, bad: dict[int, Exception]) -> bool:
        try:
            await self._attach_to(self._command(place), self._plan, "attach")
        except Rejected as error:
            bad[place] = error
            return False
        return True

    async def _end(self, group: _Group, bad: dict[int, Exception]) -> None:
        await group.all
        self._started += len(group.places) - len(group.errors)
        for place, error in group.errors.items():
            if not isinstance(error, Rejected):
                raise self._stopped(error) from error
            if error.code != "id-taken":
                bad[place] = error
            elif await self._attach(place, bad):
                self._started += 1

    def _refuse(self, bad: Mapping[int, Exception]) -> None:
        if bad:
            raise StartsRefused(
                {place: bad[place] for place in sorted(bad)}, started=self._started, total=len(self._ids or self._raws)
            )  # fmt: skip

    def _stopped(self, reason: Exception) -> StartsStopped:
        return StartsStopped(str(reason), started=self._started, total=len(self._ids))
