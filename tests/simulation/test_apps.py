"""`penstock.testing.simulate`: the mistakes of somebody's workflows are found, and there is no false alarm (SPEC 13)."""

from __future__ import annotations

import asyncio
import enum
import importlib.util
import random
import sys
import time
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
import pydantic
import pytest

from penstock import Context, Fail, Retry, activity, current, workflow
from penstock.dsl.load import load_file
from penstock.errors import Rejected
from penstock.sdk.values import decoder_of_hint, encode_value
from penstock.testing import World, does, invariant, simulate
from penstock.testing.drawing import shape_of
from penstock.testing.plugin import penstock_simulate  # noqa: F401  (a fixture)
from penstock.testing.reporting import Report

EXAMPLES = Path(__file__).parents[2] / "examples"
SHOPS = EXAMPLES / "simulate"


def loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"simulated_{name}", SHOPS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def found(report: Report) -> set[tuple[str, str, str]]:
    return {(p.finding.code, p.finding.workflow, p.finding.step) for p in report.errors}


# --- the examples ----------------------------------------------------------------------------------------------


def test_each_mistake_of_the_careless_shop_is_found() -> None:
    report = simulate(loaded("careless"), load_file(SHOPS / "careless.yaml"), seeds=120)
    timeout = next(p.finding for p in report.errors if p.finding.workflow == "never_in_time")
    line = timeout.place.rpartition(":")[2]
    rare = {("undo-missing", "pays_twice", "charge")}  # done, never heard of, and the run cancelled
    assert found(report) - rare == {
        ("undo-missing", "keeps_stock", "reserve"),
        ("undo-missing", "shipment", "reserve"),
        ("effect-repeated", "pays_twice", "charge"),
        ("world-broken", "Bank", "nobody_pays_twice"),
        ("order-dependent", "takes_the_last", ""),
        ("order-dependent", "shipment", ""),
        ("timeout-unmet", "never_in_time", f"careless.py:{line}"),
        ("timeout-unmet", "gives_up_early", "quote"),
        ("workflow-error", "forgets_none", "AttributeError"),
    }
    lines = (SHOPS / "careless.py").read_text().splitlines()
    places = {p.finding.code + p.finding.workflow: p.finding.place for p in report.errors}
    for key, text in (
        ("undo-missingkeeps_stock", "ctx.call(reserve, sku)"),
        ("timeout-unmetnever_in_time", "asyncio.timeout(30)"),
        ("workflow-errorforgets_none", "address.upper()"),
        ("world-brokenBank", "@invariant"),
    ):
        assert text in lines[int(places[key].rpartition(":")[2]) - 1], (key, places[key])
    assert places["undo-missingshipment"].endswith("careless.yaml:10")
    told = next(p for p in report.errors if p.finding.code == "order-dependent").story
    assert told is not None
    assert told.lines[-1].text != told.also[-1].text
    assert "takes" in told.said
    # It was rough.
    for what in (
        "crashes",
        "restarts",
        "attempts lost with a node",
        "attempts failed for now",
        "runs cancelled",
    ):
        assert report.counts[what] > 0, what


def test_the_careful_shop_is_clean() -> None:
    report = simulate(loaded("careful"), load_file(SHOPS / "careful.yaml"), seeds=200)
    assert report.problems == [], "\n".join(report.lines())
    assert report.counts["steps undone"] > 50
    assert report.counts["effects"] > 50


def test_no_false_alarm_about_the_patterns() -> None:
    for path in sorted((EXAMPLES / "patterns").glob("*.yaml")):
        report = simulate(load_file(path), seeds=2, first=4)
        assert report.errors == [], (path.name, list(report.lines()))


# --- the world -------------------------------------------------------------------------------------------------


@activity(retry=Retry(attempts=5, first=0.2))
async def mail(to: str) -> None: ...


@activity
async def write(text: str) -> int: ...


@activity
async def unwrite(number: int) -> None: ...


@workflow
async def letters(ctx: Context, to: str) -> int:
    await ctx.call(mail, to)
    number = await ctx.call(write, to, undo=unwrite)
    if number % 2:
        raise Fail("odd")
    return number


class Post(World):
    repeats = lasts = False
    numbers = 0

    @does(mail)
    def mail(self, to: str) -> None:
        self.effect("mailed", to, repeats=self.repeats, lasts=self.lasts)

    @does("write")
    async def write(self, text: str) -> int:
        await asyncio.sleep(0.1)
        self.numbers += 1
        return self.random.randint(0, 9)


class PatientPost(Post):
    repeats = lasts = True


