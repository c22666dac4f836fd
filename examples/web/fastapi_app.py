"""Orders over HTTP with FastAPI: `PENSTOCK_STORE=postgresql://… uvicorn --app-dir examples/web fastapi_app:app --workers 2`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Header, Request
from fastapi.responses import JSONResponse, StreamingResponse
from orders import ACTIVITIES, ORDER, STORE, problem, server_sent, status_of
from pydantic import BaseModel

import penstock


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with penstock.open(STORE, activities=ACTIVITIES) as engine:  # one in each worker process
        await engine.register(ORDER)
        app.state.engine = engine
        yield  # then attempts end, results are stored, and another worker takes over


app = FastAPI(lifespan=lifespan)


def engine_of(request: Request) -> penstock.Engine:
    return request.app.state.engine


Engine = Annotated[penstock.Engine, Depends(engine_of)]


class Order(BaseModel):
    id: str
    cents: int


@app.post("/orders", status_code=201)
async def start(order: Order, engine: Engine) -> dict[str, Any]:
    run = await engine.start(
        "web-order", {"cents": order.cents}, id=order.id
    )  # on disk from here on
    return {"id": run.id}


@app.get("/orders/{id}")
async def show(id: str, engine: Engine, wait: float = 0.0) -> dict[str, Any]:
    run = await engine.get(id)
    try:
        async with asyncio.timeout(wait or None):
            result = await run.result() if wait else None
    except TimeoutError:
        result = None
    return {"id": id, "status": await run.status(), "result": result}


@app.post("/orders/{id}/approve", status_code=202)
async def approve(id: str, engine: Engine) -> dict[str, Any]:
    await (await engine.get(id)).signal("approve", True)
    return {"id": id}


@app.get("/orders/{id}/events")
async def events(
    id: str, engine: Engine, last_event_id: Annotated[int, Header()] = 0
) -> StreamingResponse:
    run = await engine.get(id)

    async def stream() -> AsyncIterator[str]:
        async for change in run.watch():
            if change.seq > last_event_id:
                yield server_sent(change)

    return StreamingResponse(stream(), media_type="text/event-stream")


@app.get("/health")
async def health(engine: Engine) -> dict[str, Any]:
    owner = await engine.owner()
    return {"pid": os.getpid(), "owner": owner is not None and owner.pid == os.getpid()}


@app.exception_handler(penstock.PenstockError)
async def refused(request: Request, error: penstock.PenstockError) -> JSONResponse:
    return JSONResponse(problem(error), status_of(error))
