"""What is given on the command line, as values: inputs, attributes, moments."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from shlex import quote
from typing import Any, cast

from penstock.cli.output import Problem
from penstock.errors import Rejected

_PAIR = re.compile(r"([A-Za-z_][\w.-]*)=(.*)", re.DOTALL)


def parse_inputs(given: Sequence[str]) -> Any:
    """JSON, @file.json, @- for stdin, or k=v; several are laid over each other. None if nothing is given."""
    value: Any = None
    for place, text in enumerate(given):
        pair = _PAIR.fullmatch(text)
        part: Any = {pair[1]: loose(pair[2])} if pair else _json(*_read(text))
        if place == 0:
            value = part
        elif isinstance(value, dict) and isinstance(part, dict):
            value = {**cast("dict[str, Any]", value), **cast("dict[str, Any]", part)}
        else:
            raise Problem(
                "usage", "several inputs are laid over each other, so each must be an object", place="-i",
                hint="-i sku=A1 -i cents=1999, or one -i '{…}'",
            )  # fmt: skip
    return value


@contextmanager
def explained(given: Sequence[str]) -> Generator[None]:
    """An input that is refused, because k=v was read as JSON where a text is wanted, gets the hint how to write that."""
    try:
        yield
    except Rejected as error:
        for text in given if error.code in ("input-invalid", "arguments-invalid") else ():
            pair = _PAIR.fullmatch(text)
            if pair is None or isinstance(loose(pair[2]), str):
                continue
            name = re.escape(pair[1])
            if re.search(
                rf'\$\.{name}: [^;]* is not of type "string"|`{name}` cannot be read as [^;]*: Expected `str`, got ',
                error.message,
            ):
                error.hint = f"as a text: -i {pair[1]}={quote(json.dumps(pair[2]))}"
        raise


def loose(text: str) -> Any:
    """A JSON value if it is one, else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def parse_value(text: str, where: str) -> Any:
    """One JSON value, @file or @-."""
    text, source = _read(text)
    return _json(
        text, where if source == "-i" else source, hint="""true, 3, '"text"', '{"a": 1}'"""
    )


def parse_pairs(given: Sequence[str], option: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for text in given:
        pair = _PAIR.fullmatch(text)
        if pair is None:
            raise Problem(
                "usage",
                f"`{text}` is not name=value",
                place=option,
                hint=f"{option} region=eu".removeprefix("K=V "),
            )
        found[pair[1]] = loose(pair[2])
    return found


def parse_status(text: str, option: str) -> str:
    """A run's status, or open, closed, in small or capital letters."""
    from penstock.ports.store import STATUSES  # late

    status = text.upper().replace("-", "_")
    if status not in STATUSES:
        from penstock.cli.words import did_you_mean

        raise Problem(
            "usage", f"`{text}` is no status of a run", place=option,
            hint=did_you_mean(text, [each.lower() for each in STATUSES]) or ", ".join(STATUSES).lower(),
        )  # fmt: skip
    return status


def parse_moment(text: str, option: str) -> float:
    """`2h` (ago), or a moment such as 2026-05-01T12:00, local if it names no zone."""
    from penstock.policy.durations import parse  # late

    ago = parse(text)
    if ago is not None:
        return time.time() - ago
    try:
        return datetime.fromisoformat(text).astimezone().timestamp()
    except ValueError:
        raise Problem(
            "usage",
            f"`{text}` is neither a duration nor a moment",
            place=option,
            hint=f"{option} 2h, or {option} 2026-05-01T12:00",
        ) from None


def _read(text: str) -> tuple[str, str]:
    if not text.startswith("@"):
        return text, "-i"
    if text == "@-":
        return sys.stdin.read(), "stdin"
    try:
        return Path(text[1:]).read_text(encoding="utf-8"), text[1:]
    except OSError as error:
        raise Problem(
            "usage",
            f"{text[1:]} cannot be read: {error.strerror}",
            place="-i",
            hint=_near(text[1:]),
        ) from None
    except UnicodeDecodeError:
        raise Problem(
            "usage", f"{text[1:]} is not UTF-8", place="-i", hint="save it as UTF-8"
        ) from None


def _near(name: str) -> str:
    from penstock.cli.words import did_you_mean

    folder = Path(name).parent
    files = [p.name for p in folder.glob("*.json")] if folder.is_dir() else []
    return did_you_mean(Path(name).name, files) or "@FILE is a file with JSON, @- is stdin"


def parse_line(text: str, where: str, line: int) -> Any:
    """One line of a file of JSON values."""
    return _json(text, where, line=line, hint='one JSON value a line, such as {"sku": "A1"}')


def _json(text: str, where: str, *, hint: str = "", line: int | None = None) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        lines = text.splitlines() or [""]
        shown = lines[min(error.lineno, len(lines)) - 1][:200]
        place = where if where == "-i" else f"{where}:{line or error.lineno}:{error.colno}"
        raise Problem(
            "usage", f"this is not JSON: {error.msg.lower()}", place=place,
            excerpt=f"  |\n  | {shown}\n  | {' ' * (error.colno - 1)}^" if error.colno <= 201 else None,
            hint=hint or """texts need double quotes inside: -i '{"sku": "A1"}', or -i sku=A1""",
        ) from None  # fmt: skip
    except (ValueError, RecursionError) as error:
        raise Problem("usage", f"this is not JSON: {error}", place=where) from None


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} has no place in JSON")
