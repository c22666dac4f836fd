"""Queries of a workflow function: they read what it has in its variables, and change nothing (SPEC 2.8)."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from datetime import datetime
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from penstock.errors import PenstockError, Rejected
from penstock.sdk.failing import text_of
from penstock.sdk.values import encode_value

if TYPE_CHECKING:
    from penstock.sdk.replay import Place, Replay


class Glance:
    """What a Context has of its function while a query is answered: what can be read, and nothing else."""

    unawaited = None
    """What is not awaited in a query was never wanted."""

    def __init__(self, program: Replay) -> None:
        self.run_id, self.generation, self.parent = (
            program.run_id, program.generation, program.parent,
        )  # fmt: skip
        self.attributes: Mapping[str, Any] = program.attributes
        self.at = program.at
        self.now: Callable[[], datetime] = program.now
        self._known = program.known_change

    def changed(self, name: str, place: Place | None) -> bool:
        known = self._known(name)
        if known is None:
            raise only_reads()
        return known

    def __getattr__(self, name: str) -> NoReturn:
        raise only_reads()


def only_reads() -> Rejected:
    return Rejected(
        "query-failed",
        "a query only reads; it wants nothing of the run",
        hint="read the workflow's variables, `ctx.attributes` or `ctx.now()`; what is wanted or drawn is the workflow's own code's",
    )


def answered(name: str, answer: Callable[..., Any], arguments: Any) -> Any:
    """What the function says, as a copy: whoever asks has nothing of the run's in hand."""
    try:
        value = answer(*arguments)
        if isinstance(value, Coroutine):
            if iscoroutinefunction(answer):
                value.close()
            del value  # another is the workflow's own, or goes here
            raise Rejected(
                "query-failed", f"query `{name}` answers with something to await; a query only reads",
                hint="answer by a plain function, with what is there",
            )  # fmt: skip
    except (PenstockError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise Rejected(
            "query-failed", f"query `{name}`: {type(error).__name__}: {text_of(error)}"
        ) from error
    try:
        return msgspec.json.decode(encode_value(value))
    except PenstockError as error:
        raise Rejected(
            "query-failed", f"the answer of query `{name}` cannot be given: {error.message}", hint=error.hint
        ) from error  # fmt: skip
