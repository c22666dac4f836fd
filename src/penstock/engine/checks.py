"""What is checked of every value that comes from outside, before it becomes part of a command."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

from penstock.core.values import decode
from penstock.errors import Rejected
from penstock.model.payload import INLINE_PAYLOAD_BYTES_MAX, encode_payload

ID_CHARACTERS_MAX = 512


def checked_id(id: str) -> str:
    if not id or len(id) > ID_CHARACTERS_MAX or not id.isprintable():
        raise Rejected(
            "id-invalid", f"an id has 1 to {ID_CHARACTERS_MAX} printable characters, not {id!r:.80}"
        )
    return id


def kept(values: Mapping[str, Any] | None) -> dict[str, Any]:
    """Metadata and attributes as they will be read back; PayloadInvalid for what cannot be kept."""
    return decode(encode_payload(dict(values), limit=INLINE_PAYLOAD_BYTES_MAX)) if values else {}


def check_texts(**texts: Any) -> None:
    """What goes into an event as text must be one that can be kept: one bad word must not cost the others a commit."""
    for name, text in texts.items():
        if text is None or (type(text) is str and text.isascii()):
            continue
        try:
            text.encode()
            if isinstance(text, str):
                continue
        except (AttributeError, UnicodeEncodeError):
            pass
        raise Rejected("text-invalid", f"`{name}` is {text!r:.80}, not a text that can be kept")


def check_times(**seconds: float | None) -> None:
    for name, value in seconds.items():
        if value is not None and not isfinite(value):
            raise Rejected("time-invalid", f"`{name}` is {value}, not a time")
