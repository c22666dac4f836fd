"""Task logs, from the activity to the history (SPEC 4.10)."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

import penstock
from penstock import Fail, Retry, activity, current
from penstock.model import events as e
from penstock.model.codec import decode_event, encode_event
from penstock.model.job import LogLine
from penstock.testing.harness import NOON, Harness, harness
from unit.sdk import samples

log = logging.getLogger("shop")


@activity(retry=Retry(attempts=2, first=10, jitter=0))
async def stubborn(works: bool) -> int:
    log.info("attempt %d", current().attempt)
    if current().attempt == 1 or not works:
        raise RuntimeError("not yet")
    return 7


@activity
def in_thread() -> str:
    log.warning("in a thread")
    return "done"


@activity
async def silent() -> None:
    log.debug("not kept")


@activity
async def refund(_: Any = None) -> None:
    log.info("refunding, attempt %d", current().attempt)
    if current().attempt == 1:
        raise RuntimeError("the bank is closed")


@activity
async def lost_refund(_: Any = None) -> None:
    log.info("no way")
    raise Fail("gone")


@activity
async def fails() -> None:
    raise Fail("broken")


ACTIVITIES = [stubborn, in_thread, silent, refund, lost_refund, fails, samples.last_words]


@pytest.fixture(autouse=True)
def levels() -> Iterator[None]:
    root = logging.getLogger()
    before = root.level
    root.setLevel(logging.INFO)
    yield
    root.setLevel(before)


async def ended(engine: Harness, tasks: dict[str, Any], input: Any = None) -> penstock.Run:
    await engine.register({"id": "w", "tasks": tasks})
    run = await engine.start("w", input)
    with contextlib.suppress(penstock.RunFailed):
        await engine.finish(run)
    return run


async def logs_of(run: penstock.Run) -> list[tuple[str, int, list[str]]]:
    return [
        (item.type, item.event.attempt, [line.message for line in item.event.logs])  # type: ignore[union-attr]
        for item in await run.history()
        if getattr(item.event, "logs", ())
    ]


async def test_each_attempt_has_its_own_lines() -> None:
    async with harness(activities=ACTIVITIES) as engine:
        run = await ended(engine, {"a": {"do": "stubborn", "inputs": {"works": {"value": True}}}})

        assert await logs_of(run) == [
            ("task_retried", 1, ["attempt 1"]),
            ("task_completed", 2, ["attempt 2"]),
        ]
        (task,) = (task for task in (await run.show()).tasks if task.key == "a")
        assert task.logs == (LogLine(NOON + 10, "INFO", "attempt 2"),)


async def test_a_task_that_fails_keeps_them() -> None:
    async with harness(activities=ACTIVITIES) as engine:
        run = await ended(engine, {"a": {"do": "stubborn", "inputs": {"works": {"value": False}}}})

        assert await logs_of(run) == [
            ("task_retried", 1, ["attempt 1"]),
            ("task_failed", 2, ["attempt 2"]),
        ]


async def test_an_output_that_does_not_fit_keeps_them() -> None:
    async with harness(activities=ACTIVITIES) as engine:
        run = await ended(engine, {"a": {"do": "in_thread", "outputSchema": {"type": "integer"}}})

        assert await logs_of(run) == [("task_failed", 1, ["in a thread"])]


async def test_compensation_keeps_them() -> None:
    async with harness(activities=ACTIVITIES) as engine:
        tasks = {
            "kept": {"do": "silent", "compensate": "lost_refund"},
            "paid": {"do": "silent", "after": "kept", "compensate": "refund"},
            "broken": {"do": "fails", "after": "paid"},
        }
        await engine.register({"id": "w", "tasks": tasks})
        run = await engine.start("w")
        await engine.skip(minutes=1)

        assert await logs_of(run) == [
            ("undo_retried", 1, ["refunding, attempt 1"]),
            ("undo_completed", 2, ["refunding, attempt 2"]),
            ("undo_failed", 1, ["no way"]),
        ]


async def test_an_attempt_whose_process_died_keeps_its_last_words() -> None:
    async with penstock.open("memory:", activities=ACTIVITIES) as engine:
        tasks = {"a": {"do": "last_words", "inputs": {"how": {"value": "exit"}}}}
        await engine.register({"id": "w", "tasks": tasks})
        run = await engine.start("w")
        with pytest.raises(penstock.RunFailed):
            await run.result()

        assert await logs_of(run) == [
            ("task_lost", 1, ["about to exit"]),
            ("task_lost", 2, ["about to exit"]),
            ("task_failed", 3, ["about to exit"]),
        ]


async def test_nothing_is_stored_where_nothing_was_logged() -> None:
    async with harness(activities=ACTIVITIES) as engine:
        run = await ended(engine, {"a": {"do": "silent"}, "b": {"do": "fails", "after": "a"}})

        assert await logs_of(run) == []
        for item in await run.history():
            assert b'"logs"' not in encode_event(item.event)
        assert all(not task.logs for task in (await run.show()).tasks)
        assert b'"logs"' not in msgspec.json.encode(await run.show())


def test_an_event_from_before_there_were_logs_is_read() -> None:
    event = decode_event(b'{"type":"task_completed","at":1.0,"key":"a","attempt":1,"output":7}')

    assert isinstance(event, e.TaskCompleted)
    assert event.logs == ()
    kept = e.TaskCompleted(at=1.0, key="a", attempt=1, logs=(LogLine(0.5, "INFO", "ü\n"),))
    assert decode_event(encode_event(kept)) == kept
