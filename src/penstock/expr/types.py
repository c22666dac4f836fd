"""Static types: what is known of a value before it is there.

`typecheck.py` finds them for a tree and reads them from a JSON Schema; the values are in `values.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Type:
    """A CEL type; `params` are those of a list, map, optional or type.

    A map from a schema also knows its `fields`; `closed` says that it has no others. DYN with a
    parameter DOUBLE or INT is a number that may also be null, and is read as that.
    """

    name: str
    params: tuple[Type, ...] = ()
    fields: Mapping[str, Type] | None = field(default=None, hash=False)
    required: frozenset[str] = frozenset()
    closed: bool = False
    soft: Type | None = field(default=None, hash=False)
    """Of DYN: the list or map that it is if it is any, which says where numbers are read as doubles or ints; nothing
    is refused because of it."""

    def __str__(self) -> str:
        if self.fields is not None:
            return "object"
        if self.dynamic:
            return "dyn"
        if not self.params:
            return self.name
        return f"{self.name}({', '.join(map(str, self.params))})"

    @property
    def dynamic(self) -> bool:
        """Nothing is known of it."""
        return self.name == "dyn" or self.name == "free"

    @property
    def numeric(self) -> bool:
        return self.name in ("int", "uint", "double")

    @property
    def reads(self) -> str:
        """As what a JSON number of this type is read: `double` if it is whole too, `int` if it is written `4.0` too."""
        name = self.params[0].name if self.params and self.dynamic else self.name
        return name if name in ("double", "int") else ""

    @property
    def reads_double(self) -> bool:
        """A whole JSON number of this type is read as a double."""
        return self.reads == "double"


DYN = Type("dyn")
# The element of `[]`, of `optional.none()`: nothing is known, and anything else said of it wins.
FREE = Type("free")
NULL = Type("null")
BOOL = Type("bool")
INT = Type("int")
UINT = Type("uint")
DOUBLE = Type("double")
STRING = Type("string")
BYTES = Type("bytes")
TIMESTAMP = Type("timestamp")
DURATION = Type("duration")
NUMBER_OR_NULL = Type("dyn", (DOUBLE,))
INTEGER_OR_NULL = Type("dyn", (INT,))
TYPE = Type("type", (DYN,))

BY_NAME = {
    t.name: t
    for t in (DYN, FREE, NULL, BOOL, INT, UINT, DOUBLE, STRING, BYTES, TIMESTAMP, DURATION, TYPE)
}


def softened(known: Type) -> Type | None:
    """Of a type only where its numbers are, for a value that may be null or missing too; None if there are none."""
    if known.reads:
        return NUMBER_OR_NULL if known.reads_double else INTEGER_OR_NULL
    if known.name == "list":
        inner = softened(known.params[0])
        return None if inner is None else Type("dyn", soft=list_of(inner))
    if known.name != "map":
        return None
    rest = softened(known.params[1])
    fields = {name: softened(one) for name, one in (known.fields or {}).items()}
    if rest is None and all(one is None for one in fields.values()):
        return None
    return soft_object({name: one or DYN for name, one in fields.items()}, rest or DYN)


def soft_object(fields: Mapping[str, Type], rest: Type = DYN) -> Type:
    """DYN of whose fields, if it has them, something is known."""
    return Type("dyn", soft=Type("map", (STRING, rest), dict(fields)))


def list_of(element: Type) -> Type:
    """A list of such elements."""
    return Type("list", (element,))


def map_of(key: Type, value: Type) -> Type:
    """A map from such keys to such values."""
    return Type("map", (key, value))


def optional_of(element: Type) -> Type:
    """Such a value, or none."""
    return Type("optional", (element,))


def object_of(
    fields: Mapping[str, Type], *, required: frozenset[str] | None = None, closed: bool = True
) -> Type:
    """A map with these fields; all of them required unless told, and no others while closed."""
    return Type(
        "map",
        (STRING, DYN),
        dict(fields),
        frozenset(fields) if required is None else required,
        closed,
    )


def join(a: Type, b: Type) -> Type:
    """The one type that holds values of both; DYN where there is none better."""
    if a == b or b.name == "free":
        return a
    if a.name == "free":
        return b
    if a.name == b.name and a.fields is None and b.fields is None and not a.dynamic:
        return Type(a.name, tuple(join(x, y) for x, y in zip(a.params, b.params, strict=True)))
    return DYN


def comparable(a: Type, b: Type) -> bool:
    """`a == b` can be true: one type, numbers of any type, null and anything, or unknown."""
    if a.dynamic or b.dynamic or (a.numeric and b.numeric):
        return True
    if a.name == "null" or b.name == "null":
        return True
    if a.name != b.name:
        return False
    if a.name == "type":
        return True
    return all(comparable(x, y) for x, y in zip(a.params, b.params, strict=True))


def matches(param: Type, arg: Type, bound: dict[str, Type]) -> bool:
    """An argument fits a parameter; type variables (`A`, `B`) are bound on the way."""
    if param.name.isupper():
        known = bound.get(param.name, FREE)
        if not comparable(known, arg):
            return False
        bound[param.name] = join(known, arg)
        return True
    if arg.dynamic:
        for inner in param.params:
            matches(inner, FREE, bound)
        return True
    if param.dynamic:
        return True
    if param.name != arg.name:
        return False
    return all(matches(x, y, bound) for x, y in zip(param.params, arg.params, strict=True))


def substitute(result: Type, bound: Mapping[str, Type]) -> Type:
    """A result type with its type variables replaced by what they were bound to."""
    if result.name.isupper():
        return bound.get(result.name, DYN)
    if not result.params:
        return result
    return Type(result.name, tuple(substitute(param, bound) for param in result.params))


def settled(found: Type) -> Type:
    """The type with all that stayed free as DYN: what is told to others."""
    if found.name == "free":
        return DYN
    if not found.params or found.fields is not None:
        return found
    return Type(found.name, tuple(settled(param) for param in found.params))
