"""What comes from outside and is no text, no name, no time: refused at the call, and nothing is changed (SPEC 4.4)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import Rejected

SIGNAL = {"id": "sig", "tasks": {"s": {"type": "signal", "config": {"name": "go"}}}}
ACTS: dict[str, Any] = {
    "pause": lambda run: run.pause(reason=None),
    "cancel": lambda run: run.cancel(reason=None),
    "terminate": lambda run: run.terminate(reason=5),
    "signal": lambda run: run.signal("go", message_id=None),
    "no name": lambda run: run.signal(None),
    "attributes": lambda run: run.set_attributes({"a": 1}, reason=None),
    "no mapping": lambda run: run.set_attributes("abc"),
    "surrogate": lambda run: run.pause(reason="\ud800"),
    "command id": lambda run: run.pause(command_id=None),
    "NUL": lambda run: run.pause(reason="a\0b"),
}


@pytest.mark.parametrize("act", ACTS)
async def test_a_wrong_text_is_refused_and_the_run_can_still_be_read(
    tmp_path: Path, act: str
) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    async with penstock.open(url) as engine:
        await engine.register(SIGNAL)
        run = await engine.start("sig", id="x")
        with pytest.raises(Rejected) as refused:
            await ACTS[act](run)
        assert refused.value.code in ("text-invalid", "payload-invalid")
    async with penstock.open(url) as engine:
        run = await engine.get("x")
        assert (await run.show()).status == "WAITING"
        await run.signal("go", 1)
        assert await run.result() == 1


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"id": 7}, "id-invalid"),
        ({"id": b"x"}, "id-invalid"),
        ({"id": "\ud800"}, "id-invalid"),
        ({"delay": "5s"}, "time-invalid"),
        ({"delay": 10**400}, "time-invalid"),
        ({"metadata": "abc"}, "payload-invalid"),
        ({"attributes": 5}, "payload-invalid"),
        ({"created_by": 5}, "text-invalid"),
        ({"idempotency_key": 5}, "text-invalid"),
    ],
)
async def test_a_start_with_a_wrong_value_is_refused(options: dict[str, Any], code: str) -> None:
    async with penstock.open("memory:") as engine:
        await engine.register(SIGNAL)
        with pytest.raises(Rejected) as refused:
            await engine.start("sig", **options)
        assert refused.value.code == code
        assert await engine.list() == []
