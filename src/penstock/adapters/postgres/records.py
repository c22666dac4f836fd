"""Records: small named documents, written by compare-and-set, each by itself and all in one transaction."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.adapters.postgres.appending import text_problem
from penstock.adapters.postgres.database import Connection
from penstock.adapters.postgres.rows import RECORD, record_of
from penstock.adapters.store_rules import written
from penstock.errors import RevisionConflict, StoreError
from penstock.ports.store import Record

REMEMBERED_SECONDS = 3600.0
FIND = (
    f"SELECT {RECORD} FROM records JOIN unnest($1::text[], $2::text[]) w (kind, id) USING (kind, id)"
    " FOR UPDATE"
)
# Those to be written that nobody has written yet: a row to be locked by, in one order for all who want several.
LOCK = "SELECT pg_advisory_xact_lock(hashtextextended(t.name, 7)) FROM (SELECT unnest($1::text[]) AS name ORDER BY 1) t"
KEEP = (
    f"INSERT INTO records ({RECORD}) SELECT * FROM unnest($1::text[], $2::text[], $3::bytea[],"
    " $4::integer[], $5::double precision[], $6::double precision[])"
    " ON CONFLICT (kind, id) DO UPDATE SET value = excluded.value, revision = excluded.revision,"
    " due = excluded.due, expires = excluded.expires"
)


async def write(
    db: Connection, records: Sequence[Record], nonce: int
) -> list[Record | RevisionConflict]:
    """Inside a transaction: what became of each.

    Tried again after a lost answer it finds its own `nonce` if it was done, and says what became of it then.
    """
    for wanted in records:
        if problem := text_problem(wanted.kind) or text_problem(wanted.id):
            name = f"{wanted.kind!a} {wanted.id!a}"
            raise StoreError(f"{name} has a value that cannot be stored: {problem}")
    names = sorted({(wanted.kind, wanted.id) for wanted in records})
    await db.execute(LOCK, [f"{kind}\n{id}" for kind, id in names])
    done = await db.fetchval("SELECT outcomes FROM writes WHERE nonce = $1", nonce)
    if done is not None:
        return [_outcome(wanted, was) for wanted, was in zip(records, done, strict=True)]
    rows = await db.fetch(FIND, [kind for kind, _ in names], [id for _, id in names])
    kept = {(row[0], row[1]): record_of(row) for row in rows}
    outcomes: list[Record | RevisionConflict] = []
    changed: dict[tuple[str, str], Record] = {}
    for wanted in records:
        name = wanted.kind, wanted.id
        outcome = written(changed.get(name) or kept.get(name), wanted)
        if isinstance(outcome, Record):
            changed[name] = outcome
        outcomes.append(outcome)
    if changed:
        columns = [
            [r.kind for r in changed.values()],
            [r.id for r in changed.values()],
            [r.value for r in changed.values()],
            [r.revision for r in changed.values()],
            [r.due for r in changed.values()],
            [r.expires for r in changed.values()],
        ]
        await db.execute(KEEP, *columns)
        await db.execute(
            "INSERT INTO writes (nonce, at, outcomes)"
            " VALUES ($1, extract(epoch FROM clock_timestamp()), $2)",
            nonce,
            [_code(outcome) for outcome in outcomes],
        )
    return outcomes


def _code(outcome: Record | RevisionConflict) -> int:
    """-1: written; otherwise the revision that was there."""
    return -1 if isinstance(outcome, Record) else outcome.actual or 0


def _outcome(wanted: Record, code: int) -> Record | RevisionConflict:
    there = wanted.revision if code < 0 else code
    now = None if there == 0 else Record(wanted.kind, wanted.id, b"", there)
    return written(now, wanted)


async def expire(db: Connection, until: float, limit: int) -> int:
    await db.execute(
        "DELETE FROM writes WHERE at < extract(epoch FROM clock_timestamp()) - $1",
        REMEMBERED_SECONDS,
    )
    text = (
        "DELETE FROM records WHERE (kind, id) IN (SELECT kind, id FROM records WHERE expires <= $1"
        " ORDER BY expires, kind, id LIMIT $2) AND expires <= $1"
    )
    return int((await db.execute(text, until, limit)).rpartition(" ")[2])
