"""Commands to runs: `start`, `signal`, `submit`, `pause`, `resume`, `cancel`, `terminate`."""

from __future__ import annotations

from collections.abc import Callable
from shlex import quote
from typing import TYPE_CHECKING, Any, TypeVar

import click

from penstock.cli.bulk import parse_lines, start_lines
from penstock.cli.definitions import (
    force_option,
    looks_like_file,
    read_definition,
    refused_early,
    strict_option,
    tell_findings,
)
from penstock.cli.inputs import explained, parse_inputs, parse_pairs, parse_value
from penstock.cli.output import COMPLETED, Problem, give, give_json, say
from penstock.cli.session import (
    Session,
    json_option,
    opened,
    owner_text,
    perform,
    serve_text,
    store_flag,
    store_option,
)
from penstock.cli.words import did_you_mean
from penstock.errors import NotFound, Rejected

if TYPE_CHECKING:
    from penstock.ports.store import DefinitionRow
    from penstock.sdk.client import Run

F = TypeVar("F", bound=Callable[..., Any])


def act_options(function: F) -> F:
    function = click.option("--by", metavar="WHO", help="Who asks; it is recorded.")(function)
    return click.option("--reason", metavar="TEXT", default="", help="Why; it is recorded.")(
        function
    )


def where_option(function: F) -> F:
    return click.option(
        "--where", multiple=True, metavar="K=V", help="All runs that this finds (status, definition, an attribute, …), not one."
    )(function)  # fmt: skip


async def _tell_owner(session: Session, id: str) -> None:
    """What was asked is on disk; who will do it?"""
    owner = await session.owner()
    if owner is None:
        say(
            f"note: {owner_text(None)}; what was asked is kept, and done as soon as one does: "
            + serve_text(session.url)
        )


@click.command("start", short_help="Start a run and leave it to whoever executes the runs.")
@click.argument("definition", metavar="DEFINITION|FILE")
@click.option(
    "-i",
    "--input",
    "inputs",
    multiple=True,
    metavar="JSON|@FILE|K=V",
    help="The run's input; may be repeated.",
)
@click.option(
    "--inputs",
    "file",
    metavar="FILE.jsonl",
    help="Start a run for each line of this file, its input as JSON; - is stdin.",
)
@click.option(
    "--id",
    "id",
    metavar="ID",
    help="Of the run; a random one if left out. With --inputs: ID-1, ID-2, … in their order.",
)
@click.option("--version", metavar="VERSION", help="Of the definition; the newest if left out.")
@click.option("--priority", type=click.Choice(["high", "normal", "low"]), help="Of the run.")
@click.option("--delay", metavar="DURATION", help="Begin only then, such as 10m.")
@click.option(
    "--attr",
    "attributes",
    multiple=True,
    metavar="K=V",
    help="An attribute to find it by; may be repeated.",
)
@click.option("--key", metavar="TEXT", help="A business key, to find it by.")
@click.option(
    "--if-exists",
    type=click.Choice(["attach", "reject", "replace", "after-close"]),
    default="attach",
    show_default=True,
    help="What to do with a run of that id.",
)
@click.option("--by", metavar="WHO", help="Who starts it; it is recorded.")
@force_option
@strict_option
@json_option
@store_option
def start_command(
    definition: str, inputs: tuple[str, ...], file: str | None, id: str | None, version: str | None, priority: str | None,
    delay: str | None, attributes: tuple[str, ...], key: str | None, if_exists: str, by: str | None, force: str | None,
    strict: bool, as_json: bool, url: str,
) -> int:  # fmt: skip
    """Start a run and leave it to whoever executes the database's runs; prints its id.

    \b
    Example:
      penstock start order -i '{"sku": "A1"}' --id order-7 --attr region=eu
      penstock start order.yaml -i @order.json
      penstock start order --inputs orders.jsonl --id import-7

    A file is registered first. The same id with the same input starts once, however often it is asked.
    """
    if file is not None and inputs:
        raise Problem("usage", "-i is the input of one run, --inputs has those of many", place="-i")
    given = parse_inputs(inputs) if file is None else parse_lines(file, "--inputs")
    attrs = parse_pairs(attributes, "--attr")
    seconds = None if delay is None else _seconds(delay)

    async def work() -> int:
        from penstock.wiring import is_there

        name = definition
        loaded = read_definition(definition) if looks_like_file(definition) else None
        if loaded is not None and not await is_there(url):
            refused_early(loaded, [], force=force, strict=strict)
        async with opened(url, create=loaded is not None) as session:
            engine = session.engine
            if loaded is not None:
                kept = await engine.register(definition, by=by, force=force, strict=strict)
                tell_findings(kept.findings)
                name = kept.id
            options: dict[str, Any] = {
                "version": version, "priority": priority, "delay": seconds, "attributes": attrs, "created_by": by,
            }  # fmt: skip
            try:
                if file is not None:
                    ids = await start_lines(engine, name, given, id, options)
                else:
                    with explained(inputs):
                        run = await engine.start(
                            name, given, id=id, key=key, if_exists=if_exists, **options
                        )
                    ids = [run.id]
            except NotFound as error:
                rows = await (await session.store()).definitions()
                raise NotFound(error.message, hint=_meant(name, rows, url)) from error
            if not as_json:
                give("\n".join(ids)) if ids else None
            elif file is None:
                give_json({"id": ids[0], "definition": name})
            else:
                give_json({"ids": ids, "definition": name})
            owner = await session.owner()
            if owner is None:
                what = "the run begins" if file is None else "the runs begin"
                say(f"note: {owner_text(None)}; {what} as soon as one does: {serve_text(url)}")
            elif ids:
                say(f"{owner_text(owner)}; penstock show {quote(ids[-1])}{store_flag(url)}")
        return COMPLETED

    return perform(work())


