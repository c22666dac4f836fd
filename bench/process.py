"""Runs one measuring script: its own process, its own folder, a time limit, one line of JSON back.

Where we may, it gets a network of its own that has nothing but the loopback: no subject can reach further. However we end, it
ends, with all that it started.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import signal
import socket
import struct
import subprocess
from pathlib import Path
from typing import Any

import psutil

HERE = Path(__file__).resolve().parent
STOP_SECONDS_MAX = 10.0
END_WITH_PARENT = 1

NEW_NETWORK = 0x40000000
SET_FLAGS, UP_AND_RUNNING = 0x8914, 0x41


class Failed(Exception):
    """The script gave no answer; the text says why."""


def ask(
    python: Path,
    script: str,
    folder: Path,
    *,
    store: str | None,
    variant: str | None,
    quick: bool,
    seconds_max: float,
) -> dict[str, Any]:
    command = [str(python), str(HERE / script), "--folder", str(folder)]
    if variant is not None:
        command += ["--variant", variant]
    if store is not None:
        command += ["--store", store]
    if quick:
        command.append("--quick")
    talk = folder / "talk.txt"
    with talk.open("w") as errors:
        process = subprocess.Popen(
            command,
            env={**os.environ, "PYTHONPATH": str(HERE), "DO_NOT_TRACK": "1"},
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            process_group=0,  # what is sent to us and all around us does not end it halfway: we do
            preexec_fn=_apart,
        )
        try:
            output, _ = process.communicate(timeout=seconds_max)
        except subprocess.TimeoutExpired:
            raise Failed(f"no answer within {seconds_max:.0f} s") from None
        finally:
            _end(process)
    if process.returncode != 0:
        raise Failed(_last_line(talk) or f"ended with status {process.returncode}")
    for line in reversed(output.splitlines()):
        if line.startswith("{"):
            return json.loads(line)
    raise Failed("it printed no figures")


def _apart() -> None:
    """In the child: end with us, if we are killed; leave the machine's network, and bring up the loopback of the new one."""
    ctypes.CDLL(None).prctl(END_WITH_PARENT, signal.SIGTERM)
    if ctypes.CDLL(None).unshare(NEW_NETWORK) != 0:
        return  # not allowed here: the subjects are told to stay on the loopback anyway
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh14x", b"lo", UP_AND_RUNNING)
        fcntl.ioctl(any_socket.fileno(), SET_FLAGS, request)


def _end(process: subprocess.Popen[str]) -> None:
    """End the script and all that it started, by their ids; politely first."""
    if process.poll() is not None:
        return
    try:
        family = [
            psutil.Process(process.pid),
            *psutil.Process(process.pid).children(recursive=True),
        ]
    except psutil.NoSuchProcess:
        return
    process.terminate()
    _, alive = psutil.wait_procs(family, timeout=STOP_SECONDS_MAX)
    for one in alive:
        one.kill()
    process.wait()


def _last_line(path: Path) -> str:
    lines = [line for line in path.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""
