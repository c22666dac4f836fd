"""What workflow functions are given that they cannot use, and what they do that cannot work: each is refused, or fails its
run, with what it was and where (SPEC 2.8, 4.4)."""

from __future__ import annotations

import dataclasses
import enum
import gc
import time
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec import Raw

import penstock
from penstock import Context, Fail, Rejected, Retry, RunFailed, StepFailed, activity, workflow
from penstock.core.program import Told
from penstock.model import intents as i
from penstock.model.run import Run
from penstock.sdk.functions import Functions
from penstock.testing.harness import Harness, harness
from support import deeds
from support.deeds import done, note


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    deeds.forget()


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Line:
    name: str
    price: float


@activity
async def undo_slowly(what: str) -> None:
    done.append(f"undo {what}")
    if done.count(f"undo {what}") < 3:
        raise ValueError("not now")


@activity
async def gives_object(n: int) -> Any:
    return object()


@activity
async def gives_text(n: int) -> int:
    return "text"  # type: ignore[return-value]


@activity
async def chained() -> None:
    try:
        try:
            raise KeyError("k")
        except KeyError as inner:
            raise ValueError("middle") from inner
    except ValueError as middle:
        raise RuntimeError("outer") from middle


@workflow(signals=["approve", "go"])
async def order(ctx: Context, n: int, line: Line, colour: Colour = Colour.RED) -> int:
    await ctx.signal("go")
    return n


ACTIVITIES = [note, undo_slowly, gives_object, gives_text, chained]
TAKES = "; it takes (n: int, line: "


# --- what it is started with ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("x", Line("a", 1.0)), "`n` cannot be read as int: Expected `int`, got `str`"),
        ((1, {"name": 3}), "`line` cannot be read as Line: Expected `str`, got `int` - at `$.name`"),
        ((1, Line("a", 1.0), "blue"), "`colour` cannot be read as Colour: Invalid enum value 'blue'"),
        ((1,), "missing a required argument: 'line'"),
        ((1, Line("a", 1.0), Colour.RED, 4), "too many positional arguments"),
        ((object(), Line("a", 1.0)), "$.n cannot be kept as JSON"),
    ],
)  # fmt: skip
async def test_a_start_with_arguments_of_another_type_is_refused(given: Any, says: str) -> None:
    async with harness(workflows=[order], activities=ACTIVITIES) as engine:
        with pytest.raises(penstock.PenstockError) as refused:
            await engine.start(order, *given, id="o")
        assert says in str(refused.value)
        assert refused.value.code in ("arguments-invalid", "payload-invalid")
        with pytest.raises(penstock.NotFound):
            await engine.get("o")


GOOD = {"n": 1, "line": {"name": "a", "price": 1}}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({**GOOD, "n": "x"}, "`n` cannot be read as int"),
        ({**GOOD, "what": 1}, "`order` has no parameter `what`"),
        ({"n": 1}, "was started without `line`"),
        (5, "was started without `line`"),
        (None, "`n` cannot be read as int: Expected `int`, got `null`"),
    ],
)
async def test_so_is_one_by_name_however_it_is_started(given: Any, says: str) -> None:
    async def once(engine: Harness) -> None:
        await engine.start("order", given, id="o")

    async def with_signal(engine: Harness) -> None:
        await engine.signal_with_start("order", given, "go", id="o")

    async def many(engine: Harness) -> None:
        await engine.start_many("order", [GOOD, given], ids=["p", "o"])

    ways: list[Callable[[Harness], Awaitable[None]]] = [once, with_signal, many]
    async with harness(workflows=[order], activities=ACTIVITIES) as engine:
        for way in ways:
            with pytest.raises(penstock.PenstockError) as refused:
                await way(engine)
            error = refused.value
            if isinstance(error, penstock.StartsRefused):
                [(place, error)] = error.refused.items()  # type: ignore[assignment]
                assert place == 1
            assert says in str(error)
            assert TAKES in str(error)
            for id in ("o", "p"):
                with pytest.raises(penstock.NotFound):
                    await engine.get(id)


async def test_a_child_that_cannot_be_called_so_fails_with_the_same_words() -> None:
    @workflow(name="above")
    async def above(ctx: Context) -> list[str]:
        try:
            await ctx.child(order, "x", Line("a", 1.0))
        except StepFailed as failed:
            cause = failed.failure.cause
            return [failed.code, cause.code, cause.message]
        return []

    async with harness(workflows=[above, order], activities=ACTIVITIES) as engine:
        code, why, message = await engine.finish(await engine.start(above))
        assert (code, why) == ("child-failed", "arguments-invalid")
        assert message.startswith("workflow `order`: `n` cannot be read as int")


