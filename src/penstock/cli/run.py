"""`penstock run`: an engine in this process, one run, and its progress before one's eyes."""

from __future__ import annotations

import re
import sys
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.definitions import force_option, strict_option
from penstock.cli.session import perform, store_option

if TYPE_CHECKING:
    import asyncio

    from penstock.cli.follow import Followed
    from penstock.cli.live import Plain
    from penstock.ports.store import Row
    from penstock.sdk.client import Engine, Run

NEAR_RUNS = 500
DRAIN_SECONDS = 10.0
"""For attempts that are under way when we are asked to stop."""


@click.command("run")
@click.argument("file", metavar="FILE|WORKFLOW")
@click.option(
    "--app",
    metavar="FILE|MODULE[:ATTR]",
    help="Where the activities and workflows are: a Python file or a module.",
)
@click.option(
    "-i",
    "--input",
    "inputs",
    multiple=True,
    metavar="JSON|@FILE|K=V",
    help="The run's input; may be repeated.",
)
@click.option("--id", "id", metavar="ID", help="Of the run; the definition's own id if left out.")
@click.option("--by", metavar="WHO", help="Who starts it.")
@click.option(
    "--again",
    is_flag=True,
    help="If the run of that id has ended, start the next: ID-2, ID-3, and so on.",
)
@click.option("--plain", is_flag=True, help="Lines instead of a picture.")
@force_option
@strict_option
@store_option
def run_command(
    file: str, app: str | None, inputs: tuple[str, ...], id: str | None, by: str | None, again: bool, plain: bool,
    force: str | None, strict: bool, url: str,
) -> int:  # fmt: skip
    """Run a definition, or a workflow function, here and watch it.

    \b
    Example:
      penstock run order.yaml --app shop.py -i '{"sku": "A1"}'
      penstock run order.yaml --app shop.py -i sku=A1 -i cents=1999 --id order-7
      penstock run refund --app shop.py -i payment=p-1

    The last runs the function `refund` that `@workflow` has marked in shop.py; -i gives its arguments by name.

    Started again, after Ctrl-C, kill -9 or a power cut, it continues the open run. One that has ended is shown as it
    ended if --id names it; without --id, or with --again, the next one is started: order-2, order-3, and so on. The
    result goes to stdout. Exit status: 0 completed, 1 failed, 2 usage, 3 refused, 4 unreachable.
    """
    return perform(_run(file, app, inputs, id, by, again, plain, force, strict, url))


async def _run(
    file: str, app: str | None, inputs: tuple[str, ...], id: str | None, by: str | None, again: bool, plain: bool,
    force: str | None, strict: bool, url: str,
) -> int:  # fmt: skip
    from penstock.cli.app import load_app, load_workflows, served_by
    from penstock.cli.definitions import (
        looks_like_file,
        read_definition,
        refused_early,
        tell_findings,
    )
    from penstock.cli.inputs import explained, parse_inputs
    from penstock.cli.output import INTERRUPTED, paint, say
    from penstock.cli.session import engine_of, on_interrupt, store_flag
    from penstock.cli.voice import keep_infos
    from penstock.engine.engine import Settings
    from penstock.wiring import is_there

    given = parse_inputs(inputs)
    activities = load_app(app) if app else []
    workflows = load_workflows(app, needed=False) if app else []
    keep_infos()
    # What is wrong is said before a database is made.
    function = (
        None
        if looks_like_file(file) and not file.endswith(".py")
        else _function(file, app, workflows)
    )
    if function is None:
        loaded = read_definition(file, served_by(activities), app)
        if not await is_there(url):
            refused_early(loaded, activities, force=force, strict=strict)
    stop = on_interrupt()
    settings = Settings(drain_seconds=DRAIN_SECONDS)
    async with engine_of(
        url, activities=activities, workflows=workflows, settings=settings
    ) as engine:
        name = file
        if function is None:
            kept = await engine.register(file, by=by, force=force, strict=strict)
            tell_findings(kept.findings)
            name = kept.id
        with explained(inputs):
            run, note = await _begin(engine, name, given, id, by, again or id is None)
        followed = await _watch(engine, run, url, stop, note, plain)
        if followed.closed:
            return await _ended(run, followed, url, again)
        say(f"stopping: what is under way gets {DRAIN_SECONDS:.0f} s to end, and is recorded")
    flag = store_flag(url)
    say(f"stopped; run {run.id} stays open and nothing of it is lost")
    say(
        f"{paint('next', 'hint')}: the same command goes on from here; penstock why {quote(run.id)}{flag}"
    )
    return INTERRUPTED


def _function(name: str, app: str | None, workflows: list[Any]) -> Any:
    """The workflow function of that name; None if it is a file that is meant."""
    from pathlib import Path

    from penstock.cli.output import Problem
    from penstock.cli.words import did_you_mean
    from penstock.sdk.functions import workflow_of

    known = {workflow_of(each).name: each for each in workflows}
    if name in known:
        return known[name]
    if name.endswith(".py"):
        raise Problem(
            "usage", f"{name} is a Python file, not a definition",
            hint=f"penstock run WORKFLOW --app {quote(name)} runs a workflow function that is in it",
        )  # fmt: skip
    if not known or Path(name).exists() or "/" in name:
        return None
    raise Problem(
        "usage", f"there is no file {name}, and no workflow of that name in {app}",
        hint=did_you_mean(name, known) or f"it has: {', '.join(sorted(known)[:10])}",
    )  # fmt: skip


