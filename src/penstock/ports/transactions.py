"""Transaction: what a transactional activity writes and the append of its result, together or not at all (SPEC 4.3)."""

from __future__ import annotations

from typing import Any, Protocol

from penstock.ports.store import Append, Appended


class Transaction(Protocol):
    """An open transaction on the store's database. It ends with `append` or `roll_back`, whichever is called."""

    @property
    def connection(self) -> Any:
        """What the activity gets: a connection of the store's driver that refuses to end the transaction."""
        ...

    async def ready(self) -> None:
        """The activity has returned: whatever could still refuse its writes is checked now. Raises what it finds."""
        ...

    async def append(self, append: Append) -> Appended | Exception:
        """The transaction's last statement, and its commit; on disk on return. Refused or failed, all is rolled back. After a
        lost answer an error is returned, too, though it may be there: whoever loads the run again sees it."""
        ...

    async def roll_back(self) -> None:
        """Nothing of it stays, and whoever still has the connection can do nothing more with it. Never raises."""
        ...


class Transactional(Protocol):
    """A store that can do it."""

    activities: str
    """`async`: attempts are beside each other and beside all commits; activities are `async def`. `def`: one at a time,
    inside of a commit of its own, which holds the one write lock; activities are plain `def`."""

    async def begin(self, *, seconds_max: float) -> Transaction: ...
