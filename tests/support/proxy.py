"""A wire between a client and a server that can be cut at the worst moment; on loopback, inside the test's own loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress


class Proxy:
    """Forwards every connection until it is told to do harm."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self.port = 0
        self.lose_answers = False
        """What the server says next is thrown away, and the client finds its connection closed; one time."""
        self.lose_answers_to: bytes | None = None
        """The same, once a client says this; one time."""
        self.hold_questions = False
        """What a client says next is kept back, and its connection is closed; `release` delivers it later. One time."""
        self.lost = 0
        self.harmed = asyncio.Event()
        """Something was lost."""
        self._held: list[tuple[asyncio.StreamWriter, bytes]] = []
        self.tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(self._host, self._port)
        self._writers += (writer, back)
        for work in (self._questions(reader, back, writer), self._answers(there, writer)):
            task = asyncio.create_task(work)
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    async def _questions(
        self, reader: asyncio.StreamReader, back: asyncio.StreamWriter, writer: asyncio.StreamWriter
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                if self.hold_questions:
                    self._lose()
                    self._held.append((back, data))
                    writer.transport.abort()
                    return
                if self.lose_answers_to is not None and self.lose_answers_to in data:
                    self.lose_answers, self.lose_answers_to = True, None
                back.write(data)
        if not any(held is back for held, _ in self._held):
            back.close()

    async def _answers(self, there: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await there.read(1 << 16):
                if self.lose_answers:
                    self._lose()
                    break
                writer.write(data)
        writer.transport.abort()

    def _lose(self) -> None:
        self.lost += 1
        self.lose_answers = self.hold_questions = False
        self.harmed.set()

    async def close(self) -> None:
        for task in list(self.tasks):
            task.cancel()
        for writer in self._writers:
            writer.transport.abort()
            with suppress(OSError):
                await writer.wait_closed()

    def release(self) -> None:
        """Deliver what was held back, though nobody waits for it any more."""
        for back, data in self._held:
            with suppress(OSError):
                back.write(data)


@asynccontextmanager
async def proxied(url: str) -> AsyncGenerator[tuple[Proxy, str]]:
    """A proxy before the server of a URL, and the URL that leads through it."""
    place = url.split("@")[1].split("/")[0]
    host, port = place.split(":")
    proxy = Proxy(host, int(port))
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy, url.replace(place, f"127.0.0.1:{proxy.port}")
    finally:
        server.close()
        await proxy.close()
