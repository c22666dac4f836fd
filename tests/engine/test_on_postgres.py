"""The engine on a PostgreSQL: who owns it, what an idle one asks for, and what several processes do on one database."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import penstock
from penstock import activity
from penstock.adapters.postgres import PostgresStore
from penstock.ports.store import Owner, Query, Store
from penstock.testing.harness import SkipClock
from support.postgres import Server, serving
from support.stopped_owner import DOCUMENT, work


@activity
async def note(value: Any = None) -> Any:
    return value


async def until_owned(store: Store, token: int, seconds_max: float) -> Owner:
    """Until somebody has a token above that one."""
    end = time.monotonic() + seconds_max
    while True:
        owner = await store.owner()
        if owner is not None and owner.token > token and owner.pid:
            return owner
        assert time.monotonic() < end, f"nobody took over within {seconds_max} s"
        await asyncio.sleep(0.05)


def repeated(payloads: list[bytes]) -> list[tuple[str, ...]]:
    """What a history records twice though it happens once."""
    once = Counter(
        (event["type"], event.get("key", ""))
        for event in map(json.loads, payloads)
        if event["type"] in ("run_started", "run_completed", "task_completed")
    )
    return [what for what, times in once.items() if times > 1]


async def test_a_standby_takes_over_from_a_stopped_owner_and_nothing_it_still_does_counts(
    postgres_url: str,
) -> None:
    script = Path(__file__).parents[1] / "support" / "stopped_owner.py"
    victim = await asyncio.create_subprocess_exec(
        sys.executable, str(script), postgres_url, stdout=asyncio.subprocess.PIPE
    )
    assert victim.stdout is not None
    try:
        assert await victim.stdout.readline() == b"open\n"
        async with penstock.open(postgres_url, activities=[work]) as engine:
            store = PostgresStore(postgres_url)
            await store.open()
            first = await store.owner()
            assert first is not None
            assert first.pid == victim.pid
            said = [await victim.stdout.readline() for _ in range(40)]

            victim.send_signal(signal.SIGSTOP)
            begun = time.monotonic()
            second = await until_owned(store, first.token, 10)
            took = time.monotonic() - begun
            assert took < 10
            head = await store.head()
            await asyncio.sleep(0.5)
            victim.send_signal(signal.SIGCONT)
            # What it was asked for still counts, by revision; what it did as the owner does not.
            for _ in range(60):
                said.append(await victim.stdout.readline())
            victim.kill()
            await victim.wait()
            owner = await store.owner()
            assert owner is not None
            assert owner.token == second.token, "the one that came back took it away again"
            assert await store.head() > head

            for id in {line.split()[1].decode() for line in said if line.startswith(b"started")}:
                async with asyncio.timeout(20):
                    assert await (await engine.get(id)).result() in (victim.pid, os.getpid())
            rows = await store.list(Query(limit=100_000))
            done = Counter[int]()
            for row in rows:
                events = await store.events(row.key)
                assert repeated([each.payload for each in events]) == [], row.id
                for each in events:
                    event = json.loads(each.payload)
                    if each.position > head and event["type"] == "task_completed":
                        done[event["output"]] += 1
            assert set(done) == {os.getpid()}, "what the one before did was accepted after its time"
            await store.close()
    finally:
        if victim.returncode is None:
            victim.kill()
            await victim.wait()
        victim._transport.close()  # type: ignore[attr-defined]


async def test_an_idle_engine_asks_for_little() -> None:
    with serving(log_statement="all") as server:
        url = server.create()
        clock = SkipClock()
        async with penstock.open(url, activities=[note], clock=clock) as engine:
            await engine.register("id: d\ntasks:\n  a: {do: note}\n")
            run = await engine.start("d", {}, id="r")
            await run.result()
            for _ in range(5):
                clock.move(clock.now() + 2)
                await asyncio.sleep(0.1)
            before = statements(server)
            for _ in range(30):
                clock.move(clock.now() + 2)
                await asyncio.sleep(0.05)
            asked = statements(server) - before
            assert 0 < asked <= 2 * 60, asked


def statements(server: Server) -> int:
    return sum(
        "execute" in line or "statement:" in line
        for line in server.log().splitlines()
        if "LOG:" in line
    )


async def test_a_command_of_another_process_is_carried_out_at_once(postgres_url: str) -> None:
    """By a hint with its commit, not by looking around: the owner's clock stands still."""
    clock = SkipClock()
    async with penstock.open(postgres_url, activities=[note], clock=clock) as owner:
        await owner.register("id: d\ntasks:\n  a: {do: note, inputs: {value: {value: 5}}}\n")
        await asyncio.sleep(0.3)  # the listener is there
        async with penstock.open(postgres_url, execute=False) as other:
            for number in range(3):
                run = await other.start("d", {}, id=f"r{number}")
                async with asyncio.timeout(60):
                    assert await (await owner.get(run.id)).result() == 5


async def test_an_engine_goes_on_when_its_server_was_killed_and_comes_back() -> None:
    with serving() as server:
        url = server.create()
        async with penstock.open(url, activities=[work]) as engine:
            await engine.register(DOCUMENT)
            runs = [await engine.start("chain", {}, id=f"a{n}") for n in range(20)]
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
            runs += [await engine.start("chain", {}, id=f"b{n}") for n in range(5)]
            await asyncio.to_thread(server.cut, url)
            async with asyncio.timeout(60):
                assert [await run.result() for run in runs] == [os.getpid()] * 25
            for run in runs:
                types = [item.type for item in await run.history()]
                assert types.count("task_completed") == 3
