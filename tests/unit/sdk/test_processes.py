"""LocalActivities: attempts in child processes, which may do what they like."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import Rejected
from penstock.model.definition import Retry
from penstock.model.job import Broken, Cut, Done
from penstock.sdk import child, processes
from penstock.sdk.worker import CANCEL_GRACE_SECONDS
from penstock.sdk.workflow import activity
from unit.sdk import samples
from unit.sdk.desk import Desk, ManualClock, until

MakeDesk = Callable[..., Desk]
SAMPLES = [each for each in vars(samples).values() if hasattr(each, "__penstock_activity__")]


@pytest.fixture
def children(desk: MakeDesk) -> Desk:
    return desk(*SAMPLES, processes=2)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def numbers(note: Path) -> list[int]:
    return [int(each) for each in note.read_text().split()] if note.exists() else []


async def written(note: Path) -> list[int]:
    await until(lambda: numbers(note))
    return numbers(note)


async def test_a_child_computes_and_is_used_again(children: Desk) -> None:
    first = await children.value("pid", [None])

    assert first != os.getpid()
    assert await children.value("pid", [None]) == first
    assert await children.value("norm", {"point": {"x": 3, "y": 4}}) == 25
    assert await children.value("echo", {"what": "x" * 900_000}) == "x" * 900_000
    assert await children.value("environment") == [sys.argv, os.getcwd(), "", True]


async def test_what_an_activity_raises_comes_back_and_its_child_stays(children: Desk) -> None:
    before = await children.value("pid", [None])
    for how, code, final, message in (
        ("raise", "error", False, "wrong"),
        ("fail", "closed", True, "no"),
        ("sys.exit", "error", False, "called sys.exit(7)"),
        ("object", "payload-invalid", True, "cannot be kept"),
    ):
        outcome = await children.failure("misbehave", [how])
        assert (outcome.failure.code, outcome.final, outcome.died) == (code, final, False)
        assert message in outcome.failure.message
        if how == "raise":
            assert 'raise ValueError("wrong")' in outcome.failure.trace
            assert "sdk/child.py" not in outcome.failure.trace
    assert await children.value("pid", [None]) == before


async def test_wrong_arguments_and_secrets_are_as_elsewhere(desk: MakeDesk) -> None:
    children = desk(*SAMPLES, secrets={"KEY": "s3cret"})
    wrong = await children.failure("echo", {"wht": 1})
    assert (wrong.failure.code, wrong.final) == ("arguments-invalid", True)
    assert "'wht'" in wrong.failure.message
    unsent = await children.failure("echo", {"what": object()})
    assert (unsent.failure.code, unsent.final) == ("arguments-invalid", True)

    told = await children.failure("leak", secrets=(("password", "KEY"),))
    assert told.failure.message == "wrong password ***"


@pytest.mark.parametrize(
    ("how", "message", "details"),
    [
        ("exit", "ended with exit status 3", {"exit_status": 3}),
        ("clean exit", "ended with exit status 0", {"exit_status": 0}),
        ("kill", "was killed by SIGKILL", {"signal": "SIGKILL"}),
        ("segfault", "was killed by SIGSEGV", {"signal": "SIGSEGV"}),
        ("fork and exit", "ended with exit status 5", {"exit_status": 5}),
    ],
)
async def test_a_child_that_dies_harms_only_its_own_attempt(
    desk: MakeDesk, how: str, message: str, details: Any
) -> None:
    @activity(retry=Retry(attempts=9))
    async def other() -> None: ...

    children = desk(*SAMPLES, other, processes=2)
    dying, beside = children.begin("misbehave", [how]), children.begin("beats", {"pages": 50})
    outcome = await dying

    assert isinstance(outcome, Broken)
    assert (outcome.failure.code, outcome.died, outcome.final) == ("child-died", True, False)
    assert outcome.failure.message == f"the child process of activity `misbehave` {message}"
    assert outcome.failure.details == details
    assert isinstance(await beside, Done)
    assert await children.value("misbehave", ["nicely"]) == "nicely"


async def test_a_child_that_closes_its_socket_is_as_good_as_dead(children: Desk) -> None:
    outcome = await children.failure("misbehave", ["hang up"])

    assert (outcome.failure.code, outcome.died) == ("child-died", True)
    assert await children.value("misbehave", ["nicely"]) == "nicely"


async def test_what_a_dead_child_has_started_ends_with_it(children: Desk, tmp_path: Path) -> None:
    note = tmp_path / "note"
    await children.failure("orphan", {"note": str(note)})
    pids = await written(note)

    await until(lambda: not any(map(alive, pids)))


async def test_an_idle_child_that_dies_is_replaced(children: Desk) -> None:
    before = await children.value("pid", [None])
    os.kill(before, signal.SIGKILL)
    await until(lambda: children.worker._processes.count == 0)

    assert await children.value("pid", [None]) != before


async def test_a_child_past_its_timeout_is_killed_with_all_it_has_started(
    children: Desk, clock: ManualClock, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    reported = children.begin("spin", {"note": str(note), "grandchild": True})
    pids = await written(note)
    clock.advance(5)
    outcome = await reported

    assert isinstance(outcome, Broken)
    assert (outcome.failure.code, outcome.died) == ("timeout", False)
    assert "activity `spin` did not end within 5 s" in outcome.failure.message
    await until(lambda: not any(map(alive, pids)))
    assert await children.value("pid", [None]) not in pids


async def test_the_time_of_an_attempt_begins_with_its_function(
    children: Desk, clock: ManualClock
) -> None:
    reported = children.begin("echo", {"what": 1}, start_to_close=1.0)
    clock.advance(30)  # while the child is still being started

    assert isinstance(await reported, Done)


async def test_a_child_that_never_gets_ready_is_given_up(
    desk: MakeDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "START_SECONDS_MAX", 0.001)
    outcome = await desk(*SAMPLES).failure("pid", [None])

    assert (outcome.failure.code, outcome.died) == ("child-died", True)
    assert "was not ready within 0.001 s" in outcome.failure.message


async def test_heartbeats_and_the_attempt_cross_the_pipe(children: Desk) -> None:
    fields = {"run_id": "r", "key": "k", "attempt": 2, "progress": 3}

    assert await children.value("beats", {"pages": 6}, **fields) == ["r", "k", 2, "r/1/k", 6]
    assert children.beats[-1] == ("k", 6)
    assert children.beats == sorted(children.beats)


async def test_a_silent_child_is_killed(children: Desk, clock: ManualClock, tmp_path: Path) -> None:
    note = tmp_path / "note"
    reported = children.begin("silent", {"note": str(note)})
    await until(note.exists)
    clock.advance(10)

    outcome = await reported
    assert isinstance(outcome, Broken)
    assert outcome.failure.code == "heartbeat-timeout"


async def test_a_cancelled_child_may_tidy_up_and_is_replaced(
    children: Desk, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    before = await children.value("pid", [None])
    reported = children.begin("tidy", {"note": str(note)}, key="t")
    await until(note.exists)
    children.worker.cancel("run", "t", 1)
    outcome = await asyncio.wait_for(reported, 10)

    assert isinstance(outcome, Broken)
    assert (outcome.failure.code, outcome.died) == ("cancelled", False)
    assert note.read_text() == "cancelled=True"
    assert await children.value("pid", [None]) != before
    await until(lambda: not alive(before))


async def test_a_child_that_cannot_be_cancelled_is_killed_after_the_grace(
    children: Desk, clock: ManualClock, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    reported = children.begin("deaf", {"note": str(note)}, key="d")
    await until(note.exists)
    children.worker.cancel("run", "d", 1)
    clock.advance(CANCEL_GRACE_SECONDS - 1)
    await asyncio.sleep(0.05)
    assert not reported.done()
    clock.advance(1)

    outcome = await reported
    assert isinstance(outcome, Broken)
    assert outcome.failure.code == "cancelled"
    await until(lambda: children.worker._processes.count == 0)


async def test_what_is_cancelled_before_a_child_has_it_is_never_called(
    desk: MakeDesk, tmp_path: Path
) -> None:
    children = desk(*SAMPLES, processes=1)
    note = tmp_path / "note"
    busy = children.begin("pid", [None])
    waiting = children.begin("spin", {"note": str(note)}, key="s")
    assert children.worker.waiting_count == 1
    children.worker.cancel("run", "s", 1)

    outcome = await waiting
    assert isinstance(outcome, Broken)
    assert outcome.failure.code == "cancelled"
    assert isinstance(await busy, Done)
    assert await children.value("pid", [None])
    assert not note.exists()


async def test_a_cancel_while_the_child_is_being_started_is_not_lost(
    children: Desk, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    reported = children.begin("deaf", {"note": str(note)}, key="d")
    children.worker.cancel("run", "d", 1)
    outcome = await asyncio.wait_for(reported, 10)

    assert isinstance(outcome, Broken)
    assert (outcome.failure.code, outcome.died) == ("cancelled", False)
    assert not note.exists()


async def test_signals_to_the_whole_group_are_left_to_the_parent(children: Desk) -> None:
    before = await children.value("pid", [None])
    for number in (signal.SIGTERM, signal.SIGINT):
        assert await children.value("signalled", [number]) == "unharmed"
        os.kill(before, number)
    assert await children.value("pid", [None]) == before


async def test_a_child_that_leaves_its_group_is_killed_all_the_same(
    children: Desk, clock: ManualClock, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    reported = children.begin("leaves", {"note": str(note)}, start_to_close=1.0)
    pids = await written(note)
    clock.advance(1)
    await reported
    await until(lambda: not any(map(alive, pids)))


async def test_a_flood_of_heartbeats_does_not_drown_the_loop(children: Desk) -> None:
    assert (await children.value("beats", {"pages": 20_000}))[-1] == 20_000
    assert children.beats[-1][1] == 20_000
    assert len(children.beats) < 20_000


async def test_those_that_wait_for_a_child_get_it_in_order(desk: MakeDesk) -> None:
    children = desk(*SAMPLES, processes=1)
    await asyncio.gather(*(children.begin("pid", [None], key=str(n)) for n in range(9)))

    assert [int(job.key) for job, _ in children.reports] == list(range(9))


async def test_children_are_bounded(desk: MakeDesk) -> None:
    children = desk(*SAMPLES, processes=2)
    outcomes = [children.begin("pid", [None]) for _ in range(20)]
    assert children.worker.waiting_count == 18
    await asyncio.gather(*outcomes)

    assert len({each.result().output for each in outcomes}) <= 2  # type: ignore[union-attr]
    assert children.worker._processes.count <= 2


async def test_a_child_inherits_no_file_of_its_parent(children: Desk, tmp_path: Path) -> None:
    with (tmp_path / "store.db-lock").open("w") as lock:
        os.set_inheritable(lock.fileno(), True)
        found = await children.value("files")

    assert not any("store.db-lock" in each for each in found)
    assert len([each for each in found if each.startswith("socket:")]) == 1


async def test_closing_ends_the_children(desk: MakeDesk, tmp_path: Path) -> None:
    children = desk(*SAMPLES, processes=2)
    note = tmp_path / "note"
    busy = children.begin("spin", {"note": str(note)})
    [spinning] = await written(note)
    idle = await children.value("pid", [None])
    await children.worker.close(drain_seconds=0)

    assert isinstance(busy.result(), Cut)
    assert not alive(spinning)
    assert not alive(idle)
    assert children.worker._processes.count == 0


async def test_a_system_without_more_processes_is_no_fault_of_the_activity(
    desk: MakeDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    children = desk(*SAMPLES, processes=2)
    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", refuse)
        outcome = await children.failure("pid", [None])
    assert (outcome.failure.code, outcome.died, outcome.final) == (
        "child-not-started",
        False,
        False,
    )

    assert await children.value("pid", [None])
    monkeypatch.setattr(subprocess, "Popen", refuse)
    both = [
        children.begin("pid", [None]) for _ in range(2)
    ]  # the second waits for the one that exists
    assert all(isinstance(each, Done) for each in await asyncio.gather(*both))


SCRIPT = """
import asyncio, os, signal, sys
from unit.sdk.desk import Desk, ManualClock
from penstock.sdk.worker import LocalActivities
from penstock.sdk.workflow import Registry, activity

