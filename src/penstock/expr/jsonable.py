"""CEL values as JSON values, and as the text a template shows."""

from __future__ import annotations

import base64
import math
from typing import Any

from penstock.expr.library_times import duration_text, timestamp_text
from penstock.expr.values import INT_MAX, INT_MIN, Exhausted, Fault, kind_of


def to_json(value: Any, *, nodes_max: int) -> Any:
    """The value with nothing in it but JSON; refused when it would have more parts than the limit."""
    return _convert(value, [nodes_max])


def _convert(value: Any, left: list[int]) -> Any:
    # One structure may stand in a list many times: counted each time, or a small one grows without end.
    left[0] -= 1
    if left[0] < 0:
        raise Exhausted
    match kind_of(value):
        case "null" | "bool":
            return value
        case "string":
            left[0] -= len(value) // 100
            return value
        case "int":
            if not INT_MIN <= value <= INT_MAX:
                raise Fault("this number does not fit 64 bits")
            return value
        case "uint":
            return int(value)
        case "double":
            if math.isfinite(value):
                return value
            raise Fault(f"{value} is no JSON number")
        case "bytes":
            left[0] -= len(value) // 100
            return base64.b64encode(value).decode()
        case "timestamp":
            return timestamp_text(value)
        case "duration":
            return duration_text(value)
        case "list":
            return [_convert(item, left) for item in value]
        case "map":
            return _convert_map(value, left)
        case "optional":
            return _convert(value.value, left) if value.present else None
        case kind:
            raise Fault(f"a {kind} is no JSON value")


def _convert_map(value: Any, left: list[int]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key in value:
        text = key if isinstance(key, str) else key_text(key)
        if text in out:
            raise Fault(f"two keys of a map are both {text!r} in JSON")
        out[text] = _convert(value[key], left)
    return out


def key_text(key: Any) -> str:
    """A map key as the text that JSON wants."""
    return ("true" if key else "false") if key.__class__ is bool else str(int(key))
