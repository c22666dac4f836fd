"""A projection: a read model of the application's own that follows the log from a position of its own (SPEC 4.1).

Of all processes that serve a projection one follows, the others stand by. Its position is a record that only a
compare-and-set moves, so that two can never both advance it; who follows says that it lives by a record of its own, and one that
has not done so for `LEASE_SECONDS` is followed by another. A rebuild fills the next target beside the one in use, and takes its
place once it has caught up.

What a kill does: before the handler has ended, the batch is given again; after it, before the position is stored, too (at least
once), unless the handler keeps the position itself, in its own transaction. After `swap`, before that is stored, it is
called again with the same target.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from penstock.engine import points
from penstock.engine.listeners import is_async
from penstock.errors import RevisionConflict, StoreError
from penstock.model.codec import decode_event
from penstock.ports.projections import CourseView, EventBatch, FollowedEvent
from penstock.ports.store import Record, Stored

if TYPE_CHECKING:
    from penstock.engine.engine import Engine

log = logging.getLogger("penstock.engine")

KIND, NODE = "projection", "projector"
LEASE_SECONDS = 6.0
PACE_SECONDS = 0.02
"""Between two batches that were not full: what happens meanwhile goes together, with one commit for its position."""
SAVE_SECONDS = 1.0
"""How often a position that the handler keeps itself is stored here too, for others to see."""
AGAIN_SECONDS_FIRST = 0.2
AGAIN_SECONDS_MAX = 30.0
END_SECONDS_MAX = 5.0
TRIES_MAX = 20
ERROR_CHARACTERS_MAX = 500


class Course(Struct, omit_defaults=True):
    """How far one target is."""

    target: int
    position: int = 0
    since: int = 1
    missing: int = 0
    failures: int = 0
    error: str = ""

    def view(self, head: int) -> CourseView:
        return CourseView(
            self.target, self.position, max(0, head - self.position), self.since, self.missing,
            self.failures, self.error,
        )  # fmt: skip


class Kept(Struct, omit_defaults=True):
    """A projection's record."""

    live: Course
    rebuild: Course | None = None
    holder: str = ""

    def course(self, target: int) -> Course | None:
        for course in (self.live, self.rebuild):
            if course is not None and course.target == target:
                return course
        return None


class Beat(Struct, omit_defaults=True):
    """A sign of life of a node that follows something."""

    token: int = 0
    """With which it owned the database; 0: it did not."""
    revision: int = 0


NONE = Beat()
KEPT = msgspec.json.Decoder(Kept)
BEATS = msgspec.json.Decoder(Beat)


class Lost(Exception):
    """Another process follows now, or nobody shall."""


