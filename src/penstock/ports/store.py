"""Store: keeps events, snapshots and the runs' rows; definitions; who owns the database.

A store knows bytes, not meanings: payloads and snapshots are encoded by `model/codec.py` before they
come here. `testing/conformance/store.py` is the judge of every implementation.

Histories are hash-chained (SPEC 6.3): the engine hands over payloads and the store keeps with each event
`hash = chain(previous hash, header(run id, generation, seq), payload)` as `model/codec.py` defines it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from penstock.errors import RevisionConflict

if TYPE_CHECKING:
    from penstock.ports.transactions import Transactional

RunKey = int
"""The store's own integer for one generation of a run; never shown to users."""
Position = int
"""An event's place in the whole store; positions rise in commit order."""


class Row(Struct):
    """The run's own row; written in the same transaction as its events (SPEC 4.1).

    `attributes` and `metadata` are JSON text. Times are seconds since 1970 as float.
    """

    id: str
    generation: int
    definition: str
    version: str
    status: str
    revision: int
    created_at: float
    updated_at: float
    priority: int = 1
    """0 high, 1 normal, 2 low."""
    paused: bool = False
    open: bool = True
    """False once the generation is terminal."""
    next_due: float | None = None
    """When the run must be woken though nothing else happens: the earliest of its timers and expiries."""
    deadline: float | None = None
    ended_at: float | None = None
    created_by: str | None = None
    parent: str | None = None
    """`id` of the parent run, a newline, and the key of its task."""
    attributes: bytes = b"{}"
    hash: bytes = b""
    """The chain's head: the hash of the newest event. Filled in by the store."""
    key: RunKey = 0
    """Given by the store with the first append."""
    position: Position = 0
    """Of the newest event. Filled in by the store."""


class Append(Struct):
    """Events of one run, whole or refused.

    `row.key` is 0 for a new generation (then `expected` is 0 and the row is inserted; a taken
    `(id, generation)` is a conflict). `row` is the row as it shall be afterwards. `previous` is the chain's head
    before these events (b"" for the first).
    """

    row: Row
    expected: int
    payloads: list[bytes]
    previous: bytes = b""
    token: int | None = None
    """The owner's fencing token; None for a command's own events by a process that is not the owner."""
    blobs: Mapping[bytes, bytes] = {}
    """Payloads kept beside these events, which name them, by the digest of their bytes; written with them or not at all."""
    also: Append | None = None
    """An append to another run (or generation) that stands or falls with this one: if either is refused both are, in
    this one's place, and nothing of either is written. It has no partner of its own, and no place in the answer."""


class Appended(Struct, frozen=True):
    """An append that is on disk."""

    key: RunKey
    position: Position
    """Of its last event."""
    hash: bytes
    """The chain's new head."""


class Stored(Struct, frozen=True):
    """One event as read back."""

    position: Position
    key: RunKey
    seq: int
    payload: bytes
    hash: bytes


class Snapshot(Struct, frozen=True):
    revision: int
    state: bytes
    hash: bytes
    """The chain's head at that revision."""


class DefinitionRow(Struct, frozen=True):
    id: str
    version: str
    number: int
    """Counts the versions of an id from 1; the newest has the highest."""
    document: bytes
    """The expanded definition as JSON, its names in the order of the document."""
    digest: bytes
    created_at: float
    created_by: str | None = None


STATUSES = (
    "OPEN", "CLOSED", "CREATED", "RUNNING", "WAITING", "PAUSED", "COMPENSATING", "COMPLETED", "FAILED", "CANCELLED",
    "TERMINATED", "TIMED_OUT", "CONTINUED",
)  # fmt: skip
"""By which runs are found: theirs, and those that stand for several."""


class Query(Struct, frozen=True):
    """Which runs to list: all given fields must hold. Newest first, paged by key (`after`)."""

    status: str | None = None
    """A run status, or PAUSED, OPEN, CLOSED."""
    definition: str | None = None
    version: str | None = None
    attributes: Mapping[str, Any] = {}
    id_prefix: str | None = None
    parent: str | None = None
    """The id of the parent run."""
    created_after: float | None = None
    created_before: float | None = None
    after: RunKey | None = None
    """Continue below this key: the `key` of the last row of the page before."""
    limit: int = 50
    newest_generation: bool = False


