"""LocalActivities: attempts in the loop and in threads."""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import logging
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from penstock.errors import Fail, PayloadInvalid, Rejected
from penstock.model.definition import Retry
from penstock.model.job import Broken, Cut, Done
from penstock.model.payload import decode_payload
from penstock.sdk.worker import CANCEL_GRACE_SECONDS, current
from penstock.sdk.workflow import activity
from unit.sdk.desk import Desk, ManualClock, until

MakeDesk = Callable[..., Desk]
RETRY = Retry(attempts=7)


@activity(retry=RETRY)
async def in_loop(what: Any = None, extra: Any = None) -> Any:
    return _do(what)


@activity(retry=RETRY)
def in_thread(what: Any = None, extra: Any = None) -> Any:
    return _do(what)


class Coded(Exception):
    code = "no-money"

    def __init__(self, message: str, details: Any) -> None:
        super().__init__(message)
        self.details = details


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError


def _do(what: Any) -> Any:
    match what:
        case "fail":
            raise Fail("not today", code="closed", details={"until": 9})
        case "chain":
            try:
                raise KeyError("inner")
            except KeyError as error:
                raise ValueError("outer") from error
        case "coded":
            raise Coded("broke", {"cents": 0})
        case "odd details":
            raise Coded("broke", object())
        case "surrogate":
            raise ValueError("\ud800")
        case "unspeakable":
            raise Unspeakable
        case "exit":
            sys.exit("enough")
        case "interrupt":
            raise KeyboardInterrupt
        case "cancelled":
            raise asyncio.CancelledError
        case "group":
            raise BaseExceptionGroup("group", [Fail("alone")])
        case "object":
            return object()
        case "nan":
            return {"x": [float("nan")]}
        case "large":
            return "x" * (65 << 20)
        case "type error":
            return 1 + "1"  # type: ignore[operator]
        case _:
            return what


both = pytest.mark.parametrize("name", ["in_loop", "in_thread"])


@pytest.fixture
def either(desk: MakeDesk) -> Desk:
    return desk(in_loop, in_thread)


@both
async def test_a_result_comes_back_as_json(either: Desk, name: str) -> None:
    assert await either.value(name, {"what": {"a": [1, None]}}) == {"a": [1, None]}
    assert await either.value(name, [[1]]) == [1]
    assert await either.value(name, "text") == "text"
    assert await either.value(name) is None


@both
@pytest.mark.parametrize(
    ("what", "code", "type", "message"),
    [
        ("chain", "error", "ValueError", "outer"),
        ("coded", "no-money", "Coded", "broke"),
        ("odd details", "no-money", "Coded", "broke"),
        ("surrogate", "error", "ValueError", "?"),
        ("unspeakable", "error", "Unspeakable", "an exception whose text could not be read"),
        ("exit", "error", "SystemExit", "called sys.exit('enough')"),
        ("interrupt", "error", "KeyboardInterrupt", ""),
        ("cancelled", "error", "CancelledError", ""),
        ("type error", "error", "TypeError", "unsupported operand"),
    ],
)
async def test_whatever_is_raised_is_a_failure_that_may_be_retried(
    either: Desk, name: str, what: str, code: str, type: str, message: str
) -> None:
    outcome = await either.failure(name, {"what": what})

    assert (outcome.failure.code, outcome.failure.type) == (code, type)
    assert message in outcome.failure.message
    assert (outcome.retry, outcome.final, outcome.died) == (RETRY, False, False)
    assert await either.value(name, {"what": "alive"}) == "alive"


@both
async def test_a_failure_tells_where_and_why(either: Desk, name: str) -> None:
    failure = (await either.failure(name, {"what": "chain"})).failure

    assert failure.cause is not None
    assert (failure.cause.type, failure.cause.message) == ("KeyError", "'inner'")
    assert 'raise ValueError("outer")' in failure.trace
    assert "sdk/worker.py" not in failure.trace
    assert (await either.failure(name, {"what": "coded"})).failure.details == {"cents": 0}
    assert "object object" in (await either.failure(name, {"what": "odd details"})).failure.details


async def test_a_trace_is_bounded(desk: MakeDesk) -> None:
    async def deep(n: int) -> None:
        if n:
            await deep(n - 1)
        raise ValueError("x" * 100_000)

    failure = (await desk(deep).failure("deep", {"n": 300})).failure

    assert len(failure.trace) <= 4000
    assert len(failure.message) <= 4000
    assert "raise ValueError" in failure.trace


