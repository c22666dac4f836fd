"""A `Query` as SQL: which index leads, and what the rest filters.

SQLite keeps no statistics of a database that grows by the second, so the choice is made here, by looking
how many rows each index that fits has (up to a bound). Most yield keys in order, so that a page, newest first, is
read without sorting; bounds by time narrow the keys whichever index leads.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from msgspec import Struct

from penstock.adapters.sqlite.rows import RUN, RUNS_PER_SPAN
from penstock.adapters.store_rules import OPEN, after_prefix, attribute_text
from penstock.ports.store import Query

ROWS_COUNTED_MAX = 1_000
COLUMNS = ", ".join(f"r.{name}" for name in RUN.split(", "))
BY_KEY = "runs r NOT INDEXED"
BY_ATTRIBUTE = "attributes a CROSS JOIN runs r NOT INDEXED ON r.run = a.run"


class Condition(Struct, frozen=True):
    """One thing that must hold of a run."""

    text: str
    values: tuple[Any, ...] = ()
    source: str | None = None
    """What to read from if this one leads; None if no index answers it."""
    leading: str | None = None
    """How it reads then, if not as `text`."""
    few: bool = False
    """It may only lead to few rows: its keys come unordered, and a walk through all is better than sorting many."""


def page(db: sqlite3.Connection, query: Query) -> tuple[str, list[Any]]:
    """The statement for one page of rows."""
    source, where, values = _plan(db, query)
    key = "a.run" if source == BY_ATTRIBUTE else "r.run"
    if query.after is not None:
        where += f" AND {key} < ?"
        values.append(query.after)
    text = f"SELECT {COLUMNS} FROM {source} WHERE {where} ORDER BY {key} DESC LIMIT ?"
    return text, [*values, max(query.limit, 0)]


def counting(db: sqlite3.Connection, query: Query) -> tuple[str, list[Any]]:
    """The statement for how many there are; `after` and `limit` belong to a page and do not count."""
    source, where, values = _plan(db, query)
    if source == BY_KEY:
        source = "runs r"  # in any order: SQLite takes the smallest index that has it all
    return f"SELECT count(*) FROM {source} WHERE {where}", values


def _plan(db: sqlite3.Connection, query: Query) -> tuple[str, str, list[Any]]:
    conditions = _conditions(query)
    lead = _lead(db, conditions)
    source, texts, values = BY_KEY, ["1"], list[Any]()
    if lead is not None:
        source = lead.source or source
        texts.append(lead.leading or lead.text)
        values += lead.values
    for condition in (*conditions, *_span(db, query)):
        if condition is not lead:
            texts.append(condition.text)
            values += condition.values
    return source, " AND ".join(texts), values


def _lead(db: sqlite3.Connection, conditions: list[Condition]) -> Condition | None:
    """The one with the fewest rows; of those with many the first."""
    leads = [c for c in conditions if c.source is not None]
    if len(leads) == 1 and not leads[0].few:
        return leads[0]
    best, fewest = None, ROWS_COUNTED_MAX + 1
    for lead in leads:
        rows: int = db.execute(
            f"SELECT count(*) FROM (SELECT 1 FROM {lead.source}"
            f" WHERE {lead.leading or lead.text} LIMIT {ROWS_COUNTED_MAX})",
            lead.values,
        ).fetchone()[0]
        if rows < fewest and (not lead.few or rows < ROWS_COUNTED_MAX):
            best, fewest = lead, rows
    return best


def _conditions(query: Query) -> list[Condition]:
    """Those that usually narrow most first."""
    conditions: list[Condition] = []
    for name, value in query.attributes.items():
        conditions.append(
            Condition(
                "EXISTS (SELECT 1 FROM attributes x WHERE x.name = ? AND x.value = ? AND x.run = r.run)",
                (name, attribute_text(value)),
                source=BY_ATTRIBUTE,
                leading="a.name = ? AND a.value = ?",
            )
        )
    if query.parent is not None:
        text = "r.parent > ? AND r.parent < ? AND r.parent IS NOT NULL"
        bounds = (query.parent + "\n", query.parent + "\v")
        conditions.append(Condition(text, bounds, source="runs r INDEXED BY runs_by_parent"))
    if query.id_prefix:
        text, values = "r.id >= ?", (query.id_prefix,)
        if (end := after_prefix(query.id_prefix)) is not None:
            text, values = f"{text} AND r.id < ?", (query.id_prefix, end)
        source = "runs r INDEXED BY runs_by_id"
        conditions.append(Condition(text, values, source=source, few=True))
    match query.status:
        case None:
            pass
        case "CLOSED":
            conditions.append(Condition("r.open = 0"))
        case "OPEN":
            conditions.append(Condition("r.open = 1", source="runs r INDEXED BY runs_open"))
        case "PAUSED":
            conditions.append(Condition("r.open = 1", source="runs r INDEXED BY runs_open"))
            conditions.append(Condition("r.paused = 1"))
        case status if status in OPEN:
            conditions.append(Condition("r.open = 1", source="runs r INDEXED BY runs_open"))
            conditions.append(Condition("r.status = ?", (status,)))
        case status:
            source = "runs r INDEXED BY runs_closed"
            conditions.append(Condition("r.open = 0 AND r.status = ?", (status,), source=source))
    if query.definition is not None:
        source = "runs r INDEXED BY runs_by_definition"
        conditions.append(Condition("r.definition = ?", (query.definition,), source=source))
    if query.version is not None:
        conditions.append(Condition("r.version = ?", (query.version,)))
    if query.created_after is not None:
        conditions.append(Condition("r.created_at >= ?", (query.created_after,)))
    if query.created_before is not None:
        conditions.append(Condition("r.created_at < ?", (query.created_before,)))
    if query.newest_generation:
        text = "NOT EXISTS (SELECT 1 FROM runs n WHERE n.id = r.id AND n.generation > r.generation)"
        conditions.append(Condition(text))
    return conditions


def _span(db: sqlite3.Connection, query: Query) -> list[Condition]:
    """The keys among which all runs of that time are: the table `spans` is to `runs` what a map is to a land."""
    if query.created_after is None and query.created_before is None:
        return []
    first, last = db.execute(
        "SELECT min(span), max(span) FROM spans WHERE newest >= ? AND oldest < ?",
        (
            float("-inf") if query.created_after is None else query.created_after,
            float("inf") if query.created_before is None else query.created_before,
        ),
    ).fetchone()
    if first is None:
        return [Condition("0")]
    bounds = (first * RUNS_PER_SPAN, (last + 1) * RUNS_PER_SPAN)
    return [Condition("r.run >= ? AND r.run < ?", bounds)]
