"""What simulation found, each with a test that fails without its fix."""

from __future__ import annotations

import pytest

from penstock import Context, workflow
from penstock.adapters.memory import MemoryStore
from penstock.errors import Rejected
from penstock.testing.harness import SkipClock, harness


@workflow
async def waits(ctx: Context) -> int:
    return await ctx.signal("go")


async def test_a_function_is_told_what_another_wrote_before_a_command_to_it_is_decided() -> None:
    """A signal that another process stored ends the run; a cancel that comes next was decided first, and its events came
    after the end (SPEC 4.4: terminal is final)."""
    clock = SkipClock()
    stores = [MemoryStore("told", clock=clock.now) for _ in range(2)]
    async with (
        harness(workflows=[waits], store=stores[0], clock=clock) as owner,
        harness(workflows=[waits], store=stores[1], clock=clock) as other,
    ):
        run = await owner.start(waits, id="r")
        await owner.settle()
        await (await other.get("r")).signal("go", 5)
        with pytest.raises(Rejected, match="has ended COMPLETED"):
            await run.cancel(command_id="c")
        assert await run.result() == 5
        assert (await owner.types(run))[-1] == "run_completed"
    MemoryStore.forget("told")
