"""Open runs become runs of another version: found, previewed, asked for (SPEC 2.7).

The plan of the new version is compiled before the command is posted: the turn itself loads nothing. Killed before the
commit nothing has happened; killed after it the run is one of the new version, whoever loads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from penstock.core.flow import Flow
from penstock.core.functions import FUNCTION
from penstock.core.migration import preview_of
from penstock.dsl.diff import compare
from penstock.engine.checks import check_texts, checked_id
from penstock.errors import NotFound, Rejected, shown
from penstock.model.commands import MigrateRun

if TYPE_CHECKING:
    from penstock.engine.engine import Engine
    from penstock.model.migration import Move


class Migration:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def command(
        self, id: str, version: str | None, mapping: Mapping[str, str], by: str | None, reason: str
    ) -> MigrateRun:
        """The command, with the plan that it needs compiled."""
        given = _checked(mapping)
        wanted = await self._version(id, version)
        return MigrateRun(
            at=self._engine.clock.now(), version=wanted, mapping=given, by=by, reason=reason
        )

    async def preview(self, id: str, version: str | None, mapping: Mapping[str, str]) -> Move:
        """Nothing is changed; if something stands in the way that a mapping could remove, it is suggested."""
        given = _checked(mapping)
        wanted = await self._version(id, version)

        def read(flow: Flow) -> Move:
            found = preview_of(flow, wanted, given)
            if found.safe or given:
                return found
            new = flow.plan.of(wanted)
            return replace(found, suggestion=compare(flow.plan.definition, new.definition).renamed)

        return await self._engine.read(id, read)

    async def _version(self, id: str, version: str | None) -> str:
        engine = self._engine
        if version is not None:
            check_texts(version=version)
        row = await engine.store.find(checked_id(id))
        if row is None:
            raise NotFound(f"no run {id}", hint="`penstock list` shows the runs")
        if FUNCTION in (row.version, version):
            raise Rejected(
                "migration-of-function",
                f"run {id} is one of the workflow function `{row.definition}`, whose code has no versions"
                if row.version == FUNCTION
                else f"run {id} is one of the definition `{row.definition}`: it cannot become one of a workflow function",
                hint='a function\'s open runs go on with the code that is there: `ctx.changed("name")` keeps the old way for them, '
                "and `penstock replay` says whether they fit",
            )
        if version is None:
            newest = await engine.store.definition(row.definition)
            version = row.version if newest is None else newest.version
        await engine.plan(row.definition, version)
        return version


def _checked(mapping: Mapping[str, str]) -> dict[str, str]:
    texts = isinstance(mapping, Mapping) and all(  # pyright: ignore[reportUnnecessaryIsInstance]
        isinstance(each, str)  # pyright: ignore[reportUnnecessaryIsInstance]
        for pair in mapping.items()
        for each in pair
    )
    if not texts:
        raise Rejected(
            "mapping-invalid",
            f"the mapping is {shown(mapping)}, not old names to new ones",
            hint='say mapping={"pay": "settle"}',
        )
    return dict(mapping)
