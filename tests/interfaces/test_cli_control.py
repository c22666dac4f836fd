"""The controls of the command line beyond the plain acts (SPEC 4.4, 4.9, 15)."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.cli.main import main
from penstock.sdk.client import Engine

WAITS = {
    "id": "waits",
    "tasks": {
        "a": {"do": "work"},
        "t": {"type": "timer", "delay": "1h", "after": "a"},
        "s": {"type": "signal", "name": "go", "after": "t"},
    },
}
BROKEN: list[bool] = []


@penstock.activity
async def work() -> str:
    if BROKEN:
        raise penstock.Fail("broken")
    return "done"


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_STORE", f"sqlite:///{tmp_path / 'a.db'}")
    BROKEN.clear()
    return f"sqlite:///{tmp_path / 'a.db'}"


def with_engine(url: str, work_on: Any) -> Any:
    async def run() -> Any:
        async with penstock.open(url, activities=[work]) as engine:
            await engine.register(WAITS)
            return await work_on(engine)

    return asyncio.run(run())


async def three(engine: Engine) -> None:
    for number in range(3):
        run = await engine.start("waits", number, id=f"r{number}", attributes={"region": "eu"})
        while not any(i.type == "task_completed" for i in await run.history()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def settled(engine: Engine) -> list[tuple[str, int, str]]:
    for batch in await engine.batches.list():
        await asyncio.wait_for(engine.batches.wait(batch.id), 10)
    return [(row.id, row.generation, row.status) for row in await engine.list()]


def test_a_reset_shows_what_it_leaves_behind_and_wants_that_confirmed(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with_engine(url, three)
    assert main(["fire", "r0", "t", "--by", "ann", "--reason", "now"]) == 0
    assert main(["reset", "r0", "--to", "1"]) == 0
    said = capsys.readouterr()
    assert "--confirm" in said.err
    assert "done" in said.out + said.err
    token = said.err.split("--confirm ")[1].split()[0]
    assert main(["reset", "r0", "--to", "1", "--confirm", "0" * 16]) == 3
    assert "preview-stale" in capsys.readouterr().err
    assert main(["reset", "r0", "--to", "1", "--confirm", token, "--by", "ann"]) == 0
    assert "generation 2" in capsys.readouterr().err
    assert main(["reset", "r0", "--to", "0", "--confirm", token]) == 3
    assert "reset-point" in capsys.readouterr().err


def test_a_failed_run_is_retried(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    async def fail(engine: Engine) -> None:
        BROKEN.append(True)
        run = await engine.start("waits", 1, id="f")
        with pytest.raises(penstock.RunFailed):
            await run.result()

    with_engine(url, fail)
    assert main(["retry", "f", "--by", "ann"]) == 0
    assert "generation 2" in capsys.readouterr().err
    assert main(["retry", "f"]) == 3
    assert "not-retriable" in capsys.readouterr().err
    assert main(["retry"]) == 2


def test_operators_lay_hands_on_waits_and_attributes(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with_engine(url, three)
    assert main(["fire", "r0", "t"]) == 0
    assert main(["fire", "r0", "s"]) == 3
    assert "not-fireable" in capsys.readouterr().err
    assert main(["skip", "r0", "s", "--by", "ann"]) == 0
    assert main(["fail", "r1", "t", "--reason", "too late"]) == 0
    assert main(["undo", "r1", "a", "accept"]) == 3
    assert main(["attributes", "r2", "region=us", "n=1"]) == 0
    capsys.readouterr()
    assert main(["list", "--attr", "region=us", "--json"]) == 0
    assert [row["id"] for row in json.loads(capsys.readouterr().out)] == ["r2"]
    assert main(["complete", "nonsense", "1"]) == 3
    assert "token-invalid" in capsys.readouterr().err


def test_many_runs_are_cancelled_by_a_filter(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with_engine(url, three)
    assert main(["cancel", "--where", "region=eu", "--where", "status=open", "--by", "ann"]) == 0
    said = capsys.readouterr()
    batch = said.out.strip()
    assert "3 runs" in said.err
    assert main(["batches"]) == 0
    assert batch in capsys.readouterr().out
    rows = with_engine(url, settled)
    assert {status for _, _, status in rows} == {"CANCELLED"}
    assert main(["batches", batch, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)[0]
    assert (found["state"], found["done"]) == ("done", 3)
    assert main(["batches", batch]) == 0
    head, row = (re.split(r"  +", line) for line in capsys.readouterr().out.splitlines())
    assert head[3:6] == ["RUNS", "RATE", "LEFT"]
    assert row[3] == "3 of 3"
    assert re.fullmatch(r"[\d.,]+/s", row[4])
    assert row[5] == "-"
    assert main(["batches", batch, "--stop"]) == 3
    assert main(["cancel"]) == 2
    assert main(["cancel", "r1", "--where", "region=eu"]) == 2


def test_a_definition_is_paused(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with_engine(url, three)
    assert main(["paused", "waits", "--on", "--by", "ann", "--reason", "incident"]) == 0
    assert "incident" in capsys.readouterr().out
    assert main(["paused", "waits", "--off"]) == 0
    assert main(["paused", "waits", "--off"]) == 3
    assert main(["paused", "--on"]) == 2
