"""Activities in a simulation of somebody's workflows: stubs drawn from their types, the model of the world, or their own code.

What comes of a call follows from the seed, the run it belongs to, the activity, its arguments and how often it was called with
them before: not from the order in which calls are made. How long it takes is drawn apart from that, so that the same outcomes
can be played in another order.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING, Any, cast
from zlib import crc32

import msgspec

from penstock.core.keys import static
from penstock.core.vocabulary import PREFIX
from penstock.errors import Fail
from penstock.model.job import Job
from penstock.sdk.arguments import BadArguments, Parameters
from penstock.sdk.attempt import current
from penstock.sdk.signatures import _hints as hints_at  # pyright: ignore[reportPrivateUsage]
from penstock.sdk.workflow import ATTRIBUTE, Entry, entry_of, names_of
from penstock.testing.apps import App, chosen, plain
from penstock.testing.drawing import Shape, shape_of

if TYPE_CHECKING:
    from penstock.testing.plays import Play

ALIKE = 20
"""So many calls with the same arguments give the same: their order must not matter. Later ones may give something else, so
that who asks again and again gets another answer at last."""
TRANSIENT, REFUSED, LATE = 0.08, 0.03, 0.02
"""How many attempts fail for now, for good, or take longer than they may."""
LOST = 0.4
"""Of those that fail for now, how many have done what they were to do: only the answer was lost."""
UNDO_TRANSIENT = 0.05
SECONDS_LEAST, SECONDS_MOST = 0.01, 1.5
HTTP: dict[str, Any] = {"status": 200, "headers": {}, "body": None, "url": "https://example.org/"}


class Unavailable(ConnectionError):
    """What a simulated attempt fails with."""


class Troupe:
    """All activities of an application, made once and played in many simulations."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.play: Play = cast("Play", None)
        """The simulation that is being played."""
        self._shapes: dict[int, Shape] = {}
        self.entries: list[Entry] = [self._entry(each) for each in app.activities.values()]
        self.entries += [self._named(name) for name in app.called]
        self.entries.append(self._named("http", {"const": HTTP}))
        self.entries += [
            self._named(PREFIX + name, each.output) for name, each in app.added.items()
        ]
        self.served = {each.name: each.served for each in self.entries}

    def _entry(self, function: Any) -> Entry:
        entry = entry_of(function)
        own = entry.served.transactional
        hints = hints_at(function)
        shape = shape_of(hints["return"]) if "return" in hints else None
        signature = _signature(function, own)
        runs = self.app.declared(entry.name).simulate
        act = self._acted(entry.name, function if runs else None, shape, signature)

        @functools.wraps(
            inspect.unwrap(function) if inspect.isroutine(function) else type(function).__call__
        )
        async def pretended(*args: Any, **named: Any) -> Any:
            return await act(args, named)

        pretended.__signature__ = signature  # type: ignore[attr-defined]
        pretended.__dict__.pop(ATTRIBUTE, None)
        parameters, open_ended = names_of(pretended)
        served = msgspec.structs.replace(
            entry.served, kind="loop", cpu=False, transactional="", parameters=parameters, open_ended=open_ended
        )  # fmt: skip
        return Entry(served, pretended, Parameters(pretended))

    def _named(self, name: str, schema: Any = None) -> Entry:
        """One that nobody has written here, and a definition calls; or a type of task: none is executed."""
        act = self._acted(name, None, None if schema is None else Shape(schema), None)

        async def pretended(*args: Any, **named: Any) -> Any:
            return await act(args, named)

        return entry_of(pretended, name=name)

    def _acted(
        self, name: str, own: Any, shape: Shape | None, signature: inspect.Signature | None
    ) -> Callable[..., Any]:
        async def act(args: tuple[Any, ...], named: dict[str, Any]) -> Any:
            if signature is not None:
                try:
                    signature.bind(*args, **named)
                except TypeError as error:
                    raise BadArguments(f"{error}; it takes {signature}") from None
            attempt = current()
            worker: Any = getattr(attempt, "worker", None)
            call = Call(self, name, attempt.job, worker.clock, shape)
            return await call.perform(own, args, named)

        return act

    def shape_at(self, job: Job) -> tuple[Shape | None, tuple[Any, ...]]:
        """What a task of a definition must give, and values that are worth trying."""
        definition = self.play.definition_of(job)
        kind = self.app.kinds.get(definition)
        known = () if kind is None else kind.known
        found = None if job.undo else self.app.nodes.get((definition, static(job.key)))
        if found is None or found[0].task.output_schema is None:
            return None, known
        schema = found[0].task.output_schema
        if id(schema) not in self._shapes:
            self._shapes[id(schema)] = Shape(schema)
        return self._shapes[id(schema)], known


