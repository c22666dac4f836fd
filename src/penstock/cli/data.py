"""The life of stored data: `erase`, `archive`, `restore`, `export`, `import`, `backup` (SPEC 6, 18)."""

from __future__ import annotations

from pathlib import Path

import click

from penstock.cli.inputs import parse_status
from penstock.cli.output import COMPLETED, Problem, give_json, say
from penstock.cli.session import json_option, opened, perform, settings_of, store_option
from penstock.cli.words import did_you_mean
from penstock.errors import Rejected


def _seconds(text: str, option: str) -> float:
    from penstock.policy.durations import Unreadable, seconds

    try:
        return seconds(float(text) if text.replace(".", "", 1).isdigit() else text)
    except Unreadable as error:
        raise Problem("usage", str(error), place=option, hint=f"{option} 30d") from None


def _check_file(name: str, place: str) -> None:
    path = Path(name)
    if not path.is_file():
        there = "a folder, not a file" if path.is_dir() else "no file"
        near = [each.name for each in path.parent.iterdir()] if path.parent.is_dir() else []
        raise Problem(
            "usage", f"{name} is {there}", place=place, hint=did_you_mean(path.name, near)
        )


@click.command("erase")
@click.argument("id")
@click.option("--by", required=True, metavar="WHO", help="Who erases; recorded.")
@click.option("--reason", required=True, metavar="TEXT", help="Why; recorded.")
@click.option("--task", "tasks", multiple=True, metavar="KEY", help="Only what this task left.")
@click.option("--event", "events", multiple=True, type=int, metavar="N", help="Only this event.")
@store_option
def erase_command(
    id: str, by: str, reason: str, tasks: tuple[str, ...], events: tuple[int, ...], url: str
) -> int:
    """Erase the payloads of a closed run for good; its chain still checks.

    \b
    Example:
      penstock erase order-7 --by ann --reason "asked to"
      penstock erase order-7 --task charge --by ann --reason "card number in a log"
    """

    async def work() -> int:
        async with opened(url) as session:
            await session.get(id)
            some = bool(tasks or events)
            count = await session.engine.data.erase(
                id,
                by=by,
                reason=reason,
                tasks=tasks if some else None,
                events=events if some else None,
            )
        say(f"{count} event{'' if count == 1 else 's'} of run {id} erased")
        return COMPLETED

    return perform(work())


@click.command("archive", short_help="Move closed runs into a compressed file.")
@click.argument("folder")
@click.option(
    "--older-than", default="30d", show_default=True, metavar="DURATION", help="Since their end."
)
@click.option("--definition", metavar="ID", help="Only its runs.")
@json_option
@store_option
def archive_command(
    folder: str, older_than: str, definition: str | None, as_json: bool, url: str
) -> int:
    """Move closed runs into a compressed file; they can still be listed, shown and restored.

    \b
    Example:
      penstock archive /var/lib/penstock/archive --older-than 90d
      penstock list --archived
    """
    age = _seconds(older_than, "--older-than")

    async def work() -> int:
        async with opened(url) as session:
            made = await session.engine.data.archive(folder, older_than=age, definition=definition)
        if as_json:
            give_json(None if made is None else {"path": made.path, "runs": made.runs})
        elif made is None:
            say("no run is that old")
        else:
            say(f"{made.runs} run{'' if made.runs == 1 else 's'} moved to {made.path}")
        return COMPLETED

    return perform(work())


@click.command("restore")
@click.argument("id", required=False)
@click.option(
    "--backup", metavar="FILE", help="Make this backup the database, which must not exist."
)
@store_option
def restore_command(id: str | None, backup: str | None, url: str) -> int:
    """Put an archived run back, or a whole backup.

    \b
    Example:
      penstock restore order-7
      penstock restore --backup monday.db --store sqlite:///penstock.db
    """
    if (id is None) == (backup is None):
        raise Problem("usage", "what is to be restored?", hint="a run's ID, or --backup FILE")
    if backup is not None:
        from penstock.wiring import restore, shown_url

        _check_file(backup, "--backup")
        restore(url, backup)
        say(
            f"{backup} restored to {shown_url(url)}; attempts that were under way are recorded as lost"
        )
        return COMPLETED

    async def work() -> int:
        assert id is not None
        async with opened(url) as session:
            count = await session.engine.data.restore(id)
        say(f"run {id} is back" if count else f"run {id} is here already")
        return COMPLETED

    return perform(work())


@click.command("export")
@click.argument("file")
@click.option("--definition", metavar="ID", help="Only its runs.")
@click.option("--status", metavar="STATUS", help="Only runs in this status; open or closed, too.")
@click.option("--prefix", metavar="TEXT", help="Only runs whose id begins so.")
@store_option
def export_command(
    file: str, definition: str | None, status: str | None, prefix: str | None, url: str
) -> int:
    """Copy runs into a file that any Penstock can import.

    \b
    Example:
      penstock export runs.jsonl.zst
      penstock export paid.jsonl.zst --definition order --status completed
    """
    wanted = None if status is None else parse_status(status, "--status")

    async def work() -> int:
        async with opened(url) as session:
            count = await session.engine.data.export(
                file,
                definition=definition,
                status=wanted,
                id_prefix=prefix,
            )
        say(f"{count} run{'' if count == 1 else 's'} exported to {file}")
        return COMPLETED

    return perform(work())


@click.command("import")
@click.argument("file")
@click.option(
    "--take-open",
    is_flag=True,
    help="Open runs, too; they go on here. Stop the engine they come from first.",
)
@store_option
def import_command(file: str, take_open: bool, url: str) -> int:
    """Take the runs of an exported or archived file, all or none.

    \b
    Example:
      penstock import runs.jsonl.zst --store sqlite:///other.db
    """
    _check_file(file, "FILE")

    async def work() -> int:
        from penstock.engine.archive import check_open, importable
        from penstock.wiring import installed_plugins, is_there

        try:
            if not await is_there(url):  # what is wrong is said before a database is made
                reader = importable(Path(file), settings_of().audit_key, take_open=take_open)
                plugins = installed_plugins()
                runs = reader.index.runs
                await check_open(reader, runs, served=lambda _: False, plugins=plugins)
            async with opened(url, create=True) as session:
                count = await session.engine.data.import_runs(file, take_open=take_open)
        except Rejected as error:
            if error.code == "run-open" and not take_open:
                error.hint = "stop the engine it comes from, then --take-open takes it over"
            raise
        say(f"{count} run{'' if count == 1 else 's'} imported")
        return COMPLETED

    return perform(work())


@click.command("backup")
@click.argument("file")
@store_option
def backup_command(file: str, url: str) -> int:
    """Copy the whole database, of one moment, while others use it.

    \b
    Example:
      penstock backup monday.db
      penstock restore --backup monday.db --store sqlite:///again.db
    """

    from penstock.wiring import shown_url

    async def work() -> int:
        async with opened(url) as session:
            await session.engine.data.backup(file)
        say(f"{shown_url(url)} copied to {file}")
        return COMPLETED

    return perform(work())