async def test_signals_that_a_function_does_not_declare_are_refused() -> None:
    async with harness(workflows=[order], activities=ACTIVITIES) as engine:
        run = await engine.start(order, 1, Line("a", 1.0))
        with pytest.raises(Rejected, match=r"declares no signal `aprove`.*approve, go") as refused:
            await run.signal("aprove", True)
        assert refused.value.hint == "did you mean `approve`?"
        with pytest.raises(Rejected, match="declares no signal `nope`"):
            await engine.signal_with_start("order", GOOD, "nope", id="o")
        with pytest.raises(penstock.NotFound):
            await engine.get("o")
        started = await engine.signal_with_start("order", GOOD, "go", id="o")
        assert await engine.finish(started) == 1
        await run.signal("go")
        assert await engine.finish(run) == 1
    with pytest.raises(Rejected, match="`signals` of a workflow are names"):
        workflow(signals="approve")(order)


@workflow(signals={"line": Line, "colour": Colour, "any": Any})
async def typed(ctx: Context) -> list[Any]:
    line = await ctx.signal("line")
    update = await ctx.update("colour")
    assert update is not None
    update.answer(update.payload)
    return [line.price, update.payload.name, await ctx.signal("any")]


async def test_payloads_that_are_not_what_the_workflow_declares_are_refused_and_change_nothing() -> (
    None
):
    async with harness(workflows=[typed]) as engine:
        run = await engine.start(typed, id="t")
        says = "`line` of workflow `typed` cannot be read as Line: Expected `str`, got `int`"
        with pytest.raises(Rejected, match=says) as refused:
            await run.signal("line", {"name": 3, "price": 1})
        assert refused.value.code == "signal-invalid"
        with pytest.raises(Rejected, match="`colour` of workflow `typed` cannot be read as Colour"):
            await run.update("colour", "blue")
        with pytest.raises(Rejected, match="`line` of workflow `typed` cannot be read"):
            await engine.signal_with_start("typed", {}, "line", 4, id="o")
        with pytest.raises(penstock.NotFound):
            await engine.get("o")
        assert await engine.types(run) == ["run_started"]
        await run.signal("line", Line("a", 2.5))
        assert await run.update("colour", Colour.RED) == "red"
        await run.signal("any", [1])
        assert await engine.finish(run) == [2.5, "RED", [1]]


@workflow
async def asks(ctx: Context, again: bool) -> int | None:
    while True:
        try:
            update = await ctx.update("n", type=int)
        except penstock.PenstockError as error:
            if not again:
                raise
            await ctx.call(note, error.code)
            continue
        assert update is not None
        update.answer(update.payload + 1)
        return update.payload


@pytest.mark.parametrize("again", [False, True])
async def test_an_update_that_is_not_what_the_code_asks_for_is_refused_and_the_code_hears_of_it(
    again: bool,
) -> None:
    async with harness(workflows=[asks], activities=ACTIVITIES) as engine:
        run = await engine.start(asks, again)
        with pytest.raises(
            Rejected, match="`update:n#1`: a value cannot be read as int"
        ) as refused:
            await run.update("n", "text")
        assert refused.value.code == "update-failed"
        if again:
            await engine.settle()
            assert await run.update("n", 4) == 5
            assert await engine.finish(run) == 4
            assert done == ["value-unreadable"]
            return
        with pytest.raises(RunFailed) as failed:
            await engine.finish(run)
        assert failed.value.failure.code == "value-unreadable"
        assert 'await ctx.update("n", type=int)' in (failed.value.failure.trace or "")


async def test_an_older_history_in_which_such_an_update_had_no_answer_still_fits() -> None:
    host = Functions([asks])
    for outcomes in ([], [i.Reply("u", refused="`update:n#1`: a value cannot be read as int: Expected `int`, got `str`")]):  # fmt: skip
        program = host.begin(Run(id="run", definition="asks"))
        assert program is not None
        program.replay(
            Told(0.0, 1, [i.Heard("start")], [b'{"again": true}']),
            [i.Await("update:n#1", "n", None, True)],
        )
        program.replay(
            Told(1.0, 2, [i.Heard("done", "update:n#1", id="u")], [b'"text"']),
            [*outcomes, i.Call("note#1", "note", Raw(b'["value-unreadable"]'))],
        )
        with pytest.raises(penstock.Nondeterminism, match="`update:n#2` return null"):
            program.replay(Told(2.0, 3, [i.Heard("done", "note#1")], [b'""']), [i.Finish()])


