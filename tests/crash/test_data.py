"""kill -9 while runs with large payloads are written, erased, deleted and archived: no run is torn, none is in neither place."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import penstock

ROUNDS = 6
SCRIPT = """
import asyncio, sys
import penstock
from penstock import activity
from penstock.engine.engine import Settings

@activity
async def make(size: int) -> str:
    return "x" * size

async def main(path, folder, part):
    async with penstock.open(f"sqlite:///{path}", activities=[make], settings=Settings(retention=3600)) as engine:
        await engine.register({"id": "made", "tasks": {"a": {"do": "make", "inputs": {"size": {"from": "input"}}}}})
        await engine.register({"id": "brief", "retention": {"keep": 0}, "tasks": {"a": {"do": "make", "inputs": {"size": {"value": 9}}}}})
        print("ready", flush=True)
        for n in range(1000):
            for size in (10, 6000, 1200000):
                await (await engine.start("made", size, id=f"{part}-{n}-{size}")).result()
                print(f"{part}-{n}-{size}", flush=True)
                await (await engine.start("brief")).result()
            await engine.data.erase(f"{part}-{n}-6000", by="t", reason="t")
            await engine.data.sweep()
            if n % 3 == 2:
                await engine.data.archive(folder)

asyncio.run(main(*sys.argv[1:]))
"""


async def test_nothing_is_torn_by_kills(tmp_path: Path) -> None:
    path, files, said = tmp_path / "a.db", tmp_path / "files", list[str]()
    files.mkdir()
    for part in range(ROUNDS):
        said += _killed(path, files, part)
    async with penstock.open(f"sqlite:///{path}", execute=False) as engine:
        unfinished = [each for each in await engine.audit() if "was not finished" not in each]
        assert unfinished == []
        here = {row.id for row in await engine.list(limit=100_000)}
        away = {row.id for row in await engine.data.archived(limit=100_000)}
        done = [each for each in said if each != "ready"]
        assert len(done) > ROUNDS
        assert set(done) <= here | away
        for id in done[-9:]:
            assert len(await (await engine.get(id)).history()) == 3


def _killed(path: Path, files: Path, part: int) -> list[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(path), str(files), str(part)],
        stdout=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
    )
    assert child.stdout is not None
    first = child.stdout.readline().strip()
    time.sleep(random.Random(part).uniform(0.2, 1.2))
    child.send_signal(signal.SIGKILL)
    rest = child.stdout.read().splitlines()
    child.wait()
    child.stdout.close()
    return [first, *(line for line in rest if line)]
