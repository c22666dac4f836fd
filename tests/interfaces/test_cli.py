"""The command line as people and scripts meet it: what it prints where, its exit codes, and other processes beside it."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.main import MODULES, main

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

HOLDING = """
id: holding
tasks:
  before: {do: note, inputs: {text: {value: before}}}
  rest: {do: hold, after: before}
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


# --- run --------------------------------------------------------------------------------------------------------


def test_history_and_show_have_what_activities_logged(tool: Tool) -> None:
    Path("speaking.yaml").write_text("id: speaking\ntasks:\n  talk: {do: speak}\n")
    assert tool("run", "speaking.yaml", "--app", "acts.py").status == 0

    lines = tool("history", "speaking").out.splitlines()
    talked = next(i for i, line in enumerate(lines) if "task_completed" in line)
    assert [line[:6].strip() + line[15:] for line in lines[talked + 1 : talked + 3]] == [
        "WARNING one two",
        "INFO    three",
    ]
    kept = next(
        each
        for each in tool("history", "speaking", "--json").json
        if each["type"] == "task_completed"
    )
    assert [(line["level"], line["message"]) for line in kept["logs"]] == [
        ("WARNING", "one\ntwo"),
        ("INFO", "three"),
    ]
    (task,) = (
        each for each in tool("show", "speaking", "--json").json["tasks"] if each["key"] == "talk"
    )
    assert task["logs"] == kept["logs"]


def test_run_prints_the_result_on_stdout_and_the_events_on_stderr(tool: Tool) -> None:
    said = tool("run", "doubled.yaml", "--app", "acts.py", "-i", '{"n": 5}')

    assert (said.status, said.json) == (0, 20)
    assert "first: completed: 10" in said.err
    assert "COMPLETED in" in said.err


STEPS = """\
from penstock import Context, Fail, activity, workflow


@activity
async def charge(card: str) -> str:
    return f"payment of {card}"


@activity
async def refund(payment: str) -> None: ...


@workflow
async def sale(ctx: Context, card: str) -> str:
    payment = await ctx.call(charge, card, undo=refund)
    if not await ctx.signal("approve"):
        raise Fail("not approved")
    return payment
"""


def test_a_workflow_function_is_run_by_its_name_and_drawn_over_time(
    tool: Tool, folder: Path, beside: Start
) -> None:
    (folder / "sales.py").write_text(STEPS)
    owner = beside("run", "sale", "--app", "sales.py", "-i", "card=a-1")
    owner.says("waits: signal approve is to come: penstock signal sale approve")
    drawn = tool("graph", "sale").out.splitlines()
    assert [line.split()[:2] for line in drawn] == [["✓", "charge#1"], ["⏳", "signal:approve#1"]]
    tool("signal", "sale", "approve", "true")
    assert owner.ended().json == "payment of a-1"

    again = beside("run", "sale", "--app", "sales.py", "-i", "card=a-1")
    again.says("waits: signal approve")
    tool("signal", "sale-2", "approve", "false")
    assert "error[failed]: not approved" in again.ended().err
    steps = tool("graph", "sale-2", "--json").json["steps"]
    assert [(s["key"], s["status"]) for s in steps] == [
        ("charge#1", "COMPENSATED"),
        ("signal:approve#1", "COMPLETED"),
    ]


def test_a_workflow_that_is_not_there_is_told_with_those_that_are(tool: Tool, folder: Path) -> None:
    (folder / "sales.py").write_text(STEPS)

    assert "hint: did you mean `sale`?" in tool("run", "sael", "--app", "sales.py").err
    assert "hint: it has: sale" in tool("run", "zzz", "--app", "sales.py").err
    said = tool("run", "sales.py", "--app", "sales.py")
    assert (said.status, "penstock run WORKFLOW --app sales.py" in said.err) == (2, True)
    for command in ("verify", "graph", "start"):
        assert "sales.py is a Python file, not a definition" in tool(command, "sales.py").err
    assert not (folder / "penstock.db").exists()


def test_secrets_come_from_the_environment_and_stand_in_no_event(
    tool: Tool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "vault.py").write_text(
        "from penstock import activity\n\n@activity\nasync def weigh(key: str) -> int:\n    return len(key)\n"
    )
    text = "id: vault\ntasks:\n  weigh: {do: weigh, inputs: {key: {secret: API_KEY}}}\noutputs: {n: tasks.weigh.output}\n"
    (folder / "vault.yaml").write_text(text)

    assert "error[secret-missing]" in tool("run", "vault.yaml", "--app", "vault.py").err
    monkeypatch.setenv("PENSTOCK_SECRET_API_KEY", "open-sesame")
    assert tool("run", "vault.yaml", "--app", "vault.py", "--again").json == {"n": 11}
    assert "open-sesame" not in tool("history", "vault.2", "--json").out


