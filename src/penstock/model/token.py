"""The token with which an attempt is completed from outside: it names the attempt, and none before or after it."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode

import msgspec
from msgspec import Struct

from penstock.errors import Rejected


class Token(Struct, frozen=True, array_like=True):
    run_id: str
    generation: int
    key: str
    attempt: int


def token_text(token: Token) -> str:
    return urlsafe_b64encode(msgspec.json.encode(token)).decode().rstrip("=")


def token_of(text: str) -> Token:
    """Rejected for what is no token."""
    try:
        raw = urlsafe_b64decode(text.encode() + b"=" * (-len(text) % 4))
        return msgspec.json.decode(raw, type=Token)
    except (ValueError, AttributeError, msgspec.MsgspecError):
        raise Rejected(
            "token-invalid",
            f"{text!r:.60} is not the token of an attempt",
            hint="an activity gets it by `penstock.current().token`",
        ) from None
