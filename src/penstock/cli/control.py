"""Control beyond the plain acts: `retry`, `reset`, `fire`, `skip`, `fail`, `undo`, `attributes`, `complete`, `batches`, `paused`."""

from __future__ import annotations

import time
from collections.abc import Callable
from difflib import get_close_matches
from shlex import quote
from typing import TYPE_CHECKING, Any, TypeVar

import click

from penstock.cli.humane import left, pace
from penstock.cli.inputs import parse_pairs, parse_status, parse_value
from penstock.cli.output import COMPLETED, Problem, give, give_json, say, table
from penstock.cli.runs import act_on, act_options
from penstock.cli.session import json_option, opened, owner_text, perform, store_flag, store_option
from penstock.errors import Rejected

if TYPE_CHECKING:
    from penstock.model.preview import Preview
    from penstock.ports.batches import Batch
    from penstock.sdk.client import Run

F = TypeVar("F", bound=Callable[..., Any])
ATTRIBUTE = "attributes."
"""Before the name of an attribute that looks like a field."""
NEAR = 0.8
"""So alike a field is mistyped; `region` is not `version`."""
FIELDS = {"status": "status", "definition": "definition", "version": "version", "prefix": "id_prefix", "parent": "parent"}  # fmt: skip
"""What `--where` knows beside attributes."""


@click.command("retry")
@click.argument("id", required=False)
@click.option("--task", metavar="KEY", help="Begin with this task instead of what failed.")
@click.option(
    "--where", multiple=True, metavar="K=V", help="All runs that this finds, instead of one."
)
@act_options
@store_option
def retry_command(
    id: str | None, task: str | None, where: tuple[str, ...], by: str | None, reason: str, url: str
) -> int:
    """Try again what a run failed at; what was done is kept.

    \b
    Example:
      penstock retry order-7 --by ann --reason "the bank is up again"
      penstock retry order-7 --task charge
      penstock retry --where status=FAILED --where definition=order

    The run goes on in another generation, under the same id. Tasks that compensation has undone are done again.
    """
    if where or id is None:
        arguments = {} if task is None else {"task": task}
        return on_many("retry", id, where, by, reason, url, arguments)

    async def work(run: Run) -> str:
        generation = await run.retry(task, by=by, reason=reason)
        return f"run {id} goes on as generation {generation}; penstock show {quote(id)}{store_flag(url)}"

    return act_on(id, url, work)


@click.command("reset")
@click.argument("id")
@click.option("--to", "to", type=int, required=True, metavar="N", help="The event to go on from.")
@click.option("--confirm", "token", metavar="TOKEN", default="", help="What the preview gave.")
@click.option(
    "--exclude", multiple=True, metavar="NAME", help="A later signal that is not given again."
)
@click.option("--undo", is_flag=True, help="Undo what was done later, before the run goes on.")
@act_options
@store_option
def reset_command(
    id: str, to: int, token: str, exclude: tuple[str, ...], undo: bool, by: str | None, reason: str, url: str
) -> int:  # fmt: skip
    """Go on from an earlier event of a run, in another generation.

    \b
    Example:
      penstock reset order-7 --to 12            shows what that leaves behind, and a token
      penstock reset order-7 --to 12 --confirm 4f1d09a2b3c4d5e6 --by ann --reason "wrong price"

    `penstock history` numbers the events. Without a token nothing is done. Children started later are stopped, later signals are given again; what else happened
    later stays as it is, unless --undo.
    """

    async def work(run: Run) -> str:
        if not token:
            preview = await run.preview(to)
            show_preview(preview)
            return f"nothing is done yet; penstock reset {quote(id)} --to {to} --confirm {preview.token}{store_flag(url)}"
        try:
            generation = await run.reset(
                to, token=token, by=by, reason=reason, exclude=exclude, undo=undo
            )
        except Rejected as error:
            if error.code != "preview-stale":
                raise
            raise Rejected(
                error.code, f"`{token}` is not the token of a reset to event {to}, or the run has moved since; nothing is done",
                hint=f"penstock reset {quote(id)} --to {to}{store_flag(url)} shows what it leaves behind, and the token",
            ) from error  # fmt: skip
        return f"run {id} goes on from event {to} as generation {generation}"

    return act_on(id, url, work)


def show_preview(preview: Preview) -> None:
    words = {
        "task": "done", "child": "started run", "signal": "sent", "publish": "published to", "undone": "undone, and kept as done",
    }  # fmt: skip
    rows = [
        (str(each.seq), each.key, f"{words[each.kind]} {each.name}".strip(), "can be undone" if each.undoable else "")
        for each in preview.consequences
    ]  # fmt: skip
    if rows:
        table(("EVENT", "TASK", "WHAT HAPPENED", ""), rows)
    else:
        say("nothing happened after that event that would stay")
    if preview.signals:
        say(f"given again: {', '.join(preview.signals)}")
    if preview.children:
        say(f"stopped: {', '.join(preview.children)}")


