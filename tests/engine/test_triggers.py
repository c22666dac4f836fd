"""Schedules that a definition declares: kept as its newest version says; what is wrong is found with its place."""

from __future__ import annotations

import pytest

from penstock import DefinitionInvalid
from penstock.testing.harness import harness

REPORT = """
id: report
version: "1"
inputSchema: {type: object}
triggers:
  - {cron: "0 9 * * MON-FRI", zone: Europe/Berlin, input: {kind: day}, overlap: buffer, catchUp: 2h}
  - {name: weekly, every: 7d, input: {kind: week}, paused: true}
tasks:
  a: {type: transform, set: {n: "1"}}
"""
FEWER = """
id: report
version: "2"
inputSchema: {type: object}
triggers:
  - {cron: "0 10 * * MON-FRI", zone: Europe/Berlin, input: {kind: day}}
tasks:
  a: {type: transform, set: {n: "1"}}
"""
WRONG = """
id: report
inputSchema: {type: object}
triggers:
  - {cron: "0 9 * * MON-FRI", zone: Europe/Berln, input: {}}
  - {cron: ["0 9 * * *", "0 99 * * *"], input: {}}
  - {every: 0s, input: {}}
  - {every: 1h, overlap: never, input: {}}
  - {every: 1h, input: 5}
  - {webhook: /start}
  - {cron: "0 0 31 2 *", input: {}}
  - {zone: UTC, input: {}}
tasks:
  a: {type: transform, set: {n: "1"}}
"""


async def test_registration_makes_changes_and_ends_schedules() -> None:
    async with harness() as engine:
        await engine.register(REPORT, by="ann")
        first, weekly = await engine.schedules.list()
        assert (first.id, first.declared, first.overlap, first.catch_up) == (
            "report.1",
            True,
            "buffer",
            7200,
        )
        assert (weekly.id, weekly.paused, weekly.created_by) == ("report.weekly", True, "ann")
        await engine.register(REPORT)
        assert (await engine.schedules.get("report.1")).number == 1
        await engine.skip(days=1)
        assert [row.id for row in await engine.list()] == ["report.1/2026-01-02T08:00:00Z"]
        await engine.register(FEWER)
        (changed,) = await engine.schedules.list()
        assert (changed.id, changed.number, changed.timing.cron) == (
            "report.1",
            2,
            ("0 10 * * MON-FRI",),
        )
        await engine.register(REPORT)  # an older version: what holds is the newest

        assert [view.id for view in await engine.schedules.list()] == ["report.1"]


async def test_what_is_wrong_is_found_at_its_line_and_column() -> None:
    async with harness() as engine:
        with pytest.raises(DefinitionInvalid) as refused:
            await engine.register(WRONG)

        found = [(f.code, f.place.line, f.place.column) for f in refused.value.findings]
        assert found == [
            ("zone-unknown", 5, 37),
            ("cron-invalid", 6, 26),
            ("interval-invalid", 7, 13),
            ("overlap-unknown", 8, 26),
            ("input-invalid", 9, 24),
            ("not-yet", 10, 6),
            ("cron-never", 11, 12),
            ("schedule-invalid", 12, 5),
        ]
        assert all(f.hint for f in refused.value.findings)
        assert await engine.schedules.list() == []
