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
import orjson

from penstock.errors import PenstockError
from penstock.model.payload import DEPTH_MAX, PAYLOAD_BYTES_MAX, encode_payload
from penstock.sdk.results import exact_type

_PLAIN = msgspec.json.Decoder().decode
_NOTHING_ELSE = (
    orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS
    | orjson.OPT_APPEND_NEWLINE
)  # fmt: skip
_SHALLOW = 2 * DEPTH_MAX
"""Bytes in which nothing can be nested too deeply."""
_ANYTHING: tuple[Any, ...] = (Any, object, inspect.Parameter.empty)


def encode_value(value: Any, *, limit: int = PAYLOAD_BYTES_MAX) -> bytes:
    """As `encode_payload` does, in a third of the time, most of which goes into looking at every part of the value. orjson
    looks as it writes: it takes no sets and no keys but text. What it takes all the same, or writes in another way, goes
    the long way: what is no number (for `null`), what is nested too deeply, large floats (`1e+17`)."""
    try:
        # What it gives takes 4 KiB however short it is: without its last byte it is copied.
        encoded = orjson.dumps(value, None, _NOTHING_ELSE)[:-1]
    except Exception:
        return encode_payload(value, limit=limit)
    size = len(encoded)
    if (
        size <= limit
        and encoded.rfind(b"null") < 0  # three times as quick as `in`
        and encoded.find(b"+") < 0
        and (size <= _SHALLOW or _shallow(encoded))
    ):
        return encoded
    return encode_payload(value, limit=limit)


def _shallow(encoded: bytes) -> bool:
    return encoded.count(b"[") + encoded.count(b"{") <= DEPTH_MAX


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
