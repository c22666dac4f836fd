"""Cells: JSON values that are not known yet, with what a JSON Schema says of them.

A cell grows as it is read: a field, an element exists once somebody asks for it. The formula of a schema holds for
every value that the schema accepts, and says of itself whether it is exact; what it leaves out is checked on the
concrete value at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from penstock.expr.values import INT_MAX, INT_MIN
from penstock.verify.samples import FORMATS, PARTS_MAX, resolve, sample
from penstock.verify.smt.patterns import Untranslatable, pattern_term
from penstock.verify.smt.terms import (
    UNROLLED,
    Bool,
    Double,
    Int,
    List,
    Map,
    Null,
    Shape,
    Smt,
    Sym,
    Term,
    Text,
    z3,
)

KINDS = ("null", "bool", "int", "double", "string", "list", "map")
CELLS_MAX = 600
SAMPLE_PARTS_MIN = 30
DEPTH_MAX = 8
LENGTH_MAX = 200
"""Elements of a list, characters of a text that a solution may have."""
_OF_TYPE = {
    "null": ("null",),
    "boolean": ("bool",),
    "integer": ("int",),
    "number": ("int", "double"),
    "string": ("string",),
    "array": ("list",),
    "object": ("map",),
}
_KNOWN = frozenset(
    {
        *("$schema", "$id", "$defs", "$comment", "$anchor", "definitions", "title", "description"),
        *("default", "examples", "deprecated", "readOnly", "writeOnly", "type", "const", "enum"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *("minLength", "maxLength", "pattern", "properties", "required", "additionalProperties"),
        *("items", "prefixItems", "minItems", "maxItems", "allOf", "anyOf", "oneOf", "not"),
        *("if", "then", "else", "dependentRequired"),
    }
)
"""Words that are translated, or say nothing of a value."""

Formula = tuple[Term, bool]
"""What holds of every value that is accepted, and whether nothing else does."""


NAMED_MAX = 300
"""Values of an `enum` that are told apart; a longer one is left to the check of what is found."""


class Concreteless(Exception):
    """A model that can't be made a value of reasonable size."""


