"""A life (`crash/nursery.py`) that runs a script in a folder, as `python -W error SCRIPT` does there."""

from __future__ import annotations

import os
import runpy
import signal
import sys
import warnings

import msgspec

LIFE_SECONDS_MAX = 180
"""On a machine that has other things to do; a page takes a second or two of processor."""


class Orders(msgspec.Struct):
    script: str
    folder: str


def main(orders: Orders) -> int:
    signal.alarm(LIFE_SECONDS_MAX)
    os.chdir(orders.folder)
    warnings.simplefilter("error")
    sys.argv, sys.path[0] = [orders.script], orders.folder
    try:
        runpy.run_path(orders.script, run_name="__main__")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0
