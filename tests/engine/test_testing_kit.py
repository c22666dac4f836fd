"""What applications test with: stubs that fit, a clock that skips, histories in lines, golden files (SPEC 13)."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import (
    Context,
    Fail,
    Nondeterminism,
    Rejected,
    Retry,
    RunFailed,
    StepFailed,
    activity,
    workflow,
)
from penstock.testing import Golden, harness, lines_of, stub


@activity(retry=Retry(attempts=3, first=10, jitter=0))
async def charge(card: str, cents: int = 100) -> str:
    raise AssertionError("the real one")


@activity
def refund(payment: str) -> None:
    raise AssertionError("the real one")


@workflow
async def order(ctx: Context, card: str) -> str:
    payment = await ctx.call(charge, card, undo=refund)
    await ctx.sleep(86400 * 30)
    if await ctx.signal("cancel", timeout=60):
        raise Fail("cancelled by the customer", code="changed-mind")
    return payment


async def test_stubs_take_the_place_of_activities() -> None:
    charging = stub(charge, ConnectionError("down"), "p-1")
    async with harness(workflows=[order], activities=[charging, stub(refund)]) as engine:
        run = await engine.start(order, "4242")
        assert await engine.finish(run) == "p-1"
        assert charging.calls == [{"card": "4242", "cents": 100}] * 2
        steps = await engine.steps(run)
        assert steps.calls("charge") == [["4242"]]
        assert steps.outputs("charge") == ["p-1"]
        assert steps.lines[:2] == [
            '+0s started order with {"card":"4242"}',
            '    call charge#1 ["4242"], undo refund',
        ]


@activity
async def slow(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "done"


async def test_activities_that_really_wait_are_waited_for_before_time_is_skipped() -> None:
    @workflow
    async def patient(ctx: Context, seconds: float) -> str:
        try:
            return await asyncio.wait_for(ctx.call(slow, seconds), 3600)
        except TimeoutError:
            return "an hour later"

    @workflow
    async def alone(ctx: Context) -> str:
        return await ctx.call(slow, 0.05)

    async with harness(workflows=[patient, alone], activities=[slow]) as engine:
        assert await engine.finish(await engine.start(alone)) == "done"
        assert await engine.finish(await engine.start(patient, 0.3)) == "done"
        assert await engine.finish(await engine.start(patient, 1000.0)) == "an hour later"


async def test_what_a_history_says() -> None:
    backing = stub(refund)
    async with harness(
        workflows=[order], activities=[stub(charge, "p-1", takes=5), backing]
    ) as engine:
        run = await engine.start(order, "4242")
        await run.signal("cancel", True)
        with pytest.raises(RunFailed, match="cancelled by the customer"):
            await engine.finish(run)
        assert backing.calls == [{"payment": "p-1"}]
        steps = await engine.steps(run)
        assert steps.undone() == ["charge#1"]
        assert lines_of(await run.history()) == [
            '+0s started order with {"card":"4242"}',
            '    call charge#1 ["4242"], undo refund',
            "+0s signal cancel: true",
            '+5s charge#1 completed: "p-1"',
            "    sleep#1 until +30d5s",
            "+30d5s sleep#1 timer_fired",
            "    wait for signal:cancel#1 until +30d1m5s",
            "    raise changed-mind: cancelled by the customer",
            "+30d5s charge#1 undo_completed",
            "+30d5s failed: changed-mind: cancelled by the customer",
        ]


def test_a_stub_gives_only_what_the_activity_can() -> None:
    with pytest.raises(Rejected, match="the stub of `charge` gives 7"):
        stub(charge, 7)
    with pytest.raises(Rejected, match="which the activity never does"):
        stub(charge)


untyped: Any = stub


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: untyped(charge, does=5), "`does` of the stub of `charge` is a function, not 5"),
        (
            lambda: untyped(charge, "p").does(5),
            "`does` of the stub of `charge` is a function, not 5",
        ),
        (lambda: untyped(charge, "p", takes=-1), "`takes` of .* is seconds from 0, not -1"),
        (lambda: untyped(charge, "p", takes="long"), "`takes` of .* is seconds from 0, not 'long'"),
        (lambda: untyped(charge, "p", takes=True), "`takes` of .* is seconds from 0, not True"),
        (lambda: untyped(print, 1), "a stub stands for an activity, and .*print.* is none"),
        (lambda: untyped("charge", 1), "a stub stands for an activity, and 'charge' is none"),
        (lambda: untyped(order, 1), "a stub stands for an activity, and .*order.* is none"),
    ],
)
def test_what_is_no_stub_is_refused_in_words(make: Any, said: str) -> None:
    with pytest.raises(Rejected, match=said):
        make()


class Shop:
    async def order(self, ctx: Context) -> int:
        return 1


async def test_what_is_no_list_and_a_bound_method_are_refused_in_words() -> None:
    with pytest.raises(Rejected, match=r"Shop\.order is a bound method"):
        workflow(Shop().order)
    with pytest.raises(Rejected, match=r"`workflows` is a list of functions, not .*order"):
        async with harness(workflows=order):  # type: ignore[arg-type]
            pass
    with pytest.raises(Rejected, match=r"`activities` is a list of functions, not .*charge"):
        async with penstock.open("memory:", activities=charge):  # type: ignore[arg-type]
            pass


@workflow(name="order")
async def order_of_tomorrow(ctx: Context, card: str) -> str:
    try:
        return await ctx.call(charge, card, 200, undo=refund)
    except StepFailed:
        return "none"


async def test_golden_histories(tmp_path: Path) -> None:
    golden = Golden(tmp_path, write=False)
    async with harness(workflows=[order], activities=[stub(charge, "p-1"), stub(refund)]) as engine:
        run = await engine.start(order, "4242")
        await engine.finish(run)
        await golden.check(run, "order")  # written, as there was none
        await golden.check(run, "order")
        await golden.replay("order", order)
        with pytest.raises(
            Nondeterminism,
            match=r'call charge\["4242"\] is recorded, and the code wants call charge\["4242",200\]',
        ):
            await golden.replay("order", order_of_tomorrow)
    async with harness(
        workflows=[order_of_tomorrow], activities=[stub(charge, "p-2"), stub(refund)]
    ) as engine:
        run = await engine.start("order", {"card": "4242"})
        await engine.finish(run)
        with pytest.raises(AssertionError) as failed:
            await golden.check(run, "order")
        said = str(failed.value)
        assert '\n-    call charge#1 ["4242"], undo refund\n' in said
        assert '\n+    call charge#1 ["4242",200], undo refund\n' in said


TEST = """
import asyncio
from penstock import Context, activity, workflow
from penstock.testing import stub