@both
@pytest.mark.parametrize("what", ["fail", "group"])
async def test_fail_is_final(either: Desk, name: str, what: str) -> None:
    outcome = await either.failure(name, {"what": what})

    assert outcome.final
    if what == "fail":
        failure = outcome.failure
        assert (failure.code, failure.message, failure.details) == (
            "closed",
            "not today",
            {"until": 9},
        )


@both
@pytest.mark.parametrize(
    ("what", "code", "message"),
    [
        ("object", "payload-invalid", "cannot be kept: $ cannot be kept as JSON"),
        ("nan", "payload-invalid", "cannot be kept: $.x[0] is nan"),
        ("large", "payload-too-large", "68,157,442 bytes"),
    ],
)
async def test_a_result_that_cannot_be_kept_is_final(
    either: Desk, name: str, what: str, code: str, message: str
) -> None:
    outcome = await either.failure(name, {"what": what})

    assert (outcome.failure.code, outcome.final) == (code, True)
    assert message in outcome.failure.message
    assert f"`{name}`" in outcome.failure.message


async def test_a_result_that_cannot_even_be_read_is_final(desk: MakeDesk) -> None:
    @dataclasses.dataclass
    class Trap:
        @property
        def value(self) -> int:
            raise ZeroDivisionError("trap")

        value_: int = 0

    Trap.__dataclass_fields__["value_"].name = "value"

    async def trapped() -> Any:
        return [Trap(), float("nan")]

    outcome = await desk(trapped).failure("trapped")
    assert (outcome.failure.code, outcome.final) == ("payload-invalid", True)
    assert "trap" in outcome.failure.message


async def test_an_awaitable_from_a_plain_function_is_explained(desk: MakeDesk) -> None:
    def forgot() -> Any:
        return in_loop("x")

    outcome = await desk(forgot).failure("forgot")

    assert (outcome.failure.code, outcome.final) == ("payload-invalid", True)
    assert "declare it `async def`" in outcome.failure.message


@both
async def test_wrong_arguments_are_final_and_name_the_parameter(either: Desk, name: str) -> None:
    outcome = await either.failure(name, {"wht": 1})

    assert (outcome.failure.code, outcome.final) == ("arguments-invalid", True)
    assert f"activity `{name}`: no parameter is named 'wht'" in outcome.failure.message
    assert outcome.failure.details == {"parameter": "wht"}


async def test_an_unknown_activity_is_a_final_failure(either: Desk) -> None:
    outcome = await either.failure("nothing")

    assert (outcome.failure.code, outcome.final) == ("unknown-activity", True)
    assert either.worker.get("nothing") is None


async def test_a_plain_function_runs_beside_the_loop_and_a_coroutine_in_it(desk: MakeDesk) -> None:
    async def loop_ident() -> int:
        return threading.get_ident()

    def thread_ident() -> int:
        return threading.get_ident()

    both = desk(loop_ident, thread_ident)
    assert await both.value("loop_ident") == threading.get_ident()
    assert await both.value("thread_ident") != threading.get_ident()


async def test_what_is_built_in_is_served_and_not_listed(either: Desk) -> None:
    assert sorted(either.worker.names()) == ["in_loop", "in_thread"]
    http = either.worker.get("http")
    assert http is not None
    assert http.kind == "loop"


# What the activity sees.


async def _seen() -> Any:
    return _look()


def _look() -> Any:
    attempt = current()
    return [attempt.run_id, attempt.key, attempt.attempt, attempt.idempotency_key, attempt.progress]


async def test_an_activity_sees_its_attempt(desk: MakeDesk) -> None:
    def seen_in_thread() -> Any:
        return _look()

    made = desk(_seen, seen_in_thread)
    fields = {"run_id": "r", "key": "k", "attempt": 3, "progress": {"page": 4}}
    expected = ["r", "k", 3, "r/1/k", {"page": 4}]

    assert await made.value("_seen", **fields) == expected
    assert await made.value("seen_in_thread", **fields) == expected
    with pytest.raises(Rejected, match="no activity is being executed here"):
        current()


async def test_a_thread_keeps_nothing_of_the_attempt_before(desk: MakeDesk) -> None:
    mine: contextvars.ContextVar[int] = contextvars.ContextVar("mine", default=0)

    def counts() -> int:
        mine.set(mine.get() + 1)
        return mine.get()

    made = desk(counts, threads=1)
    assert [await made.value("counts") for _ in range(3)] == [1, 1, 1]


