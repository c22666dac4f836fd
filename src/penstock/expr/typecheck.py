"""Static types of a tree.

With an `Environment` an unknown variable, an unknown field of a closed object or an ill-typed call is an
`ExpressionError` before anything runs. Without one every variable is dynamic and only names of functions
are checked. Stricter than a run in nothing else: numbers compare across their types here too, and
anything may be compared with null, because a skipped task's output is null.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

from penstock.errors import ExpressionError
from penstock.expr import library, library_lists, library_math, library_strings, library_times
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
)
from penstock.expr.registry import FUNCTIONS, NAMES, Function
from penstock.expr.schema_types import type_of_schema
from penstock.expr.types import (
    BOOL,
    BY_NAME,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    FREE,
    INT,
    NULL,
    STRING,
    TIMESTAMP,
    TYPE,
    UINT,
    Type,
    comparable,
    join,
    list_of,
    map_of,
    matches,
    object_of,
    optional_of,
    settled,
    substitute,
)
from penstock.expr.values import TYPE_VALUES, kind_of

if TYPE_CHECKING:
    from penstock.expr.language import Language

__all__ = [
    "BOOL",
    "BYTES",
    "DOUBLE",
    "DURATION",
    "DYN",
    "INT",
    "NULL",
    "STRING",
    "TIMESTAMP",
    "UINT",
    "Checked",
    "Environment",
    "Type",
    "check",
    "list_of",
    "map_of",
    "object_of",
    "optional_of",
    "type_of_schema",
]

# Imported so that their functions are registered before the first name is looked up.
_LIBRARIES = (library, library_lists, library_math, library_strings, library_times)

VARIADIC = frozenset({"math.greatest", "math.least"})


@dataclass(frozen=True, slots=True)
class Environment:
    """The variables that an expression may read, by name; others too if `allow_unknown`."""

    variables: Mapping[str, Type] = field(default_factory=dict[str, Type])
    allow_unknown: bool = False
    languages: Mapping[str, Language] = field(default_factory=dict[str, "Language"])
    """Those beside CEL that conditions may be written in."""


@dataclass(slots=True)
class Checked:
    """What the check found, by the identity of a node."""

    result: Type = DYN
    types: dict[int, Type] = field(default_factory=dict[int, Type])
    # Calls resolved to their function; the target of a namespaced one is no value.
    functions: dict[int, tuple[Function, bool]] = field(
        default_factory=dict[int, tuple[Function, bool]]
    )
    # Identifiers and selections that name a type, as in `type(x) == google.protobuf.Timestamp`.
    type_names: dict[int, str] = field(default_factory=dict[int, str])


def check(text: str, tree: Node, env: Environment | None) -> Checked:
    """Types of all nodes, or `ExpressionError`."""
    checker = _Checker(text, env)
    checker.checked.result = settled(checker.visit(tree, {}))
    return checker.checked


def dotted(node: Node | None) -> str | None:
    """`a.b.c` as written, or None if it is anything but plain names."""
    parts: list[str] = []
    while isinstance(node, Select) and not node.optional:
        parts.append(node.field)
        node = node.operand
    if not isinstance(node, Ident):
        return None
    parts.append(node.name)
    return ".".join(reversed(parts))


def closest(name: str, known: Iterable[str]) -> str | None:
    """A hint that names the known word nearest to a mistyped one."""
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"did you mean `{found[0]}`?" if found else None


_Scope = dict[str, Type]


class _Checker:
    def __init__(self, text: str, env: Environment | None) -> None:
        self._text = text
        self._env = env
        self._strict = env is not None
        self._variables: Mapping[str, Type] = env.variables if env is not None else {}
        self.checked = Checked()

    def _fail(self, message: str, position: int, hint: str | None = None) -> NoReturn:
        raise ExpressionError(message, text=self._text, position=position, hint=hint)

    def _mismatch(self, message: str, position: int, hint: str | None = None) -> Type:
        """An ill-typed part: refused with an environment, left to the run without one."""
        if self._strict:
            self._fail(message, position, hint)
        return DYN

    def visit(self, node: Node, scope: _Scope) -> Type:
        match node:
            case Literal():
                found = BY_NAME[kind_of(node.value)]
            case Ident():
                found = self._ident(node, scope)
            case Select():
                found = self._select(node, scope)
            case Index():
                found = self._index(node, scope)
            case Call():
                found = self._call(node, scope)
            case ListLiteral():
                found = self._list(node, scope)
            case MapLiteral():
                found = self._map(node, scope)
            case Unary():
                found = self._unary(node, scope)
            case Binary():
                found = self._binary(node, scope)
            case Logic():
                for operand in node.operands:
                    self._need_bool(operand, self.visit(operand, scope), node.operator)
                found = BOOL
            case Conditional():
                self._need_bool(node.condition, self.visit(node.condition, scope), "?:")
                found = join(self.visit(node.then, scope), self.visit(node.otherwise, scope))
            case Has():
                self._field(self.visit(node.operand, scope), node.field, node.position, False)
                found = BOOL
            case Comprehension():
                found = self._comprehension(node, scope)
            case Bind():
                value = self.visit(node.value, scope)
                found = self.visit(node.body, {**scope, node.variable: value})
        self.checked.types[id(node)] = found
        return found

    def _need_bool(self, node: Node, found: Type, where: str) -> None:
        if found.name != "bool" and not found.dynamic:
            self._mismatch(f"`{where}` needs a bool here, not {found}", node.position)

    def _ident(self, node: Ident, scope: _Scope) -> Type:
        if node.name in scope and not node.absolute:
            return scope[node.name]
        if node.name in self._variables:
            return self._variables[node.name]
        if node.name in TYPE_VALUES:
            self.checked.type_names[id(node)] = node.name
            return TYPE
        if self._env is None or self._env.allow_unknown:
            return DYN
        hint = closest(node.name, [*self._variables, *scope])
        self._fail(f"no such variable `{node.name}`", node.position, hint)

    def _select(self, node: Select, scope: _Scope) -> Type:
        name = dotted(node)
        if name in TYPE_VALUES and not self._is_variable(node, scope):
            self.checked.type_names[id(node)] = name
            return TYPE
        operand = self.visit(node.operand, scope)
        found = self._field(operand, node.field, node.position, node.optional)
        if (node.optional or operand.name == "optional") and found.name != "optional":
            return optional_of(found)
        return found

    def _is_variable(self, node: Node | None, scope: _Scope) -> bool:
        while isinstance(node, Select):
            node = node.operand
        return isinstance(node, Ident) and (node.name in scope or node.name in self._variables)

    def _field(self, operand: Type, name: str, position: int, optional: bool) -> Type:
        if operand.name == "optional":
            return self._field(operand.params[0], name, position, True)
        if operand.dynamic:
            return _soft_part(operand, name)
        if operand.name != "map":
            return self._mismatch(f"{operand} has no fields, so no `{name}`", position)
        if operand.fields is not None:
            if name in operand.fields:
                return operand.fields[name]
            if operand.closed:
                return self._mismatch(
                    f"no such field `{name}`", position, closest(name, operand.fields)
                )
        elif not matches(operand.params[0], STRING, {}):
            return self._mismatch(f"{operand} has no text keys", position)
        return operand.params[1]

    def _index(self, node: Index, scope: _Scope) -> Type:
        operand = self.visit(node.operand, scope)
        key = self.visit(node.key, scope)
        inner = operand.params[0] if operand.name == "optional" else operand
        match inner.name:
            case "list":
                found = inner.params[0]
                if not (key.numeric or key.dynamic):
                    self._mismatch(f"a list's index is an int, not {key}", node.key.position)
            case "map":
                if inner.fields is not None and isinstance(node.key, Literal):
                    found = self._field(inner, str(node.key.value), node.key.position, False)
                else:
                    found = inner.params[1]
                    if not comparable(inner.params[0], key) or key.name == "null":
                        self._mismatch(f"{inner} has no {key} keys", node.key.position)
            case "dyn" | "free":
                literal = node.key.value if isinstance(node.key, Literal) else None
                found = _soft_part(inner, literal)
            case _:
                found = self._mismatch(f"{inner} cannot be indexed", node.position)
        if node.optional or operand.name == "optional":
            return optional_of(found)
        return found

    def _call(self, node: Call, scope: _Scope) -> Type:
        name, method, args = self._named_call(node, scope)
        # A loop, not a comprehension: nesting must cost few Python frames.
        types: list[Type] = []
        for arg in args:
            types.append(self.visit(arg, scope))
        if name in VARIADIC and len(args) > 1:
            self.checked.functions[id(node)] = (FUNCTIONS[False, name, 1], False)
            return self._variadic(name, types, node.position)
        entry = FUNCTIONS.get((method, name, len(args)))
        if entry is None:
            self._no_function(node, name, method, len(args))
        self.checked.functions[id(node)] = (entry, method)
        return self._overload(entry, types, node.position)

    def _named_call(self, node: Call, scope: _Scope) -> tuple[str, bool, tuple[Node, ...]]:
        if node.target is None:
            return node.function, False, node.args
        prefix = dotted(node.target)
        name = f"{prefix}.{node.function}"
        if prefix is not None and name in NAMES and not self._is_variable(node.target, scope):
            return name, False, node.args
        return node.function, True, (node.target, *node.args)

    def _variadic(self, name: str, types: list[Type], position: int) -> Type:
        found = types[0]
        for one in types:
            if not (one.numeric or one.dynamic):
                self._mismatch(f"{name}() needs numbers, not {one}", position)
            found = join(found, one)
        return found

    def _no_function(self, node: Call, name: str, method: bool, count: int) -> NoReturn:
        arities = {
            arity - is_method
            for is_method, known, arity in FUNCTIONS
            if known == name and is_method == method
        }
        if arities:
            wanted = " or ".join(str(arity) for arity in sorted(arities))
            given = count - method
            self._fail(f"{name}() takes {wanted} argument(s), not {given}", node.position)
        if (not method, name) in {(is_method, known) for is_method, known, _ in FUNCTIONS}:
            hint = f"write x.{name}(...)" if not method else f"write {name}(x)"
        else:
            hint = closest(name, NAMES)
        self._fail(f"no such function `{name}`", node.position, hint)

    def _overload(self, entry: Function, types: list[Type], position: int) -> Type:
        found: Type | None = None
        for overload in entry.overloads:
            bound: dict[str, Type] = {}
            if all(
                matches(param, arg, bound)
                for param, arg in zip(overload.params, types, strict=True)
            ):
                result = substitute(overload.result, bound)
                found = result if found is None else join(found, result)
        if found is not None:
            return found
        given = ", ".join(map(str, types))
        return self._mismatch(
            f"no such overload: {entry.name}({given})", position, _number_hint(types)
        )

    def _list(self, node: ListLiteral, scope: _Scope) -> Type:
        found: Type | None = None
        for item in node.items:
            one = self.visit(item.value, scope)
            if item.optional:
                one = self._inner(one, item.value)
            found = one if found is None else join(found, one)
        return list_of(found or FREE)

    def _map(self, node: MapLiteral, scope: _Scope) -> Type:
        key_type: Type | None = None
        value_type: Type | None = None
        for entry in node.entries:
            key = self.visit(entry.key, scope)
            if key.name not in ("string", "int", "uint", "bool") and not key.dynamic:
                self._mismatch(
                    f"a map key is a string, an int, a uint or a bool, not {key}",
                    entry.key.position,
                )
            value = self.visit(entry.value, scope)
            if entry.optional:
                value = self._inner(value, entry.value)
            key_type = key if key_type is None else join(key_type, key)
            value_type = value if value_type is None else join(value_type, value)
        return map_of(key_type or FREE, value_type or FREE)

    def _inner(self, found: Type, node: Node) -> Type:
        if found.name == "optional":
            return found.params[0]
        if found.dynamic:
            return DYN
        return self._mismatch(f"`?` needs an optional here, not {found}", node.position)

    def _unary(self, node: Unary, scope: _Scope) -> Type:
        found = self.visit(node.operand, scope)
        if node.operator == "!":
            self._need_bool(node.operand, found, "!")
            return BOOL
        if found.name in ("int", "double") or found.dynamic:
            return found
        return self._mismatch(f"no such overload: -({found})", node.position)

    def _binary(self, node: Binary, scope: _Scope) -> Type:
        chain: list[Binary] = []
        first: Node = node
        while isinstance(first, Binary):
            chain.append(first)
            first = first.left
        left = self.visit(first, scope)
        for link in reversed(chain):
            left = self._operator(link, left, self.visit(link.right, scope))
            self.checked.types[id(link)] = left
        return left

    def _operator(self, node: Binary, left: Type, right: Type) -> Type:
        match node.operator:
            case "==" | "!=":
                if not comparable(left, right):
                    self._mismatch(f"{left} never equals {right}", node.position)
                return BOOL
            case "<" | "<=" | ">" | ">=":
                if not _ordered(left, right):
                    self._mismatch(
                        f"no such overload: {left} {node.operator} {right}", node.position
                    )
                return BOOL
            case "in":
                if right.fields is not None:
                    right = map_of(STRING, DYN)
                return self._overload(FUNCTIONS[False, "in", 2], [left, right], node.position)
            case _:
                entry = FUNCTIONS[False, f"_{node.operator}_", 2]
                return self._overload(entry, [left, right], node.position)

    def _comprehension(self, node: Comprehension, scope: _Scope) -> Type:
        source = self.visit(node.source, scope)
        if node.kind in ("optMap", "optFlatMap"):
            return self._optional_map(node, source, scope)
        key, value = DYN, DYN
        match source.name:
            case "list":
                key, value = INT, source.params[0]
            case "map":
                key, value = source.params
            case "dyn" | "free":
                if source.soft is not None and source.soft.name == "list":
                    value = source.soft.params[0]
            case _:
                self._mismatch(f"{node.kind}() needs a list or a map, not {source}", node.position)
        if node.second is not None:
            inner = {**scope, node.variable: key, node.second: value}
        else:
            inner = {**scope, node.variable: key if source.name == "map" else value}
        if node.condition is not None:
            self._need_bool(node.condition, self.visit(node.condition, inner), node.kind)
        body = self.visit(node.body, inner)
        match node.kind:
            case "all" | "exists" | "existsOne":
                self._need_bool(node.body, body, node.kind)
                return BOOL
            case "filter":
                self._need_bool(node.body, body, node.kind)
                return list_of(inner[node.variable])
            case "sortBy":
                return source
            case "transformMap":
                return map_of(key, body)
            case "transformMapEntry":
                if body.name != "map" and not body.dynamic:
                    self._mismatch(
                        "transformMapEntry() needs a map as its last", node.body.position
                    )
                return body if body.name == "map" else map_of(DYN, DYN)
            case _:
                return list_of(body)

    def _optional_map(self, node: Comprehension, source: Type, scope: _Scope) -> Type:
        if source.name != "optional" and not source.dynamic:
            self._mismatch(f"{node.kind}() needs an optional, not {source}", node.position)
        element = source.params[0] if source.name == "optional" else DYN
        body = self.visit(node.body, {**scope, node.variable: element})
        if node.kind == "optMap":
            return optional_of(body)
        if body.name != "optional" and not body.dynamic:
            self._mismatch(f"optFlatMap() needs an optional, not {body}", node.body.position)
        return body if body.name == "optional" else optional_of(DYN)


def _soft_part(operand: Type, name: object) -> Type:
    """What is known of a part of DYN, by its name (of a list: whatever its index is)."""
    known = operand.soft
    if known is None:
        return DYN
    if known.name == "list":
        return known.params[0]
    fields = known.fields or {}
    return fields.get(name, known.params[1]) if isinstance(name, str) else DYN


def _ordered(left: Type, right: Type) -> bool:
    if left.dynamic and right.dynamic:
        return True
    known = right if left.dynamic else left
    if known.name not in ("bool", "string", "bytes", "timestamp", "duration") and not known.numeric:
        return False
    return (
        left.dynamic or right.dynamic or left.name == right.name or (left.numeric and right.numeric)
    )


def _number_hint(types: list[Type]) -> str | None:
    names = {found.name for found in types}
    if names == {"int", "double"}:
        return "arithmetic does not mix int and double: write 1.0 for 1, or double(x)"
    return None
