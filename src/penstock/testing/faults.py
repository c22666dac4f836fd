"""What can break in a simulation, between the engine and its ports: stores, clocks, hints, results (SPEC 13).

`Trouble` is what is broken at this moment, for all nodes; `Fault` one thing that goes wrong at a time. Each stands in a
scenario as data, so that a scenario can be replayed, and made smaller by leaving some of them out.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from penstock.adapters.memory import MemoryStore
from penstock.errors import StoreError
from penstock.ports.clock import Handle
from penstock.ports.store import Append, Appended
from penstock.testing.loop import SimulationLoop

if TYPE_CHECKING:
    from penstock.testing.nodes import Node

NOON = 1_767_268_800.0
"""2026-01-01 12:00 UTC: where the clocks of a simulation begin."""
SLOW_SECONDS_MAX = 0.4

KINDS = {
    "crash": "a node dies, `amount` steps after the moment",
    "power": "all nodes die at once, after `amount` steps of one; a commit that nobody was told of is lost",
    "restart": "a node is closed in order and opened again",
    "stall": "a node stands still for `amount` seconds, and goes on as if nothing had been",
    "jump": "a node's clock jumps by `amount` seconds",
    "slow": "the store takes its time for `amount` seconds",
    "failing": "what is asked of the store fails, now and then, for `amount` seconds",
    "unsure": "commits fail for `amount` seconds, and some of them are done all the same",
    "full": "the disk is full for `amount` seconds",
    "partition": "nodes do not hear of each other for `amount` seconds",
    "cut": "a node does not reach the store for `amount` seconds, and lives on",
    "late": "the result of an attempt arrives once more, `amount` seconds later",
    "deaf": "callers do not hear the answers that they are given for `amount` seconds, and ask again",
}
"""What a fault does; `amount` of those that last is in seconds."""


class Fault(Struct, frozen=True):
    """One thing that goes wrong."""

    at: float
    """Seconds since the simulation began."""
    kind: str
    node: int = 0
    amount: float = 0.0


class Trouble:
    """What is broken at this moment."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.counts: Counter[str] = Counter()
        """What happened, so that one can see that it was rough."""
        self.slow = 0.0
        """How likely it is that the store takes long."""
        self.failing = 0.0
        self.unsure = 0.0
        """How likely a commit fails in the store itself, done or not; only a store with a database can tell."""
        self.full = False
        self.parted = False
        self.deaf = 0.0

    def heal(self) -> None:
        self.slow = self.failing = self.unsure = self.deaf = 0.0
        self.full = self.parted = False

    def delay(self) -> float:
        """How long the store takes before it begins, or until its answer is there; 0: no time at all."""
        draw = self.chance.random()
        if draw < self.slow:
            self.counts["slow answers"] += 1
            return self.chance.random() * SLOW_SECONDS_MAX
        return 0.002 * draw if draw > 0.6 else 0.0


class Alarm:
    """What is to be called after a while; sooner if time leaps."""

    __slots__ = ("_clock", "at", "callback", "handle", "rest")

    def __init__(self, clock: NodeClock, at: float, callback: Callable[[], None]) -> None:
        self._clock, self.at, self.callback = clock, at, callback
        self.handle: asyncio.TimerHandle | None = None
        self.rest = False
        """Somebody rests until then, and does nothing meanwhile."""

    def cancel(self) -> None:
        if self.handle is not None:
            self.handle.cancel()
        self._clock.alarms.pop(self, None)

    def ring(self) -> None:
        self._clock.alarms.pop(self, None)
        self.callback()


class NodeClock:
    """The wall clock of one node, which may be set; sleeping goes by the loop's time, as it does in the real one."""

    def __init__(self, loop: SimulationLoop, offset: float = 0.0) -> None:
        self._loop = loop
        self.offset = offset
        self.alarms: dict[Alarm, None] = {}

    def now(self) -> float:
        return NOON + self.ticks() + self.offset

    def ticks(self) -> float:
        return self._loop.time() + self._loop.leapt

    def call_at(self, when: float, callback: Callable[[], None]) -> Handle:
        return self.call_later(max(0.0, when - self.now()), callback)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Alarm:
        alarm = Alarm(self, self._loop.time() + seconds, callback)
        alarm.handle = self._loop.call_later(seconds, alarm.ring)
        self.alarms[alarm] = None
        return alarm

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def rest(self, seconds: float) -> None:
        """As `sleep`, for whom time may leap."""
        future: asyncio.Future[None] = self._loop.create_future()
        alarm = self.call_later(seconds, lambda: None if future.done() else future.set_result(None))
        alarm.rest = True
        try:
            await future
        finally:
            alarm.cancel()

    def left(self) -> float | None:
        """Seconds until the next of its alarms."""
        return min(each.at for each in self.alarms) - self._loop.time() if self.alarms else None

    def leap(self, seconds: float) -> None:
        """So much time has passed at once (`SimulationLoop.leapt` has it), in which nothing happened."""
        now = self._loop.time()
        for alarm in self.alarms:
            before = alarm.handle
            assert before is not None
            before.cancel()
            alarm.at = max(now, alarm.at - seconds)
            alarm.handle = self._loop.call_later(
                alarm.at - now,
                alarm.ring,
                context=before._context,  # pyright: ignore
            )