class Cell:
    """One value; `schema` and the `root` that its references are in."""

    def __init__(self, garden: Garden, name: str, schema: Any, root: Any, depth: int) -> None:
        self._garden, self._smt = garden, garden.smt
        self.name, self.root, self.depth = name, root, depth
        resolved: Any = resolve(schema, root)
        self.schema: Any = resolved
        self.kinds = _kinds(self.schema, root)
        self.ident = garden.smt.ident()
        self._kind: Term = None
        self._parts: dict[str, Term] = {}
        self.fields: dict[str, tuple[Term, Cell]] = {}
        self.items: list[Cell] = []
        self.rules: Mapping[str, Any] = (
            cast("Mapping[str, Any]", resolved) if isinstance(resolved, Mapping) else {}
        )
        more = self.rules.get("additionalProperties")
        self.closed = more is False and not self.rules.get("patternProperties")

    def sym(self) -> Sym:
        """As an expression sees it."""
        cases = tuple((self.is_(kind), self._shape(kind)) for kind in self.kinds)
        return Sym(cases, self._smt.false)

    def is_(self, *kinds: str) -> Term:
        smt = self._smt
        if all(kind in kinds for kind in self.kinds):
            return smt.true
        if self._kind is None:
            self._kind = smt.int(f"{self.name}.kind")
            smt.laws.append(smt.any(*(self._kind == KINDS.index(kind) for kind in self.kinds)))
        return smt.any(*(self._kind == KINDS.index(k) for k in kinds if k in self.kinds))

    def part(self, kind: str) -> Term:
        """The unknown that stands for its value if it is of that kind."""
        smt = self._smt
        if kind not in self._parts:
            match kind:
                case "bool":
                    made = smt.bool(self.name)
                case "int":
                    made = smt.number(self.name)
                    modest = self._garden.modest
                    if modest is not None:
                        smt.laws += [made >= -modest, made <= modest]
                    smt.laws.append(smt.implies(smt.nice, z3.And(made >= -1000, made <= 1000)))
                case "double":
                    made = smt.real(self.name)
                    limit = smt.fraction(1.7e308)
                    smt.laws.append(z3.And(made <= limit, made >= -limit))
                case "string":
                    made = smt.string(self.name)
                    smt.laws.append(smt.implies(smt.nice, z3.Length(made) <= 16))
                case _:
                    made = smt.int(f"{self.name}.length")
                    smt.laws.append(made >= 0)
                    smt.laws.append(smt.implies(smt.hope, made <= UNROLLED))
            self._parts[kind] = made
        return self._parts[kind]

    def field(self, name: str) -> tuple[Term, Cell]:
        smt = self._smt
        if name not in self.fields:
            declared = cast("Mapping[str, Any]", self.rules.get("properties") or {})
            known = name in declared
            if known:
                schema = declared[name]
            elif self.rules.get("patternProperties"):
                schema = True
            else:
                schema = self.rules.get("additionalProperties", True)
            present = smt.bool(f"{self.name}.{name}?")
            if not known and schema is False:
                present = smt.false
            elif not known:
                # Nobody declared it: there only if somebody insists.
                smt.laws.append(smt.implies(smt.nice, smt.no(present)))
            cell = self._garden.cell(f"{self.name}.{name}", schema, self.root, self.depth + 1)
            self.fields[name] = (present, cell)
        return self.fields[name]

    def item(self, index: int) -> Cell:
        while len(self.items) <= index:
            at = len(self.items)
            prefix = cast("list[Any]", self.rules.get("prefixItems") or [])
            schema = prefix[at] if at < len(prefix) else self.rules.get("items", True)
            name = f"{self.name}[{at}]"
            self.items.append(self._garden.cell(name, schema, self.root, self.depth + 1))
        return self.items[index]

    def _shape(self, kind: str) -> Shape:
        match kind:
            case "null":
                return Null()
            case "bool":
                return Bool(self.part("bool"))
            case "int":
                return Int(self.part("int"))
            case "double":
                return Double(self.part("double"), self._smt.false)
            case "string":
                return Text(self.part("string"))
            case "list":
                return List(self.part("list"), lambda i: self.item(i).sym(), self.ident)
            case _:
                return Map(self._seen, lambda: self._declared(), self.closed, self.ident)

    def _seen(self, name: str) -> tuple[Term, Sym]:
        present, cell = self.field(name)
        return present, cell.sym()

    def _declared(self) -> Iterable[str]:
        return cast("Mapping[str, Any]", self.rules.get("properties") or {})

    # --- a model's value -------------------------------------------------------------------------------------

    def concrete(self, model: Any) -> Any:
        """The JSON value in a model."""
        if self._kind is None and not self._parts and not self.fields:
            return self._garden.sample(self.schema, self.root)
        kind: str = self.kinds[0] if self.kinds else "null"
        if self._kind is not None:
            kind = KINDS[int(model.eval(self._kind, True).as_long())]
        if kind in ("bool", "int", "double", "string", "list"):
            self.part(kind)
        match kind:
            case "null":
                return None
            case "bool":
                return bool(z3.is_true(model.eval(self._parts["bool"], True)))
            case "int":
                return int(model.eval(self._parts["int"], True).as_long())
            case "double":
                return _float(model.eval(self._parts["double"], True))
            case "string":
                return _text(model.eval(self._parts["string"], True).as_string())
            case "list":
                length = model.eval(self._parts["list"], True).as_long()
                if length > LENGTH_MAX:
                    raise Concreteless("a list that is too long")
                return [self.item(i).concrete(model) for i in range(length)]
            case _:
                found: dict[str, Any] = {}
                for name, (present, cell) in self.fields.items():
                    if z3.is_true(model.eval(present, True)):
                        found[name] = cell.concrete(model)
                for name in cast("list[str]", self.rules.get("required") or []):
                    if name not in found and name not in self.fields:
                        found[name] = self._garden.sample(self.field(name)[1].schema, self.root)
                return found


def _float(value: Any) -> float | int:
    if not z3.is_rational_value(value):
        value = value.approx(20)
    number = value.numerator_as_long() / value.denominator_as_long()
    return number


