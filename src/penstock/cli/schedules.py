"""`penstock schedule`: when runs start by themselves; each act records who and why."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.inputs import explained, parse_inputs, parse_pairs
from penstock.cli.output import COMPLETED, Problem, brief, give, give_json, paint, say, table
from penstock.cli.runs import act_options
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
from penstock.errors import NotFound, Rejected

if TYPE_CHECKING:
    from datetime import datetime

    from penstock.ports.schedules import ScheduleView

OVERLAP = click.Choice(["skip", "buffer", "cancel-other", "allow"])


class Acts(click.Group):
    """Its commands, in the order of a schedule's life."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            from penstock.cli.words import did_you_mean

            raise Problem(
                "usage", f"there is no command `schedule {args[0]}`",
                hint=did_you_mean(args[0], self.commands) or "penstock schedule --help shows them all",
            )  # fmt: skip
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, each.get_short_help_str(90)) for name, each in self.commands.items()]
            )


@click.command("schedule", cls=Acts)
def schedule_command() -> None:
    """Start runs by calendar.

    \b
    Example:
      penstock schedule create nightly report --cron "0 2 * * *" --zone Europe/Berlin
      penstock schedule list
      penstock schedule backfill nightly 2026-03-01 2026-03-31
    """


@schedule_command.command("create")
@click.argument("id")
@click.argument("definition")
@click.option(
    "--cron", multiple=True, metavar="CRON", help="Such as '0 9 * * MON-FRI'; may be repeated."
)
@click.option("--every", metavar="DURATION", help="Such as 15m.")
@click.option("--offset", metavar="DURATION", help="Of --every: so long after the full interval.")
@click.option(
    "--at", "times", multiple=True, metavar="HH:MM", help="A time of day; may be repeated."
)
@click.option(
    "--on",
    "days",
    multiple=True,
    metavar="DAY",
    help="Of --at: MON, or 2026-12-24; may be repeated.",
)
@click.option("--zone", metavar="ZONE", help="Such as Europe/Berlin; UTC if left out.")
@click.option(
    "--exclude",
    multiple=True,
    metavar="DAY",
    help="A holiday: 2026-12-25, or 12-25 for every year.",
)
@click.option("--after", metavar="TIME", help="Nothing before.")
@click.option("--until", metavar="TIME", help="Nothing from then on.")
@click.option("--jitter", metavar="DURATION", help="Start up to so much late.")
@click.option(
    "--overlap", type=OVERLAP, default="skip", show_default=True, help="If a run of it is open."
)
@click.option(
    "--buffer",
    type=int,
    default=1,
    show_default=True,
    help="Starts that may wait, with --overlap buffer.",
)
@click.option(
    "--catch-up",
    metavar="DURATION",
    help="Make up for what was missed, so far back; 1d if left out.",
)
@click.option(
    "-i", "--input", "inputs", multiple=True, metavar="JSON|@FILE|K=V", help="The runs' input."
)
@click.option(
    "--version", metavar="VERSION", help="Of the definition; the newest at each start if left out."
)
@click.option("--priority", type=click.Choice(["high", "normal", "low"]), help="Of the runs.")
@click.option(
    "--attr", "attributes", multiple=True, metavar="K=V", help="An attribute of the runs."
)
@click.option("--paused", is_flag=True, help="Begin paused.")
@act_options
@json_option
@store_option
def create_command(
    id: str, definition: str, cron: tuple[str, ...], every: str | None, offset: str | None, times: tuple[str, ...],
    days: tuple[str, ...], zone: str | None, exclude: tuple[str, ...], inputs: tuple[str, ...],
    attributes: tuple[str, ...], as_json: bool, url: str, **rest: Any,
) -> int:  # fmt: skip
    """Start runs of a definition by cron, interval or times of day.

    \b
    Example:
      penstock schedule create nightly report --cron "0 2 * * *" --zone Europe/Berlin
      penstock schedule create tick sync --every 15m --overlap buffer
      penstock schedule create mail digest --at 09:00 --on MON --on THU --exclude 12-25
    """
    calendar: dict[str, Any] | None = None
    if times or days:
        calendar = {
            "times": list(times) or ["00:00"],
            "dates": [day for day in days if day[:1].isdigit()],
            "weekdays": [day for day in days if not day[:1].isdigit()],
        }
    if not cron and every is None and calendar is None:
        raise Problem(
            "usage", "when? Say --cron, --every or --at", hint="--every 15m, or --at 09:00 --on MON"
        )
    given = parse_inputs(inputs)
    attrs = parse_pairs(attributes, "--attr")

    async def work(session: Session) -> None:
        with explained(inputs):
            view = await session.engine.schedules.create(
                id, definition, given, cron=cron[0] if len(cron) == 1 else list(cron) or None, every=every, offset=offset,
                calendar=calendar, zone=zone, exclude=list(exclude) or None, attributes=attrs, **rest,
            )  # fmt: skip
        if as_json:
            give_json(_plain(view))
            return
        give(view.id)
        if view.next:
            say(f"first: {when(view.next[0])}; penstock schedule show {quote(id)}{store_flag(url)}")
        await _tell_owner(session)

    return _do(url, work)


