"""Commands that only look: `list`, `show`, `why`, `history`, `audit`."""

from __future__ import annotations

import time
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.humane import ago, due_words, duration, local, until
from penstock.cli.inputs import parse_moment, parse_pairs, parse_status
from penstock.cli.output import (
    COMPLETED,
    FAILED,
    brief,
    give,
    give_json,
    paint,
    say,
    table,
    visible,
)
from penstock.cli.session import (
    json_option,
    opened,
    owner_text,
    perform,
    serve_text,
    store_flag,
    store_option,
)

if TYPE_CHECKING:
    from penstock.model.job import LogLine
    from penstock.ports.runs import HistoryItem, RunView, TaskView, WhyView
    from penstock.ports.store import Row
    from penstock.sdk.client import Run

TASKS_SHOWN = 60


@click.command("list")
@click.option("--status", metavar="STATUS", help="A status, or open, closed, paused.")
@click.option("--definition", metavar="ID", help="Runs of that definition.")
@click.option(
    "--attr",
    "attributes",
    multiple=True,
    metavar="K=V",
    help="Runs with that attribute; may be repeated.",
)
@click.option("--since", metavar="TIME", help="Created since: 2h, or 2026-05-01T12:00.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="At most so many."
)
@click.option("--after", type=int, metavar="CURSOR", help="Go on where the page before ended.")
@click.option("--archived", is_flag=True, help="Runs that were moved into archives.")
@json_option
@store_option
def list_command(
    status: str | None, definition: str | None, attributes: tuple[str, ...], since: str | None, limit: int,
    after: int | None, archived: bool, as_json: bool, url: str,
) -> int:  # fmt: skip
    """List runs, the newest first.

    \b
    Example:
      penstock list --status open --definition order
      penstock list --attr region=eu --since 2h --json
    """
    if status is not None:
        status = parse_status(status, "--status")
    wanted: dict[str, Any] = {
        "status": status, "definition": definition, "attributes": parse_pairs(attributes, "--attr"), "after": after,
        "created_after": None if since is None else parse_moment(since, "--since"),
    }  # fmt: skip

    async def work() -> int:
        async with opened(url) as session:
            listing = session.engine.data.archived if archived else session.engine.list
            rows = await listing(limit=limit + 1, **wanted)
            owner = await session.owner()
        more = len(rows) > limit
        rows = rows[:limit]
        if as_json:
            give_json([_row(row) for row in rows])
        elif rows:
            now = time.time()
            table(
                ("ID", "STATUS", "DEFINITION", "VERSION", "CREATED", "TOOK", "NEXT DUE"),
                [
                    (
                        row.id, "PAUSED" if row.paused else row.status, row.definition, row.version, ago(row.created_at, now),
                        duration((row.ended_at or now) - row.created_at),
                        "" if row.next_due is None or not row.open else until(row.next_due, now),
                    )
                    for row in rows
                ],
                styles=(None, "status", None, None, None, None, None),
            )  # fmt: skip
        else:
            say("no runs" + (" like that" if any(wanted.values()) else ""))
        if more and not archived:
            say(f"more: --after {rows[-1].key}")
        elif more:
            say("there are more: --limit shows them")
        if any(row.open for row in rows) and not as_json:
            say(owner_text(owner))
        return COMPLETED

    return perform(work())


def _row(row: Row) -> dict[str, Any]:
    import msgspec

    return {
        "id": row.id, "generation": row.generation, "definition": row.definition, "version": row.version,
        "status": "PAUSED" if row.paused else row.status, "revision": row.revision, "created_at": row.created_at,
        "last_updated": row.updated_at, "ended_at": row.ended_at, "next_due": row.next_due, "created_by": row.created_by,
        "attributes": msgspec.json.decode(row.attributes or b"{}"), "cursor": row.key,
    }  # fmt: skip


@click.command("show")
@click.argument("id")
@json_option
@store_option
def show_command(id: str, as_json: bool, url: str) -> int:
    """Show a run and its tasks.

    \b
    Example:
      penstock show order-7
      penstock show order-7 --json | jq .output
    """

    async def work() -> int:
        async with opened(url) as session:
            run = await session.get(id)
            view = await run.show()
            owner = await session.owner()
        if as_json:
            give_json(view)
        else:
            _show(view)
            if view.ended_at is None:
                say(f"{owner_text(owner)}; penstock why {quote(id)}{store_flag(url)}")
        return COMPLETED

    return perform(work())


