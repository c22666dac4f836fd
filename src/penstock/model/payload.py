"""Payloads: what tasks take and give, as JSON.

A value is encoded once, by one encoder, and what JSON would bend without a word is refused with its place: NaN and
infinities (JSON has none), keys that are not text (they would come back as text), nesting that could not be read
back. Bytes become base64 text, sets become lists, dates and decimals text.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from enum import Enum
from math import isfinite
from typing import Any, NoReturn

import msgspec
from msgspec import Struct

from penstock.errors import PayloadInvalid, PayloadTooLarge

PAYLOAD_BYTES_MAX = 1024 * 1024
DEPTH_MAX = 200
"""Containers in containers; far below what any decoder refuses."""
TEXT_CHARACTERS_MAX = 80

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_ATOMS = frozenset({str, int, bool, type(None)})


def encode_payload(value: Any, *, limit: int = PAYLOAD_BYTES_MAX) -> bytes:
    """The value as JSON, or PayloadInvalid with the place, or PayloadTooLarge with the size."""
    try:
        encoded = _encode(value)
    except Exception as error:
        _locate(value, error)
    if len(encoded) > limit:
        raise PayloadTooLarge(
            f"the value takes {len(encoded):,} bytes as JSON; at most {limit:,} are kept",
            hint="keep large values elsewhere and pass a reference to them",
        )
    if type(value) not in _ATOMS and not _plain(value, b"null" in encoded, encoded):
        _inspect(value, "$", [])
    return encoded


def decode_payload(encoded: bytes) -> Any:
    """What `encode_payload` was given, as plain JSON values."""
    try:
        return _decode(encoded)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise PayloadInvalid(f"not JSON: {error}") from error


def _plain(value: Any, nulls: bool, encoded: bytes) -> bool:
    """Whether the value is certainly harmless: the quick answer for what is nearly all there is."""
    kind = type(value)
    if kind is dict:
        for key, each in value.items():
            if type(key) is not str:
                return False
            if type(each) not in _ATOMS and not (type(each) is float and not nulls):
                break
        else:
            return True
    # Equal after a round trip in C: no key was bent, no NaN became null, and no deep nesting is possible.
    if encoded.count(b"[") + encoded.count(b"{") > DEPTH_MAX:
        return False
    try:
        return bool(_decode(encoded) == value)
    except Exception:
        return False


def _inspect(value: Any, path: str, above: list[int]) -> None:
    """Raise PayloadInvalid at the first place that JSON would bend."""
    if type(value) in _ATOMS:
        return
    if isinstance(value, float):
        if not isfinite(value):
            raise PayloadInvalid(f"{path} is {value!r}, which JSON cannot hold")
        return
    if isinstance(value, Enum):
        _inspect(value.value, path, above)
        return
    children = _children(value, path)
    if children is None:
        return
    if id(value) in above:
        raise PayloadInvalid(f"{path} contains itself, so it has no end as JSON")
    if len(above) >= DEPTH_MAX:
        raise PayloadInvalid(
            f"the value is nested deeper than {DEPTH_MAX} levels at {path[:TEXT_CHARACTERS_MAX]}…"
        )
    above.append(id(value))
    for place, child in children:
        _inspect(child, place, above)
    above.pop()


def _children(value: Any, path: str) -> Iterable[tuple[str, Any]] | None:
    """What a container holds, each with its path; None for what is no container."""
    if isinstance(value, dict):
        return _items(value, path)  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(value, (list, tuple, set, frozenset)):
        elements: Iterable[Any] = value  # pyright: ignore[reportUnknownVariableType]
        return ((f"{path}[{index}]", each) for index, each in enumerate(elements))
    if isinstance(value, Struct):
        return ((f"{path}.{name}", getattr(value, name)) for name in value.__struct_fields__)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return (
            (f"{path}.{f.name}", getattr(value, f.name, None)) for f in dataclasses.fields(value)
        )
    return None


def _items(value: dict[Any, Any], path: str) -> Iterable[tuple[str, Any]]:
    for key, each in value.items():
        if not isinstance(key, str):
            raise PayloadInvalid(
                f"{path} has the key {_short(key)} of type {type(key).__name__}; keys must be text",
            )
        yield (f"{path}.{key}" if key.isidentifier() else f"{path}[{_short(key)}]"), each


def _locate(value: Any, error: Exception) -> NoReturn:
    """The encoder failed: find where."""
    _inspect(value, "$", [])
    culprit, path = value, "$"
    while True:
        children = _children(culprit, path)
        for place, child in children or ():
            try:
                _encode(child)
            except Exception as inner:
                culprit, path, error = child, place, inner
                break
        else:
            break
    raise PayloadInvalid(f"{path} cannot be kept as JSON: {_reason(culprit, error)}") from error


def _reason(culprit: Any, error: Exception) -> str:
    if isinstance(error, TypeError):
        return f"{_short(culprit)} is of type {type(culprit).__qualname__}"
    if isinstance(error, OverflowError):
        return "the whole number needs more than 64 bits"
    if isinstance(error, UnicodeError):
        return "the text holds half of a surrogate pair"
    return f"{type(error).__name__}: {error}"


def _short(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:
        text = f"a {type(value).__qualname__}"
    return text if len(text) <= TEXT_CHARACTERS_MAX else text[:TEXT_CHARACTERS_MAX] + "…"