@activity(cpu=True)
def double(n):
    return 2 * n

@activity(cpu=True)
def spin():
    print(os.getpid(), flush=True)
    while True:
        pass

async def main():
    desk = Desk(LocalActivities(Registry([double, spin]), ManualClock(), watch=False))
    if "crash" in sys.argv:
        desk.begin("spin")
        await asyncio.sleep(60)
    print(await desk.run("double", [21]))
    await desk.worker.close(drain_seconds=0)

GUARD
    asyncio.run(main())
"""
GUARDED = 'if __name__ == "__main__":'
UNGUARDED = "if True:"


def script(folder: Path, guard: str) -> Path:
    path = folder / "app.py"
    path.write_text(SCRIPT.replace("GUARD", guard))
    return path


def environ() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)}


def run_script(path: Path) -> str:
    done = subprocess.run(
        [sys.executable, path.name],
        cwd=path.parent,
        env=environ(),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_activity_may_live_in_the_script_itself(tmp_path: Path) -> None:
    assert run_script(script(tmp_path, GUARDED)) == "Done(output=b'42')\n"


def test_a_script_without_a_guard_is_told_so(tmp_path: Path) -> None:
    told = run_script(script(tmp_path, UNGUARDED))

    assert "code='unguarded-main'" in told
    assert "final=True" in told
    assert '`if __name__ == "__main__":`' in told


def killed_parent(path: Path) -> int:
    """The child that it leaves behind."""
    command = [sys.executable, str(path), "crash"]
    parent = subprocess.Popen(command, env=environ(), stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent, parent.stdout:
        pid = int(parent.stdout.readline())
        assert alive(pid)
        parent.kill()
    return pid


async def test_children_end_with_a_parent_that_was_killed(tmp_path: Path) -> None:
    path = script(tmp_path, GUARDED)
    pid = killed_parent(path)
    await until(lambda: not alive(pid))


def test_a_module_that_was_loaded_by_path_is_found_by_path(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "shop.py").write_text("def double(n):\n    return 2 * n\n")
    path = tmp_path / "app.py"
    path.write_text(
        """
