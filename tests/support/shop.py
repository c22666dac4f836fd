"""`penstock` in a folder with activities and definitions, in this process or in others beside it: what it said.

    folder, tool, beside = shop.folder, shop.tool, shop.beside

    def test_mine(tool: Tool, beside: Start) -> None:
        beside("run", "approval.yaml", "--id", "a-1").says("waits")
        assert tool("list", "--json").json[0]["id"] == "a-1"

The fixtures are a file's own, as `tool` is another one elsewhere (`support/cli.py`).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

APP = """
import logging, pathlib, time
from penstock import Fail, activity, current

@activity
async def double(n: int) -> int:
    return 2 * n

@activity
async def boom() -> None:
    try:
        {}["dice"]
    except KeyError as error:
        raise Fail("no luck", code="no-luck", details={"hint": "try again"}) from error

@activity
def note(text: str) -> str:
    with pathlib.Path("notes.txt").open("a") as file:
        file.write(text + "\\n")
    return text

@activity
def speak() -> str:
    logging.getLogger("shop").warning("one\\ntwo")
    current().log("three")
    return "said"

@activity
def linger(seconds: float) -> str:
    time.sleep(seconds)
    return "rested"

@activity
def hold() -> str:
    while pathlib.Path("held").exists():
        time.sleep(0.01)
    return "let go"

@activity
async def undo(before: str) -> None:
    note("undone " + before)
"""

DOUBLED = """
id: doubled
inputSchema: {type: object, required: [n], properties: {n: {type: integer}}}
tasks:
  first: {do: double, inputs: {n: {from: input, path: $.n}}}
  second: {do: double, after: first, inputs: {n: {from: first}}}
"""

FAILING = """
id: failing
tasks:
  keep: {do: note, inputs: {text: {value: kept}}, compensate: undo}
  fail: {do: boom, after: keep}
  never: {do: boom, after: fail}
"""

APPROVAL = """
id: approval
tasks:
  approve: {type: signal, schema: {type: boolean}}
  fill: {type: form, after: approve, schema: {type: object, required: [text]}}
"""

LINGERING = """
id: lingering
tasks:
  before: {do: note, inputs: {text: {value: before}}}
  rest: {do: linger, after: before, inputs: {seconds: {from: input, path: $.seconds, default: 0.01}}}
  after: {do: note, after: rest, inputs: {text: {value: after}}}
"""

PATIENCE_SECONDS = 60.0
"""With other processes, on a machine that has other things to do."""


class Said:
    """What a command gave: exit status, data, talk."""

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Tool = Callable[..., Said]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("PENSTOCK_STORE", raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "acts.py").write_text(APP)
    for name, text in (
        ("doubled", DOUBLED),
        ("failing", FAILING),
        ("approval", APPROVAL),
        ("lingering", LINGERING),
    ):
        (tmp_path / f"{name}.yaml").write_text(text)
    yield tmp_path
    sys.modules.pop("acts", None)


@pytest.fixture
def tool(folder: Path, capfd: pytest.CaptureFixture[str]) -> Tool:
    from penstock.cli.main import main  # late: not every session has to do with the command line

    def call(*arguments: str) -> Said:
        capfd.readouterr()
        status = main(arguments)
        out, err = capfd.readouterr()
        assert "Traceback" not in err
        return Said(status, out, err)

    return call


class Beside:
    """A `penstock` in a process of its own; what it says can be read while it lives."""

    def __init__(self, arguments: tuple[str, ...], talk: Path, **environment: str) -> None:
        self._talk = talk
        with talk.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "penstock", *arguments],
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, **environment},
            )
        self.pid = self._process.pid

    @property
    def said(self) -> str:
        return self._talk.read_text(encoding="utf-8", errors="replace")

    def says(self, text: str) -> None:
        """Wait for that in its talk."""
        until(lambda: text in self.said or self._process.poll() is not None)
        assert text in self.said, self.said

    def ended(self) -> Said:
        out, _ = self._process.communicate(timeout=PATIENCE_SECONDS)
        return Said(self._process.returncode, out.decode("utf-8", "replace"), self.said)

    def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


Start = Callable[..., Beside]


@pytest.fixture
def beside(folder: Path) -> Iterator[Start]:
    begun: list[Beside] = []

    def start(*arguments: str, **environment: str) -> Beside:
        process = Beside(arguments, folder / f"talk-{len(begun)}.txt", **environment)
        begun.append(process)
        return process

    yield start
    for process in begun:
        process.kill()


def until(holds: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
    """Wait for another process."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not come about in time"
        time.sleep(0.02)


def events(tool: Tool, id: str) -> list[str]:
    said = tool("history", id, "--json")
    return [event["type"] for event in said.json] if said.status == 0 else []
