"""The synchronous twin: the same engine for code without asyncio (SPEC 15).

An event loop in a thread of its own runs the engine; every object of `sdk/` that an application sees gets a twin here whose
methods wait. The twins are made from the asynchronous classes, so that none is ever behind; `__init__.pyi`, which editors
read, is generated from them (`python -m penstock.sync.stub`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.sync.twin import Engine, Run, Stream

__all__ = ["Engine", "Run", "Stream", "open"]


def open(url: str, **options: Any) -> Any:
    """An engine at once: `with penstock.sync.open("sqlite:///shop.db", activities=[…]) as engine`, or keep it and
    `close()` it. Takes what `penstock.open` takes."""
    from penstock.sync.twin import opened

    return opened(url, options)


def __getattr__(name: str) -> Any:
    # Late, as asyncio takes as long to import as the rest of `penstock --help`.
    if name in __all__:
        from penstock.sync import twin

        return getattr(twin, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
