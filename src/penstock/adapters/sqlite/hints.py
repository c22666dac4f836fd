"""A datagram to the socket that the owner's row names: processes on one machine (SPEC 4.8)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
import tempfile
import uuid
from collections.abc import Callable

HINT_BYTES_MAX = 4096


class DatagramHints:
    """Abstract sockets on Linux, so that nothing is left behind by a kill; a file elsewhere."""

    in_append = False

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._path: str | None = None
        self._out: socket.socket | None = None

    def listen(self, heard: Callable[[str], None]) -> str:
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        listening.setblocking(False)
        name = f"penstock-{os.getpid()}-{uuid.uuid4().hex[:12]}"
        if sys.platform == "linux":
            address = f"@{name}"
        else:
            address = self._path = os.path.join(tempfile.gettempdir(), name)
        listening.bind(_real(address))
        self._socket = listening

        def receive() -> None:
            with contextlib.suppress(BlockingIOError):
                while True:
                    heard(listening.recv(HINT_BYTES_MAX).decode("utf-8", "replace"))

        asyncio.get_running_loop().add_reader(listening.fileno(), receive)
        return address

    def tell(self, address: str, run_id: str) -> None:
        """Whoever is not there, or is overrun, finds out by itself a little later."""
        if self._out is None:
            self._out = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._out.setblocking(False)
        with contextlib.suppress(OSError):
            self._out.sendto(run_id.encode()[:HINT_BYTES_MAX], _real(address))

    def close(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(RuntimeError):
                asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None
        if self._out is not None:
            self._out.close()
            self._out = None
        if self._path is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._path)


def _real(address: str) -> str:
    return "\0" + address[1:] if address.startswith("@") else address
