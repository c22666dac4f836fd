"""Findings for people, as a good compiler shows them, and for machines.

What a document holds is shown with its control characters made visible: a definition must not be able to
write to the reader's terminal.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import msgspec

from penstock.dsl.finding import Finding, Level, Path, Place, in_order

__all__ = ["Finding", "Level", "Path", "Place", "in_order", "render", "render_json", "summary"]

WIDTH_MAX = 120
_BREAK = re.compile(r"\r\n|\r|\n")
_WORD = re.compile(r"[\w$-]+")
_COLOURS = {"error": "31", "warning": "33", "note": "32", "hint": "36", "arrow": "34", "bold": "1"}


def render(findings: Iterable[Finding], text: str = "", *, colour: bool = False) -> str:
    """All findings with the lines they are about; `text` is the source that they were found in."""
    pen = _Pen(colour=colour)
    lines = _BREAK.split(text) if text else []
    return "\n".join(_block(finding, lines, pen) for finding in findings)


def render_json(findings: Iterable[Finding]) -> str:
    """One object with `findings`, each flat."""
    return msgspec.json.encode({"findings": [as_data(finding) for finding in findings]}).decode()


def as_data(finding: Finding) -> dict[str, Any]:
    """A finding as JSON has it: the fields of its place beside its own."""
    data = asdict(finding)
    place: dict[str, Any] = data.pop("place")
    return {**data, **place, "path": list(place["path"])}


def summary(findings: Iterable[Finding]) -> str:
    """`2 errors, 1 warning`, or `no findings`."""
    counts = {"error": 0, "warning": 0, "note": 0}
    for finding in findings:
        counts[finding.level] += 1
    parts = [f"{n} {level}{'s' if n != 1 else ''}" for level, n in counts.items() if n]
    return ", ".join(parts) or "no findings"


def path_text(path: Path) -> str:
    """`tasks.charge.inputs.card`, `links[2].to`."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


class _Pen:
    def __init__(self, *, colour: bool) -> None:
        self._colour = colour

    def __call__(self, style: str, text: str) -> str:
        return f"\x1b[{_COLOURS[style]}m{text}\x1b[0m" if self._colour else text


def _block(finding: Finding, lines: list[str], pen: _Pen) -> str:
    place = finding.place
    head = pen(finding.level, f"{finding.level}[{finding.code}]")
    out = [f"{head}: {pen('bold', _visible(finding.message))}"]
    if not place.line:
        where = path_text(place.path)
        out.append(
            f"  {pen('arrow', '-->')} {_visible(place.source)}{': ' if where else ''}{_visible(where)}"
        )
    else:
        out.append(f"  {pen('arrow', '-->')} {_visible(place.source)}:{place.line}:{place.column}")
        if place.line <= len(lines):
            out += _excerpt(lines[place.line - 1], place, finding.level, pen)
    if finding.counterexample is not None:
        out.append(
            f"counterexample: {_visible(msgspec.json.encode(finding.counterexample).decode())}"
        )
    if finding.hint is not None:
        out.append(f"{pen('hint', 'hint')}: {_visible(finding.hint)}")
    return "\n".join(out) + "\n"


def _excerpt(line: str, place: Place, level: Level, pen: _Pen) -> list[str]:
    """The line, cut to a window if it is long, and a mark under the word that is meant."""
    column = place.column - 1
    first = max(0, column - WIDTH_MAX // 2) if len(line) > WIDTH_MAX else 0
    before = _visible(line[first:column])
    after = line[column : first + WIDTH_MAX]
    word = _WORD.match(after)
    marked = word.group() if word else after[:1]
    lead = "..." if first else ""
    gap = " " * len(str(place.line))
    bar = pen("arrow", "|")
    space = " " * (_width(before) + len(lead))
    return [
        f"{gap} {bar}",
        f"{pen('arrow', str(place.line))} {bar} {lead}{before}{_visible(after)}".rstrip(),
        f"{gap} {bar} {space}{pen(level, '^' * max(1, _width(marked)))}",
    ]


def _visible(text: str) -> str:
    """Control and formatting characters as escapes; a tab as a space."""
    if text.isprintable():
        return text
    return "".join(
        " " if c == "\t" else c if c.isprintable() else c.encode("unicode_escape").decode()
        for c in text
    )


def _width(text: str) -> int:
    """Columns of a terminal."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )
