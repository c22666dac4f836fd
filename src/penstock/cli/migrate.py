"""`migrate`: open runs go on as runs of another version (SPEC 2.7)."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING

import click

from penstock.cli.control import on_many
from penstock.cli.diff import parse_mapping
from penstock.cli.output import COMPLETED, REFUSED, Problem, give, give_json, say, table
from penstock.cli.runs import act_on, act_options
from penstock.cli.session import json_option, opened, perform, store_flag, store_option

if TYPE_CHECKING:
    from penstock.ports.control import Move
    from penstock.sdk.client import Run


@click.command("migrate")
@click.argument("id", required=False)
@click.option("--to", "version", metavar="VERSION", help="The newest if left out.")
@click.option("--map", "pairs", multiple=True, metavar="OLD=NEW", help="A task that was renamed.")
@click.option(
    "--preview", is_flag=True, help="Only say what it would do, and what stands in the way."
)
@click.option(
    "--where", multiple=True, metavar="K=V", help="All runs that this finds, instead of one."
)
@act_options
@json_option
@store_option
def migrate_command(
    id: str | None, version: str | None, pairs: tuple[str, ...], preview: bool, where: tuple[str, ...], by: str | None,
    reason: str, as_json: bool, url: str,
) -> int:  # fmt: skip
    """Move a run to another version of its definition, from where it stands.

    \b
    Example:
      penstock migrate order-7 --to 2 --preview
      penstock migrate order-7 --to 2 --map pay=settle --by ann --reason "new bank"
      penstock migrate --to 2 --where definition=order --where version=1 --by ann

    Refused if it is not safe: a task that is open or has something to undo is removed or changed, a join has counted links
    that are gone. `penstock diff order@1 order@2` shows what differs. Exit status of --preview: 0 if it can, 3 if not.
    """
    mapping = parse_mapping(pairs)
    if where or id is None:
        if preview:
            raise Problem(
                "usage", "--preview is of one run", hint="name a run: penstock migrate ID --preview"
            )
        if version is None:
            raise Problem(
                "usage",
                "to which version? --to VERSION",
                hint="penstock migrate --to 2 --where version=1",
            )
        arguments = {"version": version, **({"mapping": mapping} if mapping else {})}
        return on_many("migrate", id, where, by, reason, url, arguments)
    if preview:
        return perform(_preview(id, version, mapping, as_json, url))

    async def work(run: Run) -> str:
        await run.migrate(version, mapping=mapping, by=by, reason=reason)
        now = (await run.show()).version
        return f"run {id} is one of version {now}; penstock show {quote(id)}{store_flag(url)}"

    return act_on(id, url, work)


async def _preview(
    id: str, version: str | None, mapping: dict[str, str], as_json: bool, url: str
) -> int:
    async with opened(url) as session:
        run = await session.get(id)
        found = await run.preview_migration(version, mapping=mapping)
    if as_json:
        give_json(found)
    else:
        show(found, url)
    return COMPLETED if found.safe else REFUSED


def show(found: Move, url: str) -> None:
    rows = [("drop", key, "has ended, and is not in the new version") for key in found.dropped]
    rows += [("rename", key, f"is {today}") for key, today in found.renamed.items()]
    rows += [
        ("pass", key, "is new, comes before what has begun, and will not run")
        for key in found.passed
    ]
    rows += [("refuse", each.key, each.message) for each in found.obstacles]
    if rows:
        table(("WHAT", "TASK", "WHY"), rows)
    where = f"version {found.before} to {found.after}"
    if found.safe:
        give(f"run {found.run} can move from {where}")
        said = " ".join(f"--map {quote(f'{a}={b}')}" for a, b in found.mapping.items())
        say(
            f"nothing is done yet; penstock migrate {quote(found.run)} --to {quote(found.after)}"
            f"{f' {said}' if said else ''}{store_flag(url)}"
        )
        return
    give(f"run {found.run} cannot move from {where}")
    if found.suggestion:
        said = " ".join(f"--map {quote(f'{a}={b}')}" for a, b in found.suggestion.items())
        say(f"hint: these look renamed: {said}")
