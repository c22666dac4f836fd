"""Executors of plugins: attempts of added types, called as activities are (`sdk/worker.py`).

Each class that serves a type is made once for an engine, with the first attempt, and closed when the engine closes.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from typing import Any

import msgspec

from penstock.core.vocabulary import CONFIG, PREFIX, fields_of
from penstock.errors import Fail
from penstock.ports.activities import Served
from penstock.ports.plugins import Plugins, TaskType
from penstock.sdk.arguments import Parameters
from penstock.sdk.attempt import Attempt, current
from penstock.sdk.workflow import Entry

log = logging.getLogger(__name__)

CLOSE_SECONDS_MAX = 5.0
"""How long one executor may take to close."""


class TaskAttempt:
    """What an executor is called with: `ports/plugins.py` says what it promises."""

    __slots__ = ("_attempt", "config", "inputs", "type")

    def __init__(self, type: str, config: Any, inputs: Any, attempt: Attempt) -> None:
        self.type, self.config, self.inputs = type, config, inputs
        self._attempt = attempt

    @property
    def run_id(self) -> str:
        return self._attempt.run_id

    @property
    def key(self) -> str:
        return self._attempt.key

    @property
    def number(self) -> int:
        return self._attempt.attempt

    @property
    def idempotency_key(self) -> str:
        return self._attempt.idempotency_key

    @property
    def progress(self) -> Any:
        return self._attempt.progress

    @property
    def cancelled(self) -> bool:
        return self._attempt.cancelled

    @property
    def token(self) -> str:
        return self._attempt.token

    def heartbeat(self, progress: Any = None) -> None:
        self._attempt.heartbeat(progress)

    def log(self, text: str) -> None:
        self._attempt.log(text)


class Executors:
    """Of one engine."""

    def __init__(self, plugins: Plugins) -> None:
        self._plugins = plugins
        self._made: dict[type[TaskType], TaskType] = {}
        self._lock = threading.Lock()

    def entry(self, activity: str) -> Entry | None:
        """What serves a job of that name, or None if no plugin does."""
        if not activity.startswith(PREFIX):
            return None
        name = activity.removeprefix(PREFIX)
        kind = self._plugins.executor(name)
        if kind is None:
            return None
        served = Served(
            name=activity,
            kind="loop" if inspect.iscoroutinefunction(kind.execute) else "thread",
            retry=kind.retry,
            start_to_close=kind.timeout,
            heartbeat=kind.heartbeat,
            once=bool(kind.once),
            parameters=_parameters(kind),
            open_ended=True,
        )
        function = self._in_loop(name, kind) if served.kind == "loop" else self._plain(name, kind)
        return Entry(served, function, Parameters(function))

    def _in_loop(self, name: str, kind: type[TaskType]) -> Any:
        async def execute(**given: Any) -> Any:
            return await self._executor(kind).execute(_attempt(name, kind, given))

        return execute

    def _plain(self, name: str, kind: type[TaskType]) -> Any:
        def execute(**given: Any) -> Any:
            return self._executor(kind).execute(_attempt(name, kind, given))

        return execute

    def _executor(self, kind: type[TaskType]) -> TaskType:
        with self._lock:  # attempts in threads come here, too
            found = self._made.get(kind)
            if found is None:
                found = self._made[kind] = kind()
            return found

    async def close(self) -> None:
        for kind, executor in self._made.items():
            try:
                async with asyncio.timeout(CLOSE_SECONDS_MAX):
                    await executor.close()
            except Exception:
                log.exception("plugin.close-failed executor=%s", kind.__qualname__)
        self._made.clear()


def _attempt(name: str, kind: type[TaskType], given: dict[str, Any]) -> TaskAttempt:
    config = _converted("config", given.pop(CONFIG, {}), kind.config)
    inputs = _converted("inputs", given, kind.inputs)
    return TaskAttempt(name, config, inputs, current())


def _converted(word: str, value: Any, wanted: Any) -> Any:
    if wanted is None or isinstance(wanted, dict | bool):
        return value
    try:
        return msgspec.convert(value, wanted)
    except msgspec.ValidationError as error:
        raise Fail(f"`{word}`: {error}", code="field-invalid") from None


def _parameters(kind: type[TaskType]) -> tuple[str, ...]:
    """Inputs that it names: those that a task does not give are looked up by name (SPEC 2.6)."""
    schema: Any = kind.inputs
    if schema is None or isinstance(schema, bool):
        return ()
    return fields_of(schema if isinstance(schema, dict) else msgspec.json.schema(schema))
