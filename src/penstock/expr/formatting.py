"""`"%s has %d".format([...])`: the clauses of the strings extension.

What comes out is paid for piece by piece, before the pieces are put together.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.expr.library_times import duration_text, timestamp_text
from penstock.expr.values import Fault, Frame, double_of, int_text, kind_of, spend

_CLAUSE = re.compile(r"%(?:%|(?:\.([0-9]*))?(.))", re.DOTALL)
_PRECISION_MAX = 100


def format_text(frame: Frame, template: str, args: Sequence[Any]) -> str:
    """The template with each clause replaced by the argument in its turn."""
    spend(frame, len(template) // 10)
    out: list[str] = []
    last, used = 0, 0
    for match in _CLAUSE.finditer(template):
        out.append(template[last : match.start()])
        last = match.end()
        if match[0] == "%%":
            out.append("%")
            continue
        if match[2] not in _CLAUSES:
            raise Fault(f"format(): no such clause `{match[0]}`")
        if used >= len(args):
            raise Fault(f"format(): index {used} out of range of the arguments")
        precision = _precision(match[1], match[2])
        piece = _CLAUSES[match[2]](frame, args[used], precision)
        spend(frame, len(piece) // 10)
        out.append(piece)
        used += 1
    if template.endswith("%") and last < len(template):
        raise Fault("format(): a `%` at the end says nothing")
    out.append(template[last:])
    return "".join(out)


def _precision(digits: str | None, clause: str) -> int | None:
    if digits is None:
        return None
    if clause not in "ef" or len(digits) > 3 or int(digits or "0") > _PRECISION_MAX:
        raise Fault(f"format(): bad precision `%.{digits[:9]}{clause}`")
    return int(digits or "0")


def _refuse(clause: str, value: Any) -> Fault:
    return Fault(f"format(): %{clause} does not take {kind_of(value)}")


def _special(value: float) -> str | None:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return None


def _string(frame: Frame, value: Any, precision: int | None) -> str:
    spend(frame, 1)
    match kind_of(value):
        case "string":
            return value
        case "null":
            return "null"
        case "bool":
            return "true" if value else "false"
        case "int" | "uint":
            return int_text(value)
        case "double":
            return _special(value) or repr(value).removesuffix(".0")
        case "bytes":
            spend(frame, len(value) // 10)
            return value.decode(errors="replace")
        case "timestamp":
            return timestamp_text(value)
        case "duration":
            return duration_text(value)
        case "type":
            return value.name
        case "list":
            return "[" + ", ".join(_pieces(frame, value)) + "]"
        case "map":
            return _map(frame, value)
        case _:
            raise _refuse("s", value)


def _pieces(frame: Frame, values: Sequence[Any]) -> list[str]:
    out: list[str] = []
    for value in values:
        piece = _string(frame, value, None)
        spend(frame, len(piece) // 10)
        out.append(piece)
    return out


def _map(frame: Frame, value: Mapping[Any, Any]) -> str:
    keys = _pieces(frame, list(value))
    values = _pieces(frame, [value[key] for key in value])
    pairs = sorted(zip(keys, values, strict=True))
    return "{" + ", ".join(f"{key}: {piece}" for key, piece in pairs) + "}"


def _decimal(frame: Frame, value: Any, precision: int | None) -> str:
    match kind_of(value):
        case "int" | "uint":
            return int_text(value)
        case "double":
            return _special(value) or repr(value).removesuffix(".0")
        case _:
            raise _refuse("d", value)


def _fixed(frame: Frame, value: Any, precision: int | None) -> str:
    number = _number(value, "f")
    return _special(number) or f"{number:.{6 if precision is None else precision}f}"


def _scientific(frame: Frame, value: Any, precision: int | None) -> str:
    number = _number(value, "e")
    return _special(number) or f"{number:.{6 if precision is None else precision}e}"


def _number(value: Any, clause: str) -> float:
    if kind_of(value) in ("int", "uint", "double"):
        return double_of(value)
    raise _refuse(clause, value)


def _binary(frame: Frame, value: Any, precision: int | None) -> str:
    if kind_of(value) in ("int", "uint", "bool"):
        return f"{int(value):b}"
    raise _refuse("b", value)


def _octal(frame: Frame, value: Any, precision: int | None) -> str:
    if kind_of(value) in ("int", "uint"):
        return f"{int(value):o}"
    raise _refuse("o", value)


def _hex(frame: Frame, value: Any, precision: int | None) -> str:
    match kind_of(value):
        case "int" | "uint":
            return f"{int(value):x}"
        case "string":
            spend(frame, len(value) // 5)
            return value.encode("utf-8", "surrogatepass").hex()
        case "bytes":
            spend(frame, len(value) // 5)
            return value.hex()
        case _:
            raise _refuse("x", value)


def _hex_upper(frame: Frame, value: Any, precision: int | None) -> str:
    return _hex(frame, value, precision).upper()


_CLAUSES = {
    "s": _string,
    "d": _decimal,
    "f": _fixed,
    "e": _scientific,
    "b": _binary,
    "o": _octal,
    "x": _hex,
    "X": _hex_upper,
}
