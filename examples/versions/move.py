"""Open runs move from one version of their definition to the next (SPEC 2.7): `python examples/versions/move.py`.

The page is docs/howto/change-a-running-definition.md.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import penstock
from penstock import activity

HERE = Path(__file__).parent


@activity
async def pack() -> None: ...


@activity
async def weigh() -> int:
    return 12


@activity
async def deliver() -> str:
    return "the door"


ACTIVITIES = [pack, weigh, deliver]


async def move(engine: penstock.Engine) -> list[object]:
    """Two parcels wait to be fetched; one moves by hand, the other with all that a filter finds."""
    await engine.register(HERE / "parcel-1.yaml")
    runs = [await engine.start("parcel", id=f"parcel-{n}") for n in (1, 2)]
    for run in runs:
        async for change in run.watch():
            if change.type == "task_completed":
                break  # it is packed, and waits
    await engine.register(HERE / "parcel-2.yaml")

    preview = await runs[0].preview_migration("2")
    print("can move:", not preview.obstacles)
    await runs[0].migrate("2", mapping={"pack": "wrap"}, by="ann", reason="parcels are weighed")
    batch = await engine.batch(
        "migrate", definition="parcel", version="1", status="OPEN",
        arguments={"version": "2", "mapping": {"pack": "wrap"}}, by="ann",
    )  # fmt: skip
    batch = await engine.batches.wait(batch.id)
    print("moved:", batch.done, "refused:", batch.refused)

    for run in runs:
        await run.signal("fetched", True)
    return [await run.result() for run in runs]


async def main() -> None:
    async with penstock.open("memory:", activities=ACTIVITIES) as engine:
        print(await move(engine))


if __name__ == "__main__":
    asyncio.run(main())
