"""`penstock migrate`: a run, or all that a filter finds, moved to another version (SPEC 2.7)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.cli import Said, Tool

ONE = "id: order\ntasks: {ask: {type: signal, name: ok}, last: {type: signal, name: end, after: ask}}\n"
TWO = "id: order\ntasks: {ask: {type: signal, name: ok}, more: {type: signal, after: ask}, last: {type: signal, name: end, after: more}}\n"
THREE = "id: order\ntasks: {approve: {type: signal, name: ok}, last: {type: signal, name: end, after: approve}}\n"
STORE = ("--store", "sqlite:///a.db")


@pytest.fixture
def tool(tool: Tool, tmp_path: Path) -> Tool:
    def call(*arguments: str) -> Said:
        return tool(*arguments, *STORE)

    for number, text in enumerate((ONE, TWO, THREE), 1):
        (tmp_path / f"{number}.yaml").write_text(text)
        assert call("start", f"{number}.yaml", "--id", f"o{number}")[0] == 0
    return call


def test_a_run_is_previewed_moved_and_told_of(tool: Tool) -> None:
    status, out, err = tool("migrate", "o1", "--to", "2", "--preview")
    assert (status, out) == (0, "run o1 can move from version 1 to 2\n")
    assert "penstock migrate o1 --to 2" in err

    status, _, err = tool("migrate", "o1", "--to", "2", "--by", "ann", "--reason", "new step")
    assert status == 0
    assert "run o1 is one of version 2" in err
    assert "moved from version 1 to 2 by ann: new step" in tool("history", "o1")[1]
    assert "order version 2" in tool("show", "o1")[1]
    assert "more" in tool("graph", "o1")[1]


def test_what_stands_in_the_way_is_a_table(tool: Tool) -> None:
    status, out, err = tool("migrate", "o1", "--to", "3", "--preview")

    assert status == 3
    assert "`ask` is open, and the new version does not have it" in out
    assert "run o1 cannot move from version 1 to 3" in out
    assert "--map ask=approve" in err
    status, out, err = tool("migrate", "o1", "--to", "3")
    assert (status, out) == (3, "")
    assert "error[migration-unsafe]" in err
    status, out, _ = tool("migrate", "o1", "--to", "3", "--preview", "--json")
    assert status == 3
    assert json.loads(out)["obstacles"][0]["why"] == "open-removed"
    assert tool("migrate", "o1", "--to", "3", "--map", "ask=approve")[0] == 0
    assert "approve" in tool("show", "o1")[1]


def test_many_are_moved_by_a_batch(tool: Tool) -> None:
    status, out, err = tool("migrate", "--to", "2", "--where", "version=1", "--by", "ann")

    assert status == 0
    assert out.strip()
    assert "1 runs are found" in err


def test_wrong_usage_is_told(tool: Tool) -> None:
    for arguments in (
        ("migrate",), ("migrate", "--where", "version=1"), ("migrate", "--to", "2", "--where", "version=1", "--preview"),
        ("migrate", "o1", "--map", "x"), ("migrate", "o1", "--to", "9"), ("migrate", "nobody", "--to", "2"),
    ):  # fmt: skip
        status, out, err = tool(*arguments)
        assert status in (2, 3), (arguments, err)
        assert out == ""
        assert "hint: " in err
