"""How long a closed run is kept (SPEC 2.1 `retention`, 6.3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FOREVER = "forever"
FIELDS = ("keep", "completed", "failed", "cancelled", "terminated", "timedOut", "continued")
"""`keep` is for every status that is not named itself."""


def keep_seconds(rules: Mapping[str, Any], status: str, default: float | None) -> float | None:
    """How long after its end a run of that status is kept; None: for ever."""
    first, *rest = status.lower().split("_")
    name = first + "".join(word.title() for word in rest)
    kept = rules.get(name, rules.get("keep", default))
    return float(kept) if isinstance(kept, int | float) else None


def shortest(rules: Mapping[str, Any], default: float | None) -> float | None:
    """No run of these rules is deleted before it is this old; None: none is ever deleted."""
    kept = [rules[name] for name in FIELDS if name in rules]
    found = [float(each) for each in kept if isinstance(each, int | float)]
    if "keep" not in rules and default is not None:
        found.append(default)
    return min(found, default=None)
