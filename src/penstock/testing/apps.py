"""What is simulated: an application's workflows, definitions, activities and its model of the world, looked at once."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random
from types import CodeType, ModuleType
from typing import Any, cast

import msgspec

from penstock.core.plan import Node, Plan
from penstock.core.vocabulary import AddedType
from penstock.dsl.compose import Composition
from penstock.dsl.load import Loaded, load_document
from penstock.errors import Rejected, shown
from penstock.ports.store import DefinitionRow
from penstock.sdk.functions import Workflow, workflow_of
from penstock.sdk.marks import is_workflow
from penstock.sdk.values import encode_value, hints_of
from penstock.sdk.workflow import ATTRIBUTE, Declared, name_of
from penstock.testing.drawing import HINTED, Shape, shape_of
from penstock.testing.scenario import row_of
from penstock.testing.worlds import Model, World
from penstock.verify.cases import Read, Values
from penstock.verify.filling import constants_of, guesses_of
from penstock.verify.scopes import place

DRAWN: Any = object()
"""No input is given: each run draws its own."""
KNOWN_MAX = 100_000
"""Larger numbers in code are not worth trying: somebody may count to them."""
WORD_MAX = 24


@dataclass(frozen=True)
class Kind:
    """A workflow function or a definition."""

    name: str
    workflow: Workflow | None = None
    loaded: Loaded | None = None
    plan: Plan | None = None
    known: tuple[Any, ...] = ()
    """Values that its code compares with."""

    @property
    def place(self) -> str:
        if self.workflow is not None:
            code = self.workflow.function.__code__  # type: ignore[attr-defined]
            return f"{code.co_filename}:{code.co_firstlineno}"
        assert self.loaded is not None
        found = self.loaded.place(())
        return f"{found.source}:{found.line}" if found.line else found.source


class App:
    """Made of a module, or of workflows, activities, definitions and Worlds in any order."""

    def __init__(
        self,
        things: Iterable[Any],
        *,
        only: Sequence[str] = (),
        input: Any = DRAWN,
        world: type[World] | None = None,
    ) -> None:
        self.input = input
        self.functions: list[Any] = []
        self.activities: dict[str, Any] = {}
        self.kinds: dict[str, Kind] = {}
        self.rows: list[tuple[DefinitionRow, Plan]] = []
        self.added: dict[str, AddedType] = {}
        """Types of tasks that plugins have added and definitions use."""
        self._known_reads: dict[str, Values] = {}
        worlds: list[type[World]] = []
        for thing in things:
            self._take(thing, worlds)
        named = list(self.kinds)
        for function in self.functions:  # which grows meanwhile
            self._take_referred(function)
        if world is None and len(worlds) > 1:
            names = ", ".join(each.__name__ for each in worlds)
            raise Rejected(
                "world-invalid", f"there are {len(worlds)} worlds: {names}", hint="one is enough for all activities"
            )  # fmt: skip
        chosen = world or (worlds[0] if worlds else None)
        self.model = None if chosen is None else Model(chosen)
        if not self.kinds:
            raise Rejected(
                "app-empty",
                "there is no workflow and no definition to simulate",
                hint="mark functions with `@workflow`, or name a YAML file beside the application",
            )
        for name in only:
            if name not in self.kinds:
                raise Rejected(
                    "workflow-unknown",
                    f"there is no workflow `{name}`",
                    hint=f"there is: {', '.join(self.kinds)}",
                )
        self.started = [self.kinds[name] for name in (only or named)]
        self._check_inputs()

    # --- what there is ---------------------------------------------------------------------------------------

    def _take(self, thing: Any, worlds: list[type[World]]) -> None:
        if isinstance(thing, ModuleType):
            for each in list(vars(thing).values()):
                if self._fits(each):
                    self._take(each, worlds)
        elif _is_world(thing):
            if thing not in worlds:
                worlds.append(thing)
        elif callable(thing) and is_workflow(thing):
            made = workflow_of(thing)
            if made.name not in self.kinds:
                self.functions.append(thing)
                self.kinds[made.name] = Kind(made.name, made, known=_known_to(thing.__code__))
        elif isinstance(thing, Composition):
            self._define(load_document(thing.document, source=thing.id))
        elif isinstance(thing, Loaded):
            self._define(thing)
        elif isinstance(thing, list | tuple):
            for each in cast("Sequence[Any]", thing):
                self._take(each, worlds)
        elif isinstance(thing, Mapping):
            self._define(load_document(dict(cast("Mapping[str, Any]", thing))))
        elif callable(thing):
            self.activities.setdefault(name_of(thing), thing)
        else:
            raise Rejected(
                "app-invalid",
                f"{shown(thing)} cannot be simulated",
                hint="a module, workflows, activities, definitions, or a World",
            )

    def _take_referred(self, function: Any) -> None:
        """What a workflow calls by a name of its module: activities, and workflows that only it starts."""
        for name in _names_in(function.__code__):
            value = function.__globals__.get(name)
            if self._fits(value) and callable(value) and not isinstance(value, type):
                self._take(value, [])

    @cached_property
    def careless(self) -> bool:
        """A workflow calls an activity itself: only the guard keeps that from being done for real."""
        return any(_calls_activity(each, set()) for each in self.functions)

    @staticmethod
    def _fits(value: Any) -> bool:
        """Of what a module holds."""
        try:
            if isinstance(value, type):
                return _is_world(cast("Any", value))
            return isinstance(value, Composition | Loaded) or (
                callable(value)
                and (is_workflow(value) or isinstance(getattr(value, ATTRIBUTE, None), Declared))
            )
        except Exception:  # whatever an object makes of being looked at
            return False

    def _define(self, loaded: Loaded) -> None:
        row, plan = row_of(loaded)
        if row.id in self.kinds:
            raise Rejected(
                "app-invalid", f"two workflows are named `{row.id}`", hint="give one of them another id"
            )  # fmt: skip
        known = tuple(each for each in constants_of(plan) if _worthy(each))
        self.kinds[row.id] = Kind(row.id, None, loaded, plan, known)
        self.rows.append((row, plan))
        self.added.update(loaded.vocabulary.types)

    @cached_property
    def nodes(self) -> dict[tuple[str, str], tuple[Node, str]]:
        """Tasks of definitions, by definition and static path, and where they are written."""
        found: dict[tuple[str, str], tuple[Node, str]] = {}
        for kind in self.kinds.values():
            if kind.plan is None or kind.loaded is None:
                continue
            for scope in kind.plan.scopes.values():
                for node in scope.nodes.values():
                    where = kind.loaded.place(place(scope, node.id), key=True)
                    text = f"{where.source}:{where.line}" if where.line else where.source
                    found[kind.name, node.path] = node, text
        return found

    @cached_property
    def called(self) -> list[str]:
        """Activities that definitions call, and nobody has written here."""
        names: dict[str, None] = {}
        for node, _ in self.nodes.values():
            if node.type == "activity":
                names[str(node.config.get("activity", ""))] = None
            if node.compensate is not None:
                names[node.compensate.activity] = None
        return [name for name in names if name and name not in self.activities and name != "http"]

    def declared(self, activity: str) -> Declared:
        found = getattr(self.activities.get(activity), ATTRIBUTE, None)
        return found if isinstance(found, Declared) else Declared()

    @property
    def model_does(self) -> Mapping[str, str]:
        """Activities that the model of the world stands for."""
        return {} if self.model is None else self.model.does

    # --- what is undone --------------------------------------------------------------------------------------

    @cached_property
    def ways_back(self) -> dict[str, set[str]]:
        """Activities that undo others, by those, wherever the application says so."""
        found: dict[str, set[str]] = {}
        for node, _ in self.nodes.values():
            if node.compensate is not None and node.type == "activity":
                found.setdefault(str(node.config["activity"]), set()).add(node.compensate.activity)
        for function in self.functions:
            for activity, undo in _undone_in(function):
                found.setdefault(activity, set()).add(undo)
        return found

    @cached_property
    def undoing(self) -> frozenset[str]:
        """Workflows that undo something."""
        named = {kind for (kind, _), (node, _) in self.nodes.items() if node.compensate is not None}
        named |= {workflow_of(each).name for each in self.functions if _undone_in(each)}
        return frozenset(named)

    # --- what they are started with --------------------------------------------------------------------------

    def input_of(self, kind: Kind, chance: Random) -> Any:
        if self.input is not DRAWN:
            return self.input
        if self.model is not None:
            for each, given in self.model.world.inputs.items():
                if (each if isinstance(each, str) else _workflow_name(each)) == kind.name:
                    return plain(chosen(given, chance))
        if kind.plan is not None:
            return self._document_input(kind, kind.plan, chance)
        assert kind.workflow is not None
        hints = hints_of(kind.workflow.function)
        made: dict[str, Any] = {}
        for each in list(inspect.signature(kind.workflow.function).parameters.values())[1:]:
            if each.kind in (each.VAR_KEYWORD, each.VAR_POSITIONAL):
                continue
            optional = each.default is not each.empty
            shape = shape_of(hints.get(each.name, Any))
            if optional and (shape is None or chance.random() < 0.5):
                continue
            made[each.name] = (
                f"{each.name}-{chance.randint(1, 99)}"
                if shape is None
                else shape.draw(chance, each.name, kind.known)
            )
        return made

    def _document_input(self, kind: Kind, plan: Plan, chance: Random) -> Any:
        schema = plan.definition.input_schema
        if schema is None:
            return self.guess(kind, ("input",), chance)
        shape = Shape(schema)
        made = shape.draw(chance, "in", kind.known)
        fuller = self.guess(kind, ("input",), chance, made)
        return fuller if shape.accepts(fuller) else made

    def guess(self, kind: Kind, root: Read, chance: Random, made: Any = None) -> Any:
        """Something in which all is that expressions of the definition read there, as far as it is not there already."""
        for read, value in sorted(self._guesses(kind).items(), key=lambda each: len(each[0])):
            if read[: len(root)] != root:
                continue
            drawn = self._guessed(kind, chance)
            made = _put(
                made,
                read[len(root) :],
                [drawn] * chance.randint(0, 3) if isinstance(value, list) else drawn,
            )
        return made

    def loose(self, kind: Kind) -> bool:
        """Whether a part of what it is started with is a guess, as no type says what it is."""
        if self.input is not DRAWN:
            return False
        if kind.workflow is not None:
            hints = hints_of(kind.workflow.function)
            given = list(inspect.signature(kind.workflow.function).parameters.values())[1:]
            return any(each.default is each.empty and each.name not in hints for each in given)
        assert kind.plan is not None
        schema = kind.plan.definition.input_schema
        if schema is None:
            return any(read[0] == "input" for read in self._guesses(kind))
        drawn = [Shape(schema).draw(Random(1), "in") for _ in range(2)]
        return self.guess(kind, ("input",), Random(1), drawn[0]) != drawn[1]

    def _guesses(self, kind: Kind) -> Values:
        if kind.name not in self._known_reads:
            self._known_reads[kind.name] = {} if kind.plan is None else guesses_of(kind.plan)
        return self._known_reads[kind.name]

    def _guessed(self, kind: Kind, chance: Random) -> Any:
        numbers = [each for each in kind.known if isinstance(each, int | float)]
        words = [each for each in kind.known if isinstance(each, str)]
        if words and (not numbers or chance.random() < 0.5):
            return chance.choice(words)
        if numbers and chance.random() < HINTED:
            return chance.choice(numbers)
        return chance.choice([0, 1, 2, 3])

    def _check_inputs(self) -> None:
        """What is given must fit every workflow that is started with it."""
        if self.input is DRAWN:
            return
        for kind in self.started:
            if kind.plan is not None and kind.plan.input_schema is not None:
                problem = kind.plan.input_schema.problems(self.input)
                if problem:
                    raise Rejected(
                        "input-invalid", f"`{kind.name}` does not take that input: {problem}"
                    )
            if kind.workflow is not None:
                try:
                    kind.workflow._bound(encode_value(self.input))  # pyright: ignore[reportPrivateUsage]
                except Rejected as error:
                    raise Rejected("input-invalid", error.message, hint=error.hint) from None
                except Exception as error:
                    raise Rejected(
                        "input-invalid", f"`{kind.name}` does not take that input: {error}"
                    ) from None


def _put(made: Any, path: Sequence[str], value: Any) -> Any:
    """The value there, unless something is."""
    if not path:
        return value if made is None else made
    if made is None:
        made = {}
    if isinstance(made, dict):
        inner = cast("dict[str, Any]", made)
        inner[path[0]] = _put(inner.get(path[0]), path[1:], value)
    return cast("Any", made)


def _is_world(thing: Any) -> bool:
    return isinstance(thing, type) and issubclass(thing, World) and thing is not World


def chosen(given: Any, chance: Random) -> Any:
    """What a World gives: a function of chance, or one of several."""
    if callable(given):
        return cast("Callable[[Random], Any]", given)(chance)
    if isinstance(given, Sequence) and not isinstance(given, str | bytes) and given:
        return chance.choice(cast("Sequence[Any]", given))
    return cast("Any", given)


def plain(value: Any) -> Any:
    """As JSON has it."""
    return msgspec.json.decode(encode_value(value))


def _workflow_name(function: Any) -> str:
    return workflow_of(function).name if is_workflow(function) else str(function)


def _worthy(value: Any) -> bool:
    if isinstance(value, str):
        return 0 < len(value) <= WORD_MAX and " " not in value
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= KNOWN_MAX
    )


def _known_to(code: CodeType) -> tuple[Any, ...]:
    """Values that stand in a function."""
    found: dict[Any, None] = {}
    waiting = [code]
    while waiting:
        for each in waiting.pop().co_consts:
            if isinstance(each, CodeType):
                waiting.append(each)
            elif _worthy(each):
                found[each] = None
    return tuple(found)


def _calls_activity(function: Any, seen: set[Any]) -> bool:
    """As it is written: by its name, or by that of its module; also in functions that it calls so."""
    seen.add(function)
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function))))
    except (OSError, TypeError, SyntaxError, ValueError):
        return False
    for node in ast.walk(tree):
        called = node.func if isinstance(node, ast.Call) else None
        value: Any = None
        if isinstance(called, ast.Name):
            value = function.__globals__.get(called.id)
        elif isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
            module = function.__globals__.get(called.value.id)
            value = vars(module).get(called.attr) if isinstance(module, ModuleType) else None
        if not inspect.isfunction(value) or value in seen:
            continue
        if isinstance(getattr(value, ATTRIBUTE, None), Declared):
            return True
        if value.__module__ == function.__module__ and _calls_activity(value, seen):
            return True
    return False


def _names_in(code: CodeType) -> Iterator[str]:
    """Names of a module, or of anything, that a function uses."""
    yield from code.co_names
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _names_in(each)


def _undone_in(function: Any) -> list[tuple[str, str]]:
    """`ctx.call(charge, …, undo=refund)` in a workflow's code: (charge, refund)."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return []
    names: Mapping[str, Any] = function.__globals__
    found: list[tuple[str, str]] = []
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
            continue
        undo = next((each.value for each in node.keywords if each.arg == "undo"), None)
        if undo is not None and node.func.attr in ("call", "map"):
            pair = [_activity_at(each, names) for each in (node.args[0], undo)]
            if all(pair):
                found.append((pair[0], pair[1]))
    return found


def _activity_at(node: ast.expr, names: Mapping[str, Any]) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    found = names.get(node.id) if isinstance(node, ast.Name) else None
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        found = getattr(names.get(node.value.id), node.attr, None)
    return name_of(found) if callable(found) else ""
