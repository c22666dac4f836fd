"""What workflow code changes around it, and loops whose order is the process's own, are caught in tests with the line (SPEC 2.8)."""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import functools
import io
import os
from collections import defaultdict
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

import msgspec
import pytest

from penstock import Context, RunFailed, activity, workflow
from penstock.testing.harness import harness

prices: dict[str, Any] = {"tea": {"cents": [3]}}
stock: dict[str, list[int]] = defaultdict(list)


class Shop:
    sold: ClassVar[int] = 0
    open = True

    def __init__(self) -> None:
        self.orders: list[str] = []
        self.name = "corner"

    @functools.cached_property
    def size(self) -> int:
        return 4

    def take(self, order: str) -> None:
        self.orders.append(order)


@dataclasses.dataclass
class Till:
    cents: int = 0


class Box(msgspec.Struct):
    held: int = 0


class Colour(enum.Flag):
    RED = 1
    BLUE = 2


shop = Shop()
tills = [Till()]
box = Box()


@activity
async def note(what: Any) -> Any:
    shop.orders.append(str(what))  # an activity may
    return what


@workflow
async def nested(ctx: Context) -> None:
    prices["tea"]["cents"].append(4)


@workflow
async def replaced(ctx: Context) -> None:
    prices["tea"]["cents"] = []


@workflow
async def defaulted(ctx: Context) -> None:
    stock["tea"].append(1)


@workflow
async def attribute(ctx: Context) -> None:
    await ctx.sleep(1)
    shop.name = "high street"


@workflow
async def by_method(ctx: Context) -> None:
    shop.take("tea")


@workflow
async def in_list(ctx: Context) -> None:
    tills[0].cents += 1


@workflow
async def of_struct(ctx: Context) -> None:
    box.held += 1


@workflow
async def of_class(ctx: Context) -> None:
    Shop.sold += 1


@workflow
async def new_of_class(ctx: Context) -> None:
    Shop.closed = True  # type: ignore[attr-defined]


@workflow
async def default(ctx: Context, kept: list[int] = []) -> None:  # noqa: B006
    kept.append(1)


def remembers(what: int, *, known: dict[int, int] = {}) -> None:  # noqa: B006
    known[what] = what


@workflow
async def default_of_helper(ctx: Context) -> None:
    remembers(3)


@workflow
async def raw_file(ctx: Context) -> None:
    io.FileIO(os.devnull)


@workflow
async def opened(ctx: Context) -> None:
    os.open(os.devnull, os.O_RDONLY)


@workflow
async def over_literal(ctx: Context) -> None:
    for name in {"tea", "cup"}:
        await ctx.call(note, name)


@workflow
async def over_name(ctx: Context) -> None:
    wanted = {"tea", "cup"} | {"pot"}
    for name in wanted:
        await ctx.call(note, name)


@workflow
async def over_made(ctx: Context) -> None:
    wanted = ["tea", "cup"]
    for name in set(wanted):
        await ctx.call(note, name)


@workflow
async def over_difference(ctx: Context) -> None:
    wanted, there = {"tea", "cup", "pot"}, {"pot"}
    await asyncio.gather(*[ctx.call(note, name) for name in wanted - there])


VARIABLES = "keep it in the function's own variables"
CASES: list[tuple[Any, str, str]] = [
    (nested, "the global `prices`, in `prices['tea']['cents']`", VARIABLES),
    (replaced, "the global `prices`, in `prices['tea']`", VARIABLES),
    (defaulted, "the global `stock`", VARIABLES),
    (attribute, "the global `shop`", VARIABLES),
    (by_method, "the global `shop`, in `shop.orders`", VARIABLES),
    (in_list, "the global `tills`, in `tills[0]`", VARIABLES),
    (of_struct, "the global `box`", VARIABLES),
    (of_class, "the global `Shop`", VARIABLES),
    (new_of_class, "the global `Shop`", VARIABLES),
    (default, "the default `default(kept=…)`", VARIABLES),
    (default_of_helper, "the default `remembers(known=…)`", VARIABLES),
    (raw_file, "a file (open)", "activity"),
    (opened, "os.open", "activity"),
    (over_literal, "the order of the set `{'tea', 'cup'}`", "sorted({'tea', 'cup'})"),
    (over_name, "the order of the set `wanted`", "sorted(wanted)"),
    (over_made, "the order of the set `set(wanted)`", "sorted(set(wanted))"),
    (over_difference, "the order of the set `wanted - there`", "sorted(wanted - there)"),
]


@pytest.fixture(autouse=True)
def as_it_was() -> Any:
    yield
    prices["tea"] = {"cents": [3]}
    stock.clear()
    shop.name, box.held, Shop.sold, tills[0].cents = "corner", 0, 0, 0
    shop.orders.clear()
    if "closed" in vars(Shop):
        del Shop.closed  # type: ignore[attr-defined]
    default.__defaults__[0].clear()
    assert remembers.__kwdefaults__ is not None
    remembers.__kwdefaults__["known"].clear()


@pytest.mark.parametrize(
    ("function", "says", "instead"), CASES, ids=lambda each: getattr(each, "__name__", "")
)
async def test_it_is_caught_with_its_line(function: Any, says: str, instead: str) -> None:
    async with harness(workflows=[function], activities=[note]) as engine:
        with pytest.raises(RunFailed) as failed:
            await engine.finish(await engine.start(function))
    failure = failed.value.failure
    assert failure.code == "nondeterminism"
    assert says in failure.message
    assert "test_guard_state.py:" in failure.message
    place = {by_method: "take", default_of_helper: "remembers"}.get(function, function.__name__)
    assert f" in {place}" in failure.message
    assert instead in failure.details["hint"]


@workflow
async def good(ctx: Context, kept: tuple[int, ...] = (), numbers: list[int] = [1]) -> list[Any]:  # noqa: B006
    mine = Shop()
    mine.take("tea")
    mine.name = "mine"
    words, digits = {"tea", "cup"}, {3, 1, 2}
    total = 0
    for word in words:
        total += len(word)  # in whichever order
    for digit in digits:
        total += await ctx.call(note, digit)
    for word in sorted(words):
        await ctx.call(note, word)
    for word in {"one"}:
        await ctx.call(note, word)
    assert shop.size == 4
    assert Colour.RED | Colour.BLUE
    local = ctx.now().astimezone(ZoneInfo("America/Santiago"))
    return [total, local.tzname() is not None, len(await ctx.map(note, sorted(words))), numbers]


async def test_what_is_its_own_and_what_has_one_order_is_fine() -> None:
    ZoneInfo.clear_cache()
    async with harness(workflows=[good], activities=[note]) as engine:
        assert await engine.finish(await engine.start(good)) == [12, True, 2, [1]]
    assert len(shop.orders) == 8
