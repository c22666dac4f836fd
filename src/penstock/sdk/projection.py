"""`engine.project`: a projection as applications see it; only translates to `ports/projections.py`."""

from __future__ import annotations

from penstock.ports.projections import Projections


class Projection:
    """A handle to a projection that this process serves."""

    __slots__ = ("_projections", "name")

    def __init__(self, projections: Projections, name: str) -> None:
        self._projections, self.name = projections, name

    def __repr__(self) -> str:
        return f"Projection({self.name!r})"

    async def caught_up(self) -> None:
        """Wait until the target in use has all that is in the log now."""
        await self._projections.caught_up(self.name)

    async def rebuild(self, *, again: bool = False) -> int:
        """Fill a new target from the beginning, beside the one in use, and put it in its place once it has caught up;
        gives its number at once. `again` gives up a rebuild that is under way."""
        return await self._projections.rebuild(self.name, again=again)

    async def close(self, *, forget: bool = False) -> None:
        """Serve it no more in this process; with `forget` its position is deleted too."""
        await self._projections.remove(self.name, forget=forget)
