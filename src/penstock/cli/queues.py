"""`queues`: every queue with its limits and what waits in it; changes one while it works (SPEC 4.10)."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.humane import duration
from penstock.cli.output import COMPLETED, Problem, give_json, say, table
from penstock.cli.runs import act_options
from penstock.cli.session import json_option, opened, owner_text, perform, store_flag, store_option

if TYPE_CHECKING:
    from penstock.model.queue import QueueView

NONE = "none"
WHOLE = ("limit", "burst", "depth", "reserve", "reserve_high")


@click.command("queues")
@click.argument("name", required=False)
@click.option("--limit", metavar="N", help="Attempts at one time; none: only the node's own limit.")
@click.option("--rate", metavar="N", help="Attempts begun per second; none: any number.")
@click.option("--burst", metavar="N", help="So many may begin at once after a quiet time.")
@click.option("--depth", metavar="N", help="So many may wait before starts are refused.")
@click.option("--reserve", metavar="N", help="Places of the node that are kept for it.")
@click.option("--reserve-high", metavar="N", help="Places of its limit kept for high priority.")
@click.option(
    "--longest-wait", metavar="DURATION", help="Then every second place goes to the oldest."
)
@click.option("--weight", metavar="N", help="Its share of places while others wait too.")
@act_options
@json_option
@store_option
def queues_command(
    name: str | None, by: str | None, reason: str, as_json: bool, url: str, **given: str | None
) -> int:
    """Show the queues, or change one while it works.

    \b
    Example:
      penstock queues
      penstock queues mail --limit 5 --rate 50 --by ann --reason "the server is slow"
      penstock queues mail --rate none
    """
    options = {field: _value(field, text) for field, text in given.items() if text is not None}
    if options and name is None:
        raise Problem("usage", "which queue?", hint="penstock queues NAME --limit 5")

    async def work() -> int:
        async with opened(url) as session:
            engine = session.engine
            if options:
                assert name is not None
                await engine.set_queue(name, by=by, reason=reason, **options)
            views = await engine.queues()
            owner = await session.owner()
        if name is not None:
            views = [view for view in views if view.name == name]
            if not views:
                raise Problem(
                    "usage", f"no queue `{name}` is known",
                    hint=f"penstock queues {quote(name)} --limit 5{store_flag(url)} makes it; a task names it by `queue: {name}`",
                )  # fmt: skip
        if as_json:
            give_json(views)
        elif views:
            _show(views)
        else:
            say("no queues yet: whoever executes the runs has not said how they stand")
        if options:
            say(
                f"queue {name} is changed"
                + ("" if owner else "; in force when a process executes the runs")
            )
        elif not as_json:
            say(
                owner_text(owner)
                + ("" if owner else "; what is shown is what the last one wrote down")
            )
        return COMPLETED

    return perform(work())


def _value(field: str, text: str) -> Any:
    from penstock.policy.durations import seconds

    if text == NONE:
        return None
    try:
        if field == "longest_wait":
            return seconds(text)
        return int(text) if field in WHOLE else float(text)
    except ValueError:
        option, example = f"--{field.replace('_', '-')}", "5m" if field == "longest_wait" else "5"
        kind = (
            "a duration"
            if field == "longest_wait"
            else "a whole number"
            if field in WHOLE
            else "a number"
        )
        raise Problem(
            "usage", f"`{text}` is not {kind}, nor `none`", place=option, hint=f"{option} {example}"
        ) from None


def _show(views: list[QueueView]) -> None:
    table(
        ("QUEUE", "RUNNING", "LIMIT", "WAITING", "OLDEST", "RATE", "DEPTH", "RESERVE", "CHANGED BY"),
        [
            (
                view.name, str(view.running), "-" if view.limit is None else str(view.limit), str(view.waiting),
                duration(view.oldest_wait) if view.waiting else "-", "-" if view.rate is None else f"{view.rate:g}/s",
                str(view.depth), str(view.reserve), (view.by or "") + (f": {view.reason}" if view.reason else ""),
            )
            for view in views
        ],
    )  # fmt: skip