@workflow
async def tags(ctx: Context, count: int) -> list[Any]:
    ctx.set_attributes({f"n{number}": number for number in range(count)})
    ctx.set_attributes({"n0": None, "one": 1})
    await ctx.sleep(1)
    return sorted(ctx.attributes)


async def test_a_function_sets_no_more_attributes_than_others_may() -> None:
    async with harness(workflows=[tags]) as engine:
        run = await engine.start(tags, 200)
        names = await engine.finish(run)
        assert len(names) == 200
        assert "n0" not in names
        assert sorted((await run.show()).attributes) == names
        run = await engine.start(tags, 150, attributes={f"m{number}": 1 for number in range(51)})
        with pytest.raises(RunFailed, match="a run has at most 200 attributes") as failed:
            await engine.finish(run)
        assert failed.value.failure.code == "attributes-too-many"
        assert "ctx.set_attributes({f" in (failed.value.failure.trace or "")
        assert len((await run.show()).attributes) == 51


def test_signals_are_declared_by_names_or_by_names_with_types() -> None:
    for wrong in ({}, {3: int}, {"": int}, [], 4):
        with pytest.raises(Rejected, match="`signals` of a workflow are names"):
            workflow(signals=wrong)(order)  # type: ignore[arg-type]


# --- what it does ---------------------------------------------------------------------------------------------


def function(body: Callable[[Context], Any], returns: Any = Any) -> Any:
    async def odd(ctx: Context) -> Any:
        return await body(ctx)

    odd.__annotations__["return"] = returns
    return workflow(name="odd")(odd)


async def failure_in(function: Any, *, guard: bool = True) -> Any:
    async with harness(workflows=[function], activities=ACTIVITIES, guard=guard) as engine:
        with pytest.raises(RunFailed) as failed:
            await engine.finish(await engine.start(function))
        return failed.value.failure


async def give(value: Any) -> Any:
    return value


@pytest.mark.parametrize(
    ("body", "returns", "code", "says"),
    [
        (lambda ctx: give(object()), Any, "payload-invalid", "the result of workflow `odd` cannot be kept: $ cannot be kept as JSON"),
        (lambda ctx: give("text"), int, "output-invalid", "the result of workflow `odd` does not fit its annotation `int`: Expected `int`, got `str`"),
        (lambda ctx: ctx.call(note, object()), Any, "payload-invalid", "$[0] cannot be kept as JSON"),
        (lambda ctx: ctx.call(gives_object, 1), Any, "payload-invalid", "the result of activity `gives_object` cannot be kept"),
        (lambda ctx: ctx.call(gives_text, 1), Any, "output-invalid", "the result of activity `gives_text` does not fit its annotation"),
        (lambda ctx: ctx.call(note, "a", "b"), Any, "arguments-invalid", "activity `note`: too many positional arguments"),
        (lambda ctx: ctx.call(note, wat="a"), Any, "arguments-invalid", "activity `note`"),
        (lambda ctx: ctx.call(5), Any, "activity-invalid", "5 is not an activity"),
        (lambda ctx: ctx.call([note]), Any, "activity-invalid", "is not an activity"),
        (lambda ctx: ctx.call(order), Any, "activity-invalid", "is not an activity"),
        (lambda ctx: ctx.call(""), Any, "activity-invalid", "'' is not an activity"),
        (lambda ctx: ctx.call(note, "a", undo=5), Any, "activity-invalid", "5 is not an activity"),
        (lambda ctx: ctx.undo(5, 1), Any, "activity-invalid", "5 is not an activity"),
        (lambda ctx: ctx.call(note, "a", priority="urgent"), Any, "priority-unknown", "'urgent' is no priority"),
        (lambda ctx: ctx.call(note, "a", queue=7), Any, "activity-invalid", "`queue` is the name of a queue, not 7"),
        (lambda ctx: ctx.call(note, "a", retry=3), Any, "activity-invalid", "`retry` must be a Retry, not 3"),
        (lambda ctx: ctx.call(note, "a", timeout=-1), Any, "activity-invalid", "`timeout` must be more than 0 seconds"),
        (lambda ctx: ctx.child(note), Any, "workflow-invalid", "is not a workflow"),
        (lambda ctx: ctx.child("nowhere"), Any, "child-failed", "no definition `nowhere`"),
        (lambda ctx: ctx.map(note, ["a"], limit=0), Any, "limit-invalid", "`limit` must be a number from 1, not 0"),
        (lambda ctx: ctx.signal(""), Any, "name-invalid", "the name of a signal is text"),
    ],
)  # fmt: skip
async def test_a_step_that_cannot_be_taken_fails_with_what_is_wrong(
    body: Any, returns: Any, code: str, says: str
) -> None:
    failure = await failure_in(function(body, returns))
    assert failure.code == code
    assert says in failure.message
    assert failure.cause is None or code == "child-failed"
    assert "a" not in done


