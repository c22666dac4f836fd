"""A Restate server and the service that it calls, on loopback, for as long as a block lasts.

The server is as it comes (its log is synced), with its telemetry off. A variant is the SDK that the service
is written with and the number of partitions: 24 is the server's default, 2 took less CPU on two cores.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from lives import nap_seconds
from peers import install
from workload import OPEN_RUNS, order

VARIANTS = ["typescript-24", "typescript-2", "python-24", "python-2"]
START_SECONDS_MAX = 60.0
WARM = 50
"""Calls one by one before any burst: one that comes before its partitions have leaders waits long."""
HERE = Path(__file__).resolve().parent


class Cluster:
    """Calls through the ingress, and what the service prints."""

    def __init__(
        self, session: aiohttp.ClientSession, ingress: str, service: subprocess.Popen[str]
    ) -> None:
        self._session, self._ingress, self._service = session, ingress, service

    async def call(self, path: str, body: object) -> Any:
        async with self._session.post(self._ingress + path, json=body) as response:
            response.raise_for_status()
            return await response.json()

    async def attach(self, path: str) -> Any:
        async with self._session.get(self._ingress + path) as response:
            response.raise_for_status()
            return await response.json()

    async def said(self, word: str) -> None:
        """Wait until the service prints this word."""
        assert self._service.stdout is not None
        while line := await asyncio.to_thread(self._service.stdout.readline):
            if line.strip() == word:
                return
        raise SystemExit("the service ended")


@asynccontextmanager
async def cluster(folder: Path, variant: str, *, register: bool = True) -> AsyncIterator[Cluster]:
    sdk, _, partitions = variant.partition("-")
    ports = _ports(folder)
    processes: list[subprocess.Popen[str]] = []
    try:
        processes.append(_server(folder, ports, int(partitions)))
        processes.append(_service(sdk, ports["service"]))
        connector = aiohttp.TCPConnector(limit=0)
        timeout = aiohttp.ClientTimeout(total=600)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            async with asyncio.timeout(START_SECONDS_MAX):
                if register:
                    await _register(session, ports)
                await _answers(session, ports)
            restate = Cluster(session, f"http://127.0.0.1:{ports['ingress']}", processes[1])
            for number in range(WARM if register else 0):
                await restate.call("/Bench/single", order(number))
            yield restate
    finally:
        for process in processes:
            os.killpg(process.pid, signal.SIGKILL)  # Granian's worker is a process of its own
            process.wait()


def _server(folder: Path, ports: dict[str, int], partitions: int) -> subprocess.Popen[str]:
    settings = {
        "RESTATE_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "1",
        "RESTATE_ADMIN__DISABLE_WEB_UI": "true",
        "RESTATE_ADMIN__BIND_ADDRESS": f"127.0.0.1:{ports['admin']}",
        "RESTATE_INGRESS__BIND_ADDRESS": f"127.0.0.1:{ports['ingress']}",
        "RESTATE_DEFAULT_NUM_PARTITIONS": str(partitions),
        "RESTATE_LOG_FILTER": "error",
    }
    command = [str(install.server()), "--no-logo", "--node-name", "bench"]
    command += ["--base-dir", str(folder / "restate"), "--listen-mode", "tcp"]
    command += ["--bind-ip", "127.0.0.1", "--bind-port", str(ports["fabric"])]
    with (folder / "server.log").open("a") as log:
        return subprocess.Popen(
            command,
            env={**os.environ, **settings},
            stdout=log,
            stderr=subprocess.STDOUT,
            text=True,
            process_group=0,
        )


def _service(sdk: str, port: int) -> subprocess.Popen[str]:
    environment = {**os.environ, "RESTATE_LOGGING": "ERROR", "NODE_PATH": str(install.modules())}
    if sdk == "typescript":
        command = [str(install.node()), str(HERE / "restate_service.cjs"), str(port)]
        command += [str(OPEN_RUNS), str(nap_seconds())]
    else:
        command = [str(Path(sys.executable).parent / "granian"), "--interface", "asginl"]
        command += ["--http", "2", "--host", "127.0.0.1", "--port", str(port), "--loop", "uvloop"]
        command += ["--http2-max-concurrent-streams", "100000", "--no-ws"]
        command += ["--log-level", "error", "peers.restate_service:app"]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, text=True, process_group=0
    )


async def _register(session: aiohttp.ClientSession, ports: dict[str, int]) -> None:
    url = f"http://127.0.0.1:{ports['admin']}/deployments"
    body = {"uri": f"http://127.0.0.1:{ports['service']}"}
    while True:
        try:
            async with session.post(url, json=body) as response:
                if response.ok:
                    return
        except aiohttp.ClientError:
            pass
        await asyncio.sleep(0.05)


async def _answers(session: aiohttp.ClientSession, ports: dict[str, int]) -> None:
    url = f"http://127.0.0.1:{ports['ingress']}/restate/health"
    while True:
        try:
            async with session.get(url) as response:
                if response.ok:
                    return
        except aiohttp.ClientError:
            pass
        await asyncio.sleep(0.02)


def _ports(folder: Path) -> dict[str, int]:
    """Free ports; a second life in the same folder gets the same, as its deployment names one."""
    kept = folder / "ports.txt"
    names = ("service", "admin", "ingress", "fabric")
    if not kept.exists():
        sockets = [socket.create_server(("127.0.0.1", 0)) for _ in names]
        kept.write_text(" ".join(str(one.getsockname()[1]) for one in sockets))
        for one in sockets:
            one.close()
    return dict(zip(names, map(int, kept.read_text().split()), strict=True))
