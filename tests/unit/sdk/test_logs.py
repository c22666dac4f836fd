"""What an attempt logs is kept with it, bounded (SPEC 4.10); all other logging is as it was."""

from __future__ import annotations

import asyncio
import gc
import io
import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import Fail
from penstock.model.job import Broken, Cut, Done, LogLine, Outcome
from penstock.sdk import tap
from penstock.sdk.logs import DROPPED, LINES_MAX, TEXT_BYTES_MAX, Logs, line_of
from penstock.sdk.worker import current
from penstock.sdk.workflow import activity
from unit.sdk import samples
from unit.sdk.desk import Desk, ManualClock, until

MakeDesk = Callable[..., Desk]
log = logging.getLogger("shop.cards")


class Loud:
    """Logs when it is thrown away, wherever that happens to be."""

    def __del__(self) -> None:
        log.info("thrown away")


class Unspeakable:
    def __str__(self) -> str:
        raise RuntimeError("no")


def say(what: str, secret: str = "") -> str:
    match what:
        case "lines":
            log.debug("too fine")
            log.info("charging %d cents", 1999)
            current().log("halfway")
            logging.getLogger("other").warning("slow")
        case "fail":
            log.info("trying")
            raise ValueError("refused")
        case "final":
            log.error("for ever")
            raise Fail("closed")
        case "many":
            for i in range(250):
                log.info("line %d", i)
        case "long":
            for i in range(20):
                log.info("%d %s", i, "é" * 600)
        case "exception":
            try:
                raise KeyError("card")
            except KeyError:
                log.exception("no such card")
        case "secret":
            log.info("%s%s", "x" * 1990, secret)
            current().log(f"the key is {secret}")
        case "surrogate":
            log.info("\ud800")
        case "odd":
            current().log(7)  # type: ignore[arg-type]
            log.info("%s", Unspeakable())  # pytest's own handler raises
        case "ours":
            logging.getLogger("penstock.sdk.worker").warning("not the activity's")
        case "litter":
            for _ in range(50):
                litter: list[Any] = [Loud()]
                litter.append(litter)
            del litter
            gc.collect()
        case _:
            pass
    return what


@activity
async def in_loop(what: str, secret: str = "") -> str:
    return say(what, secret)


@activity
def in_thread(what: str, secret: str = "") -> str:
    return say(what, secret)


@activity
async def spreads() -> None:
    """Its own tasks and threads belong to it."""

    async def inner() -> None:
        log.info("from a task")

    await asyncio.gather(inner(), asyncio.to_thread(log.info, "from a thread"))


@activity(timeout=5)
async def hangs() -> None:
    log.info("waiting")
    await asyncio.Event().wait()


def lines_of(outcome: Outcome) -> list[tuple[str, str]]:
    assert isinstance(outcome, Done | Broken), outcome
    return [(line.level, line.message) for line in outcome.logs]


@pytest.fixture(autouse=True)
def levels() -> Iterator[None]:
    root = logging.getLogger()
    before = root.level
    root.setLevel(logging.INFO)
    yield
    root.setLevel(before)


@pytest.fixture
def everywhere(desk: MakeDesk) -> Desk:
    return desk(
        in_loop, in_thread, samples.speaks, secrets={"KEY": "s3cr3t", "LONG": "s3cr3t-and-more"}
    )


each = pytest.mark.parametrize("name", ["in_loop", "in_thread", "speaks"])


@each
async def test_lines_of_info_and_above_are_kept(everywhere: Desk, name: str) -> None:
    outcome = await everywhere.run(name, {"what": "lines"})

    assert lines_of(outcome) == [
        ("INFO", "charging 1999 cents"),
        ("INFO", "halfway"),
        ("WARNING", "slow"),
    ]


@each
@pytest.mark.parametrize(
    ("what", "said"), [("fail", ("INFO", "trying")), ("final", ("ERROR", "for ever"))]
)
async def test_a_failure_has_them_too(everywhere: Desk, name: str, what: str, said: Any) -> None:
    assert lines_of(await everywhere.failure(name, {"what": what})) == [said]


@each
async def test_nothing_logged_is_nothing_kept(everywhere: Desk, name: str) -> None:
    outcome = await everywhere.run(name, {"what": "nothing"})

    assert outcome == Done(b'"nothing"')
    assert repr(outcome) == "Done(output=b'\"nothing\"')"


@each
async def test_the_oldest_lines_are_dropped_and_counted(everywhere: Desk, name: str) -> None:
    lines = lines_of(await everywhere.run(name, {"what": "many"}))

    assert len(lines) == LINES_MAX
    assert lines[0] == (DROPPED, "151 older lines were dropped")
    assert [message for _, message in lines[1:]] == [f"line {i}" for i in range(151, 250)]