async def test_heartbeats_reach_the_listeners(desk: MakeDesk) -> None:
    async def beats() -> None:
        progress = {"page": 1}
        current().heartbeat(progress)
        progress["page"] = 2
        current().heartbeat(progress)
        current().heartbeat()

    def beats_in_thread() -> Any:
        for page in range(1000):
            current().heartbeat({"page": page})
        return current().progress

    made = desk(beats, beats_in_thread)
    made.worker.on_heartbeat(lambda job, progress: 1 / 0)
    await made.run("beats", key="b")
    assert made.beats == [("b", {"page": 1}), ("b", {"page": 2}), ("b", None)]

    made.beats.clear()
    assert await made.value("beats_in_thread", key="t") == {"page": 999}
    assert made.beats[-1:] == [("t", {"page": 999})]


async def test_progress_that_is_no_json_is_the_callers_error(desk: MakeDesk) -> None:
    async def beats() -> str:
        with pytest.raises(PayloadInvalid):
            current().heartbeat({"a": object()})
        return "told"

    assert await desk(beats).value("beats") == "told"


async def test_secrets_are_resolved_for_the_call_and_stay_out_of_failures(desk: MakeDesk) -> None:
    async def login(user: str, password: str) -> Any:
        if user == "eve":
            raise Coded(f"wrong password {password}", {"tried": [password, 3]})
        return password[::-1]

    made = desk(login, secrets={"PASSWORD": "s3cret"})
    secrets = (("password", "PASSWORD"),)

    assert await made.value("login", {"user": "ada"}, secrets=secrets) == "terc3s"
    failure = (await made.failure("login", {"user": "eve"}, secrets=secrets)).failure
    assert failure.message == "wrong password ***"
    assert failure.details == {"tried": ["***", 3]}

    missing = await made.failure("login", {"user": "ada"}, secrets=(("password", "NONE"),))
    assert (missing.failure.code, missing.final) == ("secret-missing", True)
    assert made.worker.open_count == 0


async def test_secrets_may_come_from_a_function_that_may_fail(desk: MakeDesk) -> None:
    def vault(name: str) -> str | None:
        if name == "DOWN":
            raise ConnectionError("vault is down")
        return name.lower()

    made = desk(in_loop, secrets=vault)

    assert await made.value("in_loop", secrets=(("what", "KEY"),)) == "key"
    down = await made.failure("in_loop", secrets=(("what", "DOWN"),))
    assert (down.failure.type, down.final) == ("ConnectionError", False)
    none = await desk(in_loop).failure("in_loop", secrets=(("what", "KEY"),))
    assert none.failure.code == "secret-missing"


# Time limits.


async def test_a_coroutine_past_its_timeout_is_cancelled_and_named(
    desk: MakeDesk, clock: ManualClock
) -> None:
    cancelled: list[bool] = []

    @activity(timeout=30, retry=RETRY)
    async def slow() -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.append(current().cancelled)
            raise

    made = desk(slow)
    reported = made.begin("slow")
    await asyncio.sleep(0)
    clock.advance(29.9)
    assert not reported.done()
    clock.advance(0.2)
    outcome = await reported
    await until(lambda: made.worker.late_count == 0)

    assert isinstance(outcome, Broken)
    assert outcome.failure.code == "timeout"
    assert "activity `slow` did not end within 30 s" in outcome.failure.message
    assert (outcome.retry, outcome.final, cancelled) == (RETRY, False, [True])


async def test_the_jobs_own_limit_comes_first(desk: MakeDesk, clock: ManualClock) -> None:
    @activity(timeout=30)
    async def slow() -> None:
        await asyncio.sleep(3600)

    reported = desk(slow).begin("slow", start_to_close=5.0)
    await asyncio.sleep(0)
    clock.advance(5)

    outcome = await reported
    assert isinstance(outcome, Broken)
    assert "within 5 s" in outcome.failure.message


async def test_a_coroutine_that_ignores_its_timeout_is_counted_and_its_late_result_dropped(
    desk: MakeDesk, clock: ManualClock
) -> None:
    release = asyncio.Event()

    @activity(timeout=1)
    async def stubborn() -> str:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return "late"

    made = desk(stubborn)
    reported = made.begin("stubborn")
    await asyncio.sleep(0)
    clock.advance(1)
    outcome = await reported
    assert isinstance(outcome, Broken)
    assert outcome.failure.code == "timeout"
    assert made.worker.late_count == 1

    release.set()
    await until(lambda: made.worker.late_count == 0)
    assert len(made.reports) == 1


