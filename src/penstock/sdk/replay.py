"""A workflow function as a Program: told what has happened, it goes on until it waits, and gives what it wants (SPEC 2.8).

It stays in memory between its turns. After a crash, or when it had to make room, it is told its history again: what it
wants must then be what is recorded, step by step; the first that differs is named with the line that wanted it.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import random
import sys
import uuid
from collections.abc import Callable, Coroutine, Generator, Mapping
from datetime import UTC, datetime
from threading import get_ident
from types import CodeType
from typing import TYPE_CHECKING, Any

from msgspec import Raw

from penstock.core.program import Told
from penstock.errors import Nondeterminism, PenstockError, Rejected
from penstock.model import intents as i
from penstock.model.failure import FRAME, Failure
from penstock.sdk.failing import Gone, failure_in, goes_on, step_failed
from penstock.sdk.fit import same, shown_both
from penstock.sdk.loop import PARKED, Loop, Stage, Timer, enter_task, leave_task, run_in
from penstock.sdk.main import Main
from penstock.sdk.outcome import readable
from penstock.sdk.queries import Glance, answered, only_reads
from penstock.sdk.values import Reading, Unreadable, encode_value

if TYPE_CHECKING:
    from penstock.model.run import Run
    from penstock.sdk.context import Context
    from penstock.sdk.functions import Workflow
    from penstock.sdk.guard import Guard

Read = Callable[[bytes], Any]
Place = tuple[CodeType, int]
"""Some code, and how far it is in there: the line is looked up when somebody asks for it."""
_AROUND = (os.path.dirname(__file__), os.path.dirname(asyncio.__file__))
_frame = sys._getframe  # pyright: ignore[reportPrivateUsage]
_Future = asyncio.Future
CHANGED = "changed:"
"""So begin the keys of notes by `ctx.changed`."""


class ContinueAsNew(BaseException):
    """Raised through the function by `ctx.continue_as_new`."""

    def __init__(self, input: bytes) -> None:
        self.input = input


Waited = tuple["asyncio.Future[Any] | Main | Timer", "Read | None", bool]
"""A step that was wanted and has not ended, how its result is read, and whether it is a call, as most are."""


class Update:
    """A message that is to be answered."""

    __slots__ = ("_program", "id", "payload")

    def __init__(self, program: Replay, id: str, payload: Any) -> None:
        self._program, self.id, self.payload = program, id, payload

    def answer(self, value: Any = None) -> None:
        """What whoever sent it gets, once this is on disk."""
        self._reply(i.Reply(self.id, Raw(encode_value(value))))

    def refuse(self, reason: str) -> None:
        self._reply(i.Reply(self.id, refused=readable(str(reason)) or "refused"))

    def _reply(self, reply: i.Reply) -> None:
        if self.id:
            self._program.want(reply)
            self.id = ""


class Replay:
    """See the module's docstring; `core/program.py` says what is asked of it."""

    __slots__ = (
        "_asked", "_closed", "_ended", "_guard", "_main", "_markers", "_misfit", "_notes", "_open", "_places", "_random", "_reading", "_unfit",
        "_wanted", "advanced", "at", "attributes", "context", "counts", "generation", "loop", "parent", "queries", "run_id",
        "unawaited", "workflow",
    )  # fmt: skip

    def __init__(
        self,
        workflow: Workflow,
        run: Run,
        contexts: Callable[[Replay], Context],
        guard: Guard | None = None,
        stage: Stage | None = None,
    ) -> None:
        self.workflow, self._guard = workflow, guard
        self.run_id, self.generation, self.parent = run.id, run.generation, run.parent
        self.attributes: Mapping[str, Any] = run.attributes
        self.advanced = 0
        self.at = 0.0
        self.context: Context | None = contexts(self)
        self.loop = Loop(run.id, self, stage or Stage())
        self._main: Main | None = None
        self._open: dict[str, Waited] = {}
        self.counts: dict[str, int] = {}
        self._wanted: list[i.Intent] = []
        self._places: list[Place | None] | None = None
        """While history is told again: where what it wants is written."""
        self._ended: i.Finish | i.Break | i.Stop | i.Continue | None = None
        self._asked = self._closed = self._reading = False
        """Somebody asked it to stop; it is not needed any more; it answers a query."""
        self._notes: dict[str, Raw] | None = None
        """While history is told again: what was made then, and is not made again."""
        self._misfit: Nondeterminism | None = None
        """What it wanted meanwhile that was never made; its own code may have caught that."""
        # What few functions use is made when they do: hundreds are in memory at once.
        self._markers: dict[str, bool] | None = None
        self._random: random.Random | None = None
        self._unfit: set[str] | None = None
        """Updates that were refused as their payload was not what it asks for."""
        self.unawaited: list[Place] | None = None
        self.queries: dict[str, Callable[..., Any]] | None = None

    # --- what the engine asks --------------------------------------------------------------------------------

    def replay(self, told: Told, wanted: list[i.Intent]) -> None:
        self._notes = {each.key: each.value for each in wanted if isinstance(each, i.Note)}
        self._places = []
        try:
            again = self._go_on(told)
            self._notes = None
            self.advanced = told.seq
            try:
                encoded = i.ENCODER.encode(again)
            except Exception as error:
                again = i.unkept(error)
                encoded = i.ENCODER.encode(again)
            if encoded != i.ENCODER.encode(wanted):
                self._compare(again, wanted)
        finally:
            self._notes = self._places = None
        if self._misfit is not None:
            raise self._misfit

    def query(self, name: str, arguments: Any) -> Any:
        found = None if self.queries is None else self.queries.get(name)
        if found is None:
            known = ", ".join(sorted(self.queries or ())) or "none"
            raise Rejected(
                "query-unknown",
                f"workflow `{self.workflow.name}` answers no query `{name}`; it answers: {known}",
                hint='`ctx.query("name", function)` adds one',
            )
        context, chance = self.context, self._random
        assert context is not None
        drawn = None if chance is None else chance.getstate()
        self._reading = True
        context._program = Glance(self)  # pyright: ignore
        try:
            return answered(name, found, arguments)
        finally:
            context._program = self  # pyright: ignore[reportPrivateUsage]
            self._reading = False
            if chance is not None and drawn is not None:
                chance.setstate(drawn)

    def close(self) -> None:
        self._closed = True
        self._open.clear()
        self.queries = None
        self.loop.abandon(self._main)
        self.loop.close()
        self._main = self.context = None  # no circle is left for the collector

    # --- one event -------------------------------------------------------------------------------------------

    def _go_on(self, told: Told) -> list[i.Intent]:
        # `sdk/watchdog.py` knows this by its name.
        loop, guard, stage = self.loop, self._guard, self.loop.stage
        self.at = loop.now = told.at
        wanted = self._wanted = []
        # Until the end this is the loop that runs, also for what is read: the types of values may have code of their own.
        if stage.hooks is None:
            stage.take()
        run_in(loop)
        loop.thread = get_ident()
        try:
            heard = told.heard
            if (
                guard is not None
                or len(heard) != 1
                or not self._go_straight(heard[0], told.outputs[0])
            ):
                for each, output in zip(heard, told.outputs, strict=True):
                    self._hear(each, output)
                    if guard is None:
                        loop.run()
                    else:
                        self._guarded()
        finally:
            loop.thread = 0
            if not stage.shared:
                stage.leave()
        if guard is not None:
            self._heed(guard)
        if self._ended is None:
            if self.unawaited:
                self._ended = i.Break(self._never_awaited(self.unawaited[0]))
            elif loop.endless:
                self._ended = i.Break(self._endless(loop.endless[0]))
            elif not self._open:
                self._ended = i.Break(self._stuck())
            else:
                return wanted
        wanted.append(self._ended)
        if self._places is not None:
            self._places.append(None)
        return wanted

    advance = _go_on

    def _go_straight(self, heard: i.Heard, output: bytes | None) -> bool:
        """As `_hear` and `Loop.run`, of a start, and of a call that is done and the function itself waits for: the hot path."""
        value: Any = None
        main: Any
        waited = self._open.get(heard.key)
        if waited is not None and heard.kind == "done":
            main, read, call = waited
            if not call or type(main) is not Main or main.stop or main.error is not None:
                return False
            try:
                value = (read.quick if type(read) is Reading else read)(output)  # pyright: ignore
            except Exception:
                return False  # that it cannot be read is for `_hear` to say
            del self._open[heard.key]
        elif heard.kind == "start":
            self._begin(output or b"null")
            main = self._main
        else:
            return False
        loop = self.loop
        if type(main) is Main:  # as `Main.go_on`, without a call of Python's
            main.waits = None
            main.going = True
            enter_task(loop, main)  # pyright: ignore
            given: Any = None
            try:
                given = main.context.run(main.send, value)
            except StopIteration:
                main.end()
            finally:
                main.going = False
                leave_task(loop, main)  # pyright: ignore
            if given is PARKED and not main.stop:
                main.waits = PARKED
            elif not main.done():
                main.gave(given)
        if loop.ready:
            loop.run()
        return True

    def _heed(self, guard: Guard) -> None:
        """What was found ends the function."""
        if guard.found:
            self._ended = i.Break(failure_in(guard.found[0]))
        if guard.unawaited:
            message = f"{guard.unawaited[0]}: write `await`"
            self._ended = i.Break(Failure(code="never-awaited", message=message))

    def _guarded(self) -> None:
        assert self._guard is not None
        with self._guard.watching():
            self.loop.run()

    def _hear(self, heard: i.Heard, output: bytes | None) -> None:
        waited = self._open.pop(heard.key, None)
        if waited is None:
            if heard.kind == "start":
                self._begin(output or b"null")
                if type(self._main) is Main:
                    self.loop.first = self._main
            elif heard.kind == "cancel":
                self._asked = True
                if self._main is not None:
                    self._main.cancel()
            return
        future: Any
        future, read, call = waited
        value: Any = None
        error: BaseException | None = None
        if type(future) is Timer:
            self.loop.fire(future)
            return
        if heard.failure is not None:
            error = step_failed(heard.key, heard.failure)
        elif heard.kind != "skipped":  # that is None, whatever type it was to have
            try:
                if isinstance(read, Reading):
                    value = read.quick(output or b"null")
                else:
                    value = None if read is None else read(output or b"null")
            except Exception as raised:
                error = raised
                if isinstance(read, Reading):
                    error = Unreadable(f"`{heard.key}`: {read.unreadable(raised).message}")
                if heard.id:
                    self._refuse(heard.id, str(error))
            else:
                if heard.id or (not call and heard.key.startswith("update:")):
                    value = Update(self, heard.id, value)
        if type(future) is Main:
            future.value, future.error, self.loop.first = value, error, future
        elif future.done():
            return
        elif error is not None:
            future.set_exception(error)
        else:
            future.set_result(value)

    def _refuse(self, update: str, why: str) -> None:
        """Its payload is not what the function asks for: who sent it hears that, whatever the function makes of it."""
        self._unfit = {*(self._unfit or ()), update}
        self._wanted.append(i.Reply(update, refused=readable(why)))
        if self._places is not None:
            self._places.append(None)

    def _begin(self, input: bytes) -> None:
        self._main = Main(self.loop, self._body(input), self.workflow.name)

    async def _body(self, input: bytes) -> None:
        """The function, and how it ended."""
        try:
            value = await self.workflow.called(self.context, input)
            self._ended = self._finish(value)
        except ContinueAsNew as again:
            self._ended = i.Continue(Raw(again.input))
        except asyncio.CancelledError:
            if self._asked:
                self._ended = i.Stop()
            else:
                failure = Failure(code="cancelled", message="the function cancelled itself")
                self._ended = i.Break(failure)
        except Gone:
            return
        except BaseException as error:
            if not self.loop.thread:
                return  # the collector ends it: nobody asks any more
            again = goes_on(error, ContinueAsNew)  # out of a TaskGroup
            if again is not None:
                self._ended = i.Continue(Raw(again.input))
            else:
                self._ended = i.Break(failure_in(error))

    def _finish(self, value: Any) -> i.Finish | i.Break:
        """It has returned."""
        if self.unawaited:
            return i.Break(self._never_awaited(self.unawaited[0]))
        try:
            raw = encode_value(value)
        except PenstockError as error:
            message = (
                f"the result of workflow `{self.workflow.name}` cannot be kept: {error.message}"
            )
            return i.Break(Failure(code=error.code, message=message, type=type(error).__name__))
        problem = self.workflow.result_problem(value, raw)
        if problem is None:
            return i.Finish(Raw(raw))
        message = f"the result of workflow `{self.workflow.name}` {problem}"
        return i.Break(Failure(code="output-invalid", message=message))

    def _stuck(self) -> Failure:
        unheard = next(
            (each.get("exception") for each in self.loop.unheard if each.get("exception")), None
        )
        if isinstance(unheard, BaseException):
            return failure_in(unheard)
        return Failure(
            code="deadlock",
            message=f"workflow `{self.workflow.name}` waits for nothing that can happen{self._where()}",
        )

    def _endless(self, task: Any) -> Failure:
        """It goes round and round, and nothing else could happen."""
        where = self._where(task if hasattr(task, "get_coro") else None)
        return Failure(
            code="endless-turn",
            message=f"workflow `{self.workflow.name}` goes on without end and waits for no step{where}",
            details={
                "hint": "wait for a step, a timer or a signal: `asyncio.sleep(0)` lets no time pass"
            },
        )

    def _where(self, task: asyncio.Task[Any] | Main | None = None) -> str:
        """The line at which it waits."""
        task = task or self._main
        awaited: Any = None if task is None else task.get_coro()
        found = ""
        while awaited is not None:  # from the outermost call to what it waits for
            frame = getattr(awaited, "cr_frame", None)
            if frame is not None and not frame.f_code.co_filename.startswith(_AROUND):
                found = f", at {shown_place((frame.f_code, frame.f_lasti))}"
            awaited = getattr(awaited, "cr_await", None)
        return found

    def _never_awaited(self, place: Place) -> Failure:
        where = shown_place(place)
        return Failure(
            code="never-awaited",
            message=f"a step was wanted and not awaited, at {where}: write `await`",
        )

    # --- what the context asks -------------------------------------------------------------------------------

    def want(self, intent: i.Intent, place: Place | None = None) -> None:
        if self._closed or self._reading or self.loop.thread != get_ident():
            raise self._unwanted()
        self._wanted.append(intent)
        if self._places is not None:
            self._places.append(place)

    def _unwanted(self) -> BaseException:
        """Why nothing can be wanted now."""
        if self._closed:
            return Gone()
        if self._reading:
            return only_reads()
        return Nondeterminism(
            "a step was wanted from outside of the function",
            hint="a Context is for the workflow's own code, not for activities, threads or other event loops",
        )

    def key(self, name: str) -> str:
        """`name#ordinal`."""
        name = keyed(name)
        count = self.counts[name] = self.counts.get(name, 0) + 1
        return f"{name}#{count}"

    def wait(
        self, step: i.Waiting, read: Read | None, place: Place | None
    ) -> Generator[Any, Any, Any]:
        """Until the step has ended. If nobody waits for it any more it is given up."""
        if self.loop.thread != get_ident():  # nor when it is closed, or answers a query
            raise self._unwanted()
        self._wanted.append(step)
        if self._places is not None:
            self._places.append(place)
        main, key = self._main, step.key
        try:
            if type(main) is Main and main.going:
                self._open[key] = main, read, type(step) is i.Call
                value = yield PARKED
                if key not in self._open:
                    return value
                # It was begun by hand, and somebody else goes on with it.
            future: asyncio.Future[Any] = _Future(loop=self.loop)
            self._open[key] = future, read, type(step) is i.Call
            return (yield from future)
        except GeneratorExit:  # begun by hand, and ended so: nobody waits for it
            waited = self._open.pop(step.key, None)
            if waited is not None and waited[0] is not main:
                self._open[step.key] = waited
            raise
        except asyncio.CancelledError:
            if self._open.pop(step.key, None) is not None:
                gently = type(step) is i.Call and (self._asked or bool(step.undo))
                self.want(i.Drop(step.key, gently), place)
            raise

    def arm(self, timer: Timer) -> None:
        timer.key = self.key("sleep")
        self.want(i.Sleep(timer.key, timer.when()), _line())
        self._open[timer.key] = timer, None, False

    def disarm(self, timer: Timer) -> None:
        if self._open.pop(timer.key, None) is not None:
            self.want(i.Drop(timer.key))

    def exited(self, error: BaseException) -> None:
        """A task of the function called `sys.exit`, or the like: as if the function itself had, it ends here."""
        self._ended = i.Break(failure_in(error))
        self._open.clear()  # nothing wakes it
        self._main = None

    def note(self, key: str, make: Callable[[], Any], place: Place | None) -> Any:
        """A value that is made once."""
        if self._notes is not None:
            raw = self._notes.get(key)
            if raw is None:
                self._misfit = Nondeterminism(
                    f"{shown_place(place)} wants `{key}`, which is not in the history",
                    hint='code that a running workflow does not have goes behind `if ctx.changed("name"):`',
                    step=key, recorded="nothing", wanted=key, place=shown_place(place),
                )  # fmt: skip
                raise self._misfit
        else:
            made = make() if self._guard is None else self._guard.excusing(make)
            raw = Raw(encode_value(made))
        self.want(i.Note(key, raw), place)
        return bytes(raw)

    def changed(self, name: str, place: Place | None) -> bool:
        """Whether the run takes the new way: not if it has gone past this place before there was one."""
        markers = self._markers
        if markers is None:
            markers = self._markers = {}
        known = markers.get(name)
        if known is None:
            key = f"{CHANGED}{name}"
            known = markers[name] = self._notes is None or key in self._notes
            if known:
                self.want(i.Note(key, Raw(b"true")), place)
        return known

    def known_change(self, name: str) -> bool | None:
        return None if self._markers is None else self._markers.get(name)

    @property
    def chance(self) -> random.Random:
        if self._random is None:
            self._random = random.Random(f"{self.run_id}/{self.generation}")
        return self._random

    def uuid(self) -> uuid.UUID:
        return uuid.UUID(int=self.chance.getrandbits(128), version=4)

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.at, UTC)

    # --- history that does not fit ---------------------------------------------------------------------------

    def _compare(self, again: list[i.Intent], wanted: list[i.Intent]) -> None:
        wanted = self._without_unasked(again, wanted)
        if self._unfit:
            again = self._without_unanswered(again, wanted)
        places = self._places or ()
        for number in range(max(len(again), len(wanted))):
            now = again[number] if number < len(again) else None
            then = wanted[number] if number < len(wanted) else None
            if now is not None and then is not None and same(now, then):
                continue
            place = places[number] if number < len(places) else None
            where = shown_place(place) or self._where().removeprefix(", at ") or self._at_end(now)
            step = getattr(then, "key", "") or getattr(now, "key", "") or "the end"
            recorded, asked = shown_both(then, now)
            raise Nondeterminism(
                f"the code of `{self.workflow.name}` does not fit the history of run {self.run_id}: at `{step}` "
                f"{recorded} is recorded, and the code wants {asked}"
                + (f", at {where}" if where else ""),
                hint='bring the old way back, or keep it for old runs behind `if ctx.changed("name"):`; '
                "`penstock replay` checks this before a release",
                step=step, recorded=recorded, wanted=asked, place=where,
            )  # fmt: skip

    def _at_end(self, now: i.Intent | None) -> str:
        """The line at which the code ended: of what it raised, by its trace; else where the function begins."""
        code = getattr(inspect.unwrap(self.workflow.function), "__code__", None)
        if code is None:
            return ""
        if isinstance(now, i.Break):
            frames = FRAME.findall(now.failure.trace)
            # What a step raised has the trace of its activity, which says nothing of this code.
            if any((file, name) == (code.co_filename, code.co_name) for file, _, name in frames):
                return now.failure.place
        return _shown_line(code, code.co_firstlineno)

    def _without_unanswered(self, again: list[i.Intent], wanted: list[i.Intent]) -> list[i.Intent]:
        """In older histories an update that was refused for its payload has no answer."""
        answered = {each.id for each in wanted if isinstance(each, i.Reply)}
        kept = [
            (each, place)
            for each, place in zip(again, self._places or (), strict=True)
            if not (isinstance(each, i.Reply) and each.id in (self._unfit or ()) and each.id not in answered)
        ]  # fmt: skip
        self._places = [place for _, place in kept]
        return [each for each, _ in kept]

    def _without_unasked(self, again: list[i.Intent], wanted: list[i.Intent]) -> list[i.Intent]:
        """A recorded `changed` for which nobody asks any more is no step: only the new way is left."""
        asked = {each.key for each in again if isinstance(each, i.Note)}
        left: list[i.Intent] = []
        for each in wanted:
            if isinstance(each, i.Note) and each.key.startswith(CHANGED) and each.key not in asked:
                markers = self._markers = {} if self._markers is None else self._markers
                # Who asks later, at another place, gets what the run took.
                markers[each.key.removeprefix(CHANGED)] = True
            else:
                left.append(each)
        return left


