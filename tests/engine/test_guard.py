"""Code that would not do the same again is caught in tests, with the line and what to use instead (SPEC 2.8)."""

from __future__ import annotations

import asyncio
import gc
import http.client
import itertools
import logging
import os
import platform
import random
import secrets
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import uuid
from collections import deque
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pytest

from penstock import Context, RunFailed, activity, workflow
from penstock.sdk import guard
from penstock.testing.harness import harness

seen: list[int] = []
waiting: deque[int] = deque()
numbers = itertools.count()
count = 0


@workflow
async def clock(ctx: Context) -> float:
    return time.time()


@workflow
async def clock_of_datetime(ctx: Context) -> str:
    return str(datetime.now())  # noqa: DTZ005


@workflow
async def today(ctx: Context) -> str:
    return str(date.today())  # noqa: DTZ011


@workflow
async def chance(ctx: Context) -> float:
    return random.random()


@workflow
async def dice(ctx: Context) -> int:
    return random.randint(1, 6)


@workflow
async def fresh_id(ctx: Context) -> str:
    return str(uuid.uuid4())


@workflow
async def connection(ctx: Context) -> None:
    socket.create_connection(("127.0.0.1", 9))


@workflow
async def thread(ctx: Context) -> None:
    threading.Thread(target=print).start()


@workflow
async def file(ctx: Context) -> None:
    open(__file__).close()  # noqa: ASYNC230


@workflow
async def environment(ctx: Context) -> str | None:
    return os.getenv("HOME")


@workflow
async def environ(ctx: Context) -> str:
    return os.environ["HOME"]


@workflow
async def unseeded(ctx: Context) -> float:
    return random.Random().random()


@workflow
async def secret(ctx: Context) -> str:
    return secrets.token_hex(4)


@workflow
async def process(ctx: Context) -> int:
    return os.getpid()


@workflow
async def child_process(ctx: Context) -> None:
    subprocess.run(["true"], check=True)  # noqa: ASYNC221


@workflow
async def there(ctx: Context) -> bool:
    return Path("/").exists()  # noqa: ASYNC240


@workflow
async def host(ctx: Context) -> str:
    return socket.gethostname()


@workflow
async def fetched(ctx: Context) -> None:
    http.client.HTTPConnection("127.0.0.1", 9).request("GET", "/")


@workflow
async def blocking(ctx: Context) -> None:
    time.sleep(0.001)  # noqa: ASYNC251


@workflow
async def appended(ctx: Context) -> None:
    await ctx.sleep(1)
    seen.append(1)


@workflow
async def counted(ctx: Context) -> None:
    global count
    count += 1


@workflow
async def swallowed(ctx: Context) -> str:
    try:
        time.time()
    except Exception:
        return "caught"
    return "not"


@workflow
async def queued(ctx: Context) -> None:
    waiting.append(1)


@workflow
async def numbered(ctx: Context) -> None:
    next(numbers)


@workflow
async def database(ctx: Context) -> None:
    sqlite3.connect(":memory:")


@workflow
async def resolved(ctx: Context) -> None:
    socket.getaddrinfo("localhost", 80)


@workflow
async def machine(ctx: Context) -> str:
    return platform.node()


@workflow
async def clock_of_system(ctx: Context) -> float:
    return time.clock_gettime(0)


@workflow
async def on_one_line(ctx: Context) -> None:
    while True: pass  # noqa: E701  # fmt: skip


async def test_a_loop_on_one_line_does_not_hang_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "BLOCKED_SECONDS", 0.2)
    async with harness(workflows=[on_one_line]) as engine:
        with pytest.raises(RunFailed, match="without awaiting anything"):
            await engine.finish(await engine.start(on_one_line))


@workflow
async def clock_in_words(ctx: Context) -> str:
    return time.strftime("%H:%M")


@workflow
async def clock_as_text(ctx: Context) -> str:
    return time.asctime()


@workflow
async def environ_set(ctx: Context) -> None:
    os.environ["PENSTOCK_TEST"] = "1"


