"""What the three web applications beside this file have in common: a workflow, its activities and how it is shown."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import penstock
from penstock import Change, activity, current

STORE = os.environ.get("PENSTOCK_STORE", "sqlite:///orders.db")
"""All worker processes open the same one: postgresql://user:password@host/database."""

ORDER = """
id: web-order
inputSchema: {type: object, required: [cents], properties: {cents: {type: integer, minimum: 1}}}
tasks:
  charge:  {do: charge, inputs: {cents: {from: input, path: $.cents}}}
  approve: {type: signal, name: approve, after: [charge]}
  ship:    {do: ship, after: [approve]}
outputs: {payment: tasks.charge.output, parcel: tasks.ship.output}
"""


@activity
async def charge(cents: int) -> str:
    await asyncio.sleep(0.05)
    return f"{cents} cents by {current().idempotency_key}"


@activity
async def ship() -> str:
    await asyncio.sleep(0.05)
    return "shipped"


ACTIVITIES = [charge, ship]


def status_of(error: penstock.PenstockError) -> int:
    """Our errors as HTTP status codes."""
    if isinstance(error, penstock.NotFound):
        return 404
    if isinstance(error, penstock.Busy):
        return 503
    if error.code in ("input-invalid", "id-invalid"):
        return 422
    return 409 if isinstance(error, penstock.Rejected) else 500


def problem(error: penstock.PenstockError) -> dict[str, Any]:
    return {"code": error.code, "detail": str(error), "hint": error.hint}


def server_sent(change: Change) -> str:
    """A change of a run as a server-sent event; a browser that reconnects sends the last `id` it saw."""
    return f"id: {change.seq}\nevent: {change.type}\ndata: {change.status}\n\n"
