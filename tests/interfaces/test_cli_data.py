"""The commands that keep data: archive, restore, export, import, erase, backup, and what they refuse."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

import penstock
from penstock.cli.main import main

APP = """
from penstock import activity

@activity
async def double(n: int) -> int:
    return 2 * n
"""
DOUBLED = "id: doubled\ntasks:\n  first: {do: double, inputs: {n: {from: input}}}\n"


class Said:
    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PENSTOCK_STORE", raising=False)
    (tmp_path / "acts.py").write_text(APP)
    (tmp_path / "doubled.yaml").write_text(DOUBLED)
    (tmp_path / "old").mkdir()
    return tmp_path


@pytest.fixture
def tool(folder: Path, capfd: pytest.CaptureFixture[str]):
    def call(*arguments: str) -> Said:
        capfd.readouterr()
        status = main(arguments)
        out, err = capfd.readouterr()
        assert "Traceback" not in err
        return Said(status, out, err)

    for n in ("1", "2", "3"):
        said = call("run", "doubled.yaml", "--app", "acts.py", "-i", n, "--id", f"r{n}")
        assert said.status == 0, said.err
    return call


def listed(said: Said) -> list[str]:
    return [row["id"] for row in json.loads(said.out)]


def test_runs_are_archived_listed_shown_and_restored(tool, folder: Path) -> None:
    assert "no run is that old" in tool("archive", "old").err
    said = tool("archive", "old", "--older-than", "0s", "--json")
    assert json.loads(said.out)["runs"] == 2
    assert listed(tool("list", "--json")) == ["r3"]
    assert listed(tool("list", "--archived", "--json")) == ["r2", "r1"]
    assert json.loads(tool("show", "r1", "--json").out)["output"] == 2
    assert "run_completed" in tool("history", "r1", "--json").out
    assert tool("audit").status == 0
    assert "is back" in tool("restore", "r1").err
    assert "is here already" in tool("restore", "r1").err
    assert listed(tool("list", "--json")) == ["r1", "r3"]
    (file,) = (folder / "old").glob("*.jsonl.zst")
    whole = file.read_bytes()
    file.write_bytes(whole[:-20])
    said = tool("audit")
    assert said.status == 1
    assert str(file) in said.out + said.err
    said = tool("restore", "r2")
    assert (said.status, "bundle-damaged" in said.err) == (3, True)


def test_runs_are_exported_and_imported(tool, folder: Path) -> None:
    assert "3 runs exported" in tool("export", "runs.jsonl.zst").err
    said = tool("export", "runs.jsonl.zst")
    assert (said.status, "file-exists" in said.err) == (3, True)
    other = ("--store", "sqlite:///other.db")
    assert "3 runs imported" in tool("import", "runs.jsonl.zst", *other).err
    assert listed(tool("list", "--json", *other)) == ["r3", "r2", "r1"]
    assert tool("audit", *other).status == 0
    (folder / "bad.jsonl.zst").write_bytes(b"nothing")
    said = tool("import", "bad.jsonl.zst", *other)
    assert (said.status, "bundle-damaged" in said.err) == (3, True)
    said = tool("import", "none.jsonl.zst", *other)
    assert (said.status, "none.jsonl.zst is no file" in said.err) == (2, True)


def test_a_refused_import_makes_no_database(tool, folder: Path) -> None:
    (folder / "bad.jsonl.zst").write_bytes(b"nothing")
    (folder / "open.yaml").write_text("id: w\ntasks:\n  s: {type: signal, name: go}\n")
    assert tool("start", "open.yaml", "--id", "w1").status == 0
    assert tool("export", "open.jsonl.zst").status == 0
    for file, code in (("bad", "bundle-damaged"), ("open", "run-open")):
        said = tool("import", f"{file}.jsonl.zst", "--store", "sqlite:///new.db")
        assert (said.status, code in said.err) == (3, True)
        assert not list(folder.glob("new.db*"))


def test_open_runs_that_cannot_be_taken_over_make_no_database(tool, folder: Path) -> None:
    """Their attempts were under way, and whether those may be made again the command cannot know."""

    async def exported() -> None:
        begun = asyncio.Event()

        @penstock.activity(once=True)
        async def pay() -> None:
            begun.set()
            await asyncio.Event().wait()

        settings = penstock.Settings(drain_seconds=0)
        async with penstock.open("memory:", activities=[pay], settings=settings) as engine:
            await engine.register({"id": "paying", "tasks": {"a": {"do": "pay"}}})
            await engine.start("paying", id="p")
            await asyncio.wait_for(begun.wait(), 60)
            assert await engine.data.export("open.jsonl.zst") == 1

    asyncio.run(exported())
    said = tool("import", "open.jsonl.zst", "--take-open", "--store", "sqlite:///new.db")
    assert (said.status, "`pay` may be called again is not known here" in said.err) == (3, True)
    assert "import it from a program that has the activity" in said.err
    assert not list(folder.glob("new.db*"))
    before = tool("list", "--json").out
    assert tool("import", "open.jsonl.zst", "--take-open").status == 3
    assert tool("list", "--json").out == before
    assert "no definition `paying`" in tool("start", "paying").err


def test_payloads_are_erased_by_somebody_for_a_reason(tool, folder: Path) -> None:
    assert tool("erase", "r1").status == 2
    said = tool("erase", "r1", "--by", "ann", "--reason", "asked", "--task", "first")
    assert "1 event of run r1 erased" in said.err
    said = tool("erase", "r1", "--by", "ann", "--reason", "asked")
    assert said.status == 0
    assert json.loads(tool("show", "r1", "--json").out)["input"] == "<erased>"
    assert tool("audit").status == 0
    said = tool("erase", "r9", "--by", "ann", "--reason", "asked")
    assert said.status != 0
    assert "no run `r9`" in said.err


def test_a_backup_is_made_and_restored(tool, folder: Path) -> None:
    assert tool("backup", "monday.db").status == 0
    assert tool("backup", "monday.db").status == 3
    assert tool("restore", "--backup", "monday.db").status == 3
    again = ("--store", "sqlite:///again.db")
    assert tool("restore", "--backup", "monday.db", *again).status == 0
    assert listed(tool("list", "--json", *again)) == ["r3", "r2", "r1"]
    assert tool("restore").status == 2
    assert tool("restore", "r1", "--backup", "x").status == 2
    assert tool("backup", "x.db", "--store", "memory:").status == 4
    (folder / "text").write_text("x" * 3000)
    said = tool("restore", "--backup", "text", "--store", "sqlite:///third.db")
    assert said.status != 0
    assert "not a SQLite database" in said.err


def test_durations_that_are_none_are_refused(tool) -> None:
    assert tool("archive", "old", "--older-than", "soon").status == 2
    assert tool("archive", "nowhere", "--older-than", "1d").status != 0
    assert tool("serve", "--app", "acts.py", "--retention", "soon").status == 2
