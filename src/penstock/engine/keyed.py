"""Starts that a key holds together: singleton and debounce (SPEC 4.6)."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Raw

from penstock.core.values import decode
from penstock.engine.debounce import Debouncing
from penstock.engine.schedules import Start as StartRun
from penstock.engine.singletons import Singletons
from penstock.errors import Rejected, shown
from penstock.model.payload import encode_payload
from penstock.model.schedule import Start
from penstock.ports.schedules import Debounce, Singleton

if TYPE_CHECKING:
    from penstock.core.plan import Plan
    from penstock.engine.engine import Engine

log = logging.getLogger("penstock.engine")


class KeyedStarts:
    def __init__(self, engine: Engine, start: StartRun, find: Callable[..., Any]) -> None:
        self._start, self._find = start, find
        self._singletons = Singletons(engine)
        self._debouncing = Debouncing(engine, start, log)

    async def start(
        self, definition: str, input: Any, *, id: str | None, by_key: Singleton | Debounce,
        options: Mapping[str, Any],
    ) -> str:  # fmt: skip
        """As a plain start takes them; on disk on return. The id of the run that is, or will be, the key's."""
        _check(by_key)
        plan: Plan = (await self._find(definition, options.get("version")))[1]
        if isinstance(by_key, Singleton):
            return await self._singletons.start(
                by_key.key, id or uuid.uuid4().hex, by_key.attach,
                lambda run_id: self._start(definition, input, id=run_id, **options),
            )  # fmt: skip
        raw = encode_payload(input)
        if plan.input_schema is not None:
            problems = plan.input_schema.problems(decode(raw))
            if problems:
                raise Rejected("input-invalid", f"input of `{definition}`: {problems}")
        kept = {name: value for name, value in options.items() if value is not None}
        for name in ("metadata", "attributes"):
            if kept.get(name):
                kept[name] = decode(encode_payload(dict(kept[name])))
        return await self._debouncing.offer(
            by_key, Start(id=id or "", definition=definition, input=Raw(raw), **kept)
        )


def _check(by_key: Any) -> None:
    if isinstance(by_key, Singleton) and type(by_key.attach) is not bool:  # pyright: ignore[reportUnnecessaryComparison]
        raise Rejected(
            "wrong-type", f"`attach` is {shown(by_key.attach)}", hint="give True or False"
        )
    if not isinstance(by_key, Singleton | Debounce):
        raise Rejected(
            "wrong-type", f"{shown(by_key)} is no key that holds starts together",
            hint="singleton='customer-7', singleton=Singleton('customer-7', attach=False), or debounce=Debounce('customer-7', 5)",
        )  # fmt: skip
