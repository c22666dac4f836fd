"""Orders over HTTP with Django, in one file.

Asynchronous, the engine in the server's event loop:
    PENSTOCK_STORE=postgresql://… uvicorn --app-dir examples/web django_app:application --workers 2
Synchronous, the engine's twin in a thread of each worker process:
    PENSTOCK_STORE=postgresql://… gunicorn --chdir examples/web django_app:wsgi --workers 2 --threads 8
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import django
from django.conf import settings
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.urls import path
from django.utils.deprecation import MiddlewareMixin
from orders import ACTIVITIES, ORDER, STORE, problem, server_sent, status_of

import penstock

if not settings.configured:
    settings.configure(
        SECRET_KEY=os.environ.get("SECRET_KEY", "an example"),
        ALLOWED_HOSTS=["*"],
        ROOT_URLCONF=__name__,
        MIDDLEWARE=[f"{__name__}.Refusals"],
        USE_TZ=True,
    )
    django.setup()


class Refusals(MiddlewareMixin):
    """Our errors as HTTP answers, of both kinds of views."""

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        if isinstance(error, penstock.PenstockError):
            return JsonResponse(problem(error), status=status_of(error))
        return None


# --- asynchronous: views that await --------------------------------------------------------------------------------

engine: penstock.Engine


async def orders(request: HttpRequest) -> HttpResponse:
    order = json.loads(request.body)
    run = await engine.start("web-order", {"cents": order["cents"]}, id=order["id"])
    return JsonResponse({"id": run.id}, status=201)  # on disk


async def order(request: HttpRequest, id: str) -> HttpResponse:
    run, wait = await engine.get(id), float(request.GET.get("wait", 0))
    try:
        async with asyncio.timeout(wait or None):
            result = await run.result() if wait else None
    except TimeoutError:
        result = None
    return JsonResponse({"id": id, "status": await run.status(), "result": result})


async def approve(request: HttpRequest, id: str) -> HttpResponse:
    await (await engine.get(id)).signal("approve", True)
    return JsonResponse({"id": id}, status=202)


async def events(request: HttpRequest, id: str) -> StreamingHttpResponse:
    run, last = await engine.get(id), int(request.headers.get("Last-Event-ID", 0))

    async def stream() -> AsyncIterator[str]:
        async for change in run.watch():
            if change.seq > last:
                yield server_sent(change)

    return StreamingHttpResponse(stream(), content_type="text/event-stream")


async def health(request: HttpRequest) -> HttpResponse:
    owner = await engine.owner()
    mine = owner is not None and owner.pid == os.getpid()
    return JsonResponse({"pid": os.getpid(), "owner": mine})


class Application(ASGIHandler):
    """Django does not speak ASGI's lifespan: the engine is opened and closed here."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "lifespan":
            await super().__call__(scope, receive, send)
            return
        global engine
        await receive()
        async with penstock.open(STORE, activities=ACTIVITIES) as engine:
            await engine.register(ORDER)
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})


# --- synchronous: the same with the twin ---------------------------------------------------------------------------

_lock = threading.Lock()
_twin: Any = None


def twin() -> Any:
    """One engine in each worker process, opened on first use: after the server has forked. It closes itself at exit."""
    global _twin
    with _lock:
        if _twin is None:
            _twin = penstock.sync.open(STORE, activities=ACTIVITIES)
            _twin.register(ORDER)
        return _twin


def sync_orders(request: HttpRequest) -> HttpResponse:
    order = json.loads(request.body)
    run = twin().start("web-order", {"cents": order["cents"]}, id=order["id"])
    return JsonResponse({"id": run.id}, status=201)


def sync_order(request: HttpRequest, id: str) -> HttpResponse:
    run = twin().get(id)
    result = run.result() if float(request.GET.get("wait", 0)) else None
    return JsonResponse({"id": id, "status": run.status(), "result": result})


def sync_approve(request: HttpRequest, id: str) -> HttpResponse:
    twin().get(id).signal("approve", True)
    return JsonResponse({"id": id}, status=202)


def sync_events(request: HttpRequest, id: str) -> StreamingHttpResponse:
    run, last = twin().get(id), int(request.headers.get("Last-Event-ID", 0))

    def stream() -> Iterator[str]:
        with run.watch() as changes:
            for change in changes:
                if change.seq > last:
                    yield server_sent(change)

    return StreamingHttpResponse(stream(), content_type="text/event-stream")


def sync_health(request: HttpRequest) -> HttpResponse:
    owner = twin().owner()
    mine = owner is not None and owner.pid == os.getpid()
    return JsonResponse({"pid": os.getpid(), "owner": mine})


ASYNC = (orders, order, approve, events, health)
SYNC = (sync_orders, sync_order, sync_approve, sync_events, sync_health)
PLACES = (
    "orders",
    "orders/<str:id>",
    "orders/<str:id>/approve",
    "orders/<str:id>/events",
    "health",
)
urlpatterns = [
    *(path(place, view) for place, view in zip(PLACES, ASYNC, strict=True)),
    *(path(f"sync/{place}", view) for place, view in zip(PLACES, SYNC, strict=True)),
]
application = Application()
wsgi = WSGIHandler()
