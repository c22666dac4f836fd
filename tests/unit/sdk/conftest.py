"""Workers for tests, closed at their end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from penstock.sdk.worker import LocalActivities
from penstock.sdk.workflow import Registry
from unit.sdk.desk import Desk, ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def desk(clock: ManualClock) -> AsyncIterator[Callable[..., Desk]]:
    workers: list[LocalActivities] = []

    def make(*activities: Any, **options: Any) -> Desk:
        options.setdefault("watch", False)
        worker = LocalActivities(Registry(activities), options.pop("clock", clock), **options)
        workers.append(worker)
        return Desk(worker)

    yield make
    for worker in workers:
        await worker.close(drain_seconds=0)
