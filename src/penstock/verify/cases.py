"""Cases: which outcomes of several conditions go together, found by trying every value that makes a difference.

For conditions that compare what they read with constants, joined by `&&`, `||` and `!`, the values tried stand for
all there are: each constant, what lies below, between and above them, other types, nothing at all. What does not
come out of any of them is impossible. For other conditions anything is held possible; the solver may know better
(`verify/solver.py`). The conditions are evaluated as the engine does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import Any, Literal, cast

from penstock.core.plan import COST_MAX, Guard
from penstock.errors import ExpressionError, PenstockError
from penstock.expr import tree as t
from penstock.expr.compile import Expression
from penstock.expr.schema import compile_schema
from penstock.expr.values import INT_MAX, INT_MIN
from penstock.verify.samples import accepts, resolve
from penstock.verify.solver import Answer, Impossible, Solution, Solver, Unknown
from penstock.verify.types import Types

Outcome = bool | Literal["error"]
Read = tuple[str, ...]

TRIES_MAX = 6_000
"""Combinations of values that are tried for one question."""
QUESTIONS_MAX = 200
"""Put to the solver in one verification."""
INPUTS_MAX = 24
"""Inputs that are tried for one task behind a condition over data."""
SETTABLE = frozenset({"input", "tasks"})
"""Roots of what can be chosen from outside."""
READS_MAX, CONSTANTS_MAX = 24, 400
"""What the conditions of one question may read and compare with; each of it multiplies the combinations."""
NAMED_MAX = 300
"""Values of an `enum` that are tried."""
_ABSENT = object()
_LOST = object()
"""What it would be part of is not there either, or no object."""
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_PLAIN = frozenset(
    {"type", *_BOUNDS, "title", "description", "default", "examples", "$comment", "deprecated"}
)
"""Keywords with which the values tried still stand for all that a schema allows."""
_JUNK: tuple[Any, ...] = (_ABSENT, None, True, "\0other", -7919, [])


class Stand(Guard):
    """A condition with what was computed before replaced by its formula; known by the same text."""

    __slots__ = ()

    def __init__(self, text: str, expression: Expression) -> None:
        self.text, self.expression = text, expression


@dataclass(frozen=True, slots=True)
class Asked:
    """What is known of a condition wherever it is asked."""

    completed: frozenset[str]
    """Tasks that have completed, of those whose whole output it reads."""
    guard: Guard
    """Itself, or what stands for it."""
    first: Guard
    """The same of the first item of a list, if it is one of items: with which values it comes to something."""
    fires: bool = False
    """It says that a rule of a table fires: `guard` holds then, and it can't fail; if it does not, nothing is known."""


