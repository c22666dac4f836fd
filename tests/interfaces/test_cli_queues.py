"""`penstock queues`: shows and changes, from a process that does not execute the runs (SPEC 4.10)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import penstock
from support.cli import Tool


@pytest.fixture
async def database(tmp_path: Path) -> None:
    async with penstock.open(f"sqlite:///{tmp_path}/penstock.db", execute=False):
        pass


def test_a_queue_is_changed_and_shown(database: None, tool: Tool) -> None:
    assert tool("queues")[1] == ""
    status, out, err = tool(
        "queues", "mail", "--limit", "5", "--rate", "2.5", "--by", "ann", "--reason", "slow"
    )
    assert status == 0
    assert "mail" in out
    assert "2.5/s" in out
    assert "ann: slow" in out
    assert "in force when a process executes the runs" in err
    shown: list[dict[str, Any]] = json.loads(tool("queues", "--json")[1])
    assert {(q["name"], q["limit"], q["rate"], q["by"], q["reason"]) for q in shown} == {
        ("mail", 5, 2.5, "ann", "slow")
    }
    tool("queues", "mail", "--rate", "none", "--longest-wait", "5m")
    (mail,) = json.loads(tool("queues", "mail", "--json")[1])
    assert (mail["limit"], mail["rate"], mail["longest_wait"]) == (5, None, 300)


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (("queues", "--limit", "5"), 2, "which queue?"),
        (("queues", "nobody"), 2, "no queue `nobody` is known"),
        (("queues", "mail", "--limit", "0"), 3, "whole number from 1"),
        (("queues", "mail", "--limit", "many"), 2, "is not a whole number"),
        (("queues", "mail", "--longest-wait", "soon"), 2, "is not a number|duration"),
        (("queues", "mail", "--rate", "nan"), 3, "number from"),
    ],
)
def test_what_makes_no_sense_is_refused(
    database: None, tool: Tool, arguments: tuple[str, ...], status: int, says: str
) -> None:
    got, _, err = tool(*arguments)

    assert got == status
    assert any(word in err for word in says.split("|")), err