class Projection:
    """One projection in this process: follows it, or stands by."""

    def __init__(
        self,
        engine: Engine,
        name: str,
        handler: Callable[[EventBatch], Any],
        *,
        types: frozenset[str] | None,
        batch: int,
        position: Callable[[int], Any] | None,
        swap: Callable[[int], Any] | None,
    ) -> None:
        self._engine, self.name, self._handler = engine, name, handler
        self._types, self._batch, self._own, self._swap = types, batch, position, swap
        self.kept: Kept | None = None
        """As this process last knew it, if it follows."""
        self._revision = 0
        self._turn = asyncio.Lock()
        self._saved_at = 0.0
        self._written: dict[int, asyncio.Event] = {}
        """By target: something may have been written to the log."""
        self._closing = False
        self._courses: dict[int, asyncio.Task[None]] = {}
        self._idle: set[int] = set()
        """Targets that have nothing to do."""
        self._seen: tuple[str, int] = ("", 0)
        self._seen_at = 0.0

    @property
    def following(self) -> bool:
        return self.kept is not None

    def quiet(self) -> bool:
        return self.kept is None or all(
            target in self._idle and not self._written[target].is_set() for target in self._courses
        )

    def wake(self) -> None:
        for written in self._written.values():
            written.set()

    # --- who follows -----------------------------------------------------------------------------------------

    async def claim(self, beats: dict[str, Beat]) -> None:
        """Follow it, if nobody does who lives."""
        engine = self._engine
        if self.kept is not None or self._closing:
            return
        record = await engine.store.record(KIND, self.name)
        kept = Kept(Course(1)) if record is None else KEPT.decode(record.value)
        if kept.holder not in ("", engine.node):
            beat = beats.get(kept.holder, NONE)
            seen = (kept.holder, beat.revision)
            if seen != self._seen:
                self._seen, self._seen_at = seen, _now()
            # Who has lost the database to us is most likely dead; if not, its next step is refused.
            gone = engine.owner is not None and 0 < beat.token < engine.owner.token
            if not gone and _now() - self._seen_at < LEASE_SECONDS:
                return
            log.warning(
                "projection.taken_over", extra={"projection": self.name, "from": kept.holder}
            )
        kept.holder = engine.node
        revision = 0 if record is None else record.revision
        (put,) = await engine.store.put(
            [Record(KIND, self.name, msgspec.json.encode(kept), revision)]
        )
        if isinstance(put, RevisionConflict):
            return
        self.kept, self._revision = kept, put.revision
        self._follow()

    def _follow(self) -> None:
        """A task for each target that there is."""
        assert self.kept is not None
        wanted = [self.kept.live, *([self.kept.rebuild] if self.kept.rebuild else [])]
        for target in [t for t in self._courses if self.kept.course(t) is None]:
            self._courses.pop(target).cancel()
        for course in wanted:
            if course.target not in self._courses:
                self._written[course.target] = asyncio.Event()
                self._courses[course.target] = asyncio.get_running_loop().create_task(
                    self._course(course.target),
                    name=f"penstock.projection.{self.name}.{course.target}",
                )

    async def look(self) -> None:
        """Somebody else may have asked for a rebuild, or taken over."""
        if self.kept is None or self._closing:
            return
        async with self._turn:
            await self._refresh()

    async def _refresh(self) -> None:
        record = await self._engine.store.record(KIND, self.name)
        if record is not None and record.revision == self._revision:
            return
        kept = None if record is None else KEPT.decode(record.value)
        if kept is None or record is None or kept.holder != self._engine.node:
            self._lose()
            return
        before = self.kept
        self.kept, self._revision = kept, record.revision
        if before is not None:
            for course in (before.live, before.rebuild):
                theirs = None if course is None else kept.course(course.target)
                if course is not None and theirs is not None:
                    _copy(course, theirs)  # how far it is, we know best
        self._follow()

    def _lose(self) -> None:
        self.kept = None
        for task in self._courses.values():
            task.cancel()
        self._courses.clear()
        self._idle.clear()

    async def _save(self) -> None:
        """Store how far we are; Lost if that is not ours to say any more."""
        async with self._turn:
            for _ in range(TRIES_MAX):
                if self.kept is None:
                    raise Lost
                record = Record(KIND, self.name, msgspec.json.encode(self.kept), self._revision)
                (put,) = await self._engine.store.put([record])
                if isinstance(put, Record):
                    self._revision = put.revision
                    self._saved_at = _now()
                    return
                await self._refresh()
        raise Lost

    # --- following -------------------------------------------------------------------------------------------

    async def _course(self, target: int) -> None:
        try:
            await self._work(target)
        except Lost:
            self._lose()
        except asyncio.CancelledError:
            raise
        except Exception:
            log.exception("projection.broken", extra={"projection": self.name})
            self._lose()

    def _at(self, target: int) -> Course:
        course = None if self.kept is None else self.kept.course(target)
        if course is None:
            raise Lost
        return course

    async def _work(self, target: int) -> None:
        limit, pause, known, written = (
            self._batch,
            AGAIN_SECONDS_FIRST,
            False,
            self._written[target],
        )
        while not self._closing:
            written.clear()
            self._idle.discard(target)
            try:
                if not known:
                    await self._load(target)
                    known = True
                count = await self._step(target, limit)
                if count < limit:
                    await self._swap_if_caught_up(target)
            except Lost:
                raise
            except Exception as error:
                await self._failed(target, error)
                known, limit = False, 1  # one by one, so that the one that fails is named
                self._idle.add(target)
                await self._rest(pause)
                pause = min(pause * 2, AGAIN_SECONDS_MAX)
                continue
            full, limit, pause = count == limit, min(limit * 2, self._batch), AGAIN_SECONDS_FIRST
            if not full:
                self._idle.add(target)
                if count:
                    await asyncio.sleep(PACE_SECONDS)
                else:
                    await written.wait()

    async def _rest(self, seconds: float) -> None:
        """In real time, whatever clock the engine has; a close does not wait for its end."""
        end = _now() + seconds
        while _now() < end and not self._closing:  # noqa: ASYNC110
            await asyncio.sleep(min(0.1, seconds))

    async def _load(self, target: int) -> None:
        """Where the handler itself says that it is, if it does."""
        if self._own is not None:
            position = await _called(self._own, target)
            course = self._at(target)
            course.position = int(position or 0)
            if not course.position:
                course.since, course.missing = 1, 0

    async def _step(self, target: int, limit: int) -> int:
        """One batch: read, hand over, store the position. How many events the log had."""
        after = self._at(target).position
        page = await self._engine.store.follow(after=after, limit=limit)
        if not page:
            course = self._at(target)
            if course.failures:
                course.failures, course.error = 0, ""
                await self._save()
            return 0
        batch = await self._made(target, after, page)
        if points.reach is not None:
            points.reach("project.before")
        if batch.events:
            await _called(self._handler, batch)
        if points.reach is not None:
            points.reach("project.handled")
        course = self._at(target)
        for each in page:
            if each.position != course.position + 1:
                course.missing += each.position - course.position - 1
                course.since = each.position
            course.position = each.position
        recovered = bool(course.failures)
        course.failures, course.error = 0, ""
        late = _now() - self._saved_at >= SAVE_SECONDS
        if self._own is None or recovered or late:
            await self._save()
        if points.reach is not None:
            points.reach("project.saved")
        return len(page)

    async def _made(self, target: int, after: int, page: list[Stored]) -> EventBatch:
        rows = await self._engine.store.find_many(list({each.key for each in page}))
        events: list[FollowedEvent] = []
        for each in page:
            row = rows.get(each.key)
            if row is None:
                continue  # retention is deleting the run
            event = decode_event(each.payload)
            if self._types is None or event.type in self._types:
                events.append(
                    FollowedEvent(
                        each.position, row.id, row.generation, row.definition, each.seq, event
                    )
                )
        return EventBatch(self.name, target, after, page[-1].position, events)

    async def _failed(self, target: int, error: Exception) -> None:
        course = self._at(target)
        course.failures += 1
        text = f"{type(error).__name__}: {error}"
        course.error = f"after position {course.position}: {text}"[:ERROR_CHARACTERS_MAX]
        log.warning(
            "projection.failed",
            extra={"projection": self.name, "target": target, "position": course.position},
            exc_info=error,
        )
        try:
            await self._save()
        except StoreError:
            log.warning("projection.unsaved", extra={"projection": self.name})

    async def _swap_if_caught_up(self, target: int) -> None:
        """A rebuild that is as far as the one in use takes its place."""
        kept = self.kept
        if kept is None or kept.rebuild is None or kept.rebuild.target != target:
            return
        if kept.rebuild.position < kept.live.position:
            return
        if self._swap is not None:
            await _called(self._swap, target)
        if points.reach is not None:
            points.reach("project.swapped")
        kept = self.kept
        if kept is None or kept.rebuild is None or kept.rebuild.target != target:
            raise Lost  # given up meanwhile
        old, kept.live, kept.rebuild = kept.live.target, kept.rebuild, None
        await self._save()
        log.info("projection.rebuilt", extra={"projection": self.name, "target": target})
        task = self._courses.pop(old, None)
        if task is not None:
            task.cancel()
        self._idle.discard(old)

    # --- for others ------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """The batch at hand is finished, for a moment; then whoever stands by may follow."""
        self._closing = True
        self.wake()
        tasks = list(self._courses.values())
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=END_SECONDS_MAX)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        if self.kept is not None:
            self.kept.holder = ""
            try:
                await self._save()
            except (Lost, StoreError):
                log.warning("projection.unreleased", extra={"projection": self.name})
            self.kept = None


def _now() -> float:
    return asyncio.get_running_loop().time()


def _copy(ours: Course, theirs: Course) -> None:
    for field in Course.__struct_fields__:
        setattr(theirs, field, getattr(ours, field))


async def _called(function: Callable[..., Any], argument: Any) -> Any:
    """An `async def` here, a plain function in a thread."""
    given: Any = (
        function(argument) if is_async(function) else await asyncio.to_thread(function, argument)
    )
    return await _awaited(given) if inspect.isawaitable(given) else given


async def _awaited(given: Awaitable[Any]) -> Any:
    return await given
