"""Retry delays (SPEC 4.3).

Pure: a delay depends on policy, attempt and run alone, so that deciding twice gives the same due time.
Nothing here sleeps; `engine/timers.py` does.
"""

from __future__ import annotations

from zlib import crc32


def delay(
    attempt: int, *, first: float, factor: float, maximum: float, jitter: float, seed: str
) -> float:
    """Seconds before the next attempt, after `attempt` failed ones; spread by `jitter` either way."""
    base = min(maximum, first * factor ** min(attempt - 1, 64))
    if jitter <= 0:
        return base
    draw = crc32(seed.encode()) / 0xFFFFFFFF  # 0..1 from run, key and attempt
    return max(0.0, min(maximum, base * (1 + jitter * (2 * draw - 1))))


def lasting(code: str, type_name: str, never: tuple[str, ...]) -> bool:
    """The policy says that this error is not retried, by its code or its exception's name."""
    return code in never or type_name in never