@workflow
async def environ_gone(ctx: Context) -> None:
    del os.environ["PENSTOCK_TEST"]


@workflow
async def in_executor(ctx: Context) -> None:
    await asyncio.get_running_loop().run_in_executor(None, print)


@workflow
async def in_a_thread(ctx: Context) -> None:
    await asyncio.to_thread(print)


@workflow
async def streams(ctx: Context) -> None:
    await asyncio.open_connection("localhost", 1)


CASES = [
    (clock_in_words, "time.strftime", "ctx.now()"),
    (clock_as_text, "time.asctime", "ctx.now()"),
    (environ_set, "os.environ", "activity"),
    (environ_gone, "os.environ", "activity"),
    (in_executor, "run_in_executor", "activity"),
    (in_a_thread, "asyncio.to_thread", "activity"),
    (streams, "a socket", "activity"),
    (queued, "the global `waiting`", "variables"),
    (numbered, "the global `numbers`", "variables"),
    (database, "sqlite3.connect", "activity"),
    (resolved, "socket.getaddrinfo", "activity"),
    (machine, "platform", "activity"),
    (clock_of_system, "time.clock_gettime", "ctx.now()"),
    (clock, "time.time", "ctx.now()"),
    (clock_of_datetime, "datetime.now", "ctx.now()"),
    (today, "date.today", "ctx.now()"),
    (chance, "random.random", "ctx.random"),
    (dice, "random.randint", "ctx.random"),
    (fresh_id, "uuid.uuid4", "ctx.uuid()"),
    (connection, "a socket", "activity"),
    (thread, "a thread", "activity"),
    (file, "a file", "activity"),
    (environment, "os.getenv", "argument"),
    (environ, "os.environ", "argument"),
    (unseeded, "random.Random() without a seed", "ctx.random"),
    (secret, "secrets", "ctx.random"),
    (process, "os.getpid", "activity"),
    (child_process, "a process", "activity"),
    (there, "os.stat", "activity"),
    (host, "socket.gethostname", "activity"),
    (fetched, "a socket", "activity"),
    (blocking, "a blocking sleep", "asyncio.sleep"),
    (appended, "the global `seen`", "variables"),
    (counted, "the global `count`", "variables"),
    (swallowed, "time.time", "ctx.now()"),
]


@pytest.mark.parametrize(
    ("function", "says", "instead"), CASES, ids=lambda each: getattr(each, "__name__", "")
)
async def test_it_is_caught_with_its_line(function: Any, says: str, instead: str) -> None:
    async with harness(workflows=[function]) as engine:
        with pytest.raises(RunFailed) as failed:
            await engine.finish(await engine.start(function))
        failure = failed.value.failure
        assert failure.code == "nondeterminism"
        assert says in failure.message
        assert "test_guard.py:" in failure.message
        assert f"in {function.__name__}" in failure.message
        assert instead in failure.details["hint"]
    seen.clear()


@workflow
async def good(ctx: Context) -> list[Any]:
    logging.getLogger("shop").warning("begun at %s", ctx.now())
    chances = [ctx.random.randint(1, 6), ctx.random.random()]
    words = sorted({"b", "a"})
    assert time.strftime("%Y", ctx.now().timetuple()) == time.asctime(ctx.now().timetuple())[-4:]
    import colorsys  # a module that nobody has imported yet is read from a file

    assert random.Random(5).random() == random.Random(5).random()
    assert colorsys.__name__
    await asyncio.sleep(1)
    return [*words, len(chances), str(ctx.uuid())[14], ctx.now().year]


async def test_what_comes_from_the_context_is_fine() -> None:
    sys.modules.pop("colorsys", None)
    async with harness(workflows=[good]) as engine:
        assert await engine.finish(await engine.start(good)) == ["a", "b", 2, "4", 2026]


@workflow
async def collected(ctx: Context) -> int:
    gc.collect()
    return 1


