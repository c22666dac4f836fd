"""World: the application's own model of what is outside of it, for `penstock simulate` (SPEC 13).

One world is made for each seed, and outlives every crash in it, as the real one does. Its methods say what activities do to
it, `effect` counts what must not happen twice, and invariants say what must hold of it.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar, Self, TypeVar, cast, overload

from penstock.errors import Rejected
from penstock.sdk.attempt import CURRENT
from penstock.sdk.workflow import name_of

F = TypeVar("F", bound=Callable[..., Any])

_DOES = "__penstock_does__"
_INVARIANT = "__penstock_invariant__"


@dataclass(frozen=True)
class Ended:
    """A run that is over, as `World.runs` has it."""

    id: str
    workflow: str
    status: str
    """COMPLETED, FAILED, CANCELLED, TIMED_OUT, TERMINATED."""
    input: Any
    result: Any


@dataclass(frozen=True)
class Effect:
    """Something that an activity did to the world."""

    what: str
    about: tuple[Any, ...]
    by: str
    """The idempotency key of the task that did it."""
    run: str
    key: str
    attempt: int
    undo: bool
    repeats: bool
    lasts: bool

    def __str__(self) -> str:
        return f"{self.what}{' ' if self.about else ''}{', '.join(map(str, self.about))}"


class World:
    """A model of what activities act on. Subclass it in the application's file or in a test."""

    takes: ClassVar[Mapping[Any, float | tuple[float, float]]] = {}
    """How long activities take: seconds, or the least and the most of them."""
    answers: ClassVar[Mapping[str, Any]] = {}
    """What people answer to a signal, update, form or event, by its name: a sequence to choose from, or a function of
    a `random.Random`."""
    inputs: ClassVar[Mapping[Any, Any]] = {}
    """What workflows are started with, by workflow: a sequence to choose from, or a function of a `random.Random`."""

    random: Random
    """Chance from the seed, for the model's own decisions."""
    runs: Sequence[Ended] = ()
    """When all is over: every run that there was."""

    _here: ClassVar[World | None] = None
    _teller: Teller | None = None

    @classmethod
    def here(cls) -> Self | None:
        """The world of the simulation that this code runs in; None anywhere else."""
        found = World._here
        return found if isinstance(found, cls) else None

    def effect(self, what: str, *about: Any, repeats: bool = False, lasts: bool = False) -> None:
        """Something has been done to the world. The same by the same task a second time is reported, unless it may
        `repeat`; and so is what is left of a run that failed, unless it may `last`."""
        attempt = CURRENT.get()
        if attempt is None or self._teller is None:
            return
        job = attempt.job
        self._teller.effect(
            Effect(
                what, about, job.idempotency_key, job.run_id, job.key, job.attempt, job.undo, repeats, lasts
            )
        )  # fmt: skip

    def undone(self, what: str, *about: Any) -> None:
        """That effect, if it was there, has been taken back."""
        if self._teller is not None:
            self._teller.undone(what, about)


class Teller:
    """What hears of effects while a simulation plays."""

    def effect(self, effect: Effect) -> None:
        raise NotImplementedError

    def undone(self, what: str, about: tuple[Any, ...]) -> None:
        raise NotImplementedError


def does(*activities: Any) -> Callable[[F], F]:
    """Make a method of a World what those activities (functions, or names) do in a simulation. It gets their arguments;
    what it returns is their result, and for None one is drawn from their types."""
    if not activities:
        raise Rejected("world-invalid", "`@does` names no activity", hint="@does(charge)")
    names = tuple(name_of(each) for each in activities)

    def mark(function: F) -> F:
        setattr(function, _DOES, names)
        return function

    return mark


@overload
def invariant(function: F, /) -> F: ...


@overload
def invariant(*, end: bool = False) -> Callable[[F], F]: ...


def invariant(function: F | None = None, /, *, end: bool = False) -> F | Callable[[F], F]:
    """Make a method of a World something that must hold after every attempt, or with `end` once all runs are over: it does
    not if the method raises AssertionError, or returns False."""

    def mark(function: F) -> F:
        setattr(function, _INVARIANT, end)
        return function

    return mark if function is None else mark(function)


class Model:
    """A World class, looked at once."""

    def __init__(self, world: type[World]) -> None:
        self.world = world
        self.does: dict[str, str] = {}
        """Methods by the activity that they stand for."""
        self.invariants: list[tuple[str, bool]] = []
        for name, member in inspect.getmembers(world, callable):
            for activity in cast("tuple[str, ...]", getattr(member, _DOES, ())):
                if activity in self.does:
                    raise Rejected(
                        "world-invalid",
                        f"two methods of {world.__name__} say what `{activity}` does: "
                        f"{self.does[activity]} and {name}",
                    )
                self.does[activity] = name
            end = getattr(member, _INVARIANT, None)
            if end is not None:
                self.invariants.append((name, end))
        self.takes = {name_of(each): _span(each, span) for each, span in world.takes.items()}

    def make(self, seed: int, teller: Teller) -> World:
        """A world as it is before anything has happened."""
        try:
            made = self.world()
        except Exception as error:
            raise Rejected(
                "world-invalid",
                f"{self.world.__name__}() raises {type(error).__name__}: {error}",
                hint="a World is made without arguments, once for each seed",
            ) from error
        made.random = Random(f"{seed}/world")
        made._teller = teller  # pyright: ignore[reportPrivateUsage]
        World._here = made  # pyright: ignore[reportPrivateUsage]
        return made

    def broken(self, world: World, *, end: bool) -> Iterator[tuple[str, str]]:
        """Invariants that do not hold, and what they say."""
        for name, at_end in self.invariants:
            if at_end and not end:
                continue
            method = getattr(world, name)
            try:
                held = method()
            except AssertionError as error:
                yield name, str(error) or _said(method)
            except Exception as error:
                yield name, f"it raises {type(error).__name__}: {error}"
            else:
                if held is False:
                    yield name, _said(method)

    def place(self, name: str) -> str:
        """Where a method of the world is written."""
        code = getattr(inspect.unwrap(getattr(self.world, name)), "__code__", None)
        return "" if code is None else f"{code.co_filename}:{code.co_firstlineno}"


class Standing:
    """Effects that are there, and those that came twice."""

    def __init__(self) -> None:
        self.of_task: Counter[tuple[str, str, tuple[Any, ...]]] = Counter()
        self.there: list[Effect] = []

    def add(self, effect: Effect) -> int:
        """How often the same task has done it by now."""
        index = effect.by, effect.what, effect.about
        self.of_task[index] += 1
        self.there.append(effect)
        return self.of_task[index]

    def remove(self, what: str, about: tuple[Any, ...]) -> None:
        """The newest of those that are meant."""
        for place in range(len(self.there) - 1, -1, -1):
            each = self.there[place]
            if each.what == what and each.about[: len(about)] == about:
                del self.there[place]
                self.of_task[each.by, each.what, each.about] -= 1
                return


def _said(method: Any) -> str:
    """What an invariant is about: its first line, or its name."""
    text = (inspect.getdoc(method) or "").partition("\n")[0].strip()
    return text.rstrip(".") or method.__name__.replace("_", " ")


def _span(activity: Any, span: float | tuple[float, float]) -> tuple[float, float]:
    low, high = span if isinstance(span, tuple) else (span, span)
    if not 0 <= low <= high:
        raise Rejected(
            "world-invalid",
            f"`takes` of `{name_of(activity)}` is {span!r}: seconds, or (least, most)",
        )
    return float(low), float(high)
