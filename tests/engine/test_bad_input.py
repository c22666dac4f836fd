"""Bad input, each with a clear error, its place, and nothing changed (issue "The heart", SPEC 4.10)."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import activity
from penstock.errors import StoreFull, StoreLocked, StoreTooNew
from penstock.testing.harness import Harness, harness


@activity
async def echo(value: Any = None) -> Any:
    return value


@activity
async def unserializable() -> Any:
    return object()


@activity
async def raises() -> None:
    raise ValueError("no such card")


@activity
async def hangs() -> None:
    await asyncio.Event().wait()


@activity
async def exits() -> None:
    sys.exit(3)


@activity
async def stubborn() -> str:
    """Returns after its timeout, whatever it is told."""
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.Event().wait()
    return "too late"


ACTIVITIES = [echo, unserializable, raises, hangs, exits, stubborn]


@pytest.fixture
async def engine() -> AsyncIterator[Harness]:
    async with harness(activities=ACTIVITIES) as made:
        yield made


def one_task(task: str, extra: str = "") -> str:
    return f"id: one\n{extra}\ntasks:\n  t: {task}\n"


async def failure_of(engine: Harness, document: str, input: Any = None) -> Any:
    await engine.register(document)
    run = await engine.start("one", input)
    with pytest.raises(penstock.RunFailed) as caught:
        await engine.finish(run)
    return caught.value.failure


@pytest.mark.parametrize(
    ("document", "code", "line"),
    [
        ("id: d\ntasks:\n  a: {do: echo}\n  b: {do: echo, afetr: [a]}\n", "unknown-field", 4),
        ("id: d\ntasks:\n  a: {do: echo, retry: often}\n", "", 3),
        ("id: d\ntasks:\n  a: {do: echo}\nlinks:\n  - {from: a, to: shp}\n", "dangling-link", 5),
        ("id: d\ntasks:\n  a: {do: echo}\n  a: {do: echo}\n", "duplicate", 4),
        ("id: d\ntasks:\n  a: {do: nobody}\n", "unknown-activity", 3),
        ("id: d\ntasks:\n  a: {do: echo, inputs: {valu: {value: 1}}}\n", "unknown-name", 3),
        (
            "id: d\ntasks:\n  a: {do: echo}\n  b: {do: echo}\nlinks:\n  - {from: a, to: b}\n  - {from: b, to: a}\n",
            "",
            0,
        ),
        (
            "id: d\ntasks:\n  s: {type: start}\n  a: {do: echo}\n  b: {do: echo}\n  e: {type: end}\nlinks:\n"
            "  - {from: s, to: a}\n  - {from: s, to: b}\n"
            "  - {from: a, to: b, condition: 'true'}\n  - {from: b, to: a, condition: 'true'}\n  - {from: b, to: e}\n",
            "cycle-irreducible",
            0,
        ),
    ],
)
async def test_a_bad_definition_is_refused_with_its_place(
    engine: Harness, document: str, code: str, line: int
) -> None:
    with pytest.raises(penstock.DefinitionInvalid) as caught:
        await engine.register(document)

    findings = caught.value.findings
    assert findings
    assert any(f.code.startswith(code) for f in findings), findings
    if line:
        assert any(f.place.line == line for f in findings), findings
    assert await engine.core.store.definitions() == []


async def test_a_file_that_does_not_exist_is_said_so(engine: Harness) -> None:
    with pytest.raises(penstock.PenstockError, match=r"nowhere\.yaml"):
        await engine.register("nowhere.yaml")


async def test_input_against_the_schema_is_refused_and_nothing_is_started(engine: Harness) -> None:
    await engine.register(
        one_task(
            "{do: echo}",
            "inputSchema: {type: object, required: [card], properties: {card: {type: string}}}",
        )
    )

    with pytest.raises(penstock.Rejected, match=r"card") as caught:
        await engine.start("one", {"card": 4})

    assert caught.value.code == "input-invalid"
    assert await engine.list() == []


async def test_an_input_that_cannot_be_kept_is_refused(engine: Harness) -> None:
    await engine.register(one_task("{do: echo}"))

    with pytest.raises(penstock.PenstockError) as caught:
        await engine.start("one", {"x": object()})
    assert caught.value.code == "payload-invalid"
    with pytest.raises(penstock.PenstockError) as caught:
        await engine.start("one", "x" * (65 << 20))
    assert caught.value.code == "payload-too-large"
    assert await engine.list() == []


async def test_an_unknown_definition_is_said_so(engine: Harness) -> None:
    await engine.register(one_task("{do: echo}"))

    with pytest.raises(penstock.NotFound, match="oen") as caught:
        await engine.start("oen")
    assert "registered: one" in (caught.value.hint or "")


async def test_a_result_that_cannot_be_serialized_fails_its_task(engine: Harness) -> None:
    failure = await failure_of(engine, one_task("{do: unserializable, retry: 5}"))

    assert failure.code == "payload-invalid"
    assert failure.key == "t"


async def test_an_exception_is_kept_with_its_type_and_message(engine: Harness) -> None:
    failure = await failure_of(engine, one_task("{do: raises, retry: 2}"))

    assert (failure.type, failure.message) == ("ValueError", "no such card")


async def test_an_activity_that_hangs_is_timed_out(engine: Harness) -> None:
    failure = await failure_of(engine, one_task("{do: hangs, timeout: 30s}"))

    assert failure.code == "timeout"
    assert "30" in failure.message


async def test_an_activity_that_exits_harms_only_its_task(engine: Harness) -> None:
    failure = await failure_of(engine, one_task("{do: exits}"))

    assert failure.type == "SystemExit"
    await engine.register("id: two\ntasks:\n  t: {do: echo, inputs: {value: {value: 7}}}\n")
    assert await engine.finish(await engine.start("two")) == 7


async def test_a_result_after_the_timeout_is_not_taken(engine: Harness) -> None:
    failure = await failure_of(engine, one_task("{do: stubborn, timeout: 5s}"))

    assert failure.code == "timeout"


async def test_an_expression_that_fails_fails_its_task_without_an_attempt(engine: Harness) -> None:
    failure = await failure_of(
        engine, one_task("{do: echo, inputs: {value: {template: '${input.a.b}'}}}"), {"a": {}}
    )

    assert failure.code == "expression-failed"
    assert "inputs of `t`" in failure.message


async def test_an_expression_that_costs_too_much_fails_its_task(engine: Harness) -> None:
    failure = await failure_of(
        engine,
        one_task(
            "{type: transform, set: {n: 'input.xs.map(a, input.xs.map(b, input.xs.map(c, a + b + c))).size()'}}"
        ),
        {"xs": list(range(100))},
    )

    assert failure.code == "expression-cost"


async def test_a_signal_to_a_finished_run_is_refused(engine: Harness) -> None:
    await engine.register(one_task("{type: signal, name: go}"))
    run = await engine.start("one")
    await run.signal("go", 1)
    assert await engine.finish(run) == 1

    with pytest.raises(penstock.Rejected) as caught:
        await run.signal("go", 2)
    assert caught.value.code == "run-closed"


async def test_an_undeclared_signal_is_refused_with_what_was_meant(engine: Harness) -> None:
    await engine.register(one_task("{type: signal, name: approve}"))
    run = await engine.start("one")

    with pytest.raises(penstock.Rejected) as caught:
        await run.signal("aprove", True)
    assert caught.value.code == "signal-undeclared"
    assert "approve" in (caught.value.hint or "")
    assert await engine.types(run) == ["run_started"]


async def test_a_second_start_with_the_same_id_attaches_or_is_refused(engine: Harness) -> None:
    await engine.register(one_task("{type: signal, name: go}"))
    first = await engine.start("one", {"a": 1}, id="order-7")

    again = await engine.start("one", {"a": 1}, id="order-7")
    assert again.id == first.id
    with pytest.raises(penstock.Rejected) as caught:
        await engine.start("one", {"a": 2}, id="order-7")
    assert caught.value.code == "id-taken"
    assert len(await first.history()) == 1


async def test_commands_to_a_run_that_does_not_exist_say_so(engine: Harness) -> None:
    with pytest.raises(penstock.NotFound):
        await engine.get("nobody")


# --- the store -----------------------------------------------------------------------------------------------


async def test_a_locked_database_is_waited_for_from_the_loop_and_then_said(tmp_path: Path) -> None:
    from penstock.adapters.sqlite.store import SqliteStore

    path = tmp_path / "shop.db"
    async with harness(
        activities=ACTIVITIES, store=SqliteStore(path, busy_seconds_max=0.5)
    ) as engine:
        await engine.register(one_task("{do: echo}"))
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0.01)

        ticking = asyncio.create_task(tick())
        with pytest.raises(StoreLocked):
            await engine.start("one", id="a")
        assert ticks > 10  # the loop went on meanwhile
        other.execute("ROLLBACK")
        other.close()
        run = await engine.start("one", id="a")
        assert await run.result() is None
        ticking.cancel()


class SmallDisk:
    """A tmpfs of 1 MiB where we may mount one; else SQLite's own page limit, which gives the same error."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.mounted = self._run("-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)) == 0

    @staticmethod
    def _run(*words: str) -> int:
        return subprocess.run(["mount", *words], capture_output=True, check=False).returncode

    def limit(self, engine: Any, pages: int) -> None:
        if not self.mounted:
            engine._runs.engine.store._db.writer.execute(f"PRAGMA max_page_count={pages}")

    def grow(self, engine: Any) -> None:
        if self.mounted:
            assert self._run("-o", "remount,size=64m", str(self.folder)) == 0
        self.limit(engine, 100_000)

    def close(self) -> None:
        if self.mounted:
            subprocess.run(["umount", "-l", str(self.folder)], check=False)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    disk = SmallDisk(tmp_path / "small")
    yield disk
    disk.close()


