"""A `Query` as SQL: which index leads, and what the rest filters.

The planner knows each column's statistics but not how columns go together, and those of a table that grows by the
second are old. So, as on SQLite, the choice is made here, by looking how many rows each index that fits has (up to a
bound); conditions that do not lead are written so that no index fits them. All leads yield keys in order, but those
for few: a page, newest first, is read without sorting.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from penstock.adapters.postgres.database import Connection
from penstock.adapters.postgres.rows import RUN, RUNS_PER_SPAN
from penstock.adapters.store_rules import OPEN, after_prefix, attribute_text
from penstock.ports.store import Query

ROWS_COUNTED_MAX = 1_000
BY_KEY = "runs r"
BY_ATTRIBUTE = "attributes a JOIN runs r ON r.run = a.run"
SHAPE = (
    "SELECT set_config('enable_sort', $1, true), set_config('enable_hashjoin', 'off', true),"
    " set_config('enable_mergejoin', 'off', true), set_config('enable_bitmapscan', $1, true),"
    " set_config('enable_seqscan', $1, true), set_config('plan_cache_mode', 'force_custom_plan', true),"
    # To start a worker takes longer than a page does.
    " set_config('max_parallel_workers_per_gather', '0', true)"
)


class Condition(Struct, frozen=True):
    """One thing that must hold of a run; `?` stands for each value."""

    text: str
    """How it reads as a filter."""
    values: tuple[Any, ...] = ()
    leading: str | None = None
    """How it reads if it leads; None if no index answers it."""
    leading_values: tuple[Any, ...] = ()
    """Of what it says in addition then."""
    source: str = BY_KEY
    unordered: bool = False
    """If it leads, the keys have to be sorted."""
    few: bool = False
    """It may only lead to few rows: a walk through all is better than sorting many."""


async def page(db: Connection, query: Query) -> list[Any]:
    async with db.transaction():
        await db.execute(SHAPE, "off")
        source, where, values, unordered = await _plan(db, query)
        if unordered:
            await db.execute(SHAPE, "on")
        key = "a.run" if source == BY_ATTRIBUTE else "r.run"
        if query.after is not None:
            where += f" AND {key} < ?"
            values.append(query.after)
        text = f"SELECT {RUN} FROM {source} WHERE {where} ORDER BY {key} DESC LIMIT ?"
        return await db.fetch(_numbered(text), *values, min(max(query.limit, 0), 2**62))


async def counting(db: Connection, query: Query) -> int:
    """How many there are; `after` and `limit` belong to a page and do not count."""
    texts, values = ["true"], list[Any]()
    for condition in (*_conditions(query), *await _span(db, query)):
        plain = condition.leading if condition.source == BY_KEY else None
        texts.append(plain or condition.text)
        values += condition.values
    text = f"SELECT count(*) FROM runs r WHERE {' AND '.join(texts)}"
    return await db.fetchval(_numbered(text), *values)


async def _plan(db: Connection, query: Query) -> tuple[str, str, list[Any], bool]:
    conditions = _conditions(query)
    lead = await _lead(db, conditions)
    source, texts, values = BY_KEY, ["true"], list[Any]()
    if lead is not None:
        source = lead.source
        texts.append(lead.leading or lead.text)
        values += (*lead.values, *lead.leading_values)
    for condition in (*conditions, *await _span(db, query)):
        if condition is not lead:
            texts.append(condition.text)
            values += condition.values
    return source, " AND ".join(texts), values, lead is not None and lead.unordered


async def _lead(db: Connection, conditions: list[Condition]) -> Condition | None:
    """The one with the fewest rows; of those with many the first."""
    leads = [c for c in conditions if c.leading is not None]
    if not leads or (len(leads) == 1 and not leads[0].few):
        return leads[0] if leads else None
    values: list[Any] = []
    counts: list[str] = []
    for lead in leads:
        table = "attributes a" if lead.source == BY_ATTRIBUTE else "runs r"
        counts.append(
            f"(SELECT count(*) FROM (SELECT 1 FROM {table} WHERE {lead.leading} LIMIT {ROWS_COUNTED_MAX}) t)"
        )
        values += (*lead.values, *lead.leading_values)
    found = await db.fetchrow(_numbered(f"SELECT {', '.join(counts)}"), *values)
    best, fewest = None, ROWS_COUNTED_MAX + 1
    for lead, rows in zip(leads, found, strict=True):
        if rows < fewest and (not lead.few or rows < ROWS_COUNTED_MAX):
            best, fewest = lead, rows
    return best


def _conditions(query: Query) -> list[Condition]:
    """Those that usually narrow most first."""
    conditions: list[Condition] = []
    closing, closing_values = _closing(query.status)
    for name, value in query.attributes.items():
        conditions.append(
            Condition(
                "EXISTS (SELECT FROM attributes x WHERE x.name = ? AND x.value = ? AND x.run = r.run)",
                (name, attribute_text(value)),
                source=BY_ATTRIBUTE,
                leading="a.name = ? AND a.value = ?" + closing,
                leading_values=closing_values,
            )
        )
    if query.parent is not None:
        text = "r.parent > ? AND r.parent < ?"
        bounds = (query.parent + "\n", query.parent + "\v")
        hidden = "coalesce(r.parent, '') > ? AND coalesce(r.parent, '') < ?"
        conditions.append(Condition(hidden, bounds, leading=text, unordered=True))
    if query.id_prefix:
        text, values = "r.id >= ?", (query.id_prefix,)
        hidden = "r.id || '' >= ?"
        if (end := after_prefix(query.id_prefix)) is not None:
            text, values = f"{text} AND r.id < ?", (query.id_prefix, end)
            hidden = f"{hidden} AND r.id || '' < ?"
        conditions.append(Condition(hidden, values, leading=text, unordered=True, few=True))
    conditions += _status(query.status)
    if query.definition is not None:
        conditions.append(
            Condition("r.definition || '' = ?", (query.definition,), leading="r.definition = ?")
        )
    if query.version is not None:
        conditions.append(Condition("r.version = ?", (query.version,)))
    if query.created_after is not None:
        conditions.append(Condition("r.created_at >= ?", (query.created_after,)))
    if query.created_before is not None:
        conditions.append(Condition("r.created_at < ?", (query.created_before,)))
    if query.newest_generation:
        text = "NOT EXISTS (SELECT FROM runs n WHERE n.id = r.id AND n.generation > r.generation)"
        conditions.append(Condition(text))
    return conditions


def _closing(status: str | None) -> tuple[str, tuple[Any, ...]]:
    """What a status says of attributes: those of open and of closed runs have an index each."""
    match status:
        case None:
            return "", ()
        case "CLOSED":
            return "", ()
        case "OPEN" | "PAUSED":
            return " AND a.closed_as IS NULL", ()
        case _ if status in OPEN:
            return " AND a.closed_as IS NULL", ()
        case _:
            return " AND a.closed_as = ?", (status,)


def _status(status: str | None) -> list[Condition]:
    opened = Condition("coalesce(r.closed_as, '') = ''", leading="r.closed_as IS NULL")
    match status:
        case None:
            return []
        case "CLOSED":
            return [Condition("coalesce(r.closed_as, '') <> ''")]
        case "OPEN":
            return [opened]
        case "PAUSED":
            return [opened, Condition("r.paused")]
        case _ if status in OPEN:
            return [opened, Condition("r.status = ?", (status,))]
        case _:
            return [
                Condition("coalesce(r.closed_as, '') = ?", (status,), leading="r.closed_as = ?")
            ]


async def _span(db: Connection, query: Query) -> list[Condition]:
    """The keys among which all runs of that time are."""
    if query.created_after is None and query.created_before is None:
        return []
    first, last = await db.fetchrow(
        "SELECT min(span), max(span) FROM spans WHERE newest >= $1 AND oldest < $2",
        float("-inf") if query.created_after is None else query.created_after,
        float("inf") if query.created_before is None else query.created_before,
    )
    if first is None:
        return [Condition("false")]
    bounds = (first * RUNS_PER_SPAN, (last + 1) * RUNS_PER_SPAN)
    return [Condition("r.run >= ? AND r.run < ?", bounds)]


def _numbered(text: str) -> str:
    first, *rest = text.split("?")
    return first + "".join(f"${n}{part}" for n, part in enumerate(rest, 1))
