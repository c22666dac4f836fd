"""The life of stored data in this process: what `ports/data.py` promises, on an engine of our own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import NotOwner

if TYPE_CHECKING:
    from penstock.engine.engine import Engine


class LocalData:
    """See the module's docstring."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def sweep(self) -> None:
        engine = self._engine
        if engine.owner is None:
            owner = await engine.store.owner()
            who = (
                f"{owner.node} (process {owner.pid})"
                if owner is not None and owner.pid
                else "nobody"
            )
            raise NotOwner(
                f"only who owns the database deletes; {who} does", hint="it does so by itself"
            )
        await engine.retention.sweep()
