"""A shop with a mistake of each kind: `penstock simulate examples/simulate/careless.py examples/simulate/careless.yaml`.

None of them shows as long as everything goes well. `careful.py` is the same shop without them.
"""

from __future__ import annotations

import asyncio
from collections import Counter

from penstock import Context, Fail, Retry, activity, workflow
from penstock.testing import World, does, invariant


@activity(effects=True)
async def reserve(sku: str) -> str: ...


@activity
async def release(reservation: str) -> None: ...


@activity(retry=Retry(attempts=4, first=0.5))
async def charge(order: str, cents: int) -> str: ...


@activity
async def refund(payment: str) -> None: ...


@activity(effects=False)
async def find_address(customer: str) -> str | None: ...


@activity(effects=False)
async def quote(shipper: str) -> int: ...


@activity
async def print_label(parcel: str) -> str: ...


class Bank(World):
    """What customers have paid, by order."""

    takes = {print_label: (40, 60)}

    def __init__(self) -> None:
        self.paid: Counter[str] = Counter()

    @does(charge)
    def charge(self, order: str, cents: int) -> str:
        self.effect("charged", order)
        self.paid[order] += 1
        return order  # the payment has the number of its order

    @does(refund)
    def refund(self, payment: str) -> None:
        self.undone("charged", payment)
        self.paid[payment] -= 1

    @invariant
    def nobody_pays_twice(self) -> bool:
        """Each order is paid at most once."""
        return all(times <= 1 for times in self.paid.values())


@workflow
async def keeps_stock(ctx: Context, sku: str) -> str:
    """Its reservation stays when there is no address: nothing releases it."""
    reservation = await ctx.call(reserve, sku)
    if not await ctx.call(find_address, sku):
        raise Fail("no address")
    return reservation


@workflow
async def pays_twice(ctx: Context, cents: int) -> str:
    """After a crash between the bank's charge and its record the bank is asked again, and charges again."""
    return await ctx.call(charge, ctx.run_id, cents, undo=refund)


@workflow
async def takes_the_last(ctx: Context) -> str:
    """Who answers last is chosen, not who is cheapest."""
    best = ""

    async def ask(shipper: str) -> None:
        nonlocal best
        await ctx.call(quote, shipper)
        best = shipper

    await asyncio.gather(ask("north"), ask("south"))
    return best


@workflow
async def never_in_time(ctx: Context, parcel: str) -> str:
    """Printing takes 40 to 60 seconds, and has 30."""
    async with asyncio.timeout(30):
        return await ctx.call(print_label, parcel)


@workflow(timeout=20)
async def gives_up_early(ctx: Context, parcel: str) -> int:
    """Six attempts wait for 62 seconds between them; the run has 20."""
    return await ctx.call(quote, parcel, retry=Retry(attempts=6, first=2, jitter=0))


@workflow
async def forgets_none(ctx: Context, customer: str) -> str:
    """There may be no address, as its type says."""
    address = await ctx.call(find_address, customer)
    return address.upper()  # type: ignore[union-attr]
