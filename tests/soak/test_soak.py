"""A short sample of `make soak`: under mixed load with retention on, nothing grows."""

from __future__ import annotations

from pathlib import Path

from soak.run import soak

SECONDS = 24.0


def test_memory_files_and_latency_stay_flat(tmp_path: Path) -> None:
    made = soak(tmp_path, seconds=SECONDS, rate=40.0)

    assert made.verdict(latency=False) == [], made.samples
    assert max(sample["p99_ms"] for sample in made.samples) < 2000
    assert made.stats["purged_runs"] > made.started / 2
