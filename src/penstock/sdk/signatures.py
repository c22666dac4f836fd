"""What an activity takes and gives, from its annotations, as JSON Schema: what the verifier knows of it (SPEC 3)."""

from __future__ import annotations

import functools
import inspect
import typing
from typing import Any, cast

import msgspec

from penstock.verify.verification import Signature

_ANYTHING: tuple[Any, ...] = (Any, object, inspect.Parameter.empty)


def signature_of(function: Any, *, without: str = "") -> Signature | None:
    """None where nothing can be said; `without` is a parameter that the worker gives itself."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    hints = _hints(function)
    parameters: dict[str, Any] = {}
    required: set[str] = set()
    open_ended = False
    for each in signature.parameters.values():
        if each.kind == each.VAR_KEYWORD:
            open_ended = True
        if each.kind not in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY) or each.name == without:
            continue
        schema = schema_of(hints.get(each.name, inspect.Parameter.empty))
        parameters[each.name] = True if schema is None else schema
        if each.default is each.empty:
            required.add(each.name)
    result = schema_of(hints.get("return", inspect.Parameter.empty))
    return Signature(parameters, frozenset(required), open_ended, result)


def schema_of(annotation: Any) -> Any:
    """The schema of a type, or None where anything may be."""
    if any(annotation is each for each in _ANYTHING):
        return None
    try:
        return msgspec.json.schema(annotation)
    except Exception:  # whatever a type of the application makes of being looked at
        return None


def _hints(function: Any) -> dict[str, Any]:
    while isinstance(function, functools.partial):
        function = cast("Any", function).func
    if not inspect.isroutine(function):
        function = type(function).__call__
    try:
        return typing.get_type_hints(function)
    except Exception:  # a name that is not there when it runs
        return {}
