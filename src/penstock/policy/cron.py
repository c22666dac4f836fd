"""Cron expressions: what they mean, and why one is refused (SPEC 4.6).

cronsim reads the fields and walks plain wall-clock readings; what a reading means in a zone is decided here, for the form
with seconds too. A cron whose minute and hour are given fires at that reading: one that the clock leaves out fires at the
change, one that it shows twice fires at the first. Any other (`*` in minute or hour) fires at every moment whose reading
fits, as cron does.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from penstock.policy.zones import moment_of, next_change, offset, reading

ALIASES = {
    "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}  # fmt: skip
_FIELDS = ("second", "minute", "hour", "day-of-month", "month", "day-of-week")
_RANGES = {
    "second": "0 to 59", "minute": "0 to 59", "hour": "0 to 23", "day-of-month": "1 to 31, L or LW",
    "month": "1 to 12 or JAN to DEC", "day-of-week": "0 to 7 or SUN to SAT, MON#2, 5L",
}  # fmt: skip
_BEGIN = datetime(2024, 1, 1)  # noqa: DTZ001  (a wall-clock reading)
_SECOND = timedelta(seconds=1)


class Misfit(ValueError):
    """A part of a timing that means nothing: its field, the code and what to do."""

    def __init__(self, field: tuple[str | int, ...], code: str, message: str, hint: str) -> None:
        super().__init__(message)
        self.field, self.code, self.message, self.hint = field, code, message, hint


def spelled(text: str) -> str:
    """An expression with its alias replaced."""
    return ALIASES.get(text.strip().lower(), text.strip())


def check(text: str, field: tuple[str | int, ...]) -> None:
    """Misfit if it cannot be read or never fires."""
    cron = spelled(text)
    if cron.startswith("@"):
        hint = f"there are {', '.join(ALIASES)}"
        if cron.lower() == "@reboot":
            hint = "start the run where the application begins"
        raise Misfit(field, "cron-invalid", f"`{text}` is no time that cron knows", hint)
    parts = cron.upper().split()
    if len(parts) not in (5, 6):
        raise Misfit(
            field, "cron-invalid",
            f"`{text}` has {len(parts)} field{'' if len(parts) == 1 else 's'}, and a cron has 5, or 6 with seconds first",
            "minute hour day-of-month month day-of-week, such as `0 9 * * MON-FRI`",
        )  # fmt: skip
    if "?" in parts:
        raise Misfit(field, "cron-invalid", f"`{text}` has a `?`", "write `*` instead")
    never = Misfit(
        field, "cron-never", f"`{text}` never fires: there is no such day",
        "look at its day-of-month and month",
    )  # fmt: skip
    try:
        next(CronSim(cron, _BEGIN))
    except CronSimError as error:
        if "day-of-month" in str(error) and _reads([*parts[:-2], "*", parts[-1]]):
            raise never from None
        raise _unreadable(text, parts, str(error), field) from None
    except StopIteration:
        raise never from None
    except (AssertionError, TypeError, ValueError) as error:
        raise _unreadable(text, parts, "", field) from error


def _reads(parts: list[str]) -> bool:
    try:
        CronSim(" ".join(parts), _BEGIN)
    except CronSimError:
        return False
    return True


def _unreadable(text: str, parts: list[str], said: str, field: tuple[str | int, ...]) -> Misfit:
    names = _FIELDS if len(parts) == 6 else _FIELDS[1:]
    for name, part in zip(names, parts, strict=True):
        if name in said:
            hint = f"{'an' if name == 'hour' else 'a'} {name} is {_RANGES[name]}; also `*`, `1-5`, `1,3` and `*/15`"
            return Misfit(field, "cron-invalid", f"`{part}` is no {name} in `{text}`", hint)
    return Misfit(
        field, "cron-invalid", f"`{text}` is not a cron expression", "such as `0 9 * * MON-FRI`"
    )


def moments(text: str, zone: ZoneInfo, after: float) -> Iterator[float]:
    """All moments after one, in order; ends where fifty years bring none."""
    cron = spelled(text)
    minute, hour = cron.split()[-5:-3]
    if minute.startswith("*") or hour.startswith("*"):
        yield from _by_moment(cron, zone, after)
    else:
        yield from _by_reading(cron, zone, after)


def _by_reading(cron: str, zone: ZoneInfo, after: float) -> Iterator[float]:
    last = after
    for wall in CronSim(cron, reading(after, zone)):
        moment = moment_of(wall, zone)
        if moment > last:
            last = moment
            yield moment


def _by_moment(cron: str, zone: ZoneInfo, after: float) -> Iterator[float]:
    begin = reading(after, zone)
    at = after
    while True:
        ahead = offset(at, zone)
        change = None
        for wall in CronSim(cron, begin):
            moment = moment_at(wall, ahead)
            change = next_change(at, moment, zone)
            if change is not None:
                break
            at = moment
            yield moment
        else:
            return
        # The clock was changed on the way: what fits from there on, the moment of the change included.
        at, begin = change, reading(change, zone) - _SECOND


def moment_at(wall: datetime, ahead: float) -> float:
    """The moment of a reading under a known offset."""
    return (wall - datetime(1970, 1, 1)) / _SECOND - ahead  # noqa: DTZ001
