"""Activities: who executes attempts in this process; `sdk/worker.py` makes it real."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from penstock.model.definition import Retry
from penstock.model.job import Job, Outcome

if TYPE_CHECKING:
    from penstock.verify.verification import Signature


class Served(Struct, frozen=True):
    """What the engine must know of an activity."""

    name: str
    kind: str
    """`loop`, `thread` or `process`."""
    retry: Retry | None = None
    start_to_close: float | None = None
    heartbeat: float | None = None
    once: bool = False
    cpu: bool = False
    transactional: str = ""
    """The parameter that gets a connection to the store's database, if its writes and its result are one
    transaction."""
    parameters: tuple[str, ...] = ()
    """Names that it can be called with; those that no input gives are looked up by name (SPEC 2.6)."""
    open_ended: bool = False
    """It takes any name (`**kwargs`)."""


class Activities(Protocol):
    def get(self, name: str) -> Served | None: ...

    def names(self) -> list[str]:
        """What the application registered, without what is built in."""
        ...

    def signature(self, name: str) -> Signature | None:
        """What its annotations say; None if nothing is known of it."""
        ...

    def begin(self, job: Job, report: Callable[[Job, Outcome], None]) -> None:
        """Call the activity. `report` is called exactly once, in the event loop, never from inside `begin`.

        Whatever the activity does (raises, `SystemExit`, hangs past its timeout, its child process dies, returns
        what cannot be kept as JSON) comes back as an Outcome."""
        ...

    def perform(self, job: Job) -> Outcome:
        """Call a plain function and wait for it, here and now, at most `start_to_close` seconds."""
        ...

    def cancel(self, run_id: str, key: str, attempt: int) -> None:
        """Tell the attempt that it is not wanted any more; it still reports."""
        ...

    def on_heartbeat(self, listener: Callable[[Job, Any], None]) -> None:
        """`listener(job, progress)` for each heartbeat."""
        ...

    async def open(self) -> None: ...

    async def close(self, *, drain_seconds: float) -> None:
        """Let what runs end for that long, then cut it; every begun job has reported on return."""
        ...
