"""Values by their annotations, in and out of workflow functions and activities, over a restart (SPEC 2.8): unions of models,
models with aliases, sets in sets; what nothing can read is refused when it is defined."""

from __future__ import annotations

import dataclasses
import datetime
import subprocess
import sys
from typing import Annotated, Any, Literal

import msgspec
import pydantic
import pytest

from penstock import Context, Rejected, RunFailed, activity, workflow
from penstock.adapters.memory import MemoryStore
from penstock.sdk.functions import Functions
from penstock.sdk.workflow import Registry
from penstock.testing.harness import SkipClock, harness


class Cat(pydantic.BaseModel):
    lives: int


class Dog(pydantic.BaseModel):
    kind: Literal["dog"] = "dog"
    barks: int


class Bird(pydantic.BaseModel):
    kind: Literal["bird"] = "bird"
    barks: int = 0


class Aliased(pydantic.BaseModel):
    size: int = pydantic.Field(alias="theSize")
    inner: list[Aliased] = pydantic.Field(default=[], validation_alias="parts")
    out: int = pydantic.Field(default=0, serialization_alias="theOut")


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True, extra="forbid")
    due: datetime.date
    names: frozenset[str]


class Sets(pydantic.BaseModel):
    sets: list[set[str]]
    named: dict[str, frozenset[str]]


class Root(pydantic.RootModel[list[set[str]]]):
    pass


class Struct(msgspec.Struct):
    sets: dict[str, set[int]]
    deep: frozenset[frozenset[int]] = frozenset()


@dataclasses.dataclass
class Owner:
    name: str
    pet: Cat | Dog | None = None


BIG = Aliased.model_validate({"theSize": 1, "parts": [{"theSize": 2}], "out": 3})
Tagged = Annotated[Dog | Bird, pydantic.Field(discriminator="kind")]
VALUES: list[tuple[Any, Any]] = [
    (Cat | Dog, Dog(barks=1)),
    (Cat | Dog, Cat(lives=9)),
    (Cat | int, 4),
    (Cat | int, Cat(lives=1)),
    (Cat | Dog | None, None),
    (list[Cat | Dog], [Dog(barks=1), Cat(lives=2)]),
    (dict[str, Cat | list[Dog]], {"a": Cat(lives=2), "b": [Dog(barks=3)]}),
    (list[Tagged], [Bird(barks=1), Dog(barks=1)]),
    (Cat | Owner, Owner("ann", Dog(barks=1))),
    (Owner, Owner("ann", Cat(lives=1))),
    (Aliased, BIG),
    (list[Aliased], [BIG]),
    (Aliased | Cat, BIG),
    (Strict, Strict(due=datetime.date(2026, 1, 2), names=frozenset("ab"))),
    (list[Strict], [Strict(due=datetime.date(2026, 1, 2), names=frozenset("ab"))]),
    (Sets, Sets(sets=[{"a", "b"}, {"c"}], named={"x": frozenset("yz")})),
    (Root, Root([{"a", "b"}])),
    (Struct, Struct({"a": {1, 2}}, frozenset({frozenset({1}), frozenset()}))),
    (set[tuple[str, ...]], {("a", "b"), ("c",)}),
    (frozenset[frozenset[str]], frozenset({frozenset("ab"), frozenset("c")})),
    (dict[str, list[set[str]]], {"a": [{"x", "y"}]}),
]


def made(kind: Any) -> tuple[Any, Any]:
    async def passes(given: Any) -> Any:
        return given

    async def flow(ctx: Context, given: Any) -> Any:
        back = await ctx.call(passes_on, given)
        assert (type(back), back) == (type(given), given)
        signal: Any = await ctx.signal("same", type=kind)
        assert signal == given
        return signal

    passes.__annotations__ = {"given": kind, "return": kind}
    flow.__annotations__ = {"ctx": Context, "given": kind, "return": kind}
    passes_on = activity(passes)
    return workflow(flow), passes_on


@pytest.mark.parametrize(("kind", "value"), VALUES, ids=str)
async def test_a_value_comes_as_what_it_was_in_a_step_a_signal_and_the_result(
    kind: Any, value: Any
) -> None:
    flow, passes = made(kind)
    clock = SkipClock()
    store = MemoryStore(clock=clock.now)
    async with harness(workflows=[flow], activities=[passes], store=store, clock=clock) as engine:
        run = await engine.start(flow, value, id="one")
        await engine.settle()
    async with harness(workflows=[flow], activities=[passes], store=store, clock=clock) as engine:
        await (await engine.get("one")).signal("same", value)
        await engine.finish(await engine.get("one"))
        run = await engine.start(flow, value)
        await run.signal("same", value)
        back = await engine.finish(run)
        assert (type(back), back) == (type(value), value)


async def test_who_starts_from_outside_may_use_the_alias_or_the_name() -> None:
    flow, passes = made(Aliased)
    async with harness(workflows=[flow], activities=[passes]) as engine:
        for given in ({"theSize": 1, "parts": []}, {"size": 1, "inner": []}):
            run = await engine.start("flow", {"given": given})
            await run.signal("same", given)
            assert await engine.finish(run) == {"size": 1, "inner": [], "out": 0}


async def test_a_union_of_models_that_does_not_fit_is_refused_in_words() -> None:
    flow, passes = made(Cat | Dog)
    async with harness(workflows=[flow], activities=[passes]) as engine:
        with pytest.raises(Rejected, match=r"(?s)`given` cannot be read as .*Field required"):
            await engine.start("flow", {"given": {"wings": 2}})

        @workflow
        async def careless(ctx: Context) -> None:
            await ctx.call(passes, {"wings": 2})

    async with harness(workflows=[careless], activities=[passes]) as engine:
        with pytest.raises(RunFailed, match="argument 'given'"):
            await engine.finish(await engine.start(careless))


def test_what_neither_can_tell_apart_is_refused_when_it_is_defined() -> None:
    flow, passes = made(Struct | Cat)
    says = r"Struct \| .*Cat` cannot be read from JSON"
    with pytest.raises(Rejected, match=says) as refused:
        Functions([flow])
    assert refused.value.code == "workflow-invalid"
    assert "structs of msgspec's are not" in (refused.value.hint or "")
    with pytest.raises(Rejected, match=says) as refused:
        Registry([passes])
    assert refused.value.code == "activity-invalid"


PROGRAM = """
import pydantic
from penstock.model.payload import encode_payload
class Inner(pydantic.BaseModel):
    names: set[str]
class Outer(pydantic.BaseModel):
    sets: list[set[str]]
    numbered: dict[int, frozenset[str]]
    inner: tuple[Inner, int]
    deep: frozenset[frozenset[str]]
names = {"tea", "cup", "pot", "jar"}
print(encode_payload([Outer(sets=[names], numbered={1: names}, inner=(Inner(names=names), 1), deep={frozenset(names), frozenset("ab")})]))
"""


def test_sets_anywhere_in_a_model_are_recorded_in_one_order_in_every_process() -> None:
    said = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM], env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True, check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }  # fmt: skip
    assert len(said) == 1