class Record(Struct, frozen=True):
    """A small named document beside the runs: a schedule, a batch of control, a projection's position.

    Written by compare-and-set: `revision` is what is expected to be there (0: nothing yet), and each write adds one.
    One that was dropped and written anew counts from 1 again.
    """

    kind: str
    """What it is of: "schedule", "batch", …; ids are unique within it."""
    id: str
    value: bytes
    """JSON."""
    revision: int = 0
    due: float | None = None
    """When somebody must look at it again."""
    expires: float | None = None
    """Deleted by retention some time after this; who reads it decides what it means until then."""


class Request(Struct, frozen=True):
    """A run that an application asked for inside its own transaction, until the owner makes it one (SPEC 4.3)."""

    id: str
    definition: str
    version: str
    input: bytes
    facts: bytes
    """All else that the start needs, as JSON."""
    at: float
    number: int = 0
    """Given by the store."""


class Asked(Struct, frozen=True):
    """A request as far as it got."""

    number: int
    is_open: Callable[[], bool]
    """Whether the application's transaction may still be open; never blocks, and never raises."""


class Purged(Struct, frozen=True):
    """What one `purge` deleted."""

    runs: int
    events: int
    left: bool
    """Events or blobs of deleted runs are still there: call again, with no keys."""
    blobs: int = 0

    @property
    def again(self) -> bool:
        """Whether another call would delete more; the newest event of a store stays until there is a newer one."""
        return self.left and (self.events > 0 or self.blobs > 0)


class Owner(Struct, frozen=True):
    """Who executes this database's runs."""

    node: str
    token: int
    address: str
    """Where a hint reaches it; empty if nowhere."""
    since: float
    renewed_at: float
    pid: int = 0
    clean: bool = False
    """Of a claim: the owner before had released, or there was none; not kept."""


class Pulse(Struct, frozen=True):
    """What an owner learns every other second."""

    owner: Owner
    head: Position
    data: dict[str, bytes]
    """The global data."""
    requests: bool = False
    """Some wait to be carried out."""


