"""kill -9 while runs with large payloads are written, erased, deleted and archived: no run is torn, none is in neither place."""

from __future__ import annotations

import random
from pathlib import Path

import penstock
from crash.data import Orders
from crash.harness import KILLED, Bell, Nursery

ROUNDS = 6


async def test_nothing_is_torn_by_kills(tmp_path: Path) -> None:
    path, files, log, bell = (
        tmp_path / "a.db",
        tmp_path / "files",
        tmp_path / "log",
        Bell(tmp_path / "bell"),
    )
    files.mkdir()
    with Nursery(tmp_path / "errors", "crash.data") as nursery:
        for part in range(ROUNDS):
            orders = Orders(str(path), str(files), part, str(log), bell.path)
            after = random.Random(part).uniform(0.2, 1.2)
            assert nursery.live(orders, kill_after=after, bell=bell) == KILLED, nursery.words()
    bell.close()
    async with penstock.open(f"sqlite:///{path}", execute=False) as engine:
        unfinished = [each for each in await engine.audit() if "was not finished" not in each]
        assert unfinished == []
        here = {row.id for row in await engine.list(limit=100_000)}
        away = {row.id for row in await engine.data.archived(limit=100_000)}
        done = log.read_text().split()
        assert len(done) > ROUNDS
        assert set(done) <= here | away
        for id in done[-9:]:
            assert len(await (await engine.get(id)).history()) == 3
