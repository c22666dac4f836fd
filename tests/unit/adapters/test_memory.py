"""What is particular to the memory store; what it shares with all is in `tests/conformance`."""

from __future__ import annotations

from penstock.adapters.memory import MemoryStore
from penstock.testing.conformance.store import new, put


async def test_stores_share_by_name_until_it_is_forgotten() -> None:
    one, two = MemoryStore("shared"), MemoryStore("shared")
    other, alone = MemoryStore("another"), MemoryStore()
    (row,) = await put(one, new("a"))
    assert await two.find("a") == row
    assert await other.find("a") is None
    assert await alone.find("a") is None

    MemoryStore.forget("shared")
    MemoryStore.forget("another")
    assert await MemoryStore("shared").find("a") is None
    assert await two.find("a") == row
    MemoryStore.forget("shared")


async def test_stores_without_a_name_are_alone() -> None:
    one, two = MemoryStore(), MemoryStore()
    await put(one, new("a"))
    assert await two.find("a") is None
    assert await one.claim("node", "") is not None
    assert await two.claim("node", "") is not None


async def test_times_come_from_the_clock() -> None:
    now = 100.0
    store = MemoryStore(clock=lambda: now)
    owner = await store.claim("node", "")
    assert owner is not None
    now = 102.0
    renewed = await store.renew(owner)
    assert (renewed.since, renewed.renewed_at) == (100.0, 102.0)
