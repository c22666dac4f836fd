"""Runs that nobody executes, or another process: commands to them, who stands by, who is killed and goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import shop
from support.shop import Start, Tool, events, until

folder, tool, beside = shop.folder, shop.tool, shop.beside


HOLDING = """
id: holding
tasks:
  before: {do: note, inputs: {text: {value: before}}}
  rest: {do: hold, after: before}
  after: {do: note, after: rest, inputs: {text: {value: after}}}
"""


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