@pytest.mark.parametrize("given", [["n=5"], ["@in.json"], ['{"n": 1}', "n=5"], ['{"n":5}']])
def test_input_comes_as_json_as_a_file_or_as_pairs(
    tool: Tool, folder: Path, given: list[str]
) -> None:
    (folder / "in.json").write_text('{"n": 5}')

    said = tool(
        "run",
        "doubled.yaml",
        "--app",
        "acts.py",
        *[part for text in given for part in ("-i", text)],
    )

    assert said.json == 20


def test_a_failed_run_says_why_and_where_and_exits_with_1(tool: Tool, folder: Path) -> None:
    said = tool("run", "failing.yaml", "--app", "acts.py")

    assert (said.status, said.out) == (1, "")
    assert "error[no-luck]: no luck\n  --> task fail\n    File " in said.err
    ending = "  because of KeyError: 'dice'\nhint: try again\nnext: penstock history failing\n"
    assert said.err.endswith(ending)
    shown = tool("show", "failing").out
    place = f"{folder}/acts.py:14 in boom"
    assert (
        f"[no-luck] in fail Fail: no luck\n  at         {place}\n  hint       try again\n" in shown
    )
    assert "hint     try again\n" in tool("why", "failing").out
    assert (folder / "notes.txt").read_text() == "kept\nundone kept\n"


def test_an_exception_without_a_text_says_its_type(tool: Tool, folder: Path) -> None:
    """Of one with a text, `run` says both, as `show` does."""
    (folder / "mute.py").write_text(
        "import penstock\n\n@penstock.workflow\nasync def mute(ctx, loud: bool):\n"
        "    if loud:\n        raise ValueError('too loud') from KeyError()\n    assert loud\n"
    )

    said = tool("run", "mute", "--app", "mute.py", "-i", "loud=false", "--id", "m")
    loud = tool("run", "mute", "--app", "mute.py", "-i", "loud=true", "--id", "l")

    assert "error[error]: AssertionError\n" in said.err
    assert "FAILED" in said.err
    assert "failed: AssertionError\n" in tool("history", "m").out
    place = f"{folder}/mute.py:7 in mute"
    assert f"[error] AssertionError\n  at         {place}\n" in tool("show", "m").out
    assert f"error    [error] AssertionError\nat       {place}\n" in tool("why", "m").out
    assert "error[error]: ValueError: too loud\n" in loud.err
    assert "  because of KeyError\n" in loud.err


def test_without_an_id_each_run_is_the_next_one(tool: Tool) -> None:
    for _ in range(3):
        tool("run", "doubled.yaml", "--app", "acts.py", "-i", "n=1")

    assert [row["id"] for row in tool("list", "--json").json] == [
        "doubled-3",
        "doubled-2",
        "doubled",
    ]


def test_an_ended_run_is_shown_and_again_starts_the_next(tool: Tool) -> None:
    first = tool("run", "doubled.yaml", "--app", "acts.py", "-i", "n=1", "--id", "mine")
    shown = tool("run", "doubled.yaml", "--app", "acts.py", "-i", "n=1", "--id", "mine")
    other = tool("run", "doubled.yaml", "--app", "acts.py", "-i", "n=2", "--id", "mine")
    again = tool("run", "doubled.yaml", "--app", "acts.py", "-i", "n=2", "--id", "mine", "--again")

    assert (first.json, shown.json, again.json) == (4, 4, 8)
    assert (other.status, "error[id-taken]" in other.err) == (3, True)
    assert "run mine has ended COMPLETED; this is mine-2" in again.err


def test_a_wrong_definition_is_refused_before_a_database_is_made(tool: Tool, folder: Path) -> None:
    (folder / "bad.yaml").write_text("id: bad\ntasks:\n  a: {do: double, after: b}\n")

    said = tool("run", "bad.yaml", "--app", "acts.py")

    assert said.status == 3
    assert "error[dangling-link]" in said.err
    assert "--> bad.yaml:3:26" in said.err
    assert not list(folder.glob("*.db*"))


