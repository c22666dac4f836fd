"""Secrets are resolved where the activity runs, and stay there: what leaves it has `***` in their place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MASK = "***"


def concealed(text: str, secrets: Mapping[str, Any]) -> str:
    """The text without the secrets' values; the longest first, as one may be the beginning of another."""
    for each in sorted({str(value) for value in secrets.values()}, key=len, reverse=True):
        if each:
            text = text.replace(each, MASK)
    return text
