"""A function that drives its own coroutine does what it would as a task of asyncio's: the same wants, in the same order,
whatever it awaits, catches and cancels (SPEC 2.8). Generated programs are told generated endings of their steps."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import warnings
from collections.abc import Iterator
from contextvars import Context as Variables
from contextvars import ContextVar
from typing import Any

import msgspec
import pytest

from penstock import Context, StepFailed, workflow
from penstock.core.program import Told
from penstock.model import intents as i
from penstock.model.failure import Failure
from penstock.model.run import Run
from penstock.sdk.context import Context as Made
from penstock.sdk.functions import workflow_of
from penstock.sdk.loop import Task
from penstock.sdk.replay import Replay

EXAMPLES = int(os.environ.get("PENSTOCK_EXAMPLES", "1500"))
EVENTS_MAX = 40
Tree = list[Any]
LEVEL: ContextVar[int] = ContextVar("level", default=0)


class Stage:
    """What the parts of one program share."""

    def __init__(self) -> None:
        self.main: Any = None
        self.event = asyncio.Event()
        self.spawned: list[asyncio.Task[Any]] = []
        self.seen: list[Any] = []


@workflow
async def play(ctx: Context, tree: list[Any]) -> list[Any]:
    stage = Stage()
    stage.main = asyncio.current_task()
    assert stage.main.get_name() == "play"
    try:
        result = await act(ctx, stage, tree)
    finally:
        stage.seen.append(["end", stage.main.cancelling(), LEVEL.get()])
        ctx.publish("seen", stage.seen)
    return [result, stage.seen]


async def act(ctx: Context, stage: Stage, tree: Tree) -> Any:
    kind, *rest = tree
    LEVEL.set(LEVEL.get() + 1)
    result = await ACTS[kind](ctx, stage, *rest)
    stage.seen.append([kind, str(result)[:80]])
    return result


async def call(ctx: Context, stage: Stage, name: str, undo: bool) -> Any:
    return await ctx.call(name, LEVEL.get(), undo="back" if undo else None)


async def several(ctx: Context, stage: Stage, *parts: Tree) -> Any:
    return [await act(ctx, stage, each) for each in parts]


async def gather(ctx: Context, stage: Stage, safe: bool, *parts: Tree) -> Any:
    found = await asyncio.gather(*(act(ctx, stage, each) for each in parts), return_exceptions=safe)
    return [type(each).__name__ if isinstance(each, BaseException) else each for each in found]


async def group(ctx: Context, stage: Stage, *parts: Tree) -> Any:
    async with asyncio.TaskGroup() as tasks:
        made = [tasks.create_task(act(ctx, stage, each)) for each in parts]
        await act(ctx, stage, parts[0])
    return [each.result() for each in made]


async def timeout(ctx: Context, stage: Stage, seconds: float, part: Tree) -> Any:
    try:
        async with asyncio.timeout(seconds):
            return await act(ctx, stage, part)
    except TimeoutError:
        return "late"


async def wait_for(ctx: Context, stage: Stage, seconds: float, part: Tree) -> Any:
    try:
        return await asyncio.wait_for(act(ctx, stage, part), seconds)
    except TimeoutError:
        return "late"


async def shield(ctx: Context, stage: Stage, part: Tree) -> Any:
    return await asyncio.shield(act(ctx, stage, part))


async def first(ctx: Context, stage: Stage, *parts: Tree) -> Any:
    tasks = [asyncio.ensure_future(act(ctx, stage, each)) for each in parts]
    done, left = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for each in left:
        each.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    return [len(done), len(left)]


async def sleep(ctx: Context, stage: Stage, seconds: float) -> Any:
    await asyncio.sleep(seconds)


async def signal(ctx: Context, stage: Stage, name: str, seconds: float | None) -> Any:
    return await ctx.signal(name, timeout=seconds)


async def cleanup(ctx: Context, stage: Stage, part: Tree, last: Tree) -> Any:
    try:
        return await act(ctx, stage, part)
    finally:
        await act(ctx, stage, last)


async def rescue(ctx: Context, stage: Stage, part: Tree) -> Any:
    try:
        return await act(ctx, stage, part)
    except (StepFailed, ExceptionGroup) as error:
        return type(error).__name__


async def swallow(ctx: Context, stage: Stage, part: Tree, forget: bool) -> Any:
    try:
        return await act(ctx, stage, part)
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        assert task is not None
        return [task.uncancel() if forget else task.cancelling(), list(map(str, error.args))]


async def cancel(ctx: Context, stage: Stage, own: bool, message: str | None) -> Any:
    task = asyncio.current_task() if own else stage.main
    return [task.cancel() if message is None else task.cancel(message), task.done()]


async def spawn(ctx: Context, stage: Stage, part: Tree) -> Any:
    stage.spawned.append(asyncio.create_task(act(ctx, stage, part)))


async def join(ctx: Context, stage: Stage) -> Any:
    own = asyncio.current_task()
    return [await each for each in stage.spawned if each is not own and own is stage.main]


async def ring(ctx: Context, stage: Stage) -> Any:
    stage.event.set()


async def hear(ctx: Context, stage: Stage) -> Any:
    async with asyncio.timeout(50):
        await stage.event.wait()


ACTS: dict[str, Any] = {
    "call": call, "several": several, "gather": gather, "group": group, "timeout": timeout, "wait_for": wait_for,
    "shield": shield, "first": first, "sleep": sleep, "signal": signal, "cleanup": cleanup, "rescue": rescue,
    "swallow": swallow, "cancel": cancel, "spawn": spawn, "join": join, "ring": ring, "hear": hear,
}  # fmt: skip


def tree_of(rng: random.Random, depth: int = 0) -> Tree:
    def one() -> Tree:
        return tree_of(rng, depth + 1)

    def some(most: int = 3) -> list[Tree]:
        return [one() for _ in range(rng.randint(1, most))]

    def seconds() -> float:
        return rng.choice([0, 1, 5, 20])

    leaves: list[Any] = [
        *[lambda: ["call", rng.choice("abc"), rng.random() < 0.3]] * 6,
        *[lambda: ["sleep", seconds()]] * 2,
        *[lambda: ["signal", rng.choice("xy"), rng.choice([None, 10])]] * 2,
        lambda: ["cancel", rng.random() < 0.4, rng.choice([None, "enough"])],
        lambda: ["ring"],
        lambda: ["hear"],
        lambda: ["join"],
    ]
    nodes: list[Any] = [
        *[lambda: ["several", *some(4)]] * 3,
        lambda: ["gather", rng.random() < 0.5, *some()],
        lambda: ["group", *some()],
        lambda: ["timeout", seconds(), one()],
        lambda: ["wait_for", seconds(), one()],
        lambda: ["shield", one()],
        lambda: ["first", *some()],
        lambda: ["cleanup", one(), one()],
        lambda: ["rescue", one()],
        lambda: ["swallow", one(), rng.random() < 0.5],
        lambda: ["spawn", one()],
    ]
    if not depth:
        return ["several", *(one() for _ in range(4))]
    of = leaves if depth > 4 or rng.random() < 0.4 else nodes
    return rng.choice(of)()


class Tasked(Replay):
    """The function as a task, as asyncio would have it."""

    def _begin(self, input: bytes) -> None:
        task: Any = Task(self._body(input), self.loop, self.workflow.name, Variables())
        self._main = task


def told(program: Replay, rng: random.Random, tree: Tree) -> list[Any]:
    """All that it wants, event by event."""
    run = Run(id="r", definition="play")
    program.__init__(workflow_of(play), run, Made)
    given = msgspec.json.encode({"tree": tree})
    waiting: dict[str, i.Waiting] = {}
    at, story, asked = 1000.0, list[Any](), False
    heard = [i.Heard("start", output=given)]
    try:
        for seq in range(1, EVENTS_MAX):
            wanted = program.advance(Told(at, seq, heard, [each.output for each in heard]))
            story.append([_plain(each) for each in wanted])
            for each in wanted:
                if isinstance(each, i.Call | i.Sleep | i.Await):
                    waiting[each.key] = each
                elif isinstance(each, i.Drop):
                    waiting.pop(each.key, None)
                elif isinstance(each, i.Finish | i.Break | i.Stop | i.Continue):
                    return story
            heard = []
            for _ in range(rng.choice([1, 1, 1, 2])):
                if not asked and rng.random() < 0.08:
                    asked = True
                    heard.append(i.Heard("cancel"))
                    continue
                if not waiting:
                    break
                key = rng.choice(list(waiting))
                step = waiting.pop(key)
                at += rng.choice([0.0, 1.0, 3.0])
                if isinstance(step, i.Sleep):
                    at = max(at, step.due)
                    heard.append(i.Heard("done", key, b"null"))
                elif rng.random() < 0.2:
                    failure = Failure(
                        code="timeout" if isinstance(step, i.Await) else "refused", message="no"
                    )
                    heard.append(i.Heard("failed", key, failure=failure))
                elif rng.random() < 0.1:
                    heard.append(i.Heard("skipped", key))
                else:
                    heard.append(i.Heard("done", key, b'{"n":%d}' % seq))
            if not heard:
                asked = True
                heard = [i.Heard("cancel")]
        return story
    finally:
        program.close()


def _plain(intent: i.Intent) -> Any:
    if isinstance(intent, i.Break):  # its trace has other lines around those of the function
        return ["break", intent.failure.code, intent.failure.message]
    return msgspec.json.decode(i.ENCODER.encode(intent))


@pytest.fixture
def silent() -> Iterator[None]:
    """Programs leave coroutines behind as they like."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield
        gc.collect()


@pytest.mark.usefixtures("silent")
def test_driven_or_as_a_task_it_wants_the_same() -> None:
    ends: dict[str, int] = {}
    events = 0
    for seed in range(EXAMPLES):
        tree = tree_of(random.Random(f"tree {seed}"))
        first = told(Replay.__new__(Replay), random.Random(seed), tree)
        second = told(Tasked.__new__(Tasked), random.Random(seed), tree)
        assert first == second, (seed, tree)
        last = first[-1][-1] if first[-1] else "open"
        end = (
            last["want"] if isinstance(last, dict) else last[0] if isinstance(last, list) else last
        )
        ends[end] = ends.get(end, 0) + 1
        events += len(first)
    assert events > 3 * EXAMPLES, "they go on for a while"
    assert {"finish", "break", "stop"} <= set(ends), ends
