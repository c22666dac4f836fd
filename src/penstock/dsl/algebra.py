"""The five operators: definitions built in Python from tasks (SPEC 2.4).

`a >> b` is a sequence, `a | b` runs both at a time, `a + b` takes exactly one, `loop(a, while_=…)` repeats, and
`when(cond, a, b)` decides. What they give is a Block, plain data that nests to any depth and compares by value.
`compose.py` makes a document of it, `decompose.py` reads a document back.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from penstock.errors import Rejected

Document = dict[str, Any]

WAITS = ("signal", "event", "timer", "form")
"""Types of task that are begun from outside: what an unguarded choice can wait for."""
_ID = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*\Z")
_ACTIVITY = "__penstock_activity__"


class _Operators:
    """What every Block can do."""

    __slots__ = ()

    def __rshift__(self, other: Any) -> Block:
        return sequence(as_block(self), as_block(other))

    def __rrshift__(self, other: Any) -> Block:
        return sequence(as_block(other), as_block(self))

    def __or__(self, other: Any) -> Block:
        return parallel(as_block(self), as_block(other))

    def __ror__(self, other: Any) -> Block:
        return parallel(as_block(other), as_block(self))

    def __add__(self, other: Any) -> Block:
        return choice(as_block(self), as_block(other))

    def __radd__(self, other: Any) -> Block:
        return choice(as_block(other), as_block(self))


@dataclass(frozen=True, slots=True)
class Leaf(_Operators):
    """A task, as a document has it. Without `id` it is called after what it does."""

    id: str | None
    fields: Document
    body: Block | None = None
    """Of a loop, map or mutex: what it holds."""

    @property
    def type(self) -> str:
        return "activity" if "do" in self.fields else str(self.fields.get("type", "activity"))


@dataclass(frozen=True, slots=True)
class Sequence(_Operators):
    """One after another; without parts it does nothing."""

    parts: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Parallel(_Operators):
    """All of them, at a time; over when all are."""

    branches: tuple[Block, ...]
    id: str | None = field(default=None, compare=False)
    """Of the gateway that splits, where one is needed."""


@dataclass(frozen=True, slots=True)
class Way:
    """One alternative; without a guard it is what remains, or is begun from outside."""

    guard: str | None
    then: Block


@dataclass(frozen=True, slots=True)
class Choice(_Operators):
    """The first way whose guard holds. A lone way whose guard does not hold is nothing to do."""

    ways: tuple[Way, ...]
    id: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Rest(_Operators):
    """A part of a graph that no operator can say, as it was written; `why` names the place."""

    entry: str
    tasks: Mapping[str, Document]
    links: tuple[Document, ...]
    """In order; those that leave it have no `to`."""
    why: str


Block = Leaf | Sequence | Parallel | Choice | Rest
nothing: Block = Sequence(())
"""The block that does nothing: `nothing >> a` is `a`."""


def task(
    what: Any = None,
    /,
    *,
    type: str | None = None,
    id: str | None = None,
    body: Any = None,
    **fields: Any,
) -> Leaf:
    """A leaf: `task(charge, inputs={…}, retry=3)`, or of another type `task("cool", type="timer", delay="5s")`.

    `what` is an activity, as a function or by name; with `type` it is the id. Fields are those of a document, and may
    be spelled with underscores (`output_schema`).
    """
    full: Document = {camel(name): value for name, value in fields.items()}
    if type is None or type == "activity":
        if what is None and "activity" not in full:
            raise _invalid("a task needs an activity, or a type", "task(charge) or task(type=…)")
        first = {"type": "activity"} if what is None else {"do": _activity(what)}
        full = {**first, **full}
    else:
        if what is not None and not isinstance(what, str):
            raise _invalid(f"a task of type `{type}` is named by a text, not by {what!r}")
        id = id if id is not None else what
        full = {"type": type, **full}
    if id is not None and not _ID.match(str(id)):
        raise _invalid(f"`{id}` is no id", "an id has letters, digits, `_` and `-`")
    if body is not None:
        body = as_block(body)
    elif type in ("loop", "map", "mutex"):
        raise _invalid(f"a task of type `{type}` needs a `body`")
    return Leaf(id, full, body)


def sequence(*parts: Block) -> Block:
    """`a >> b`: flat, so that grouping makes no difference."""
    flat: list[Block] = []
    for part in parts:
        flat.extend(part.parts if isinstance(part, Sequence) else (part,))
    return flat[0] if len(flat) == 1 else Sequence(tuple(flat))


def parallel(*branches: Block) -> Block:
    """`a | b`: flat, and without what does nothing."""
    flat: list[Block] = []
    for branch in branches:
        flat.extend(branch.branches if isinstance(branch, Parallel) else (branch,))
    flat = [branch for branch in flat if branch != nothing]
    if not flat:
        return nothing
    return flat[0] if len(flat) == 1 else Parallel(tuple(flat))


def choice(*alternatives: Block) -> Block:
    """`a + b`: the first whose guard holds; of those without, whichever is begun first from outside."""
    ways: list[Way] = []
    for each in alternatives:
        ways.extend(each.ways if isinstance(each, Choice) else (Way(None, each),))
    return chosen(ways)


def chosen(ways: list[Way]) -> Block:
    """The choice of these ways, checked."""
    opened = [way for way in ways if way.guard is None]
    if len(ways) == 1 and opened:
        return opened[0].then
    first = next((place for place, way in enumerate(ways) if way.guard is None), len(ways))
    if any(way.guard is not None for way in ways[first:]):
        raise _invalid(
            f"{_shown(ways[first].then)} has no guard and hides the alternatives after it",
            "put what has no guard last, or give it one: when(condition, …)",
        )
    if len(opened) > 1:
        for way in opened:
            if not begun_outside(way.then):
                raise _invalid(
                    f"{_shown(way.then)} is an alternative without a guard, and nothing begins it from outside",
                    "give it a guard, when(condition, …), or let it begin with a signal, event, timer or form",
                )
    return Choice(tuple(ways))


def when(condition: Any, then: Any, otherwise: Any = None, /) -> Block:
    """If the condition holds `then`, else `otherwise` or nothing; in a `+` it is a guarded alternative."""
    guard = _expression(condition)
    ways = [Way(guard, as_block(then))]
    if otherwise is not None:
        other = as_block(otherwise)
        ways.extend(other.ways if isinstance(other, Choice) else (Way(None, other),))
        if isinstance(other, Choice) and len(other.ways) == 1:
            ways.append(Way(None, nothing))
    return chosen(ways)


def loop(
    body: Any,
    /,
    *,
    while_: Any = None,
    until: Any = None,
    max: int | None = None,
    id: str | None = None,
    **fields: Any,
) -> Leaf:
    """The body again and again: with `while_` perhaps never, with `until` at least once."""
    if (while_ is None) == (until is None):
        raise _invalid("a loop needs exactly one of `while_` and `until`")
    if while_ is not None:
        fields["while"] = _expression(while_)
    else:
        fields["until"] = _expression(until)
    if max is not None:
        fields["max"] = max
    return task(id, type="loop", body=body, **fields)


def begun_outside(block: Block) -> bool:
    """Whether the block begins with one task that waits for something from outside."""
    if isinstance(block, Sequence) and block.parts:
        return begun_outside(block.parts[0])
    return isinstance(block, Leaf) and block.type in WAITS


def rests(block: Block) -> list[Rest]:
    """All that could not be read back, in order."""
    match block:
        case Rest():
            return [block]
        case Leaf():
            return [] if block.body is None else rests(block.body)
        case Sequence():
            return [rest for part in block.parts for rest in rests(part)]
        case Parallel():
            return [rest for part in block.branches for rest in rests(part)]
        case Choice():
            return [rest for way in block.ways for rest in rests(way.then)]


def canonical(block: Block) -> str:
    """The same text for blocks that are equivalent: that differ in the order of parallel branches, or in whether they
    say that otherwise there is nothing to do."""
    match block:
        case Leaf():
            body = "" if block.body is None else canonical(block.body)
            return f"{block.id}{_ordered(block.fields)}{{{body}}}"
        case Sequence():
            return "(" + " >> ".join(canonical(part) for part in block.parts) + ")"
        case Parallel():
            return "(" + " | ".join(sorted(canonical(part) for part in block.branches)) + ")"
        case Choice():
            spoken = block.ways[: 1 if block.ways[1:] == (Way(None, nothing),) else None]
            ways = [f"{way.guard!r}: {canonical(way.then)}" for way in spoken]
            return "(" + " + ".join(ways) + ")"
        case Rest():
            return f"<{_ordered(block.tasks)} {_ordered(block.links)}>"


def _ordered(value: Any) -> str:
    if isinstance(value, Mapping):
        items = cast("Mapping[str, Any]", value)
        return "{" + ", ".join(f"{key}: {_ordered(items[key])}" for key in sorted(items)) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_ordered(each) for each in cast("list[Any]", value)) + "]"
    return repr(value)


def as_block(value: Any) -> Block:
    """What stands beside an operator: a block, or an activity that becomes a leaf."""
    if isinstance(value, Leaf | Sequence | Parallel | Choice | Rest):
        return value
    if callable(value) or isinstance(value, str):
        return task(value)
    raise _invalid(f"{value!r} is no task", "give a task(…), an activity, or what operators made")


def _activity(what: Any) -> str:
    if isinstance(what, str):
        return what
    name = getattr(getattr(what, _ACTIVITY, None), "name", None) or getattr(what, "__name__", None)
    if not callable(what) or not isinstance(name, str):
        raise _invalid(f"{what!r} is no activity", "give a function or the name of an activity")
    return name


def _expression(condition: Any) -> str:
    if isinstance(condition, bool):
        return "true" if condition else "false"
    if isinstance(condition, str) and condition.strip():
        return condition
    raise _invalid(f"{condition!r} is no condition", "write an expression such as 'input.n > 3'")


def camel(name: str) -> str:
    first, *rest = name.strip("_").split("_")
    return first + "".join(part.capitalize() for part in rest)


def _shown(block: Block) -> str:
    while isinstance(block, Sequence) and block.parts:
        block = block.parts[0]
    if isinstance(block, Leaf):
        return f"`{block.id or block.fields.get('do') or block.type}`"
    return "nothing" if block == nothing else "a block of several tasks"


def _invalid(message: str, hint: str | None = None) -> Rejected:
    return Rejected("algebra-invalid", message, hint=hint)