class Store(Protocol):
    """See the module's docstring. Every method may raise StoreError and its kinds.

    A busy database is tried again from the event loop (busy timeout 0), never waited for inside it; past
    `busy_seconds_max` StoreLocked is raised.
    """

    @property
    def transactions(self) -> Transactional | None:
        """For transactional activities (SPEC 4.3); None where the store has nothing to give them."""
        ...

    async def open(self) -> None:
        """Create or migrate the schema; StoreTooNew for a newer one. Calling twice is harmless."""
        ...

    async def close(self) -> None: ...

    async def append(self, appends: Sequence[Append]) -> list[Appended | Exception]:
        """One commit for many, on disk on return. One append is whole or refused, and none harms
        another: refused ones come back as RevisionConflict or Fenced in their place. After a lost answer the store
        looks for its own append first. Raises StoreError only if nothing at all was written."""
        ...

    async def find(self, id: str, generation: int | None = None) -> Row | None:
        """The row of a run; without a generation the newest."""
        ...

    async def find_newest(self, ids: Sequence[str]) -> dict[str, Row]:
        """The newest generation of each that there is; in bulk, as a commit needs them."""
        ...

    async def find_many(self, keys: Sequence[RunKey]) -> dict[RunKey, Row]: ...

    async def events(
        self, key: RunKey, *, after: int = 0, limit: int | None = None
    ) -> list[Stored]:
        """The events of one run with seq > after, in order."""
        ...

    async def events_many(self, keys: Mapping[RunKey, int]) -> dict[RunKey, list[Stored]]:
        """For each run the events after its given seq; in bulk, for recovery."""
        ...

    async def payloads(self, key: RunKey, seqs: Sequence[int]) -> dict[int, bytes]:
        """Payloads of some events of one run: outputs that left the memory are read by reference."""
        ...

    async def blobs(self, key: RunKey, digests: Sequence[bytes]) -> dict[bytes, bytes]:
        """Payloads kept beside the events of one run, as far as they are there."""
        ...

    async def follow(self, *, after: Position, limit: int = 1000) -> list[Stored]:
        """Events of all runs in commit order; asking "after n" never misses one that commits later."""
        ...

    async def head(self) -> Position: ...

    async def snapshot(self, key: RunKey) -> Snapshot | None: ...

    async def snapshots_many(self, keys: Sequence[RunKey]) -> dict[RunKey, Snapshot]: ...

    async def save_snapshots(self, snapshots: Sequence[tuple[RunKey, Snapshot]]) -> None:
        """The newest replaces the one before; one commit for all; durable, but nothing depends on it."""
        ...

    async def open_runs(self, *, after: RunKey = 0, limit: int = 1000) -> list[Row]:
        """Rows of runs that are not terminal, by key, for recovery in bulk."""
        ...

    async def closed_runs(self, *, after: RunKey = 0, limit: int = 1000) -> list[Row]:
        """Rows of runs that are terminal, by key: about the order in which they were created; for retention."""
        ...

    async def purge(
        self, keys: Sequence[RunKey], *, token: int | None = None, limit: int = 1000
    ) -> Purged:
        """Delete closed runs, in one commit: rows, attributes and snapshots at once, of their events and blobs at
        most `limit` a call, so that no commit takes long; after a crash the next call goes on with what is left.
        Open runs are left alone, and so are the newest run and the newest event, whose numbers are never given twice.
        Fenced with a token that is not the newest."""
        ...

    async def erase(
        self,
        key: RunKey,
        payloads: Mapping[int, bytes],
        *,
        blobs: Sequence[bytes] = (),
        attributes: bool = False,
    ) -> None:
        """Put other payloads, by seq, in the place of a closed run's, with the same digest (`model/packing.py`): the
        chain stays as it is. Drops its snapshot, these blobs and, if asked, its attributes. One commit, and doing it
        twice is harmless. StoreError, and nothing is changed, for an open run or another digest."""
        ...

    async def list(self, query: Query) -> list[Row]: ...

    async def count(self, query: Query) -> int: ...

    async def publish(self, definition: DefinitionRow) -> DefinitionRow:
        """Keep a version. The same content again is a no-op that returns the one kept; the same version
        with other content is Rejected("version-exists"). An empty version is numbered by the store."""
        ...

    async def definition(self, id: str, version: str | None = None) -> DefinitionRow | None:
        """One version, or the newest."""
        ...

    async def definitions(self) -> list[DefinitionRow]: ...

    async def data_global(self) -> dict[str, bytes]:
        """Global data of the namespace, JSON by name."""
        ...

    async def set_global(self, values: Mapping[str, bytes | None]) -> None: ...

    async def record(self, kind: str, id: str) -> Record | None: ...

    async def records(self, kind: str, *, after: str = "", limit: int = 1000) -> list[Record]:
        """Those of a kind by id (in the order of their code points), paged by the last id of the page before."""
        ...

    async def records_due(self, kind: str, *, until: float, limit: int = 1000) -> list[Record]:
        """Those of a kind with `due <= until`, the earliest first, then by id."""
        ...

    async def put(self, records: Sequence[Record]) -> list[Record | RevisionConflict]:
        """One commit for all, on disk on return; each stands alone: it is written, and comes back with its new
        revision, or it is refused because something else was there. Several of one id follow each other. After a lost
        answer the store looks for its own first. Raises StoreError only if nothing at all was written."""
        ...

    async def drop(self, kind: str, ids: Sequence[str]) -> None:
        """Delete records, whatever their revision; what is not there is no error."""
        ...

    async def drop_expired(self, *, until: float, limit: int = 1000) -> int:
        """Delete records of any kind with `expires <= until`, the earliest first; how many there were."""
        ...

    async def backup(self, path: str) -> None:
        """A copy of all there is, of one moment, in a new file, while others write; on disk on return.
        Rejected("backup-unsupported") where the database has its own ways."""
        ...

    async def request(self, connection: Any, request: Request) -> Asked:
        """Write a request through the application's own connection, inside its transaction: there once, and only if, that
        is committed. Waits for nobody but the database. Rejected("connection-unfit") for a connection that is none of
        this database or can write nothing; the application's transaction is then as it was."""
        ...

    async def requests(self, *, after: int = 0, limit: int = 100) -> list[Request]:
        """Requests whose transactions are committed, with a number greater than `after`, the oldest first."""
        ...

    async def requested(self, id: str) -> bool:
        """A committed request for a run of that id waits."""
        ...

    async def drop_requests(self, numbers: Sequence[int]) -> None:
        """They have been carried out; what is not there is no error."""
        ...

    async def claim(self, node: str, address: str) -> Owner | None:
        """Become the owner with a token higher than all before, or None while another lives (SPEC 4.8).
        Ends at once with its process."""
        ...

    async def renew(self, owner: Owner) -> Owner:
        """Say that the owner lives; Fenced if a newer one exists."""
        ...

    async def pulse(self, owner: Owner) -> Pulse:
        """`renew`, `head` and `data_global` in one: an idle engine asks for little."""
        ...

    async def owner(self) -> Owner | None:
        """Who owned last, by the row; may be dead."""
        ...

    async def release(self, owner: Owner) -> None: ...

    def stats(self) -> dict[str, int]:
        """Counts since open: commits, appends, events, syncs, conflicts, busy."""
        ...
