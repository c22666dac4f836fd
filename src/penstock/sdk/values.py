"""Values of workflow functions between Python and JSON, by their annotations: structs, dataclasses, pydantic models, enums,
dates, decimals."""

from __future__ import annotations

import functools
import inspect
import sys
import typing
from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec

from penstock.errors import PenstockError
from penstock.model.payload import PAYLOAD_BYTES_MAX, encode_json, locate, looked_at
from penstock.sdk.results import exact_type

_PLAIN = msgspec.json.Decoder().decode
LEVELS_QUICK = 6
"""Containers in containers that are looked at by the schema; what has more is looked at in Python."""
_ANYTHING: tuple[Any, ...] = (Any, object, inspect.Parameter.empty)


def _harmless(value: Any) -> bool:
    """Looks at every part of a value, as a schema that only says what is in what: anything that is not of JSON's own types,
    and keys that are no text, are refused by whoever checks the schema."""
    global _is_harmless
    from jsonschema_rs import Draft202012Validator  # late: `penstock --help` comes by here, too

    schema: dict[str, Any] = {"not": {"type": ["array", "object"]}}
    for _ in range(LEVELS_QUICK):
        schema = {"items": schema, "additionalProperties": schema}
    _is_harmless = cast("Any", Draft202012Validator)(schema).is_valid
    return _is_harmless(value)


_is_harmless: Callable[[Any], bool] = _harmless


def encode_value(value: Any, *, limit: int = PAYLOAD_BYTES_MAX) -> bytes:
    """As `encode_payload` does, in half the time: most goes into looking at every part of the value, which is done by a
    compiled schema here. What is no number passes it, and is `null` then; that is looked at in Python, as all is that does
    not pass."""
    try:
        encoded = encode_json(value)
    except Exception as error:
        locate(value, error)
    if encoded.rfind(b"null") < 0 and len(encoded) <= limit:  # three times as quick as `in`
        try:
            if _is_harmless(value):
                return encoded
        except Exception:  # of a type that JSON has not
            pass
    return looked_at(value, encoded, limit)


class Unreadable(PenstockError):
    """A recorded value does not fit the type that the code has for it."""

    code = "value-unreadable"


@functools.cache
def decoder_of(annotation: Any) -> Callable[[bytes], Any]:
    """From JSON to what the annotation says; plain values where it says nothing that we can keep."""
    if any(annotation is each for each in _ANYTHING):
        return _PLAIN
    if is_model(annotation):
        return Reading(_by_either_name(annotation.model_validate_json), annotation)
    try:
        return Reading(msgspec.json.Decoder(annotation, dec_hook=validated).decode, annotation)
    except Exception:  # a union that cannot be told apart, a type of which msgspec knows nothing
        read = of_models(annotation)
        return _PLAIN if read is None else Reading(read, annotation)


def validated(kind: type, value: Any) -> Any:
    """What msgspec asks for a type that it does not know: a model of pydantic's knows itself, by what JSON has."""
    if not is_model(kind):
        raise NotImplementedError(f"{kind.__name__} cannot be read from JSON")
    return cast("Reading", decoder_of(kind)).quick(encode_value(value))


def is_model(kind: Any) -> bool:
    """A class of pydantic's."""
    return isinstance(kind, type) and hasattr(kind, "model_validate_json")


def _by_either_name(validate: Callable[..., Any]) -> Callable[[bytes], Any]:
    """Fields are written down by their names; others send them by their aliases, too."""
    if "by_name" not in inspect.signature(validate).parameters:  # of an older pydantic
        return validate
    return functools.partial(validate, by_alias=True, by_name=True)


@functools.cache
def of_models(annotation: Any) -> Callable[[bytes], Any] | None:
    """Reads what msgspec cannot tell apart, as a union of models: pydantic can. None of what has no models in it, and
    Unreadable where there are some that pydantic cannot tell from the rest either."""
    if not has_models(annotation):
        return None
    adapter = sys.modules["pydantic"].TypeAdapter
    try:
        return _by_either_name(adapter(annotation).validate_json)
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise Unreadable(
            f"`{inspect.formatannotation(annotation)}` cannot be read from JSON: {reason}",
            hint="in a union with models of pydantic's everything must be known to pydantic: dataclasses and plain types are, structs of msgspec's are not",
        ) from None


def has_models(annotation: Any, seen: frozenset[Any] = frozenset()) -> bool:
    """Whether models of pydantic's are among its parts, or the fields of these."""
    if is_model(annotation):
        return True
    if any(has_models(each, seen) for each in typing.get_args(annotation)):
        return True
    kind = typing.get_origin(annotation) or annotation
    if not isinstance(kind, type) or kind in seen or not hasattr(kind, "__annotations__"):
        return False
    return any(has_models(each, seen | {kind}) for each in hints_of_class(kind).values())


def hints_of_class(kind: type) -> dict[str, Any]:
    try:
        return typing.get_type_hints(kind, include_extras=True)
    except Exception:  # a name for the type checker only
        return {}


def unreadable(hints: Mapping[str, Any]) -> Unreadable | None:
    """The first of the annotations that nothing can read from JSON though it has models in it: they would come as plain
    objects."""
    for annotation in hints.values():
        try:
            decoder_of_hint(annotation)
        except Unreadable as error:
            return error
    return None


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
