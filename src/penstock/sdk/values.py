"""Values of workflow functions between Python and JSON, by their annotations: structs, dataclasses, pydantic models, enums,
dates, decimals."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from typing import Any, cast

import msgspec

from penstock.errors import PenstockError
from penstock.model.payload import encode_payload
from penstock.sdk.results import exact_type

_PLAIN = msgspec.json.Decoder().decode
encode_value = encode_payload
"""As JSON."""
_ANYTHING: tuple[Any, ...] = (Any, object, inspect.Parameter.empty)


class Unreadable(PenstockError):
    """A recorded value does not fit the type that the code has for it."""

    code = "value-unreadable"


@functools.cache
def decoder_of(annotation: Any) -> Callable[[bytes], Any]:
    """From JSON to what the annotation says; plain values where it says nothing that we can keep."""
    if any(annotation is each for each in _ANYTHING):
        return _PLAIN
    if isinstance(annotation, type) and hasattr(annotation, "model_validate_json"):
        return Reading(cast("Any", annotation).model_validate_json, annotation)
    try:
        return Reading(msgspec.json.Decoder(annotation, dec_hook=validated).decode, annotation)
    except Exception:  # a union that cannot be told apart, a type of which msgspec knows nothing
        return _PLAIN


def validated(kind: type, value: Any) -> Any:
    """What msgspec asks for a type that it does not know: a model of pydantic's knows itself."""
    validate = getattr(kind, "model_validate", None)
    if validate is None:
        raise NotImplementedError(f"{kind.__name__} cannot be read from JSON")
    return validate(value)


class Reading:
    """Reads what an annotation says."""

    __slots__ = ("annotation", "exact", "quick")

    def __init__(self, read: Callable[[bytes], Any], annotation: Any) -> None:
        self.quick, self.annotation = read, annotation
        """`quick` reads as it does, and whoever calls it asks `unreadable` for what it raised."""
        self.exact = exact_type(annotation)
        """A value of just that type, as plain JSON gives it, needs no reading."""

    def __call__(self, raw: bytes) -> Any:
        try:
            return self.quick(raw)
        except Exception as error:
            raise self.unreadable(error) from error

    def unreadable(self, error: Exception) -> Unreadable:
        name = getattr(self.annotation, "__name__", str(self.annotation))
        return Unreadable(f"a value cannot be read as {name}: {error}")


def hints_of(function: Any) -> dict[str, Any]:
    """Annotations by name, as far as they can be resolved."""
    while isinstance(function, functools.partial):
        function = cast("Any", function).func
    if not inspect.isroutine(function):
        function = type(function).__call__
    try:
        return typing.get_type_hints(function, include_extras=True)
    except Exception:  # a name for the type checker only
        return {}


@functools.lru_cache(maxsize=4096)
def result_decoder(function: Any) -> Callable[[bytes], Any]:
    """From the JSON of its result to what the function is annotated to return."""
    return decoder_of_hint(hints_of(function).get("return", Any))


def decoder_of_hint(annotation: Any) -> Callable[[bytes], Any]:
    try:
        return decoder_of(annotation)
    except TypeError:  # unhashable
        return decoder_of.__wrapped__(annotation)
