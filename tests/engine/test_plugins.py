"""Task types and languages of plugins in runs (SPEC 2.2): attempts as those of activities, and what is missing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

import penstock
from penstock import DefinitionInvalid, NotFound, Rejected, RunFailed, activity
from penstock.adapters.memory import MemoryStore
from penstock.adapters.sqlite import SqliteStore
from penstock.errors import ExpressionError, PluginError, PluginMissing
from penstock.plugin import (
    Attempt,
    CompleteLater,
    Fail,
    Language,
    Problem,
    Program,
    Retry,
    TaskType,
)
from penstock.testing.harness import Harness, SkipClock, harness


class Given(msgspec.Struct):
    who: str = "nobody"
    token: str = ""


class Do(TaskType):
    """Does as it is told."""

    config: ClassVar[Any] = {
        "type": "object",
        "properties": {"how": {"type": "string"}, "n": {"type": "integer", "maximum": 9}},
    }
    inputs = Given
    retry = Retry(attempts=3, first=10, factor=1, jitter=0)
    made: ClassVar[list[Do]] = []

    def __init__(self) -> None:
        self.seen: list[Attempt] = []
        self.closed = 0
        Do.made.append(self)

    def check(self, config: dict[str, Any]) -> Iterable[Problem]:
        if config.get("how") == "badly":
            yield Problem("that is no way to do it", ("how",))
        if config["n"] > 7:
            yield Problem("that is too much", ("n",))

    async def execute(self, attempt: Attempt) -> Any:
        self.seen.append(attempt)
        match attempt.config.get("how"):
            case "hang":
                await asyncio.Event().wait()
            case "beat":
                attempt.heartbeat({"at": attempt.number})
                await asyncio.Event().wait()
            case "later":
                raise CompleteLater
            case "fail":
                raise Fail("no use", code="useless")
            case "twice" if attempt.number < 3:
                raise OSError("not yet")
            case "leak":
                raise OSError(f"could not use {attempt.inputs.token}")
            case "object":
                return object()
            case _:
                pass
        attempt.log(f"done by {attempt.inputs.who}")
        return {
            "who": attempt.inputs.who,
            "n": attempt.config["n"],
            "type": attempt.type,
            "progress": attempt.progress,
            "same": attempt.idempotency_key == self.seen[0].idempotency_key,
        }

    async def close(self) -> None:
        self.closed += 1


class Count(TaskType):
    """A plain function, in a thread."""

    output: ClassVar[Any] = {"type": "integer"}

    def execute(self, attempt: Attempt) -> Any:
        return attempt.config.get("n", "none")


class Hard(TaskType):
    """Cannot be closed."""

    async def execute(self, attempt: Attempt) -> str:
        return "hard"

    async def close(self) -> None:
        raise LookupError("the door is stuck")


class Is(Language):
    """`PATH VALUE`: that is there."""

    def compile(self, text: str) -> Program:
        path, _, wanted = text.partition(" ")

        def evaluate(values: Any) -> Any:
            for name in path.split("."):
                values = values[name]
            return "perhaps" if values == "odd" else str(values) == wanted

        return Program([path], evaluate, [wanted])


PLUGINS = {"do": Do, "do-again": Do, "count": Count, "hard": Hard, "is": Is}


def one(how: str, **more: Any) -> dict[str, Any]:
    task = {"type": "do", "how": how, "config": {"n": 1}, **more}
    return {"id": "one", "tasks": {"a": task}}


async def ended(engine: Harness, run: penstock.Run) -> Any:
    with pytest.raises(RunFailed) as caught:
        await engine.finish(run)
    return caught.value.failure


async def test_config_inputs_and_secrets_reach_the_executor_and_its_output_the_run() -> None:
    definition = {
        "id": "x",
        "data": {"who": "Ann"},
        "tasks": {
            "a": {"type": "do", "config": {"n": "${input.n + 1}"}},
            "b": {
                "type": "do-again",
                "after": "a",
                "config": {"n": "${tasks.a.output.n + 1}"},
                "inputs": {"who": "${tasks.a.output.who}y"},
            },
        },
    }
    async with harness(plugins=PLUGINS) as engine:
        await engine.register(definition)
        run = await engine.start("x", {"n": 3})

        assert await engine.finish(run) == {
            "who": "Anny", "n": 5, "type": "do-again", "progress": None, "same": False,
        }  # fmt: skip
        # By name, from the run's data (SPEC 2.6); the log is kept with the attempt.
        shown = await run.show()
        assert next(task.output["who"] for task in shown.tasks if task.key == "a") == "Ann"
        assert await engine.types(run) == [
            "run_started", "task_completed", "task_completed", "run_completed",
        ]  # fmt: skip


async def test_a_config_that_does_not_fit_when_it_is_known_fails_its_task_without_an_attempt() -> (
    None
):
    definition = {"id": "x", "tasks": {"a": {"type": "do", "config": {"n": "${input}"}}}}
    async with harness(plugins=PLUGINS) as engine:
        await engine.register(definition)

        wrong = await ended(engine, await engine.start("x", "text"))
        assert (wrong.code, wrong.key) == ("field-invalid", "a")
        assert "config of `a`: $.n: " in wrong.message
        much = await ended(engine, await engine.start("x", 8))
        assert (much.code, much.message) == ("plugin-check", "config of `a`: that is too much")
        assert (await engine.finish(await engine.start("x", 7)))["n"] == 7


async def test_an_exception_is_retried_as_the_type_or_the_task_says_and_fail_is_not() -> None:
    async with harness(plugins=PLUGINS) as engine:
        await engine.register(one("twice"))
        run = await engine.start("one")
        begun = engine.clock.now()
        assert (await engine.finish(run))["same"] is True
        assert engine.clock.now() - begun == 20
        await engine.register(one("twice", retry=1))
        assert (await ended(engine, await engine.start("one"))).message == "not yet"
        await engine.register(one("fail"))
        failure = await ended(engine, await engine.start("one"))
        assert (failure.code, failure.type) == ("useless", "Fail")
        assert "test_plugins.py" in failure.trace
        assert "penstock/sdk" not in failure.trace


async def test_time_limits_and_heartbeats() -> None:
    async with harness(plugins=PLUGINS) as engine:
        await engine.register(one("hang", timeout="5s", retry=1))
        assert (await ended(engine, await engine.start("one"))).code == "timeout"
        await engine.register(one("beat", timeout={"heartbeat": "5s"}, retry=2))
        run = await engine.start("one")
        assert (await ended(engine, run)).code == "heartbeat-timeout"
        first, second = Do.made[-1].seen[-2:]
        assert (first.number, second.number) == (1, 2)
        assert second.progress == {"at": 2}


async def test_an_attempt_is_cancelled_and_one_left_open_is_completed_from_outside() -> None:
    async with harness(plugins=PLUGINS) as engine:
        await engine.register(one("hang"))
        run = await engine.start("one")
        await engine.settle()
        await run.cancel()
        with pytest.raises(RunFailed):
            await engine.finish(run)
        assert (await run.show()).status == "CANCELLED"
        assert Do.made[-1].seen[-1].cancelled
        await engine.register(one("later"))
        run = await engine.start("one")
        await engine.settle()
        await engine.complete(Do.made[-1].seen[-1].token, "from outside")
        assert await engine.finish(run) == "from outside"


async def test_a_result_that_does_not_fit_fails_the_task() -> None:
    async with harness(plugins=PLUGINS) as engine:
        await engine.register({"id": "c", "tasks": {"a": {"type": "count"}}})
        assert (await ended(engine, await engine.start("c"))).code == "output-invalid"
        await engine.register({"id": "c", "tasks": {"a": {"type": "count", "config": {"n": 4}}}})
        assert await engine.finish(await engine.start("c")) == 4
        await engine.register(one("object"))
        assert (await ended(engine, await engine.start("one"))).code == "payload-invalid"


async def test_a_secret_is_given_and_never_told() -> None:
    definition = one("leak", inputs={"token": {"secret": "KEY"}}, retry=1)
    async with penstock.open("memory:", plugins=PLUGINS, secrets={"KEY": "s3cr3t-value"}) as engine:
        await engine.register(definition)
        run = await engine.start("one")
        with pytest.raises(RunFailed) as caught:
            await run.result()
        assert "could not use" in caught.value.failure.message
        assert "s3cr3t-value" not in str(await run.history())


async def test_each_engine_has_its_own_executor_which_is_closed_with_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    Do.made.clear()
    for _ in range(2):
        async with harness(plugins=PLUGINS) as engine:
            await engine.register(one("well"))
            await engine.register({"id": "h", "tasks": {"a": {"type": "hard"}}})
            for _ in range(3):
                await engine.finish(await engine.start("one"))
            await engine.finish(await engine.start("h"))
    used = [each for each in Do.made if each.seen]
    assert [(len(each.seen), each.closed) for each in used] == [(3, 1), (3, 1)]
    assert caplog.text.count("plugin.close-failed executor=Hard") == 2


async def test_what_is_undone_is_undone_by_an_activity() -> None:
    undone: list[Any] = []

    @activity
    async def undo(output: Any) -> None:
        undone.append(output["who"])

    definition = one("well", compensate="undo", inputs={"who": "Bo"})
    definition["tasks"]["b"] = {"type": "do", "config": {"n": 1, "how": "fail"}, "after": "a"}
    async with harness(plugins=PLUGINS, activities=[undo]) as engine:
        await engine.register(definition)
        assert (await ended(engine, await engine.start("one"))).code == "useless"
    assert undone == ["Bo"]


async def test_a_condition_in_another_language_decides_and_its_failure_is_recorded() -> None:
    definition = {
        "id": "x",
        "tasks": {
            "a": {"type": "transform", "set": {"n": "input.n"}},
            "b": {
                "type": "count", "config": {"n": 1}, "after": "a",
                "when": {"language": "is", "expression": "tasks.a.output.n 5"},
            },
            "c": {
                "type": "count", "config": {"n": 2},
                "after": {"from": "b", "when": {"language": "is", "expression": "input.n 5"}},
            },
        },
        "outputs": {"b": "tasks.b.status", "c": "tasks.c.status"},
    }  # fmt: skip
    async with harness(plugins=PLUGINS) as engine:
        await engine.register(definition, force="the verifier cannot read it")
        assert await engine.finish(await engine.start("x", {"n": 5})) == {"b": "COMPLETED", "c": "COMPLETED"}  # fmt: skip
        failure = await ended(engine, await engine.start("x", {"n": "odd"}))
        assert failure.code == "expression-failed"
        assert "`is: tasks.a.output.n 5` gave str, not true or false" in failure.message


async def test_a_definition_that_a_plugin_refuses_is_refused_and_strict_takes_no_doubt() -> None:
    async with harness(plugins=PLUGINS) as engine:
        with pytest.raises(DefinitionInvalid, match="that is no way to do it"):
            await engine.register(one("badly"))
        with pytest.raises(DefinitionInvalid, match="no type of task is called `dont`"):
            await engine.register({"id": "x", "tasks": {"a": {"type": "dont"}}})
        with pytest.raises(NotFound):
            await engine.definition("one")


async def test_an_activity_takes_no_name_of_a_plugin() -> None:
    @activity(name="plugin:do")
    async def do() -> None: ...

    with pytest.raises(Rejected, match="plugin:do"):
        async with harness(activities=[do]):
            pass


WAITING = {
    "id": "w",
    "tasks": {
        "go": {"type": "signal"},
        "a": {"type": "do", "config": {"n": 1}, "after": "go"},
        "b": {"type": "count", "after": {"from": "a", "when": {"language": "is", "expression": "input 5"}}},
    },
}  # fmt: skip


async def test_a_run_whose_plugin_is_missing_stays_as_it_is_and_goes_on_when_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, clock = str(tmp_path / "a.db"), SkipClock()
    async with harness(plugins=PLUGINS, store=SqliteStore(path), clock=clock) as engine:
        await engine.register(WAITING, force="x")
        run = await engine.start("w", 5, id="w-1")
        await engine.settle()

    with caplog.at_level(logging.ERROR):
        async with harness(store=SqliteStore(path), clock=clock) as engine:
            await engine.register({"id": "q", "tasks": {"a": {"type": "transform", "set": {}}}})
            await engine.finish(await engine.start("q"))  # others go on
            run = await engine.get("w-1")
            assert [row.id for row in await engine.list(definition="w")] == ["w-1"]
            assert len(await run.history()) == 1
            for asked in (run.show(), run.signal("go"), run.why(), run.cancel(), engine.start("w")):
                with pytest.raises(PluginMissing) as caught:
                    await asked
                error = caught.value
                assert error.code == "plugin-missing"
                assert "definition `w` needs the task type `count` and the task type `do`" in error.message  # fmt: skip
                assert "the language `is`" in error.message
                assert error.hint is not None
                assert "it was registered with" in error.hint
            await engine.skip(hours=1)
    assert "Traceback" not in caplog.text
    told = {each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR}
    assert told == {"run.unreadable"}

    async with harness(plugins=PLUGINS, store=SqliteStore(path), clock=clock) as engine:
        run = await engine.get("w-1")
        await run.signal("go")
        assert (await ended(engine, run)).code == "output-invalid"  # of `b`, the last
        tasks = {task.key: task.status for task in (await run.show()).tasks}
        assert tasks["a"] == "COMPLETED"


class Changed(Language):
    """A later version, that does not know the words of an earlier one."""

    def compile(self, text: str) -> Program:
        raise ExpressionError("that is not said any more", position=3)


async def test_a_plugin_that_changed_its_mind_is_named() -> None:
    store, clock = MemoryStore(), SkipClock()
    async with harness(plugins=PLUGINS, store=store, clock=clock) as engine:
        await engine.register(WAITING, force="x")
        await engine.start("w", 5, id="w-1")
        await engine.settle()
    async with harness(plugins={**PLUGINS, "is": Changed}, store=store, clock=clock) as engine:
        with pytest.raises(PluginError, match="no longer fits the plugins here") as caught:
            await (await engine.get("w-1")).show()
        assert caught.value.code == "plugin-invalid"
        assert "that is not said any more" in caught.value.message


async def test_what_others_owe_to_a_definition_without_its_plugin_waits_for_it() -> None:
    """A child that is not begun, a signal that is not delivered, a schedule that is due: none is refused."""
    store, clock = MemoryStore(), SkipClock()
    child = {
        "id": "child",
        "tasks": {"go": {"type": "signal"}, "a": {"type": "do", "config": {"n": 1}, "after": "go"}},
    }
    parent = {
        "id": "parent",
        "tasks": {
            "t": {"type": "timer", "delay": "1h"},
            "tell": {
                "type": "transform", "after": "t", "set": {"n": "1"},
                "onComplete": [{"signal": {"run": "c-1", "name": "go", "payload": 1}}],
            },
            "c": {"type": "subworkflow", "definition": "quick", "after": "tell"},
        },
    }  # fmt: skip
    quick = {"id": "quick", "tasks": {"a": {"type": "do", "config": {"n": 2}}}}
    async with harness(plugins=PLUGINS, store=store, clock=clock) as engine:
        for each in (child, quick, parent):
            await engine.register(each)
        await engine.start("child", id="c-1")
        await engine.start("parent", id="p-1")
        await engine.schedules.create("often", "quick", every=7200, overlap="allow")
        await engine.settle()
    async with harness(store=store, clock=clock) as engine:
        await engine.skip(hours=3)
        run = await engine.get("p-1")
        assert (await run.show()).status == "RUNNING"
        assert [why.kind for why in await run.why()] == ["child", "delivery"]
        assert len(await engine.list()) == 2
    async with harness(plugins=PLUGINS, store=store, clock=clock) as engine:
        assert (await engine.finish(await engine.get("p-1")))["n"] == 2
        assert (await engine.finish(await engine.get("c-1")))["n"] == 1
        assert len(await engine.list(id_prefix="often/")) == 1
