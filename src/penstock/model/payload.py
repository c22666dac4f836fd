"""Payloads: what tasks take and give, as JSON.

A value is encoded once, by one encoder, and what JSON would bend without a word is refused with its place: NaN and
infinities (JSON has none), keys that are not text (they would come back as text), nesting that could not be read
back, ready-made JSON (`msgspec.Raw`) that is none. Bytes become base64 text, sets become lists, dates and decimals text, models of pydantic's objects. The list of a set is
in the order of its JSON: that of the set is another in each process.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable
from enum import Enum
from math import isfinite
from typing import Any, NoReturn, cast

import msgspec
from msgspec import Raw, Struct

from penstock.errors import PayloadInvalid, PayloadTooLarge, shown

INLINE_PAYLOAD_BYTES_MAX = 1024 * 1024
"""What stands in its event; larger ones are kept beside it (SPEC 4.10)."""
PAYLOAD_BYTES_MAX = 64 * 1024 * 1024
DEPTH_MAX = 200
"""Containers in containers; far below what any decoder refuses."""
TEXT_CHARACTERS_MAX = 80
PLACE_STEPS_MAX = 20


def _dumped(value: Any) -> Any:
    """A model of pydantic's, which knows itself what it is as JSON; asked for only what the encoder does not know."""
    dump = getattr(value, "model_dump", None)
    if dump is None or isinstance(value, type):
        raise TypeError(f"Encoding objects of type {type(value).__name__} is unsupported")
    return _as_in(value, dump(mode="json"))


def _as_in(value: Any, dumped: Any) -> Any:
    """What was made of a model, or of a part of it, with the lists of its sets in one order."""
    kind = cast("type[Any]", type(value))
    if kind in _ATOMS or kind is float:
        return dumped
    if isinstance(dumped, list) and issubclass(kind, set | frozenset | list | tuple):
        # A set is walked in the same order twice. Its own serializer may have made something else of it.
        items = cast("list[Any]", dumped)
        made = [_as_in(part, item) for part, item in zip(value, items, strict=False)]
        if len(made) != len(items):
            return items
        return _in_order(made) if issubclass(kind, set | frozenset) else made
    if getattr(kind, "__pydantic_root_model__", False):
        return _as_in(value.root, dumped)
    if not isinstance(dumped, dict):
        return cast("Any", dumped)
    known = cast("dict[str, Any]", dumped)
    fields: dict[str, Any] = getattr(value, "__dict__", {})
    if issubclass(kind, dict) and len(value) == len(known):
        fields = dict(zip(known, value.values(), strict=True))  # its keys may be no text
    for name, each in fields.items():
        if name in known:
            known[name] = _as_in(each, known[name])
    return known


encode_json = msgspec.json.Encoder(enc_hook=_dumped).encode
"""Whatever there is in it: `looked_at` is to follow."""
_decode = msgspec.json.Decoder().decode
_ATOMS = frozenset({str, int, bool, type(None)})
_NUMBERS = frozenset({int, bool, float})
"""Sets of these have the same order everywhere, and keep it."""


def encode_payload(value: Any, *, limit: int = PAYLOAD_BYTES_MAX) -> bytes:
    """The value as JSON, or PayloadInvalid with the place, or PayloadTooLarge with the size."""
    try:
        encoded = encode_json(value)
    except Exception as error:
        locate(value, error)
    return looked_at(value, encoded, limit)


def looked_at(value: Any, encoded: bytes, limit: int) -> bytes:
    """What the encoder made of a value, unless there is something in that which JSON would bend."""
    if len(encoded) > limit:
        raise PayloadTooLarge(
            f"the value takes {len(encoded):,} bytes as JSON; at most {limit:,} are kept",
            hint="keep large values elsewhere and pass a reference to them",
        )
    if type(value) not in _ATOMS and not _plain(value, DEPTH_MAX - 1) and _inspect(value, [], []):
        return encode_json(_ordered(value))
    return encoded


def decode_payload(encoded: bytes) -> Any:
    """What `encode_payload` was given, as plain JSON values."""
    try:
        return _decode(encoded)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise PayloadInvalid(f"not JSON: {error}") from error


def _plain(value: Any, levels: int) -> bool:
    """Whether the value is certainly harmless: the quick answer for nearly all there is."""
    kind = type(value)  # pyright: ignore[reportUnknownVariableType]  (of Any)
    if kind is dict:
        for key in value:
            if type(key) is not str:
                return False
        children: Iterable[Any] = value.values()
    elif kind is list or kind is tuple:
        children = value
    else:
        return False
    for each in children:
        kind = type(each)  # pyright: ignore[reportUnknownVariableType]  (of Any)
        if kind in _ATOMS:
            continue
        if kind is float:
            if not isfinite(each):
                return False
        elif not levels or not _plain(each, levels - 1):
            return False
    return True


