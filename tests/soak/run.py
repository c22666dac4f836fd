"""Mixed load for long, with retention on: memory, file sizes and latency must stay flat (`make soak`).

    make soak                      30 minutes
    make soak ARGS="--seconds 60"  a sample

Runs of several kinds are started at a steady rate, wait, fail, are signalled, undone, and are deleted again once they
have been closed for a while. What is measured once it has settled is compared with what is measured at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import resource
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import penstock
from penstock import Retry, activity
from penstock.engine import retention
from penstock.engine.engine import Settings

RATE = 60.0
"""Runs started in a second."""
GROWTH_MAX = {"memory_mib": 1.15, "file_mib": 1.2, "p50_ms": 2.0, "p99_ms": 3.0}
"""What is at the end may be so many times what it was once it had settled."""


@activity
async def step(value: Any = None) -> Any:
    return value


@activity
async def grow(kilobytes: int) -> str:
    return os.urandom(kilobytes * 512).hex()


@activity(retry=Retry(attempts=2, first=0.05, jitter=0))
async def stumble(chance: float) -> int:
    if random.random() < chance:
        raise RuntimeError("stumbled")
    return 1


@activity
async def undo(value: Any = None) -> None: ...


SHORT = {"from": "input", "path": "$.n"}
DEFINITIONS: list[dict[str, Any]] = [
    {
        "id": "sequence",
        "tasks": {
            "a": {"do": "step", "inputs": {"value": SHORT}},
            "b": {"do": "step", "after": ["a"], "inputs": {"value": {"from": "a"}}},
            "c": {"do": "step", "after": ["b"], "inputs": {"value": {"from": "b"}}},
        },
    },
    {
        "id": "fan",
        "tasks": {
            "m": {
                "type": "map",
                "config": {"items": "[1, 2, 3, 4, 5, 6, 7, 8]", "body": {"do": "step"}},
            }
        },
    },
    {
        "id": "waiting",
        "tasks": {
            "pause": {"type": "timer", "config": {"delay": 0.2}},
            "go": {"type": "signal", "config": {"name": "go"}, "after": ["pause"]},
        },
    },
    {
        "id": "saga",
        "tasks": {
            "book": {"do": "step", "compensate": {"activity": "undo"}},
            "pay": {"do": "stumble", "after": ["book"], "inputs": {"chance": {"value": 0.5}}},
        },
    },
    {
        "id": "bulky",
        "tasks": {"g": {"do": "grow", "inputs": {"kilobytes": {"value": 40}}}},
    },
    {"id": "outer", "tasks": {"s": {"type": "subworkflow", "config": {"definition": "sequence"}}}},
]
KINDS = [each["id"] for each in DEFINITIONS]


class Soak:
    def __init__(self, folder: Path, *, seconds: float, rate: float, keep: float) -> None:
        self.path = folder / "soak.db"
        self.seconds, self.rate, self.keep = seconds, rate, keep
        self.samples: list[dict[str, float]] = []
        self._latencies: list[float] = []
        self.started = self.ended = self.failed = 0

    async def run(self) -> None:
        settings = Settings(retention=self.keep, audit_key="soak")
        async with penstock.open(
            f"sqlite:///{self.path}", activities=[step, grow, stumble, undo], settings=settings
        ) as engine:
            for definition in DEFINITIONS:
                await engine.register(definition)
            async with asyncio.TaskGroup() as group:
                sampling = group.create_task(self._sample(engine))
                await self._load(engine, group)
                sampling.cancel()
            self.stats = engine.stats()
            self.problems = await engine.audit()

    async def _load(self, engine: Any, group: asyncio.TaskGroup) -> None:
        begun = time.monotonic()
        while (now := time.monotonic() - begun) < self.seconds:
            while self.started < now * self.rate:
                self.started += 1
                group.create_task(self._one(engine, self.started))
            await asyncio.sleep(0.01)

    async def _one(self, engine: Any, n: int) -> None:
        kind = KINDS[n % len(KINDS)]
        begun = time.perf_counter()
        run = await engine.start(kind, {"n": n}, id=f"{kind}-{n}", attributes={"shard": n % 7})
        if kind == "waiting":
            await run.signal("go", n)
        try:
            await run.result()
        except penstock.RunFailed:
            self.failed += 1
        if kind == "sequence":
            self._latencies.append((time.perf_counter() - begun) * 1000)
        self.ended += 1

    async def _sample(self, engine: Any) -> None:
        begun, every = time.monotonic(), max(1.0, self.seconds / 60)
        while True:
            await asyncio.sleep(every)
            latencies, self._latencies = sorted(self._latencies), []
            stats = engine.stats()
            self.samples.append(
                {
                    "second": time.monotonic() - begun,
                    "memory_mib": _resident_mib(),
                    "file_mib": _mib(self.path),
                    "log_mib": _mib(Path(f"{self.path}-wal")),
                    "p50_ms": latencies[len(latencies) // 2] if latencies else 0.0,
                    "p99_ms": latencies[int(len(latencies) * 0.99)] if latencies else 0.0,
                    "purged": stats["purged_runs"],
                    "in_memory": stats["in_memory"],
                }
            )

    def verdict(self, *, latency: bool = True) -> list[str]:
        """What has grown though it should not; without latency on a machine that has other things to do."""
        count = len(self.samples)
        middle, end = self.samples[count * 2 // 5 : count * 3 // 5], self.samples[count * 4 // 5 :]
        problems = list(self.problems)
        for name, most in GROWTH_MAX.items():
            if name.endswith("_ms") and not latency:
                continue
            before, after = (median(s[name] for s in part) for part in (middle, end))
            if after > before * most:
                problems.append(f"{name} grew from {before:.1f} to {after:.1f}")
        if self.ended != self.started:
            problems.append(f"{self.started} runs were started, {self.ended} have ended")
        if not self.stats["purged_runs"]:
            problems.append("nothing was deleted")
        return problems


def _resident_mib() -> float:
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * resource.getpagesize() / 2**20
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _mib(path: Path) -> float:
    try:
        return path.stat().st_size / 2**20
    except OSError:
        return 0.0


def soak(folder: Path, *, seconds: float, rate: float = RATE, keep: float | None = None) -> Soak:
    """For short samples all that happens now and then happens more often, in proportion."""
    keep = keep or max(2.0, seconds / 15)
    retention.SWEEP_SECONDS_MIN = min(retention.SWEEP_SECONDS_MIN, keep / 2)
    made = Soak(folder, seconds=seconds, rate=rate, keep=keep)
    asyncio.run(made.run())
    return made


def plot(made: Soak, path: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = ("memory_mib", "file_mib", "log_mib", "p50_ms", "p99_ms")
    figure, axes = pyplot.subplots(len(names), 1, sharex=True, figsize=(9, 10))
    for name, axis in zip(names, axes, strict=True):
        axis.plot([s["second"] for s in made.samples], [s[name] for s in made.samples])
        axis.set_ylabel(name)
        axis.set_ylim(bottom=0)
    axes[-1].set_xlabel("seconds")
    figure.savefig(path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1800)
    parser.add_argument("--rate", type=float, default=RATE)
    parser.add_argument("--keep", type=float, help="seconds that closed runs are kept")
    parser.add_argument("--plot", metavar="FILE.png")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        made = soak(Path(folder), seconds=given.seconds, rate=given.rate, keep=given.keep)
    names = list(made.samples[0])
    print("  ".join(f"{name:>10}" for name in names))
    for sample in made.samples:
        print("  ".join(f"{sample[name]:>10.1f}" for name in names))
    print(f"{made.started} runs, {made.failed} of them failed as meant; {made.stats['purged_runs']} deleted,"
          f" {made.stats['purged_events']} events, {made.stats['sweeps']} sweeps, {made.stats['roots']} roots")  # fmt: skip
    if given.plot:
        plot(made, given.plot)
    problems = made.verdict()
    print("\n".join(problems) or "flat")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
