"""Laws of the dispatch: limits hold, nobody is lost or starves, no queue delays another (SPEC 4.10, 5.1)."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from math import inf, nextafter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.dispatch import Dispatch, Ticket
from penstock.engine.timers import Timers
from penstock.model.queue import QueueOptions
from penstock.testing.harness import SkipClock, SkipHandle

QUEUES = ("default", "mail", "web")


class Still(SkipClock):
    """Needs no event loop: what is due already is called by the next move."""

    def call_at(self, when: float, callback: Callable[[], None]) -> SkipHandle:
        return super().call_at(max(when, nextafter(self.now(), inf)), callback)


class World:
    """A dispatch, and all that it has begun."""

    def __init__(self, limit: int, **options: QueueOptions) -> None:
        self.clock = Still()
        self.timers = Timers(self.clock)
        self.begun: list[Ticket] = []
        self.at: dict[Ticket, float] = {}
        self.running: list[Ticket] = []
        self.what: dict[Ticket, dict[str, Any]] = {}
        self.unwanted: set[Ticket] = set()
        self.dispatch = Dispatch(self._begin, self.clock, self.timers, limit=limit, options=options)
        self.count = 0

    def _begin(self, ticket: Ticket) -> bool:
        if ticket in self.unwanted:
            return False
        assert ticket not in self.at, "begun twice"
        key = self.what[ticket].get("key")
        if key is not None:
            under_way = sum(1 for each in self.running if self.what[each].get("key") == key)
            assert under_way < self.what[ticket]["key_limit"]
        self.begun.append(ticket)
        self.at[ticket] = self.clock.now()
        self.running.append(ticket)
        return True

    def offer(self, priority: int = 1, deadline: float | None = None, **more: Any) -> Ticket:
        self.count += 1
        ticket = (f"r{self.count}", "t", 1, False, 1)
        self.what[ticket] = {"priority": priority, "since": self.clock.now(), **more}
        if not more and self.dispatch.at_once(ticket):
            return ticket
        self.dispatch.offer(ticket, priority, deadline, **more)
        return ticket

    def done(self, place: int = 0) -> None:
        ticket = self.running.pop(place)
        self.dispatch.done(ticket)

    def skip(self, seconds: float) -> None:
        target = self.clock.now() + seconds
        while (due := self.clock.next()) is not None and due <= target:
            self.clock.move(due)
        self.clock.move(target)

    def queue_of(self, ticket: Ticket) -> str:
        return str(self.what[ticket].get("queue", "default"))


OPTIONS = st.builds(
    QueueOptions,
    limit=st.sampled_from([None, 1, 2, 5]),
    reserve=st.sampled_from([None, 0, 1, 2]),
    rate=st.sampled_from([None, 0.5, 10.0]),
    burst=st.integers(1, 3),
)
LIMITED = st.builds(QueueOptions, limit=st.sampled_from([None, 1, 1, 2]))
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("offer"),
            st.sampled_from(QUEUES),
            st.integers(0, 2),
            st.sampled_from([None, "k", "k", "l"]),
            st.sampled_from([1, 1, 2]),
            st.sampled_from([None, 5.0, 50.0]),
        ),
        st.tuples(st.just("done"), st.integers(0, 100)),
        st.tuples(st.just("skip"), st.sampled_from([0.1, 1.0, 100.0])),
        st.tuples(st.just("drop"), st.integers(0, 100)),
        st.tuples(st.just("set"), st.sampled_from(QUEUES), OPTIONS),
    ),
    max_size=60,
)


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 6), st.dictionaries(st.sampled_from(QUEUES), LIMITED), STEPS)
def test_limits_hold_and_nobody_is_lost_or_held_up_for_nothing(
    limit: int, options: dict[str, QueueOptions], steps: list[tuple[Any, ...]]
) -> None:
    world = World(limit, **options)
    dispatch = world.dispatch
    dropped: set[Ticket] = set()
    for step in steps:
        match step:
            case ("offer", queue, priority, key, key_limit, deadline):
                world.offer(
                    priority, deadline, queue=queue, tenant=str(priority), key=key, key_limit=key_limit,
                )  # fmt: skip
            case ("done", place) if world.running:
                world.done(place % len(world.running))
            case ("skip", seconds):
                world.skip(seconds)
            case ("drop", place) if dispatch.waiting:
                ticket = list(dispatch.waiting)[place % len(dispatch.waiting)]
                dispatch.withdraw(ticket)
                dropped.add(ticket)
            case ("set", queue, changed):
                kept = {n: q.options.reserve or 0 for n, q in dispatch.queues.items()}
                if sum({**kept, queue: changed.reserve or 0}.values()) < limit:
                    dispatch.configure(queue, changed)
            case _:
                pass
        _sound(world, limit)
    # All that was not dropped begins in the end.
    for _ in range(1000):
        if not dispatch.waiting and not world.running:
            break
        while world.running:
            world.done()
        world.skip(10)
    assert not dispatch.waiting
    assert set(world.begun) | dropped >= set(world.what)
    assert all(view.running == view.waiting == 0 for view in dispatch.views())


def _sound(world: World, limit: int) -> None:
    dispatch = world.dispatch
    assert dispatch.running == len(world.running) <= limit
    keys = Counter(
        world.what[t]["key"] for t in world.running if world.what[t].get("key") is not None
    )
    by_queue = Counter(world.queue_of(t) for t in world.running)
    common = limit - sum(queue.reserve for queue in dispatch.queues.values())
    used = sum(max(0, queue.running - queue.reserve) for queue in dispatch.queues.values())
    for name, queue in dispatch.queues.items():
        assert dispatch.lone or queue.running == by_queue[name]
    for ticket, waiting in dispatch.waiting.items():
        # Whoever waits does so for a reason that holds: its key, its queue, its rate, or the node.
        queue = waiting.queue
        free = queue.running < queue.reserve or used < common
        key = waiting.key
        blocked = (
            (key is not None and keys[key] >= waiting.key_limit)
            or queue.full()
            or (queue.rate is not None and queue.rate.due() > world.clock.now())
            or not free
            or dispatch.running >= limit  # places were given out anew while all were taken
        )
        assert blocked, (ticket, queue.name)
        assert dispatch.why(ticket) is not None


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from([1, 2]), min_size=1, max_size=20), st.integers(0, 30))
def test_nobody_waits_much_longer_than_the_longest_wait(lows: list[int], before: int) -> None:
    """One place, an attempt a second, and more of high priority than that: after 10 s an old one gets every second
    place, so that the k-th of them begins at the latest 2 k s later."""
    world = World(1, default=QueueOptions(longest_wait=10.0))
    world.offer(0)
    world.offer(0)
    tickets = [world.offer(priority) for priority in lows]
    for _ in range(before):
        world.offer(0)
    for _ in range(200):
        world.offer(0)
        world.skip(1)
        world.done()
        world.offer(0)

    for place, ticket in enumerate(tickets, 1):
        waited = world.at[ticket] - world.what[ticket]["since"]
        # Those of high priority that came before the first of them may be old, too.
        assert waited <= 10.0 + 2 * (place + before + 2)


def test_old_work_does_not_take_all_places() -> None:
    """A backlog of low priority that is older than the longest wait leaves every second place to high."""
    world = World(1, default=QueueOptions(longest_wait=10.0))
    for _ in range(100):
        world.offer(2)
    world.skip(100)
    high = [world.offer(0) for _ in range(10)]
    for _ in range(21):
        world.done()

    assert all(ticket in world.at for ticket in high)


def test_within_a_priority_the_earliest_deadline_goes_first() -> None:
    world = World(1)
    world.offer()
    last, soon, later = world.offer(), world.offer(1, 100.0), world.offer(1, 200.0)
    low = world.offer(2, 1.0)
    while world.running:
        world.done()

    assert world.begun[1:] == [soon, later, last, low]


def test_a_tenant_with_few_is_done_early() -> None:
    """10,000 of one tenant and then 10 of another: those are done after 20 turns."""
    world = World(1)
    for _ in range(10_001):
        world.offer(1, None, queue="default", tenant="a")
    mine = [world.offer(1, None, queue="default", tenant="b") for _ in range(10)]
    for _ in range(20):
        world.done()

    assert all(ticket in world.at for ticket in mine)


def test_a_backlog_in_one_queue_never_delays_another() -> None:
    """100,000 wait in one queue, all places are taken for ever: another queue has a place of its own, at once; and as
    long as places become free, each second one is its own until it has as many."""
    world = World(100)
    world.offer(queue="web")
    world.done()
    for _ in range(100_000):
        world.offer(2, queue="bulk")
    bulk = world.dispatch.queues["bulk"]
    assert bulk.waiting >= 99_900

    first = world.offer(queue="web")
    assert first in world.at

    others = [world.offer(2, queue="web") for _ in range(40)]
    for _ in range(80):
        world.done()  # the oldest: of bulk
    assert all(ticket in world.at for ticket in others)


def test_a_backlog_does_not_make_the_choice_slow() -> None:
    """As many calls with 20,000 that wait as with 200."""

    def calls(backlog: int) -> int:
        world, count = World(100), 0
        for _ in range(backlog):
            world.offer(2, queue="bulk")
        for _ in range(40):
            world.offer(2, queue="web")

        def note(frame: Any, event: str, argument: Any) -> None:
            nonlocal count
            count += event in ("call", "c_call")

        sys.setprofile(note)
        try:
            for _ in range(80):
                world.done()
        finally:
            sys.setprofile(None)
        return count

    assert calls(20_000) < 1.5 * calls(200)


def test_places_are_kept_for_a_queue_and_for_high_priority() -> None:
    world = World(10, mail=QueueOptions(reserve=3), bulk=QueueOptions(limit=4, reserve_high=2))
    for _ in range(20):
        world.offer(1, queue="bulk")
    assert world.dispatch.queues["bulk"].running == 2
    high = [world.offer(0, queue="bulk") for _ in range(3)]
    assert [ticket in world.at for ticket in high] == [True, True, False]
    for _ in range(20):
        world.offer(1)
    assert world.dispatch.running == 7
    assert all(world.offer(queue="mail") in world.at for _ in range(3))
    assert world.dispatch.running == 10


def test_a_rate_is_kept_and_used() -> None:
    world = World(1000, mail=QueueOptions(rate=50, burst=5))
    for _ in range(500):
        world.offer(queue="mail")
    assert len(world.begun) == 5
    world.skip(1)
    assert len(world.begun) == 55
    world.skip(9.8)
    assert len(world.begun) == 500
    times = sorted(world.at.values())
    assert all(b - a >= 1 - 1e-6 for a, b in zip(times, times[55:], strict=False))


def test_who_waits_for_a_key_holds_up_nobody() -> None:
    world = World(10)
    first = world.offer(queue="a", key="x", key_limit=1)
    second = world.offer(queue="a", key="x", key_limit=1)
    third = world.offer(queue="a", key="x", key_limit=1)
    other = world.offer(queue="a", key="y", key_limit=1)
    assert [t in world.at for t in (first, second, third, other)] == [True, False, False, True]
    waits = world.dispatch.why(second)
    assert waits is not None
    assert "key x: 1 of 1" in waits[0]

    world.unwanted.add(second)
    world.done()
    assert third in world.at
    assert second not in world.dispatch.waiting


def test_a_free_key_is_not_kept_for_one_whose_queue_is_full() -> None:
    world = World(10, lazy=QueueOptions(limit=1))
    first = world.offer(queue="quick", key="x", key_limit=1)
    slow = world.offer(queue="lazy", key="x", key_limit=1)
    second = world.offer(queue="quick", key="x", key_limit=1)
    long = world.offer(queue="lazy")
    assert world.running == [first, long]

    world.done()
    assert world.running == [long, second], "the queue of the one before it is full"
    world.done()
    assert slow not in world.at, "now its key is taken"
    world.done()
    assert slow in world.at


def test_of_one_key_each_has_its_own_limit() -> None:
    world = World(10)
    first = world.offer(queue="a", key="x", key_limit=2)
    second = world.offer(queue="a", key="x", key_limit=2)
    strict = world.offer(queue="a", key="x", key_limit=1)
    third = world.offer(queue="a", key="x", key_limit=2)
    assert world.running == [first, second]
    world.done()
    assert world.running == [second, third], "the one before it may only be alone"
    world.done()
    world.done()
    assert world.running == [strict]