def test_an_effect_may_repeat_and_last_if_the_world_says_so() -> None:
    report = simulate(letters, mail, write, unwrite, world=Post, seeds=40)
    assert found(report) == {
        ("effect-repeated", "letters", "mail"),
        ("undo-missing", "letters", "mail"),
    }
    assert simulate(letters, mail, write, unwrite, world=PatientPost, seeds=40).errors == []


def test_what_must_hold_at_the_end_sees_all_runs() -> None:
    class Strict(PatientPost):
        @invariant(end=True)
        def all_is_well(self) -> None:
            ended = [run for run in self.runs if run.workflow == "letters"]
            assert ended
            assert all(set(run.input) == {"to"} for run in ended)
            for run in ended:
                assert run.status != "FAILED", f"{run.id} failed"

    report = simulate(letters, mail, write, unwrite, Strict, seeds=10)
    assert found(report) == {("world-broken", "Strict", "all_is_well")}
    assert "failed" in report.errors[0].finding.message


def test_a_world_that_cannot_be_made_is_refused_with_its_error() -> None:
    class Lost(World):
        def __init__(self) -> None:
            raise ValueError("no globe")

    with pytest.raises(Rejected, match=r"Lost\(\) raises ValueError: no globe"):
        simulate(letters, mail, write, unwrite, Lost, seeds=1)
    with pytest.raises(Rejected, match="there are 2 worlds"):
        simulate(letters, mail, write, unwrite, Post, PatientPost, seeds=1)
    assert World.here() is None


# --- activities ------------------------------------------------------------------------------------------------


class Parcel(msgspec.Struct):
    weight: float
    kind: Literal["box", "bag"]
    labels: list[str]


@activity
async def weigh(name: str) -> Parcel: ...


@activity(simulate=True)
def slow(n: int) -> int:
    time.sleep(40)
    return n * 2


@activity(simulate=True)
async def seen(n: int) -> int:
    await asyncio.sleep(5)
    assert current().run_id.startswith("month")
    return n + 1


@workflow
async def month(ctx: Context, n: int) -> int:
    await ctx.sleep(timedelta(days=30))
    doubled = await ctx.call(slow, n)
    added = await ctx.signal("more", type=int, timeout=timedelta(days=7))
    await ctx.sleep(timedelta(days=300))
    assert doubled == 2 * n
    return await ctx.call(seen, doubled + (added or 0))


@workflow
async def parcels(ctx: Context, names: list[str], first: Parcel) -> int:
    made = [first, *await ctx.map(weigh, names)]
    assert all(each.kind in ("box", "bag") and each.weight >= 0 for each in made)
    return sum(len(each.labels) for each in made)


@activity(simulate=True)
async def stamps(n: int) -> int:
    world = PatientPost.here()
    assert world is not None
    world.effect("stamped", n)
    return n


@workflow
async def stamped(ctx: Context, n: int) -> int:
    return await ctx.call(stamps, n, retry=Retry(attempts=4, first=0.1))


def test_own_code_finds_the_world_it_runs_in() -> None:
    report = simulate(stamped, world=PatientPost, seeds=40)
    assert "effect-repeated" in report.codes
    assert report.errors[0].finding.step == "stamps"
    assert PatientPost.here() is None