def _inspect(value: Any, path: list[Any], above: list[int]) -> bool:
    """Raise PayloadInvalid at the first place that JSON would bend; whether there is a set in it."""
    if type(value) in _ATOMS:
        return False
    if isinstance(value, float):
        if not isfinite(value):
            raise PayloadInvalid(f"{_place(path)} is {value!r}, which JSON cannot hold")
        return False
    if isinstance(value, Enum):
        _inspect(value.value, path, above)
        return False
    if isinstance(value, Raw):
        try:
            _decode(value)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise PayloadInvalid(f"{_place(path)} is not JSON: {error}") from None
        return False
    children = _children(value)
    if children is None:
        return False
    if id(value) in above:
        raise PayloadInvalid(f"{_place(path)} contains itself, so it has no end as JSON")
    if len(above) >= DEPTH_MAX:
        raise PayloadInvalid(f"{_place(path)} is nested deeper than {DEPTH_MAX} levels")
    above.append(id(value))
    found = isinstance(value, set | frozenset)
    for key, child in children:
        if isinstance(value, dict) and not isinstance(key, str):
            name = type(key).__name__
            raise PayloadInvalid(
                f"{_place(path)} has the key {shown(key, TEXT_CHARACTERS_MAX)} of type {name}; keys must be text"
            )
        path.append(key)
        if _inspect(child, path, above):
            found = True
        path.pop()
    above.pop()
    return found


def _ordered(value: Any) -> Any:
    """The value with lists in the place of its sets, so that it is the same JSON in every process."""
    if isinstance(value, dict):
        return {key: _ordered(each) for key, each in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_ordered(each) for each in cast("Iterable[Any]", value)]
    if isinstance(value, set | frozenset):
        found = cast("set[Any]", value)
        if all(type(each) in _NUMBERS for each in found):
            return found
        return _in_order(_ordered(each) for each in found)
    if isinstance(value, Struct):
        put: Any = msgspec.structs.force_setattr
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        put = object.__setattr__
    else:
        return value
    changed = {
        name: each for name, old in _children(value) or () if (each := _ordered(old)) is not old
    }
    if not changed:
        return value
    copied = copy.copy(value)
    for name, each in changed.items():
        put(copied, name, each)
    return copied


def _in_order(items: Iterable[Any]) -> list[Any]:
    return sorted(items, key=encode_json)


def _children(value: Any) -> Iterable[tuple[Any, Any]] | None:
    """What a container holds, each by key, index or name; None for what is no container."""
    if isinstance(value, dict):
        return cast("dict[Any, Any]", value).items()
    if isinstance(value, list | tuple | set | frozenset):
        return enumerate(cast("Iterable[Any]", value))
    if isinstance(value, Struct):
        return ((name, getattr(value, name)) for name in value.__struct_fields__)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return ((each.name, getattr(value, each.name, None)) for each in dataclasses.fields(value))
    if hasattr(value, "model_dump") and not isinstance(value, type):
        dumped = _dumped(value)
        named = isinstance(dumped, dict)
        return cast("dict[Any, Any]", dumped).items() if named else [("root", dumped)]
    return None


def locate(value: Any, error: Exception) -> NoReturn:
    """The encoder failed: find where."""
    _inspect(value, [], [])
    culprit, path = value, list[Any]()
    searching = True
    while searching:
        searching = False
        for key, child in _children(culprit) or ():
            try:
                encode_json(child)
            except Exception as inner:
                culprit, error, searching = child, inner, True
                path.append(key)
                break
    raise PayloadInvalid(
        f"{_place(path)} cannot be kept as JSON: {_reason(culprit, error)}"
    ) from None


def _place(path: list[Any]) -> str:
    """`$.order.lines[3]`, shortened in its middle."""
    parts = [f"[{each}]" if isinstance(each, int) else _step(each) for each in path]
    if len(parts) > PLACE_STEPS_MAX:
        half = PLACE_STEPS_MAX // 2
        parts = [*parts[:half], "…", *parts[-half:]]
    return "$" + "".join(parts)


def _step(key: str) -> str:
    return (
        f".{key}"
        if key.isidentifier() and len(key) <= TEXT_CHARACTERS_MAX
        else f"[{shown(key, TEXT_CHARACTERS_MAX)}]"
    )


def _reason(culprit: Any, error: Exception) -> str:
    if isinstance(error, UnicodeError):
        return "the text holds half of a surrogate pair"
    return f"{shown(culprit, TEXT_CHARACTERS_MAX)} is of type {type(culprit).__qualname__}"
