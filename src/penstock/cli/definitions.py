"""Commands about definitions: `explain`, `graph`; and how a file becomes one. `verify` is in `cli/verify.py`."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.output import (
    COMPLETED,
    REFUSED,
    USAGE,
    Problem,
    coloured,
    complain_of_definition,
    give,
    give_json,
    say,
    warn,
)
from penstock.cli.session import json_option, opened, perform, store_flag, store_option
from penstock.cli.words import did_you_mean
from penstock.errors import DefinitionInvalid

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.cli.timeline import Timeline
    from penstock.dsl.finding import Finding
    from penstock.dsl.load import Loaded
    from penstock.ports.activities import Served
    from penstock.verify.structure import Examined

UNKNOWN_ACTIVITY = "unknown-activity"
SUFFIXES = (".yaml", ".yml", ".json")
STDIN = "-"


def looks_like_file(name: str) -> bool:
    return name.endswith(SUFFIXES) or Path(name).is_file()


def found_file(name: str) -> Path:
    """The file, or the one that was probably meant."""
    path = Path(name)
    if path.suffix == ".py" and path.is_file():
        raise Problem(
            "usage", f"{name} is a Python file, not a definition",
            hint=f"its activities and workflow functions are found by --app {quote(name)}",
        )  # fmt: skip
    if path.is_file() or path.is_fifo():
        return path
    if path.is_dir():
        raise Problem("usage", f"{name} is a folder, not a definition", hint=_files_in(path))
    folder = path.parent
    near = [p.name for p in folder.iterdir() if p.suffix in SUFFIXES] if folder.is_dir() else []
    hint = did_you_mean(path.name, near) or (
        _files_in(folder) if folder.is_dir() else f"there is no folder {folder} either"
    )
    raise Problem("usage", f"there is no file {name}", hint=hint)


def _files_in(folder: Path) -> str:
    """The definitions that one could name instead."""
    files = sorted(str(p) for p in folder.iterdir() if p.suffix in SUFFIXES)
    if not files:
        return "name a .yaml or .json file; there is none in that folder"
    return f"name a file: {', '.join(files[:5])}{', …' if len(files) > 5 else ''}"


def read_definition(
    name: str, served: Mapping[str, Served] | None = None, app: str | None = None
) -> Loaded:
    """A definition from a file, or DefinitionInvalid with all that is wrong with it.

    With `served`, each activity that it calls must be among them and take what it is given.
    """
    return examined(name, served, app).accepted()


def refused_early(
    loaded: Loaded, activities: list[Any], *, force: str | None, strict: bool
) -> None:
    """DefinitionInvalid if an engine with these activities would refuse it; asked before a database is made."""
    if force is not None:
        return
    from penstock.cli.app import signatures_by
    from penstock.core.plan import Plan
    from penstock.dsl.load import refused
    from penstock.engine.verdicts import digest_of, signatures_of, verified

    known = signatures_by(activities)
    signatures = signatures_of(activities, known.get, Plan(loaded.definition, loaded.vocabulary))
    found = verified(loaded, digest_of(loaded.definition), [], signatures)
    levels = ("error", "warning") if strict else ("error",)
    if any(finding.level in levels for finding in found):
        raise refused(found, loaded.source)


force_option = click.option(
    "--force", metavar="REASON", help="Register it though something is refuted; the reason is kept."
)
strict_option = click.option(
    "--strict", is_flag=True, help="Refuse it if something could not be proved, too."
)


def tell_findings(findings: list[Finding]) -> None:
    """What was found about a definition that was registered all the same."""
    for finding in findings:
        if finding.level == "note":
            continue
        place = finding.place
        where = f"{place.source}:{place.line}:{place.column}" if place.line else place.source
        warn(f"[{finding.code}] {finding.message} ({where})")


def examined(name: str, served: Mapping[str, Served] | None, app: str | None) -> Examined:
    """A file, with all that is to be said about it; what an engine would refuse is refused here, too."""
    return examined_bytes(name, read_bytes(name), served, app)


def read_bytes(name: str) -> bytes:
    """What a file, a pipe or, as `-`, the standard input holds; not much more than a definition may."""
    from penstock.dsl.tree import BYTES_MAX  # late: heavy

    try:
        if name == STDIN:
            return sys.stdin.buffer.read(BYTES_MAX + 1)
        with found_file(name).open("rb") as file:
            return file.read(BYTES_MAX + 1)
    except OSError as error:
        raise Problem(
            "usage",
            f"{name} cannot be read: {error.strerror}",
            hint="look at its permissions: ls -l shows them",
        ) from None


def examined_bytes(
    name: str, data: bytes, served: Mapping[str, Served] | None, app: str | None
) -> Examined:
    from penstock.dsl.finding import in_order  # late: heavy
    from penstock.verify.structure import Examined, examine_bytes
    from penstock.wiring import installed_plugins

    names = None if served is None else [each for each in served if each != "http"]
    source = "<stdin>" if name == STDIN else name
    plugins = installed_plugins().added
    found = examine_bytes(data, source=source, activities=names, plugins=plugins)
    if served is None or names is None:
        return found
    findings = [_at_home(finding, names, app) for finding in found.findings]
    if found.loaded is not None and all(f.code == UNKNOWN_ACTIVITY for f in found.errors):
        from penstock.core.plan import Plan
        from penstock.engine.registration import misfits

        findings += misfits(
            served, found.loaded, Plan(found.loaded.definition, found.loaded.vocabulary)
        )
    return Examined(found.loaded, in_order(findings), found.source)


def _at_home(finding: Finding, names: list[str], app: str | None) -> Finding:
    """The hint for one who has a command line and a file, not an engine."""
    if finding.code != UNKNOWN_ACTIVITY:
        return finding
    if app is None:
        return replace(finding, hint="--app FILE says where the activities are")
    near = finding.hint if finding.hint and finding.hint.startswith("did you mean") else None
    known = f"{app} has {', '.join(sorted(names)[:8])}{', …' if len(names) > 8 else ''}"
    return replace(finding, hint=f"{near} {known}" if near else f"{known}; add it there")


def pages() -> Path:
    """Where the pages of error codes are: in the installed package, or beside the source."""
    packaged = Path(__file__).resolve().parents[1] / "docs" / "errors"
    return (
        packaged if packaged.is_dir() else Path(__file__).resolve().parents[3] / "docs" / "errors"
    )


@click.command("explain")
@click.argument("code", required=False)
@json_option
def explain_command(code: str | None, as_json: bool) -> int:
    """Say what an error code means and what to do.

    \b
    Example:
      penstock explain dangling-link
      penstock explain            lists all codes
    """
    from penstock import errors

    known = {page.stem: page for page in pages().glob("*.md")}
    words = {
        each.code: " ".join((each.__doc__ or "").split())
        for each in vars(errors).values()
        if isinstance(each, type) and issubclass(each, errors.PenstockError)
    }
    if code is None:
        codes = sorted({*known, *words})
        if as_json:
            give_json(codes)
        else:
            width = max(len(each) for each in codes)
            for each in codes:
                text = known[each].read_text(encoding="utf-8") if each in known else words[each]
                give(f"{each:<{width}}  {first_sentence(text)}".rstrip())
        return COMPLETED
    code = code.strip().removeprefix("error[").removeprefix("warning[").rstrip("]:").lower()
    if code in known:
        text = known[code].read_text(encoding="utf-8")
    elif code in words:
        text = f"# {code}\n\n{words[code]}\n"
    else:
        raise Problem(
            "code-unknown", f"no page explains `{code}`", status=REFUSED,
            hint=did_you_mean(code, {*known, *words}) or "penstock explain lists the codes that have one",
        )  # fmt: skip
    if as_json:
        give_json({"code": code, "text": text})
    elif sys.stdout.isatty() and coloured(sys.stdout):
        from rich.markdown import Markdown

        from penstock.cli.output import console

        console(sys.stdout).print(Markdown(text))
    else:
        give(text.rstrip("\n"))
    return COMPLETED


def first_sentence(page: str) -> str:
    body = page.partition("\n")[2] if page.startswith("#") else page
    paragraph = " ".join(body.strip().partition("\n\n")[0].split())
    return re.split(r"(?<=[.;]) ", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", paragraph), maxsplit=1)[
        0
    ].rstrip(".;:")


@click.command("graph")
@click.argument("name", metavar="FILE|ID")
@click.option(
    "--width", type=click.IntRange(20, 1000), help="Columns to draw in; the terminal's if left out."
)
@json_option
@store_option
def graph_command(name: str, width: int | None, as_json: bool, url: str) -> int:
    """Draw a definition, or a run with its progress.

    Of a run of a workflow function its steps over time.

    \b
    Example:
      penstock graph order.yaml
      penstock graph order-7
    """
    if looks_like_file(name):
        return _draw_file(name, width, as_json)
    if not looks_like_file(name) and (
        "/" in name and Path(name).parent.is_dir() and name.endswith(".yaml")
    ):
        return USAGE
    return perform(_draw_run(name, width, as_json, url))


def _size(width: int | None) -> tuple[int, int]:
    import shutil

    return (width or shutil.get_terminal_size((100, 40)).columns) - 1, 1000


def _draw_file(name: str, width: int | None, as_json: bool) -> int:
    from penstock.cli.follow import links_of, tasks_of
    from penstock.cli.graph import Look, arrange

    try:
        definition = read_definition(name).definition
    except DefinitionInvalid as error:
        return complain_of_definition(error, "nothing can be drawn")
    if as_json:
        give_json({"tasks": list(definition.tasks), "links": definition.links})
        return COMPLETED
    columns, rows = _size(width)
    drawing = arrange(tasks_of(definition), links_of(definition), width=columns, height=rows)
    if drawing is None:
        for link in definition.links:
            give(f"{link.from_} -> {link.to}")
        return COMPLETED
    points = {
        id: Look("●" if task.type == "start" else "○", "pending")
        for id, task in definition.tasks.items()
        if task.type in ("start", "end")
    }
    looks = {id: points.get(id) or Look("·", "pending") for id in definition.tasks}
    _print(drawing.draw(looks, {}))
    return COMPLETED


async def _draw_run(id: str, width: int | None, as_json: bool, url: str) -> int:
    import time

    from penstock.cli.follow import Followed, links_of, tasks_of
    from penstock.cli.graph import arrange

    async with opened(url) as session:
        run = await session.get(id)
        items = await run.history()
        view = await run.show()
        followed = Followed(id, await session.plan(view.definition, view.version))
        for item in items:
            await followed.follow(item.seq, item.event, session.definition)
    now = time.time()
    if followed.timeline is not None:
        return _draw_steps(followed.timeline, followed.status, id, width, as_json)
    decided = followed.links()
    if as_json:
        links = [
            {"from": link.from_, "to": link.to, "state": decided.get(i, "open")}
            for i, link in enumerate(followed.definition.links)
        ]
        states = {task: followed.state(task) for task in followed.definition.tasks}
        give_json({
            "id": id, "status": followed.status, "links": links,
            "tasks": {task: "PENDING" if state is None else state.status for task, state in states.items()},
        })  # fmt: skip
        return COMPLETED
    columns, rows = _size(width)
    drawing = arrange(
        tasks_of(followed.definition), links_of(followed.definition), width=columns, height=rows
    )
    if drawing is None:
        say(
            f"it is too wide for {columns} columns: penstock show {quote(id)}{store_flag(url)}, or --width"
        )
        for link, state in (
            (link, decided.get(i, "open")) for i, link in enumerate(followed.definition.links)
        ):
            give(f"{link.from_} -> {link.to}  {state}")
        return COMPLETED
    _print(
        drawing.draw(
            {task: followed.look(task, now) for task in followed.definition.tasks}, decided
        )
    )
    return COMPLETED


def _draw_steps(timeline: Timeline, status: str, id: str, width: int | None, as_json: bool) -> int:
    import time

    if as_json:
        steps = [
            {"key": step.key, "status": step.status, "began": step.began, "ended": step.ended}
            for step in timeline.steps()
        ]
        give_json({"id": id, "status": status, "steps": steps})
        return COMPLETED
    columns, _ = _size(width)
    _print(timeline.draw(columns, time.time()))
    return COMPLETED


def _print(rows: list[list[tuple[str, str]]]) -> None:
    if not coloured(sys.stdout):
        give("\n".join("".join(part for part, _ in row) for row in rows))
        return
    from penstock.cli.output import console, text_of

    console(sys.stdout).print(text_of(rows), crop=False, no_wrap=True, overflow="ignore")