class Call:
    """One attempt."""

    def __init__(
        self, troupe: Troupe, name: str, job: Job, clock: Any, shape: Shape | None
    ) -> None:
        self._troupe, self.play, self.name, self.job, self._clock = (
            troupe,
            troupe.play,
            name,
            job,
            clock,
        )
        self._shape = shape
        self.ident = self.play.ident(name, job)

    async def perform(self, own: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        play, job = self.play, self.job
        mishap = play.mishap(self)
        seconds = play.seconds(self)
        model = play.app.model
        method = None if model is None else model.does.get(self.name)
        acts = own is not None or method is not None
        if mishap == "late":
            await self._clock.rest((self.limit() or 0.0) + 1.0)  # without a heartbeat: it hangs
        if not acts:
            await self._rest(seconds)
            self._fail("transient" if mishap == "lost" else mishap)
            return self._drawn()
        half = play.draw("half", self.ident, job.attempt).random() * seconds
        await self._rest(half)
        if mishap != "lost":
            self._fail(mishap)
        if method is not None:
            made = getattr(play.world, method)(*args, **named)
            made = await made if inspect.isawaitable(made) else made
        elif inspect.iscoroutinefunction(own):
            made = await cast("Any", own)(*args, **named)
        else:
            with _slept() as total:
                made = cast("Any", own)(*args, **named)
                made = await made if inspect.isawaitable(made) else made
            await self._rest(total[0])
        play.look()
        await self._rest(seconds - half)
        self._fail(mishap)
        return self._drawn() if made is None and method is not None else made

    def _fail(self, mishap: str) -> None:
        if mishap in ("transient", "lost"):
            lost = "; it was done, and the answer was lost" if mishap == "lost" else ""
            raise Unavailable(f"simulated: `{self.name}` is not available{lost}")
        if mishap == "refused":
            raise Fail(f"simulated: `{self.name}` refuses", code="simulated")

    def _drawn(self) -> Any:
        """A result by chance."""
        play = self.play
        asked, known = self._troupe.shape_at(self.job)
        shape = asked or self._shape
        chance = play.draw(
            "value", self.ident.rpartition("|")[0], int(self.ident.rpartition("|")[2]) // ALIKE
        )
        if shape is None:
            if self.job.undo:
                return None
            play.guessed.setdefault(self.job.run_id, f"what `{self.name}` gave")
            kind = play.app.kinds.get(play.definition_of(self.job))
            id = static(self.job.key).rpartition("/")[2]
            made = None if kind is None else play.app.guess(kind, ("tasks", id, "output"), chance)
            return f"{self.name}-{chance.randint(1, 99)}" if made is None else made
        return shape.draw(chance, self.name, known)

    def limit(self) -> float | None:
        """How long it may take."""
        limit = self.job.start_to_close
        return self._troupe.served[self.name].start_to_close if limit is None else limit

    def _beat(self) -> float | None:
        beat = self.job.heartbeat
        return self._troupe.served[self.name].heartbeat if beat is None else beat

    async def _rest(self, seconds: float) -> None:
        """By the clock of its node, with a heartbeat now and then."""
        beat = self._beat()
        while beat is not None and seconds > beat / 3:
            await self._clock.rest(beat / 3)
            seconds -= beat / 3
            current().heartbeat()
        if seconds > 0:
            await self._clock.rest(seconds)
        else:
            await asyncio.sleep(0)


class Calls:
    """Names of calls: by run, activity, arguments, and how many like it were before."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int, str, bool], str] = {}
        self._count: Counter[str] = Counter()

    def ident(self, name: str, job: Job) -> str:
        whose = (job.run_id, job.generation, job.key, job.undo)
        found = self._known.get(whose)
        if found is None:
            given = crc32(msgspec.json.encode(plain(job.arguments), order="sorted"))
            alike = f"{job.run_id.partition('/')[0]}|{name}|{given}"
            self._count[alike] += 1
            found = self._known[whose] = f"{alike}|{self._count[alike] - 1}"
        return found


@contextmanager
def _slept() -> Generator[list[float]]:
    """A plain function that sleeps does so in simulated time, once it has returned."""
    total, real = [0.0], time.sleep

    def sleep(seconds: float) -> None:
        total[0] += seconds

    time.sleep = sleep
    try:
        yield total
    finally:
        time.sleep = real


def answer_to(app: App, name: str, schema: Any, chance: Random, word: str) -> tuple[Any, bool]:
    """What somebody says who is asked, and whether that is only a guess."""
    if app.model is not None and name in app.model.world.answers:
        return plain(chosen(app.model.world.answers[name], chance)), False
    if isinstance(schema, Shape):
        return schema.draw(chance, word), False
    return chance.choice([True, True, True, False, None]), True


def _signature(function: Any, without: str) -> inspect.Signature | None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    kept = [each for name, each in signature.parameters.items() if name != without]
    return signature.replace(parameters=kept)
