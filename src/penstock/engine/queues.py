"""Queue: attempts that wait for a place, and which of them goes next (SPEC 5.1).

By priority; within one the earliest deadline, then fair between tenants, then in order of arrival. Whoever has waited
for `longest_wait` gets every second place, the oldest first. Places and rates are `engine/dispatch.py`'s.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush

from penstock.model.queue import QueueOptions, QueueView
from penstock.policy.limits import Rate
from penstock.policy.shares import Shares, aged

Ticket = tuple[str, str, int, bool, int]
"""(run id, key, attempt, undo, generation)"""
HIGH, PRIORITIES = 0, 3
SLACK = 64


class Waiting:
    """An attempt that waits for a place, or has one in a queue with limits of its own."""

    __slots__ = (
        "deadline", "key", "key_limit", "number", "parked", "priority", "queue", "since", "taken", "tenant", "ticket",
    )  # fmt: skip

    def __init__(
        self,
        ticket: Ticket,
        queue: Queue,
        priority: int,
        deadline: float | None,
        tenant: str,
        key: str | None,
        key_limit: int,
    ) -> None:
        self.ticket, self.queue, self.priority, self.deadline = ticket, queue, priority, deadline
        self.tenant, self.key, self.key_limit = tenant, key, key_limit
        self.since = 0.0
        self.number = 0
        """In order of arrival."""
        self.taken = False
        """It waits here no more."""
        self.parked = False
        """It waits for its key."""

    def __lt__(self, other: Waiting) -> bool:
        """In a heap, of two entries of one attempt, one of which waits no more: any order will do."""
        return False


class _Class:
    """Those of one priority."""

    __slots__ = ("dated", "lines", "tenants")

    def __init__(self) -> None:
        self.dated: list[tuple[float, int, Waiting]] = []
        """A heap of those with a deadline."""
        self.lines: dict[str, deque[Waiting]] = {}
        """The others, by tenant."""
        self.tenants = Shares()

    def put(self, waiting: Waiting, *, again: bool) -> None:
        if waiting.deadline is not None:
            heappush(self.dated, (waiting.deadline, waiting.number, waiting))
            return
        line = self.lines.get(waiting.tenant)
        if line is None:
            line = self.lines[waiting.tenant] = deque()
        if again:
            line.appendleft(waiting)
        else:
            line.append(waiting)
        self.tenants.join(waiting.tenant)

    def pop(self) -> Waiting | None:
        while self.dated:
            waiting = heappop(self.dated)[2]
            if not waiting.taken:
                return waiting
        tenants = self.tenants
        while len(tenants):
            tenant = tenants.first()
            line = self.lines[tenant]
            while line and line[0].taken:
                line.popleft()
            if not line:
                tenants.leave()
                del self.lines[tenant]
                continue
            waiting = line.popleft()
            if not line:
                del self.lines[tenant]
            tenants.took(more=bool(line))
            return waiting
        return None

    def tidy(self) -> None:
        """Drop what waits here no more."""
        self.dated = [entry for entry in self.dated if not entry[2].taken]
        heapify(self.dated)
        for tenant, line in list(self.lines.items()):
            self.lines[tenant] = deque(waiting for waiting in line if not waiting.taken)


class Queue:
    """See the module's docstring."""

    def __init__(self, name: str, options: QueueOptions | None = None) -> None:
        self.name = name
        self.options = options or QueueOptions()
        self.rate: Rate | None = None
        self.running = 0
        self.high = 0
        """Those of them that have high priority."""
        self.reserve = 0
        self.waiting = 0
        """Those that wait for a place, not those that wait for their key."""
        self.parked = 0
        self.armed = False
        """A timer will say when the rate lets the next one begin."""
        self.by: str | None = None
        self.reason = ""
        self._classes = [_Class() for _ in range(PRIORITIES)]
        self._old: deque[Waiting] = deque()
        """All of them in order of arrival."""
        self._aged_last = False
        self.configure(self.options)

    def configure(self, options: QueueOptions) -> None:
        self.options = options
        self.rate = (
            None if options.rate is None else Rate(options.rate, options.burst).like(self.rate)
        )

    def put(self, waiting: Waiting, *, again: bool = False) -> None:
        """`again`: it has waited before, and goes to where it was, as far as that is known."""
        self.waiting += 1
        self._classes[waiting.priority].put(waiting, again=again)
        if again:
            self._old.appendleft(waiting)
        else:
            self._old.append(waiting)

    def withdraw(self, waiting: Waiting) -> None:
        """It waits no more, wherever it stands."""
        waiting.taken = True
        self.waiting -= 1
        if len(self._old) > 2 * self.waiting + SLACK:
            self._old = deque(each for each in self._old if not each.taken)
            for each in self._classes:
                each.tidy()

    def pop(self, now: float, *, high_only: bool = False) -> Waiting | None:
        """The one that goes next, taken out."""
        old = self._old
        while old and old[0].taken:
            old.popleft()
        if not old:
            return None
        if (
            not self._aged_last
            and aged(old[0].since, now, self.options.longest_wait)
            and not (high_only and old[0].priority != HIGH)
        ):
            waiting: Waiting | None = old.popleft()
            self._aged_last = True
        else:
            waiting = None
            for each in self._classes[:1] if high_only else self._classes:
                waiting = each.pop()
                if waiting is not None:
                    break
            self._aged_last = False
        if waiting is not None:
            self.withdraw(waiting)
        return waiting

    def full(self) -> bool:
        limit = self.options.limit
        return limit is not None and self.running >= limit

    def high_only(self) -> bool:
        """What is left of its places is kept for high priority."""
        options = self.options
        if not options.reserve_high or options.limit is None:
            return False
        return self.running - self.high >= options.limit - options.reserve_high

    def oldest(self) -> float | None:
        """Since when the first has waited."""
        while self._old and self._old[0].taken:
            self._old.popleft()
        return self._old[0].since if self._old else None

    def view(self, now: float) -> QueueView:
        options, since = self.options, self.oldest()
        return QueueView(
            name=self.name, running=self.running, waiting=self.waiting + self.parked,
            oldest_wait=0.0 if since is None else max(0.0, now - since), limit=options.limit, rate=options.rate,
            burst=options.burst, depth=options.depth, reserve=self.reserve, reserve_high=options.reserve_high,
            longest_wait=options.longest_wait, weight=options.weight, by=self.by, reason=self.reason,
        )  # fmt: skip