@each
async def test_long_lines_stay_within_the_bytes(everywhere: Desk, name: str) -> None:
    lines = lines_of(await everywhere.run(name, {"what": "long"}))

    assert sum(len(message.encode()) for _, message in lines) <= TEXT_BYTES_MAX
    assert lines[0] == (DROPPED, "14 older lines were dropped")
    assert [message.split()[0] for _, message in lines[1:]] == [str(i) for i in range(14, 20)]


@each
async def test_secrets_are_hidden_even_where_a_line_is_cut(everywhere: Desk, name: str) -> None:
    outcome = await everywhere.run(name, {"what": "secret"}, secrets=(("secret", "KEY"),))

    (_, cut), (_, told) = lines_of(outcome)
    assert "s3" not in cut
    assert told == "the key is ***"


@each
async def test_what_cannot_be_stored_or_read_harms_nobody(everywhere: Desk, name: str) -> None:
    assert lines_of(await everywhere.run(name, {"what": "surrogate"})) == [("INFO", "?")]
    assert lines_of(await everywhere.run(name, {"what": "odd"})) == [("INFO", "7"), ("INFO", "%s")]


@each
async def test_an_exception_is_named_in_its_line(everywhere: Desk, name: str) -> None:
    outcome = await everywhere.run(name, {"what": "exception"})

    assert lines_of(outcome) == [("ERROR", "no such card\nKeyError: 'card'")]


@each
async def test_what_the_engine_logs_is_not_the_activitys(everywhere: Desk, name: str) -> None:
    assert lines_of(await everywhere.run(name, {"what": "ours"})) == []


@each
async def test_destructors_may_log(everywhere: Desk, name: str) -> None:
    assert ("INFO", "thrown away") in lines_of(await everywhere.run(name, {"what": "litter"}))


@each
async def test_attempts_side_by_side_keep_their_own(everywhere: Desk, name: str) -> None:
    outcomes = await asyncio.gather(
        *(everywhere.begin(name, {"what": what}) for what in ("lines", "final", "nothing"))
    )

    assert [len(lines_of(outcome)) for outcome in outcomes] == [3, 1, 0]


async def test_tasks_and_threads_of_an_attempt_belong_to_it(desk: MakeDesk) -> None:
    assert sorted(lines_of(await desk(spreads).run("spreads"))) == [
        ("INFO", "from a task"),
        ("INFO", "from a thread"),
    ]


async def test_a_line_has_the_time_of_the_engines_clock(desk: MakeDesk, clock: ManualClock) -> None:
    outcome = await desk(in_loop).run("in_loop", {"what": "fail"})

    assert isinstance(outcome, Broken)
    assert outcome.logs == (LogLine(clock.now(), "INFO", "trying"),)


async def test_an_attempt_that_is_given_up_has_what_it_logged(
    desk: MakeDesk, clock: ManualClock
) -> None:
    here = desk(hangs)
    reported = here.begin("hangs")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    clock.advance(6)

    outcome = await reported
    assert isinstance(outcome, Broken)
    assert outcome.failure.code == "timeout"
    assert lines_of(outcome) == [("INFO", "waiting")]


async def test_an_attempt_that_is_cut_reports_no_lines(desk: MakeDesk) -> None:
    here = desk(hangs)
    reported = here.begin("hangs")
    await asyncio.sleep(0)
    await here.worker.close(drain_seconds=0)

    assert await reported == Cut()


@pytest.mark.parametrize("how", ["kill", "exit"])
async def test_a_child_that_dies_has_said_it(desk: MakeDesk, how: str) -> None:
    outcome = await desk(samples.last_words).failure("last_words", {"how": how})

    assert outcome.died
    assert lines_of(outcome) == [("INFO", f"about to {how}")]