def _show(view: RunView) -> None:
    now = time.time()
    status = view.shown_status
    import sys

    give(f"{paint(view.id, 'title', sys.stdout)}  {paint(status, status.lower(), sys.stdout)}")
    facts: list[tuple[str, str]] = [
        ("definition", f"{view.definition} version {view.version}"),
        (
            "created",
            f"{ago(view.created_at, now)} ({local(view.created_at, now)})"
            + (f" by {view.created_by}" if view.created_by else ""),
        ),
    ]
    if view.ended_at is not None:
        facts.append(
            (
                "ended",
                f"{ago(view.ended_at, now)} ({local(view.ended_at, now)}), after {duration(view.ended_at - view.created_at)}",
            )
        )
    if view.generation > 1:
        facts.append(("generation", str(view.generation)))
    if view.parent:
        facts.append(("parent", view.parent))
    if view.cancel_requested:
        facts.append(("cancel", "requested"))
    if view.attributes:
        facts.append(("attributes", brief(view.attributes)))
    facts.append(("input", brief(view.input)))
    if view.data:
        facts.append(("data", brief(view.data)))
    if status == "COMPLETED":
        facts.append(("output", brief(view.output)))
    for failure in view.error_stack:
        where = f" in {failure.key}" if failure.key else ""
        facts.append(("error", f"[{failure.code}]{where} {failure.typed}"))
        if failure.place:
            facts.append(("at", failure.place))
        if failure.hint:
            facts.append(("hint", failure.hint))
    facts.append(("events", str(view.revision)))
    for name, value in facts:
        give(f"  {name:<11}{visible(value)}")
    tasks = in_order(view.tasks)[:TASKS_SHOWN]
    if tasks:
        give("")
        table(
            ("TASK", "STATUS", "ATTEMPTS", "TOOK", "OUTPUT"),
            [(t.key, t.status, str(t.attempts or ""), _took(t, now), _said(t, now)) for t in tasks],
            styles=(None, "status", None, None, "detail"),
        )
        if len(view.tasks) > len(tasks):
            say(f"and {len(view.tasks) - len(tasks)} more: --json shows all")


def in_order(tasks: list[TaskView]) -> list[TaskView]:
    """As they began; what is inside a task after it, in order of its numbers."""
    from penstock.core.keys import natural

    began = {task.key: task.scheduled_at or 0.0 for task in tasks if "/" not in task.key}

    def place(task: TaskView) -> tuple[float, list[tuple[int, str]]]:
        top = task.key.partition("/")[0].partition("[")[0]
        return began.get(top, task.ended_at or 0.0), natural(task.key.replace("[…]", ""))

    return sorted(tasks, key=place)


def _took(task: TaskView, now: float) -> str:
    began = task.started_at or task.scheduled_at
    if not began:
        return ""
    return duration((task.ended_at if task.ended_at is not None else now) - began)


def _said(task: TaskView, now: float) -> str:
    if task.error is not None and task.status != "COMPLETED":
        return f"[{task.error.code}] {task.error.message}"[:100]
    if task.due is not None and task.ended_at is None:
        return until(task.due, now)
    return "" if task.output is None else brief(task.output, 80)


