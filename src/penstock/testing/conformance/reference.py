"""Random groups and queries, seeded, for a Store and for the reference behaviour beside it."""

from __future__ import annotations

import random
from typing import Any

from penstock.ports.store import Append, Appended, Query, Store
from penstock.testing.conformance.histories import more, new

STATUSES = ("RUNNING", "WAITING", "COMPENSATING", "COMPLETED", "FAILED", "CANCELLED")


async def same(store: Store, reference: Store, chance: random.Random, *, groups: int) -> None:
    for _ in range(groups):
        if chance.random() < 0.2:
            keys = [chance.randint(1, 80) for _ in range(5)]
            limit = chance.choice((1, 5, 100))
            purged = await store.purge(keys, limit=limit)
            assert purged == await reference.purge(keys, limit=limit)
        group = [await _random_append(reference, chance) for _ in range(chance.randint(1, 12))]
        outcomes = await store.append(group)
        theirs = await reference.append(group)
        for append, ours, right in zip(group, outcomes, theirs, strict=True):
            assert _shown(ours) == _shown(right), (append, ours, right)
        for _ in range(4):
            query = _random_query(chance)
            assert await store.list(query) == await reference.list(query), query
            assert await store.count(query) == await reference.count(query), query
    assert await store.follow(after=0, limit=100_000) == await reference.follow(
        after=0, limit=100_000
    )
    assert await store.open_runs(limit=10_000) == await reference.open_runs(limit=10_000)


def _shown(outcome: Appended | Exception) -> object:
    return (type(outcome), str(outcome)) if isinstance(outcome, Exception) else outcome


async def _random_append(reference: Store, chance: random.Random) -> Append:
    id = f"run-{chance.randint(1, 60)}"
    payloads = [chance.randbytes(chance.randint(0, 40)) for _ in range(chance.choice((1, 1, 1, 3)))]
    row = await reference.find(id)
    status = chance.choice(STATUSES)
    fields: dict[str, Any] = {
        "status": status,
        "open": status in STATUSES[:3],
        "paused": chance.random() < 0.2,
        "priority": chance.randint(0, 2),
        "updated_at": chance.random() * 100,
        "next_due": chance.choice((None, chance.random())),
        "attributes": chance.choice((b"{}", b'{"k":1}', b'{"k":2,"m":"x"}', b'{"m":[1,{"a":2}]}')),
    }
    if row is None or (not row.open and chance.random() < 0.7) or chance.random() < 0.1:
        fields |= {
            "generation": 1 if row is None else row.generation + chance.choice((0, 1, 1)),
            "definition": chance.choice(("order", "ship", "order/sub")),
            "created_at": float(chance.randint(0, 50)),
            "parent": chance.choice((None, f"run-{chance.randint(1, 9)}\nkey")),
        }
        return new(id, *payloads, **fields)
    if chance.random() < 0.1:
        row.revision = max(0, row.revision + chance.choice((-1, 1)))
    if chance.random() < 0.5:
        del fields["attributes"]
    return more(row, *payloads, **fields)


def _random_query(chance: random.Random) -> Query:
    fields: dict[str, Any] = {
        "status": chance.choice((*STATUSES, "OPEN", "CLOSED", "PAUSED")),
        "definition": chance.choice(("order", "ship", "none")),
        "version": chance.choice(("1", "2")),
        "attributes": chance.choice(({"k": 1}, {"k": 2, "m": "x"}, {"m": [1, {"a": 2}]})),
        "id_prefix": chance.choice(("run-1", "run-", "r", "x")),
        "parent": f"run-{chance.randint(1, 9)}",
        "created_after": float(chance.randint(0, 50)),
        "created_before": float(chance.randint(0, 50)),
        "after": chance.randint(1, 80),
        "newest_generation": True,
    }
    chosen = chance.sample(sorted(fields), chance.choice((0, 1, 1, 2, 2, 3)))
    return Query(limit=chance.choice((1, 5, 100)), **{name: fields[name] for name in chosen})
