"""Runs that cannot move to another version, each refused on the engine for the reason that is said; and near misses that move and end."""

from __future__ import annotations

import pathlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import pytest

from penstock.cli.main import main
from penstock.core.keys import static
from penstock.core.plan import Plan
from penstock.dsl.load import load
from penstock.errors import Rejected
from penstock.model.migration import OBSTACLES
from penstock.sdk.client import Run
from penstock.testing.acting import RUN_ID, Actor
from penstock.testing.harness import Harness
from penstock.verify.change import change
from verify.corpus import CHANGE, Deaf, Moving, engine, files, moving, path_of

BY_VALUE = {"input", "output", "signal", "data", "leaving", "limits"}
"""What depends on values, or on what is not in the state that is looked at: the preview of the run says it, the table cannot."""


@asynccontextmanager
async def standing(case: Moving) -> AsyncGenerator[tuple[Harness, Deaf, Run]]:
    """A run of the first version where it is said to stand; the second is registered."""
    before = load(case.before)
    async with engine() as (harness, stubs):
        actor = Actor(harness, stubs, Plan(before.definition))
        assert await actor.play(before, case.input, case.steps) == ""
        await harness.register(load(case.after), force="it is a case of the corpus")
        yield harness, stubs, await harness.get(RUN_ID)


@pytest.mark.parametrize("name", files("bad", CHANGE))
async def test_a_run_that_cannot_move_is_refused_and_stays_as_it_is(name: str) -> None:
    case = moving(path_of("bad", name))

    async with standing(case) as (_, _, run):
        history = await run.history()
        preview = await run.preview_migration("2", mapping=case.mapping)
        with pytest.raises(Rejected) as caught:
            await run.migrate("2", mapping=case.mapping)

        assert (case.why, case.key) in [(each.why, each.key) for each in preview.obstacles]
        assert caught.value.code == "migration-unsafe"
        assert caught.value.hint
        assert await run.history() == history


@pytest.mark.parametrize("name", files("bad", CHANGE))
def test_the_table_says_so_before(name: str) -> None:
    case = moving(path_of("bad", name))

    found = change(load(case.before).definition, load(case.after).definition, case.mapping)

    reasons = {(each.why, each.key) for row in found.rows for each in row.reasons}
    assert found.complete
    assert case.why in BY_VALUE or (case.why, case.key) in reasons, found.rows


@pytest.mark.parametrize("name", files("clean", CHANGE))
async def test_a_near_miss_moves_and_ends(name: str) -> None:
    case = moving(path_of("clean", name))
    table = change(load(case.before).definition, load(case.after).definition, case.mapping)

    async with standing(case) as (harness, stubs, run):
        here = {static(key) for key in (await run.show()).current_tasks}
        await run.migrate("2", mapping=case.mapping)

        assert (await run.show()).version == "2"
        assert any(row.verdict != "cannot" and here >= set(row.open) for row in table.rows)
        await to_the_end(harness, stubs, run)
        assert (await run.show()).status == "COMPLETED"


async def to_the_end(harness: Harness, stubs: Deaf, run: Run) -> None:
    for _ in range(20):
        await harness.settle()
        view = await run.show()
        if view.status not in ("RUNNING", "WAITING"):
            return
        stubs.end_all()
        for key in view.current_tasks:
            for signal in (key, "paid", "go"):
                with suppress(Rejected):
                    await run.signal(signal, 1)


def test_every_reason_has_a_case_and_a_near_miss() -> None:
    bad, clean = files("bad", CHANGE), files("clean", CHANGE)

    assert {moving(path_of("bad", name)).why for name in bad} == set(OBSTACLES)
    assert bad == clean


def test_the_command_tells_who_can_move(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    case = moving(path_of("bad", "change/open-changed.yaml"))
    (tmp_path / "old.yaml").write_text(case.before)
    (tmp_path / "new.yaml").write_text(case.after)
    monkeypatch.chdir(tmp_path)

    assert main(["diff", "old.yaml", "new.yaml", "--runs"]) == 1

    said = capsys.readouterr().out
    assert "cannot" in said
    assert "`charge` is open, and has changed" in said
