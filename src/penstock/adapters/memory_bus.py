"""The bus in process: every promise of `ports/bus.py` in plain dictionaries; the reference behaviour.

Each group has lanes, one a run, worked off one event after another and side by side; events of no run share one. What
is in a lane dies with the process: who must not lose an event follows the log (`engine.project`), and runs that wait for
one are told by the engine before anybody is answered.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import Any, cast

from penstock.errors import Busy, Rejected, Unacknowledged
from penstock.model.envelope import Envelope
from penstock.policy.topics import is_pattern, is_topic, topic_matches
from penstock.ports.bus import (
    QOS,
    BusStatus,
    DeadLetter,
    QoS,
    Receiver,
    SubscriberStatus,
    Subscription,
)
from penstock.ports.clock import Clock

log = logging.getLogger("penstock.bus")

DEPTH_MAX = 10_000
"""Events that wait for one group."""
TRIES_MAX = 3
AGAIN_SECONDS_FIRST = 0.2
RECEIVER_SECONDS_MAX = 30.0
ACKNOWLEDGED_SECONDS_MAX = 5.0
END_SECONDS_MAX = 1.0
LANES_MAX = 64
"""Runs whose events a group handles side by side."""
REMEMBERED_MAX = 10_000
DEAD_MAX = 1_000


class Subscriber:
    """One receiver and how it fares."""

    def __init__(
        self, name: str, patterns: tuple[str, ...], group: str, receiver: Receiver
    ) -> None:
        self.name, self.patterns, self.group, self.receiver = name, patterns, group, receiver
        self.handled = 0
        self.failed = 0
        self.closed = False
        self._async = _is_async(receiver)

    def wants(self, topic: str) -> bool:
        return any(topic_matches(pattern, topic) for pattern in self.patterns)

    async def receive(self, envelope: Envelope) -> None:
        async with asyncio.timeout(RECEIVER_SECONDS_MAX):
            if self._async:
                await self.receiver(envelope)
                return
            given = await asyncio.to_thread(self.receiver, envelope)
            if inspect.isawaitable(given):
                await given


class _Delivery:
    """One event for one group, until it is acknowledged."""

    def __init__(self, envelope: Envelope, *, once: bool, done: asyncio.Future[None]) -> None:
        self.envelope, self.once, self.done = envelope, once, done


class _Group:
    """Subscribers of which each event goes to one."""

    def __init__(self, bus: MemoryBus, key: str, name: str) -> None:
        self._bus, self.key, self.name = bus, key, name
        self.members: list[Subscriber] = []
        self.waiting = 0
        self._lanes: dict[str, deque[_Delivery]] = {}
        self._known: OrderedDict[str, asyncio.Future[None]] = OrderedDict()
        self._places = asyncio.Semaphore(LANES_MAX)
        self._working: dict[asyncio.Task[None], None] = {}
        self._turn = 0

    def wants(self, topic: str) -> bool:
        return any(member.wants(topic) for member in self.members)

    def knows(self, id: str) -> bool:
        return id in self._known

    def give(self, envelope: Envelope, *, once: bool) -> asyncio.Future[None]:
        """Queue it; what has come before is not given again, but its acknowledgement is waited for."""
        known = self._known.get(envelope.id)
        if known is not None:
            self._bus.duplicates += 1
            return known
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._known[envelope.id] = done
        if len(self._known) > REMEMBERED_MAX:
            self._known.popitem(last=False)
        delivery = _Delivery(envelope, once=once, done=done)
        self.waiting += 1
        lane = self._lanes.get(envelope.run)
        if lane is not None:
            lane.append(delivery)
            return done
        self._lanes[envelope.run] = deque([delivery])
        task = asyncio.get_running_loop().create_task(self._work(envelope.run), name="penstock.bus")
        self._working[task] = None
        task.add_done_callback(lambda task: self._working.pop(task, None))
        return done

    async def _work(self, run: str) -> None:
        lane = self._lanes[run]
        try:
            async with self._places:
                while lane:
                    await self._deliver(lane[0])
                    self._over(lane.popleft())
        finally:
            for delivery in lane:  # cut off
                self._over(delivery)
            del self._lanes[run]

    def _over(self, delivery: _Delivery) -> None:
        self.waiting -= 1
        if not delivery.done.done():
            delivery.done.set_result(None)

    async def _deliver(self, delivery: _Delivery) -> None:
        envelope, bus = delivery.envelope, self._bus
        tries = 0
        while True:
            member = self._next(envelope.topic)
            if member is None:
                return  # all who wanted it have left
            tries += 1
            try:
                await member.receive(envelope)
                member.handled += 1
                bus.delivered += 1
                return
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise
                error: BaseException = RuntimeError("the receiver was cancelled")
            except Exception as failure:
                error = failure
            member.failed += 1
            log.warning(
                "bus.receiver_failed",
                extra={"subscriber": member.name, "topic": envelope.topic, "event": envelope.id},
                exc_info=error,
            )
            if delivery.once:
                bus.lost += 1
                return
            if tries >= TRIES_MAX:
                text = f"{type(error).__name__}: {error}"
                bus.bury(DeadLetter(envelope, member.name, text, tries, bus.clock.now()))
                return
            await bus.clock.sleep(AGAIN_SECONDS_FIRST * 2 ** (tries - 1))

    def _next(self, topic: str) -> Subscriber | None:
        """In turn, of those who want it."""
        able = [member for member in self.members if member.wants(topic)]
        if not able:
            return None
        self._turn += 1
        return able[self._turn % len(able)]

    async def end(self) -> None:
        for task in list(self._working):
            task.cancel()
        await asyncio.gather(*self._working, return_exceptions=True)


class MemoryBus:
    """See the module's docstring."""

    def __init__(self, clock: Clock, *, qos: QoS = "at-least-once") -> None:
        self.clock = clock
        self.set_qos(qos)
        self._groups: dict[str, _Group] = {}
        self._dead: deque[DeadLetter] = deque(maxlen=DEAD_MAX)
        self._count = 0
        self._closed = False
        self.published = self.delivered = self.duplicates = self.lost = self.dead = 0

    async def open(self) -> None:
        self._closed = False

    async def close(self) -> None:
        self._closed = True
        end = asyncio.get_running_loop().time() + END_SECONDS_MAX
        while not self.quiet() and asyncio.get_running_loop().time() < end:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        for group in list(self._groups.values()):
            await group.end()
        self._groups.clear()

    # --- publishing ------------------------------------------------------------------------------------------

    async def publish(
        self, envelope: Envelope, *, qos: QoS | None = None, wait: bool = True
    ) -> None:
        await self.publish_batch([envelope], qos=qos, wait=wait)

    async def publish_batch(
        self, envelopes: Sequence[Envelope], *, qos: QoS | None = None, wait: bool = True
    ) -> None:
        qos = self._qos if qos is None else _checked(qos)
        if self._closed:
            raise Rejected("bus-closed", "the bus is closed")
        for envelope in envelopes:
            if not is_topic(envelope.topic):
                raise Rejected(
                    "topic-invalid",
                    f"`{envelope.topic:.80}` is no topic",
                    hint="a topic is words with dots between them, such as orders.paid",
                )
        wanted = [(each, self._wanting(each.topic)) for each in envelopes]
        once = qos == "at-most-once"
        full = self._full(wanted)
        if full and wait and not once:
            raise Busy(
                f"{DEPTH_MAX} events wait for subscriber {full[0].name}, which is the limit",
                hint="try again in a moment",
            )
        given = [
            self._give(each, group, once=once, full=full) for each, gs in wanted for group in gs
        ]
        self.published += len(envelopes)
        if wait and not once:
            await self._acknowledged([done for done in given if done is not None])

    def _give(
        self, envelope: Envelope, group: _Group, *, once: bool, full: list[_Group]
    ) -> asyncio.Future[None] | None:
        if group not in full:
            return group.give(envelope, once=once)
        if once:
            self.lost += 1
        else:
            self.bury(DeadLetter(envelope, group.name, "its queue is full", 0, self.clock.now()))
        return None

    def _wanting(self, topic: str) -> list[_Group]:
        return [group for group in self._groups.values() if group.wants(topic)]

    def _full(self, wanted: list[tuple[Envelope, list[_Group]]]) -> list[_Group]:
        counts: dict[str, int] = {}
        for envelope, groups in wanted:
            for group in groups:
                if not group.knows(envelope.id):
                    counts[group.key] = counts.get(group.key, 0) + 1
        return [
            group
            for key, count in counts.items()
            if (group := self._groups[key]).waiting + count > DEPTH_MAX
        ]

    async def _acknowledged(self, given: list[asyncio.Future[None]]) -> None:
        pending = [done for done in given if not done.done()]
        if not pending:
            return
        late: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        handle = self.clock.call_later(
            ACKNOWLEDGED_SECONDS_MAX,
            lambda: None if late.done() else late.set_result(None),
        )
        everyone = asyncio.ensure_future(asyncio.gather(*pending))
        try:
            await asyncio.wait([everyone, late], return_when=asyncio.FIRST_COMPLETED)
            if not everyone.done():
                raise Unacknowledged(
                    f"not acknowledged within {ACKNOWLEDGED_SECONDS_MAX:g} s; it is still being delivered",
                    hint="publish it again with the same id to wait on; nobody gets it twice",
                )
        finally:
            handle.cancel()
            late.cancel()

    # --- subscribing -----------------------------------------------------------------------------------------

    async def subscribe(
        self, patterns: Sequence[str], receiver: Receiver, *, group: str = "", name: str = ""
    ) -> Subscription:
        if not callable(receiver):
            raise Rejected("subscriber-invalid", f"{receiver!r:.80} cannot be called with an event")
        if not patterns:
            raise Rejected("subscriber-invalid", "a subscriber needs at least one pattern")
        for pattern in patterns:
            if not is_pattern(pattern):
                raise Rejected(
                    "topic-invalid",
                    f"`{pattern:.80}` is no pattern of topics",
                    hint="words with dots between them; `*` is any word, `>` at the end the rest",
                )
        self._count += 1
        name = name or f"{getattr(receiver, '__qualname__', type(receiver).__name__)}#{self._count}"
        subscriber = Subscriber(name, tuple(patterns), group, receiver)
        # Whoever names no group is a group of one, under a name that no group can have.
        key = group or f"\n{self._count}"
        if key not in self._groups:
            self._groups[key] = _Group(self, key, group or name)
        self._groups[key].members.append(subscriber)
        return subscriber

    async def unsubscribe(self, subscription: Subscription) -> None:
        for key, group in list(self._groups.items()):
            if subscription in group.members:
                group.members.remove(cast("Subscriber", subscription))
                if not group.members:
                    del self._groups[key]
                    await group.end()

    # --- how it fares ----------------------------------------------------------------------------------------

    def status(self) -> BusStatus:
        subscribers = tuple(
            SubscriberStatus(
                each.name, each.patterns, each.group, each.handled, each.failed, group.waiting
            )
            for group in self._groups.values()
            for each in group.members
        )
        return BusStatus(
            "memory", self._qos, self.published, self.delivered, self.duplicates, self.lost, self.dead, subscribers
        )  # fmt: skip

    def dead_letters(self) -> list[DeadLetter]:
        return list(self._dead)

    def bury(self, letter: DeadLetter) -> None:
        self.dead += 1
        self._dead.append(letter)
        log.error(
            "bus.dead_letter",
            extra={"subscriber": letter.subscriber, "topic": letter.envelope.topic, "event": letter.envelope.id, "error": letter.error},
        )  # fmt: skip

    @property
    def qos(self) -> QoS:
        return self._qos

    def set_qos(self, qos: QoS) -> None:
        self._qos: QoS = _checked(qos)

    def quiet(self) -> bool:
        return not any(group.waiting for group in self._groups.values())


def _checked(qos: str) -> QoS:
    if qos not in QOS:
        raise Rejected(
            "qos-unknown", f"`{qos}` is no quality of service", hint=f"there are {', '.join(QOS)}"
        )
    return qos


def _is_async(function: Callable[..., Any]) -> bool:
    while isinstance(function, functools.partial):
        function = cast("Any", function).func
    if not inspect.isroutine(function):
        function = type(function).__call__
    return inspect.iscoroutinefunction(function)