@click.command("why")
@click.argument("id")
@json_option
@store_option
def why_command(id: str, as_json: bool, url: str) -> int:
    """Say what a run waits for.

    \b
    Example:
      penstock why order-7
    """

    async def work() -> int:
        async with opened(url) as session:
            run = await session.get(id)
            found = [each for each in await run.why() if each.kind != "owner"]
            status = await run.status()
            owner = await session.owner()
            if owner is None:
                await _not_begun(run, found)
            failed = (await run.show()).error_stack if not found else []
        if as_json:
            give_json({"id": id, "status": status, "why": found, "owner": owner, "errors": failed})
            return COMPLETED
        now = time.time()
        for each in found:
            words = "" if each.due is None else due_words(each.message, each.due, now)
            due = "" if each.due is None else f"{words and ', '}{words} ({local(each.due, now)})"
            give(f"{each.kind:<9}{visible(each.message)}{due}")
        if not found:
            give(f"run {id} waits for nothing: it is {status}")
            for failure in failed:
                where = f" in {failure.key}" if failure.key else ""
                give(visible(f"error    [{failure.code}]{where} {failure.typed}"))
                if failure.place:
                    give(visible(f"at       {failure.place}"))
                if failure.hint:
                    give(visible(f"hint     {failure.hint}"))
            if failed:
                say(f"{paint('next', 'hint')}: penstock history {quote(id)}{store_flag(url)}")
        elif owner is None:
            say(f"{owner_text(None)}; start one to go on: {serve_text(url)}")
        else:
            say(owner_text(owner))
        for each in found:
            if each.kind == "signal":
                name = each.message.split("`")[1] if "`" in each.message else "NAME"
                say(
                    f"{paint('next', 'hint')}: penstock signal {quote(id)} {quote(name)} [JSON]{store_flag(url)}"
                )
            elif each.kind == "form":
                say(
                    f"{paint('next', 'hint')}: penstock submit {quote(id)} {quote(each.key)} '{{…}}'{store_flag(url)}"
                )
            elif each.kind == "pause":
                say(f"{paint('next', 'hint')}: penstock resume {quote(id)}{store_flag(url)}")
        return COMPLETED

    return perform(work())


async def _not_begun(run: Run, found: list[WhyView]) -> None:
    """Nobody executes: an attempt that nobody has begun has no end to wait for."""
    attempts = [each for each in found if each.kind == "attempt"]
    if not attempts:
        return
    scheduled = {task.key for task in (await run.show()).tasks if task.status == "SCHEDULED"}
    for each in attempts:
        if each.key in scheduled:
            each.message = each.message.replace(" is to end", " is to begin")


@click.command("history")
@click.argument("id")
@json_option
@store_option
def history_command(id: str, as_json: bool, url: str) -> int:
    """Show all that has happened to a run, event by event.

    \b
    Example:
      penstock history order-7
      penstock history order-7 --json | jq '.[] | select(.type == "task_failed")'
    """

    async def work() -> int:
        import msgspec

        from penstock.cli.follow import told

        async with opened(url) as session:
            run = await session.get(id)
            items = await run.history()
        if as_json:
            out: list[Any] = []
            for item in items:
                event = msgspec.json.decode(msgspec.json.encode(item.event))
                out.append({"seq": item.seq, "position": item.position, **event, "hash": item.hash})
            give_json(out)
            return COMPLETED
        first = items[0].at
        now = time.time()
        table(
            ("SEQ", "TIME", "AFTER", "EVENT", "TASK", "WHAT"),
            [
                (
                    str(item.seq), local(item.at, now), "+" + duration(item.at - first), item.type,
                    getattr(item.event, "key", "") or "", told(item.event),
                )
                for item in items
            ],
            styles=("detail", "detail", "detail", "title", None, None),
            notes=[_logged(item, now) for item in items],
        )  # fmt: skip
        return COMPLETED

    return perform(work())


def _logged(item: HistoryItem, now: float) -> list[str]:
    """What the attempt that ended with this event has logged."""
    logs: tuple[LogLine, ...] = getattr(item.event, "logs", ())
    return [f"{local(line.at, now)} {line.level:<7} {line.message}" for line in logs]


@click.command("audit", short_help="Check that histories say what they said when written.")
@click.argument("id", required=False)
@json_option
@store_option
def audit_command(id: str | None, as_json: bool, url: str) -> int:
    """Check that histories still say what they said when they were written (hash chains).

    \b
    Example:
      penstock audit
      penstock audit order-7

    Exit status: 0 if all fits together, 1 if not.
    """

    async def work() -> int:
        async with opened(url) as session:
            if id is not None:
                await session.get(id)
            found = await session.engine.audit(id)
        if as_json:
            give_json({"problems": found})
        else:
            for each in found:
                give(visible(each))
            if not found:
                say(f"{'all runs' if id is None else f'run {id}'}: every event is what was written")
        return FAILED if found else COMPLETED

    return perform(work())
