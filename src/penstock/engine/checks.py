"""What is checked of every value that comes from outside, before it becomes part of a command."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from math import isfinite
from typing import Any

from penstock.core.values import decode
from penstock.errors import Rejected, shown
from penstock.model.payload import INLINE_PAYLOAD_BYTES_MAX, encode_payload

ID_CHARACTERS_MAX = 512


OPTIONAL = frozenset({"by", "created_by", "priority", "task", "to", "version", "zone"})
"""Texts that may be left out; all others are fields that must be text, empty if need be."""


def checked_id(id: Any) -> str:
    if (
        not isinstance(id, str)
        or not id
        or len(id) > ID_CHARACTERS_MAX
        or not id.isprintable()  # which half of a surrogate pair is not
    ):
        raise Rejected(
            "id-invalid",
            f"an id has 1 to {ID_CHARACTERS_MAX} printable characters, not {shown(id, 80)}",
            hint="give a text such as order-7",
        )
    return id


def kept(values: Mapping[str, Any] | None) -> dict[str, Any]:
    """Metadata and attributes as they will be read back; PayloadInvalid for what cannot be kept."""
    if values is None or values == {}:
        return {}
    if not isinstance(values, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]  (from outside)
        raise Rejected(
            "payload-invalid",
            f"{shown(values, 80)} is not a mapping of names to values",
            hint="give an object such as {'customer': 7}",
        )
    return decode(encode_payload(dict(values), limit=INLINE_PAYLOAD_BYTES_MAX))


def check_texts(**texts: Any) -> None:
    """What goes into an event as text must be one that can be read back: else the whole run could not be."""
    for name, text in texts.items():
        if type(text) is str and text.isascii() and "\0" not in text:
            continue
        if text is None and name in OPTIONAL:
            continue
        if isinstance(text, str) and "\0" not in text:
            with suppress(UnicodeEncodeError):
                text.encode()
                continue
        raise Rejected(
            "text-invalid",
            f"`{name}` is {shown(text, 80)}, not a text that can be kept",
            hint="give a text that can be written as UTF-8",
        )


def check_times(**seconds: Any) -> None:
    for name, value in seconds.items():
        if value is None:
            continue
        try:
            good = type(value) in (int, float) and isfinite(value)
        except OverflowError:
            good = False
        if not good:
            raise Rejected(
                "time-invalid",
                f"`{name}` is {shown(value, 80)}, not a time in seconds",
                hint="give a finite number",
            )


def check_count(name: str, value: Any, least: int, most: int) -> None:
    if type(value) is not int or not least <= value <= most:
        raise Rejected(
            "wrong-type",
            f"`{name}` is {shown(value)}",
            hint=f"give a whole number from {least:,} to {most:,}",
        )