async def _begin(
    engine: Engine, definition: str, given: Any, id: str | None, by: str | None, again: bool
) -> tuple[Run, str]:
    """The open run of that id, or a new one; and what is to be said about it."""
    from penstock.errors import Rejected

    base = id or definition
    newest = await _newest(engine, base) if again else None
    if newest is None:
        newest = next(
            (row for row in await engine.list(id_prefix=base, limit=NEAR_RUNS) if row.id == base),
            None,
        )
    if newest is None:
        return await engine.start(definition, given, id=base, created_by=by), ""
    if newest.open or not again:
        said = (
            f"continues run {newest.id}"
            if newest.open
            else f"run {newest.id} has ended; --again starts the next"
        )
        if given is None and newest.definition == definition:
            return await engine.get(newest.id), said
        try:
            return await engine.start(definition, given, id=newest.id), said
        except Rejected as error:
            if error.code != "id-taken" or id is not None:
                raise
    number = int(newest.id[len(base) + 1 :] or 1) + 1
    run = await engine.start(definition, given, id=f"{base}-{number}", created_by=by)
    before = "is open with another input" if newest.open else f"has ended {newest.status}"
    return run, f"run {newest.id} {before}; this is {run.id}"


async def _newest(engine: Engine, base: str) -> Row | None:
    """Of `demo`, `demo-2`, `demo-3`, … the last."""
    pattern = re.compile(rf"{re.escape(base)}(?:-(\d{{1,9}}))?")
    numbered = [
        (int(match[1] or 1), row)
        for row in await engine.list(id_prefix=base, limit=NEAR_RUNS)
        if (match := pattern.fullmatch(row.id))
    ]
    return max(numbered, key=lambda pair: pair[0])[1] if numbered else None


async def _watch(
    engine: Engine, run: Run, url: str, stop: asyncio.Event, note: str, plain: bool
) -> Followed:
    import asyncio

    from penstock.cli.follow import Followed
    from penstock.cli.live import Plain, View, show_live
    from penstock.cli.output import console, paint, say
    from penstock.cli.session import Session, alive, owner_text

    if note:
        say(paint(note, "detail"))
    session = Session(engine, url)
    try:
        view = await run.show()
        followed = Followed(run.id, await session.plan(view.definition, view.version))
    finally:
        await session.close()
    owner = await engine.owner()
    import os

    elsewhere = owner is not None and alive(owner) and owner.pid != os.getpid()
    if elsewhere:
        say(f"{paint('note', 'hint')}: {owner_text(owner)}; this one stands by")
    lively = not plain and sys.stdout.isatty() and sys.stderr.isatty()
    lines = None if lively else Plain(followed, url)
    following = asyncio.ensure_future(_follow(engine, run, followed, lines))
    stopping = asyncio.ensure_future(stop.wait())
    try:
        if lively:
            hint = "Ctrl-C stops; the same command goes on from here"
            shown = View(followed, url, note=hint)
            drawing = asyncio.ensure_future(show_live(shown, console(), stop))
            await asyncio.wait([following, stopping], return_when=asyncio.FIRST_COMPLETED)
            if following.done() and following.exception() is not None:
                stop.set()
            await drawing
        else:
            await asyncio.wait([following, stopping], return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        if not following.done():
            following.cancel()
        outcome = (await asyncio.gather(following, return_exceptions=True))[0]
    if isinstance(outcome, Exception):
        raise outcome
    return followed


async def _follow(engine: Engine, run: Run, followed: Followed, lines: Plain | None) -> None:
    import asyncio

    waiting: asyncio.TimerHandle | None = None
    async for change in run.watch():
        await followed.follow(change.seq, change.event, engine.definition)
        if lines is not None:
            lines.line(followed.lines[-1])
            if waiting is not None:
                waiting.cancel()
            waiting = asyncio.get_running_loop().call_later(0.2, lines.idle)
    if waiting is not None:
        waiting.cancel()


async def _ended(run: Run, followed: Followed, url: str, again: bool) -> int:
    from penstock.cli.humane import duration
    from penstock.cli.output import COMPLETED, FAILED, give_json, paint, say, visible
    from penstock.cli.session import store_flag

    id, flag = quote(run.id), store_flag(url)
    state = followed.run
    took = duration((state.ended_at or state.updated_at) - state.created_at)
    say()
    say(
        f"{paint(state.status, state.status.lower())} in {took}: {state.tasks_done} {'task' if state.tasks_done == 1 else 'tasks'}, {state.revision} events"
    )
    if state.status == "COMPLETED":
        give_json(await run.result())
        say(
            f"{paint('next', 'hint')}: penstock history {id}{flag}\n      penstock graph {id}{flag}"
        )
        if again:
            say("      once more, and kill -9 it half way: started again, it goes on where it was")
        return COMPLETED
    failure = state.failure
    if failure is not None:
        # Of an exception with a code of its own, that is its name.
        told = failure.typed if failure.code == "error" else failure.text
        say(f"{paint(f'error[{failure.code}]', 'error')}: {visible(told)}")
        if failure.key:
            say(f"  {paint('-->', 'arrow')} task {visible(failure.key)}")
        for line in failure.trace.splitlines():
            say(f"  {paint(visible(line), 'detail')}")
        cause = failure.cause
        while cause is not None:
            message = f": {visible(cause.message)}" if cause.message else ""
            say(f"  because of {visible(cause.type or cause.code)}{message}")
            cause = cause.cause
        if failure.hint:
            say(f"{paint('hint', 'hint')}: {visible(failure.hint)}")
    say(f"{paint('next', 'hint')}: penstock history {id}{flag}")
    return FAILED
