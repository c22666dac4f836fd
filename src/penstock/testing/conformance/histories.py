"""What the laws of a Store are written with: appends, the rows that must come of them, a chain that must hold."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from msgspec.structs import replace

from penstock.errors import PenstockError
from penstock.model.chain import link, prefix
from penstock.ports.store import Append, Appended, Row, Store, Stored

Factory = Callable[[], Store]
E = TypeVar("E", bound=PenstockError)


@asynccontextmanager
async def opened(factory: Factory) -> AsyncGenerator[Store]:
    store = factory()
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def new(id: str, *payloads: bytes, token: int | None = None, **fields: Any) -> Append:
    """The first append of a run."""
    payloads = payloads or (b"started",)
    row = Row(
        id=id,
        generation=fields.pop("generation", 1),
        definition=fields.pop("definition", "order"),
        version=fields.pop("version", "1"),
        status=fields.pop("status", "RUNNING"),
        revision=len(payloads),
        created_at=fields.pop("created_at", 1000.0),
        updated_at=fields.pop("updated_at", 1000.0),
        **fields,
    )
    return Append(row=row, expected=0, payloads=list(payloads), token=token)


def more(row: Row, *payloads: bytes, token: int | None = None, **fields: Any) -> Append:
    """The next append of a run, from its row as it was read."""
    payloads = payloads or (b"more",)
    after = replace(row, revision=row.revision + len(payloads), **fields)
    return Append(
        row=after, expected=row.revision, payloads=list(payloads), previous=row.hash, token=token
    )


def kept(append: Append, outcome: Appended | Exception) -> Row:
    """The row that must be stored now."""
    assert isinstance(outcome, Appended), outcome
    return replace(append.row, key=outcome.key, hash=outcome.hash, position=outcome.position)


async def put(store: Store, *appends: Append) -> list[Row]:
    """Append all of them; none may be refused."""
    outcomes = await store.append(appends)
    return [kept(a, o) for a, o in zip(appends, outcomes, strict=True)]


async def refused(kind: type[E], doing: Awaitable[object]) -> E:
    try:
        await doing
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} expected, but it was done")


def check_chain(row: Row, events: Sequence[Stored]) -> None:
    """A whole history links up, byte for byte, to the head in the row."""
    head, start = b"", prefix(row.id, row.generation)
    for seq, event in enumerate(events, 1):
        head = link(head, start, seq, event.payload)
        assert (event.seq, event.key, event.hash) == (seq, row.key, head), (row, event)
    assert head == row.hash, row
    assert len(events) == row.revision, row
    assert events[-1].position == row.position, row