async def test_a_child_that_is_killed_has_said_it(
    desk: MakeDesk, clock: ManualClock, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    reported = desk(samples.endless).begin("endless", {"note": str(note)})
    await until(note.exists)
    await asyncio.sleep(0.1)
    clock.advance(6)

    outcome = await reported
    assert isinstance(outcome, Broken)
    assert outcome.failure.code == "timeout"
    assert lines_of(outcome) == [("INFO", "for ever")]


async def test_a_process_that_an_activity_forks_does_not_speak_for_it(desk: MakeDesk) -> None:
    assert lines_of(await desk(samples.forks).run("forks")) == [("INFO", "parent")]


async def test_heartbeat_listeners_are_not_in_the_attempt(desk: MakeDesk) -> None:
    @activity
    async def beats() -> None:
        current().heartbeat(1)

    here = desk(beats)
    here.worker.on_heartbeat(lambda *_: log.info("heard"))

    assert lines_of(await here.run("beats")) == []


# --- logging itself -----------------------------------------------------------------------------------------------


async def test_outside_of_an_attempt_nothing_changes(desk: MakeDesk) -> None:
    before = logging.getLogRecordFactory()
    here = desk(in_loop)
    await here.worker.open()
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handlers, level = list(logging.getLogger().handlers), logging.getLogger().level
    log.addHandler(handler)
    try:
        log.info("nobody's")
        outcome = await here.run("in_loop", {"what": "nothing"})
        assert lines_of(outcome) == []
        await here.run("in_loop", {"what": "final"})
    finally:
        log.removeHandler(handler)

    assert stream.getvalue() == "nobody's\nfor ever\n"
    assert (logging.getLogger().handlers, logging.getLogger().level) == (handlers, level)
    await here.worker.close(drain_seconds=0)
    assert logging.getLogRecordFactory() is before


async def test_levels_of_the_application_hold(desk: MakeDesk) -> None:
    logging.getLogger().setLevel(logging.WARNING)

    outcome = await desk(in_loop).run("in_loop", {"what": "lines"})

    assert lines_of(outcome) == [("INFO", "halfway"), ("WARNING", "slow")]


async def test_two_workers_share_one_tap_and_the_last_one_closes_it(desk: MakeDesk) -> None:
    before = logging.getLogRecordFactory()
    first, second = desk(in_loop), desk(in_loop)
    await first.run("in_loop", {"what": "nothing"})
    await second.run("in_loop", {"what": "nothing"})
    await first.worker.close(drain_seconds=0)

    assert lines_of(await second.run("in_loop", {"what": "fail"})) == [("INFO", "trying")]
    await second.worker.close(drain_seconds=0)
    assert logging.getLogRecordFactory() is before


def test_a_factory_that_was_put_around_ours_stays() -> None:
    before = logging.getLogRecordFactory()
    tap.open_tap()
    ours = logging.getLogRecordFactory()

    def theirs(*args: Any, **kwargs: Any) -> logging.LogRecord:
        return ours(*args, **kwargs)

    logging.setLogRecordFactory(theirs)
    try:
        tap.close_tap()
        assert logging.getLogRecordFactory() is theirs
        tap.open_tap()
        tap.close_tap()
        assert logging.getLogRecordFactory() is theirs
        log.info("still well")
    finally:
        logging.setLogRecordFactory(before)


def test_records_that_are_unpickled_are_left_alone() -> None:
    tap.open_tap()
    try:
        assert logging.makeLogRecord({"msg": "from afar"}).getMessage() == "from afar"
    finally:
        tap.close_tap()


SCRIPT = """
import asyncio, logging
import penstock
from penstock import activity

@activity
def speak():
    logging.warning("inside")

async def main():
    async with penstock.open("memory:", activities=[speak]) as engine:
        logging.getLogger("shop").warning("last resort")
        logging.basicConfig(format="configured: %(message)s", level=logging.INFO)
        logging.info("outside")
        await engine.register({"id": "w", "tasks": {"a": {"do": "speak"}}})
        run = await engine.start("w")
        await run.result()
        print([line.message for item in await run.history() for line in getattr(item.event, "logs", ())])

asyncio.run(main())
"""


def test_an_open_engine_leaves_the_last_resort_and_basic_config_as_they_are() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stderr == "last resort\nconfigured: outside\nconfigured: inside\n"
    assert done.stdout == "['inside']\n"


# --- bounds -------------------------------------------------------------------------------------------------------


def line(text: str) -> LogLine:
    return line_of(1.0, "INFO", text, None)


@pytest.mark.parametrize(
    ("count", "size", "kept", "dropped"),
    [
        (1, 5, 1, 0),
        (100, 81, 100, 0),
        (101, 10, 99, 2),
        (100, 82, 99, 1),
        (5, 5000, 4, 1),
        (5, 1600, 5, 0),
    ],
)
def test_bounds(count: int, size: int, kept: int, dropped: int) -> None:
    logs = Logs()
    for _ in range(count):
        logs.add(line("x" * size))

    lines = logs.lines()
    told = [each for each in lines if each.level == DROPPED]
    assert len(lines) - len(told) == kept
    assert [each.message.split()[0] for each in told] == ([str(dropped)] if dropped else [])
    assert len(lines) <= LINES_MAX
    assert sum(len(each.message.encode()) for each in lines) <= TEXT_BYTES_MAX


def test_a_secret_that_begins_another_leaves_nothing_of_it() -> None:
    secrets = {"a": "abc", "b": "abcdef", "none": ""}

    assert line_of(1.0, "INFO", "abcdef abc", secrets).message == "*** ***"


def test_many_threads_may_add_at_once() -> None:
    logs = Logs()

    def add() -> None:
        for _ in range(2000):
            logs.add(line("x" * 100))

    threads = [threading.Thread(target=add) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    lines = logs.lines()
    assert lines[0].message == f"{8000 - len(lines) + 1} older lines were dropped"