def _text(escaped: str) -> str:
    """z3 writes what is not plain as `\\u{…}`."""
    parts = escaped.split("\\u{")
    found = parts[0]
    for part in parts[1:]:
        code, _, rest = part.partition("}")
        found += chr(int(code, 16)) + rest
    if len(found) > LENGTH_MAX:
        raise Concreteless("a text that is too long")
    return found


class Garden:
    """All cells of one question, and what schemas say of them.

    Not `whole`, it speaks only of what was read; the rest is filled in at the end, which mostly fits.
    """

    def __init__(self, smt: Smt, *, whole: bool, modest: int | None = None) -> None:
        self.smt, self.modest = smt, modest
        self._whole = whole
        self._count = 0
        self._sampled = 0
        self._roots: list[tuple[Cell, Term]] = []

    def sample(self, schema: Any, root: Any) -> Any:
        """Of what was not read; the more there is of it, the less is made of each."""
        self._sampled += 1
        return sample(schema, root, parts=max(SAMPLE_PARTS_MIN, PARTS_MAX // self._sampled))

    def plant(self, name: str, schema: Any, root: Any, *, alive: Term) -> Cell:
        """A cell that is not part of another; its schema holds while it is alive."""
        cell = self.cell(name, schema, root)
        self._roots.append((cell, alive))
        return cell

    def settle(self) -> None:
        """Let the schemas hold, once all that is read is known."""
        for cell, alive in self._roots:
            formula, _ = self.formula(cell, cell.schema, cell.root)
            self.smt.laws.append(self.smt.implies(alive, formula))

    def cell(self, name: str, schema: Any, root: Any, depth: int = 0) -> Cell:
        self._count += 1
        return Cell(self, name, schema, root, depth)

    def formula(self, cell: Cell, schema: Any, root: Any) -> Formula:
        smt = self.smt
        schema = resolve(schema, root)
        if schema is False:
            return smt.false, True
        if not isinstance(schema, Mapping):
            return smt.true, schema is True or schema is None
        if self._count > CELLS_MAX or cell.depth > DEPTH_MAX:
            return smt.true, False
        rules = cast("Mapping[str, Any]", schema)
        own = schema is cell.schema
        parts: list[Formula] = [(smt.true, not (set(rules) - _KNOWN))]
        parts += self._plain(cell, rules)
        parts += self._texts(cell, rules)
        parts += self._members(cell, rules, root, own=own)
        parts += self._combined(cell, rules, root)
        return smt.all(*(term for term, _ in parts)), all(exact for _, exact in parts)

    def _plain(self, cell: Cell, rules: Mapping[str, Any]) -> list[Formula]:
        smt = self.smt
        found: list[Formula] = []
        names = rules.get("type")
        if names is not None:
            listed = cast("list[str]", names if isinstance(names, list) else [names])
            kinds = [kind for name in listed for kind in _OF_TYPE.get(name, KINDS)]
            found.append((cell.is_(*kinds), True))
        if "const" in rules:
            found.append(self._equals(cell, rules["const"]))
        named = rules.get("enum")
        if isinstance(named, list) and len(cast("list[Any]", named)) > NAMED_MAX:
            found.append((smt.true, False))
        elif isinstance(named, list):
            options = [self._equals(cell, value) for value in cast("list[Any]", named)]
            found.append((smt.any(*(t for t, _ in options)), all(e for _, e in options)))
        for word, compare in _BOUNDS.items():
            limit = rules.get(word)
            if isinstance(limit, int | float) and not isinstance(limit, bool):
                found += self._bounded(cell, limit, compare)
        step = rules.get("multipleOf")
        if step is not None:
            if isinstance(step, int) and "int" in cell.kinds:
                multiple = cell.part("int") % step == 0
                found.append((smt.implies(cell.is_("int"), multiple), "double" not in cell.kinds))
            else:
                found.append((smt.true, False))
        return found

    def _bounded(self, cell: Cell, limit: float, compare: Any) -> list[Formula]:
        smt = self.smt
        found: list[Formula] = []
        if "int" in cell.kinds:
            term = compare(z3.ToReal(cell.part("int")), smt.fraction(limit))
            found.append((smt.implies(cell.is_("int"), term), True))
        if "double" in cell.kinds:
            term = compare(cell.part("double"), smt.fraction(limit))
            found.append((smt.implies(cell.is_("double"), term), True))
        return found

    def _equals(self, cell: Cell, value: Any) -> Formula:
        smt = self.smt
        match value:
            case None:
                return cell.is_("null"), True
            case bool():
                if "bool" not in cell.kinds:
                    return smt.false, True
                return smt.all(cell.is_("bool"), cell.part("bool") == value), True
            case int() | float():
                options: list[Term] = []
                if "int" in cell.kinds and value == int(value) and INT_MIN <= value <= INT_MAX:
                    options.append(smt.all(cell.is_("int"), cell.part("int") == int(value)))
                if "double" in cell.kinds:
                    term = cell.part("double") == smt.fraction(value)
                    options.append(smt.all(cell.is_("double"), term))
                return smt.any(*options), True
            case str():
                literal = smt.literal(value)
                if "string" not in cell.kinds:
                    return smt.false, True
                if literal is None:
                    return cell.is_("string"), False
                return smt.all(cell.is_("string"), cell.part("string") == literal), True
            case list():
                return cell.is_("list"), False
            case _:
                return cell.is_("map"), False

    def _texts(self, cell: Cell, rules: Mapping[str, Any]) -> list[Formula]:
        smt = self.smt
        if "string" not in cell.kinds or not {"minLength", "maxLength", "pattern", "format"} & set(
            rules
        ):
            return []
        text, found = cell.part("string"), list[Formula]()
        textual = cell.is_("string")
        if "minLength" in rules:
            term = z3.Length(text) >= int(rules["minLength"])
            found.append((smt.implies(textual, term), True))
        if "maxLength" in rules:
            term = z3.Length(text) <= int(rules["maxLength"])
            found.append((smt.implies(textual, term), True))
        if "pattern" in rules:
            try:
                term = pattern_term(smt, rules["pattern"], text, plain=True)
                found.append((smt.implies(textual, term), True))
            except Untranslatable:
                found.append((smt.true, False))
        if rules.get("format") in FORMATS:
            likely = smt.any(*(text == smt.literal(one) for one in FORMATS[rules["format"]]))
            smt.laws.append(smt.implies(smt.all(smt.hope, textual), likely))
        return found

    def _members(
        self, cell: Cell, rules: Mapping[str, Any], root: Any, *, own: bool
    ) -> list[Formula]:
        smt = self.smt
        found: list[Formula] = []
        if "map" in cell.kinds:
            mapped = cell.is_("map")
            for name in cast("list[str]", rules.get("required") or []):
                if not self._whole and name not in cell.fields:
                    found.append((smt.true, False))
                    continue
                found.append((smt.implies(mapped, cell.field(name)[0]), True))
            inside = dict(cast("Mapping[str, Any]", rules.get("properties") or {}))
            if own:  # what nobody declared has the schema of the others
                inside |= {n: c.schema for n, (_, c) in cell.fields.items() if n not in inside}
            for name, inner in inside.items():
                if not self._whole and name not in cell.fields:
                    found.append((smt.true, False))
                    continue
                present, member = cell.field(name)
                term, exact = self.formula(member, inner, root)
                found.append((smt.implies(smt.all(mapped, present), term), exact))
            needed = cast("Mapping[str, list[str]]", rules.get("dependentRequired") or {})
            for name, others in needed.items():
                there = smt.all(*(cell.field(other)[0] for other in others))
                found.append((smt.implies(smt.all(mapped, cell.field(name)[0]), there), True))
            if "additionalProperties" in rules and not own:
                found.append((smt.true, False))
        if "list" in cell.kinds and {"items", "prefixItems", "minItems", "maxItems"} & set(rules):
            found += self._elements(cell, rules, root)
        return found

    def _elements(self, cell: Cell, rules: Mapping[str, Any], root: Any) -> list[Formula]:
        smt = self.smt
        listed, length = cell.is_("list"), cell.part("list")
        found: list[Formula] = []
        if "minItems" in rules:
            found.append((smt.implies(listed, length >= int(rules["minItems"])), True))
        if "maxItems" in rules:
            found.append((smt.implies(listed, length <= int(rules["maxItems"])), True))
        if "items" in rules or "prefixItems" in rules:
            prefix = cast("list[Any]", rules.get("prefixItems") or [])
            for index in range(UNROLLED):
                schema = prefix[index] if index < len(prefix) else rules.get("items", True)
                if schema is True or (index >= 2 and cell.depth > 2):
                    continue
                if schema is False:
                    found.append((smt.implies(listed, length <= index), True))
                    continue
                if not self._whole and index >= len(cell.items):
                    found.append((smt.true, False))
                    continue
                term, _ = self.formula(cell.item(index), schema, root)
                found.append((smt.implies(smt.all(listed, length > index), term), False))
        return found

    def _combined(self, cell: Cell, rules: Mapping[str, Any], root: Any) -> list[Formula]:
        smt = self.smt
        found: list[Formula] = []
        for part in cast("list[Any]", rules.get("allOf") or []):
            found.append(self.formula(cell, part, root))
        if "anyOf" in rules:
            parts = [self.formula(cell, part, root) for part in rules["anyOf"]]
            found.append((smt.any(*(t for t, _ in parts)), all(e for _, e in parts)))
        if "oneOf" in rules:
            parts = [self.formula(cell, part, root) for part in rules["oneOf"]]
            exact = all(e for _, e in parts)
            found.append((smt.any(*(t for t, _ in parts)), exact))
            if exact and len(parts) > 1:
                found.append((z3.AtMost(*(t for t, _ in parts), 1), True))
        if "not" in rules:
            term, exact = self.formula(cell, rules["not"], root)
            found.append((smt.no(term), True) if exact else (smt.true, False))
        if "if" in rules:
            test, exact = self.formula(cell, rules["if"], root)
            then, then_exact = self.formula(cell, rules.get("then", True), root)
            other, other_exact = self.formula(cell, rules.get("else", True), root)
            if exact:
                both = smt.all(smt.implies(test, then), smt.any(test, other))
                found.append((both, then_exact and other_exact))
            else:
                found.append((smt.any(then, other), False))
        return found


_BOUNDS: dict[str, Any] = {
    "minimum": lambda a, b: a >= b,  # pyright: ignore[reportUnknownLambdaType]
    "maximum": lambda a, b: a <= b,  # pyright: ignore[reportUnknownLambdaType]
    "exclusiveMinimum": lambda a, b: a > b,  # pyright: ignore[reportUnknownLambdaType]
    "exclusiveMaximum": lambda a, b: a < b,  # pyright: ignore[reportUnknownLambdaType]
}


def _kinds(schema: Any, root: Any) -> tuple[str, ...]:
    """Those that the schema's own words leave; its combinations narrow them by formula."""
    if not isinstance(schema, Mapping):
        return KINDS
    rules = cast("Mapping[str, Any]", schema)
    names = rules.get("type")
    if names is not None:
        listed = cast("list[str]", names if isinstance(names, list) else [names])
        kinds = {kind for name in listed for kind in _OF_TYPE.get(name, KINDS)}
        return tuple(kind for kind in KINDS if kind in kinds)
    values = [rules["const"]] if "const" in rules else rules.get("enum")
    if isinstance(values, list):
        kinds = {kind for value in cast("list[Any]", values) for kind in _kinds_of_value(value)}
        return tuple(kind for kind in KINDS if kind in kinds)
    for word in ("anyOf", "oneOf"):
        parts = rules.get(word)
        if isinstance(parts, list):
            kinds = {
                kind
                for part in cast("list[Any]", parts)
                for kind in _kinds(resolve(part, root), root)
            }
            return tuple(kind for kind in KINDS if kind in kinds)
    return KINDS


def _kinds_of_value(value: Any) -> tuple[str, ...]:
    match value:
        case None:
            return ("null",)
        case bool():
            return ("bool",)
        case int():
            return ("int", "double")
        case float():
            return ("int", "double") if value.is_integer() else ("double",)
        case str():
            return ("string",)
        case list():
            return ("list",)
        case _:
            return ("map",)
