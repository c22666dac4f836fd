"""Times and durations as people say them."""

from __future__ import annotations

from datetime import datetime

from penstock.ports.arguments import SECONDS_MAX

DAY = 86_400


def duration(seconds: float) -> str:
    """`240ms`, `1.2s`, `48s`, `3m12s`, `2h05m`, `4d3h`; at most six columns for anything under a hundred days."""
    seconds = max(0.0, seconds)
    if seconds < 0.9995:
        return f"{round(seconds * 1000)}ms"
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    whole = int(seconds + 0.5)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < DAY:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // DAY}d{whole % DAY // 3600}h"


def span(seconds: float) -> str:
    """As it is written in a definition, and exactly: `2d`, `90s`, `1.5s`."""
    for size, unit in ((DAY, "d"), (3600, "h"), (60, "m")):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:.0f}{unit}"
    return f"{round(seconds * 1000):g}ms" if 0 < seconds < 1 else f"{seconds:g}s"


def pace(done: int, seconds: float) -> str:
    """`8,214/s`, `3.2/s`; `-` before there is any."""
    if done <= 0 or seconds <= 0:
        return "-"
    rate = done / seconds
    return f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.2g}/s"


def left(done: int, rest: int, seconds: float) -> str:
    """How long the rest takes, if it goes on like that; `-` where nothing tells."""
    return "-" if done <= 0 or rest <= 0 else duration(rest * max(0.0, seconds) / done)


def until(when: float, now: float) -> str:
    """`in 3s`, or `due` if that is past; coarse, as it is shown while it runs down."""
    left = when - now
    if left <= 0:
        return "due"
    return f"in {_coarse(left)}"


def due_words(message: str, when: float, now: float) -> str:
    """What to add to a message that something is to come; one that says `is due` already is not told so twice."""
    return "" if when <= now and " is due" in message else until(when, now)


def ago(when: float, now: float) -> str:
    """`just now`, `12s ago`, `3h ago`; in the future `in 3h`."""
    past = now - when
    if past < -1:
        return f"in {_coarse(-past)}"
    return "just now" if past < 1 else f"{_coarse(past)} ago"


def _coarse(seconds: float) -> str:
    """In one unit, rounded, at most three columns for anything under a hundred days."""
    if seconds < 99.5:
        return f"{max(1, round(seconds))}s"
    if seconds < 99.5 * 60:
        return f"{round(seconds / 60)}m"
    return f"{round(seconds / 3600)}h" if seconds < 2 * DAY - 1800 else f"{round(seconds / DAY)}d"


def local(when: float, now: float | None = None) -> str:
    """The time by the reader's clock; the date only if it is another day's."""
    if when > SECONDS_MAX:  # a signal may be waited for a million years
        return "in the far future"
    moment = datetime.fromtimestamp(when).astimezone()
    if now is not None and datetime.fromtimestamp(now).astimezone().date() == moment.date():
        return moment.strftime("%H:%M:%S")
    return moment.strftime("%Y-%m-%d %H:%M:%S")
