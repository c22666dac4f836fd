"""The voice of the command line: stdout is data, stderr is talk; what, where, what next.

Styles have names here and nowhere else. Imports nothing heavy: `penstock --help` must be fast.
"""

from __future__ import annotations

import io
import json
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

from penstock.errors import (
    Busy,
    DefinitionInvalid,
    NotFound,
    PenstockError,
    Rejected,
    RunFailed,
    StoreError,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console
    from rich.text import Text

    from penstock.cli.graph import Rows

COMPLETED, FAILED, USAGE, REFUSED, UNREACHABLE, INTERRUPTED = 0, 1, 2, 3, 4, 130

STYLES = {
    "pending": "dim", "scheduled": "bold cyan", "running": "bold cyan", "waiting": "yellow", "retrying": "bold yellow",
    "completed": "green", "failed": "bold red", "skipped": "dim", "cancelled": "magenta", "terminated": "bold red",
    "timed_out": "bold red", "continued": "green", "created": "cyan", "paused": "bold yellow",
    "compensating": "bold magenta", "compensated": "magenta", "undo_failed": "bold red",
    "open": "bright_black", "taken": "green", "dead": "bright_black", "detail": "bright_black",
    "error": "bold red", "warning": "bold yellow", "hint": "cyan", "arrow": "blue", "title": "bold", "command": "cyan",
}  # fmt: skip
_CODES = {
    "bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "magenta": "35", "cyan": "36",
    "bright_black": "90",
}  # fmt: skip


@dataclass
class Problem(Exception):
    """Something that the reader is to be told, with what to do about it."""

    code: str
    message: str
    place: str | None = None
    hint: str | None = None
    status: int = USAGE
    excerpt: str | None = None


PLAIN = str.maketrans({
    **dict.fromkeys(map(chr, range(0x2500, 0x2580)), "+"),  # lines that meet
    **dict.fromkeys("─━═╌╍┄┅┈┉╴╶╸╺╼╾", "-"), **dict.fromkeys("│┃║╎╏┆┇┊┋╵╷╹╻╽╿", "|"), **dict.fromkeys("◐◓◑◒", "*"),
    "▼": "v", "▽": "v", "▲": "^", "▶": ">", "◀": "<", "→": ">", "←": "<", "·": ".", "…": "~", "✓": "v", "✗": "x",
    "●": "o", "○": "o", "◉": "O", "⏳": "w", "↻": "r", "↺": "r", "↶": "u", "⤼": "s", "⊘": "c", "‖": "p", "×": "x",
})  # fmt: skip
"""What stands for our drawings where they cannot be written."""


def _plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end].translate(PLAIN)
    return "".join(c if c.isascii() else "?" for c in text), error.end


def printable() -> None:
    """A terminal or a pipe that cannot have all characters gets others, never an error."""
    import codecs

    codecs.register_error("penstock", _plain)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="penstock")


def coloured(stream: TextIO) -> bool:
    """Whether colours are wanted there (https://no-color.org)."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return bool(os.environ.get("FORCE_COLOR")) or stream.isatty()


def paint(text: str, style: str, stream: TextIO | None = None) -> str:
    if not coloured(stream or sys.stderr):
        return text
    codes = ";".join(_CODES[word] for word in STYLES[style].split())
    return f"\x1b[{codes}m{text}\x1b[0m"


def visible(text: str) -> str:
    """Control characters as escapes: data must not write to the reader's terminal."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else " " if c in "\t\n" else c.encode("unicode_escape").decode()
        for c in text
    )


def say(text: str = "") -> None:
    """Talk."""
    print(text, file=sys.stderr, flush=True)


def give(text: str) -> None:
    """Data."""
    print(text, flush=True)


def give_json(value: Any) -> None:
    """Data for machines; indented where a person looks on."""
    import msgspec  # late

    raw = msgspec.json.encode(value)
    text = msgspec.json.format(raw, indent=2 if sys.stdout.isatty() else 0).decode()
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(json.loads(text))  # escaped: data is never approximate
    give(text)


