"""The tree of an expression as a symbolic value, case by case as `expr/compile.py` evaluates it.

A part that is not known here is any value of its type, the same for the same part, and is named in the reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any

from penstock.errors import EvaluationError
from penstock.expr.compile import compile_expression
from penstock.expr.tree import (
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
    children,
)
from penstock.expr.typecheck import Checked
from penstock.expr.values import INT_MAX, INT_MIN, Uint, duration_nanos, timestamp_nanos
from penstock.verify.smt.operations import BEYOND, Operations, plain_text
from penstock.verify.smt.patterns import Untranslatable, pattern_term
from penstock.verify.smt.terms import (
    UNROLLED,
    Bool,
    Double,
    Int,
    List,
    Map,
    Maybe,
    Null,
    Other,
    Shape,
    Smt,
    Sym,
    Term,
    Text,
    Time,
    z3,
)

_ARITHMETIC = frozenset("+-*/%")
_ORDER = frozenset({"<", "<=", ">", ">="})
_KINDS = ("bool", "int", "double", "string", "timestamp", "duration")
Scope = Mapping[str, Sym]
VISITS_MAX = 6_000
"""Parts that the expressions of one question may unfold to: a macro has its body once for each element."""


class Translator:
    """Translates the expressions of one question over the same roots."""

    def __init__(self, smt: Smt, root: Callable[[str], Sym | None]) -> None:
        self._smt, self._root = smt, root
        self._operations = Operations(smt)
        self._opaque: dict[Any, Sym] = {}
        self._checked = Checked()
        self._long: dict[int, list[Sym]] = {}
        """Elements of list literals that are longer than what is looked at one by one."""
        self.visits = 0

    def translate(self, tree: Node, checked: Checked) -> Sym:
        self._checked = checked
        return self._visit(tree, {})

    def _visit(self, node: Node, scope: Scope) -> Sym:
        self.visits += 1
        match node:
            case Literal():
                return self._literal(node)
            case Ident():
                return self._typed(node, self._ident(node, scope))
            case Select():
                return self._typed(node, self._select(node, scope))
            case Index():
                return self._typed(node, self._index(node, scope))
            case Call():
                return self._call(node, scope)
            case ListLiteral():
                return self._list(node, scope)
            case MapLiteral():
                return self._map(node, scope)
            case Unary():
                return self._unary(node, scope)
            case Binary():
                return self._binary(node, scope)
            case Logic():
                return self._logic(node, scope)
            case Conditional():
                return self._conditional(node, scope)
            case Has():
                operand = self._visit(node.operand, scope)
                return self._smt.bind(operand, lambda s: self._operations.has(s, node.field))
            case Comprehension():
                return self._comprehension(node, scope)
            case Bind():
                value = self._visit(node.value, scope)
                return self._visit(node.body, {**scope, node.variable: value})

    # --- what can't be said ----------------------------------------------------------------------------------

    def _unknown(self, node: Node, scope: Scope, what: str) -> Sym:
        """Anything of its type; the same part of two expressions is the same unknown."""
        self._smt.reasons[what] = None
        found = self._checked.types.get(id(node))
        kind = found.name if found is not None and found.name in _KINDS else ""
        if found is not None and found.name in ("list", "map", "bytes", "uint", "optional", "type"):
            kind = "other"
        if scope and _names(node) & set(scope):
            return self._smt.anything(what, kind)
        key = _shape_of(node)
        if key not in self._opaque:
            self._opaque[key] = self._smt.anything(what, kind)
        return self._opaque[key]

    # --- values ----------------------------------------------------------------------------------------------

    def _literal(self, node: Literal) -> Sym:
        smt, value = self._smt, node.value
        match value:
            case None:
                return smt.value(Null())
            case bool():
                return smt.value(Bool(smt.true if value else smt.false))
            case Uint() | bytes():
                return self._unknown(node, {}, f"`{value!r}`")
            case int():
                return smt.value(Int(smt.whole(value)))
            case float():
                if value != value or value in (float("inf"), float("-inf")):
                    return self._unknown(node, {}, f"`{value!r}`")
                return smt.value(Double(smt.fraction(value), smt.false))
            case str():
                literal = smt.literal(value)
                if literal is None:
                    return self._unknown(node, {}, f"`{value!r}`")
                return smt.value(Text(literal))
            case _:
                return self._unknown(node, {}, f"`{value!r}`")

    def _ident(self, node: Ident, scope: Scope) -> Sym:
        if node.name in scope and not node.absolute:
            return scope[node.name]
        found = self._root(node.name)
        if found is not None:
            return found
        if id(node) in self._checked.type_names:
            return self._unknown(node, {}, f"the type `{node.name}`")
        return self._smt.failed()

    def _typed(self, node: Node, sym: Sym) -> Sym:
        """A whole number whose type is double is read as one."""
        found = self._checked.types.get(id(node))
        if found is None or not found.reads_double:
            return sym
        return self._smt.bind(
            sym,
            lambda shape: self._smt.value(
                self._operations.double(shape) if isinstance(shape, Int) else shape
            ),
        )

    def _select(self, node: Select, scope: Scope) -> Sym:
        if id(node) in self._checked.type_names:
            return self._unknown(node, {}, f"the type `{node.field}`")
        operand = self._visit(node.operand, scope)
        if node.optional:
            return self._smt.bind(operand, lambda s: self._operations.optional(s, node.field))
        return self._smt.bind(operand, lambda s: self._operations.select(s, node.field))

    def _index(self, node: Index, scope: Scope) -> Sym:
        smt, operations = self._smt, self._operations
        operand, key = self._visit(node.operand, scope), self._visit(node.key, scope)
        if node.optional:
            if isinstance(node.key, Literal) and isinstance(node.key.value, str):
                name = node.key.value
                return smt.bind(operand, lambda s: operations.optional(s, name))
            return self._unknown(node, scope, "`[?…]`")
        return smt.bind(operand, lambda s: smt.bind(key, lambda k: operations.index(s, k)))

    def _list(self, node: ListLiteral, scope: Scope) -> Sym:
        smt = self._smt
        if any(item.optional for item in node.items):
            return self._unknown(node, scope, "a list with optional elements")
        parts = [self._visit(item.value, scope) for item in node.items]
        error = smt.any(*(part.error for part in parts))
        if len(parts) > UNROLLED:
            return self._long_list(parts, error)
        return smt.checked(self._literal_list(parts, smt.ident()), error)

    def _long_list(self, parts: list[Sym], error: Term) -> Sym:
        # Membership is asked of all of it, see `_member`; by place only its first ones are known.
        smt = self._smt
        ident = smt.ident()
        self._long[ident] = parts
        return smt.checked(self._literal_list(parts, ident), error)

    def _literal_list(self, parts: list[Sym], ident: int) -> List:
        none = self._smt.failed()
        return List(
            self._smt.whole(len(parts)), lambda i: parts[i] if i < len(parts) else none, ident
        )

    def _map(self, node: MapLiteral, scope: Scope) -> Sym:
        smt = self._smt
        known: dict[str, Sym] = {}
        for entry in node.entries:
            key = entry.key
            if entry.optional or not isinstance(key, Literal) or not isinstance(key.value, str):
                return self._unknown(node, scope, "a map with computed keys")
            if key.value in known:
                return smt.failed()
            known[key.value] = self._visit(entry.value, scope)

        def field(name: str) -> tuple[Term, Sym]:
            return (smt.true, known[name]) if name in known else (smt.false, smt.failed())

        error = smt.any(*(value.error for value in known.values()))
        return smt.checked(Map(field, lambda: known, True, smt.ident()), error)

    # --- operators -------------------------------------------------------------------------------------------

    def _unary(self, node: Unary, scope: Scope) -> Sym:
        smt = self._smt
        operand = self._visit(node.operand, scope)
        if node.operator == "-":
            return smt.bind(operand, self._operations.negative)

        def negate(shape: Shape) -> Sym:
            match shape:
                case Bool():
                    return smt.value(Bool(smt.no(shape.it)))
                case Other():
                    return self._unknown(node, scope, "`!` of a value that is not modelled")
                case _:
                    return smt.failed()

        return smt.bind(operand, negate)

    def _binary(self, node: Binary, scope: Scope) -> Sym:
        chain: list[Binary] = []
        first: Node = node
        while isinstance(first, Binary):
            chain.append(first)
            first = first.left
        found = self._visit(first, scope)
        for link in reversed(chain):
            found = self._combined(link, found, self._visit(link.right, scope))
        return found

    def _combined(self, node: Binary, left: Sym, right: Sym) -> Sym:
        smt, operations, symbol = self._smt, self._operations, node.operator

        def of(a: Shape, b: Shape) -> Sym:
            if symbol in _ARITHMETIC:
                return operations.arithmetic(symbol, a, b)
            if symbol in _ORDER:
                return operations.order(symbol, a, b)
            if symbol == "in":
                if isinstance(b, List) and b.ident in self._long:
                    wanted = smt.value(a)
                    parts = self._long[b.ident]
                    return smt.truth(smt.any(*(operations.equal_syms(p, wanted) for p in parts)))
                return operations.contains(b, a)
            same = operations.equal(a, b)
            return smt.truth(same if symbol == "==" else smt.no(same))

        return smt.bind(left, lambda a: smt.bind(right, lambda b: of(a, b)))

    def _logic(self, node: Logic, scope: Scope) -> Sym:
        """One operand that decides wins, also over an error in another."""
        smt = self._smt
        parts = [smt.outcome(self._visit(operand, scope)) for operand in node.operands]
        return self._decided(parts, decisive=node.operator == "||")

    def _decided(self, parts: list[tuple[Term, Term, Term]], *, decisive: bool) -> Sym:
        smt = self._smt
        decided = smt.any(*(holds if decisive else fails for holds, fails, _ in parts))
        error = smt.all(smt.no(decided), smt.any(*(wrong for _, _, wrong in parts)))
        return smt.truth(decided if decisive else smt.no(decided), error)

    def _conditional(self, node: Conditional, scope: Scope) -> Sym:
        smt = self._smt
        holds, _, wrong = smt.outcome(self._visit(node.condition, scope))
        then, otherwise = self._visit(node.then, scope), self._visit(node.otherwise, scope)
        return smt.choose(wrong, smt.failed(), smt.choose(holds, then, otherwise))

    # --- functions -------------------------------------------------------------------------------------------

    def _call(self, node: Call, scope: Scope) -> Sym:
        smt = self._smt
        name = node.function
        known = self._checked.functions.get(id(node))
        method = known is not None and known[1]
        args = node.args if not method or node.target is None else (node.target, *node.args)
        full = known[0].name if known is not None else name
        if full in ("timestamp", "duration") and isinstance(args[0], Literal):
            return self._time(node, args[0].value, full)
        if full == "dyn":
            return self._visit(args[0], scope)
        parts = [self._visit(arg, scope) for arg in args]
        strict = smt.any(*(part.error for part in parts))

        def unknown() -> Sym:
            found = self._unknown(node, scope, f"`{full}()`")
            return Sym(
                tuple((smt.all(smt.no(strict), g), s) for g, s in found.cases),
                smt.any(strict, found.error),
            )

        match full, len(parts):
            case "size", 1:
                return smt.bind(parts[0], lambda s: self._size(s, unknown))
            case (("startsWith" | "endsWith" | "contains" | "matches"), 2):
                return self._textual(full, parts[0], parts[1], unknown)
            case (("int" | "double" | "string" | "bool"), 1):
                return smt.bind(parts[0], lambda s: self._converted(full, s, unknown))
            case ("orValue", 2) if method:
                return self._or_value(parts[0], parts[1], unknown)
            case ("hasValue", 1) if method:
                return smt.bind(
                    parts[0],
                    lambda s: smt.truth(s.present) if isinstance(s, Maybe) else unknown(),
                )
            case ("value", 1) if method:
                return smt.bind(
                    parts[0],
                    lambda s: (
                        smt.choose(s.present, s.value, smt.failed())
                        if isinstance(s, Maybe)
                        else unknown()
                    ),
                )
            case _:
                return unknown()

    def _time(self, node: Call, value: Any, name: str) -> Sym:
        try:
            found = compile_expression(f"{name}({value!r})").evaluate({})
        except (EvaluationError, ValueError, TypeError):
            return self._smt.failed() if isinstance(value, str) else self._unknown(node, {}, name)
        if isinstance(found, datetime):
            return self._smt.value(Time("timestamp", self._smt.whole(timestamp_nanos(found))))
        assert isinstance(found, timedelta)
        return self._smt.value(Time("duration", self._smt.whole(duration_nanos(found))))

    def _size(self, shape: Shape, unknown: Callable[[], Sym]) -> Sym:
        smt = self._smt
        match shape:
            case Text():
                return smt.value(Int(z3.Length(shape.it)))
            case List():
                return smt.value(Int(shape.length))
            case Map() if shape.closed:
                counts = [z3.If(shape.field(name)[0], 1, 0) for name in shape.names()]
                return smt.value(Int(z3.Sum(counts) if counts else smt.whole(0)))
            case Map() | Other():
                return unknown()
            case _:
                return smt.failed()

    def _textual(self, name: str, text: Sym, other: Sym, unknown: Callable[[], Sym]) -> Sym:
        smt = self._smt

        def of(a: Shape, b: Shape) -> Sym:
            if isinstance(a, Other) or isinstance(b, Other):
                return unknown()
            if not isinstance(a, Text) or not isinstance(b, Text):
                return smt.failed()
            match name:
                case "startsWith":
                    return smt.truth(z3.PrefixOf(b.it, a.it))
                case "endsWith":
                    return smt.truth(z3.SuffixOf(b.it, a.it))
                case "contains":
                    return smt.truth(z3.Contains(a.it, b.it))
                case _:
                    return self._matches(a.it, b.it, unknown)

        return smt.bind(text, lambda a: smt.bind(other, lambda b: of(a, b)))

    def _matches(self, text: Term, pattern: Term, unknown: Callable[[], Sym]) -> Sym:
        if not z3.is_string_value(pattern):
            return unknown()
        try:
            return self._smt.truth(pattern_term(self._smt, plain_text(pattern), text))
        except Untranslatable:
            return unknown()

    def _converted(self, name: str, shape: Shape, unknown: Callable[[], Sym]) -> Sym:
        smt = self._smt
        match name, shape:
            case ("int", Int()) | ("double", Double()) | ("string", Text()) | ("bool", Bool()):
                return smt.value(shape)
            case "double", Int():
                return smt.value(self._operations.double(shape))
            case "int", Double():
                number = shape.it
                towards = z3.If(number >= 0, z3.ToInt(number), -z3.ToInt(-number))
                fits = smt.all(smt.no(shape.nan), towards >= INT_MIN + 1, towards <= INT_MAX - 1024)
                rest = smt.choose(
                    z3.And(number > INT_MIN, number < INT_MAX),
                    smt.anything("int", "int"),
                    smt.failed(),
                )
                return smt.choose(fits, smt.value(Int(towards)), rest)
            case _:
                return unknown()

    def _or_value(self, optional: Sym, otherwise: Sym, unknown: Callable[[], Sym]) -> Sym:
        smt = self._smt

        def of(shape: Shape) -> Sym:
            if isinstance(shape, Maybe):
                return smt.choose(shape.present, shape.value, otherwise)
            return unknown() if isinstance(shape, Other) else smt.failed()

        return smt.bind(optional, of)

    # --- macros ----------------------------------------------------------------------------------------------

    def _comprehension(self, node: Comprehension, scope: Scope) -> Sym:
        smt = self._smt
        what = f"`{node.kind}()`"
        if node.second is not None or node.kind not in (
            "all", "exists", "existsOne", "map", "filter",
        ):  # fmt: skip
            return self._unknown(node, scope, what)
        if self.visits > VISITS_MAX:
            return self._unknown(node, scope, f"{what} that unfolds to very many parts")
        source = self._visit(node.source, scope)

        def over(shape: Shape) -> Sym:
            match shape:
                case List():
                    return self._over_list(node, shape, scope)
                case Map() | Other() | Maybe():
                    return self._unknown(node, scope, what)
                case _:
                    return smt.failed()

        return smt.bind(source, over)

    def _over_list(self, node: Comprehension, source: List, scope: Scope) -> Sym:
        smt = self._smt
        outcomes: list[tuple[Term, Term, Term]] = []
        bodies: list[tuple[Term, Sym]] = []
        size = z3.simplify(source.length)
        count = size.as_long() if z3.is_int_value(size) else UNROLLED
        if count > 3 * UNROLLED:
            return self._unknown(node, scope, f"`{node.kind}()` of a long list")
        for index in range(count):
            there = smt.true if z3.is_int_value(size) else source.length > index
            inner = {**scope, node.variable: source.at(index)}
            body = self._visit(node.body, inner)
            if node.kind == "map" and node.condition is not None:
                return self._unknown(node, scope, "`map()` with a condition")
            bodies.append((there, body))
            holds, fails, wrong = smt.outcome(body)
            outcomes.append((smt.all(there, holds), smt.all(there, fails), smt.all(there, wrong)))
        more = smt.false if z3.is_int_value(size) else source.length > UNROLLED
        if more is not smt.false:
            smt.reasons[BEYOND] = None
            truth, error = smt.bool("beyond"), smt.bool("beyond.error")
            fine = smt.all(more, smt.no(error))
            outcomes.append(
                (smt.all(fine, truth), smt.all(fine, smt.no(truth)), smt.all(more, error))
            )
        return self._folded(node.kind, source, outcomes, bodies, more)

    def _folded(
        self,
        kind: str,
        source: List,
        outcomes: list[tuple[Term, Term, Term]],
        bodies: list[tuple[Term, Sym]],
        more: Term,
    ) -> Sym:
        smt = self._smt
        if kind in ("all", "exists"):
            return self._decided(outcomes, decisive=kind == "exists")
        wrong = smt.any(*(error for _, _, error in outcomes))
        counts = [z3.If(holds, 1, 0) for holds, _, _ in outcomes]
        number = z3.Sum(counts) if counts else smt.whole(0)
        if kind == "existsOne":
            one = number == 1 if more is smt.false else z3.If(more, smt.bool("beyond"), number == 1)
            return smt.truth(one, wrong)
        if kind == "filter":
            length = smt.int("filtered")
            smt.laws.append(
                smt.any(smt.all(more, length >= number), smt.all(smt.no(more), length == number))
            )
            smt.laws.append(length <= source.length)
            kept = [smt.anything("kept") for _ in range(UNROLLED)]
            found = List(
                length, lambda i: kept[i] if i < UNROLLED else smt.anything("kept"), smt.ident()
            )
            return smt.checked(found, wrong)
        failing = [smt.all(there, body.error) for there, body in bodies]
        if more is not smt.false:
            failing.append(smt.all(more, smt.bool("beyond.error")))
        results = [body for _, body in bodies]
        found = List(
            source.length,
            lambda i: results[i] if i < len(results) else smt.anything("beyond"),
            smt.ident(),
        )
        return smt.checked(found, smt.any(*failing))


def _names(node: Node) -> set[str]:
    found: set[str] = set()
    stack = [node]
    while stack:
        one = stack.pop()
        if isinstance(one, Ident):
            found.add(one.name)
        stack.extend(children(one))
    return found


def _shape_of(value: Any) -> Any:
    """A node without its places in the text: equal for equal parts."""
    if isinstance(value, tuple):
        return tuple(_shape_of(part) for part in value)  # pyright: ignore[reportUnknownVariableType]
    if hasattr(value, "__dataclass_fields__"):
        parts = [_shape_of(getattr(value, f.name)) for f in fields(value) if f.name != "position"]
        return (type(value).__name__, *parts)
    return (type(value).__name__, value)
