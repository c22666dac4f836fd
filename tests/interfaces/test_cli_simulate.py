"""`penstock simulate` on the command line: what it says, its exit status, its JSON, and what it refuses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.cli import Tool

SHOP = """from penstock import Context, Fail, activity, workflow

@activity(effects=True)
async def reserve(sku: str) -> str: ...

@activity
async def pack(sku: str, count: int) -> int: ...

@workflow
async def order(ctx: Context, sku: str, count: int = 1) -> int:
    await ctx.call(reserve, sku)
    return await ctx.call(pack, sku, count)

@workflow
async def fine(ctx: Context, sku: str) -> int:
    return await ctx.call(pack, sku, 1)
"""
REFUNDS = (
    "id: refunds\ntasks:\n  back: {do: refund, inputs: {payment: {from: input, path: $.payment}}}\n"
)


@pytest.fixture
def tool(tool: Tool, tmp_path: Path) -> Tool:
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "refunds.yaml").write_text(REFUNDS)
    return lambda *arguments: tool("simulate", *arguments)


def test_a_mistake_is_shown_with_its_place_its_story_and_the_command_that_replays_it(
    tool: Tool,
) -> None:
    status, out, err = tool("shop.py", "--seeds", "60")
    assert status == 1
    assert "error[undo-missing]: `order` ends " in out
    assert "\n  --> shop.py:11\n" in out
    assert "what `reserve` did stays: nothing has undone it" in out
    assert "= hint: give the step `undo=…`" in out
    assert "\nwhat happened\n" in out
    assert "crashes" in out
    assert "1 mistake found: 60 seeds, " in out
    assert err.strip() == "hint: penstock explain undo-missing"
    replay = out.partition("replay: penstock simulate ")[2].split()[:3]
    assert replay[:2] == ["shop.py", "--seed"]
    once = tool(*replay)
    assert once[0] == 1
    story = out[out.index("starts: order") : out.index("= replay")]
    assert story in once[1], "the same seed shows the same"
    assert tool(*replay) == once
    assert tool(*replay, "--ignore", "undo-missing:order")[0] == 0


def test_a_clean_workflow_and_a_definition(tool: Tool) -> None:
    status, out, err = tool(
        "shop.py", "refunds.yaml", "--seeds", "20", "--workflow", "fine", "--workflow", "refunds"
    )
    assert (status, err) == (0, "")
    assert "no mistake found: 20 seeds" in out
    status, out, _ = tool("refunds.yaml", "--seeds", "5", "-i", "payment=p-1")
    assert status == 0
    assert "error" not in out


def test_json_for_programs(tool: Tool) -> None:
    status, out, err = tool("shop.py", "--seeds", "30", "--json")
    assert (status, err) == (1, "")
    told = json.loads(out)
    assert (told["seeds"], told["interrupted"]) == (30, False)
    (found,) = told["findings"]
    assert (found["code"], found["level"], found["workflow"], found["step"]) == (
        "undo-missing", "error", "order", "reserve",
    )  # fmt: skip
    assert found["file"].endswith("shop.py")
    assert found["line"] == 11
    assert found["replay"] == f"penstock simulate shop.py --seed {found['seed']}"
    assert found["timeline"][0]["text"].startswith("order-")
    assert told["happened"]["crashes"] > 0
    alone = [
        json.loads(tool("shop.py", "--seed", str(found["seed"]), "--json")[1]) for _ in range(2)
    ]
    assert alone[0]["digest"] == alone[1]["digest"]
    assert alone[0]["findings"][0]["timeline"] == found["timeline"]


def test_seeds_are_the_same_in_all_processes(tool: Tool, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "penstock.cli.main",
        "simulate",
        "shop.py",
        "--seeds",
        "30",
        "--json",
    ]
    told = []
    for jobs, chance in (("1", "7"), ("2", "4711")):
        env = {**os.environ, "PYTHONHASHSEED": chance, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(
            [*command, "--jobs", jobs],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (1, "")
        told.append(json.loads(done.stdout))
    for each in told:
        del each["seconds"]
    assert told[0] == told[1]


def test_an_interrupt_shows_what_was_seen_so_far(tool: Tool, tmp_path: Path) -> None:
    (tmp_path / "begun.py").write_text(
        SHOP + "from pathlib import Path\nfrom penstock.testing import World\n"
        "class Begun(World):\n    def __init__(self):\n        Path('begun').touch()\n"
    )
    words = ["simulate", "begun.py", "--seconds", "60", "--jobs", "1"]
    with subprocess.Popen(
        [sys.executable, "-m", "penstock.cli.main", *words], cwd=tmp_path, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as run:  # fmt: skip
        while not (tmp_path / "begun").exists():
            assert run.poll() is None
            time.sleep(0.02)
        run.send_signal(signal.SIGINT)
        out, err = run.communicate(timeout=30)
    assert run.returncode == 130
    assert "Traceback" not in err
    assert "(interrupted)" in out


BAD = [
    (["nowhere.py"], "there is no file nowhere.py"),
    (["nowhere.yaml"], "there is no file nowhere.yaml"),
    (["empty.py"], "empty.py: there is no workflow and no definition to simulate"),
    (["raises.py"], "ZeroDivisionError: division by zero"),
    (["shop.py", "--workflow", "ordr"], "there is no workflow `ordr`"),
    (["shop.py", "-i", '{"sku": 7}'], "cannot be read as str"),
    (["shop.py", "-i", "{"], "this is not JSON"),
    (
        ["refunds.yaml", "shop.py", "--ignore", "everything"],
        "`everything` is nothing that a simulation finds",
    ),
    (["shop.py", "--seed", "1", "--seeds", "9"], "--seed plays one seed"),
    (["broken.yaml"], "unknown-field"),
    (["shop.py", "--faults", "stormy"], "'stormy' is not one of"),
]


@pytest.mark.parametrize(("words", "said"), BAD, ids=[" ".join(words) for words, _ in BAD])
def test_bad_input_is_told_plainly(tool: Tool, tmp_path: Path, words: list[str], said: str) -> None:
    (tmp_path / "empty.py").write_text("x = 1\n")
    (tmp_path / "raises.py").write_text("1 / 0\n")
    (tmp_path / "broken.yaml").write_text("id: broken\ntasks:\n  a: {do: x, nonsense: 1}\n")
    before = sorted(path.name for path in tmp_path.iterdir())
    status, out, err = tool(*words)
    assert (status, out) == (2, "")
    assert said in err
    after = {path.name for path in tmp_path.iterdir()} - {"__pycache__"}
    assert sorted(after) == [name for name in before if name != "__pycache__"]