def test_activities_that_nobody_serves_are_named_before_the_run(tool: Tool) -> None:
    said = tool("run", "doubled.yaml", "-i", "n=1")

    assert said.status == 3
    assert "error[unknown-activity]: no activity `double`" in said.err
    assert "--app FILE" in said.err


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("def f(:\n", "error[app-failed]: SyntaxError: invalid syntax\n  --> app.py:1:7"),
        (
            "\nimport nosuch\n",
            "error[app-failed]: ModuleNotFoundError: No module named 'nosuch'\n  --> app.py:2",
        ),
        (
            "1 / 0\n",
            "error[app-failed]: ZeroDivisionError: division by zero\n  --> app.py:1\n  |\n1 | 1 / 0",
        ),
        ("raise SystemExit(7)\n", "error[app-failed]: SystemExit: 7\n  --> app.py:1"),
        ("x = 1\n", "error[app-empty]: `app.py` has no activities"),
        (
            "from penstock import activity\n@activity(retry=3)\ndef f(): ...\n",
            "error[activity-invalid]: `retry` must be a Retry, not 3\n  --> app.py:2",
        ),
    ],
)
def test_what_is_wrong_with_the_app_is_told_at_its_place(
    tool: Tool, folder: Path, text: str, wanted: str
) -> None:
    (folder / "app.py").write_text(text)

    said = tool("run", "doubled.yaml", "--app", "app.py", "-i", "n=1")

    assert said.status == 2
    assert wanted in said.err


@pytest.mark.parametrize("command", [("run", "main", "--app"), ("simulate", "--seeds", "1")])
def test_an_app_that_runs_itself_when_it_is_loaded_is_told_where_that_belongs(
    tool: Tool, folder: Path, command: tuple[str, ...]
) -> None:
    (folder / "app.py").write_text(
        "import asyncio\nasync def main():\n    open('did', 'w').close()\nasyncio.run(main())\n"
    )

    said = tool(*command, "app.py")

    assert said.status == 2
    assert "error[app-failed]: RuntimeError: asyncio.run() cannot be called" in said.err
    assert "--> app.py:4" in said.err
    assert 'put it below `if __name__ == "__main__":`' in said.err
    assert "never awaited" not in said.err
    assert not (folder / "did").exists()


def test_a_number_for_a_text_of_a_function_gets_the_hint_to_quote_it(
    tool: Tool, folder: Path
) -> None:
    (folder / "app.py").write_text(
        "from penstock import Context, workflow\n@workflow\nasync def order(ctx: Context, card: str) -> str:\n"
        "    return card\n"
    )

    said = tool("run", "order", "--app", "app.py", "-i", "card=42")

    assert "error[arguments-invalid]" in said.err
    assert """hint: as a text: -i card='"42"'""" in said.err
    assert tool("run", "order", "--app", "app.py", "-i", 'card="42"').json == "42"


def test_one_task_is_one(tool: Tool, folder: Path) -> None:
    (folder / "one.yaml").write_text("id: one\ntasks:\n  a: {do: double, inputs: {n: 1}}\n")

    said = tool("run", "one.yaml", "--app", "acts.py")

    assert ": 1 task, " in said.err


@pytest.mark.parametrize("page", ["functions", "test", "change-a-running-workflow"])
def test_the_code_of_a_page_about_functions_can_be_an_app(
    tool: Tool, folder: Path, page: str
) -> None:
    text = (Path(__file__).parents[2] / "docs" / "howto" / f"{page}.md").read_text()
    (folder / "shop.py").write_text("".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL)))

    said = tool("run", "nosuch", "--app", "shop.py")

    assert "app-failed" not in said.err


def test_the_app_may_be_a_module_and_a_list_in_it(tool: Tool, folder: Path) -> None:
    (folder / "shopmod.py").write_text("from acts import double\nserved = [double]\n")

    assert tool("run", "doubled.yaml", "--app", "shopmod", "-i", "n=1").json == 4
    assert tool("run", "doubled.yaml", "--app", "shopmod:served", "-i", "n=1").json == 4
    assert (
        "did you mean `served`"
        in tool("run", "doubled.yaml", "--app", "shopmod:servd", "-i", "n=1").err
    )
    assert (
        "there is no module `nosuch`"
        in tool("run", "doubled.yaml", "--app", "nosuch", "-i", "n=1").err
    )
    sys.modules.pop("shopmod", None)


