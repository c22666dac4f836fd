"""The server that the other tests stand on: it comes back from a kill, and ends with whoever started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from support.postgres import Server, serving


def test_databases_are_fresh_and_apart(postgres: Server, postgres_url: str) -> None:
    other = postgres.create()
    postgres.execute("CREATE TABLE t (n int); INSERT INTO t VALUES (1), (2)", postgres_url)

    assert postgres.execute("SELECT sum(n) FROM t", postgres_url) == "3"
    assert postgres.execute("SELECT count(*) FROM pg_tables WHERE tablename='t'", other) == "0"
    postgres.drop(other)


def test_what_was_committed_is_there_after_a_kill() -> None:
    with serving() as server:
        url = server.create()
        server.execute("CREATE TABLE t (n int); INSERT INTO t VALUES (7)", url)
        server.kill()
        server.start()

        assert server.execute("SELECT n FROM t", url) == "7"


def test_it_ends_with_a_killed_starter() -> None:
    code = (
        "from support.postgres import Server\nimport time\ns = Server()\ns.start()\n"
        "print(s.pid, s.base, flush=True)\ntime.sleep(60)"
    )
    folder = str(Path(__file__).parent.parent)
    starter = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": folder},
    )
    assert starter.stdout is not None
    pid, base = starter.stdout.readline().split()
    starter.send_signal(signal.SIGKILL)
    starter.wait()
    starter.stdout.close()

    end = time.monotonic() + 10
    while Path(base).exists() or Path(f"/proc/{pid}").exists():
        assert time.monotonic() < end, "the server outlived its starter"
        time.sleep(0.02)
