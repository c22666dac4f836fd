"""Operators on symbolic values: equality, order, arithmetic, membership, as `expr/operators.py` has them."""

from __future__ import annotations

from typing import Any, cast

from penstock.expr.values import INT_MAX, INT_MIN
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

BEYOND = f"elements of a list beyond the first {UNROLLED}"
INSIDE_MAX = 8
"""Lists and objects inside of others that are compared part by part."""
COMPARED_MAX = 300
"""Lists and objects that are compared part by part, in one question."""
_TIME_MIN, _TIME_MAX = -62135596800 * 10**9, 253402300799 * 10**9 + 999_999_999


class Operations:
    """What is asked of shapes; the same question has the same answer."""

    def __init__(self, smt: Smt) -> None:
        self._smt = smt
        self._answers: dict[tuple[Any, ...], Term] = {}
        self._inside = self._compared = 0

    def unsure(self, reason: str, *about: Any) -> Term:
        """A truth that is not known, but one for each subject."""
        key = (reason, *about)
        if key not in self._answers:
            self._answers[key] = self._smt.unsure(reason)
        return self._answers[key]

    # --- equality and order ----------------------------------------------------------------------------------

    def equal(self, a: Shape, b: Shape) -> Term:
        smt = self._smt
        match a, b:
            case (Other(), _) | (_, Other()) | (Maybe(), Maybe()):
                return self.unsure("equality of values that are not modelled", *_pair(a, b))
            case Null(), Null():
                return smt.true
            case (Bool(), Bool()) | (Int(), Int()) | (Text(), Text()):
                return a.it == b.it
            case Time(), Time():
                return a.it == b.it if a.kind == b.kind else smt.false
            case (Int() | Double(), Int() | Double()):
                x, y = self.double(a), self.double(b)
                return smt.all(smt.no(x.nan), smt.no(y.nan), x.it == y.it)
            case List(), List():
                return self._equal_inside(a, b)
            case _:
                if isinstance(a, Map) and isinstance(b, Map):
                    return self._equal_inside(a, b)
                return smt.false

    def _equal_inside(self, a: List | Map, b: List | Map) -> Term:
        """Of what nothing is known there may be lists in lists without end."""
        if a.ident == b.ident:
            return self._smt.true
        self._compared += 1
        if self._inside >= INSIDE_MAX or self._compared > COMPARED_MAX:
            return self.unsure("equality of values that are nested deep", *_pair(a, b))
        self._inside += 1
        try:
            if isinstance(a, List) and isinstance(b, List):
                return self._equal_lists(a, b)
            return self._equal_maps(cast("Map", a), cast("Map", b))
        finally:
            self._inside -= 1

    def equal_syms(self, a: Sym, b: Sym) -> Term:
        smt = self._smt
        return smt.any(
            *(smt.all(left, right, self.equal(x, y)) for left, x in a.cases for right, y in b.cases)
        )

    def double(self, shape: Int | Double) -> Double:
        if isinstance(shape, Double):
            return shape
        return Double(self._smt.as_double(shape.it), self._smt.false)

    def _equal_lists(self, a: List, b: List) -> Term:
        smt = self._smt
        same = [a.length == b.length]
        for index in range(UNROLLED):
            absent = smt.simple(a.length <= index)
            if absent is smt.true:
                break
            same.append(smt.any(absent, self.equal_syms(a.at(index), b.at(index))))
        else:
            same.append(smt.any(a.length <= UNROLLED, self.unsure(BEYOND, *_pair(a, b))))
        return smt.all(*same)

    def _equal_maps(self, a: Map, b: Map) -> Term:
        smt = self._smt
        same: list[Term] = []
        if not (a.closed and b.closed):
            same.append(self.unsure("equality of objects that may have more fields", *_pair(a, b)))
        for name in dict.fromkeys([*a.names(), *b.names()]):
            (left, x), (right, y) = a.field(name), b.field(name)
            same.append(left == right)
            same.append(smt.any(smt.no(left), self.equal_syms(x, y)))
        return smt.all(*same)

    def order(self, symbol: str, a: Shape, b: Shape) -> Sym:
        smt = self._smt
        match a, b:
            case (Other(), _) | (_, Other()):
                reason = "the order of values that are not modelled"
                error = self.unsure(reason, "error", *_pair(a, b))
                return smt.truth(self.unsure(reason, symbol, a, b), error)
            case Int(), Int():
                return smt.truth(_compare(symbol, a.it, b.it))
            case (Int() | Double(), Int() | Double()):
                x, y = self.double(a), self.double(b)
                numbers = smt.all(smt.no(x.nan), smt.no(y.nan))
                return smt.truth(smt.all(numbers, _compare(symbol, x.it, y.it)))
            case Text(), Text():
                return smt.truth(_compare(symbol, a.it, b.it))
            case Bool(), Bool():
                x, y = z3.If(a.it, 1, 0), z3.If(b.it, 1, 0)
                return smt.truth(_compare(symbol, x, y))
            case Time(), Time() if a.kind == b.kind:
                return smt.truth(_compare(symbol, a.it, b.it))
            case _:
                return smt.failed()

    # --- arithmetic ------------------------------------------------------------------------------------------

    def arithmetic(self, symbol: str, a: Shape, b: Shape) -> Sym:
        smt = self._smt
        match a, b:
            case (Other(), _) | (_, Other()):
                smt.reasons[f"`{symbol}` of values that are not modelled"] = None
                return smt.anything(symbol)
            case Int(), Int():
                return self._whole(symbol, a.it, b.it)
            case Double(), Double():
                return self._double(symbol, a, b)
            case (Text(), Text()) if symbol == "+":
                return smt.value(Text(z3.Concat(a.it, b.it)))
            case (List(), List()) if symbol == "+":
                return smt.value(self._joined(a, b))
            case (Time(), Time()) if symbol in "+-":
                return self._times(symbol, a, b)
            case _:
                return smt.failed()

    def _whole(self, symbol: str, a: Term, b: Term) -> Sym:
        smt = self._smt
        if symbol in "+-*":
            result = a + b if symbol == "+" else a - b if symbol == "-" else a * b
            return smt.bounded(Int(result), smt.no(_within(result, INT_MIN, INT_MAX)))
        # z3 rounds down for a positive divisor; CEL towards zero.
        size_a, size_b = z3.If(a >= 0, a, -a), z3.If(b >= 0, b, -b)
        if symbol == "/":
            result = z3.If((a >= 0) == (b > 0), size_a / size_b, -(size_a / size_b))
        else:
            result = z3.If(a >= 0, size_a % size_b, -(size_a % size_b))
        overflow = smt.all(a == INT_MIN, b == -1)
        return smt.bounded(Int(result), overflow, b == 0)

    def _double(self, symbol: str, a: Double, b: Double) -> Sym:
        """Doubles round, so of the result only what a hope says is known."""
        smt = self._smt
        if symbol == "%":
            return smt.failed()
        key = (symbol, a.it.get_id(), b.it.get_id())
        smt.reasons[f"`{symbol}` of doubles, which rounds"] = None
        if key not in self._answers:
            result, nan = smt.real("double"), smt.bool("nan")
            smt.laws.append(smt.implies(smt.any(a.nan, b.nan), nan))
            match symbol:
                case "+":
                    exact = a.it + b.it
                case "-":
                    exact = a.it - b.it
                case "*":
                    exact = a.it * b.it
                case _:
                    exact = a.it / b.it
                    smt.laws.append(smt.implies(smt.hope, b.it != 0))
            hoped = z3.And(result == exact, z3.Not(nan))
            smt.laws.append(smt.implies(smt.all(smt.hope, smt.no(a.nan), smt.no(b.nan)), hoped))
            self._answers[key] = (Double(result, nan), a, b)
        return smt.value(self._answers[key][0])

    def _times(self, symbol: str, a: Time, b: Time) -> Sym:
        smt = self._smt
        match symbol, a.kind, b.kind:
            case _, "duration", "duration":
                kind = "duration"
            case "-", "timestamp", "timestamp":
                kind = "duration"
            case ("+", "duration", "timestamp") | (_, "timestamp", "duration"):
                kind = "timestamp"
            case _:
                return smt.failed()
        result = a.it + b.it if symbol == "+" else a.it - b.it
        low, high = (_TIME_MIN, _TIME_MAX) if kind == "timestamp" else (INT_MIN, INT_MAX)
        return smt.checked(Time(kind, result), smt.no(_within(result, low, high)))

    def negative(self, shape: Shape) -> Sym:
        smt = self._smt
        match shape:
            case Int():
                return smt.bounded(Int(-shape.it), shape.it == INT_MIN)
            case Double():
                return smt.value(Double(-shape.it, shape.nan))
            case Other():
                smt.reasons["`-` of a value that is not modelled"] = None
                return smt.anything("negative")
            case Time(kind="duration"):
                return smt.checked(Time("duration", -shape.it), shape.it == INT_MIN)
            case _:
                return smt.failed()

    # --- lists and maps --------------------------------------------------------------------------------------

    def _joined(self, a: List, b: List) -> Shape:
        smt = self._smt
        first = z3.simplify(a.length)
        if not z3.is_int_value(first) or first.as_long() > UNROLLED:
            smt.reasons["`+` of lists whose length is not known"] = None
            parts = [smt.anything("joined") for _ in range(UNROLLED)]
            return List(a.length + b.length, lambda i: _or_anything(smt, parts, i), smt.ident())
        size = first.as_long()
        return List(
            a.length + b.length, lambda i: a.at(i) if i < size else b.at(i - size), smt.ident()
        )

    def contains(self, container: Shape, member: Shape) -> Sym:
        """`member in container`"""
        smt = self._smt
        match container:
            case List():
                found: list[Term] = []
                wanted = smt.value(member)
                for index in range(UNROLLED):
                    there = smt.simple(container.length > index)
                    if there is smt.false:
                        break
                    found.append(smt.all(there, self.equal_syms(container.at(index), wanted)))
                else:
                    more = smt.simple(container.length > UNROLLED)
                    if more is not smt.false:
                        beyond = self.unsure(BEYOND, container.ident, _key(member))
                        found.append(smt.all(more, beyond))
                return smt.truth(smt.any(*found))
            case Map():
                if isinstance(member, Int | Bool | Double):
                    return smt.truth(smt.false)  # the keys of JSON are texts
                if not isinstance(member, Text):
                    reason = "a key that is no text"
                    error = self.unsure(reason, "error", container.ident, _key(member))
                    return smt.truth(self.unsure(reason, container.ident, _key(member)), error)
                return smt.truth(self.key_in(container, member.it))
            case Other():
                reason = "`in` a value that is not modelled"
                about = (container.ident, _key(member))
                return smt.truth(self.unsure(reason, *about), self.unsure(reason, "error", *about))
            case _:
                return smt.failed()

    def key_in(self, container: Map, key: Term) -> Term:
        smt = self._smt
        if z3.is_string_value(key):
            return container.field(plain_text(key))[0]
        found: list[Term] = []
        for name in container.names():
            literal = smt.literal(name)
            if literal is not None:
                found.append(smt.all(key == literal, container.field(name)[0]))
        if not container.closed:
            others = smt.all(*(key != smt.literal(n) for n in container.names() if smt.literal(n)))
            found.append(
                smt.all(others, self.unsure("a computed key", container.ident, key.get_id()))
            )
        return smt.any(*found)

    def index(self, container: Shape, key: Shape) -> Sym:
        """`container[key]`"""
        smt = self._smt
        match container, key:
            case (List(), Int()):
                inside = smt.all(key.it >= 0, key.it < container.length)
                beyond = smt.anything("beyond")
                found = smt.choose(inside, beyond, smt.failed())
                for at in range(UNROLLED):
                    here = smt.simple(smt.all(key.it == at, container.length > at))
                    if here is not smt.false:
                        found = smt.choose(here, container.at(at), found)
                if not z3.is_int_value(key.it) or key.it.as_long() >= UNROLLED:
                    smt.reasons[BEYOND] = None
                return found
            case (Map(), Text()):
                if z3.is_string_value(key.it):
                    return self.select(container, plain_text(key.it))
                smt.reasons["a computed key"] = None
                found = smt.anything("entry")
                for name in container.names():
                    literal = smt.literal(name)
                    if literal is not None:
                        found = smt.choose(key.it == literal, self.select(container, name), found)
                return found
            case (Map(), Int() | Bool() | Double()):
                return smt.failed()  # the keys of JSON are texts
            case (List() | Map() | Other() | Maybe(), _):
                smt.reasons["an index that is not modelled"] = None
                return smt.anything("index")
            case _:
                return smt.failed()

    def select(self, container: Shape, name: str) -> Sym:
        """`container.name`"""
        smt = self._smt
        match container:
            case Map():
                present, found = container.field(name)
                return smt.choose(present, found, smt.failed())
            case Maybe():
                inner = smt.bind(container.value, lambda shape: self.optional(shape, name))
                none = smt.value(Maybe(smt.false, smt.failed()))
                return smt.choose(container.present, inner, none)
            case Other():
                smt.reasons[f"`.{name}` of a value that is not modelled"] = None
                return smt.anything(name)
            case _:
                return smt.failed()

    def optional(self, container: Shape, name: str) -> Sym:
        """`container.?name`"""
        smt = self._smt
        match container:
            case Map():
                present, found = container.field(name)
                return smt.value(Maybe(present, found))
            case Maybe():
                return self.select(container, name)
            case Other():
                smt.reasons[f"`.?{name}` of a value that is not modelled"] = None
                return smt.value(Maybe(smt.bool(name), smt.anything(name)))
            case _:
                return smt.failed()

    def has(self, container: Shape, name: str) -> Sym:
        smt = self._smt
        match container:
            case Map():
                return smt.truth(container.field(name)[0])
            case Maybe():
                inner = smt.bind(container.value, lambda shape: self.has(shape, name))
                return smt.choose(container.present, inner, smt.truth(smt.false))
            case Other():
                reason = f"has(….{name}) of a value that is not modelled"
                return smt.truth(
                    self.unsure(reason, container.ident),
                    self.unsure(reason, "error", container.ident),
                )
            case _:
                return smt.failed()


def plain_text(value: Term) -> str:
    """The text of a string constant."""
    parts = value.as_string().split("\\u{")
    found = parts[0]
    for part in parts[1:]:
        code, _, rest = part.partition("}")
        found += chr(int(code, 16)) + rest
    return found


def _compare(symbol: str, a: Term, b: Term) -> Term:
    match symbol:
        case "<":
            return a < b
        case "<=":
            return a <= b
        case ">":
            return b < a
        case _:
            return b <= a


def _within(term: Term, low: int, high: int) -> Term:
    return z3.And(term >= low, term <= high)


def _or_anything(smt: Smt, parts: list[Sym], index: int) -> Sym:
    return parts[index] if index < len(parts) else smt.anything("beyond")


def _key(shape: Shape) -> Any:
    match shape:
        case Null():
            return "null"
        case Bool() | Int() | Double() | Text() | Time():
            return (type(shape).__name__, shape.it.get_id(), shape)
        case List() | Map() | Other():
            return shape.ident
        case Maybe():
            return id(shape)


def _pair(a: Shape, b: Shape) -> tuple[Any, ...]:
    return tuple(sorted((_key(a), _key(b)), key=str))