class Cases:
    """What the conditions of one definition may come to together. Answers are remembered."""

    def __init__(
        self,
        schemas: Mapping[Read, Any],
        types: Types | None = None,
        solver: Solver | None = None,
        asked: Mapping[str, Asked] | None = None,
    ) -> None:
        self._schemas = schemas
        """By where a value is read from: `("input",)`, `("tasks", ID, "output")`."""
        self._types, self._solver = types, solver
        self._questions = 0
        """Put to the solver so far."""
        self._vectors: dict[tuple[str, ...], list[tuple[tuple[Outcome, ...], Values]] | None] = {}
        self._simple: dict[str, bool] = {}
        self._there: dict[str, Guard | None] = {}
        self._asked = asked or {}
        self._known: dict[frozenset[tuple[str, Outcome]], bool] = {}

    def _not_null(self, id: str) -> tuple[Guard, Outcome] | None:
        """That the output of a task is not null, if that is so whenever it has completed."""
        if id not in self._there:
            schema = self._schemas.get(("tasks", id, "output"))
            known = schema is not None and id.isidentifier() and not accepts(schema, None)
            self._there[id] = Guard(f"tasks.{id}.output == null", None) if known else None
        guard = self._there[id]
        return None if guard is None else (guard, False)

    def possible(
        self, facts: Mapping[str, tuple[Guard, Outcome]], guard: Guard, outcome: Outcome
    ) -> bool:
        """Whether the condition may come to this while those have come to that. False only if it is certain."""
        if self._fires(guard) and outcome is not True:
            return outcome is False
        asks: dict[str, tuple[Guard, Outcome]] = {
            text: (self._stand(each), came)
            for text, (each, came) in facts.items()
            if came is True or not self._fires(each)
        }
        asks[guard.text] = (self._stand(guard), outcome)
        asked = self._asked.get(guard.text)
        for id in () if asked is None else asked.completed:
            there = self._not_null(id)
            if there is not None:
                asks.setdefault(there[0].text, there)
        related = connected(asks[guard.text][0], [each for each, _ in asks.values()])
        key: frozenset[tuple[str, Outcome]] = frozenset((g.text, asks[g.text][1]) for g in related)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._possible([asks[each.text] for each in related])
        return known

    def _stand(self, guard: Guard) -> Guard:
        asked = self._asked.get(guard.text)
        return guard if asked is None else asked.guard

    def _fires(self, guard: Guard) -> bool:
        asked = self._asked.get(guard.text)
        return asked is not None and asked.fires

    def _first(self, guard: Guard) -> Guard:
        asked = self._asked.get(guard.text)
        return guard if asked is None else asked.first

    def _possible(self, asks: Sequence[tuple[Guard, Outcome]]) -> bool:
        tried = self._tried([guard for guard, _ in asks])
        if tried is None:
            return not isinstance(self._solved(asks, self._types), Impossible)
        wanted = tuple(outcome for _, outcome in asks)
        if any(vector == wanted for vector, _ in tried):
            return True
        if all(self.simple(guard) for guard, _ in asks):
            return False
        return not isinstance(self._solved(asks, self._types), Impossible)

    def _solved(self, asks: Sequence[tuple[Guard, Outcome]], types: Types | None) -> Answer:
        """What the solver says; it is asked only so many times."""
        if types is None or self._solver is None or self._questions >= QUESTIONS_MAX:
            return Unknown("it was not asked")
        self._questions += 1
        return self._solver.solve([(g.expression, outcome) for g, outcome in asks], types)

    def values(self, asks: Sequence[tuple[Guard, Outcome]]) -> Values | None:
        """Values with which these conditions come to these outcomes, or None if none were found."""
        found: Values = {}
        unique: dict[str, tuple[Guard, Outcome]] = {
            g.text: (self._first(g), o) for g, o in asks if o is True or not self._fires(g)
        }
        left = list(unique.values())
        while left:
            group = connected(left[0][0], [guard for guard, _ in left[1:]])
            texts = {guard.text for guard in group}
            wanted: dict[str, Outcome] = {}
            for guard, outcome in left:
                wanted[guard.text] = outcome
            left = [ask for ask in left if ask[0].text not in texts]
            if not any(read[0] in SETTABLE for guard in group for read in guard.expression.reads):
                continue  # nobody outside can have a say in it
            vector = tuple(wanted[guard.text] for guard in group)
            tried = self._tried(group) or ()
            one = next((values for outcomes, values in tried if outcomes == vector), None)
            if one is None:
                one = self._solution([(guard, wanted[guard.text]) for guard in group])
            if one is None:
                return None
            found.update(one)
        return found

    def inputs(self, guards: Sequence[Guard]) -> Iterator[Values]:
        """A few inputs that may make a difference to what is computed, where no one can say which."""
        constants = [each for guard in guards for each in _constants(guard.expression.tree)]
        schema = self._schemas.get(("input",))
        found: Any = resolve(schema, schema)
        fields: Any = found.get("properties") if hasattr(found, "get") else None
        count = 0
        for name in cast("Mapping[str, Any]", fields or {}):
            read = ("input", name)
            for value in self._candidates(read, constants, sure=False):
                count += 1
                if count > INPUTS_MAX:
                    return
                if value is not _ABSENT:
                    yield {read: value}

    def _solution(self, asks: Sequence[tuple[Guard, Outcome]]) -> Values | None:
        if self._types is None:
            return None
        done = {id: replace(t, statuses=("COMPLETED",)) for id, t in self._types.tasks.items()}
        answer = self._solved(asks, replace(self._types, tasks=done))
        if not isinstance(answer, Solution):
            return None
        found: Values = {("input",): answer.input}
        found.update({("tasks", id, "output"): value for id, value in answer.outputs.items()})
        read = {r[:2] for guard, _ in asks for r in guard.expression.reads}
        return {k: v for k, v in found.items() if any(k[: len(r)] == r[: len(k)] for r in read)}

    def simple(self, guard: Guard) -> bool:
        """The values that are tried for it stand for all there are."""
        known = self._simple.get(guard.text)
        if known is None:
            expression = guard.expression
            known = _simple(expression.tree) and all(map(self._plain, expression.reads))
            self._simple[guard.text] = known
        return known

    def _plain(self, read: Read) -> bool:
        """Nothing is asked of it that a few values might miss: a pattern, a length, a multiple."""
        schema, _ = self._schema(read)
        if schema is None or "const" in schema:
            return True
        named = schema.get("enum")
        if isinstance(named, list):
            return len(cast("list[Any]", named)) <= NAMED_MAX
        return schema.keys() <= _PLAIN

    def _surely_object(self, read: Read) -> bool:
        """It is there and an object, so that `has` of a part of it can't fail."""
        schema, required = self._schema(read)
        return schema is not None and required and schema.get("type") == "object"

    def _tried(self, guards: Sequence[Guard]) -> list[tuple[tuple[Outcome, ...], Values]] | None:
        """Each combination of outcomes that came out, with values for it; None if there are too many to try."""
        texts = tuple(guard.text for guard in guards)
        if texts in self._vectors:
            return self._vectors[texts]
        reads = _outermost({read for guard in guards for read in guard.expression.reads})
        constants: list[Any] = []
        for guard in guards:
            constants += _constants(guard.expression.tree)
        if len(reads) > READS_MAX or len(constants) > CONSTANTS_MAX:
            self._vectors[texts] = None
            return None
        sure = all(self.simple(guard) for guard in guards)
        choices = [self._candidates(read, constants, sure=sure) for read in reads]
        asked = {path for guard in guards for path in _asked(guard.expression.tree)}
        for read, choice in zip(reads, choices, strict=True):
            if read in asked and not self._surely_object(read[:-1]):
                choice.append(_LOST)
        size = 1
        for each in choices:
            size *= len(each)
        result: list[tuple[tuple[Outcome, ...], Values]] | None = None
        if size <= TRIES_MAX:
            seen: dict[tuple[Outcome, ...], Values] = {}
            for chosen in product(*choices):
                values = dict(zip(reads, chosen, strict=True))
                variables = assembled(values)
                vector: tuple[Outcome, ...] = tuple(evaluated(g, variables) for g in guards)
                if vector not in seen:
                    seen[vector] = _told(values)
            result = list(seen.items())
        self._vectors[texts] = result
        return result

    def _candidates(self, read: Read, constants: Sequence[Any], *, sure: bool) -> list[Any]:
        if read[0] in ("iteration", "index"):
            first = 1 if read[0] == "iteration" else 0
            near = {first, first + 1}
            for each in constants:
                if isinstance(each, int | float) and not isinstance(each, bool):
                    near |= {int(each) - 1, int(each), int(each) + 1}
            return sorted(each for each in near if each >= first)
        schema, required = self._schema(read)
        bounds = [schema[word] for word in _BOUNDS if word in schema] if schema else []
        found = [*_around([*constants, *bounds], sure=sure), *_JUNK]
        if schema is None:
            return found
        try:
            check = compile_schema(schema)
        except (PenstockError, ExpressionError, ValueError):
            return found
        fitting = [
            v
            for v in found
            if (v is _ABSENT and not required) or (v is not _ABSENT and not check.problems(v))
        ]
        for extra in examples(schema):
            if extra not in fitting and not check.problems(extra):
                fitting.append(extra)
        if len(read) == 3 and read[0] == "tasks" and None not in fitting:
            fitting.append(None)  # of a task that was skipped, or has not run
        return fitting or found

    def _schema(self, read: Read) -> tuple[Any, bool]:
        """The schema of a value and whether it is always there; None if nothing is known."""
        for length in range(len(read), 0, -1):
            if read[:length] in self._schemas:
                root = schema = self._schemas[read[:length]]
                required = read[0] == "input"
                for name in read[length:]:
                    node = resolve(schema, root)
                    if not isinstance(node, Mapping):
                        return None, False
                    rules = cast("Mapping[str, Any]", node)
                    properties = cast("Mapping[str, Any]", rules.get("properties") or {})
                    if rules.get("type") != "object" or name not in properties:
                        return None, False
                    required = required and name in rules.get("required", ())
                    schema = properties[name]
                return _alone(schema, root), required
        return None, False