@schedule_command.command("list")
@json_option
@store_option
def list_command(as_json: bool, url: str) -> int:
    """List schedules with when they fire next.

    \b
    Example:
      penstock schedule list
      penstock schedule list --json
    """

    async def work(session: Session) -> None:
        views = await session.engine.schedules.list()
        if as_json:
            give_json([_plain(view) for view in views])
            return
        rows = [
            (
                view.id, "PAUSED" if view.paused else "ACTIVE", view.definition, timing_text(view), view.overlap,
                str(view.counts.started), when(view.next[0]) if view.next else view.note or "never",
            )
            for view in views
        ]  # fmt: skip
        heads = ("ID", "STATE", "DEFINITION", "WHEN", "OVERLAP", "RUNS", "NEXT")
        table(heads, rows, styles=(None, "status", None, "detail", None, None, None))
        if not views:
            say("no schedules; penstock schedule create --help shows how to make one")

    return _do(url, work)


@schedule_command.command("show")
@click.argument("id")
@click.option(
    "--next",
    "many",
    type=click.IntRange(0, 1000),
    default=5,
    show_default=True,
    help="So many next times.",
)
@json_option
@store_option
def show_command(id: str, many: int, as_json: bool, url: str) -> int:
    """Show a schedule: when it fires next, its runs, who did what to it.

    \b
    Example:
      penstock schedule show nightly --next 10
    """

    async def work(session: Session) -> None:
        view = await session.engine.schedules.get(id, next=many)
        if as_json:
            give_json(_plain(view))
        else:
            _show(view)

    return _do(url, work)


def _show(view: ScheduleView) -> None:
    from sys import stdout

    state = f"paused: {view.note}".rstrip(": ") if view.paused else "active"
    facts = [
        ("schedule", f"{view.id}  version {view.number}, {state}"), ("starts", f"{view.definition} {brief(view.input)}"),
        ("when", timing_text(view)), ("overlap", view.overlap), ("catch-up", exactly(view.catch_up)),
        ("so far", f"{view.counts.started} started, {view.counts.skipped} skipped, {view.counts.missed} missed, "
                   f"{view.counts.failed} refused"),
    ]  # fmt: skip
    if view.error:
        facts.append(("error", view.error))
    facts += [("open", run) for run in view.open]
    facts += [("waits", run) for run in view.buffered]
    for job in view.backfills:
        facts.append(
            ("backfill", f"{job.number}: {job.done} of {job.total} moments, {job.skipped} skipped")
        )
    facts += [("next", when(moment)) for moment in view.next]
    facts += [("run", run) for run in view.recent[-5:]]
    for name, text in facts:
        give(f"{paint(f'{name:<9}', 'detail', stdout)} {text}")
    for act in view.acts[-5:]:
        who = f" by {act.by}" if act.by else ""
        why = f": {act.reason}" if act.reason else ""
        give(f"{paint('act      ', 'detail', stdout)} {_local(act.at)} {act.act}{who}{why}")


@schedule_command.command("pause")
@click.argument("id")
@act_options
@store_option
def pause_command(id: str, by: str | None, reason: str, url: str) -> int:
    """Start nothing until it is resumed.

    \b
    Example:
      penstock schedule pause nightly --by ann --reason "stock count"
    """

    async def work(session: Session) -> None:
        await session.engine.schedules.pause(id, by=by, reason=reason)
        say(f"schedule {id} is paused; penstock schedule resume {quote(id)}{store_flag(url)}")

    return _do(url, work)


@schedule_command.command("resume")
@click.argument("id")
@act_options
@store_option
def resume_command(id: str, by: str | None, reason: str, url: str) -> int:
    """Go on from now; what fell into the pause is left out, and `backfill` makes up for it.

    \b
    Example:
      penstock schedule resume nightly --by ann
    """

    async def work(session: Session) -> None:
        await session.engine.schedules.resume(id, by=by, reason=reason)
        view = await session.engine.schedules.get(id, next=1)
        say(f"schedule {id} goes on" + (f": {when(view.next[0])}" if view.next else ""))
        await _tell_owner(session)

    return _do(url, work)


@schedule_command.command("trigger")
@click.argument("id")
@click.option(
    "--overlap", type=OVERLAP, help="If a run of it is open; the schedule's own if left out."
)
@act_options
@store_option
def trigger_command(id: str, overlap: str | None, by: str | None, reason: str, url: str) -> int:
    """Start a run of it now; prints the run's id.

    \b
    Example:
      penstock schedule trigger nightly --overlap allow --by ann --reason "the report was wrong"
    """

    async def work(session: Session) -> None:
        done = await session.engine.schedules.trigger(id, overlap=overlap, by=by, reason=reason)
        give(done.run)
        if done.waits:
            say("it begins when the open run has ended")
        await _tell_owner(session)

    return _do(url, work)


