"""Symbolic values: what an expression may give, each alternative under the condition on which it does.

A `Sym` is a list of guarded shapes and the guard of an error: exactly one of them holds in every model. What can't be
said exactly is a fresh unknown that may be anything, so that `impossible` stays true; `hope` is a switch that restricts
such unknowns to what is likely, which helps to find solutions and proves nothing.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, cast

from penstock.expr.values import INT_MAX, INT_MIN

z3: Any = cast("Any", importlib.import_module("z3"))

Term = Any
"""A formula or number of z3, which has no types of its own."""
UNROLLED = 4
"""Elements of a list that are looked at one by one; what lies beyond is unknown."""
CASES_MAX = 24
EXACT_MAX = 2**53
"""Whole numbers up to here are doubles without loss."""


@dataclass(frozen=True, slots=True)
class Null:
    pass


@dataclass(frozen=True, slots=True)
class Bool:
    it: Term


@dataclass(frozen=True, slots=True)
class Int:
    it: Term


@dataclass(frozen=True, slots=True)
class Double:
    """`nan` is no number at all; an infinity is a number larger than the others."""

    it: Term
    nan: Term


@dataclass(frozen=True, slots=True)
class Text:
    it: Term


@dataclass(frozen=True, slots=True)
class Time:
    """A timestamp or a duration, in nanoseconds."""

    kind: str
    it: Term


@dataclass(frozen=True, slots=True)
class List:
    length: Term
    at: Callable[[int], Sym]
    ident: int


@dataclass(frozen=True, slots=True)
class Map:
    """`field` gives whether a name is there, and what it holds if so. A closed one has no names but `names()`."""

    field: Callable[[str], tuple[Term, Sym]]
    names: Callable[[], Iterable[str]]
    closed: bool
    ident: int


@dataclass(frozen=True, slots=True)
class Maybe:
    """A CEL optional."""

    present: Term
    value: Sym


@dataclass(frozen=True, slots=True)
class Other:
    """Of a kind, or of a nature, that is not modelled."""

    ident: int


Shape = Null | Bool | Int | Double | Text | Time | List | Map | Maybe | Other


@dataclass(frozen=True, slots=True)
class Sym:
    cases: tuple[tuple[Term, Shape], ...]
    error: Term


class Smt:
    """One context of z3, which no other thread may use meanwhile, and its words."""

    def __init__(self) -> None:
        self.context = z3.Context()
        self.units = 0
        """Spent so far."""
        self.visits = 0
        """Parts of expressions that were translated so far."""
        self.true, self.false = z3.BoolVal(True, self.context), z3.BoolVal(False, self.context)
        self.reset()

    def reset(self) -> None:
        self._count = 0
        self._rounded: dict[int, Any] = {}
        self.laws: list[Term] = []
        """What holds of the symbols themselves."""
        self.reasons: dict[str, None] = {}
        """What could not be said exactly, in order of appearance."""
        self.hope = z3.Bool("hope", self.context)
        self.nice = z3.Bool("nice", self.context)
        self.unbounded = False
        """Whole numbers that leave 64 bits are no errors."""

    # --- constants and unknowns ------------------------------------------------------------------------------

    def ident(self) -> int:
        self._count += 1
        return self._count

    def name(self, about: str) -> str:
        return f"{about}#{self.ident()}"

    def bool(self, about: str) -> Term:
        return z3.Bool(self.name(about), self.context)

    def int(self, about: str) -> Term:
        return z3.Int(self.name(about), self.context)

    def real(self, about: str) -> Term:
        return z3.Real(self.name(about), self.context)

    def string(self, about: str) -> Term:
        return z3.String(self.name(about), self.context)

    def whole(self, value: int) -> Term:
        return z3.IntVal(value, self.context)

    def fraction(self, value: float) -> Term:
        exact = Fraction(value)
        return z3.RealVal(f"{exact.numerator}/{exact.denominator}", self.context)

    def literal(self, text: str) -> Term | None:
        """None if it has characters that z3 can't hold."""
        if any(ord(character) > 0x2FFFF for character in text):
            return None
        # Written out: z3 reads `\u{…}` in a text as one character.
        escaped = "".join(
            c if " " <= c <= "~" and c != "\\" else f"\\u{{{ord(c):x}}}" for c in text
        )
        return z3.StringVal(escaped, self.context)

    def simple(self, term: Term) -> Term:
        """Simplified; what is certain is `true` or `false` itself."""
        found = z3.simplify(term)
        if z3.is_true(found):
            return self.true
        return self.false if z3.is_false(found) else found

    # --- logic, kept small -----------------------------------------------------------------------------------

    def all(self, *terms: Term) -> Term:
        kept = [term for term in terms if term is not self.true]
        if not kept:
            return self.true
        if any(term is self.false for term in kept):
            return self.false
        return kept[0] if len(kept) == 1 else z3.And(kept)

    def any(self, *terms: Term) -> Term:
        kept = [term for term in terms if term is not self.false]
        if not kept:
            return self.false
        if any(term is self.true for term in kept):
            return self.true
        return kept[0] if len(kept) == 1 else z3.Or(kept)

    def no(self, term: Term) -> Term:
        if term is self.true:
            return self.false
        if term is self.false:
            return self.true
        return z3.Not(term)

    def implies(self, left: Term, right: Term) -> Term:
        return self.any(self.no(left), right)

    # --- symbolic values -------------------------------------------------------------------------------------

    def value(self, shape: Shape) -> Sym:
        return Sym(((self.true, shape),), self.false)

    def failed(self) -> Sym:
        return Sym((), self.true)

    def truth(self, term: Term, error: Term | None = None) -> Sym:
        if error is None or error is self.false:
            return self.value(Bool(term))
        return Sym(((self.no(error), Bool(term)),), error)

    def checked(self, shape: Shape, error: Term) -> Sym:
        """The shape unless there is an error."""
        return Sym(((self.no(error), shape),), error)

    def bounded(self, shape: Shape, overflow: Term, error: Term = None) -> Sym:
        """The shape unless it leaves its 64 bits, or there is another error."""
        wrong = self.false if error is None else error
        return self.checked(shape, wrong if self.unbounded else self.any(wrong, overflow))

    def bind(self, sym: Sym, then: Callable[[Shape], Sym]) -> Sym:
        """What follows from each alternative; an error stays one."""
        cases: list[tuple[Term, Shape]] = []
        errors = [sym.error]
        for guard, shape in sym.cases:
            if guard is self.false:
                continue
            found = then(shape)
            errors.append(self.all(guard, found.error))
            cases += [(self.all(guard, inner), result) for inner, result in found.cases]
        return self.merged(cases, self.any(*errors))

    def merged(self, cases: list[tuple[Term, Shape]], error: Term) -> Sym:
        """Alternatives of one plain kind become one: products stay small."""
        booleans = [(g, s) for g, s in cases if isinstance(s, Bool)]
        wholes = [(g, s) for g, s in cases if isinstance(s, Int)]
        nulls = [g for g, s in cases if isinstance(s, Null)]
        kept: list[tuple[Term, Shape]] = [
            (g, s) for g, s in cases if not isinstance(s, Bool | Int | Null)
        ]
        if booleans:
            truth = self.any(*(self.all(g, s.it) for g, s in booleans))
            kept.append((self.any(*(g for g, _ in booleans)), Bool(truth)))
        if wholes:
            number = wholes[-1][1].it
            for guard, shape in wholes[:-1]:
                number = z3.If(guard, shape.it, number)
            kept.append((self.any(*(g for g, _ in wholes)), Int(number)))
        if nulls:
            kept.append((self.any(*nulls), Null()))
        kept = [(g, s) for g, s in kept if g is not self.false]
        if len(kept) > CASES_MAX:
            self.reasons["too many alternatives in one expression"] = None
            return self.anything("alternatives")
        return Sym(tuple(kept), error)

    def choose(self, condition: Term, then: Sym, otherwise: Sym) -> Sym:
        if condition is self.true:
            return then
        if condition is self.false:
            return otherwise
        cases = [(self.all(condition, g), s) for g, s in then.cases]
        cases += [(self.all(self.no(condition), g), s) for g, s in otherwise.cases]
        error = z3.If(condition, then.error, otherwise.error)
        return self.merged(cases, error)

    def outcome(self, sym: Sym) -> tuple[Term, Term, Term]:
        """As a condition: true, false, and an error or what is no bool."""
        holds = [self.all(g, s.it) for g, s in sym.cases if isinstance(s, Bool)]
        fails = [self.all(g, self.no(s.it)) for g, s in sym.cases if isinstance(s, Bool)]
        strange = [g for g, s in sym.cases if not isinstance(s, Bool)]
        return self.any(*holds), self.any(*fails), self.any(sym.error, *strange)

    def unsure(self, reason: str) -> Term:
        """A fresh truth that nothing is known of."""
        self.reasons[reason] = None
        return self.bool("unsure")

    def anything(self, about: str, kinds: str = "") -> Sym:
        """Any value, or an error; `kinds` names the one kind that it has if it is none."""
        error = self.bool(f"{about}.error")
        self.laws.append(self.implies(self.hope, self.no(error)))
        shapes: list[Shape] = []
        if kinds in ("", "bool"):
            shapes.append(Bool(self.bool(about)))
        if kinds in ("", "int"):
            shapes.append(Int(self.number(about)))
        if kinds in ("", "double"):
            shapes.append(Double(self.real(about), self.bool(f"{about}.nan")))
        if kinds in ("", "string"):
            shapes.append(Text(self.string(about)))
        if kinds in ("timestamp", "duration"):
            shapes.append(Time(kinds, self.int(about)))
        if kinds == "":
            shapes.append(Null())
        if not shapes or kinds == "":
            shapes.append(Other(self.ident()))
        if len(shapes) == 1:
            return self.checked(shapes[0], error)
        kind = self.int(f"{about}.kind")
        self.laws.append(z3.And(kind >= 0, kind < len(shapes)))
        fine = self.no(error)
        return Sym(tuple((self.all(fine, kind == i), s) for i, s in enumerate(shapes)), error)

    def number(self, about: str) -> Term:
        """A fresh whole number of 64 bits."""
        found = self.int(about)
        self.laws += [found >= INT_MIN, found <= INT_MAX]
        return found

    def as_double(self, whole: Term) -> Term:
        """A whole number as a double: exact up to 2**53, near it beyond."""
        if z3.is_int_value(whole):
            return self.fraction(float(whole.as_long()))
        known = self._rounded.get(whole.get_id())
        if known is None:
            near = self.real("rounded")
            exact = z3.And(whole <= EXACT_MAX, whole >= -EXACT_MAX)
            bound = self.fraction(float(EXACT_MAX))
            self.laws.append(z3.Implies(whole > EXACT_MAX, near >= bound))
            self.laws.append(z3.Implies(whole < -EXACT_MAX, near <= -bound))
            self.laws.append(z3.Implies(self.hope, near == z3.ToReal(whole)))
            known = (whole, z3.If(exact, z3.ToReal(whole), near))
            self._rounded[whole.get_id()] = known  # with its term, or the id may be given anew
        return known[1]
