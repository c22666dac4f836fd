"""A tree to Python closures that count their cost and read lazily.

Every node counts one step, paid for at the start whether or not its branch is taken; the body of a
macro is paid for with each element, and functions pay for the text and lists they build. A variable's
mappings are asked for the keys that the expression names and for nothing else.

Errors of the expression are `Fault`s, which `&&`, `||`, `all` and `exists` absorb as CEL says. Whatever
else a mapping raises goes straight through.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from penstock.errors import CostExceeded, EvaluationError, ExpressionError
from penstock.expr.jsonable import to_json
from penstock.expr.loops import compile_comprehension
from penstock.expr.operators import compile_binary, compile_logic, located
from penstock.expr.parse import (
    Binary,
    Bind,
    Call,
    Comprehension,
    Conditional,
    Has,
    Ident,
    Index,
    ListLiteral,
    Literal,
    Logic,
    MapLiteral,
    Node,
    Select,
    Unary,
    parse,
)
from penstock.expr.reads import (
    UNREAD,
    compile_bound,
    compile_has,
    compile_index,
    compile_local,
    compile_optional_index,
    compile_path,
    compile_select,
    compile_variable,
    static_reads,
)
from penstock.expr.registry import FUNCTIONS, Function
from penstock.expr.typecheck import VARIADIC, Checked, Environment, Type, check
from penstock.expr.values import (
    TYPE_VALUES,
    Exhausted,
    Fault,
    Frame,
    Optional,
    double_of,
    integral,
    kind_of,
    map_of,
)

__all__ = ["Environment", "Expression", "Node", "Type", "compile_expression"]

COST_MAX = 100_000
# A result is only walked, not computed: its parts are cheaper than steps.
JSON_NODES_PER_COST = 10
_EXCERPT_CHARACTERS = 50

Run = Callable[[Frame], Any]


class Expression:
    """A compiled expression: immutable, reusable, safe to share between threads."""

    __slots__ = ("_cost", "_run", "_slots", "reads", "text", "tree", "type")

    text: str
    tree: Node
    type: Type
    reads: frozenset[tuple[str, ...]]

    def __init__(self, text: str, tree: Node, checked: Checked) -> None:
        compiler = Compiler(checked)
        self.text = text
        self.tree = tree
        self.type = checked.result
        self.reads = static_reads(tree, checked)
        self._run = compiler.compile(tree)
        self._cost = compiler.cost
        self._slots: list[Any] = [None] * compiler.slots

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"

    def evaluate(self, variables: Mapping[str, Any], *, cost_max: int = COST_MAX) -> Any:
        """The CEL value; raises `EvaluationError`, or `CostExceeded` past the limit.

        Timestamps are `datetime`, durations `timedelta`, uints `Uint`; see `values.py`.
        """
        frame: Frame = [cost_max - self._cost, variables, *self._slots]
        try:
            if frame[0] < 0:
                raise Exhausted
            return self._run(frame)
        except (Fault, Exhausted, RecursionError) as error:
            raise self._explained(error, cost_max) from None

    def evaluate_json(self, variables: Mapping[str, Any], *, cost_max: int = COST_MAX) -> Any:
        """The value as JSON: timestamps RFC 3339, durations `1.5s`, bytes base64, none as null.

        What JSON cannot hold (NaN, infinities, types) raises `EvaluationError`.
        """
        value = self.evaluate(variables, cost_max=cost_max)
        try:
            return to_json(value, nodes_max=JSON_NODES_PER_COST * cost_max)
        except (Fault, Exhausted, RecursionError) as error:
            raise self._explained(error, cost_max) from None

    def _explained(self, error: Exception, cost_max: int) -> EvaluationError:
        # A new error: a mapping may itself evaluate expressions, and what those raise is no Fault of ours.
        position = error.position if isinstance(error, Fault) else None
        text = _excerpt(self.text, position or 0)
        if isinstance(error, Exhausted):
            return CostExceeded(f"more than {cost_max} steps are needed for `{text}`")
        if not isinstance(error, Fault):
            return EvaluationError(f"a value is nested too deep (in `{text}`)")
        where = "in" if position is None else f"at character {position + 1} of"
        return EvaluationError(f"{error.message} ({where} `{text}`)")


def _excerpt(text: str, position: int) -> str:
    """The text, or what is around the position if it is long."""
    if len(text) <= 2 * _EXCERPT_CHARACTERS:
        return text
    start = max(0, position - _EXCERPT_CHARACTERS)
    end = start + 2 * _EXCERPT_CHARACTERS
    return ("..." if start else "") + text[start:end] + ("..." if end < len(text) else "")


def compile_expression(text: str, env: Environment | None = None) -> Expression:
    """Parse, check and compile; `ExpressionError` with the position of what is wrong.

    Without an environment any variable is dynamic and looked up when the expression runs.
    """
    if env is None:
        return _compile_unchecked(text)
    return _compile(text, env)


@lru_cache(maxsize=1024)
def _compile_unchecked(text: str) -> Expression:
    return _compile(text, None)


def _compile(text: str, env: Environment | None) -> Expression:
    tree = parse(text)
    try:
        return Expression(text, tree, check(text, tree, env))
    except RecursionError:
        raise ExpressionError("the expression is nested too deep", text=text) from None


class Compiler:
    """Nodes to closures; counts the steps of the region that it is in, and the slots used."""

    def __init__(self, checked: Checked) -> None:
        self.checked = checked
        self.cost = 0
        self.slots = 0
        self.scope: dict[str, int] = {}
        # What a variable of cel.bind stands for, by its slot.
        self._bound: dict[int, Run] = {}

    def compile(self, node: Node) -> Run:
        self.cost += 1
        match node:
            case Literal():
                return _constant(node.value)
            case Ident():
                return self._ident(node)
            case Select():
                return self._select(node)
            case Index():
                return self._index(node)
            case Call():
                return self._call(node)
            case ListLiteral():
                return self._list(node)
            case MapLiteral():
                return self._map(node)
            case Unary():
                return self._unary(node)
            case Binary():
                return self._binary(node)
            case Logic():
                runs: list[Run] = []
                for operand in node.operands:
                    runs.append(self.compile(operand))
                positions = [operand.position for operand in node.operands]
                return compile_logic(node.operator, runs, positions)
            case Conditional():
                return _conditional(
                    self.compile(node.condition),
                    self.compile(node.then),
                    self.compile(node.otherwise),
                    node.condition.position,
                )
            case Has():
                return compile_has(self.compile(node.operand), node.field, node.position)
            case Comprehension():
                return compile_comprehension(self, node)
            case Bind():
                return self._bind(node)

    def compile_region(self, node: Node) -> tuple[Run, int]:
        """A part that runs any number of times, with what it costs each time."""
        before, self.cost = self.cost, 0
        run = self.compile(node)
        cost, self.cost = self.cost, before
        return run, cost

    def slot(self) -> int:
        """A place in the frame for one more loop variable."""
        self.slots += 1
        return self.slots + 1

    def type_of(self, node: Node) -> Type:
        return self.checked.types[id(node)]

    def _ident(self, node: Ident) -> Run:
        reads = self.type_of(node).reads
        if node.name in self.scope and not node.absolute:
            slot = self.scope[node.name]
            if slot in self._bound:
                return compile_bound(slot, self._bound[slot], reads, node.position)
            return compile_local(slot, reads, node.position)
        type_name = self.checked.type_names.get(id(node))
        type_value = TYPE_VALUES[type_name] if type_name is not None else None
        return compile_variable(node.name, reads, node.position, type_value)

    def _select(self, node: Select) -> Run:
        if id(node) in self.checked.type_names:
            return _constant(TYPE_VALUES[self.checked.type_names[id(node)]])
        reads = self.type_of(node).reads
        if node.optional:
            return compile_optional_index(
                self.compile(node.operand), _constant(node.field), node.position, select=True
            )
        path: list[tuple[str, int]] = [(node.field, node.position)]
        first: Node = node.operand
        while True:
            if isinstance(first, Select) and not first.optional:
                path.append((first.field, first.position))
                first = first.operand
            elif (
                isinstance(first, Index)
                and not first.optional
                and isinstance(first.key, Literal)
                and isinstance(first.key.value, str)
            ):
                path.append((first.key.value, first.position))
                first = first.operand
                self.cost += 1
            else:
                break
            self.cost += 1
        path.reverse()
        if (
            isinstance(first, Ident)
            and (first.absolute or first.name not in self.scope)
            and id(first) not in self.checked.type_names
        ):
            self.cost += 1
            return compile_path(first.name, first.position, path, reads)
        return compile_select(self.compile(first), path, reads)

    def _index(self, node: Index) -> Run:
        operand, key = self.compile(node.operand), self.compile(node.key)
        if node.optional:
            return compile_optional_index(operand, key, node.position, select=False)
        return compile_index(operand, key, node.position, self.type_of(node).reads)

    def _call(self, node: Call) -> Run:
        run = self._call_run(node)
        entry, _ = self.checked.functions[id(node)]
        reads = self.type_of(node).reads
        if not reads or not entry.generic:
            return run

        # A function that hands on what it was given hands on numbers as they were written; they are read by their
        # type here, as they are everywhere else.
        def as_double(frame: Frame) -> Any:
            value = run(frame)
            return double_of(value) if value.__class__ is int else value

        def as_whole(frame: Frame) -> Any:
            value = run(frame)
            return integral(value) if value.__class__ is float else value

        return as_double if reads == "double" else as_whole

    def _call_run(self, node: Call) -> Run:
        entry, method = self.checked.functions[id(node)]
        if method and node.function in ("or", "orValue") and len(node.args) == 1:
            assert node.target is not None
            return _alternative(
                self.compile(node.target),
                self.compile(node.args[0]),
                node.position,
                unwrap=node.function == "orValue",
            )
        args = node.args if not method or node.target is None else (node.target, *node.args)
        runs: list[Run] = []
        for arg in args:  # a loop, not a comprehension: nesting must cost few Python frames
            runs.append(self.compile(arg))
        if entry.name in VARIADIC and len(runs) > 1:
            return _variadic(entry, runs, node.position)
        if entry.name in ("duration", "timestamp") and isinstance(args[0], Literal):
            return _folded(entry, runs[0], node.position)
        return _call(entry, runs, node.position)

    def _list(self, node: ListLiteral) -> Run:
        runs: list[Run] = []
        for item in node.items:
            runs.append(self.compile(item.value))
        if not any(item.optional for item in node.items):
            return lambda frame: [run(frame) for run in runs]
        parts = [
            (run, item.optional, item.value.position)
            for run, item in zip(runs, node.items, strict=True)
        ]

        def build(frame: Frame) -> Any:
            out: list[Any] = []
            for run, optional, position in parts:
                value = run(frame)
                if not optional:
                    out.append(value)
                elif value.__class__ is not Optional:
                    raise Fault(f"`?` needs an optional, not {kind_of(value)}", position)
                elif value.present:
                    out.append(value.value)
            return out

        return build

    def _map(self, node: MapLiteral) -> Run:
        parts: list[tuple[Run, Run, bool, int]] = []
        for entry in node.entries:
            key, value = self.compile(entry.key), self.compile(entry.value)
            parts.append((key, value, entry.optional, entry.key.position))

        def build(frame: Frame) -> Any:
            pairs: list[tuple[Any, Any]] = []
            for key_run, value_run, optional, position in parts:
                key, value = key_run(frame), value_run(frame)
                if not optional:
                    pairs.append((key, value))
                elif value.__class__ is not Optional:
                    raise Fault(f"`?` needs an optional, not {kind_of(value)}", position)
                elif value.present:
                    pairs.append((key, value.value))
            try:
                return map_of(pairs)
            except Fault as fault:
                raise located(fault, node.position) from None

        return build

    def _unary(self, node: Unary) -> Run:
        run, position = self.compile(node.operand), node.position
        if node.operator == "!":

            def negate(frame: Frame) -> Any:
                value = run(frame)
                if value is True:
                    return False
                if value is False:
                    return True
                raise Fault(f"no such overload: !({kind_of(value)})", position)

            return negate

        return _call(FUNCTIONS[False, "-_", 1], [run], position)

    def _binary(self, node: Binary) -> Run:
        chain: list[Binary] = []
        first: Node = node
        while isinstance(first, Binary):
            chain.append(first)
            first = first.left
        self.cost += len(chain) - 1
        run = self.compile(first)
        rights: list[tuple[Binary, Run]] = []
        for link in reversed(chain):
            rights.append((link, self.compile(link.right)))
        return compile_binary(run, rights)

    def _bind(self, node: Bind) -> Run:
        value = self.compile(node.value)
        slot = self.slot()
        outer = self.scope
        self.scope = {**outer, node.variable: slot}
        self._bound[slot] = value
        body = self.compile(node.body)
        self.scope = outer

        def bind(frame: Frame) -> Any:
            frame[slot] = UNREAD
            return body(frame)

        return bind


def _constant(value: Any) -> Run:
    def constant(frame: Frame) -> Any:
        return value

    return constant


def _conditional(condition: Run, then: Run, otherwise: Run, position: int) -> Run:
    def choose(frame: Frame) -> Any:
        value = condition(frame)
        if value is True:
            return then(frame)
        if value is False:
            return otherwise(frame)
        raise Fault(f"no such overload: `?:` needs a bool, not {kind_of(value)}", position)

    return choose


def _alternative(first: Run, second: Run, position: int, *, unwrap: bool) -> Run:
    def choose(frame: Frame) -> Any:
        value = first(frame)
        if value.__class__ is not Optional:
            name = "orValue" if unwrap else "or"
            raise Fault(f"no such overload: {name}() of {kind_of(value)}", position)
        if value.present:
            return value.value if unwrap else value
        other = second(frame)
        if not unwrap and other.__class__ is not Optional:
            raise Fault(f"no such overload: or({kind_of(other)})", position)
        return other

    return choose


def _folded(entry: Function, run: Run, position: int) -> Run:
    """A constant duration or timestamp is read once; a bad one fails when, and if, it is reached."""
    frame: Frame = [0, {}]
    try:
        return _constant(_call(entry, [run], position)(frame))
    except Fault:
        return _call(entry, [run], position)


def _variadic(entry: Function, runs: list[Run], position: int) -> Run:
    return _call(entry, [lambda frame: [run(frame) for run in runs]], position)


def _call(entry: Function, runs: list[Run], position: int) -> Run:
    table = entry.table
    resolve = entry.resolve
    if len(runs) == 1:
        (one,) = runs

        def call_one(frame: Frame) -> Any:
            a = one(frame)
            try:
                return (table.get(a.__class__) or resolve(a))(frame, a)
            except Fault as fault:
                raise located(fault, position) from None

        return call_one
    if len(runs) == 2:
        one, two = runs

        def call_two(frame: Frame) -> Any:
            a = one(frame)
            b = two(frame)
            try:
                return (table.get((a.__class__, b.__class__)) or resolve(a, b))(frame, a, b)
            except Fault as fault:
                raise located(fault, position) from None

        return call_two

    def call_many(frame: Frame) -> Any:
        args = [run(frame) for run in runs]
        try:
            return resolve(*args)(frame, *args)
        except Fault as fault:
            raise located(fault, position) from None

    return call_many