async def fill(engine: penstock.Engine, started: list[str]) -> None:
    for n in range(2000):
        started.append((await engine.start("one", "x" * 2000, id=f"r{n}")).id)


async def test_a_full_disk_refuses_and_loses_nothing(small_disk: SmallDisk) -> None:
    async with penstock.open(
        f"sqlite:///{small_disk.folder}/shop.db", activities=ACTIVITIES
    ) as engine:
        await engine.register(one_task("{type: signal, name: go}"))
        small_disk.limit(engine, 60)
        started: list[str] = []
        with pytest.raises(StoreFull):
            await fill(engine, started)
        assert started
        small_disk.grow(engine)
        rows = await engine.list(limit=5000)
        assert {row.id for row in rows} >= set(started)
        run = await engine.start("one", id="after")
        await run.signal("go", 1)
        assert await run.result() == 1
        assert await engine.audit() == []


async def test_a_database_of_a_newer_version_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    async with penstock.open(f"sqlite:///{path}"):
        pass
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 999")
    connection.close()
    before = path.read_bytes()

    with pytest.raises(StoreTooNew):
        async with penstock.open(f"sqlite:///{path}"):
            pass
    assert path.read_bytes() == before


async def test_a_store_url_that_means_nothing_is_said_so() -> None:
    with pytest.raises(penstock.Rejected, match="mongodb"):
        async with penstock.open("mongodb://x"):
            pass


def test_importing_penstock_is_quick_and_starts_nothing() -> None:
    began = time.perf_counter()
    code = "import penstock, sys; assert not {'httpx', 'rich', 'matplotlib'} & set(sys.modules), sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert time.perf_counter() - began < 30


async def test_an_id_or_a_time_of_another_type(engine: Harness) -> None:
    await engine.register({"id": "one", "tasks": {"a": {"do": "echo"}}})
    for options, code in (
        ({"id": 7}, "id-invalid"),
        ({"id": b"x"}, "id-invalid"),
        ({"delay": "x"}, "time-invalid"),
        ({"delay": True}, "time-invalid"),
        ({"deadline": "x"}, "time-invalid"),
        ({"deadline": 12.5}, "time-invalid"),
    ):
        given: Any = options
        with pytest.raises(penstock.Rejected) as caught:
            await engine.start("one", **given)
        assert caught.value.code == code
    assert await engine.list() == []
