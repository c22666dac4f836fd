"""`diff`: two versions of a definition, told in words and drawn."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.definitions import looks_like_file, read_definition
from penstock.cli.humane import span
from penstock.cli.output import (
    COMPLETED,
    FAILED,
    Problem,
    complain_of_definition,
    give,
    give_json,
    paint,
    say,
    table,
    visible,
)
from penstock.cli.session import json_option, opened, perform, store_option
from penstock.errors import DefinitionInvalid

if TYPE_CHECKING:
    from penstock.dsl.diff import Difference, FieldChange, LinkName
    from penstock.model.definition import Definition
    from penstock.verify.change import Change

SHOWN = 60
TIMES = re.compile(r"(^|\.)(timeouts?\.\w+|config\.(timeout|delay)|retry\.(first|maximum))$")
"""Fields that are seconds in a definition as it is kept, and were written as `2d` or `30s`."""
STYLES = {"+": "completed", "-": "failed", "~": "warning"}


@click.command("diff")
@click.argument("before", metavar="OLD")
@click.argument("after", metavar="NEW")
@click.option(
    "--map", "pairs", multiple=True, metavar="OLD=NEW", help="A task that was renamed; else it is guessed."
)  # fmt: skip
@click.option("--svg", "picture", metavar="FILE", type=click.Path(), help="Draw it, too.")
@click.option(
    "--runs", is_flag=True, help="Say, too, which open runs can move, by where they stand."
)
@json_option
@store_option
def diff_command(
    before: str,
    after: str,
    pairs: tuple[str, ...],
    picture: str | None,
    runs: bool,
    as_json: bool,
    url: str,
) -> int:
    """Compare two versions of a definition.

    \b
    Example:
      penstock diff order-1.yaml order-2.yaml
      penstock diff order@1 order@2 --runs --svg change.svg
      penstock diff order@2 order.yaml --map pay=settle

    OLD and NEW are files, or ID@VERSION of the database. Exit status: 0 if they are the same, 1 if they
    differ, 3 if one of them cannot be read.
    """
    from penstock.dsl.diff import compare

    mapping = parse_mapping(pairs)
    try:
        one, other = perform(_both(before, after, url))
    except DefinitionInvalid as error:
        return complain_of_definition(error, "nothing is compared")
    found = compare(one, other, mapping)
    if one.id != other.id:
        say(f"these are two definitions, `{one.id}` and `{other.id}`, not versions of one")
    if picture is not None:
        from penstock.cli.diff_picture import drawn

        _write(picture, drawn(one, other, found, f"{other.id}: {before} -> {after}"))
        say(f"drawn in {picture}")
    moving = None
    if runs:
        from penstock.verify.change import change
        from penstock.wiring import installed_plugins

        found_plugins = installed_plugins().added
        moving = change(one, other, mapping or found.renamed, plugins=found_plugins)
    if as_json:
        give_json(found if moving is None else {"difference": found, "runs": moving})
    else:
        for line in told(found, f"{before} -> {after}"):
            give(line)
        if moving is not None:
            show_runs(moving)
    return COMPLETED if found.same else FAILED


def parse_mapping(pairs: tuple[str, ...]) -> dict[str, str]:
    """`OLD=NEW` of each renamed task."""
    found: dict[str, str] = {}
    for pair in pairs:
        before, mark, after = pair.partition("=")
        if not mark or not before or not after or before in found:
            raise Problem(
                "usage", f"`{pair}` is not OLD=NEW", hint="name the old and the new task: --map pay=settle"
            )  # fmt: skip
        found[before] = after
    return found


async def _both(before: str, after: str, url: str) -> tuple[Definition, Definition]:
    if looks_like_file(before) and looks_like_file(after):
        return read_definition(before).definition, read_definition(after).definition
    async with opened(url) as session:
        found: list[Definition] = []
        for name in (before, after):
            if looks_like_file(name):
                found.append(read_definition(name).definition)
                continue
            id, mark, version = name.partition("@")
            if not mark:
                raise Problem(
                    "usage", f"`{name}` is neither a file nor ID@VERSION", hint=f"say which version: {name}@1"
                )  # fmt: skip
            found.append(await session.definition(id, version))
    return found[0], found[1]


def _write(path: str, text: str) -> None:
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise Problem(
            "file-unwritable", f"{path} cannot be written: {error.strerror}", hint="name another file"
        ) from None  # fmt: skip


@dataclass(frozen=True)
class Changed:
    """One thing that differs, in words."""

    sign: str
    """`+`, `-` or `~`."""
    what: str
    text: str
    details: tuple[str, ...] = ()


def changes(found: Difference) -> Iterator[Changed]:
    """All that differs, the deepest value that does beside it."""
    yield from (Changed("+", "task", path) for path in found.added)
    yield from (Changed("-", "task", path) for path in found.removed)
    for change in found.changed:
        name = change.path
        if change.renamed:
            name = (
                f"{change.was} -> {change.path}  {'looks renamed' if change.guessed else 'renamed'}"
            )
        yield Changed("~", "task", name, _fields(change.fields))
    yield from (Changed("+", "link", _link(link)) for link in found.links_added)
    yield from (Changed("-", "link", _link(link)) for link in found.links_removed)
    for each in found.links_changed:
        yield Changed("~", "link", str(each.link), _fields(each.fields))
    for field in found.fields:
        sign = "+" if field.before is None else "-" if field.after is None else "~"
        text = _value(field.field, field.after) if field.before is None else _values(field)
        yield Changed(sign, f"{field.field}:", text)


def told(found: Difference, title: str) -> list[str]:
    """For people: a line for each change."""
    lines = [_mark(title, "title")]
    if found.same:
        return [*lines, "  they are the same"]
    for each in changes(found):
        text = f"{each.sign} {each.what:<5} {visible(each.text)}"
        lines.append(f"  {_mark(text, STYLES[each.sign])}")
        lines += [f"      {visible(detail)}" for detail in each.details]
    return lines


def show_runs(found: Change) -> None:
    """Where runs of the old version can stand, and whether they can move from there."""
    rows = [
        (
            ", ".join(row.open) or "not begun",
            row.verdict,
            "; ".join(visible(each.message) for each in row.reasons[:2])
            + (f"; and {len(row.reasons) - 2} more" if len(row.reasons) > 2 else ""),
        )
        for row in found.rows
    ]
    give("")
    table(("OPEN", "CAN MOVE", "WHY NOT"), rows)
    if not found.complete:
        say(f"not all is known: only the first {found.states} states were looked at")
    if found.mapping:
        said = " ".join(f"{before}={after}" for before, after in found.mapping.items())
        say(f"with the mapping {said}")


def _link(link: LinkName) -> str:
    return str(link) if link.condition is None else f"{link}  if {link.condition}"


def _fields(changes: tuple[FieldChange, ...]) -> tuple[str, ...]:
    return tuple(f"{change.field}: {_values(change)}" for change in changes)


def _values(change: FieldChange) -> str:
    before, after = (_value(change.field, value) for value in (change.before, change.after))
    return f"{before} -> {after}"


def _value(field: str, value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, int | float) and TIMES.search(field):
        return span(value)
    return _short(value)


def _short(value: Any) -> str:
    import msgspec

    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"


def _mark(text: str, style: str) -> str:
    return paint(text, style, sys.stdout)