import asyncio, importlib.util, sys
from unit.sdk.desk import Desk, ManualClock
from penstock.sdk.worker import LocalActivities
from penstock.sdk.workflow import Registry, activity

async def main():
    spec = importlib.util.spec_from_file_location("loaded.shop", "elsewhere/shop.py")
    shop = sys.modules["loaded.shop"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(shop)
    desk = Desk(LocalActivities(Registry([activity(cpu=True)(shop.double)]), ManualClock(), watch=False))
    print(await desk.run("double", [21]))
    await desk.worker.close(drain_seconds=0)

if __name__ == "__main__":
    asyncio.run(main())
"""
    )
    assert run_script(path) == "Done(output=b'42')\n"


async def test_a_function_that_a_child_cannot_import_is_a_failure(
    children: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples.echo, "__module__", "no.such.module")
    outcome = await children.failure("echo", {"what": 1})

    assert (outcome.failure.type, outcome.died) == ("ImportError", False)
    assert "could not import no.such.module.echo" in outcome.failure.message


def test_an_engine_is_refused_only_while_a_script_is_imported(
    monkeypatch: pytest.MonkeyPatch, clock: ManualClock
) -> None:
    child.refuse_in_child()
    monkeypatch.setattr(child, "_importing_main", True)
    with pytest.raises(Rejected, match="imported the script"):
        child.refuse_in_child()
