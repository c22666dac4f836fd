"""The synchronous twin (SPEC 15): the same engine for code without asyncio."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import penstock
from penstock import activity
from penstock.sdk import client
from penstock.sync import stub

GREET = """
id: greet
tasks:
  hello: {do: hello, inputs: {name: {from: input}}}
"""
WAIT = """
id: wait
tasks:
  go: {type: signal, name: go}
  hello: {do: hello, after: [go], inputs: {name: {from: go}}}
outputs: {said: tasks.hello.output}
"""


@activity
def hello(name: str) -> str:
    if name == "nobody":
        raise penstock.Fail("nobody is here", code="nobody")
    return f"hello {name}"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/a.db"


def test_a_run_from_start_to_end(url: str) -> None:
    with penstock.sync.open(url, activities=[hello]) as engine:
        assert engine.register(WAIT).new
        run = engine.start("wait", id="w-1")
        assert run.id == "w-1"
        assert run.status() == "WAITING"
        assert [why.kind for why in run.why()] == ["signal"]
        run.signal("go", "ann")
        assert run.result() == {"said": "hello ann"}
        assert engine.get("w-1").show().status == "COMPLETED"
        assert [row.id for row in engine.list(definition="wait")] == ["w-1"]
        assert engine.data.payload("w-1", 2) == "ann"
        assert engine.stats()["events"] == len(run.history())
        engine.schedules.create("daily", "wait", cron="0 6 * * *")
        assert [each.id for each in engine.schedules.list()] == ["daily"]


def test_errors_come_through_with_their_own_type(url: str) -> None:
    with penstock.sync.open(url, activities=[hello]) as engine:
        engine.register(GREET)
        with pytest.raises(penstock.RunFailed) as failed:
            engine.start("greet", "nobody").result()
        assert failed.value.failure.code == "nobody"
        with pytest.raises(penstock.NotFound):
            engine.get("none")
        with pytest.raises(penstock.DefinitionInvalid):
            engine.register({"id": "x", "tasks": {"a": {"type": "nothing"}}})
        with pytest.raises(TypeError):
            engine.start()
        with pytest.raises(AttributeError):
            engine.nothing


def test_watching_is_a_plain_loop_that_ends(url: str) -> None:
    with penstock.sync.open(url, activities=[hello]) as engine:
        engine.register(WAIT)
        run = engine.start("wait")
        seen: list[str] = []
        for change in run.watch():
            seen.append(change.type)
            if change.type == "run_started":
                run.signal("go", "bob")
        assert seen == [item.type for item in run.history()]
        other = engine.start("wait")
        with other.watch() as changes:
            assert next(changes).type == "run_started"
        with pytest.raises(StopIteration):
            next(changes)


def test_many_threads_share_it(url: str) -> None:
    with penstock.sync.open(url, activities=[hello]) as engine, ThreadPoolExecutor(16) as pool:
        engine.register(GREET)
        said = list(pool.map(lambda n: engine.start("greet", f"n{n}").result(), range(200)))
    assert said == [f"hello n{n}" for n in range(200)]


def test_an_activity_may_use_it(url: str) -> None:
    """A plain `def` runs in a thread, where it may wait."""

    @activity(name="ask")
    def ask(name: str) -> str:
        return engine.start("greet", name).result()

    with penstock.sync.open(url, activities=[hello, ask]) as engine:
        engine.register(GREET)
        engine.register(GREET.replace("id: greet", "id: outer").replace("do: hello", "do: ask"))
        assert engine.start("outer", "eve").result() == "hello eve"


def test_after_the_end_it_says_so(url: str) -> None:
    with penstock.sync.open(url, activities=[hello]) as engine:
        engine.register(WAIT)
        run = engine.start("wait")
        left: list[BaseException] = []

        def wait() -> None:
            try:
                run.result()
            except BaseException as error:
                left.append(error)

        waiting = threading.Thread(target=wait)
        waiting.start()
        time.sleep(0.1)
    waiting.join(5)
    assert isinstance(left[0], penstock.PenstockError)
    with pytest.raises(penstock.PenstockError, match="closed"):
        engine.start("wait")
    engine.close()


def test_what_cannot_be_opened_leaves_no_thread() -> None:
    before = threading.active_count()
    with pytest.raises(penstock.Rejected) as refused:
        penstock.sync.open("nonsense:")
    assert refused.value.code == "store-url"
    with pytest.raises(TypeError, match="activitys"):
        penstock.sync.open("memory:", activitys=[])
    assert threading.active_count() == before


async def test_inside_an_event_loop_it_is_refused(url: str) -> None:
    with pytest.raises(penstock.Rejected, match="event loop") as refused:
        penstock.sync.open(url)
    assert refused.value.code == "sync-in-async"
    engine = await asyncio.to_thread(penstock.sync.open, url)
    with pytest.raises(penstock.Rejected, match="event loop"):
        engine.owner()
    assert (await asyncio.to_thread(engine.owner)).pid == os.getpid()
    await asyncio.to_thread(engine.close)


def test_after_a_fork_it_is_refused_and_the_parent_goes_on(tmp_path: Path) -> None:
    done = script(
        tmp_path,
        """
        import os, sys
        engine = penstock.sync.open("sqlite:///a.db")
        child = os.fork()
        if not child:
            try:
                engine.owner()
            except penstock.Rejected as error:
                print(error.code, flush=True)
            engine.close()
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        print(engine.owner().pid == os.getpid())
        """,
    )
    assert done.split() == ["sync-forked", "True"]
    assert owner_pid(tmp_path) == 0


def test_a_program_that_forgets_to_close_ends_cleanly(tmp_path: Path) -> None:
    script(tmp_path, 'engine = penstock.sync.open("sqlite:///a.db")\nprint(engine.owner().pid)')
    assert owner_pid(tmp_path) == 0, "released, so that nothing has to be recovered"


def test_ctrl_c_ends_a_wait_and_stops_cleanly(tmp_path: Path) -> None:
    code = f"""
        with penstock.sync.open("sqlite:///a.db") as engine:
            engine.register({WAIT.replace("do: hello", "do: hello")!r})
            print("waiting", flush=True)
            engine.start("wait").result()
        """
    process = subprocess.Popen(
        [sys.executable, "-c", "import penstock\n" + textwrap.dedent(code)],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert owner_pid(tmp_path) == 0


def script(folder: Path, code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", "import penstock\n" + textwrap.dedent(code)],
        cwd=folder, capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def owner_pid(folder: Path) -> int:
    with penstock.sync.open(f"sqlite:///{folder}/a.db", execute=False) as engine:
        owner = engine.owner()
    assert owner is not None
    return owner.pid


def test_the_twin_has_all_that_the_engine_has() -> None:
    for cls in stub.classes():
        twin = getattr(penstock.sync, cls.__name__, None)
        if twin is None:
            continue
        for name, member in inspect.getmembers(cls, inspect.isfunction):
            if not name.startswith("_") and name != "close":
                assert inspect.signature(getattr(twin, name)) == inspect.signature(member)
    assert {cls.__name__ for cls in stub.classes()} >= {
        "Engine",
        "Run",
        "Data",
        "Projection",
        "Schedules",
    }
    assert client.Engine in stub.classes()


def test_the_stub_for_editors_is_up_to_date() -> None:
    assert stub.PLACE.read_text() == stub.written(), "run `make docs`"
