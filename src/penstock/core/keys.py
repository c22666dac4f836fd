"""Keys of tasks, and of the run's own times: how they are read, ordered and shortened.

A task's key is its path of scopes and its id, `retry[2]/items[17]/charge` (SPEC 2.3, keys).
"""

from __future__ import annotations

from msgspec.structs import replace

from penstock.model.failure import Failure

RUN, GRACE, BEGIN, DEADLINE = "#run", "#grace", "#begin", "#deadline"
"""Entries of the heap of due times that are the run's own, not a task's."""


def static(key: str) -> str:
    """The path of a task in its definition."""
    return "/".join([segment.partition("[")[0] for segment in key.split("/")])


def natural(key: str) -> list[tuple[int, str]]:
    """Keys in order: `items[2]` before `items[10]`."""
    parts: list[tuple[int, str]] = []
    for segment in key.split("/"):
        id, _, number = segment.partition("[")
        parts.append((0, id))
        parts.append((int(number[:-1]) if number else -1, ""))
    return parts


def with_key(failure: Failure, key: str) -> Failure:
    if failure.key:
        return failure
    return replace(failure, key=key)
