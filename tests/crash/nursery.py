"""Starts lives quickly: a process that has imported everything forks one child an order, and says how it ended.

Speaks over its standard streams: an order in, the child's process id out, then the child's status.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

DIED = 70
"""The status of a life that ended by an exception."""


def serve(module: str) -> None:
    victim = importlib.import_module(module)
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