async def test_a_timeout_before_the_first_step_calls_nothing(
    desk: MakeDesk, clock: ManualClock
) -> None:
    called: list[int] = []

    @activity(timeout=1)
    async def never() -> None:
        called.append(1)

    reported = desk(never).begin("never")
    clock.advance(1)
    await reported
    await asyncio.sleep(0)
    assert called == []


async def test_a_thread_past_its_timeout_is_reported_at_once_and_keeps_its_place(
    desk: MakeDesk, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    release, entered = threading.Event(), threading.Event()

    @activity(timeout=5)
    def hangs() -> str:
        entered.set()
        release.wait(10)
        return "late" if current().cancelled else "?"

    made = desk(hangs, in_thread, threads=1)
    reported = made.begin("hangs", key="h")
    waiting = made.begin("in_thread", {"what": 1}, start_to_close=1.0)
    await until(entered.is_set)
    clock.advance(5)
    outcome = await reported
    assert isinstance(outcome, Broken)
    assert outcome.failure.code == "timeout"
    assert (made.worker.late_count, made.worker.waiting_count) == (1, 1)
    assert "thread.occupied activity=hangs run=run key=h threads=1 late=1" in caplog.text
    clock.advance(60)  # the time of one that waits for a thread has not begun
    await asyncio.sleep(0.01)
    assert not waiting.done()

    caplog.set_level(logging.INFO)
    release.set()
    assert isinstance(await waiting, Done)
    assert (made.worker.late_count, made.worker.waiting_count, len(made.reports)) == (0, 0, 2)
    assert "activity.ended-late activity=hangs" in caplog.text


@pytest.mark.parametrize("kind", ["loop", "thread"])
async def test_silence_longer_than_the_heartbeat_is_a_timeout(
    desk: MakeDesk, clock: ManualClock, kind: str
) -> None:
    beat, release = asyncio.Event(), threading.Event()
    context: list[Any] = []

    @activity(heartbeat=10)
    async def in_the_loop() -> None:
        context.append(current())
        await beat.wait()

    @activity(heartbeat=10)
    def in_a_thread() -> None:
        context.append(current())
        release.wait(10)

    made = desk(in_the_loop, in_a_thread)
    reported = made.begin("in_the_loop" if kind == "loop" else "in_a_thread")
    await until(lambda: context)
    for _ in range(3):
        clock.advance(9)
        context[0].heartbeat("going")
        assert not reported.done()
    clock.advance(10)
    outcome = await reported
    release.set()

    assert isinstance(outcome, Broken)
    assert outcome.failure.code == "heartbeat-timeout"
    assert "gave no heartbeat for 10 s" in outcome.failure.message
    context[0].heartbeat("too late")
    assert [progress for _, progress in made.beats] == ["going"] * 3


async def test_no_timer_outlives_its_attempt(desk: MakeDesk, clock: ManualClock) -> None:
    made = desk(in_loop, in_thread)
    for name in ("in_loop", "in_thread"):
        await made.run(name, start_to_close=5.0, heartbeat=1.0)

    assert clock.pending == 0


# Cancelling.


async def test_a_cancelled_coroutine_reports_that_it_was(
    desk: MakeDesk, clock: ManualClock
) -> None:
    async def waits() -> None:
        await asyncio.sleep(3600)

    made = desk(waits)
    reported = made.begin("waits", key="w")
    await asyncio.sleep(0)
    made.worker.cancel("run", "w", 2)
    made.worker.cancel("run", "w", 1)
    made.worker.cancel("run", "w", 1)
    assert not reported.done()

    outcome = await reported
    assert isinstance(outcome, Broken)
    assert (outcome.failure.code, outcome.failure.cause) == ("cancelled", None)
    assert clock.pending == 0


async def test_what_has_not_begun_is_cancelled_without_a_call(desk: MakeDesk) -> None:
    called: list[str] = []
    release, entered = threading.Event(), threading.Event()

    async def early() -> None:
        called.append("early")

    def occupies() -> None:
        entered.set()
        release.wait(10)

    def queued() -> None:
        called.append("queued")

    made = desk(early, occupies, queued, threads=1)
    first, busy, waiting = (
        made.begin("early", key="e"),
        made.begin("occupies"),
        made.begin("queued", key="q"),
    )
    made.worker.cancel("run", "e", 1)
    made.worker.cancel("run", "q", 1)
    assert not first.done()
    for each in (first, waiting):
        outcome = await each
        assert isinstance(outcome, Broken)
        assert outcome.failure.code == "cancelled"
    release.set()
    await busy
    await made.run("occupies")
    assert called == []


async def test_a_thread_is_told_by_a_flag(desk: MakeDesk) -> None:
    entered = threading.Event()

    def looks(how: str) -> str:
        attempt = current()
        entered.set()
        while not attempt.cancelled:
            time.sleep(0.001)
        entered.clear()
        if how == "raise":
            raise ValueError("gave up")
        return "done all the same"

    made = desk(looks)
    for how in ("raise", "return"):
        reported = made.begin("looks", {"how": how}, key=how)
        await until(entered.is_set)
        made.worker.cancel("run", how, 1)
        outcome = await reported
        if how == "raise":
            assert isinstance(outcome, Broken)
            assert outcome.failure.code == "cancelled"
            assert outcome.failure.cause is not None
            assert outcome.failure.cause.message == "gave up"
        else:  # the work was done, and may have to be undone
            assert isinstance(outcome, Done)


async def test_who_does_not_listen_is_given_up_after_the_grace(
    desk: MakeDesk, clock: ManualClock
) -> None:
    entered, release = threading.Event(), threading.Event()

    def deaf() -> None:
        entered.set()
        release.wait(10)

    made = desk(deaf)
    reported = made.begin("deaf", key="d")
    await until(entered.is_set)
    made.worker.cancel("run", "d", 1)
    clock.advance(CANCEL_GRACE_SECONDS - 0.1)
    assert not reported.done()
    clock.advance(0.1)

    outcome = await reported
    assert isinstance(outcome, Broken)
    assert outcome.failure.code == "cancelled"
    assert made.worker.late_count == 1
    release.set()
    await until(lambda: made.worker.late_count == 0)


async def test_an_older_attempt_of_the_same_name_makes_way(desk: MakeDesk) -> None:
    gates = [asyncio.Event(), asyncio.Event()]

    async def gated(n: int) -> int:
        await gates[n].wait()
        return n

    made = desk(gated)
    old = made.begin("gated", {"n": 0}, key="k")
    new = made.begin("gated", {"n": 1}, key="k")
    await asyncio.sleep(0)
    made.worker.cancel("run", "k", 1)
    outcome = await new
    assert isinstance(outcome, Broken)
    gates[0].set()
    assert isinstance(await old, Done)


# Threads.


async def test_threads_are_bounded_and_the_others_wait_in_order(desk: MakeDesk) -> None:
    running, most, order = 0, 0, list[int]()
    lock = threading.Lock()

    def counted(n: int) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
            order.append(n)
        time.sleep(0.002)
        with lock:
            running -= 1

    made = desk(counted, threads=3)
    await asyncio.gather(*(made.run("counted", {"n": n}) for n in range(30)))

    assert most == 3
    assert [n // 3 for n in order] == sorted(n // 3 for n in order)


async def test_a_system_without_more_threads_makes_them_take_turns(
    desk: MakeDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = desk(in_thread)
    await made.run("in_thread")

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    outcomes = await asyncio.gather(*(made.run("in_thread") for _ in range(5)))
    assert all(isinstance(each, Done) for each in outcomes)


def test_a_hanging_thread_does_not_keep_the_process() -> None:
    import subprocess

    script = """
import asyncio, time
from unit.sdk.desk import Desk, ManualClock
from penstock.sdk.worker import LocalActivities
from penstock.sdk.workflow import Registry

def hangs():
    time.sleep(60)

async def main():
    worker = LocalActivities(Registry([hangs]), ManualClock())
    await worker.open()
    reported = Desk(worker).begin("hangs")
    await asyncio.sleep(0.05)
    await worker.close(drain_seconds=0)
    print(type(reported.result()).__name__)

asyncio.run(main())
"""
    environment = {"PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=20,
        env=environment,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("Cut\n", 0), done.stderr


# Closing.


async def test_closing_lets_what_runs_end(desk: MakeDesk) -> None:
    gate = asyncio.Event()

    async def gated() -> str:
        await gate.wait()
        return "whole"

    made = desk(gated)
    reported = made.begin("gated")
    closing = asyncio.ensure_future(made.worker.close(drain_seconds=60))
    await asyncio.sleep(0)
    refused = made.begin("gated")
    gate.set()
    await closing

    outcome = await reported
    assert isinstance(outcome, Done)
    assert decode_payload(outcome.output) == "whole"
    assert isinstance(await refused, Cut)


async def test_closing_cuts_what_does_not_end(desk: MakeDesk, clock: ManualClock) -> None:
    release, tidied = threading.Event(), list[str]()

    async def waits() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0)
            tidied.append("tidied")

    def hangs() -> None:
        release.wait(10)

    made = desk(waits, hangs, threads=1)
    reports = [made.begin("waits"), made.begin("hangs"), made.begin("hangs")]
    closing = asyncio.ensure_future(made.worker.close(drain_seconds=5))
    await asyncio.sleep(0)
    assert [each.done() for each in reports] == [False, False, True]
    clock.advance(5)
    await closing

    assert [type(each.result()) for each in reports] == [Cut, Cut, Cut]
    assert tidied == ["tidied"]
    assert (made.worker.open_count, clock.pending) == (0, 0)
    release.set()


async def test_a_loop_that_ends_all_its_tasks_cuts_an_attempt(desk: MakeDesk) -> None:
    async def waits() -> None:
        await asyncio.sleep(3600)

    reported = desk(waits).begin("waits", key="w")
    await asyncio.sleep(0)
    for task in asyncio.all_tasks():
        if task.get_name() == "w":
            task.cancel()
    assert isinstance(await reported, Cut)


async def test_a_report_that_raises_harms_nobody(
    desk: MakeDesk, caplog: pytest.LogCaptureFixture
) -> None:
    made = desk(in_loop)
    reported = made.begin("in_loop")
    reported.cancel()
    await until(lambda: made.worker.open_count == 0)

    assert "report.failed activity=in_loop" in caplog.text
    assert isinstance(await made.run("in_loop"), Done)


async def test_an_eager_task_factory_does_not_report_inside_begin(desk: MakeDesk) -> None:
    eager = getattr(asyncio, "eager_task_factory", None)
    if eager is not None:
        asyncio.get_running_loop().set_task_factory(eager)
    assert isinstance(await desk(in_loop).run("in_loop"), Done)


def test_a_worker_needs_a_thread_and_a_process(clock: ManualClock) -> None:
    from penstock.sdk.worker import LocalActivities
    from penstock.sdk.workflow import Registry

    for options in ({"threads": 0}, {"processes": 0}):
        with pytest.raises(Rejected, match="at least one"):
            LocalActivities(Registry(), clock, **options)


# The watchdog.


async def test_a_blocked_loop_is_reported_with_the_activity_and_the_line(
    desk: MakeDesk, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.sdk.watchdog.BLOCKED_SECONDS", 0.05)
    monkeypatch.setattr("penstock.sdk.watchdog.PROBE_SECONDS", 0.01)

    async def blocks() -> None:
        await asyncio.sleep(0)
        time.sleep(0.4)  # noqa: ASYNC251  (that is the point)

    made = desk(blocks, watch=True)
    await made.worker.open()
    await asyncio.sleep(0.05)
    assert "loop.blocked" not in caplog.text
    await made.run("blocks", key="b")

    lines = [
        each.getMessage() for each in caplog.records if each.getMessage().startswith("loop.blocked")
    ]
    assert "activity=blocks run=run key=b" in lines[0]
    assert "test_worker.py:" in lines[0]
    assert "in blocks" in lines[0]
    assert 2 <= len(lines) <= 4  # again each time the block has doubled


async def test_a_block_outside_of_an_attempts_own_task_is_found_by_the_stack(
    desk: MakeDesk, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.sdk.watchdog.BLOCKED_SECONDS", 0.05)
    monkeypatch.setattr("penstock.sdk.watchdog.PROBE_SECONDS", 0.01)

    async def blocks() -> None:
        time.sleep(0.2)  # noqa: ASYNC251  (that is the point)

    async def waits() -> None:
        await asyncio.ensure_future(blocks())

    made = desk(blocks, waits, watch=True)
    await made.worker.open()
    await made.run("waits")

    assert "activity=blocks" in caplog.text or "activity=waits" in caplog.text