class NodeHints:
    """Words between nodes, which get lost."""

    in_append = False
    _listeners: dict[str, NodeHints]

    def __init__(
        self, node: Node, loop: SimulationLoop, trouble: Trouble, listeners: dict[str, NodeHints]
    ) -> None:
        self._node, self._loop, self._trouble, self._listeners = node, loop, trouble, listeners
        self._heard: Callable[[str], None] | None = None

    def listen(self, heard: Callable[[str], None]) -> str:
        self._heard = heard
        self._listeners[self._node.name] = self
        return self._node.name

    def tell(self, address: str, run_id: str) -> None:
        listener = self._listeners.get(address)
        if listener is None or listener._heard is None:
            return
        if self._trouble.parted:
            self._trouble.counts["hints lost"] += 1
            return
        delay = self._trouble.chance.random() * 0.005
        node = listener._node
        self._loop.call_later(delay, listener._heard, run_id, context=node.context)

    def close(self) -> None:
        if self._listeners.get(self._node.name) is self:
            del self._listeners[self._node.name]


PLAIN = frozenset({"stats", "describe", "name", "path"})
WRITES = frozenset(
    {
        "append",
        "put",
        "save_snapshots",
        "publish",
        "set_global",
        "drop",
        "claim",
        "renew",
        "pulse",
        "release",
    }
)


class FaultyStore:
    """A store as a node sees it: it takes its time, fails, and is gone with its node."""

    def __init__(self, store: Any, node: Node, trouble: Trouble) -> None:
        self.store, self._node, self._trouble = store, node, trouble
        self._plain = isinstance(store, MemoryStore)
        """Without a file that could be full."""
        self.transactions: Any = None

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.store, name)
        if name in PLAIN:
            return method

        def ask(*args: Any, **named: Any) -> Awaitable[Any]:
            return self._ask(name, method, *args, **named)

        setattr(self, name, ask)
        return ask

    def append(self, appends: Sequence[Append]) -> Awaitable[list[Appended | Exception]]:
        return self._ask("append", self._commit, appends)

    async def _commit(self, appends: Sequence[Append]) -> list[Appended | Exception]:
        node = self._node
        newest = node.simulation.disk.token()
        results: list[Appended | Exception] = await self.store.append(appends)
        for append, result in zip(appends, results, strict=True):
            if isinstance(result, Appended):
                node.judge.appended(node, append, newest)
                if append.also is not None:
                    node.judge.appended(node, append.also, newest)
            else:
                self._trouble.counts[f"appends refused: {type(result).__name__}"] += 1
        return results

    async def close(self) -> None:
        if self._node.place.alive:
            await self.store.close()

    async def _ask(
        self, name: str, work: Callable[..., Awaitable[Any]], *args: Any, **named: Any
    ) -> Any:
        node, trouble = self._node, self._trouble
        if not node.place.alive:
            raise StoreError("the node is dead")
        delay = trouble.delay()
        if delay:
            await node.simulation.loop.pause(delay)
        if node.cut_off:
            trouble.counts["asked in vain while cut off"] += 1
            await asyncio.sleep(trouble.chance.random() * SLOW_SECONDS_MAX)
            raise StoreError("the simulated node does not reach its store")
        if trouble.failing and trouble.chance.random() < trouble.failing:
            trouble.counts["store failures"] += 1
            raise StoreError("the simulated store fails")
        if trouble.full and self._plain and name in WRITES:
            trouble.counts["disk full"] += 1
            raise StoreError("the simulated disk is full")
        result = await work(*args, **named)
        delay = trouble.delay()
        if delay:
            await node.simulation.loop.pause(delay)
        node.simulation.disk.synced()
        return result
