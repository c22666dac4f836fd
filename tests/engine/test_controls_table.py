"""Every control on a run in every status: its effect, or a clear refusal, and nothing else (SPEC 4.4, 4.9).

The table is generated here and stands in `docs/reference/controls.md`; `python tests/engine/test_controls_table.py` writes it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import CompleteLater, NotFound, PenstockError, Rejected, Run, activity, current
from penstock.model.token import Token, token_text
from penstock.testing.harness import Harness, harness

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "controls.md"
TOKENS: dict[str, str] = {}

DEFINITION = {
    "id": "subject",
    "queries": {"seen": "input.how"},
    "tasks": {
        "made": {"do": "make", "compensate": "unmake"},
        "wait": {"type": "signal", "name": "go", "reply": "1", "after": "made"},
        "late": {"type": "timer", "delay": "1h", "after": "made"},
        "last": {"do": "end", "inputs": {"how": {"from": "input", "path": "$.how"}}, "after": ["wait", "late"]},
    },
}  # fmt: skip


TASKS: dict[str, Any] = DEFINITION["tasks"]  # type: ignore[assignment]
MORE = {
    **DEFINITION, "version": "more", "timeouts": {"run": "20h"},
    "tasks": {**TASKS, "after": {"do": "make", "after": "last"}},
}  # fmt: skip
"""Every run of the subject can become one of this version."""
OTHER = {
    **DEFINITION, "version": "other", "timeouts": {"run": "20h"},
    "tasks": {**TASKS, "made": {"do": "end", "compensate": "unmake", "inputs": {"how": {"value": "well"}}}},
}  # fmt: skip
"""No run that has begun can: what it made may have to be undone."""


@activity
async def make() -> str:
    return "made"


@activity
async def unmake(value: str) -> None:
    raise penstock.Fail("cannot be unmade")


@activity
async def end(how: str) -> str:
    if how == "token":
        TOKENS[current().run_id] = current().token
        raise CompleteLater
    if how == "fail":
        raise penstock.Fail("no")
    return how


async def _go(engine: Harness, run: Run) -> None:
    await run.signal("go", 1)
    await run.fire("late")
    await engine.settle()


async def _running(engine: Harness, run: Run) -> None:
    await _go(engine, run)


async def _paused(engine: Harness, run: Run) -> None:
    await run.pause()


async def _compensating(engine: Harness, run: Run) -> None:
    await run.cancel()
    await engine.settle()


async def _completed(engine: Harness, run: Run) -> None:
    await _go(engine, run)


async def _stopped(engine: Harness, run: Run) -> None:
    await run.cancel()
    await engine.settle()
    await run.resolve_undo("made", "accept")
    await engine.settle()


async def _failed(engine: Harness, run: Run) -> None:
    await _go(engine, run)
    await run.resolve_undo("made", "accept")
    await engine.settle()


async def _terminated(engine: Harness, run: Run) -> None:
    await run.terminate()


async def _timed_out(engine: Harness, run: Run) -> None:
    await engine.skip(hours=30)
    await run.resolve_undo("made", "accept")
    await engine.settle()


async def _nothing(engine: Harness, run: Run) -> None:
    pass


STATUSES: dict[str, tuple[dict[str, Any], dict[str, Any], Callable[[Harness, Run], Awaitable[None]]]] = {
    "CREATED": ({"how": "well"}, {"delay": 3600.0}, _nothing),
    "RUNNING": ({"how": "token"}, {}, _running),
    "WAITING": ({"how": "well"}, {}, _nothing),
    "PAUSED": ({"how": "well"}, {}, _paused),
    "COMPENSATING": ({"how": "well"}, {}, _compensating),
    "COMPLETED": ({"how": "well"}, {}, _completed),
    "FAILED": ({"how": "fail"}, {}, _failed),
    "CANCELLED": ({"how": "well"}, {}, _stopped),
    "TERMINATED": ({"how": "well"}, {}, _terminated),
    "TIMED_OUT": ({"how": "well"}, {}, _timed_out),
}  # fmt: skip


async def _reset(run: Run, to: int) -> None:
    await run.reset(to, token=(await run.preview(to)).token)


async def _update(engine: Harness, run: Run) -> None:
    """TimeoutError if it is not answered, though all is done that can be done."""
    asked = asyncio.ensure_future(run.update("go", 1))
    await engine.settle()
    if not asked.done():
        asked.cancel()
        raise TimeoutError
    await asked


def controls(
    engine: Harness, run: Run, how: dict[str, Any]
) -> dict[str, Callable[[], Awaitable[Any]]]:
    token = TOKENS.get(run.id) or token_text(Token(run.id, 1, "last", 1))
    return {
        "start again, `attach`": lambda: engine.start("subject", how, id=run.id),
        "start again, `reject`": lambda: engine.start("subject", how, id=run.id, if_exists="reject"),
        "start again, `replace`": lambda: engine.start("subject", how, id=run.id, if_exists="replace"),
        "start again, `after-close`": lambda: engine.start("subject", how, id=run.id, if_exists="after-close"),
        "signal": lambda: run.signal("go", 1),
        "signal-with-start": lambda: engine.signal_with_start("subject", how, "go", 1, id=run.id),
        "message by key": lambda: engine.message("go", 1, key=run.id),
        "update": lambda: _update(engine, run),
        "query": lambda: run.query("seen"),
        "pause": run.pause,
        "resume": run.resume,
        "cancel": run.cancel,
        "terminate": run.terminate,
        "retry": run.retry,
        "retry from a task": lambda: run.retry("made"),
        "reset to event 1": lambda: _reset(run, 1),
        "reset to event 0": lambda: _reset(run, 0),
        "fire a timer": lambda: run.fire("late"),
        "skip a timer": lambda: run.skip("late"),
        "fail a timer": lambda: run.fail("late"),
        "fire a signal": lambda: run.fire("wait"),
        "skip a signal": lambda: run.skip("wait"),
        "accept an undo": lambda: run.resolve_undo("made", "accept"),
        "skip an undo": lambda: run.resolve_undo("made", "skip"),
        "retry an undo": lambda: run.resolve_undo("made", "retry"),
        "change attributes": lambda: run.set_attributes({"a": 1}),
        "complete by token": lambda: engine.complete(token, 1),
        "fail by token": lambda: engine.fail(token, "no"),
        "submit a form": lambda: run.submit("wait", {}),
        "name a snapshot": lambda: run.snapshot("here"),
        "migrate": lambda: run.migrate("more"),
        "migrate, not safe": lambda: run.migrate("other"),
    }  # fmt: skip


async def outcome(engine: Harness, status: str, control: str) -> str:
    """What the control does to a fresh run in that status; that nothing else happens is checked on the way."""
    how, more, bring = STATUSES[status]
    run = await engine.start(
        "subject", how, id=f"{status} {control}", key=f"{status} {control}", **more
    )
    await engine.settle()
    await bring(engine, run)
    assert await run.status() == status
    before = await run.history()
    act = controls(engine, run, how)[control]
    refused: PenstockError | None = None
    try:
        await act()
    except TimeoutError:
        return "kept"
    except PenstockError as error:
        refused = error
    if refused is not None:
        assert isinstance(refused, Rejected | NotFound), (status, control, refused)
        assert refused.message
        after = await run.history()
        assert [item.seq for item in after] == [item.seq for item in before], (status, control)
        page = PAGE.parents[1] / "errors" / f"{refused.code}.md"
        assert page.exists(), refused.code
        return f"[{refused.code}](../errors/{refused.code}.md)"
    await engine.settle()
    view = await run.show()
    if view.generation > 1:
        old = await run.show(generation=1)
        closed = status in ("COMPLETED", "FAILED", "CANCELLED", "TERMINATED", "TIMED_OUT")
        assert old.status == (status if closed else old.status)
        assert old.status in ("CONTINUED", "TERMINATED", status)
        return f"generation 2, {await run.status()}"
    after = await run.history()
    assert [i.hash for i in after[: len(before)]] == [i.hash for i in before]
    new = len(after) > len(before)
    if control == "query":
        return "answered"
    if not new:
        return "no change"
    return await run.status()


async def rows() -> list[list[str]]:
    found: list[list[str]] = []
    definition = {**DEFINITION, "timeouts": {"run": "20h"}}
    async with harness(activities=[make, unmake, end]) as engine:
        for each in (MORE, OTHER, definition):
            await engine.register(each)
        run = await engine.start("subject", {"how": "well"})
        for control in controls(engine, run, {}):
            line = [control]
            for status in STATUSES:
                line.append(await outcome(engine, status, control))
            found.append(line)
    return found


def page(found: list[list[str]]) -> str:
    head = """# Controls

