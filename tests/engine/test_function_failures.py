"""Whatever a workflow function raises, its run fails with it: nothing is lost on the way (SPEC 2.8)."""

from __future__ import annotations

import asyncio
from typing import Any

import pydantic
import pytest

from penstock import Context, Fail, RunFailed, activity, workflow
from penstock.model.failure import CAUSES_MAX, Failure
from penstock.sdk.failing import failure_in
from penstock.testing.harness import harness


@activity
async def refused(card: int) -> int:
    raise Fail(f"card {card} refused", code="refused")


@activity
async def kept(value: int) -> int:
    return value


class Order(pydantic.BaseModel):
    amount: int


class Particular(Exception):
    def __new__(cls, one: int, two: int) -> Particular:
        return super().__new__(cls)

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


class Mute(Exception):
    def __str__(self) -> str:
        raise ValueError("says nothing")


class Trap(Exception):
    @property
    def code(self) -> str:
        raise ValueError("not for you")


def circle() -> Exception:
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    return one


def long_chain() -> Exception:
    error = ValueError("0")
    for number in range(1, 2000):
        outer = ValueError(str(number))
        outer.__cause__, error = error, outer
    return error


def deep_group() -> Exception:
    error: Exception = ValueError("in the middle")
    for _ in range(2000):
        error = ExceptionGroup("around", [error, KeyError(1)])
    return error


def invalid() -> Exception:
    with pytest.raises(pydantic.ValidationError) as caught:
        Order(amount="many")  # type: ignore[arg-type]
    return caught.value


def caused() -> Exception:
    error = ValueError("outer")
    error.__cause__ = invalid()
    return error


MADE: dict[str, tuple[Any, str, str]] = {
    "group": (
        lambda: ExceptionGroup("both", [ValueError(1), ExceptionGroup("in", [KeyError(2), OSError(3)])]),
        "ExceptionGroup", "both (2 sub-exceptions): ValueError: 1; ExceptionGroup: in (2 sub-exceptions) (KeyError: 2; OSError: 3)",
    ),
    "pydantic": (invalid, "ValidationError", "1 validation error for Order"),
    "caused": (caused, "ValueError", "outer"),
    "particular": (lambda: Particular(1, 2), "Particular", "1 and 2"),
    "mute": (Mute, "Mute", "an exception whose text could not be read"),
    "trap": (lambda: Trap("here"), "Trap", "here"),
    "deep": (deep_group, "ExceptionGroup", "around (2 sub-exceptions)"),
    "circle": (circle, "ValueError", "one"),
    "chain": (long_chain, "ValueError", "1999"),
    "file": (lambda: FileNotFoundError(2, "No such file", "/x"), "FileNotFoundError", "[Errno 2] No such file: '/x'"),
    "text": (
        lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
        "UnicodeDecodeError", "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte",
    ),
    "generator": (lambda: GeneratorExit("mine"), "GeneratorExit", "mine"),
    "surrogate": (lambda: ValueError("\ud800"), "ValueError", "?"),
    "details": (lambda: Fail("x", details=object()), "Fail", "x"),
}  # fmt: skip


@workflow
async def raises(ctx: Context, name: str) -> None:
    waits = asyncio.create_task(ctx.signal("never"))
    await ctx.call(kept, 1)
    assert not waits.done()
    raise MADE[name][0]()


@pytest.mark.parametrize("name", MADE)
async def test_what_it_raises_is_why_the_run_failed(name: str) -> None:
    async with harness(workflows=[raises], activities=[kept]) as engine:
        run = await engine.start(raises, name)
        with pytest.raises(RunFailed) as caught:
            await engine.finish(run)
    _, kind, message = MADE[name]
    failure = caught.value.failure
    assert failure.type == kind
    assert failure.message.startswith(message)


def chain_of(failure: Failure | None) -> list[str]:
    told: list[str] = []
    while failure is not None:
        told.append(failure.message)
        failure = failure.cause
    return told


def test_causes_are_told_once_and_have_an_end() -> None:
    assert chain_of(failure_in(circle())) == ["one", "two"]
    told = chain_of(failure_in(long_chain()))
    assert len(told) == CAUSES_MAX
    assert (told[0], told[-1]) == ("1999", "0")
    assert failure_in(caused()).cause.type == "ValidationError"  # type: ignore[union-attr]


@workflow
async def both_fail(ctx: Context) -> None:
    async def pay(card: int) -> None:
        try:
            await ctx.call(refused, card)
        except asyncio.CancelledError:
            raise ValueError(f"cleanup of {card} failed") from None

    async with asyncio.TaskGroup() as group:
        group.create_task(pay(1))
        group.create_task(pay(2))


async def test_all_that_failed_in_a_group_are_named() -> None:
    async with harness(workflows=[both_fail], activities=[refused]) as engine:
        run = await engine.start(both_fail)
        with pytest.raises(RunFailed, match="card 1 refused; ValueError: cleanup of 2 failed"):
            await engine.finish(run)


@workflow
async def goes_on(ctx: Context, number: int = 0) -> int:
    if number == 3:
        return number

    async def next_one() -> None:
        await ctx.call(kept, number)
        ctx.continue_as_new(number + 1)

    async with asyncio.TaskGroup() as group:
        group.create_task(next_one())
    return -1


async def test_another_generation_out_of_a_group() -> None:
    async with harness(workflows=[goes_on], activities=[kept]) as engine:
        assert await engine.finish(await engine.start(goes_on)) == 3


@workflow
async def goes_on_and_fails(ctx: Context) -> None:
    async def next_one() -> None:
        await ctx.call(kept, 1)
        ctx.continue_as_new()

    async def other() -> None:
        try:
            await ctx.signal("never")
        finally:
            raise ValueError("not cleaned up")

    async with asyncio.TaskGroup() as group:
        group.create_task(other())
        group.create_task(next_one())


async def test_what_failed_beside_it_is_not_lost() -> None:
    async with harness(workflows=[goes_on_and_fails], activities=[kept]) as engine:
        run = await engine.start(goes_on_and_fails)
        with pytest.raises(RunFailed, match="ValueError: not cleaned up"):
            await engine.finish(run)


async def test_an_exception_without_a_text_says_its_type() -> None:
    @workflow
    async def mute(ctx: Context, items: list[str]) -> None:
        try:
            raise KeyError
        except KeyError as error:
            raise AssertionError from error

    async with harness(workflows=[mute]) as engine:
        with pytest.raises(RunFailed, match=r"ended FAILED: AssertionError\n") as failed:
            await engine.finish(await engine.start(mute, []))
    assert failed.value.__notes__[-1] == "because of KeyError"
