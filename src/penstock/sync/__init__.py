"""The synchronous twin: the same engine for code without asyncio (SPEC 15).

An event loop in a thread of its own runs the engine; every object of `sdk/` that an application sees gets a twin here whose
methods wait. The twins are made from the asynchronous classes, so that none is ever behind; `__init__.pyi`, which editors
read, is generated from them (`python -m penstock.sync.stub`).
"""

from __future__ import annotations

from typing import Any

from penstock.sdk import client
from penstock.sync.twin import Stream, opened, twin_of

__all__ = ["Engine", "Run", "Stream", "open"]

Engine: Any = twin_of(client.Engine)
Run: Any = twin_of(client.Run)


def open(url: str, **options: Any) -> Any:
    """An engine at once: `with penstock.sync.open("sqlite:///shop.db", activities=[…]) as engine`, or keep it and
    `close()` it. Takes what `penstock.open` takes."""
    return opened(url, options)
