"""Code that changed under an open run is found, and what changed is named (SPEC 2.8)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import Context, activity, workflow
from penstock.adapters.memory import MemoryStore
from penstock.testing.harness import SkipClock, harness

LONG = "x" * 300
LINES = Path(__file__).read_text().splitlines()


@activity
async def kept(value: Any) -> Any:
    return value


@activity
async def back(value: Any) -> None: ...


@workflow
async def kid(ctx: Context, value: Any = None) -> int:
    return 3


def quiet(ctx: Context) -> Any:
    """New code that catches what says that it does not fit."""
    with contextlib.suppress(Exception):
        ctx.side_effect(lambda: 5)
    return ctx.call(kept, 1)


Way = Callable[[Context], Any]
UNLIKE: dict[str, tuple[Way, Way, str]] = {
    "waited for": (lambda c: c.start("kid", id="k"), lambda c: c.child("kid", id="k"), "detached=True.*detached=False"),
    "not waited for": (lambda c: c.child("kid", id="k"), lambda c: c.start("kid", id="k"), "detached=False.*detached=True"),
    "its id": (lambda c: c.child("kid", id="k"), lambda c: c.child("kid", id="j"), "id='k' is recorded.*id='j'"),
    "kept": (lambda c: c.child("kid"), lambda c: c.child("kid", keep=True), "kept=False.*kept=True"),
    "true": (lambda c: c.call(kept, {"a": [1]}), lambda c: c.call(kept, {"a": [True]}), r"1\]}\] is recorded.*true"),
    "undo": (
        lambda c: c.call(kept, 1), lambda c: c.call(kept, 1, undo=back),
        r"call kept\[1\] with undo='' is recorded, and the code wants call kept\[1\] with undo='back'",
    ),
    "long": (lambda c: c.call(kept, LONG + "a"), lambda c: c.call(kept, LONG + "b"), 'xxa"\\] is recorded.*xxb"\\]'),
    "caught": (lambda c: c.call(kept, 1), quiet, "wants `note#1`, which is not in the history"),
}  # fmt: skip
LIKE: dict[str, tuple[Way, Way]] = {
    "order": (lambda c: c.call(kept, {"a": 1, "b": True}), lambda c: c.call(kept, {"b": True, "a": 1.0})),
    "patience": (lambda c: c.call(kept, 1), lambda c: c.call(kept, 1, timeout=5)),
    "child": (lambda c: c.child(kid, {"a": 1, "b": 2}), lambda c: c.child(kid, {"b": 2, "a": 1})),
}  # fmt: skip


async def after_change(old: Way, new: Way) -> tuple[str, list[str]]:
    def of(way: Way) -> Any:
        async def parks(ctx: Context) -> str:
            try:
                await way(ctx)
            except Stopped:
                return "early"
            await ctx.signal("go")
            return "done"

        return workflow(name="parks")(parks)

    clock = SkipClock()
    store = MemoryStore(clock=clock.now)
    async with harness(
        workflows=[of(old), kid], activities=[kept, back], store=store, clock=clock
    ) as engine:
        await engine.start("parks", {}, id="run")
        await engine.settle()
    async with harness(
        workflows=[of(new), kid], activities=[kept, back], store=store, clock=clock
    ) as engine:
        run = await engine.get("run")
        await run.signal("go")
        await engine.settle()
        return str(await run.status()), [each.message for each in await run.why()]


@pytest.mark.parametrize("name", UNLIKE)
async def test_what_changed_is_found_and_named(name: str) -> None:
    old, new, words = UNLIKE[name]
    status, why = await after_change(old, new)
    assert status == "WAITING"
    with pytest.raises(ValueError, match=words):
        raise ValueError(" ".join(why))


async def raises(ctx: Context) -> None:
    raise ValueError("new")  # here


async def stops(ctx: Context) -> None:
    raise Stopped


async def waits(ctx: Context) -> None:
    await ctx.call(kept, 1)


class Stopped(Exception): ...


@pytest.mark.parametrize("new", [raises, stops])
async def test_code_that_now_ends_is_told_with_its_line(new: Way) -> None:
    _, [why] = await after_change(waits, new)
    if new is raises:
        line = next(n for n, text in enumerate(LINES, 1) if text.endswith("# here"))
        assert why.endswith(f"the code wants raise ValueError: new, at {__file__}:{line} in raises")
    else:  # it catches that and returns
        line = next(n for n, text in enumerate(LINES, 1) if "async def parks(ctx" in text)
        assert why.endswith(f'the code wants return "early", at {__file__}:{line} in parks')


@pytest.mark.parametrize("name", LIKE)
async def test_what_goes_on_alike_may_change(name: str) -> None:
    status, why = await after_change(*LIKE[name])
    assert (status, why) == ("COMPLETED", [])


async def test_a_process_that_does_not_execute_the_run_claims_nothing_of_the_code(
    tmp_path: Path,
) -> None:
    """Only the owner knows whether the function is there and fits."""

    def parks(value: int) -> Any:
        async def parks(ctx: Context) -> None:
            await ctx.call(kept, value)
            await ctx.signal("go")

        return workflow(parks)

    url = f"sqlite:///{tmp_path}/x.db"
    async with penstock.open(url, workflows=[parks(1)], activities=[kept]) as engine:
        run = await engine.start("parks", id="r")
        while await run.status() != "WAITING":  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    async with penstock.open(url, workflows=[parks(2)], activities=[kept]) as engine:
        run = await engine.get("r")
        await run.signal("go")
        while "does not fit the history" not in str(await run.why()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        async with penstock.open(url, execute=False) as outside:
            [reason] = await (await outside.get("r")).why()
    assert (
        reason.message
        == "waits for a process whose code of `parks` is there and fits its history; "
        "`penstock replay` says whether it does"
    )
