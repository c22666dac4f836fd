"""What an attempt has logged: the newest lines, within bounds.

No locks: an attempt may log from several threads, out of a destructor or in a forked process, and none of that may
hang. How records of `logging` come here is the business of `sdk/tap.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from itertools import count
from typing import Any

from penstock.model.job import LogLine
from penstock.sdk.conceal import concealed

LINES_MAX = 100
TEXT_BYTES_MAX = 8 * 1024
"""Of all messages of an attempt together, as UTF-8."""
MESSAGE_CHARACTERS_MAX = 2000
"""So that one line does not push out all others."""
LEVEL_CHARACTERS_MAX = 20
DROPPED = "DROPPED"
_NOTICE_BYTES_MAX = 64
_FAIR_CHARACTERS = TEXT_BYTES_MAX // LINES_MAX

Numbered = tuple[int, LogLine]


class Logs:
    """Lines with their numbers, by which those that were dropped are counted."""

    __slots__ = ("_lines", "_numbers")

    def __init__(self) -> None:
        self._numbers = count(1)
        self._lines: deque[Numbered] = deque(maxlen=LINES_MAX)

    def add(self, line: LogLine) -> None:
        self.put((next(self._numbers), line))

    def put(self, numbered: Numbered) -> None:
        """A line that was numbered elsewhere, in a child process."""
        lines = self._lines
        lines.append(numbered)
        if len(numbered[1].message) > _FAIR_CHARACTERS:
            kept = list(lines)
            over = sum(len(line.message) for _, line in kept) - TEXT_BYTES_MAX
            for _, line in kept:
                if over <= 0:
                    break
                over -= len(line.message)
                lines.popleft()

    def drain(self) -> list[Numbered]:
        """What was added since the last time."""
        drained: list[Numbered] = []
        while self._lines:
            drained.append(self._lines.popleft())
        return drained

    def lines(self) -> tuple[LogLine, ...]:
        """The newest that are within the bounds; before them a line that counts the others."""
        held = list(self._lines)
        if not held:
            return ()
        total = max(number for number, _ in held)
        sizes = [len(line.message.encode()) for _, line in held]
        if total == len(held) and sum(sizes) <= TEXT_BYTES_MAX:
            return tuple(line for _, line in held)
        room, first = TEXT_BYTES_MAX - _NOTICE_BYTES_MAX, len(held)
        while first and len(held) - first < LINES_MAX - 1 and sizes[first - 1] <= room:
            first -= 1
            room -= sizes[first]
        kept = [line for _, line in held[first:]]
        dropped = total - len(kept)
        notice = f"{dropped} older {'line was' if dropped == 1 else 'lines were'} dropped"
        return (LogLine(held[min(first, len(held) - 1)][1].at, DROPPED, notice), *kept)


def line_of(at: float, level: str, text: str, secrets: Mapping[str, Any] | None) -> LogLine:
    """A line that can be stored: without secrets, which are sought before it is cut."""
    if secrets:
        text = concealed(text, secrets)
    if len(text) > MESSAGE_CHARACTERS_MAX:
        text = text[: MESSAGE_CHARACTERS_MAX - 1] + "…"
    return LogLine(at, _utf8(level[:LEVEL_CHARACTERS_MAX]), _utf8(text))


def _utf8(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