async def test_what_the_collector_calls_is_nobodys_workflow_code() -> None:
    def timed(phase: str, info: dict[str, int]) -> None:
        time.perf_counter()

    gc.callbacks.append(timed)
    try:
        async with harness(workflows=[collected]) as engine:
            assert await engine.finish(await engine.start(collected)) == 1
    finally:
        gc.callbacks.remove(timed)


charged: list[str] = []


@activity
async def charge(card: str) -> str:
    charged.append(card)
    return card


@activity
def charge_in_a_thread(card: str) -> str:
    charged.append(card)
    return card


def wrapped(function: Any) -> Any:
    def wrapper(*args: Any) -> Any:
        return function(*args)

    return wrapper


helper = wrapped(str.upper)
shout = activity(name="shout")(wrapped(str.upper))


@workflow
async def awaits_an_activity(ctx: Context) -> str:
    return await charge("4242")


@workflow
async def gathers_an_activity(ctx: Context) -> list[str]:
    return list(await asyncio.gather(charge("4242")))


@workflow
async def calls_an_activity(ctx: Context) -> str:
    return max(["4242"], key=charge_in_a_thread)


@pytest.mark.parametrize(
    ("function", "name", "place"),
    [
        (awaits_an_activity, "charge", "in awaits_an_activity"),
        (gathers_an_activity, "charge", "in charge"),
        (calls_an_activity, "charge_in_a_thread", "in calls_an_activity"),
    ],
)
async def test_an_activity_that_workflow_code_calls_itself_is_caught(
    function: Any, name: str, place: str
) -> None:
    async with harness(workflows=[function], activities=[charge, charge_in_a_thread]) as engine:
        with pytest.raises(RunFailed) as failed:
            await engine.finish(await engine.start(function))
    failure = failed.value.failure
    assert failure.code == "nondeterminism"
    assert f"calls the activity `{name}` itself" in failure.message
    assert failure.message.endswith(place)
    assert failed.value.hint == f"`await ctx.call({name}, …)` is a step"
    assert charged == []


@activity
async def takes_nothing() -> None: ...


@activity
async def takes_two(payment: str, cents: int) -> None: ...


@activity
async def takes_more(payment: str, cents: int = 1) -> None: ...


@pytest.mark.parametrize(
    ("undo", "fits"), [(takes_nothing, False), (takes_two, False), (takes_more, True)]
)
async def test_an_undo_that_cannot_take_the_result_is_refused_when_it_is_wanted(
    undo: Any, fits: bool
) -> None:
    @workflow
    async def paid(ctx: Context) -> str:
        return await ctx.call(charge, "a", undo=undo)

    async with harness(workflows=[paid], activities=[charge, undo]) as engine:
        run = await engine.start(paid)
        if fits:
            assert await engine.finish(run) == "a"
        else:
            with pytest.raises(
                RunFailed, match=r"is called with the result, and `takes_.*in paid"
            ) as failed:
                await engine.finish(run)
            assert failed.value.failure.code == "activity-invalid"
            assert "takes one argument" in str(failed.value.hint)
    assert charged == (["a"] if fits else [])
    charged.clear()


@workflow
async def does_it_right(ctx: Context) -> str:
    noted = ctx.side_effect(lambda: charge_in_a_thread("noted"))
    return helper(await ctx.call(charge, "a")) + await ctx.call(shout, noted)


async def test_what_activities_share_with_workflows_may_be_called() -> None:
    async with harness(workflows=[does_it_right], activities=[charge, shout]) as engine:
        assert await engine.finish(await engine.start(does_it_right)) == "ANOTED"
    charged.clear()


async def test_what_to_use_instead_stands_below_the_message() -> None:
    """As a test that fails shows it."""

    @workflow
    async def late(ctx: Context) -> float:
        return time.time()

    async with harness(workflows=[late]) as engine:
        run = await engine.start(late)
        with pytest.raises(RunFailed) as failed:
            await engine.finish(run)
    assert failed.value.hint == "`ctx.now()` is the time of what woke the function"
