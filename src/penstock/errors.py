"""Every error that Penstock raises, as one tree.

Each has a code (its page is `docs/errors/CODE.md`, printed by `penstock explain CODE`), its facts as
fields, and, where one is known, a hint that says what to do. Failures inside a run are data, not
exceptions: see `model/failure.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

SHOWN_MAX = 10


def shown(value: Any, most: int = 60) -> str:
    """A value as it stands in a message: never long, and also one that cannot be shown."""
    try:
        text = repr(value)
    except Exception:
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= most else f"{text[: most - 1]}…"


class PenstockError(Exception):
    """Anything that Penstock itself says went wrong."""

    code = "error"
    hint: str | None = None

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        if hint is not None:
            self.hint = hint

    def add_note(self, note: str, /) -> None:
        self.__dict__.setdefault("notes", []).append(note)

    @property
    def __notes__(self) -> list[str]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """What a traceback shows below the message."""
        told = [f"[{self.code}] `penstock explain {self.code}` says more"]
        if self.hint:
            told.append(f"hint: {self.hint}")
        return [*told, *self.__dict__.get("notes", ())]


class Rejected(PenstockError):
    """A command refused by the rules; nothing was recorded."""

    def __init__(self, code: str, message: str, *, hint: str | None = None, **facts: Any) -> None:
        super().__init__(message, hint=hint)
        self.code = code
        self.facts = facts


class Busy(PenstockError):
    """A limit is reached and the engine says so instead of dropping anything; try again later."""

    code = "busy"


class StartsRefused(PenstockError):
    """Some of many starts are wrong; `refused` has the reason of each by its place, `started` says how many are begun."""

    code = "starts-refused"
    hint = (
        "what is wrong is named; start the others, or mend these and call again with the same ids"
    )

    def __init__(self, refused: Mapping[int, Exception], *, started: int, total: int) -> None:
        first = [f"number {place}: {error}" for place, error in list(refused.items())[:SHOWN_MAX]]
        more = f"; and {len(refused) - SHOWN_MAX} more" if len(refused) > SHOWN_MAX else ""
        begun = f"{started} were started" if started else "none was started"
        super().__init__(
            f"{len(refused)} of {total} starts are refused, {begun}: {'; '.join(first)}{more}"
        )
        self.refused, self.started, self.total = dict(refused), started, total


class StartsStopped(PenstockError):
    """Many starts were begun and could not go on; the runs of `started` are on disk."""

    code = "starts-stopped"
    hint = "call again with the same ids: those that exist are attached to, the others started"

    def __init__(self, reason: str, *, started: int, total: int) -> None:
        super().__init__(f"at least {started} of {total} runs are started, then: {reason}")
        self.started, self.total = started, total


class Unacknowledged(PenstockError):
    """Not every subscriber has acknowledged an event in time; it is still being delivered."""

    code = "publish-unacknowledged"


class RevisionConflict(PenstockError):
    """Another writer appended first; load the run again and decide anew."""

    code = "revision-conflict"

    def __init__(
        self, run_id: str, *, expected: int, actual: int | None = None, what: str = "run"
    ) -> None:
        at = "another revision" if actual is None else f"revision {actual}"
        super().__init__(f"{what} {run_id} is at {at}, not {expected}")
        self.run_id, self.expected, self.actual = run_id, expected, actual


class Fenced(PenstockError):
    """A newer owner exists; whatever this one still wants to write is refused."""

    code = "fenced"

    def __init__(self, *, token: int, newest: int) -> None:
        super().__init__(f"owner token {token} is older than {newest}; another process took over")
        self.token, self.newest = token, newest


class StoreError(PenstockError):
    """The store could not do what was asked."""

    code = "store-failed"


class ValueUnfit(StoreError):
    """A value that this store cannot keep, whenever it is tried."""

    code = "value-unfit"


class FileUnwritable(StoreError):
    """A file that was asked for cannot be written where it was asked for; nothing of it is left."""

    code = "file-unwritable"


class StoreLocked(StoreError):
    """Another process kept the database locked for longer than we wait."""

    code = "store-locked"


class StoreFull(StoreError):
    """The disk is full: nothing was written, nothing was lost; free some space and go on."""

    code = "store-full"


class StoreCorrupt(StoreError):
    """What is stored does not fit together: a broken chain, a damaged file, a missing event."""

    code = "store-corrupt"


class StoreTooNew(StoreError):
    """The database was written by a newer Penstock; this one refuses to touch it."""

    code = "store-too-new"


class BundleDamaged(PenstockError):
    """A file of runs that is not as it was written; nothing of it was taken."""

    code = "bundle-damaged"

    def __init__(self, path: Any, reason: str) -> None:
        super().__init__(
            f"{path}: {reason}; nothing was changed", hint="take another copy of the file"
        )
        self.path, self.reason = path, reason


class NotFound(PenstockError):
    """No run, definition or task of that name."""

    code = "not-found"


class NotOwner(PenstockError):
    """This process does not own the database's runs; the message says who does."""

    code = "not-owner"