def _alone(schema: Any, root: Any) -> Any:
    """The schema so that it can stand without what it is part of; None if it can't."""
    found = resolve(schema, root)
    if not isinstance(found, dict):
        return None
    rules = cast("dict[str, Any]", found)
    if "$ref" not in repr(rules):
        return rules
    shared = cast("dict[str, Any]", root).get("$defs") if isinstance(root, dict) else None
    return None if shared is None else {**rules, "$defs": shared}


Values = dict[Read, Any]
"""What is read, by where; `ABSENT` where there is nothing."""
ABSENT = _ABSENT


def connected(guard: Guard, others: Iterable[Guard]) -> list[Guard]:
    """The guard and those that read what it reads, or what those read, and so on; in a fixed order."""
    group, rest = [guard], [each for each in others if each.text != guard.text]
    reads = set(guard.expression.reads)
    while True:
        more = [each for each in rest if _overlap(reads, each.expression.reads)]
        if not more:
            unique = {each.text: each for each in group}
            return [unique[text] for text in sorted(unique)]
        group += more
        rest = [each for each in rest if each not in more]
        for each in more:
            reads |= each.expression.reads


def overlaps(first: Guard, second: Guard) -> bool:
    return _overlap(first.expression.reads, second.expression.reads)


def _overlap(left: Iterable[Read], right: Iterable[Read]) -> bool:
    return any(a[: len(b)] == b[: len(a)] for a in left for b in right)


