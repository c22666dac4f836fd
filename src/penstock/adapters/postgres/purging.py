"""Deleting runs: their rows in one go, their events and blobs a few at a time (SPEC 6.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.adapters.groups import NONE
from penstock.adapters.postgres.database import Connection
from penstock.adapters.postgres.rows import RUNS_PER_SPAN
from penstock.adapters.store_rules import attributes_of, check_erasure
from penstock.errors import Fenced
from penstock.ports.store import Purged, RunKey

# Shared with others who delete, but not with a new owner: its token is not written before we are done.
TOKEN = "SELECT token FROM owner FOR SHARE"
DOOMED = (
    "SELECT run, attributes FROM runs WHERE run = ANY($1::bigint[]) AND closed_as IS NOT NULL"
    " AND run < (SELECT max(run) FROM runs) FOR UPDATE"
)
ATTRIBUTES = (
    "DELETE FROM attributes a USING unnest($1::text[], $2::text[], $3::bigint[]) d (name, value, run)"
    " WHERE a.name = d.name AND a.value = d.value AND a.run = d.run"
)
EVENTS = (
    "DELETE FROM events WHERE position IN (SELECT e.position FROM leftovers l CROSS JOIN LATERAL"
    " (SELECT position, seq FROM events WHERE run = l.run"
    " AND position < (SELECT max(position) FROM events) ORDER BY seq LIMIT $1) e"
    " ORDER BY l.run, e.seq LIMIT $1)"
)
BLOBS = (
    "DELETE FROM blobs WHERE (run, digest) IN"
    " (SELECT b.run, b.digest FROM leftovers JOIN blobs b USING (run) LIMIT $1)"
)
DONE = (
    "DELETE FROM leftovers l WHERE NOT EXISTS (SELECT FROM events e WHERE e.run = l.run)"
    " AND NOT EXISTS (SELECT FROM blobs b WHERE b.run = l.run)"
)
SPANS = f"DELETE FROM spans WHERE span < (SELECT min(run) / {RUNS_PER_SPAN} FROM runs)"
BLOBS_AT_ONCE = 4
"""Each may have 64 MiB."""


async def purge(db: Connection, keys: Sequence[RunKey], *, token: int | None, limit: int) -> Purged:
    """Inside a transaction."""
    newest = await db.fetchval(TOKEN) or 0
    if token is not None and token < newest:
        raise Fenced(token=token, newest=newest)
    found = await db.fetch(DOOMED, list(keys)) if keys else []
    if found:
        doomed: list[int] = [run for run, _ in found]
        named = [
            (name, value, run)
            for run, text in found
            if text != NONE
            for name, value in attributes_of(text).items()
        ]
        if named:
            await db.execute(ATTRIBUTES, *(list(column) for column in zip(*named, strict=True)))
        await db.execute("INSERT INTO leftovers (run) SELECT unnest($1::bigint[])", doomed)
        for table in ("snapshots", "runs"):
            await db.execute(f"DELETE FROM {table} WHERE run = ANY($1::bigint[])", doomed)
        await db.execute(SPANS)
    events = int((await db.execute(EVENTS, limit)).rpartition(" ")[2])
    blobs = int((await db.execute(BLOBS, BLOBS_AT_ONCE)).rpartition(" ")[2])
    await db.execute(DONE)
    left = await db.fetchval("SELECT EXISTS (SELECT FROM leftovers)")
    return Purged(len(found), events, left, blobs)


async def erase(
    db: Connection,
    key: RunKey,
    payloads: Mapping[int, bytes],
    *,
    blobs: Sequence[bytes],
    attributes: bool,
) -> None:
    """Inside a transaction."""
    row = await db.fetchrow(
        "SELECT closed_as IS NULL, attributes FROM runs WHERE run = $1 FOR UPDATE", key
    )
    before: dict[int, bytes] = dict(
        await db.fetch(
            "SELECT seq, payload FROM events WHERE run = $1 AND seq = ANY($2::integer[])",
            key,
            list(payloads),
        )
    )
    open, text = (None, NONE) if row is None else row
    check_erasure(open, before, payloads)
    await db.execute(
        "UPDATE events e SET payload = n.payload FROM unnest($2::integer[], $3::bytea[]) n (seq, payload)"
        " WHERE e.run = $1 AND e.seq = n.seq",
        key,
        list(payloads),
        list(payloads.values()),
    )
    await db.execute("DELETE FROM snapshots WHERE run = $1", key)
    await db.execute(
        "DELETE FROM blobs WHERE run = $1 AND digest = ANY($2::bytea[])", key, list(blobs)
    )
    if attributes and text != NONE:
        named = list(attributes_of(text).items())
        await db.execute(
            ATTRIBUTES, [n for n, _ in named], [v for _, v in named], [key] * len(named)
        )
        await db.execute("UPDATE runs SET attributes = $2 WHERE run = $1", key, NONE)
