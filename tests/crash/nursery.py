"""Starts lives quickly: a process that has imported everything, also what a first engine imports and compiles, forks one
child an order, and says how it ended.

Speaks over its standard streams: an order in, the child's process id out, then the child's status.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
import threading
import traceback
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

DIED = 70
"""The status of a life that ended by an exception."""


async def _first() -> None:
    import penstock
    from crash import workload

    async with penstock.open("memory:", activities=workload.ACTIVITIES) as engine:
        for definition in workload.DEFINITIONS:
            await engine.register(definition)


def warm() -> None:
    """What took each life a second of processor before it did anything; a kill early in it now meets the engine."""
    for name in ("sqlite.hints", "postgres.store", "postgres.hints"):
        importlib.import_module(f"penstock.adapters.{name}")
    asyncio.run(_first())
    assert threading.active_count() == 1, "a child has none of its parent's threads"


def serve(module: str) -> None:
    victim = importlib.import_module(module)
    warm()
    for line in sys.stdin.buffer:
        orders = msgspec.json.decode(line, type=victim.Orders)
        pid = os.fork()
        if pid == 0:
            status = DIED
            try:
                os.dup2(os.open(os.devnull, os.O_RDWR), 0)
                os.dup2(2, 1)
                status = victim.main(orders)
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(status)
        print(pid, flush=True)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    serve(sys.argv[1])
