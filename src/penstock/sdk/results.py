"""What an activity gave, held against what its annotation says: the verifier relies on that (SPEC 3.6).

The annotation is looked at once, at the first call. A result whose type says it all (`-> str` that gives a str) costs one
comparison; others are read back, as JSON, as what they are annotated with.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from typing import Any, cast

import msgspec

_EXACT: tuple[Any, ...] = (str, int, float, bool, type(None), dict, list)
_ANYTHING: tuple[Any, ...] = (Any, object)


class Result:
    """What a function gives; `exact` is the type of which every value fits."""

    __slots__ = ("_decode", "_shown", "checks", "exact")

    def __init__(self, function: Any) -> None:
        annotation = _annotation(function)
        self.exact: Any = None
        self._decode: Callable[[bytes], Any] | None = None
        self._shown = inspect.formatannotation(annotation)
        if not any(annotation is each for each in (*_ANYTHING, inspect.Parameter.empty)):
            self._decode = _decoder(annotation)
            self.exact = exact_type(annotation)
        self.checks = self._decode is not None

    def problem(self, encoded: bytes) -> str | None:
        """Why this does not fit, naming the annotation."""
        assert self._decode is not None
        try:
            self._decode(encoded)
        except msgspec.ValidationError as error:
            return f"does not fit its annotation `{self._shown}`: {error}"
        except Exception:  # what a type of the application makes of being made
            return None
        return None


def _annotation(function: Any) -> Any:
    while isinstance(function, functools.partial):
        function = cast("functools.partial[Any]", function).func
    target: Any = function if inspect.isroutine(function) else type(function).__call__
    try:
        return typing.get_type_hints(target).get("return", inspect.Parameter.empty)
    except Exception:  # a name that is not there when it runs
        return inspect.Parameter.empty


def _decoder(annotation: Any) -> Callable[[bytes], Any] | None:
    """None where no schema can be made of it: then the verifier knows nothing either."""
    try:
        msgspec.json.schema(annotation)
        return msgspec.json.Decoder(annotation).decode
    except Exception:  # whatever a type of the application makes of being looked at
        return None


def exact_type(annotation: Any) -> Any:
    """The type of which every JSON value fits the annotation, or None."""
    if annotation in _EXACT:
        return annotation
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is dict and arguments == (str, Any):
        return dict
    return list if origin is list and arguments == (Any,) else None
