"""`penstock schedule`, as people use it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from support.cli import Tool

REPORT = """
id: report
triggers:
  - {name: monthly, cron: "0 6 1 * *", zone: America/New_York}
tasks:
  a: {type: transform, set: {n: "1"}}
"""


@pytest.fixture
def tool(tool: Tool, tmp_path: Path) -> Tool:
    (tmp_path / "report.yaml").write_text(REPORT)
    assert tool("start", "report.yaml", "--id", "first")[0] == 0
    return tool


def test_create_look_act_and_delete(tool: Tool) -> None:
    status, out, err = tool(
        "schedule", "create", "nightly", "report", "--cron", "0 2 * * *", "--zone", "Europe/Berlin", "-i", "n=1",
        "--by", "ann", "--reason", "reports",
    )  # fmt: skip
    assert (status, out) == (0, "nightly\n")
    assert re.search(r"first: \w{3} \d{4}-\d\d-\d\d 02:00:00 CES?T \(Europe/Berlin\)", err)
    assert tool("schedule", "create", "tick", "report", "--every", "15m", "--jitter", "30s")[0] == 0
    assert tool("schedule", "create", "mail", "report", "--at", "09:00", "--on", "MON")[0] == 0
    assert tool("schedule", "pause", "tick", "--reason", "stock count")[0] == 0
    lines = tool("schedule", "list")[1].splitlines()
    assert [line.split()[0] for line in lines] == [
        "ID",
        "mail",
        "nightly",
        "report.monthly",
        "tick",
    ]
    assert "every 15m, up to 30s late" in lines[4]
    assert lines[4].endswith("stock count")
    shown = tool("schedule", "show", "nightly", "--next", "3")[1]
    assert shown.count("\nnext ") == 3
    assert "create by ann: reports" in shown
    status, run, _ = tool("schedule", "trigger", "nightly")
    assert status == 0
    assert run.startswith("nightly/20")
    assert tool("show", run.strip())[0] == 0
    assert "30 moments" in tool("schedule", "backfill", "nightly", "2026-03-01", "2026-03-31")[2]
    assert tool("schedule", "resume", "tick")[0] == 0
    assert "declares it" in tool("schedule", "delete", "report.monthly")[2]
    listed = json.loads(tool("schedule", "list", "--json")[1])
    assert [each["id"] for each in listed] == ["mail", "nightly", "tick"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("create", "x", "report", "--cron", "0 0 30 2 *"), "cron-never", "never fires"),
        (("create", "x", "report", "--every", "0s"), "interval-invalid", "too short"),
        (("create", "x", "report", "--cron", "@daily", "--zone", "Europe/Berln"), "zone-unknown", "Europe/Berlin"),
        (("create", "x", "report"), "usage", "--cron, --every or --at"),
        (("create", "x/y", "report", "--every", "1h"), "id-invalid", "letters"),
        (("create", "x", "repot", "--every", "1h"), "not-found", "report"),
        (("show", "x"), "not-found", "report.monthly"),
        (("shw", "x"), "usage", "did you mean `show`?"),
        (("backfill", "report.monthly", "2026-01-05", "2026-01-06"), "backfill-invalid", "no moment"),
        (("backfill", "report.monthly", "0001-01-01", "2026-01-02"), "backfill-invalid", "no time"),
        (("backfill", "report.monthly", "soon", "2026-01-02"), "backfill-invalid", "no time"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_what_to_do(
    tool: Tool, arguments: tuple[str, ...], code: str, said: str
) -> None:
    status, out, err = tool("schedule", *arguments)

    assert status != 0
    assert out == ""
    assert f"error[{code}]" in err
    assert said in err
    assert "hint" in err