@pytest.mark.parametrize(
    ("arguments", "status", "wanted"),
    [
        (["run", "doubled.yaml", "-i", "{bad"], 2, "error[usage]: this is not JSON"),
        (["run", "doubled.yaml", "-i", "@none.json"], 2, "none.json cannot be read"),
        (["run", "doubled.yaml", "-i", "NaN"], 2, "NaN has no place in JSON"),
        (["run", "doubled.yaml", "-i", "[1]", "-i", "n=1"], 2, "each must be an object"),
        (["run", "doubld.yaml"], 2, "hint: did you mean `doubled.yaml`?"),
        (["run", "doubled.yaml", "--app", "act.py"], 2, "hint: did you mean `acts.py`?"),
        (["run", "doubled.yaml", "--app", "acts.py", "-i", "n=x"], 3, "error[input-invalid]"),
        (["run", "approval.yaml", "--store", "mysql:x"], 2, "error[store-url]"),
        (["run", "approval.yaml", "--store", "sqlite:///none/x.db"], 4, "error[store-failed]"),
        (["list"], 4, "error[store-missing]: there is no database penstock.db"),
        (["list", "--store", "memory:"], 4, "error[store-missing]"),
        (["list", "--store", "sqlite:///acts.py"], 4, "error[store-corrupt]"),
        (["lst"], 2, "hint: did you mean `list`?"),
        (["list", "--stor", "x"], 2, "hint: did you mean `--store`?"),
        (
            ["list", "--status", "runing"],
            2,
            "`runing` is no status of a run\n  --> --status\nhint: did you mean `running`?",
        ),
        (["list", "--since", "soon"], 2, "neither a duration nor a moment"),
        (["list", "--attr", "x"], 2, "`x` is not name=value"),
        (["list", "--limit", "0"], 2, "error[usage]"),
        (["show"], 2, "hint: penstock show --help shows how"),
        (["explain", "danglin-link"], 3, "hint: did you mean `dangling-link`?"),
        (["graph", "none.yaml"], 2, "there is no file none.yaml"),
        (["start", "doubled.yaml", "--delay", "soon"], 2, "`soon` is not a duration"),
    ],
)
def test_what_cannot_be_done_is_said_with_a_code_and_a_hint(
    tool: Tool, arguments: list[str], status: int, wanted: str
) -> None:
    said = tool(*arguments)

    assert (said.status, said.out) == (status, "")
    assert wanted in said.err
    assert said.err.startswith("error[")


# --- without a process that executes ------------------------------------------------------------------------------


def test_a_run_is_started_looked_at_and_commanded_while_nobody_executes(tool: Tool) -> None:
    started = tool("start", "approval.yaml", "--id", "a-1", "--attr", "region=eu", "--by", "ann")
    assert (started.status, started.out) == (0, "a-1\n")
    assert "no process executes its runs now" in started.err
    assert tool("start", "approval", "--id", "a-2", "--json").json == {
        "id": "a-2",
        "definition": "approval",
    }

    assert [row["id"] for row in tool("list", "--attr", "region=eu", "--json").json] == ["a-1"]
    assert "a-2" in tool("list", "--since", "1h", "--status", "waiting").out
    page = tool("list", "--limit", "1")
    assert "more: --after " in page.err
    cursor = page.err.split("--after ")[1].split()[0]
    assert tool("list", "--after", cursor).out.splitlines()[1].startswith("a-1")
    assert tool("list", "--status", "failed").err == "no runs like that\n"

    why = tool("why", "a-1")
    assert "signal `approve` is to come" in why.out
    assert "penstock signal a-1 approve" in why.err
    assert tool("why", "a-1", "--json").json["why"][0]["kind"] == "signal"

    assert tool("pause", "a-1", "--by", "ann", "--reason", "lunch").status == 0
    assert tool("list", "--status", "paused", "--json").json[0]["id"] == "a-1"
    assert tool("resume", "a-1").status == 0
    assert tool("signal", "a-1", "approve", "true", "--by", "ann").status == 0
    assert tool("submit", "a-1", "fill", '{"text": "fine"}').status == 0
    shown = tool("show", "a-1", "--json").json
    assert (shown["status"], shown["created_by"]) == ("COMPLETED", "ann")
    text = tool("show", "a-1").out
    assert "by ann" in text
    assert "approval version 1" in text

    assert tool("cancel", "a-2", "--reason", "enough").status == 0
    tool("start", "approval", "--id", "a-3")
    assert tool("terminate", "a-3", "--by", "ann").status == 0
    assert tool("show", "a-3", "--json").json["status"] == "TERMINATED"

    history = tool("history", "a-1")
    assert [line.split()[3] for line in history.out.splitlines()[1:4]] == [
        "run_started",
        "run_paused",
        "run_resumed",
    ]
    assert "paused by ann: lunch" in history.out
    assert events(tool, "a-1")[-1] == "run_completed"


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (
            ["show", "a_1"],
            "error[not-found]: no run `a_1` in sqlite:///penstock.db\nhint: did you mean `a-1`?",
        ),
        (["signal", "a-1", "aprove"], "hint: did you mean `approve`?"),
        (["signal", "a-1", "approve", '"x"'], "error[signal-invalid]"),
        (["signal", "done", "approve", "true"], "error[run-closed]"),
        (["submit", "a-1", "fill", "{}"], "error["),
        (["start", "aproval"], "error[not-found]: no definition `aproval`"),
        (["start", "approval", "--id", "a-1", "-i", "3"], "error[id-taken]"),
    ],
)
def test_a_command_against_the_rules_is_refused_and_changes_nothing(
    tool: Tool, arguments: list[str], wanted: str
) -> None:
    tool("start", "approval.yaml", "--id", "a-1")
    tool("start", "approval.yaml", "--id", "done")
    tool("terminate", "done")

    said = tool(*arguments)

    assert (said.status, said.out) == (3, "")
    assert wanted in said.err
    assert events(tool, "a-1") == ["run_started"]


