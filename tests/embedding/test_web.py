"""The applications in `examples/web`, each as several real worker processes on one PostgreSQL, over real HTTP (SPEC 15)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

import penstock

WEB = Path(__file__).parents[2] / "examples" / "web"
SECONDS_MAX = 30.0
APPS = {
    "fastapi": ("uvicorn", "fastapi_app:app", ""),
    "litestar": ("uvicorn", "litestar_app:app", ""),
    "django": ("uvicorn", "django_app:application", ""),
    "django-wsgi": ("gunicorn", "django_app:wsgi", "/sync"),
}


class Served:
    """A server and its worker processes."""

    def __init__(self, process: subprocess.Popen[bytes], base: str, log: Path) -> None:
        self.process, self.base, self.log = process, base, log

    def workers(self) -> list[int]:
        """Those that are alive and serve."""
        alive: list[int] = []
        for child in psutil.Process(self.process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                tracker = "resource_tracker" in " ".join(child.cmdline())
                if child.status() != psutil.STATUS_ZOMBIE and not tracker:
                    alive.append(child.pid)
        return alive


@contextmanager
def serving(app: str, url: str, folder: Path, *, workers: int = 1) -> Iterator[Served]:
    kind, name, prefix = APPS[app]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    if kind == "uvicorn":
        more = (
            ["--workers", str(workers), "--timeout-worker-healthcheck", "30"] if workers > 1 else []
        )
        command = ["-m", "uvicorn", "--app-dir", str(WEB), name, "--port", str(port), "--no-access-log",
                   "--timeout-graceful-shutdown", "5", *more]  # fmt: skip
    else:
        command = ["-m", "gunicorn", "--chdir", str(WEB), name, "-b", f"127.0.0.1:{port}", "--threads", "8",
                   "--workers", str(workers), "--graceful-timeout", "15"]  # fmt: skip
    log = folder / f"{app}-{port}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, *command], stdout=out, stderr=out, start_new_session=True,
            env={**os.environ, "PENSTOCK_STORE": url},
        )  # fmt: skip
    served = Served(process, f"http://127.0.0.1:{port}{prefix}", log)
    try:
        yield served
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


async def asked(client: httpx.AsyncClient, method: str, url: str, **more: Any) -> httpx.Response:
    """As a client does who is not sure whether it was heard: asks again; an id makes that harmless."""
    end = time.monotonic() + SECONDS_MAX
    while True:
        try:
            answer = await client.request(method, url, **more)
            if answer.status_code < 500:
                return answer
        except httpx.TransportError:
            pass
        assert time.monotonic() < end, f"{method} {url} is not answered"
        await asyncio.sleep(0.05)


@asynccontextmanager
async def asking() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(timeout=SECONDS_MAX, trust_env=False) as client:
        yield client


async def order(client: httpx.AsyncClient, at: str, other: str, id: str) -> dict[str, Any]:
    """Ordered here, approved there, its result asked for here."""
    assert (
        await asked(client, "POST", f"{at}/orders", json={"id": id, "cents": 5})
    ).status_code == 201
    assert (await asked(client, "POST", f"{other}/orders/{id}/approve")).status_code == 202
    return (await asked(client, "GET", f"{at}/orders/{id}", params={"wait": 20})).json()


async def events_of(client: httpx.AsyncClient, url: str, **more: Any) -> list[str]:
    async with client.stream("GET", url, **more) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = [line async for line in answer.aiter_lines()]
    return [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]


@pytest.mark.parametrize("app", APPS)
async def test_two_workers_share_the_runs_and_one_outlives_the_other(
    app: str, postgres_url: str, tmp_path: Path
) -> None:
    with (
        serving(app, postgres_url, tmp_path) as a,
        serving(app, postgres_url, tmp_path) as b,
    ):
        async with asking() as client:
            health = [(await asked(client, "GET", f"{s.base}/health")).json() for s in (a, b)]
            assert sorted(h["owner"] for h in health) == [False, True]
            owner, standby = (a, b) if health[0]["owner"] else (b, a)
            owner_pid = next(h["pid"] for h in health if h["owner"])

            # Whoever is asked, the owner executes; results come back to who asked.
            done = await asyncio.gather(
                *(order(client, owner.base, standby.base, f"o{n}") for n in range(5)),
                *(order(client, standby.base, owner.base, f"s{n}") for n in range(5)),
            )
            assert {each["status"] for each in done} == {"COMPLETED"}
            assert all(each["result"]["parcel"] == "shipped" for each in done)

            # Live changes, from the worker that does not execute; then from where a browser was.
            await asked(client, "POST", f"{standby.base}/orders", json={"id": "live", "cents": 1})
            live = asyncio.ensure_future(events_of(client, f"{standby.base}/orders/live/events"))
            await asked(client, "POST", f"{standby.base}/orders/live/approve")
            seen = await asyncio.wait_for(live, 10)
            assert (seen[0], seen[-1]) == ("run_started", "run_completed")
            url, last = f"{owner.base}/orders/live/events", {"Last-Event-ID": "1"}
            assert await events_of(client, url, headers=last) == seen[1:]

            # Errors are answers.
            unknown = await client.get(f"{standby.base}/orders/none")
            assert (unknown.status_code, unknown.json()["code"]) == (404, "not-found")
            late = await client.post(f"{standby.base}/orders/live/approve")
            assert (late.status_code, late.json()["code"]) == (409, "run-closed")
            free = {"id": "free", "cents": 0}
            unfit = await client.post(f"{standby.base}/orders", json=free)
            assert (unfit.status_code, unfit.json()["code"]) == (422, "input-invalid")

            # kill -9 of the owner: the other takes over, nothing is lost.
            for n in range(6):
                at = (owner, standby)[n % 2].base
                await asked(client, "POST", f"{at}/orders", json={"id": f"k{n}", "cents": 1})
            os.kill(owner_pid, signal.SIGKILL)
            for n in range(6):
                await asked(client, "POST", f"{standby.base}/orders/k{n}/approve")
            url = f"{standby.base}/orders"
            ends = [
                (await asked(client, "GET", f"{url}/k{n}", params={"wait": 20})).json()
                for n in range(6)
            ]
            assert {each["status"] for each in ends} == {"COMPLETED"}
            assert (await asked(client, "GET", f"{standby.base}/health")).json()["owner"]


@pytest.mark.parametrize("app", APPS)
async def test_a_reload_under_load_loses_no_run_and_no_attempt(
    app: str, postgres_url: str, tmp_path: Path
) -> None:
    """SIGHUP to the server: its workers are replaced while orders come in."""
    with serving(app, postgres_url, tmp_path, workers=2) as served:
        async with asking() as client:
            await asked(client, "GET", f"{served.base}/health")
            before = set(served.workers())
            stop = asyncio.Event()
            accepted: list[str] = []

            async def buyer(name: int) -> None:
                count = 0
                while not stop.is_set():
                    count += 1
                    done = await order(client, served.base, served.base, f"b{name}-{count}")
                    assert done["status"] == "COMPLETED", done
                    accepted.append(done["id"])

            buyers = [asyncio.ensure_future(buyer(n)) for n in range(4)]
            await asyncio.sleep(0.5)
            assert len(before) == 2
            served.process.send_signal(signal.SIGHUP)
            end = time.monotonic() + 60
            while before & set(served.workers()):
                assert time.monotonic() < end, served.log.read_text()
                await asyncio.sleep(0.1)
            await asked(client, "GET", f"{served.base}/health")
            count = len(accepted)
            while len(accepted) < count + 4:
                assert time.monotonic() < end, served.log.read_text()
                await asyncio.sleep(0.05)
            stop.set()
            await asyncio.gather(*buyers)
    async with penstock.open(postgres_url, execute=False) as engine:
        rows = await engine.list(definition="web-order", limit=1000)
        assert {row.status for row in rows} == {"COMPLETED"}
        assert {row.id for row in rows} >= set(accepted)
        for row in rows:
            types = [item.type for item in await (await engine.get(row.id)).history()]
            assert "task_lost" not in types
            assert types.count("task_completed") == 2, "no attempt was lost, none was made twice"


@pytest.mark.parametrize("page", ["fastapi", "litestar", "django"])
def test_the_page_shows_the_code_that_is_tested(page: str) -> None:
    text = (Path(__file__).parents[2] / "docs" / "howto" / f"{page}.md").read_text()
    code = (WEB / f"{page}_app.py").read_text()
    shown = re.findall(r"^```py\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(shown) >= 4
    for block in shown:
        assert block.rstrip() in code
