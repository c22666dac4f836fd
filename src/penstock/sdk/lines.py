"""Lines: work that waits for a thread or a child process, in turn between queues, then by priority, then by arrival.

There are fewer threads than places in a node: without this, a backlog of one queue would stand in front of the threads
and delay every other queue there (SPEC 5.1).
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Generic, Protocol, TypeVar

from penstock.model.job import Job
from penstock.policy.shares import Shares


class Queued(Protocol):
    @property
    def job(self) -> Job: ...


Q = TypeVar("Q", bound=Queued)


class Lines(Generic[Q]):
    def __init__(self) -> None:
        self._lines: dict[str, list[tuple[int, int, Q]]] = {}
        self._turns = Shares()
        self._count = 0

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def __bool__(self) -> bool:
        return bool(self._lines)

    def __iter__(self) -> Iterator[Q]:
        for line in list(self._lines.values()):
            for _, _, work in sorted(line, key=lambda each: each[:2]):
                yield work

    def put(self, work: Q) -> None:
        self._count += 1
        queue = work.job.queue
        heappush(self._lines.setdefault(queue, []), (work.job.priority, self._count, work))
        self._turns.join(queue)

    def first(self) -> Q:
        """Whose turn it is."""
        return self._lines[self._turns.first()][0][2]

    def pop(self) -> Q:
        queue = self._turns.first()
        line = self._lines[queue]
        work = heappop(line)[2]
        if not line:
            del self._lines[queue]
        self._turns.took(more=bool(line))
        return work

    def clear(self) -> None:
        self._lines.clear()
        self._turns = Shares()