def test_audit_finds_an_event_that_was_changed(tool: Tool, folder: Path) -> None:
    tool("run", "doubled.yaml", "--app", "acts.py", "-i", "n=1")
    good = tool("audit")
    assert (good.status, tool("audit", "doubled", "--json").json) == (0, {"problems": []})
    # An attempt that takes its time is noted to have begun, so the number depends on the machine.
    number = events(tool, "doubled").index("task_completed") + 1
    connection = sqlite3.connect(folder / "penstock.db")
    tables = [
        name
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    ]
    table = next(t for t in tables if "event" in t)
    with connection:
        changed = "CAST(replace(CAST(payload AS TEXT), '\"output\":2', '\"output\":3') AS BLOB)"
        connection.execute(f"UPDATE {table} SET payload = {changed}")
    connection.close()

    said = tool("audit")

    assert (said.status, said.out) == (1, f"run doubled: event {number} is not what was written\n")


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["submit", "it 1", "nosuch", "{}"], "hint: these forms wait: fill\n"),
        (
            ["submit", "it 2", "approve", "{}"],
            "but signal `approve` is to come (penstock why 'it 2'",
        ),
        (["pause", "done"], "hint: penstock show done --store sqlite:///x.db shows how it ended"),
        (["show", "zzz"], "hint: `penstock list --store sqlite:///x.db` shows the runs"),
        (["start", "zzz"], "registered: approval; `penstock start FILE --store sqlite:///x.db`"),
        (["start", "approval", "--version", "9"], "hint: it has version 1; without --version"),
        (["run", "."], "hint: name a file: approval.yaml, "),
        (["verify", "nosuch/a.yaml"], "hint: there is no folder nosuch either"),
        (["run", "approval.yaml", "-i", "@inn.json"], "hint: did you mean `in.json`?"),
        (["run", "approval.yaml", "-i", "@zzz"], "hint: @FILE is a file with JSON, @- is stdin"),
        (["run", "approval.yaml", "--app", "zzz.py"], "hint: --app takes the Python file"),
        (["run", "approval.yaml", "--app", "acts:zzz"], "hint: --app acts takes all activities"),
        (["pause", "it 1"], "run it 1 is paused; penstock resume 'it 1' --store sqlite:///x.db\n"),
        (
            ["pause", "it 1"],
            "as soon as one does: penstock serve --app FILE --store sqlite:///x.db\n",
        ),
        (["why", "it 1"], "penstock serve --app FILE --store sqlite:///x.db\n"),
        (["why", "it 1"], "next: penstock submit 'it 1' fill '{…}' --store sqlite:///x.db\n"),
    ],
)
def test_what_is_said_ends_with_a_command_that_can_be_typed(
    tool: Tool, folder: Path, arguments: list[str], wanted: str
) -> None:
    at = ["--store", "sqlite:///x.db"]
    (folder / "in.json").write_text("{}")
    for id in ("it 1", "it 2", "done"):
        tool("start", "approval.yaml", "--id", id, *at)
    tool("signal", "it 1", "approve", "true", *at)
    tool("terminate", "done", *at)

    said = tool(*arguments, *(at if arguments[0] != "verify" else ()))

    assert wanted in said.err


def test_why_says_what_is_to_begin_and_why_a_run_failed(tool: Tool, folder: Path) -> None:
    tool("start", "doubled.yaml", "--id", "d-1", "-i", "n=1")
    tool("run", "failing.yaml", "--app", "acts.py", "--id", "f-1")
    tool("start", "lingering.yaml", "--id", "l-1")

    assert tool("why", "l-1").out == "attempt  attempt 1 of `before` is to begin\n"
    failed = tool("why", "f-1")
    assert failed.out.splitlines() == [
        "run f-1 waits for nothing: it is FAILED",
        "error    [no-luck] in fail Fail: no luck",
        f"at       {folder}/acts.py:14 in boom",
        "hint     try again",
        "error    [error] KeyError: 'dice'",
    ]
    assert tool("why", "f-1", "--json").json["errors"][0]["code"] == "no-luck"


def test_only_the_demo_is_to_be_killed(tool: Tool) -> None:
    first = tool("run", "doubled.yaml", "--app", "acts.py", "-i", "n=1")
    again = tool("run", "doubled.yaml", "--app", "acts.py", "-i", "n=1", "--again")

    assert "kill -9" not in first.err
    assert "kill -9" in again.err


