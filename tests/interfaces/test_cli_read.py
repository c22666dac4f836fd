"""What the command line says of runs, definitions and itself: as text, as JSON, as pictures."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli.main import MODULES
from support import shop
from support.shop import Start, Tool, events

folder, tool, beside = shop.folder, shop.tool, shop.beside


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


def test_where_drawings_cannot_be_written_others_stand_for_them(beside: Start) -> None:
    drawn = beside("graph", "doubled.yaml", PYTHONIOENCODING="ascii").ended()

    assert (drawn.status, drawn.err) == (0, "")
    assert "| . first" in drawn.out
    assert "?" not in drawn.out
    beside("start", "approval.yaml", "--id", "a-1", "-i", '{"name": "Zoë"}').ended()
    shown = beside("show", "a-1", "--json", PYTHONIOENCODING="ascii").ended()
    assert shown.json["input"] == {"name": "Zoë"}