async def test_a_signal_of_another_type_is_named_and_can_be_caught() -> None:
    async def body(ctx: Context) -> str:
        try:
            return str(await ctx.signal("n", type=int))
        except penstock.PenstockError as error:
            return f"{error.code}: {error}"

    odd = function(body)
    async with harness(workflows=[odd]) as engine:
        run = await engine.start(odd)
        await run.signal("n", "text")
        assert await engine.finish(run) == (
            "value-unreadable: `signal:n#1`: a value cannot be read as int: Expected `int`, got `str`"
        )


async def test_an_activity_that_nobody_serves_is_waited_for_by_name() -> None:
    odd = function(lambda ctx: ctx.call("nowhere", 1))
    async with harness(workflows=[odd], activities=ACTIVITIES) as engine:
        run = await engine.start(odd)
        await engine.settle()
        [reason] = await run.why()
        assert reason.kind == "attempt"
        assert reason.message.endswith("it waits for a worker that serves `nowhere`")
        await run.cancel()
        with pytest.raises(RunFailed, match="CANCELLED"):
            await engine.finish(run)


async def helper(ctx: Context) -> None:
    await ctx.call(note, "never")


async def forgets_a_step(ctx: Context) -> None:
    ctx.call(note, "never")
    await ctx.sleep(1)


async def keeps_a_step(ctx: Context) -> int:
    kept = ctx.call(note, "never")
    del kept
    return 1


async def keeps_a_step_to_the_end(ctx: Context) -> int:
    kept = ctx.call(note, "never")  # noqa: F841
    return 1


async def forgets_a_map(ctx: Context) -> int:
    ctx.map(note, ["never"])
    return 1


async def forgets_its_own(ctx: Context) -> int:
    helper(ctx)  # type: ignore[unused-coroutine]
    await ctx.sleep(1)
    return 1


@pytest.mark.parametrize(
    "body",
    [forgets_a_step, keeps_a_step, keeps_a_step_to_the_end, forgets_a_map, forgets_its_own],
)
async def test_a_coroutine_that_is_never_awaited_fails_the_run_with_its_line(body: Any) -> None:
    failure = await failure_in(workflow(name="odd")(body))
    assert failure.code == "never-awaited"
    line = body.__code__.co_firstlineno + 1
    assert f"test_function_input.py:{line}" in failure.message
    assert done == []
    gc.collect()


