"""`penstock diff`: two versions, as people and programs see them (SPEC 2.7)."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from support.cli import Tool

OLD = """
id: order
tasks:
  reserve: {do: reserve}
  pay: {do: charge, after: reserve}
  mail: {do: mail, after: pay}
"""
NEW = """
id: order
data: {seen: {value: 1}}
tasks:
  reserve: {do: reserve}
  settle: {do: charge, after: reserve}
  audit: {do: audit, after: settle, when: input.n > 3}
  mail: {do: post, after: audit}
"""


@pytest.fixture
def tool(tool: Tool, tmp_path: Path) -> Tool:
    (tmp_path / "old.yaml").write_text(OLD)
    (tmp_path / "new.yaml").write_text(NEW)
    return tool


def test_two_files_are_told_line_by_line(tool: Tool) -> None:
    status, out, _ = tool("diff", "old.yaml", "new.yaml")

    assert status == 1
    assert out.splitlines() == [
        "old.yaml -> new.yaml",
        "  + task  audit",
        "  ~ task  pay -> settle  looks renamed",
        "  ~ task  mail",
        "      config.activity: mail -> post",
        "  + link  settle -> audit",
        "  + link  audit -> mail",
        "  - link  pay -> mail",
        '  + data: {"seen":{"value":1}}',
    ]


def test_times_are_told_as_they_are_written(tool: Tool, tmp_path: Path) -> None:
    text = "id: d\ntimeouts: {{run: {0}}}\ntasks:\n  t: {{type: timer, delay: {1}}}\n  a: {{do: x, timeout: {2}, after: t}}\n"
    (tmp_path / "a.yaml").write_text(text.format("2d", "90s", "30s"))
    (tmp_path / "b.yaml").write_text(text.format("36h", "2h", "1500ms"))
    _, out, _ = tool("diff", "a.yaml", "b.yaml")
    assert [line.strip() for line in out.splitlines() if "->" in line][1:] == [
        "config.delay: 90s -> 2h",
        "timeout.startToClose: 30s -> 1.5s",
        "~ timeouts.run: 2d -> 36h",
    ]


def test_the_same_is_the_same(tool: Tool) -> None:
    assert tool("diff", "old.yaml", "old.yaml")[:2] == (
        0,
        "old.yaml -> old.yaml\n  they are the same\n",
    )


def test_versions_of_a_database_are_compared_for_programs(tool: Tool) -> None:
    for name in ("old.yaml", "new.yaml"):
        assert tool("start", name, "-i", '{"n": 1}', "--store", "sqlite:///a.db")[0] == 0

    status, out, _ = tool("diff", "order@1", "order@2", "--json", "--store", "sqlite:///a.db")

    found = json.loads(out)
    assert status == 1
    assert (found["before"], found["after"], found["added"]) == ("1", "2", ["audit"])
    assert tool("diff", "order@1", "new.yaml", "--store", "sqlite:///a.db")[0] == 1
    status, _, err = tool("diff", "order@1", "order@9", "--store", "sqlite:///a.db")
    assert status == 3
    assert "it has: 1, 2" in err
    status, _, err = tool("diff", "order@1", "order", "--store", "sqlite:///a.db")
    assert status == 2
    assert "order@1" in err


def test_the_runs_that_can_move_are_a_table(tool: Tool) -> None:
    status, out, err = tool("diff", "old.yaml", "new.yaml", "--runs")

    assert status == 1
    rows = [line.split(maxsplit=2) for line in out.partition("OPEN")[2].splitlines()[1:]]
    assert [row[:2] for row in rows] == [["mail", "cannot"], ["pay", "cannot"], ["reserve", "can"]]
    assert "with the mapping pay=settle" in err
    found = json.loads(tool("diff", "old.yaml", "new.yaml", "--runs", "--json")[1])
    assert found["runs"]["complete"] is True


def test_a_picture_has_every_task_of_both(tool: Tool) -> None:
    assert tool("diff", "old.yaml", "new.yaml", "--svg", "change.svg")[0] == 1

    tree = ElementTree.parse("change.svg")
    texts = {each.text for each in tree.iter("{http://www.w3.org/2000/svg}text")}
    assert {"reserve", "pay → settle", "audit", "mail", "+", "~"} <= texts
    assert {
        "order: old.yaml -> new.yaml",
        "task audit",
        "task pay -> settle  looks renamed",
    } <= texts
    boxes = [each.get("class") for each in tree.iter("{http://www.w3.org/2000/svg}rect")]
    assert sorted(filter(None, boxes)) == ["box ", "box added", "box changed", "box changed"]


def test_wrong_mappings_and_files_are_told(tool: Tool) -> None:
    for arguments, told in (
        (("old.yaml", "new.yaml", "--map", "pay"), "is not OLD=NEW"),
        (("old.yaml", "new.yaml", "--map", "nobody=settle"), "no task `nobody`"),
        (("old.yaml", "none.yaml"), "there is no file none.yaml"),
        (("old.yaml", "new.yaml", "--svg", "nowhere/a.svg"), "nowhere/a.svg cannot be written"),
    ):
        status, out, err = tool("diff", *arguments)
        assert status in (2, 3), arguments
        assert out == ""
        assert told in err
        assert "hint: " in err
