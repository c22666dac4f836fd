"""Chooses which attempts go next: places of the node among queues, limits, rates and keys (SPEC 4.10, 5.1).

The node has `limit` places. Each queue has some that are its own (`reserve`); the others are common, and go to the
queues that wait in turn, by weight. So a backlog in one queue never delays another: where several are known each has a
place of its own, and the next common one that is free goes to whoever had the least. Within a queue
`engine/queues.py` chooses. Per key at most `concurrency` attempts are under way; whoever waits for a key holds up nobody.

While there is one queue without limits of its own (`lone`), an attempt that finds a free place begins at once and
leaves no trace here. Nothing is stored: after a crash all of this follows from what the runs want.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from heapq import heappop, heappush

from penstock.engine.queues import HIGH, Queue, Ticket, Waiting
from penstock.engine.timers import Timers
from penstock.model.queue import DEFAULT, QueueOptions, QueueView
from penstock.policy.shares import Shares
from penstock.ports.clock import Clock

__all__ = ["Dispatch", "Ticket"]

_Parked = tuple[int, float, int, Waiting]


class Dispatch:
    def __init__(
        self,
        begin: Callable[[Ticket], bool],
        clock: Clock,
        timers: Timers,
        *,
        limit: int,
        options: Mapping[str, QueueOptions] | None = None,
    ) -> None:
        self._begin = begin
        """Begin the attempt; False if it is not wanted (any more)."""
        self._clock, self._timers = clock, timers
        self.limit = limit
        self.running = 0
        self.open = True
        self.lone = True
        self.waiting: dict[Ticket, Waiting] = {}
        """Those that wait for a place or for their key."""
        self.queues: dict[str, Queue] = {}
        self._default = self._add(DEFAULT)
        self._held: dict[Ticket, Waiting] = {}
        """Those under way; in a lone queue they are only counted."""
        self._common = 0
        """Common places that are taken."""
        self._ring = Shares()
        """Queues that have someone waiting and may have a place for them."""
        self._keys: dict[str, int] = {}
        """Attempts under way by key."""
        self._parked: dict[str, dict[tuple[Queue, int], list[_Parked]]] = {}
        """Those that wait for a key, by queue and by how many may be under way: heaps."""
        self._count = 0
        self._places = limit
        """The common ones."""
        self._stirred: list[Queue] = []
        """Queues in which somebody may find a place of the queue's own."""
        self._short: list[Queue] = []
        """Queues whose own place is still taken by another's attempt, as places were given out anew."""
        self._busy = False
        for name, each in (options or {}).items():
            self.configure(name, each)

    def __len__(self) -> int:
        """Attempts that wait for a place."""
        return len(self.waiting)

    # --- in and out ------------------------------------------------------------------------------------------

    def at_once(self, ticket: Ticket) -> bool:
        """Of a lone queue: begin the attempt if there is a free place and nobody waits; False if it must wait."""
        if self.running < self.limit and not self.waiting and self.open and self.lone:
            if self._begin(ticket):
                self.running += 1
            return True
        return False

    def offer(
        self,
        ticket: Ticket,
        priority: int,
        deadline: float | None,
        *,
        queue: str = DEFAULT,
        tenant: str = "",
        key: str | None = None,
        key_limit: int = 0,
    ) -> None:
        """Begin the attempt as soon as its queue, its key and the node have a place for it."""
        if key is not None and self.lone:
            self._grow()
        named = self.queues.get(queue) or self.open_queue(queue)
        waiting = Waiting(ticket, named, priority, deadline, tenant, key, key_limit)
        self._count += 1
        waiting.number, waiting.since = self._count, self._clock.now()
        self.waiting[ticket] = waiting
        named.put(waiting)
        self._ring.join(queue)
        self._pump(named)

    def withdraw(self, ticket: Ticket) -> None:
        """It is not wanted any more, or has waited for too long."""
        waiting = self.waiting.pop(ticket, None)
        if waiting is None:
            return
        if waiting.parked:
            waiting.taken = True
            waiting.queue.parked -= 1
            return
        waiting.queue.withdraw(waiting)
        if waiting.key is not None:
            self._unpark(waiting.key)  # it may have been the one that the key was free for
            self._pump(waiting.queue)

    def done(self, ticket: Ticket) -> None:
        """An attempt that was begun has ended: its place is free."""
        self.running -= 1
        if self.lone:
            if self.waiting:
                self._pump(self._default)
            return
        held = self._held.pop(ticket, None)
        queue = self._default if held is None else held.queue
        if queue.running > queue.reserve:
            self._common -= 1
        queue.running -= 1
        if held is not None:
            if held.priority == HIGH:
                queue.high -= 1
            if held.key is not None:
                self._release(held.key)
        if queue.waiting:
            self._ring.join(queue.name)
        if self._short:
            self._stirred.extend(self._short)
            self._short.clear()
        self._pump(queue)

    def promote(self, ticket: Ticket) -> None:
        """It goes with those of high priority from now on."""
        waiting = self.waiting.get(ticket)
        if waiting is None or waiting.parked or waiting.priority == HIGH:
            if waiting is not None:
                waiting.priority = HIGH  # once its key is free
            return
        waiting.queue.withdraw(waiting)
        fresh = _again(waiting)
        fresh.priority = HIGH
        self.waiting[ticket] = fresh
        fresh.queue.put(fresh, again=True)
        self._ring.join(fresh.queue.name)
        self._pump(fresh.queue)

    def clear(self) -> None:
        """Nothing that waits here counts any more."""
        for ticket in list(self.waiting):
            self.withdraw(ticket)
        self._parked.clear()

    # --- choosing --------------------------------------------------------------------------------------------

    def _pump(self, own: Queue) -> None:
        """Begin what can begin: in the queues' own places, then in the common ones, in turn."""
        stirred, ring, queues = self._stirred, self._ring, self.queues
        stirred.append(own)
        if self._busy or not self.open:
            return
        if self.lone:
            own.running = self._common = self.running
        self._busy = True
        try:
            while True:
                while stirred:
                    own = stirred.pop()
                    while own.running < own.reserve and own.waiting:
                        if self.running >= self.limit:
                            self._short.append(own)
                            break
                        if not self._next(own):
                            break
                if not len(ring) or self._common >= self._places or self.running >= self.limit:
                    return
                queue = queues[ring.first()]
                if self._next(queue):
                    ring.took(more=queue.waiting > 0)
                else:
                    ring.leave()
        finally:
            self._busy = False

    def _next(self, queue: Queue) -> bool:
        """Begin the next attempt of the queue, if it has one that may."""
        while queue.waiting and not queue.full():
            now = self._clock.now()
            rate = queue.rate
            if rate is not None and (left := rate.due() - self._clock.ticks()) > 0:
                if not queue.armed:
                    queue.armed = True
                    self._timers.after(left, self._refilled, queue)
                return False
            waiting = queue.pop(now, high_only=queue.high_only())
            if waiting is None:
                return False
            key = waiting.key
            if key is not None and self._keys.get(key, 0) >= waiting.key_limit:
                self._park(waiting, key)
                continue
            del self.waiting[waiting.ticket]
            if not self._begin(waiting.ticket):
                if key is not None:
                    self._unpark(key)
                continue
            self._took(queue, waiting)
            if rate is not None:
                rate.took(self._clock.ticks())
            return True
        return False

    def _took(self, queue: Queue, waiting: Waiting) -> None:
        self.running += 1
        queue.running += 1
        if queue.running > queue.reserve:
            self._common += 1
        if self.lone:
            return
        self._held[waiting.ticket] = waiting
        if waiting.priority == HIGH:
            queue.high += 1
        if waiting.key is not None:
            self._keys[waiting.key] = self._keys.get(waiting.key, 0) + 1

    def _refilled(self, queue: Queue) -> None:
        queue.armed = False
        if queue.waiting:
            self._ring.join(queue.name)
            self._pump(queue)

    # --- keys ------------------------------------------------------------------------------------------------

    def _park(self, waiting: Waiting, key: str) -> None:
        parked = _again(waiting)
        parked.parked = True
        parked.queue.parked += 1
        self.waiting[waiting.ticket] = parked
        order = float("inf") if parked.deadline is None else parked.deadline
        line = self._parked.setdefault(key, {}).setdefault((parked.queue, parked.key_limit), [])
        heappush(line, (parked.priority, order, parked.number, parked))

    def _release(self, key: str) -> None:
        left = self._keys[key] - 1
        if left:
            self._keys[key] = left
        else:
            del self._keys[key]
        self._unpark(key)

    def _unpark(self, key: str) -> None:
        """Of each queue the next that waits for the key goes back to it: whichever queue has a place first uses the
        free key, and those that come too late are parked again."""
        lines = self._parked.get(key)
        if lines is None:
            return
        under_way = self._keys.get(key, 0)
        for (queue, limit), line in list(lines.items()):
            while line and line[0][3].taken:
                heappop(line)
            if line and limit > under_way:
                waiting = _again(heappop(line)[3])
                queue.parked -= 1
                self.waiting[waiting.ticket] = waiting
                queue.put(waiting, again=True)
                self._ring.join(queue.name)
                self._stirred.append(queue)
            if not line:
                del lines[queue, limit]
        if not lines:
            del self._parked[key]

    # --- settings --------------------------------------------------------------------------------------------

    def open_queue(self, name: str) -> Queue:
        """A queue that is first heard of."""
        self._grow()
        queue = self._add(name)
        self._share_out()
        return queue

    def configure(
        self, name: str, options: QueueOptions, *, by: str | None = None, reason: str = ""
    ) -> None:
        """In force at once: attempts under way go on, those that wait go by the new options."""
        self._grow()
        queue = self.queues.get(name) or self._add(name)
        queue.configure(options)
        queue.by, queue.reason = by, reason
        queue.armed = False  # its timer finds nothing to do, or does the same
        self._ring.weights[name] = options.weight
        self._share_out()
        self.more()

    def more(self) -> None:
        """Limits have changed: look whether anyone can begin."""
        for queue in list(self.queues.values()):
            if queue.waiting:
                self._ring.join(queue.name)
                self._pump(queue)

    def _add(self, name: str) -> Queue:
        queue = self.queues[name] = Queue(name)
        return queue

    def _grow(self) -> None:
        """From now on places are counted by queue."""
        if self.lone:
            self.lone = False
            self._default.running = self._common = self.running

    def _share_out(self) -> None:
        """Places of their own: as configured, else one for each as long as half of the places stay common."""
        left = self.limit // 2 - sum(q.options.reserve or 0 for q in self.queues.values())
        several = len(self.queues) > 1
        for queue in self.queues.values():
            given = queue.options.reserve
            if given is None:
                given = 1 if several and left > 0 else 0
                left -= given
            limit = queue.options.limit
            queue.reserve = given if limit is None else min(given, limit)
        self._places = self.limit - sum(queue.reserve for queue in self.queues.values())
        self._common = sum(max(0, q.running - q.reserve) for q in self.queues.values())

    # --- asking ----------------------------------------------------------------------------------------------

    def deep(self, names: tuple[str, ...]) -> Queue | None:
        """Of these queues one that has as many waiting as it may."""
        for name in names:
            queue = self.queues.get(name)
            if queue is not None and queue.waiting + queue.parked >= queue.options.depth:
                return queue
        return None

    def why(self, ticket: Ticket) -> tuple[str, float | None] | None:
        """What the attempt waits for here, and until when if that is known; None if it does not wait here."""
        waiting = self.waiting.get(ticket)
        if waiting is None:
            return None
        queue = waiting.queue
        name = f"queue `{queue.name}`"
        if waiting.parked:
            under = self._keys.get(waiting.key or "", 0)
            return f"its key {waiting.key}: {under} of {waiting.key_limit} under way", None
        others = f"{queue.waiting - 1} others wait"
        if queue.full():
            return (
                f"a place in {name}: {queue.running} of {queue.options.limit} taken, {others}",
                None,
            )
        if queue.high_only() and waiting.priority != HIGH:
            kept = queue.options.reserve_high
            return (
                f"a place in {name}: what is left ({kept}) is kept for high priority, {others}",
                None,
            )
        left = 0.0 if queue.rate is None else queue.rate.due() - self._clock.ticks()
        if queue.rate is not None and left > 0:
            return (
                f"the rate of {name}: {queue.rate.per_second:g} per second, {others}",
                self._clock.now() + left,
            )
        return (
            f"a place in this node ({name}): {self.running} of {self.limit} taken, {others}",
            None,
        )

    def views(self) -> list[QueueView]:
        if self.lone:
            self._default.running = self.running
        now = self._clock.now()
        return [queue.view(now) for queue in self.queues.values()]


def _again(waiting: Waiting) -> Waiting:
    """The same attempt, for another place to wait in: where it was, it is marked as gone."""
    fresh = Waiting(
        waiting.ticket, waiting.queue, waiting.priority, waiting.deadline, waiting.tenant, waiting.key, waiting.key_limit
    )  # fmt: skip
    fresh.since, fresh.number = waiting.since, waiting.number
    return fresh
