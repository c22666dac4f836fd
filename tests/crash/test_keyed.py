"""Key limits and limits on runs over kill -9: never two of one key at a time, and nothing is lost (SPEC 4.10)."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import penstock
from crash.harness import KILLED, Bell, Nursery
from crash.keyed import KEYS, RUNS, Orders

LIVES_MAX = 60


async def test_keys_never_overlap_and_nothing_is_lost_over_kills(tmp_path: Path) -> None:
    database, log = tmp_path / "a.db", tmp_path / "log"
    chance, bell = random.Random(7), Bell(tmp_path / "bell")
    orders = Orders(str(database), str(log), bell.path)
    killed = 0
    with Nursery(tmp_path / "errors", "crash.keyed") as nursery:
        for number in range(LIVES_MAX):
            # So long after its first attempt has ended.
            after = chance.uniform(0.01, 0.06) if number < 12 else None
            status = nursery.live(orders, kill_after=after, bell=bell)
            if status == 0:
                break
            assert status == KILLED, nursery.words()
            killed += 1
    bell.close()
    assert killed >= 3
    under_way: Counter[tuple[str, str]] = Counter()
    ended: Counter[tuple[str, str]] = Counter()
    for line in log.read_text().splitlines():
        word, process, *rest = line.split()
        if word == "done":
            continue
        key, run, task, _ = rest
        if word == "begin":
            under_way[process, key] += 1
            assert under_way[process, key] == 1, line
        else:
            under_way[process, key] -= 1
            ended[run, task] += 1
    assert set(ended) == {(f"r{n}", task) for n in range(RUNS) for task in "ab"}
    assert len({key for _, key in under_way}) == KEYS
    async with penstock.open(f"sqlite:///{database}", execute=False) as engine:
        rows = await engine.list(limit=1000)
        assert {row.status for row in rows} == {"COMPLETED"}
        assert len(rows) == RUNS
        for row in rows:
            run = await engine.get(row.id)
            types = Counter(item.type for item in await run.history())
            assert types["task_completed"] == 2
            assert types["run_admitted"] == 1
        assert await engine.audit() == []