def _meant(name: str, rows: list[DefinitionRow], url: str) -> str:
    """What there is instead of a definition, or of a version of it, that is not there."""
    versions = [row.version for row in rows if row.id == name]
    if versions:
        return f"it has version {', '.join(versions[-10:])}; without --version the newest is taken"
    known = sorted({row.id for row in rows})
    listed = f"registered: {', '.join(known[:10])}{', …' if len(known) > 10 else ''}; "
    return did_you_mean(name, known) or (
        f"{listed if known else ''}`penstock start FILE{store_flag(url)}` registers a file and starts it"
    )


def _seconds(text: str) -> float:
    from penstock.policy.durations import parse

    found = parse(text)
    if found is None:
        raise Problem(
            "usage", f"`{text}` is not a duration", place="--delay", hint="--delay 30s, 10m or 2h"
        )
    return float(found)


@click.command("signal")
@click.argument("id")
@click.argument("name")
@click.argument("payload", required=False, metavar="[JSON]")
@click.option("--by", metavar="WHO", help="Who sends it; it is recorded.")
@click.option("--message-id", default="", metavar="ID", help="Makes a repeat harmless.")
@store_option
def signal_command(
    id: str, name: str, payload: str | None, by: str | None, message_id: str, url: str
) -> int:
    """Send a signal into a run.

    \b
    Example:
      penstock signal order-7 approve true
      penstock signal order-7 comment '"well done"' --by ann
    """
    value = None if payload is None else parse_value(payload, "JSON")

    async def work(run: Run) -> str:
        await run.signal(name, value, by=by, message_id=message_id)
        return f"signal {name} is in the history of run {id}"

    return act_on(id, url, work)


@click.command("submit")
@click.argument("id")
@click.argument("key", metavar="TASK")
@click.argument("data", metavar="JSON")
@click.option("--by", metavar="WHO", help="Who fills it in; it is recorded.")
@store_option
def submit_command(id: str, key: str, data: str, by: str | None, url: str) -> int:
    """Fill in the form that a task waits for.

    \b
    Example:
      penstock submit doc-3 'review[1]/review' '{"decision": "approve"}' --by ann
    """
    value = parse_value(data, "JSON")

    async def work(run: Run) -> str:
        await run.submit(key, value, by=by)
        return f"form {key} of run {id} is filled in"

    return act_on(id, url, work)


