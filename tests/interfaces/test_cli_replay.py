"""`penstock replay`: stored histories told to the code of today, from a database or a file (SPEC 2.8)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.cli.app import load_workflows
from penstock.cli.main import main
from penstock.sdk.workflow import activity

Tool = Callable[..., tuple[int, str, str]]
OLD = """
from penstock import Context, workflow

@workflow
async def order(ctx: Context, n: int) -> int:
    n = await ctx.call("add", n, 1)
    if n == 3:
        raise ValueError(f"never {object()}")
    await ctx.signal("go")
    return await ctx.call("add", n, 10)

@workflow
async def other(ctx: Context) -> str:
    return "same"
"""
NEW = OLD.replace('ctx.call("add", n, 10)', 'ctx.call("add", n, 20)')


@activity
async def add(a: int, b: int) -> int:
    return a + b


@pytest.fixture
def say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Tool:
    """Five runs: three completed, one open, one failed; and one of another workflow."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    (tmp_path / "old.py").write_text(OLD)
    (tmp_path / "new.py").write_text(NEW)

    async def fill() -> None:
        functions = load_workflows("old.py")
        async with penstock.open("sqlite:///x.db", workflows=functions, activities=[add]) as engine:
            for number in (0, 1, 5):
                run = await engine.start("order", {"n": number}, id=f"o{number}")
                await run.signal("go")
                await run.result()
            await engine.start("order", {"n": 7}, id="open")
            failed = await engine.start("order", {"n": 2}, id="failed")
            with pytest.raises(penstock.RunFailed):
                await failed.result()
            await (await engine.start("other", {}, id="other")).result()

    def call(*words: str) -> tuple[int, str, str]:
        capfd.readouterr()
        return main(words), *capfd.readouterr()

    asyncio.run(fill())
    return call


def test_code_that_fits_and_code_that_does_not(say: Tool, tmp_path: Path) -> None:
    store = ("--store", "sqlite:///x.db")
    assert say("replay", "--app", "old.py", *store) == (
        0, "6 histories fit the code (5 of order, 1 of other)\n", "",
    )  # fmt: skip
    code, told, err = say("replay", "--app", "new.py", *store)
    assert code == 1
    assert "3 of 6 histories do not fit the code (3 of order)" in told
    assert "at `add#2` call add[1,10] is recorded, and the code wants call add[1,20], at " in told
    assert "new.py:10 in order" in told
    assert 'ctx.changed("name")' in err
    code, told, err = say("replay", "--app", "new.py", "--newest", "2", "--json", *store)
    found: dict[str, Any] = json.loads(told)
    assert (code, found) == (0, {"told": {"order": 2, "other": 1}, "misfits": [], "missing": {}})
    code, told, err = say("replay", "--app", "new.py", "--newest", "3", "--json", *store)
    [misfit] = json.loads(told)["misfits"]
    assert (code, misfit["run"], misfit["step"]) == (1, "o5", "add#2")
    assert (misfit["recorded"], misfit["wanted"]) == ("call add[6,10]", "call add[6,20]")
    assert say("replay", "--app", "new.py", "--workflow", "other", *store)[0] == 0


def test_a_file_that_is_not_there_is_not_damaged(say: Tool) -> None:
    code, _, err = say("replay", "nosuch.zst", "--app", "old.py")
    assert (code, "error[usage]: there is no file nosuch.zst" in err) == (2, True)


def test_one_history_is_one(say: Tool) -> None:
    store = ("--store", "sqlite:///x.db")
    code, told, _ = say("replay", "--app", "old.py", "--workflow", "other", *store)
    assert (code, told) == (0, "1 history fits the code (1 of other)\n")


def test_open_runs_whose_function_is_gone_are_said(say: Tool, tmp_path: Path) -> None:
    store = ("--store", "sqlite:///x.db")
    (tmp_path / "renamed.py").write_text(OLD.replace("order", "parcel"))
    code, told, err = say("replay", "--app", "renamed.py", *store)
    assert code == 1
    assert "1 history fits the code (1 of other)" in told
    assert "open runs of `order` in the database: 1, and no such function in `renamed.py`" in told
    assert '@workflow(name="order")' in err
    code, told, err = say("replay", "--app", "renamed.py", "--json", *store)
    assert (code, json.loads(told)["missing"]) == (1, {"order": 1})
    assert say("replay", "--app", "renamed.py", "--workflow", "other", *store)[0] == 0
    # Nobody waits for the code of a run that has ended.
    (tmp_path / "less.py").write_text(OLD.partition("@workflow\nasync def other")[0])
    assert say("replay", "--app", "less.py", *store)[0] == 0


def test_a_parameter_with_a_default_fits_runs_that_failed_for_their_input(
    say: Tool, tmp_path: Path
) -> None:
    """What was said of the input quotes the signature."""

    async def fill() -> None:
        async with penstock.open("sqlite:///x.db") as engine:  # which cannot know what it takes
            await engine.start("order", {"n": "x"}, id="wrong")
        functions = load_workflows("old.py")
        async with penstock.open("sqlite:///x.db", workflows=functions, activities=[add]) as engine:
            run = await engine.get("wrong")
            with pytest.raises(penstock.RunFailed, match=r"it takes \(n: int\)"):
                await run.result()

    asyncio.run(fill())
    (tmp_path / "more.py").write_text(OLD.replace("n: int)", "n: int, m: int = 0)"))
    code, told, _ = say("replay", "--app", "more.py", "--store", "sqlite:///x.db")
    assert (code, told) == (0, "7 histories fit the code (6 of order, 1 of other)\n")
    (tmp_path / "text.py").write_text(OLD.replace("n: int)", "n: str)"))
    code, told, _ = say("replay", "--app", "text.py", "--newest", "1", "--store", "sqlite:///x.db")
    assert code == 1
    assert "run wrong" in told


def test_histories_out_of_a_file(say: Tool, tmp_path: Path) -> None:
    code, told, err = say("export", "all.penstock", "--store", "sqlite:///x.db")
    assert code == 0, err
    (tmp_path / "x.db").unlink()
    assert say("replay", "--app", "old.py", "all.penstock") == (
        0, "6 histories fit the code (5 of order, 1 of other)\n", "",
    )  # fmt: skip
    code, told, err = say("replay", "--app", "new.py", "all.penstock")
    assert code == 1
    assert "3 of 6 histories do not fit" in told
    assert not (tmp_path / "x.db").exists()


def test_what_cannot_be_replayed_is_said(say: Tool, tmp_path: Path) -> None:
    code, _, err = say("replay", "--app", "old.py", "--workflow", "oder")
    assert code != 0
    assert "has no workflow `oder`" in err
    assert "order" in err
    (tmp_path / "empty.py").write_text("x = 1\n")
    code, _, err = say("replay", "--app", "empty.py")
    assert code != 0
    assert "has no workflow functions" in err
    (tmp_path / "junk").write_bytes(b"junk")
    code, _, err = say("replay", "--app", "old.py", "junk")
    assert code != 0
    assert "Traceback" not in err
    assert "junk" in err
