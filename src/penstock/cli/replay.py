"""`replay`: stored histories of workflow functions told to the code of today, before it is released (SPEC 2.8)."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.session import json_option, perform, store_option

if TYPE_CHECKING:
    from penstock.engine.history import Source
    from penstock.ports.store import Row
    from penstock.sdk.functions import Functions

PAGE = 500


@click.command("replay")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--app", required=True, metavar="FILE|MODULE[:ATTR]", help="Where the workflow functions are."
)
@click.option(
    "--workflow", "names", multiple=True, metavar="NAME", help="Only this one; may be repeated."
)
@click.option(
    "--newest",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    metavar="N",
    help="So many runs of each.",
)
@json_option
@store_option
def replay_command(
    files: tuple[Path, ...], app: str, names: tuple[str, ...], newest: int, as_json: bool, url: str
) -> int:
    """Tell stored histories to workflow functions: does the code fit?

    \b
    Example:
      penstock replay --app shop.py
      penstock replay --app shop.py --workflow order --newest 1000 --store postgresql://…
      penstock replay --app shop.py exported.jsonl.zst

    Nothing is executed and nothing is written. For CI: export some runs (`penstock export`), keep the file beside the code, and let
    this command fail the build. Exit status: 0 if all fit, 1 if one does not, naming the step, what is recorded, what the code
    wants, and the line; 1 also if the database has open runs of a workflow function that is not there (renamed, say).
    """
    return perform(_replay(files, app, names, newest, as_json, url))


async def _replay(
    files: tuple[Path, ...], app: str, names: tuple[str, ...], newest: int, as_json: bool, url: str
) -> int:
    from penstock.cli.app import load_workflows
    from penstock.cli.output import COMPLETED, FAILED, Problem, give, give_json, say
    from penstock.cli.words import did_you_mean
    from penstock.engine.programs import tell
    from penstock.errors import PenstockError
    from penstock.sdk.functions import Functions

    functions = Functions(load_workflows(app))
    known = [each.name for each in functions]
    for name in names:
        if name not in known:
            raise Problem(
                "workflow-unknown", f"`{app}` has no workflow `{name}`",
                hint=did_you_mean(name, known) or f"it has: {', '.join(known)}",
            )  # fmt: skip
    wanted = list(names) or known
    told: Counter[str] = Counter()
    misfits: list[dict[str, Any]] = []
    found = (
        _from_files(files, wanted, newest) if files else _from_store(url, functions, wanted, newest)
    )
    async for row, source in found:
        told[row.definition] += 1
        if sum(told.values()) % PAGE == 0:
            say(f"{sum(told.values())} histories told, {len(misfits)} do not fit")
        try:
            program = await tell(functions, row, source)
        except PenstockError as error:
            misfits.append(_misfit(row, error))
        else:
            program.close()
    missing = {} if files or names else await _without_code(url, known)
    if as_json:
        give_json({"told": dict(told), "misfits": misfits, "missing": missing})
    else:
        for each in misfits:
            give(f"run {each['run']} ({each['workflow']}, {each['status']}): {each['message']}")
        if misfits and misfits[0]["hint"]:
            say(f"hint: {misfits[0]['hint']}")
        counted = Counter(each["workflow"] for each in misfits) if misfits else told
        counts = ", ".join(f"{counted[name]} of {name}" for name in wanted if counted[name])
        where = ", ".join(map(str, files)) if files else "the database"
        if not told:
            give(f"no runs of {', '.join(wanted)} in {where}")
        elif misfits:
            fit = "does not fit" if len(misfits) == 1 else "do not fit"
            give(f"{len(misfits)} of {_histories(told)} {fit} the code ({counts})")
        else:
            fit = "fits" if sum(told.values()) == 1 else "fit"
            give(f"{_histories(told)} {fit} the code ({counts})")
        for name, count in missing.items():
            give(f"open runs of `{name}` in the database: {count}, and no such function in `{app}`")
        if missing:
            name = next(iter(missing))
            say(
                f'hint: a function keeps its name by `@workflow(name="{name}")`; `--workflow` leaves out what is of other applications'
            )
    return FAILED if misfits or missing else COMPLETED


async def _without_code(url: str, known: list[str]) -> dict[str, int]:
    """How many open runs of each workflow function have no code in the application: a release would leave them waiting."""
    from penstock.cli.session import opened
    from penstock.core.functions import FUNCTION
    from penstock.ports.store import Query

    async with opened(url) as session:
        store = await session.store()

        async def count(name: str | None) -> int:
            return await store.count(Query(status="OPEN", version=FUNCTION, definition=name))

        left = await count(None) - sum([await count(name) for name in known])
        found: dict[str, int] = {}
        after = None
        while (
            left > 0
        ):  # those without code are few, if any: the runs are read only until all are named
            query = Query(status="OPEN", version=FUNCTION, after=after, limit=PAGE)
            rows = await store.list(query)
            for row in rows:
                if row.definition not in known and row.definition not in found:
                    found[row.definition] = await count(row.definition)
                    left -= found[row.definition]
            if not rows:
                break
            after = rows[-1].key
    return found


def _misfit(row: Row, error: Any) -> dict[str, Any]:
    return {
        "run": row.id, "workflow": row.definition, "status": row.status, "code": error.code, "message": error.message,
        "hint": error.hint, "step": getattr(error, "step", ""), "recorded": getattr(error, "recorded", ""),
        "wanted": getattr(error, "wanted", ""), "place": getattr(error, "place", ""),
    }  # fmt: skip


async def _from_store(
    url: str, functions: Functions, names: list[str], newest: int
) -> AsyncIterator[tuple[Row, Source]]:
    """The newest runs of each, from a database."""
    from penstock.cli.session import opened
    from penstock.core.functions import FUNCTION
    from penstock.ports.store import Query

    del functions
    async with opened(url) as session:
        store = await session.store()
        for name in names:
            rows = await store.list(Query(definition=name, limit=newest))
            for row in rows:
                if row.version == FUNCTION:
                    yield row, store


def _histories(told: Counter[str]) -> str:
    count = sum(told.values())
    return f"{count} {'history' if count == 1 else 'histories'}"


async def _from_files(
    files: tuple[Path, ...], names: list[str], newest: int
) -> AsyncIterator[tuple[Row, Source]]:
    """Runs out of files that `penstock export` or `archive` wrote, each checked."""
    from penstock.cli.output import Problem
    from penstock.core.functions import FUNCTION
    from penstock.engine.archive import ArchivedRun
    from penstock.engine.bundle import Reader

    taken: Counter[str] = Counter()
    for path in files:
        if not path.exists():
            raise Problem(
                "usage", f"there is no file {path}", hint="`penstock export FILE` writes one"
            )
        reader = Reader(path)
        rows = sorted(reader.index.runs, key=lambda each: each.row.created_at, reverse=True)
        for indexed in rows:
            row = indexed.row
            if (
                row.version != FUNCTION
                or row.definition not in names
                or taken[row.definition] >= newest
            ):
                continue
            taken[row.definition] += 1
            yield row, ArchivedRun(reader.run(indexed))