def keyed(name: str) -> str:
    """In keys `/` leads into what is inside of another."""
    return name.replace("/", ":")


def here(above: int) -> Place:
    """The line of the caller, so many calls above who asks."""
    frame = _frame(above + 1)
    return frame.f_code, frame.f_lasti


def _line() -> Place | None:
    """The line of the workflow that asked asyncio for something; None where a task of its own does."""
    frame = _frame(1)
    while frame.f_back is not None and frame.f_code is not Loop.run.__code__:
        if not frame.f_code.co_filename.startswith(_AROUND):
            return frame.f_code, frame.f_lasti
        frame = frame.f_back
    return None


def line_of(place: Place) -> int:
    code, at = place
    found = (line for start, end, line in code.co_lines() if start <= at < end)
    return next(found, None) or code.co_firstlineno


def shown_place(place: Place | None) -> str:
    return "" if place is None else _shown_line(place[0], line_of(place))


def _shown_line(code: CodeType, line: int) -> str:
    return f"{code.co_filename}:{line} in {code.co_name}"


class Pending(Coroutine[Any, Any, Any]):
    """Something to await, as a coroutine that knows whether anybody has awaited it."""

    __slots__ = ("_going", "_place", "_program", "_what")

    def __init__(self, program: Replay, place: Place, what: Any) -> None:
        self._program, self._place, self._what = program, place, what
        self._going: Generator[Any, Any, Any] | None = None

    def __await__(self) -> Generator[Any, Any, Any]:
        if self._going is not None:
            raise RuntimeError("cannot await a step a second time")
        going = self._going = self._what()
        return going

    def send(self, value: Any) -> Any:
        return (self._going or self.__await__()).send(value)

    def throw(self, *args: Any) -> Any:
        return (self._going or self.__await__()).throw(*args)

    def close(self) -> None:
        if self._going is not None:
            self._going.close()
        else:
            self._going = _over()

    def __del__(self) -> None:
        if self._going is None:
            program = self._program
            program.unawaited = [*(program.unawaited or ()), self._place]


def _over() -> Generator[Any, Any, Any]:
    yield


class Step(Pending):
    """A step to await, and how its result is read."""

    __slots__ = ("_read",)

    def __init__(self, program: Replay, place: Place, step: i.Waiting, read: Read | None) -> None:
        # All in one place, without a call of Pending's: the hot path.
        self._program, self._place, self._what, self._read = program, place, step, read
        self._going = None

    def __await__(self) -> Generator[Any, Any, Any]:
        if self._going is not None:
            raise RuntimeError("cannot await a step a second time")
        going = self._going = self._program.wait(self._what, self._read, self._place)
        return going