@activity
async def greet(name: str) -> str: ...

@workflow
async def hello(ctx: Context, name: str) -> str:
    await ctx.sleep(3600)
    return await ctx.call(greet, name)

def test_hello(penstock_harness, penstock_golden):
    async def main():
        async with penstock_harness(workflows=[hello], activities=[stub(greet, "hi")]) as engine:
            run = await engine.start(hello, "you")
            assert await engine.finish(run) == "hi"
            await penstock_golden.check(run, "hello")
    asyncio.run(main())
"""


def test_the_plugin(tmp_path: Path) -> None:
    (tmp_path / "test_hello.py").write_text(TEST)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio"]
    loaded = subprocess.run(
        [*command, "--help"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    if (
        "--penstock-golden" not in loaded.stdout
    ):  # an editable install from before there was a plugin
        command += ["-p", "penstock.testing.plugin"]
    for _ in range(2):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert "1 passed" in done.stdout, done.stdout + done.stderr
    golden = tmp_path / "golden" / "hello.history"
    golden.write_text(golden.read_text().replace("+1h", "+1m"))
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "-    sleep#1 until +1m" in done.stdout
    assert (
        subprocess.run(
            [*command, "--penstock-golden"], cwd=tmp_path, check=False, capture_output=True
        ).returncode
        == 0
    )
    assert "+1h" in golden.read_text()