@click.command("pause")
@click.argument("id", required=False)
@where_option
@act_options
@store_option
def pause_command(
    id: str | None, where: tuple[str, ...], by: str | None, reason: str, url: str
) -> int:
    """Begin nothing new in a run until it is resumed.

    \b
    Example:
      penstock pause order-7 --by ann --reason "stock count"
    """

    if where or id is None:
        from penstock.cli.control import on_many

        return on_many("pause", id, where, by, reason, url)

    async def work(run: Run) -> str:
        await run.pause(by=by, reason=reason)
        return f"run {id} is paused; penstock resume {quote(id)}{store_flag(url)}"

    return act_on(id, url, work)


@click.command("resume")
@click.argument("id", required=False)
@where_option
@act_options
@store_option
def resume_command(
    id: str | None, where: tuple[str, ...], by: str | None, reason: str, url: str
) -> int:
    """Let a paused run go on.

    \b
    Example:
      penstock resume order-7
    """

    if where or id is None:
        from penstock.cli.control import on_many

        return on_many("resume", id, where, by, reason, url)

    async def work(run: Run) -> str:
        await run.resume(by=by, reason=reason)
        return f"run {id} goes on"

    return act_on(id, url, work)


@click.command("cancel")
@click.argument("id", required=False)
@where_option
@act_options
@store_option
def cancel_command(
    id: str | None, where: tuple[str, ...], by: str | None, reason: str, url: str
) -> int:
    """Ask a run to stop and to undo what it has done.

    \b
    Example:
      penstock cancel order-7 --by ann --reason "ordered twice"
      penstock cancel --where definition=order --where status=open --where region=eu --by ann
    """

    if where or id is None:
        from penstock.cli.control import on_many

        return on_many("cancel", id, where, by, reason, url)

    async def work(run: Run) -> str:
        await run.cancel(by=by, reason=reason)
        return f"run {id} is asked to stop and undoes what it has done; penstock show {quote(id)}{store_flag(url)}"

    return act_on(id, url, work)


@click.command("terminate")
@click.argument("id", required=False)
@where_option
@act_options
@store_option
def terminate_command(
    id: str | None, where: tuple[str, ...], by: str | None, reason: str, url: str
) -> int:
    """End a run at once; nothing is undone.

    \b
    Example:
      penstock terminate order-7 --by ann --reason "stuck, undone by hand"
    """

    if where or id is None:
        from penstock.cli.control import on_many

        return on_many("terminate", id, where, by, reason, url)

    async def work(run: Run) -> str:
        await run.terminate(by=by, reason=reason)
        return f"run {id} is terminated; nothing was undone"

    return act_on(id, url, work)


async def _with_hint(error: Rejected, run: Run, url: str) -> Rejected:
    """What can be done instead, where the refusal does not say it."""
    if error.hint and error.code != "task-not-waiting":  # of which we know more
        return error
    id, flag = quote(run.id), store_flag(url)
    if error.code == "run-closed":
        hint = f"penstock show {id}{flag} shows how it ended; penstock start starts another"
    elif error.code in ("task-not-waiting", "not-a-form"):
        waits = [each for each in await run.why() if each.kind != "owner"]
        forms = [each.key for each in waits if each.kind == "form"]
        hint = (
            f"these forms wait: {', '.join(quote(key) for key in forms[:8])}"
            if forms
            else f"no form waits in it, but {'; '.join(each.message for each in waits[:4]) or 'nothing'}"
            f" (penstock why {id}{flag})"
        )
    else:
        hint = f"penstock explain {error.code}"
    return Rejected(error.code, error.message, hint=hint)


def act_on(id: str, url: str, work: Callable[[Run], Any]) -> int:
    async def acting() -> int:
        async with opened(url) as session:
            run = await session.get(id)
            try:
                said = await work(run)
            except Rejected as error:
                raise await _with_hint(error, run, url) from error
            say(said)
            if await run.status() not in (
                "COMPLETED",
                "FAILED",
                "CANCELLED",
                "TERMINATED",
                "TIMED_OUT",
                "CONTINUED",
            ):
                await _tell_owner(session, id)
        return COMPLETED

    return perform(acting())