def _wait_command(act: str, short: str, text: str, example: str) -> click.Command:
    @click.command(act, short_help=short, help=f"{text}\n\n\b\nExample:\n  {example}")
    @click.argument("id")
    @click.argument("key", metavar="TASK")
    @act_options
    @store_option
    def command(id: str, key: str, by: str | None, reason: str, url: str) -> int:
        async def work(run: Run) -> str:
            await getattr(run, act)(key, by=by, reason=reason)
            done = {"fire": "fired", "skip": "skipped", "fail": "failed"}[act]
            return f"{key} of run {id} is {done}"

        return act_on(id, url, work)

    return command


fire_command = _wait_command(
    "fire",
    "Let a timer, or the next attempt of a task, not wait.",
    "Let a timer, or the next attempt of a task, not wait for its time.",
    'penstock fire order-7 charge --by ann --reason "the bank is up again"',
)
skip_command = _wait_command(
    "skip",
    "Do not wait any more: the task counts as skipped.",
    "Do not wait any more: the task counts as skipped, and the run goes on.",
    "penstock skip order-7 reminder --by ann",
)
fail_command = _wait_command(
    "fail",
    "Do not wait any more: the task has failed.",
    "Do not wait any more: the task has failed, and its error links are taken.",
    'penstock fail order-7 approval --by ann --reason "nobody answers"',
)


@click.command("undo", short_help="Decide about an undo that failed.")
@click.argument("id")
@click.argument("key", metavar="TASK")
@click.argument("act", type=click.Choice(["accept", "skip", "retry"]))
@act_options
@store_option
def undo_command(id: str, key: str, act: str, by: str | None, reason: str, url: str) -> int:
    """Decide about an undo that failed: accept (it was undone by hand), skip (leave it as it is), or retry.

    \b
    Example:
      penstock undo order-7 charge accept --by ann --reason "refunded by hand"

    `penstock why` lists the undos that wait for a decision.
    """

    async def work(run: Run) -> str:
        await run.resolve_undo(key, act, by=by, reason=reason)
        return f"the undo of {key} of run {id}: {act}"

    return act_on(id, url, work)


@click.command("attributes")
@click.argument("id")
@click.argument("values", nargs=-1, required=True, metavar="K=V…")
@act_options
@store_option
def attributes_command(
    id: str, values: tuple[str, ...], by: str | None, reason: str, url: str
) -> int:
    """Change the attributes that a run is found by; K=null removes one.

    \b
    Example:
      penstock attributes order-7 region=us tier=null --by ann
    """
    pairs = parse_pairs(values, "K=V")

    async def work(run: Run) -> str:
        await run.set_attributes(pairs, by=by, reason=reason)
        return f"attributes of run {id} are changed"

    return act_on(id, url, work)


@click.command("complete", short_help="Complete an attempt from outside, by its token.")
@click.argument("token")
@click.argument("value", required=False, metavar="[JSON]")
@click.option("--fail", "failure", metavar="TEXT", help="It failed instead; why.")
@store_option
def complete_command(token: str, value: str | None, failure: str | None, url: str) -> int:
    """Complete an attempt that waits for it from outside, by the token that its activity gave away.

    \b
    Example:
      penstock complete WyJvcmRlci03IiwxLCJwYXkiLDFd '{"paid": true}'
      penstock complete WyJvcmRlci03IiwxLCJwYXkiLDFd --fail "card declined"
    """
    given = None if value is None else parse_value(value, "JSON")

    async def work() -> int:
        async with opened(url) as session:
            if failure is None:
                await session.engine.complete(token, given)
            else:
                await session.engine.fail(token, failure)
            say("the attempt is " + ("completed" if failure is None else "failed"))
        return COMPLETED

    return perform(work())


@click.command("paused")
@click.argument("definition", required=False)
@click.option("--on", is_flag=True, help="Begin nothing of its runs.")
@click.option("--off", is_flag=True, help="Let them go on.")
@act_options
@json_option
@store_option
def paused_command(
    definition: str | None, on: bool, off: bool, by: str | None, reason: str, as_json: bool, url: str
) -> int:  # fmt: skip
    """Show which definitions are paused, pause one, or let it go on.

    \b
    Example:
      penstock paused
      penstock paused order --on --by ann --reason "the bank is down"
      penstock paused order --off

    While a definition is paused no attempt of its runs begins; new runs are taken, and wait.
    """
    if on and off:
        raise Problem("usage", "--on or --off, not both")
    if (on or off) and definition is None:
        turn = "--on" if on else "--off"
        raise Problem("usage", "which definition?", hint=f"penstock paused DEFINITION {turn}")

    async def work() -> int:
        async with opened(url) as session:
            engine = session.engine
            if definition is not None:
                await engine.definition(definition)  # NotFound if there is none
            if on:
                await engine.pause_definition(definition or "", by=by, reason=reason)
            elif off:
                await engine.resume_definition(definition or "", by=by, reason=reason)
            found = [
                each
                for each in await engine.paused_definitions()
                if definition in (None, each.definition)
            ]
        if as_json:
            give_json(found)
        elif found:
            table(
                ("DEFINITION", "BY", "REASON"),
                [(e.definition, e.by or "", e.reason) for e in found],
            )
        else:
            word = "goes on" if off else "is not paused"
            say("no definition is paused" if definition is None else f"{definition} {word}")
        return COMPLETED

    return perform(work())


