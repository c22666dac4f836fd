"""Orders over HTTP with Litestar: `PENSTOCK_STORE=postgresql://… uvicorn --app-dir examples/web litestar_app:app --workers 2`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from litestar import Litestar, Request, Response, get, post
from litestar.datastructures import State
from litestar.di import Provide
from litestar.response import Stream
from msgspec import Struct
from orders import ACTIVITIES, ORDER, STORE, problem, server_sent, status_of

import penstock


@asynccontextmanager
async def lifespan(app: Litestar) -> AsyncIterator[None]:
    async with penstock.open(STORE, activities=ACTIVITIES) as engine:  # one in each worker process
        await engine.register(ORDER)
        app.state.engine = engine
        yield  # then attempts end, results are stored, and another worker takes over


async def engine_of(state: State) -> penstock.Engine:
    return state.engine


class Order(Struct):
    id: str
    cents: int


@post("/orders")
async def start(data: Order, engine: penstock.Engine) -> dict[str, Any]:
    run = await engine.start("web-order", {"cents": data.cents}, id=data.id)  # on disk from here on
    return {"id": run.id}


@get("/orders/{id:str}")
async def show(id: str, engine: penstock.Engine, wait: float = 0.0) -> dict[str, Any]:
    run = await engine.get(id)
    try:
        async with asyncio.timeout(wait or None):
            result = await run.result() if wait else None
    except TimeoutError:
        result = None
    return {"id": id, "status": await run.status(), "result": result}


@post("/orders/{id:str}/approve", status_code=202)
async def approve(id: str, engine: penstock.Engine) -> dict[str, Any]:
    await (await engine.get(id)).signal("approve", True)
    return {"id": id}


@get("/orders/{id:str}/events")
async def events(id: str, engine: penstock.Engine, request: Request[Any, Any, Any]) -> Stream:
    run, last = await engine.get(id), int(request.headers.get("last-event-id", 0))

    async def stream() -> AsyncIterator[str]:
        async for change in run.watch():
            if change.seq > last:
                yield server_sent(change)

    return Stream(stream(), media_type="text/event-stream")


@get("/health")
async def health(engine: penstock.Engine) -> dict[str, Any]:
    owner = await engine.owner()
    return {"pid": os.getpid(), "owner": owner is not None and owner.pid == os.getpid()}


def refused(request: Request[Any, Any, Any], error: penstock.PenstockError) -> Response[Any]:
    return Response(problem(error), status_code=status_of(error))


app = Litestar(
    [start, show, approve, events, health],
    lifespan=[lifespan],
    dependencies={"engine": Provide(engine_of)},
    exception_handlers={penstock.PenstockError: refused},
)