# --- definitions ------------------------------------------------------------------------------------------------


def test_verify_says_what_is_wrong_as_text_and_as_json(tool: Tool, folder: Path) -> None:
    (folder / "bad.yaml").write_text("id: bad\ntasks:\n  a: {do: double, after: b}\n")

    good, bad = (
        tool("verify", "doubled.yaml", "approval.yaml"),
        tool("verify", "doubled.yaml", "bad.yaml"),
    )

    assert good.status == 0
    assert "  proved   behaviour:    every run comes to an end of its own" in good.out
    assert "doubled.yaml: 2 tasks: 1 note" in good.err
    assert (bad.status, "error[dangling-link]" in bad.out) == (1, True)
    found = tool("verify", "bad.yaml", "--format", "json").json["findings"]
    assert (found[0]["code"], found[0]["line"]) == ("dangling-link", 3)
    assert tool("verify", "failing.yaml", "--app", "acts.py").status == 0
    assert tool("verify", "none.yaml").status == 2


HASTY = """\
id: hasty
tasks:
  size: {type: gateway, kind: exclusive}
  small: {do: double}
  large: {do: double}
links:
  - {from: size, to: small, when: input.n < 10}
  - {from: size, to: large, when: input.n > 10}
"""


def test_verify_shows_a_counterexample_and_runs_it(tool: Tool, folder: Path) -> None:
    (folder / "hasty.yaml").write_text(HASTY)

    said = tool("verify", "hasty.yaml")
    ran = tool("verify", "hasty.yaml", "--run", "1")

    assert said.status == 1
    story = 'counterexample 1:\n  1. start with input {"n":10}\n  → the run is FAILED with `no-branch`\n'
    assert story + "  see it happen: penstock verify hasty.yaml --run 1\n" in said.out
    assert "  refuted  behaviour: " in said.out
    assert ran.status == 0
    assert "     run: failed: no branch of `size` holds and it has no default\n" in ran.out
    assert "it happens as the report says: the run is FAILED with `no-branch`" in ran.out
    machine = tool("verify", "hasty.yaml", "--run", "1", "--json").json
    assert (machine["shown"], machine["status"], machine["code"]) == (True, "FAILED", "no-branch")
    assert machine["steps"][0]["events"][-1]["type"] == "run_failed"


def test_verify_writes_for_programs_and_as_a_picture(tool: Tool, folder: Path) -> None:
    (folder / "hasty.yaml").write_text(HASTY)

    sarif = tool("verify", "hasty.yaml", "doubled.yaml", "--format", "sarif")
    picture = tool("verify", "hasty.yaml", "--format", "svg", "-o", "hasty.svg")
    found = tool("verify", "hasty.yaml", "--json").json

    assert (sarif.status, sarif.json["version"]) == (1, "2.1.0")
    (run,) = sarif.json["runs"]
    assert len(run["artifacts"]) == 2
    assert run["results"][0]["locations"][0]["physicalLocation"]["region"]["startLine"] == 3
    assert all(rule["shortDescription"]["text"] for rule in run["tool"]["driver"]["rules"])
    assert (picture.status, picture.out) == (1, "")
    assert (folder / "hasty.svg").read_text().startswith("<svg ")
    assert found["findings"][0]["number"] == 1
    assert {proof["name"] for proof in found["proofs"]} >= {"structure", "behaviour", "branches"}


def test_verify_has_exit_statuses_for_ci(tool: Tool, folder: Path) -> None:
    (folder / "hasty.yaml").write_text(HASTY.replace("> 10", ">= 10"))
    (folder / "bad.yaml").write_text("id: bad\ntasks:\n  a: {do: double, after: b}\n")
    (folder / "torn.yaml").write_text("id: [")

    unknown, strict = tool("verify", "hasty.yaml"), tool("verify", "hasty.yaml", "--strict")

    assert "warning[branch-untyped]" in unknown.out
    assert (unknown.status, strict.status) == (0, 1)
    assert tool("verify", "doubled.yaml", "--strict").status == 0
    assert "Exit status, for CI:" in tool("verify", "--help").out
    for arguments, hint in (
        (["hasty.yaml", "--run", "1"], "it has none"),
        (["bad.yaml", "--run", "1"], "it has none"),
        (["bad.yaml", "hasty.yaml", "--run", "1"], "takes one file, not 2"),
        (["bad.yaml", "hasty.yaml", "--format", "svg"], "takes one file, not 2"),
        (["hasty.yaml", "--run", "0"], "--run"),
        (["hasty.yaml", "-o", "no/such/folder.txt"], "cannot be written"),
    ):
        wrong = tool("verify", *arguments)
        assert wrong.status == 2, arguments
        assert hint in wrong.err
    torn = tool("verify", "torn.yaml", "--format", "svg")
    assert (torn.status, "cannot be drawn" in torn.err) == (1, True)