def evaluated(guard: Guard, variables: Mapping[str, Any]) -> Outcome:
    try:
        value = guard.expression.evaluate(variables, cost_max=COST_MAX)
    except (PenstockError, ExpressionError, TypeError, ValueError, LookupError, ArithmeticError):
        return "error"
    return value if isinstance(value, bool) else "error"


def assembled(values: Values) -> dict[str, Any]:
    """Values by where they are read, as one tree; what is absent leaves its parents in place."""
    root: dict[str, Any] = {}
    for read, value in sorted(values.items(), key=lambda item: len(item[0])):
        if value is _LOST:
            continue
        node = root
        for name in read[:-1]:
            inner = node.setdefault(name, {})
            if not isinstance(inner, dict):
                break
            node = cast("dict[str, Any]", inner)
        else:
            if value is not _ABSENT:
                node[read[-1]] = value
    return root


def _told(values: Values) -> Values:
    """As others can use them: of what is lost, that which it would be part of is absent."""
    there = [read for read, value in values.items() if value is not _LOST]
    found: Values = {}
    for read, value in values.items():
        kept = value is not _LOST or any(each[: len(read) - 1] == read[:-1] for each in there)
        found[read if kept else read[:-1]] = _ABSENT if value is _LOST else value
    return found


def _asked(node: t.Node) -> Iterator[Read]:
    """What `has` asks for."""
    todo = [node]
    while todo:
        each = todo.pop()
        if isinstance(each, t.Has):
            path = _path(each.operand)
            if path is not None:
                yield (*path, each.field)
        todo += t.children(each)


def _outermost(reads: Iterable[Read]) -> list[Read]:
    """The deepest only: what is read as a whole and in part too is made of its parts."""
    every = sorted(set(reads))
    return [r for r in every if not any(o != r and o[: len(r)] == r for o in every)]


