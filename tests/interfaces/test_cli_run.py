"""`penstock run` as people and scripts meet it: what it takes, what it prints where, its exit codes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support import shop
from support.shop import Start, Tool

folder, tool, beside = shop.folder, shop.tool, shop.beside


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


def test_only_the_demo_is_to_be_killed(tool: Tool) -> None:
    first = tool("run", "doubled.yaml", "--app", "acts.py", "-i", "n=1")
    again = tool("run", "doubled.yaml", "--app", "acts.py", "-i", "n=1", "--again")

    assert "kill -9" not in first.err
    assert "kill -9" in again.err


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