def test_verify_with_an_app_refuses_what_run_refuses(tool: Tool, folder: Path) -> None:
    (folder / "misfit.yaml").write_text(
        "id: misfit\ntasks:\n  a: {do: double, inputs: {m: {value: 1}}}\n"
    )

    checked = tool("verify", "misfit.yaml", "--app", "acts.py")
    run = tool("run", "misfit.yaml", "--app", "acts.py")

    wanted = "activity `double` has no parameter `m`\n  --> misfit.yaml:3:31"
    assert (checked.status, run.status) == (1, 3)
    assert wanted in checked.out
    assert wanted in run.err
    assert not list(folder.glob("*.db*"))


def test_verify_names_the_app_and_every_code(tool: Tool, folder: Path) -> None:
    (folder / "bad.yaml").write_text(
        "id: bad\ntasks:\n  a: {do: dubble}\n  b: {do: nosuch, after: c}\n"
    )

    said = tool("verify", "bad.yaml", "--app", "acts.py")

    assert "did you mean `double`? acts.py has boom, double" in said.out
    assert "hint: acts.py has boom, double" in said.out
    assert "penstock explain unknown-activity\n" in said.err
    assert "penstock explain dangling-link\n" in said.err


def test_explain_prints_the_page_of_a_code(tool: Tool) -> None:
    assert tool("explain", "no-path").out.startswith("# no-path\n")
    assert tool("explain", "error[no-path]:").out.startswith("# no-path\n")
    (line,) = (each for each in tool("explain").out.splitlines() if "dangling-link" in each)
    assert line.split("  ")[-1].strip() == (
        "A link, or an `after`, names a task that is not in this scope"
    )
    assert tool("explain", "no-path", "--json").json["code"] == "no-path"


def test_graph_draws_a_file_and_a_run(tool: Tool) -> None:
    drawn = tool("graph", "doubled.yaml")
    assert "│ · first" in drawn.out
    tool("run", "failing.yaml", "--app", "acts.py")

    run = tool("graph", "failing", "--json").json
    assert run["tasks"]["fail"] == "FAILED"
    assert {"from": "fail", "to": "never", "state": "dead"} in run["links"]
    text = tool("graph", "failing").out
    assert "↶ keep" in text
    assert "✗ fail" in text
    assert "⤼ never" in text


def test_every_command_teaches_by_an_example(tool: Tool) -> None:
    for name in MODULES:
        said = tool(name, "--help")
        assert said.status == 0
        assert f"Example:\n    penstock {name}" in said.out, name
    assert all(name in tool("--help").out for name in MODULES)
    assert tool().status == 2
    assert tool("--version").out.startswith("penstock ")


