"""An order built by the five operators (SPEC 2.4), run on the engine: `python examples/algebra.py`."""

from __future__ import annotations

import asyncio

import penstock
from penstock import activity, compose, loop, task, when


@activity
async def reserve(sku: str) -> bool:
    return bool(sku)


@activity
async def charge(cents: int) -> str:
    return f"p-{cents}"


@activity
async def pack() -> str:
    return "parcel"


@activity
async def ship() -> str:
    return "shipped"


@activity
async def decline() -> str:
    return "declined"


reserved = task(reserve, inputs={"sku": "${input.sku}"})
charged = task(charge, inputs={"cents": "${input.cents}"})
shipped = loop(pack, while_="iteration < input.parcels", id="packing") >> ship
approved = task("approve", type="signal") >> shipped
late = task("patience", type="timer", delay="2d") >> decline

order = compose(
    "order",
    (reserved | charged)
    >> when("input.cents < 100000", task(ship, id="ship_now"), approved + late),
    input_schema={"type": "object", "required": ["sku", "cents", "parcels"]},
)
ACTIVITIES = [reserve, charge, pack, ship, decline]


async def main() -> None:
    async with penstock.open("memory:", activities=ACTIVITIES) as engine:
        await engine.register(order)
        run = await engine.start("order", {"sku": "book", "cents": 999_900, "parcels": 2})
        await run.signal("approve", True)
        print(await run.result())
        print([event.type for event in await run.history()])


if __name__ == "__main__":
    asyncio.run(main())
