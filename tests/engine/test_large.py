"""Large runs on SQLite: a DAG of 2,000 tasks, 10,000 passes, 50,000 items (SPEC 4.8: no run dies of its history)."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

from penstock import activity
from penstock.adapters.sqlite.store import SqliteStore
from penstock.testing.harness import harness

CALLS: list[str] = []


@activity
async def visit(name: str) -> str:
    CALLS.append(name)
    return name


def dag(size: int, seed: int) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """Each task depends on up to four earlier ones; half of the links have a condition."""
    draw = random.Random(seed)
    tasks: dict[str, Any] = {}
    links: list[dict[str, Any]] = []
    before: dict[str, list[str]] = {}
    for n in range(size):
        name = f"t{n}"
        tasks[name] = {"do": "visit", "inputs": {"name": {"value": name}}}
        before[name] = []
        for source in sorted(draw.sample(range(max(0, n - 30), n), min(n, draw.randint(0, 4)))):
            before[name].append(f"t{source}")
            link: dict[str, Any] = {"from": f"t{source}", "to": name}
            if draw.random() < 0.5:
                threshold = draw.randint(0, 9)
                link["condition"] = f"int(tasks.t{source}.output.substring(1)) % 10 >= {threshold}"
            links.append(link)
    return {"id": "dag", "tasks": tasks, "links": links}, before


async def test_a_dag_of_2000_tasks_runs_each_at_most_once_and_in_order(tmp_path: Path) -> None:
    document, before = dag(2000, seed=7)
    CALLS.clear()
    async with harness(activities=[visit], store=SqliteStore(tmp_path / "a.db")) as engine:
        # A text may be empty, so that `substring(1)` can fail; those that `visit` gives never are.
        await engine.register(document, force="the names are never empty")
        run = await engine.start("dag")
        await engine.finish(run)
        assert await engine.audit(run.id) == []
    assert len(CALLS) == len(set(CALLS))
    assert 400 < len(CALLS) <= 2000
    place = {name: n for n, name in enumerate(CALLS)}
    for name in CALLS:
        for source in before[name]:
            assert source not in place or place[source] < place[name]
        if before[name]:  # reached: at least one of those before it ran
            assert any(source in place for source in before[name])


async def test_a_loop_of_10000_passes(tmp_path: Path) -> None:
    async with harness(activities=[visit], store=SqliteStore(tmp_path / "a.db")) as engine:
        await engine.register(
            {
                "id": "looping",
                "tasks": {
                    "l": {
                        "type": "loop",
                        "while": "iteration < 10000",
                        "body": {"do": "visit", "inputs": {"name": "${string(iteration)}"}},
                    }
                },
            }
        )
        run = await engine.start("looping")
        assert await engine.finish(run) == "10000"
        assert (await engine.core.store.find(run.id)).revision == 10002  # type: ignore[union-attr]


async def test_a_map_over_50000_items_at_most_100_at_a_time(tmp_path: Path) -> None:
    open_now = most = 0

    @activity
    async def watched(x: int) -> int:
        nonlocal open_now, most
        open_now += 1
        most = max(most, open_now)
        await asyncio.sleep(0)
        open_now -= 1
        return x * 2

    async with harness(activities=[watched], store=SqliteStore(tmp_path / "a.db")) as engine:
        await engine.register(
            {
                "id": "mapping",
                "tasks": {
                    "m": {
                        "type": "map",
                        "items": "input",
                        "limit": 100,
                        "body": {"do": "watched", "inputs": {"x": {"from": "item"}}},
                    }
                },
            }
        )
        run = await engine.start("mapping", list(range(50_000)))
        assert await engine.finish(run) == [2 * n for n in range(50_000)]
    assert most == 100