def test_help_imports_nothing_heavy(folder: Path) -> None:
    code = (
        "import sys; from penstock.cli.main import main; main(['--help']); "
        "print([m for m in ('rich', 'asyncio', 'jsonschema_rs', 'yaml', 'sqlite3', 'httpx') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines()[-1] == "[]"


# --- beside another process ---------------------------------------------------------------------------------------


def test_all_commands_work_while_another_process_owns_the_database(
    tool: Tool, beside: Start
) -> None:
    owner = beside("run", "approval.yaml", "--id", "a-1")
    owner.says("waits: signal approve is to come: penstock signal a-1 approve true")

    listed = tool("list")
    assert f"process {owner.pid} (" in listed.err
    assert f"process {owner.pid} (" in tool("why", "a-1").err
    assert tool("pause", "a-1").status == 0
    assert tool("show", "a-1").out.splitlines()[0] == "a-1  PAUSED"
    assert tool("resume", "a-1").status == 0
    assert tool("start", "approval", "--id", "a-2").status == 0
    assert tool("terminate", "a-2").status == 0
    assert tool("audit").status == 0
    assert tool("signal", "a-1", "approve", "true").status == 0
    assert tool("submit", "a-1", "fill", '{"text": "fine"}').status == 0

    said = owner.ended()
    assert said.status == 0, said.err
    assert said.json == {"text": "fine"}


def test_a_run_that_another_process_terminates_ends_the_command(tool: Tool, beside: Start) -> None:
    owner = beside("run", "approval.yaml", "--id", "a-1")
    until(lambda: "run_started" in events(tool, "a-1"))

    tool("terminate", "a-1", "--reason", "enough")

    said = owner.ended()
    assert said.status == 1
    assert "TERMINATED" in said.err


def test_a_second_process_stands_by_and_takes_over(tool: Tool, beside: Start) -> None:
    first = beside("run", "approval.yaml", "--id", "a-1")
    until(lambda: f"process {first.pid} (" in tool("list").err)
    second = beside("run", "approval.yaml", "--id", "a-1")
    second.says("this one stands by")
    assert f"process {first.pid} (" in second.said
    first.kill()
    until(lambda: f"process {second.pid} (" in tool("list").err)
    assert tool("signal", "a-1", "approve", "true").status == 0
    assert tool("submit", "a-1", "fill", '{"text": "fine"}').status == 0

    assert second.ended().json == {"text": "fine"}


def test_serve_executes_what_others_start_and_another_takes_over(tool: Tool, beside: Start) -> None:
    tool("start", "doubled.yaml", "--id", "d-1", "-i", "n=1")
    first = beside("serve", "--app", "acts.py")
    first.says(f"this process ({first.pid}) executes the runs of sqlite:///penstock.db")
    second = beside("serve", "--app", "acts.py")
    second.says(f"process {first.pid} (")
    second.says(f"this one ({second.pid}) stands by")
    tool("start", "failing.yaml", "--id", "f-1", "--by", "ann")
    first.says("f-1: started by ann\n")
    first.says("f-1: failed: no luck\n")

    tool("start", "lingering.yaml", "--id", "l-1", "-i", "seconds=0.5")
    until(lambda: "task_started" in events(tool, "l-1") or "task_completed" in events(tool, "l-1"))
    first.interrupt()
    stopped = first.ended()
    assert (stopped.status, stopped.out) == (0, "")
    assert "stopped; open runs go on" in stopped.err
    second.says(f"this process ({second.pid}) executes the runs")
    second.says("l-1: completed")

    assert tool("show", "d-1", "--json").json["output"] == 4
    assert "task_lost" not in events(tool, "l-1")
    assert tool("serve", "--app", "acts.py", "--store", "memory:").status == 2


def test_where_drawings_cannot_be_written_others_stand_for_them(beside: Start) -> None:
    drawn = beside("graph", "doubled.yaml", PYTHONIOENCODING="ascii").ended()

    assert (drawn.status, drawn.err) == (0, "")
    assert "| . first" in drawn.out
    assert "?" not in drawn.out
    beside("start", "approval.yaml", "--id", "a-1", "-i", '{"name": "Zoë"}').ended()
    shown = beside("show", "a-1", "--json", PYTHONIOENCODING="ascii").ended()
    assert shown.json["input"] == {"name": "Zoë"}


def test_after_kill_9_the_same_command_continues_the_run(
    tool: Tool, folder: Path, beside: Start
) -> None:
    command = ["run", "lingering.yaml", "--app", "acts.py", "--id", "l-1"]
    first = beside(*command, "-i", "seconds=30")
    until(lambda: "task_completed" in events(tool, "l-1"))
    first.kill()
    # What was under way would take 30 s more: that it is begun anew is enough to see.
    second = beside(*command)
    until(lambda: "task_lost" in events(tool, "l-1"))

    assert (folder / "notes.txt").read_text() == "before\n"
    second.kill()


def test_ctrl_c_stops_and_says_how_to_go_on(tool: Tool, folder: Path, beside: Start) -> None:
    (folder / "holding.yaml").write_text(HOLDING)
    (folder / "held").touch()
    command = ["run", "holding.yaml", "--app", "acts.py", "--id", "l-1"]
    first = beside(*command)
    until(lambda: "task_completed" in events(tool, "l-1"))
    first.interrupt()
    first.says("stopping: what is under way gets 10 s to end")
    (folder / "held").unlink()
    stopped = first.ended()
    assert stopped.status == 130
    assert "run l-1 stays open and nothing of it is lost" in stopped.err

    said = tool(*command)

    assert (said.status, said.json) == (0, "after")
    assert "continues run l-1" in said.err
    assert (folder / "notes.txt").read_text() == "before\nafter\n"


def test_in_a_terminal_the_graph_is_drawn_live(folder: Path) -> None:
    import pty

    leader, follower = pty.openpty()
    environment = {**os.environ, "COLUMNS": "90", "LINES": "40", "TERM": "xterm-256color"}
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock", "run", "lingering.yaml", "--app", "acts.py", "-i", "seconds=0.4"],
        stdin=follower, stdout=follower, stderr=follower, env=environment,
    )  # fmt: skip
    os.close(follower)
    seen = b""
    while True:
        try:
            part = os.read(leader, 65536)
        except OSError:
            break
        if not part:
            break
        seen += part
    os.close(leader)
    text = seen.decode()
    assert process.wait(timeout=10) == 0
    assert "│ · rest" in text
    assert "✓ rest" in text
    assert "▼" in text
    assert '"after"' in text
