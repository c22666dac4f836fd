"""A shop's activities, for `make run` (`penstock run examples/demo.yaml --app examples/shop.py`) and for order.yaml.

They only sleep a little and say what a real shop would have done. What they keep in memory is forgotten when the
process ends; what Penstock keeps is not: kill the demo half way, start it again, and it goes on.
"""

from __future__ import annotations

import asyncio
import time
from typing import Literal, TypedDict

from penstock import Fail, Retry, activity

PRICES = {"pen": 250, "ink": 900, "paper": 450, "ruler": 320, "desk": 24_900, "A1": 1_999}
_hiccups: set[str] = set()


# What activities give: `penstock verify` knows from these types what tasks can read.
class Order(TypedDict):
    customer: str
    skus: list[str]


class Customer(TypedDict):
    name: str
    level: Literal["gold", "new"]


class Payment(TypedDict):
    payment: str
    cents: int


class Parcel(TypedDict):
    parcel: str
    note: str


@activity
async def take_order(customer: str = "ann", skus: list[str] | None = None) -> Order:
    """What is ordered: given as the run's input (`-i customer=bob`), or our favourite order."""
    await asyncio.sleep(0.6)
    return {"customer": customer, "skus": skus or ["pen", "ink", "paper", "ruler"] * 2}


@activity
async def check_customer(customer: str) -> Customer:
    """Who is it, and how good a customer?"""
    await asyncio.sleep(1.5)
    return {"name": customer, "level": "gold" if customer == "ann" else "new"}


@activity
async def reserve_stock(sku: str) -> dict[str, str]:
    """One thing off the shelf."""
    await asyncio.sleep(0.9)
    if sku not in PRICES:
        raise Fail(f"we do not sell `{sku}`", code="unknown-sku")
    return {"reservation": f"r-{sku}"}


@activity
async def release_stock(reserved: dict[str, str]) -> None:
    """And back on the shelf."""
    await asyncio.sleep(0.4)


@activity
async def price_order(skus: list[str]) -> int:
    await asyncio.sleep(1.0)
    return sum(PRICES.get(sku, 0) for sku in skus)


@activity(retry=Retry(attempts=5, first=2.0, jitter=0.0), timeout=10)
async def charge_card(card: str, cents: int, order: str) -> Payment:
    """The first try times out at the bank, as first tries do; the second goes through."""
    await asyncio.sleep(1.2)
    if order not in _hiccups:
        _hiccups.add(order)
        raise ConnectionError("the bank did not answer")
    return {"payment": f"p-{order}", "cents": cents}


@activity
async def refund_card(payment: str) -> None:
    await asyncio.sleep(0.8)


@activity
def pack_item(sku: str) -> str:
    """Plain `def`: it runs in a thread, so that it may block."""
    time.sleep(1.3)
    return f"{sku}, wrapped"


@activity
async def choose_gift(name: str) -> str:
    await asyncio.sleep(1.3)
    return f"a bookmark for {name}"


@activity
async def ship_parcel(things: list[str] | str, gift: str | None = None, note: str = "") -> Parcel:
    await asyncio.sleep(1.5)
    parcel = things if isinstance(things, str) else f"{len(things)} things"
    return {"parcel": parcel + (f" and {gift}" if gift else ""), "note": note}


@activity
async def decline_order(sku: str) -> str:
    await asyncio.sleep(0.4)
    return f"no {sku} this time"


@activity
async def send_receipt(customer: str, cents: int) -> str:
    await asyncio.sleep(1.0)
    return f"{customer} paid {cents / 100:.2f}"