def spin(seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


async def sleeps(ctx: Context) -> None:
    await ctx.sleep(0.01)
    time.sleep(0.4)  # noqa: ASYNC251


async def works(ctx: Context) -> None:
    await ctx.call(note, "a")
    spin(0.4)


@pytest.mark.parametrize(("body", "line"), [(sleeps, 2), (works, 2)])
async def test_in_production_code_that_blocks_is_reported_with_its_line_and_goes_on(
    body: Any, line: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("penstock.sdk.watchdog.BLOCKED_SECONDS", 0.1)
    monkeypatch.setattr("penstock.sdk.watchdog.PROBE_SECONDS", 0.02)
    odd = workflow(name="odd")(body)
    async with penstock.open("memory:", workflows=[odd], activities=ACTIVITIES) as engine:
        run = await engine.start(odd, id="o")
        await run.result()
    told = [each.getMessage() for each in caplog.records if "loop.blocked" in each.getMessage()]
    assert told
    assert "workflow=odd run=o" in told[0]
    place = f"test_function_input.py:{body.__code__.co_firstlineno + line} in {body.__name__}"
    assert place in told[0]


async def spins(ctx: Context) -> None:
    while True:
        ctx.now()


async def spins_in_calls(ctx: Context) -> int:
    return sum(1 for _ in iter(int, 1))


@pytest.mark.parametrize("body", [spins, spins_in_calls])
async def test_in_tests_code_that_never_gives_way_is_stopped_with_its_line(
    body: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.sdk.guard.BLOCKED_SECONDS", 0.2)
    failure = await failure_in(workflow(name="odd")(body))
    assert failure.code == "nondeterminism"
    assert "has blocked for 0.2 s without awaiting anything, at " in failure.message
    assert "test_function_input.py:" in failure.message
    assert f"in {body.__name__}" in failure.message or "<genexpr>" in failure.message
    assert "activity" in failure.details["hint"]


@pytest.mark.parametrize("detached", [False, True])
async def test_runs_that_start_themselves_end_at_a_bound_that_is_said(detached: bool) -> None:
    @workflow(name="forever")
    async def forever(ctx: Context) -> None:
        await (ctx.start("forever") if detached else ctx.child("forever"))

    async with harness(workflows=[forever]) as engine:
        run = await engine.start(forever, id="f")
        says = "`child:forever#1` would be a child run 65 deep, and at most 64 are started inside one another"
        if detached:
            await engine.finish(run)
            last = await engine.get("f" + "/child:forever#1" * 64)
        else:
            last = run
        with pytest.raises(RunFailed) as failed:
            await engine.finish(last)
        assert says in str(failed.value)
        assert len(str(failed.value)) < 2000
        depth, cursor = 0, failed.value.failure
        while cursor.cause is not None:
            depth, cursor = depth + 1, cursor.cause
        assert (depth, cursor.code) == (0 if detached else 64, "depth-exceeded")


async def test_causes_are_shown_as_they_were_from_the_activity_to_who_asked_for_the_result() -> (
    None
):
    async def body(ctx: Context) -> None:
        try:
            await ctx.call(chained, retry=Retry(attempts=1))
        except StepFailed as failed:
            seen: list[str] = []
            cursor: BaseException | None = failed
            while cursor is not None:
                seen.append(str(cursor))
                cursor = cursor.__cause__
            done.extend(seen)
            raise Fail("no more", code="enough") from failed

    odd = function(body)
    async with harness(workflows=[odd], activities=ACTIVITIES, guard=False) as engine:
        run = await engine.start(odd)
        with pytest.raises(RunFailed) as failed:
            await engine.finish(run)
        told = [(each.type, each.message) for each in (await run.show()).error_stack]
    assert done == ["outer", "middle", "'k'"]
    assert told == [
        ("Fail", "no more"), ("RuntimeError", "outer"), ("ValueError", "middle"), ("KeyError", "'k'"),
    ]  # fmt: skip
    shown = "".join(traceback.format_exception(failed.value))
    places = [
        shown.index(each)
        for each in (
            "ended FAILED: no more", "because of RuntimeError in `chained#1`: outer", "because of ValueError: middle",
            "because of KeyError: 'k'",
        )
    ]  # fmt: skip
    assert places == sorted(places)


async def test_a_cancel_while_the_run_undoes_changes_nothing() -> None:
    async def body(ctx: Context) -> None:
        await ctx.call(note, "a", undo=undo_slowly)
        raise Fail("no more")

    odd = function(body)
    async with harness(workflows=[odd], activities=ACTIVITIES, guard=False) as engine:
        run = await engine.start(odd)
        await engine.settle()
        assert await run.status() == "COMPENSATING"
        with pytest.raises(Rejected) as refused:
            await run.cancel()
        assert refused.value.code == "run-stopping"
        assert "needs no cancelling: it undoes what it did, and then ends FAILED" in str(
            refused.value
        )
        with pytest.raises(RunFailed, match="no more") as failed:
            await engine.finish(run)
        assert failed.value.status == "FAILED"
        assert done == ["a", *["undo a"] * 3]


async def test_a_run_that_was_cancelled_and_undoes_is_not_cancelled_again() -> None:
    async def body(ctx: Context) -> None:
        await ctx.call(note, "a", undo=undo_slowly)
        await ctx.signal("never")

    odd = function(body)
    async with harness(workflows=[odd], activities=ACTIVITIES, guard=False) as engine:
        run = await engine.start(odd)
        await engine.settle()
        for _ in range(2):
            await run.cancel()
            await engine.settle()
            assert await run.status() == "COMPENSATING"
        with pytest.raises(RunFailed, match="CANCELLED"):
            await engine.finish(run)
        assert (await engine.types(run)).count("cancel_requested") == 1