class PluginError(PenstockError):
    """A plugin that a registered definition needs cannot be used here; its runs stay as they are until it can."""

    code = "plugin-invalid"


class PluginMissing(PluginError):
    """A definition needs a task type or a language that no plugin here has; its runs stay as they are until it is back."""

    code = "plugin-missing"
    hint = "install the plugin where this runs, and start again; `penstock plugins` lists what is there"

    def __init__(
        self,
        *,
        types: Iterable[str] = (),
        languages: Iterable[str] = (),
        definition: str = "",
        reason: str = "",
        hint: str | None = None,
    ) -> None:
        self.types, self.languages, self.definition = list(types), list(languages), definition
        parts = [f"the task type `{each}`" for each in self.types]
        parts += [f"the language `{each}`" for each in self.languages]
        whose = f"definition `{definition}`" if definition else "the definition"
        message = f"{whose} needs {' and '.join(parts)}, which no plugin here has"
        super().__init__(f"{message} ({reason})" if reason else message, hint=hint)


class DefinitionInvalid(PenstockError):
    """A definition was refused; `findings` says where and why."""

    code = "definition-invalid"
    hint = "`findings` says of each what to do; `penstock verify FILE` prints them"

    def __init__(self, message: str, findings: list[Any], *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.findings = findings


class ExpressionError(PenstockError):
    """An expression is not well-formed or does not type-check; `position` counts from 0."""

    code = "expression-invalid"

    def __init__(
        self, message: str, *, text: str = "", position: int = 0, hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.text, self.position = text, position


class EvaluationError(PenstockError):
    """An expression failed while it was evaluated; `code` says how."""

    code = "expression-failed"


class CostExceeded(EvaluationError):
    """An expression needed more steps than its cost limit allows."""

    code = "expression-cost"


class PayloadInvalid(PenstockError):
    """A value that cannot be kept as JSON."""

    code = "payload-invalid"
    hint = "keep to what JSON knows: texts, finite numbers, true, false, null, lists, and objects whose names are texts"


class PayloadTooLarge(PenstockError):
    """A value larger than the limit."""

    code = "payload-too-large"


class Fail(PenstockError):
    """Raised by an activity or a workflow: fails for good, without another attempt."""

    code = "failed"

    def __init__(self, message: str = "", *, code: str = "failed", details: Any = None) -> None:
        super().__init__(message)
        self.code, self.details = code, details


class StepFailed(PenstockError):
    """A step of a workflow function failed for good: `failure` says how, `key` which; its causes are chained."""

    code = "step-failed"

    def __init__(self, key: str, failure: Any) -> None:
        super().__init__(failure.message or failure.code)
        self.key, self.failure, self.code = key, failure, failure.code


class Nondeterminism(PenstockError):
    """Workflow code did something that a replay of its history would not do again, or wants something else than it did."""

    code = "nondeterminism"

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        step: str = "",
        recorded: str = "",
        wanted: str = "",
        place: str = "",
    ) -> None:
        super().__init__(message, hint=hint)
        self.step, self.recorded, self.wanted, self.place = step, recorded, wanted, place
        self.details = {"hint": hint} if hint else None


class CompleteLater(PenstockError):
    """Raised by an activity: the attempt stays open and is completed from outside, by `current().token`."""

    code = "complete-later"

    def __init__(self, message: str = "it is completed from outside") -> None:
        super().__init__(message)


class RunFailed(PenstockError):
    """`result()` of a run that did not complete: carries its status and its failure."""

    code = "run-failed"

    def __init__(self, run_id: str, status: str, failure: Any) -> None:
        reason = getattr(failure, "text", None) or str(failure or "")
        super().__init__(
            f"run {run_id} ended {status}: {reason}" if reason else f"run {run_id} ended {status}",
            hint=getattr(failure, "hint", None),
        )
        self.run_id, self.status, self.failure = run_id, status, failure
        cause = getattr(failure, "cause", None)
        while cause is not None:
            where = f" in `{cause.key}`" if cause.key else ""
            message = f": {cause.message}" if cause.message else ""
            self.add_note(f"because of {cause.type or cause.code}{where}{message}")
            cause = cause.cause