# --- many runs -----------------------------------------------------------------------------------------------


@click.command("batches", short_help="Show the acts on many runs; stop one, or let it go on.")
@click.argument("id", required=False)
@click.option("--stop", is_flag=True, help="Go no further; what is done is done.")
@click.option("--go-on", "resume", is_flag=True, help="Go on with one that was stopped.")
@json_option
@store_option
def batches_command(id: str | None, stop: bool, resume: bool, as_json: bool, url: str) -> int:
    """Show the acts on many runs and how far they have come; stop one, or let it go on.

    \b
    Example:
      penstock batches
      penstock batches 4f1d09a2b3c4 --stop

    One is begun by `penstock cancel --where definition=order --where region=eu --by ann`.
    """
    if (stop or resume) and id is None:
        raise Problem("usage", "which batch?", hint="penstock batches lists them")

    async def work() -> int:
        async with opened(url) as session:
            batches = session.engine.batches
            if id is None:
                found = await batches.list()
            elif stop:
                found = [await batches.stop(id)]
            elif resume:
                found = [await batches.resume(id)]
            else:
                found = [await batches.get(id)]
        if as_json:
            give_json(found)
        else:
            show_batches(found, now=time.time())
        return COMPLETED

    return perform(work())


def show_batches(found: list[Batch], *, now: float) -> None:
    if not found:
        say("there are none")
        return
    rows = [
        (each.id, each.act, each.state, f"{each.seen:,} of {each.total:,}", *_pace(each, now), f"{each.done:,}",
         _refused(each), each.by or "")
        for each in found
    ]  # fmt: skip
    table(("BATCH", "ACT", "STATE", "RUNS", "RATE", "LEFT", "DONE", "REFUSED", "BY"), rows)
    if len(found) == 1:
        for each in found[0].examples:
            say(f"{each.run}: {each.code}: {each.message}")


def _pace(batch: Batch, now: float) -> tuple[str, str]:
    """How fast it goes or went, and how long it has to go yet."""
    from penstock.ports.batches import STOPPED

    if batch.state == STOPPED:
        return "-", "-"
    done, seconds = batch.pace(now)
    return pace(done, seconds), left(done, batch.total - batch.seen, seconds)


def _refused(batch: Batch) -> str:
    return ", ".join(f"{count} {code}" for code, count in batch.refused.items())


def on_many(
    act: str, id: str | None, where: tuple[str, ...], by: str | None, reason: str, url: str,
    arguments: dict[str, Any] | None = None,
) -> int:  # fmt: skip
    """An act on all runs that a filter finds, done by whoever executes the runs."""
    if not where:
        raise Problem(
            "usage", "which run? Name one, or say which with --where", hint=f"penstock {act} ID"
        )
    if id is not None:
        raise Problem("usage", "name a run or say --where, not both")
    query: dict[str, Any] = {}
    attributes: dict[str, Any] = {}
    for name, value in parse_pairs(where, "--where").items():
        if name == "status":
            query[name] = parse_status(str(value), "--where")
        elif name in FIELDS:
            query[FIELDS[name]] = str(value)
        elif name.startswith(ATTRIBUTE):
            attributes[name.removeprefix(ATTRIBUTE)] = value
        elif meant := get_close_matches(name, FIELDS, n=1, cutoff=NEAR):
            raise Problem(
                "usage", f"`{name}` is no field of a run", place="--where",
                hint=f"did you mean `{meant[0]}`? An attribute of that name is {ATTRIBUTE}{name}",
            )  # fmt: skip
        else:
            attributes[name] = value

    async def work() -> int:
        async with opened(url) as session:
            batch = await session.engine.batch(
                act, by=by, reason=reason, arguments=arguments or {}, attributes=attributes, **query
            )
            owner = await session.owner()
            give(batch.id)
            said = f"{batch.total:,} runs are found; "
            if owner is None:
                say(said + owner_text(None) + "; it begins as soon as one does")
            else:
                say(
                    said + f"penstock batches {batch.id}{store_flag(url)} shows how far it has come"
                )
        return COMPLETED

    return perform(work())
