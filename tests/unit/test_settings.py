"""Settings that make no sense are refused when they are made (SPEC 4.10)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from penstock import Rejected, Settings


@pytest.mark.parametrize(
    "given",
    [
        {"max_concurrent_workflows": 0},
        {"max_concurrent_tasks_per_node": -1},
        {"priority_queue_depth": "many"},
        {"cache_runs": -1},
        {"drain_seconds": float("nan")},
        {"drain_seconds": None},
        {"retention": timedelta(days=-1)},
        {"roots_every": True},
    ],
)
def test_a_limit_that_makes_no_sense(given: dict[str, Any]) -> None:
    with pytest.raises(Rejected, match=next(iter(given))) as caught:
        Settings(**given)
    assert caught.value.code == "limit-invalid"
    assert caught.value.hint


def test_no_retention_and_no_cache_are_settings() -> None:
    assert Settings(retention=None).retention is None
    assert Settings(retention=timedelta(hours=1), cache_runs=0).retention == 3600
