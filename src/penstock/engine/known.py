"""Workflow functions by name, as the store has them: a process without their code can start them too (SPEC 2.8, 10).

Code is never stored. What is kept of a function is what a start needs: that there is one of that name, how long a run of
it may take, and what it takes, for people. Each process writes down those that it was opened with, before it does anything
else. Killed before that it has started nothing; the next one writes them down.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.json import Decoder

from penstock.core.functions import FUNCTION, FunctionPlan
from penstock.engine import points
from penstock.errors import NotFound
from penstock.model.definition import Timeouts
from penstock.ports.store import Record

if TYPE_CHECKING:
    from penstock.core.plan import Plan
    from penstock.engine.engine import Engine

KIND = "function"
AT_ONCE = 200
"""So many are read in one go; hardly anybody has more."""


class Described(Struct, omit_defaults=True):
    timeout: float | None = None
    takes: str = ""


_DESCRIBED = Decoder(Described)


class Known:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._plans: dict[str, tuple[bytes, FunctionPlan]] = {}
        """As last read, and what was made of it."""

    async def write_down(self) -> None:
        """Those that are here, as far as the store has them otherwise."""
        described = self._engine.functions.described()
        if not described:
            return
        store = self._engine.store
        changed: list[Record] = []
        page = await store.records(KIND, limit=AT_ONCE)
        found = {each.id: each for each in page}
        for name, value in described.items():
            record = found.get(name)
            if record is None and len(page) == AT_ONCE:
                record = await store.record(KIND, name)
            if record is None or record.value != value:
                changed.append(Record(KIND, name, value, 0 if record is None else record.revision))
        if changed:
            if points.reach is not None:
                points.reach("known.before")
            await store.put(changed)  # refused where another process was first: then it is there
            if points.reach is not None:
                points.reach("known.after")

    async def plan(self, name: str) -> Plan:
        """That of a function which is here, or which another process has; NotFound if there is none."""
        here = self._engine.functions.plan(name)
        if here is not None:
            return await self._engine.plan(name, FUNCTION)
        record = await self._engine.store.record(KIND, name)
        if record is None:
            raise await self._unknown(name)
        kept = self._plans.get(name)
        if kept is None or kept[0] != record.value:
            timeout = _DESCRIBED.decode(record.value).timeout
            made = FunctionPlan(name, None if timeout is None else Timeouts(run=timeout))
            kept = self._plans[name] = record.value, made
        return kept[1]

    async def exists(self, name: str) -> bool:
        """A definition, or a workflow function, of that name."""
        if self._engine.functions.plan(name) is not None:
            return True
        store = self._engine.store
        return (
            await store.definition(name) is not None or await store.record(KIND, name) is not None
        )

    async def _unknown(self, name: str) -> NotFound:
        store = self._engine.store
        known = sorted({each.id for each in await store.definitions()})
        functions = [each.id for each in await store.records(KIND, limit=10)]
        also = f"; workflow functions: {', '.join(functions)}" if functions else ""
        return NotFound(
            f"no definition `{name}` is registered" + (", and no workflow function of that name" if functions else ""),
            hint=f"registered: {', '.join(known[:10]) or 'none'}{also}; `engine.register(…)` adds a definition, "
            "`open(…, workflows=[…])` a workflow function",
        )  # fmt: skip