What every control does to a run in every status: the status that the run is then in, or the code of the refusal, which
changes nothing. Generated, and held against the engine by `tests/engine/test_controls_table.py`.

The run has made something that can be undone (its undo fails, so that it waits for an operator), waits for a signal and
a timer, and then for a completion from outside (RUNNING). CREATED is a delayed start. CONTINUED is the status of a
generation that is not the newest: a control goes to the newest, so that it never meets one. `no change`: the run is
already as it was asked to be. `kept`: the update waits in the run until somebody takes it.

"""
    names = ["control", *STATUSES]
    lines = [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}"]
    lines += [f"| {' | '.join(line)} |" for line in found]
    return head + "\n".join(lines) + "\n"


async def test_every_control_has_its_effect_or_a_clear_refusal_in_every_status() -> None:
    assert page(await rows()) == PAGE.read_text()


@pytest.mark.parametrize("control", ["signal", "cancel", "retry"])
async def test_a_control_never_meets_a_generation_that_was_continued(control: str) -> None:
    async with harness(activities=[make, unmake, end]) as engine:
        await engine.register(DEFINITION)
        run = await engine.start("subject", {"how": "well"}, id="r")
        await engine.settle()
        await _reset(run, 1)
        await engine.settle()
        assert (await run.show(generation=1)).status == "CONTINUED"
        old = await run.history(generation=1)
        with contextlib.suppress(Rejected):  # it is open, and not retried
            await controls(engine, run, {})[control]()
        assert [i.hash for i in await run.history(generation=1)] == [i.hash for i in old]


if __name__ == "__main__":
    PAGE.write_text(page(asyncio.run(rows())))
