"""`penstock start --inputs`: a run for each line (SPEC 4.4)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.cli import Tool

WAIT = "id: wait\ninputSchema: {type: integer}\ntasks: {go: {type: signal, name: go}}\n"


@pytest.fixture
def tool(tool: Tool, tmp_path: Path) -> Tool:
    (tmp_path / "wait.yaml").write_text(WAIT)
    return tool


def test_a_run_for_each_line_and_again_none(tool: Tool) -> None:
    Path("in.jsonl").write_text("\n".join(map(str, range(300))) + "\n\n")
    status, out, err = tool("start", "wait.yaml", "--inputs", "in.jsonl", "--id", "job")
    again = tool("start", "wait", "--inputs", "in.jsonl", "--id", "job", "--json")

    assert status == again[0] == 0
    assert out.split() == [f"job-{n}" for n in range(1, 301)]
    assert "started 300 of 300" in err
    assert json.loads(again[1]) == {"ids": out.split(), "definition": "wait"}
    assert len(json.loads(tool("list", "--limit", "500", "--json")[1])) == 300
    assert json.loads(tool("show", "job-7", "--json")[1])["input"] == 6


@pytest.mark.parametrize(
    ("content", "more", "status", "says"),
    [
        ("1\n2\n{]\n", (), 2, "in.jsonl:3:2"),
        ('1\n"x"\n', (), 3, "number 1: it does not fit the inputSchema"),
        ("1\n", ("-i", "3"), 2, "-i is the input of one run"),
        (None, (), 2, "in.jsonl cannot be read"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_started(
    tool: Tool, content: str | None, more: tuple[str, ...], status: int, says: str
) -> None:
    if content is not None:
        Path("in.jsonl").write_text(content)
    tool("start", "wait.yaml", "-i", "0", "--id", "first")
    got, out, err = tool("start", "wait", "--inputs", "in.jsonl", *more)

    assert (got, out) == (status, "")
    assert says in err, err
    assert len(json.loads(tool("list", "--json")[1])) == 1