EVERYTHING = {
    "id": "everything",
    "inputSchema": {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer", "maximum": 3}}},
    "tasks": {
        "ask": {"type": "http", "method": "POST", "url": "https://example.org/", "outputSchema": {"type": "object"}},
        "sign": {"do": "sign", "inputs": {"key": {"secret": "KEY"}}, "after": "ask", "outputSchema": {"const": 7}},
        "form": {"type": "form", "schema": {"type": "object", "required": ["ok"], "properties": {"ok": {"type": "boolean"}}}, "due": "3d", "after": "sign"},
        "hear": {"type": "event", "topic": "said.it", "where": "true", "timeout": "9d", "after": "form"},
        "nap": {"type": "timer", "delay": "40d", "after": "hear"},
        "sub": {"type": "subworkflow", "definition": "small", "inputs": {"n": "${tasks.sign.output}"}, "after": "nap"},
        "late": {"do": "sign", "inputs": {"key": {"value": 1}}},
    },
    "links": [{"from": "hear", "to": "late", "on": "error"}],
}  # fmt: skip
SMALL = {
    "id": "small",
    "tasks": {
        "each": {
            "type": "map",
            "items": "[1, 2, 3]",
            "body": {"do": "one", "inputs": {"n": {"from": "item"}}},
        }
    },
}


def test_a_definition_of_all_sorts_of_tasks_is_played_without_what_it_calls() -> None:
    report = simulate(EVERYTHING, SMALL, one, seeds=25)
    assert report.problems == [], list(report.lines())
    assert report.counts["runs completed"] > 20
    assert report.counts["simulated seconds"] > 40 * 86400


def test_own_code_runs_in_simulated_time_and_a_year_passes_in_a_moment() -> None:
    began = time.monotonic()
    report = simulate(month, seeds=12)
    assert report.problems == [], list(report.lines())
    assert report.counts["runs completed"] > 5
    assert report.counts["simulated seconds"] > 300 * 86400
    assert time.monotonic() - began < 20


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Cat(msgspec.Struct, tag=True):
    lives: int


class Dog(msgspec.Struct, tag=True):
    born: datetime


class Model(pydantic.BaseModel):
    name: Annotated[str, pydantic.Field(min_length=3)]
    when: datetime
    more: list[Model] = []


TYPES: list[Any] = [
    int, float, str, bool, type(None), datetime, date, timedelta, Decimal, UUID, bytes, Colour, set[int], tuple[int, str],
    dict[int, str], Parcel, Cat | Dog, list[dict[str, Dog | None]], Literal["a", 2], Model, list[Model],
    Annotated[int, msgspec.Meta(ge=5, le=7)], Annotated[str, msgspec.Meta(pattern="^[a-z]{3}$")],
    Annotated[list[Decimal], msgspec.Meta(min_length=2)],
]  # fmt: skip


@pytest.mark.parametrize("annotation", TYPES, ids=str)
def test_values_fit_their_types(annotation: Any) -> None:
    shape = shape_of(annotation)
    assert shape is not None
    drawn = [shape.draw(random.Random(seed), "word", (100, "known")) for seed in range(30)]
    for value in drawn:
        decoder_of_hint(annotation)(encode_value(value))
    if annotation is not type(None) and "pattern" not in str(annotation):
        assert len({msgspec.json.encode(value) for value in drawn}) > 1


def test_stubs_and_inputs_are_drawn_from_types() -> None:
    report = simulate([parcels], seeds=20)
    assert report.problems == [], list(report.lines())
    assert report.counts["steps completed"] > 10


# --- mistakes in code ------------------------------------------------------------------------------------------


@activity
async def one(n: int) -> int: ...


@activity(simulate=True)
async def asks_the_network() -> int:
    await asyncio.open_connection("127.0.0.1", 1)
    return 1


@workflow
async def dice(ctx: Context) -> int:
    return await ctx.call(one, int(random.random() * 1000))


@workflow
async def rolls(ctx: Context) -> int:
    return random.randint(1, 9)


charged: list[str] = []


@activity
async def charges(card: str) -> str:
    charged.append(card)
    return card


async def paid(card: str) -> str:
    return await charges(card)


@workflow
async def calls_it_itself(ctx: Context, card: str) -> str:
    await ctx.sleep(1)
    return await paid(card)


def test_an_activity_that_workflow_code_calls_itself_is_never_executed() -> None:
    report = simulate(calls_it_itself, seeds=20)
    assert found(report) == {("workflow-error", "calls_it_itself", "nondeterminism")}
    finding = report.errors[0].finding
    assert "calls the activity `charges` itself" in finding.message
    assert finding.place == f"{__file__}:{paid.__code__.co_firstlineno + 1}"
    assert "`await ctx.call(charges, …)`" in finding.hint
    assert charged == []


@workflow
async def bad_undo(ctx: Context) -> int:
    return await ctx.call(one, 1, undo=asks_the_network)


@workflow
async def bad_call(ctx: Context) -> int:
    return await ctx.call("nowhere", 1)


@workflow
async def bad_arguments(ctx: Context) -> int:
    return await ctx.call(one, 1, 2)


@workflow
async def bad_child(ctx: Context) -> int:
    return await ctx.child("nobody", 1)


@workflow
async def nets(ctx: Context) -> int:
    return await ctx.call(asks_the_network)


@workflow
async def waits_for_nothing(ctx: Context) -> None:
    await asyncio.Event().wait()


MISTAKES: list[tuple[Any, str, str]] = [
    (dice, "nondeterminism", "random.random"),
    (rolls, "nondeterminism", "random.randint"),
    (bad_undo, "activity-invalid", "`undo=asks_the_network` is called with the result"),
    (bad_call, "nowhere", "there is no such activity"),
    (bad_arguments, "one", "too many positional arguments"),
    (bad_child, "child:nobody", "no definition `nobody`"),
    (nets, "asks_the_network", "a network, a thread or a process"),
    (waits_for_nothing, "deadlock", "waits for nothing that can happen, at "),
]


@pytest.mark.parametrize(
    ("function", "step", "said"), MISTAKES, ids=lambda value: getattr(value, "__name__", None)
)
def test_a_mistake_in_code_is_named_with_its_line(function: Any, step: str, said: str) -> None:
    report = simulate(function, seeds=1)
    assert found(report) == {("workflow-error", function.__name__, step)}
    finding = report.errors[0].finding
    assert said in finding.message
    file, _, line = finding.place.rpartition(":")
    first = (asks_the_network if function is nets else function).__code__.co_firstlineno
    assert file == __file__
    assert first <= int(line) <= first + 3


@workflow
async def untyped(ctx: Context) -> int:
    return (await ctx.signal("what"))["a"]


def test_what_is_seen_only_with_a_guess_is_a_note() -> None:
    report = simulate(untyped, seeds=5)
    assert report.errors == []
    assert [p.finding.code for p in report.problems] == ["workflow-error"]
    assert "was a guess" in report.problems[0].finding.hint


@workflow
async def clocks_and_races(ctx: Context) -> str:
    """What depends on time, and a race that is meant, are not taken for what depends on order."""
    both = await asyncio.gather(ctx.call(one, 1), ctx.call(one, 2))
    steps = [asyncio.ensure_future(ctx.call(one, n)) for n in (3, 4)]
    done, rest = await asyncio.wait(steps, return_when="FIRST_COMPLETED")
    for each in rest:
        each.cancel()
    return f"{both} {min(each.result() for each in done)} {ctx.now()}"


@workflow
async def asks_again(ctx: Context) -> int:
    while (state := await ctx.call(one, 1)) % 3:
        await ctx.sleep(60)
    return state


@workflow(timeout=1800)
async def gives_up_asking(ctx: Context) -> int:
    while (state := await ctx.call(one, 1)) != 777:
        await ctx.sleep(60)
    return state


def test_time_races_and_polling_are_no_mistakes() -> None:
    report = simulate(clocks_and_races, asks_again, gives_up_asking, seeds=21)
    assert report.problems == [], list(report.lines())


# --- reports ---------------------------------------------------------------------------------------------------


def test_a_report_fails_a_test_with_all_that_it_says() -> None:
    report = simulate(bad_arguments, one, seeds=1)
    with pytest.raises(
        AssertionError, match=r"1 mistake found(.|\n)*error\[workflow-error\](.|\n)*= hint: call it"
    ):
        report.check()
    assert simulate(bad_arguments, one, seeds=1, ignore=["workflow-error"]).problems == []
    assert (
        simulate(bad_arguments, one, seeds=1, ignore=["workflow-error:bad_arguments"]).problems
        == []
    )
    simulate(asks_again, one, seeds=1).check()


def test_the_fixture_plays_and_checks(penstock_simulate: Any) -> None:  # noqa: F811
    assert penstock_simulate(asks_again, one, seeds=2).seeds == 2
    with pytest.raises(AssertionError, match="too many positional arguments"):
        penstock_simulate(bad_arguments, one, seeds=1)


async def test_it_can_be_called_where_a_loop_runs() -> None:
    assert simulate(asks_again, one, seeds=2).errors == []
    await asyncio.sleep(0)


def test_nothing_breaks_where_that_is_asked_for() -> None:
    report = simulate(letters, mail, write, unwrite, world=PatientPost, seeds=5, faults="none")
    assert (report.errors, report.counts["crashes"], report.counts["retries"]) == ([], 0, 0)
    mild = simulate(letters, mail, write, unwrite, world=PatientPost, seeds=20, faults="mild")
    assert mild.counts["crashes"] > 0
    assert mild.counts["disk full"] == mild.counts["power losses"] == 0
    with pytest.raises(Rejected, match="no level of faults"):
        simulate(letters, faults="stormy")


def bad() -> Iterator[tuple[str, tuple[Any, ...], dict[str, Any]]]:
    yield "there is no workflow", (one,), {}
    yield "there is no workflow `ordr`", (asks_again, one), {"workflows": ["ordr"]}
    yield "has no parameter `x`", (month, slow, seen), {"input": {"x": 1}}
    yield "cannot be read as int", (month, slow, seen), {"input": {"n": "many"}}
    yield "cannot be simulated", (7,), {}


@pytest.mark.parametrize(
    ("said", "things", "options"),
    list(bad()),
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_input_is_refused(said: str, things: tuple[Any, ...], options: dict[str, Any]) -> None:
    with pytest.raises(Rejected, match=said):
        simulate(*things, seeds=1, **options)