def complain(problem: Problem) -> int:
    """Say what, where and what next; gives the exit status."""
    say(f"{paint(f'error[{problem.code}]', 'error')}: {visible(problem.message)}")
    if problem.place:
        say(f"  {paint('-->', 'arrow')} {visible(problem.place)}")
    if problem.excerpt:
        say(problem.excerpt)
    if problem.hint:
        say(f"{paint('hint', 'hint')}: {visible(problem.hint)}")
    return problem.status


def warn(message: str) -> None:
    say(f"{paint('warning', 'warning')}: {visible(message)}")


def complain_of(error: PenstockError) -> int:
    """Any error of ours, in the same voice."""
    if isinstance(error, DefinitionInvalid) and error.findings:
        return complain_of_definition(error)
    return complain(Problem(error.code, error.message, hint=error.hint, status=status_of(error)))


def status_of(error: PenstockError) -> int:
    if isinstance(error, StoreError):
        return UNREACHABLE
    if isinstance(error, Rejected) and error.code == "store-url":
        return USAGE
    if isinstance(error, Rejected | NotFound | Busy | DefinitionInvalid):
        return REFUSED
    return FAILED if isinstance(error, RunFailed) else REFUSED


def complain_of_definition(
    error: DefinitionInvalid, outcome: str = "nothing was registered"
) -> int:
    from pathlib import Path

    from penstock.verify.report import render, summary  # late: heavy

    source = error.findings[0].place.source
    try:
        text = Path(source).read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    say(render(error.findings, text, colour=coloured(sys.stderr)))
    say(f"{visible(source)}: {summary(error.findings)}; {outcome}")
    codes = dict.fromkeys(finding.code for finding in error.findings)
    errors = [finding for finding in error.findings if finding.level == "error"]
    if all(finding.counterexample is not None for finding in errors):
        say(
            f"{paint('note', 'hint')}: --force REASON registers it all the same, and the reason is kept"
        )
    say(f"{paint('hint', 'hint')}: {'; '.join(f'penstock explain {code}' for code in codes)}")
    return REFUSED


def console(stream: TextIO | None = None) -> Console:
    """For what is more than a line; knows the styles."""
    from rich.console import Console
    from rich.theme import Theme

    where = stream or sys.stderr
    return Console(
        file=where, theme=Theme(STYLES), highlight=False, no_color=not coloured(where), soft_wrap=False, emoji=False,
        markup=False, force_terminal=True if os.environ.get("FORCE_COLOR") and not os.environ.get("NO_COLOR") else None,
    )  # fmt: skip


def text_of(rows: Rows) -> Text:
    """A drawing, styled."""
    from rich.text import Text

    text = Text(no_wrap=True, overflow="crop")
    for i, row in enumerate(rows):
        if i:
            text.append("\n")
        for part, style in row:
            text.append(part, style or None)
    return text


def table(
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    styles: Sequence[str | None] | None = None,
    notes: Sequence[Sequence[str]] | None = None,
) -> None:
    """Columns on stdout, plain enough to be cut by other programs; the last one takes what is left.

    `notes` are lines under each row, indented."""
    kept = [[visible(cell) for cell in row] for row in rows]
    widths = [
        max(len(head), *(len(row[i]) for row in kept)) if kept else len(head)
        for i, head in enumerate(heads)
    ]
    out = sys.stdout
    if out.isatty():
        give(
            paint(
                "  ".join(h.ljust(w) for h, w in zip(heads, widths, strict=True)).rstrip(),
                "title",
                out,
            )
        )
    else:
        give("  ".join(h.ljust(w) for h, w in zip(heads, widths, strict=True)).rstrip())
    for number, row in enumerate(kept):
        cells: list[str] = []
        for i, (cell, width) in enumerate(zip(row, widths, strict=True)):
            padded = cell.ljust(width) if i < len(row) - 1 else cell
            style = styles[i] if styles else None
            if style == "status" and cell.lower() in STYLES:
                padded = paint(padded, cell.lower(), out)
            elif style and style != "status":
                padded = paint(padded, style, out)
            cells.append(padded)
        give("  ".join(cells).rstrip())
        for note in notes[number] if notes else ():
            give(paint(f"      {visible(note)}", "detail", out))


def brief(value: Any, most: int = 200) -> str:
    """A value as JSON in one line, cut."""
    text = json.dumps(value, ensure_ascii=False, separators=(", ", ": "), default=str)
    return text if len(text) <= most else text[: most - 1] + "…"
