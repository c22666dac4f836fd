"""The shop of `careless.py` without its mistakes: `penstock simulate examples/simulate/careful.py examples/simulate/careful.yaml`."""

from __future__ import annotations

import asyncio

from penstock import Context, Fail, Retry, activity, current, workflow
from penstock.testing import World, does, invariant


@activity(effects=True)
async def reserve(sku: str) -> str: ...


@activity(retry=Retry(attempts=5, first=0.2))
async def release(reservation: str) -> None: ...


@activity(retry=Retry(attempts=4, first=0.5), timeout=10)
async def charge(order: str, cents: int) -> str: ...


@activity
async def cancel_payment(order: str) -> None: ...


@activity(effects=False)
async def find_address(customer: str) -> str | None: ...


@activity(effects=False, simulate=True)
async def quote(shipper: str) -> int:
    await asyncio.sleep(len(shipper) / 10)
    return len(shipper)


@activity(timeout=300)
async def print_label(parcel: str) -> str: ...


class Bank(World):
    """What customers have paid, by order; the bank knows a request that it has seen before."""

    takes = {print_label: (40, 60)}
    answers = {"approve": (True, True, False)}

    def __init__(self) -> None:
        self.payments: dict[str, str] = {}
        self.cancelled: set[str] = set()

    @does(charge)
    def charge(self, order: str, cents: int) -> str:
        request = current().idempotency_key
        if request not in self.payments and order not in self.cancelled:
            self.effect("charged", order)
            self.payments[request] = order
        return order

    @does(cancel_payment)
    def cancel_payment(self, order: str) -> None:
        self.cancelled.add(order)  # what comes later than its cancellation is refused, too
        self.undone("charged", order)

    @invariant(end=True)
    def what_is_delivered_is_paid(self) -> None:
        for run in self.runs:
            if run.workflow == "order" and run.status == "COMPLETED":
                assert run.id in self.payments.values(), f"{run.id} was not paid"


@workflow
async def order(ctx: Context, sku: str, cents: int = 100) -> str:
    """Reserves, charges, waits for an approval, and asks two shippers."""
    reservation = await ctx.call(reserve, sku, undo=release)
    ctx.undo(cancel_payment, ctx.run_id)  # before the charge: it may be done and never heard of
    await ctx.call(charge, ctx.run_id, cents)
    if not await ctx.signal("approve", type=bool, timeout=86400):
        raise Fail("not approved")
    address = await ctx.call(find_address, sku)
    if address is None:
        raise Fail("no address")
    prices = await asyncio.gather(ctx.call(quote, "north"), ctx.call(quote, "southern"))
    best = min(zip(prices, ("north", "southern"), strict=True))
    return f"{reservation} to {address} by {best[1]}"


@workflow(timeout=600)
async def label(ctx: Context, parcel: str) -> str:
    """Printing has the time that it takes."""
    async with asyncio.timeout(120):
        return await ctx.call(print_label, parcel)