@schedule_command.command("backfill")
@click.argument("id")
@click.argument("begin", metavar="FROM")
@click.argument("end", metavar="TO")
@click.option("--overlap", type=click.Choice(["allow", "buffer", "skip"]), default="allow", show_default=True,
              help="All at once, one after the other, or none while one is open.")  # fmt: skip
@act_options
@store_option
def backfill_command(
    id: str, begin: str, end: str, overlap: str, by: str | None, reason: str, url: str
) -> int:
    """Start the runs of past times that have none; at most 10,000 at a time.

    \b
    Example:
      penstock schedule backfill nightly 2026-03-01 2026-03-31T23:59 --overlap buffer
    """

    async def work(session: Session) -> None:
        job = await session.engine.schedules.backfill(
            id, begin, end, overlap=overlap, by=by, reason=reason
        )
        say(
            f"backfill {job.number} of {id}: {job.total} moments; penstock schedule show {quote(id)}{store_flag(url)}"
        )
        await _tell_owner(session)

    return _do(url, work)


@schedule_command.command("delete")
@click.argument("id")
@act_options
@store_option
def delete_command(id: str, by: str | None, reason: str, url: str) -> int:
    """End a schedule; its runs stay.

    \b
    Example:
      penstock schedule delete nightly --by ann
    """

    async def work(session: Session) -> None:
        view = await session.engine.schedules.get(id, next=0)
        await session.engine.schedules.delete(id, by=by, reason=reason)
        say(f"schedule {id} is deleted; its runs stay")
        if view.declared:
            say(
                f"note: the definition {view.definition} declares it, and registering that makes it again"
            )

    return _do(url, work)


# --- words ---------------------------------------------------------------------------------------------------------


def when(moment: datetime) -> str:
    """`Mon 2026-03-30 09:00:00 CEST (Europe/Berlin)`."""
    zone = str(moment.tzinfo)
    name = moment.tzname() or zone
    place = "" if name == zone else f" ({zone})"
    return f"{moment.strftime('%a %Y-%m-%d %H:%M:%S')} {name}{place}"


def timing_text(view: ScheduleView) -> str:
    timing = view.timing
    parts = [f"`{text}`" for text in timing.cron]
    if timing.every is not None:
        parts.append(f"every {exactly(timing.every)}")
    for calendar in timing.calendar:
        days = [*calendar.weekdays, *calendar.dates, *(f"day {d}" for d in calendar.days)]
        parts.append(f"{', '.join(calendar.times)} on {', '.join(days) or 'every day'}")
    text = " and ".join(parts)
    if timing.zone != "UTC" and timing.every is None:
        text += f" {timing.zone}"
    if timing.exclude:
        text += (
            f" but {len(timing.exclude)} days"
            if len(timing.exclude) > 2
            else f" but {', '.join(timing.exclude)}"
        )
    return text + (f", up to {exactly(timing.jitter)} late" if timing.jitter else "")


def exactly(seconds: float) -> str:
    """As it would be written: `15m`, `1h30m`, `1d`."""
    text, rest = "", seconds
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        count, rest = divmod(rest, size)
        text += f"{count:.0f}{unit}" if count else ""
    return text + (f"{rest:g}s" if rest or not text else "")


def _local(at: float) -> str:
    from penstock.cli.humane import local

    return local(at)


def _plain(view: ScheduleView) -> dict[str, Any]:
    import msgspec

    plain: dict[str, Any] = msgspec.to_builtins(view)
    return plain


async def _tell_owner(session: Session) -> None:
    if await session.owner() is None:
        say(f"note: {owner_text(None)}; it is done as soon as one does: {serve_text(session.url)}")


def _reword(error: NotFound | Rejected, flag: str) -> None:
    """What the library says of its calls, in terms of commands."""
    if error.message.startswith("no schedule"):
        error.hint = f"{error.hint}; penstock schedule list{flag}"
    elif error.message.startswith("no definition"):
        known = (error.hint or "").partition(";")[0]
        error.hint = f"{known}; `penstock start FILE{flag}` registers a file"
    elif error.code == "schedule-exists":
        error.hint = f"give it another id, or first end that one: penstock schedule delete ID{flag}"
    elif error.code == "backfill-invalid":
        for word, argument in (("`begin`", "FROM"), ("`end`", "TO")):
            error.message = error.message.replace(word, argument)


def _do(url: str, work: Callable[[Session], Coroutine[Any, Any, None]]) -> int:
    async def doing() -> int:
        async with opened(url) as session:
            try:
                await work(session)
            except (NotFound, Rejected) as error:
                _reword(error, store_flag(url))
                raise
        return COMPLETED

    return perform(doing())
