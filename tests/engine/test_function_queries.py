"""Queries of workflow functions read, and change nothing (SPEC 2.8)."""

from __future__ import annotations

import dataclasses
import sys
from datetime import UTC, datetime
from typing import Any

import pytest

from penstock import Context, Rejected, activity, workflow
from penstock.adapters.memory import MemoryStore
from penstock.testing.harness import SkipClock, harness


@activity
async def kept(value: Any) -> Any:
    return value


@dataclasses.dataclass
class Line:
    name: str


@workflow
async def asked(ctx: Context) -> list[Any]:
    items: list[Any] = ["mine"]
    held = ctx.call(kept, "held")
    chance = ctx.random
    ctx.changed("known")

    async def later() -> int:
        return 1

    def swallows() -> str:
        try:
            ctx.uuid()
            ctx.side_effect(lambda: 1)
        except Rejected:
            return "refused"
        return "drawn"

    answers: dict[str, Any] = {
        "items": lambda: items,
        "lines": lambda: [Line("a")],
        "about": lambda: [ctx.run_id, ctx.generation, ctx.attributes, ctx.now().year, ctx.changed("known")],
        "drawn before": lambda: chance.random(),
        "swallows": swallows,
        "held": lambda: held,
        "async": later,
        "object": object,
        "breaks": lambda: 1 / 0,
        "exits": lambda: sys.exit(3),
        "call": lambda: ctx.call(kept, 1),
        "map": lambda: ctx.map(kept, [1]),
        "signal": lambda: ctx.signal("x"),
        "child": lambda: ctx.child("x"),
        "uuid": lambda: str(ctx.uuid()),
        "random": lambda: ctx.random.random(),
        "side effect": lambda: ctx.side_effect(lambda: 1),
        "changed": lambda: ctx.changed("new"),
        "tag": lambda: ctx.set_attributes({"a": 1}),
        "send": lambda: ctx.send("x", "y"),
        "publish": lambda: ctx.publish("x"),
        "undo": lambda: ctx.undo(kept, 1),
        "again": lambda: ctx.continue_as_new(),
        "query": lambda: ctx.query("more", lambda: 1),
    }  # fmt: skip
    for name, answer in answers.items():
        ctx.query(name, answer)
    await ctx.signal("go")
    items.append(await held)
    items.append(await ctx.call(kept, str(ctx.uuid())))
    await ctx.signal("end")
    return items


READ = ("items", "lines", "about", "drawn before", "swallows")
REFUSED = {
    "held": "something to await", "async": "something to await", "map": "something to await", "object": "cannot be given",
    "breaks": "ZeroDivisionError", "exits": "SystemExit: 3",
    **dict.fromkeys(
        ("call", "signal", "child", "uuid", "random", "side effect", "changed", "tag", "send", "publish", "undo", "again",
         "query"),
        "a query only reads",
    ),
}  # fmt: skip


async def test_a_query_reads_a_copy_and_changes_nothing() -> None:
    clock = SkipClock()
    store = MemoryStore(clock=clock.now)
    async with harness(workflows=[asked], activities=[kept], store=store, clock=clock) as engine:
        plain = await engine.start(asked, id="plain")
        run = await engine.start(asked, id="asked")
        got = {name: await run.query(name) for name in READ}
        assert got["lines"] == [{"name": "a"}]
        assert got["about"] == ["asked", 1, {}, clock_year(clock), True]
        assert got["swallows"] == "refused"
        assert await run.query("drawn before") == got["drawn before"]
        got["items"].append("the caller's")
        for name, words in REFUSED.items():
            with pytest.raises(Rejected, match=words) as refused:
                await run.query(name)
            assert refused.value.code == "query-failed"
        with pytest.raises(Rejected, match="answers no query `more`"):
            await run.query("more")
        for each in (plain, run):
            await each.signal("go")
        await engine.settle()
        types = await engine.types(run)
        assert types == await engine.types(plain)
        now = await run.query("items")
    async with harness(workflows=[asked], activities=[kept], store=store, clock=clock) as engine:
        run = await engine.get("asked")
        await run.signal("end")
        assert await engine.finish(run) == now
        assert now[:2] == ["mine", "held"]


def clock_year(clock: SkipClock) -> int:
    return datetime.fromtimestamp(clock.now(), UTC).year