def _around(constants: Sequence[Any], *, sure: bool) -> list[Any]:
    """Each constant, and what lies below, between and above them."""
    numbers = sorted(
        {c for c in constants if isinstance(c, int | float) and not isinstance(c, bool)}
    )
    found: list[Any] = [True, False]
    if numbers:
        found += [*numbers, numbers[0] - 1, numbers[-1] + 1]
        found += [int(n) + 1 for n in numbers] + [int(n) - 1 for n in numbers]
        found += [(a + b) / 2 for a, b in pairwise(numbers)]
        found += [numbers[0] - 0.5, numbers[-1] + 0.5]
        found = [n for n in found if n in numbers or INT_MIN <= n <= INT_MAX]
    if not sure:
        found += [0, 1, 2, 3]
    for text in (c for c in constants if isinstance(c, str)):
        found += [text, text + "!", ""]
    return [value for value in unique(found) if value is not True]


def unique(values: Sequence[Any]) -> list[Any]:
    """Each once; 1 and true are not the same."""
    found: list[Any] = []
    for value in values:
        if not any(type(value) is type(other) and value == other for other in found):
            found.append(value)
    return found


def examples(schema: Any) -> list[Any]:
    """A few values that a schema names itself."""
    if not isinstance(schema, dict):
        return []
    node = cast("dict[str, Any]", schema)
    found: list[Any] = [*node.get("enum", ())[:NAMED_MAX], *node.get("examples", ())[:NAMED_MAX]]
    if "const" in node:
        found.append(node["const"])
    for name in ("minimum", "maximum"):
        if name in node:
            found.append(node[name])
    kinds: dict[str, Any] = {
        "string": "a",
        "integer": 1,
        "number": 1.5,
        "boolean": False,
        "array": [],
        "object": {},
    }
    kind = node.get("type")
    if isinstance(kind, str) and kind in kinds:
        found.append(kinds[kind])
    return found


def _constants(node: t.Node) -> list[Any]:
    found: list[Any] = []
    todo = [node]
    while todo:
        each = todo.pop()
        if isinstance(each, t.Literal):
            found.append(each.value)
        todo += t.children(each)
    return found


def _simple(node: t.Node) -> bool:
    """Comparisons of a path with constants, and booleans made of them. Texts are compared for equality alone: between
    any two there are more; a list or an object that is read is not looked into."""
    match node:
        case t.Literal():
            return isinstance(node.value, bool)
        case t.Logic():
            return all(_simple(each) for each in node.operands)
        case t.Unary(operator="!"):
            return _simple(node.operand)
        case t.Binary(operator="==" | "!="):
            return _compared(node, _scalar)
        case t.Binary(operator="<" | "<=" | ">" | ">="):
            return _compared(node, _number)
        case t.Binary(operator="in", left=left, right=t.ListLiteral(items=items)):
            return bool(_path(left)) and all(_scalar(i.value) and not i.optional for i in items)
        case t.Has():
            return _path(node.operand) is not None
        case _:
            return _path(node) is not None


def _compared(node: t.Binary, constant: Callable[[t.Node], bool]) -> bool:
    """One side is a path, the other such a constant."""
    left, right = node.left, node.right
    return (_path(left) is not None and constant(right)) or (
        constant(left) and _path(right) is not None
    )


def _path(node: t.Node) -> Read | None:
    """What it reads, if it is names with dots between them."""
    names: list[str] = []
    while isinstance(node, t.Select) and not node.optional:
        names.append(node.field)
        node = node.operand
    return (node.name, *reversed(names)) if isinstance(node, t.Ident) else None


def _scalar(node: t.Node) -> bool:
    return _number(node) or (
        isinstance(node, t.Literal) and (node.value is None or isinstance(node.value, str | bool))
    )


def _number(node: t.Node) -> bool:
    if isinstance(node, t.Unary) and node.operator == "-":
        node = node.operand
    if not isinstance(node, t.Literal) or isinstance(node.value, bool):
        return False
    return isinstance(node.value, int | float)
