"""Transactional activities: their writes and their result are one transaction (SPEC 4.3), on SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

import penstock
from penstock import Fail, Retry, activity
from penstock.errors import Rejected, RunFailed

PAY: dict[str, Any] = {
    "id": "pay",
    "tasks": {
        "pay": {"do": "pay", "inputs": {"amount": {"from": "input"}}, "compensate": "refund"},
        "after": {"do": "after", "after": ["pay"], "inputs": {"amount": {"from": "input"}}},
    },
}


class Bank:
    """A table of the application, and one activity for each driver."""

    def __init__(self, url: str) -> None:
        self.url, self.sqlite = url, url.startswith("sqlite")
        self.calls: list[str] = []
        self.during: Callable[[Any, int], Any] = lambda connection, amount: None

    def _made(self, name: str, sign: int, **options: Any) -> Any:
        bank = self

        @activity(name=name, transactional=True, **options)
        def plain(amount: int, connection: sqlite3.Connection) -> int:
            bank.calls.append(name)
            connection.execute("INSERT INTO paid VALUES (?)", (sign * amount,))
            bank.during(connection, amount)
            return amount

        @activity(name=name, transactional=True, **options)
        async def beside(amount: int, connection: asyncpg.Connection) -> int:
            bank.calls.append(name)
            await connection.execute("INSERT INTO paid VALUES ($1)", sign * amount)
            done = bank.during(connection, amount)
            if done is not None:
                await done
            return amount

        return plain if self.sqlite else beside

    @asynccontextmanager
    async def engine(self, definition: Any = PAY, **options: Any) -> AsyncGenerator[Any]:
        @activity
        async def after(amount: int) -> int:
            if amount < 0:
                raise Fail("no such amount")
            return amount

        activities = [
            self._made("pay", 1, retry=Retry(attempts=2, first=0.01), **options),
            self._refund(),
            after,
        ]
        async with penstock.open(self.url, activities=activities) as engine:
            if self.sqlite:
                self.do("CREATE TABLE IF NOT EXISTS paid (amount int)")
            else:
                db = await asyncpg.connect(self.url)
                await db.execute("CREATE TABLE IF NOT EXISTS paid (amount int)")
                await db.close()
            await engine.register(definition)
            yield engine

    def _refund(self) -> Any:
        bank = self

        @activity(name="refund", transactional=True)
        def plain(payment: Any = None, connection: Any = None) -> None:
            bank.calls.append("refund")
            connection.execute("INSERT INTO paid VALUES (-?)", (abs(payment),))

        @activity(name="refund", transactional=True)
        async def beside(payment: Any = None, connection: Any = None) -> None:
            bank.calls.append("refund")
            await connection.execute("INSERT INTO paid VALUES (-$1::int)", abs(payment))

        return plain if self.sqlite else beside

    def do(self, text: str) -> list[Any]:
        db = sqlite3.connect(self.url.removeprefix("sqlite:///"), isolation_level=None)
        try:
            return db.execute(text).fetchall()
        finally:
            db.close()

    async def paid(self) -> list[int]:
        if self.sqlite:
            return sorted(row[0] for row in self.do("SELECT amount FROM paid"))
        db = await asyncpg.connect(self.url)
        try:
            return sorted(row[0] for row in await db.fetch("SELECT amount FROM paid"))
        finally:
            await db.close()


@pytest.fixture(params=["sqlite", "postgres"])
def bank(request: pytest.FixtureRequest, tmp_path: Path) -> Bank:
    if request.param == "sqlite":
        return Bank(f"sqlite:///{tmp_path / 'bank.db'}")
    return Bank(request.getfixturevalue("postgres_url"))


async def test_writes_and_result_are_there_together(bank: Bank) -> None:
    async with bank.engine() as engine:
        runs = [await engine.start("pay", n) for n in range(1, 21)]
        assert [await run.result() for run in runs] == list(range(1, 21))
        assert await bank.paid() == list(range(1, 21))
        types = [event.type for event in await runs[0].history()]
        assert types.count("task_completed") == 2
        assert await engine.audit() == []


async def test_a_failed_attempt_leaves_nothing_and_the_next_is_whole(bank: Bank) -> None:
    seen: list[int] = []

    def once(connection: Any, amount: int) -> None:
        seen.append(amount)
        if len(seen) == 1:
            raise ConnectionError("not now")

    bank.during = once
    async with bank.engine() as engine:
        assert await (await engine.start("pay", 5)).result() == 5
        assert await bank.paid() == [5]
        assert bank.calls == ["pay", "pay"]


async def test_the_undo_is_transactional_too(bank: Bank) -> None:
    async with bank.engine() as engine:
        run = await engine.start("pay", -3)
        with pytest.raises(RunFailed):
            await run.result()
        assert await bank.paid() == [-3, -3]
        assert "undo_completed" in [event.type for event in await run.history()]


async def test_a_result_that_the_definition_refuses_leaves_no_writes(bank: Bank) -> None:
    definition = {
        "id": "pay",
        "tasks": {
            "pay": {
                "do": "pay", "inputs": {"amount": {"from": "input"}}, "outputSchema": {"type": "string"},
            }
        },
    }  # fmt: skip
    async with bank.engine(definition) as engine:
        with pytest.raises(RunFailed, match="output"):
            await (await engine.start("pay", 5)).result()
        assert await bank.paid() == []


async def test_a_refused_append_rolls_both_back_and_the_attempt_is_lost(bank: Bank) -> None:
    """Another process signals the run while its activity is in its transaction."""
    definition = {
        "id": "pay",
        "tasks": {
            "pay": {"do": "pay", "inputs": {"amount": {"from": "input"}}},
            "wait": {"type": "signal", "name": "go"},
        },
    }
    async with bank.engine(definition) as engine, penstock.open(bank.url, execute=False) as other:
        core = engine._runs.engine
        core.hints.close()  # nobody tells the owner: it finds out by the refusal
        begin = core.store.transactions.begin

        async def late(**options: Any) -> Any:
            """Another writes after the run was looked at, and before its transaction can be ended."""
            core.store.transactions.begin = begin
            await (await other.get("r")).signal("go", 1)
            return await begin(**options)

        core.store.transactions.begin = late
        run = await engine.start("pay", 5, id="r")
        await run.result()
        types = [event.type for event in await run.history()]
        assert types.count("task_lost") == 1
        assert types.count("task_completed") == 1
        assert bank.calls == ["pay", "pay"]
        assert await bank.paid() == [5]


async def test_what_an_older_owner_still_wants_is_rolled_back(bank: Bank) -> None:
    """The database has a newer owner when the activity returns."""
    async with bank.engine() as engine:
        core = engine._runs.engine
        begin = core.store.transactions.begin

        async def late(**options: Any) -> Any:
            core.store.transactions.begin = begin
            await newer()
            return await begin(**options)

        async def newer() -> None:
            text = "UPDATE owner SET token = token + 1"
            if bank.sqlite:
                bank.do(text)
            else:
                db = await asyncpg.connect(bank.url)
                await db.execute(text.replace("owner", "penstock.owner"))
                await db.close()

        core.store.transactions.begin = late
        run = await engine.start("pay", 5, id="r")
        async with asyncio.timeout(10):
            while core.owner is not None:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert bank.calls == ["pay"]
        assert await bank.paid() == []
        assert [event.type for event in await run.history()] == ["run_started"]


async def test_an_activity_that_ends_its_transaction_is_told(bank: Bank) -> None:
    if bank.sqlite:

        def commits(connection: Any, amount: int) -> None:
            connection.execute("COMMIT")
    else:

        def commits(connection: Any, amount: int) -> Any:
            return connection.execute("COMMIT")

    bank.during = commits
    async with bank.engine() as engine:
        with pytest.raises(RunFailed) as caught:
            await (await engine.start("pay", 5)).result()
        if bank.sqlite:
            assert "not authorized" in str(caught.value)
            assert await bank.paid() == []
        else:
            assert caught.value.failure.code == "transaction-ended"


@pytest.mark.parametrize(
    "text",
    [
        "ROLLBACK", "BEGIN", "ATTACH ':memory:' AS other", "DELETE FROM events", "UPDATE runs SET status = 'FAILED'",
        "DROP TABLE snapshots", "PRAGMA user_version = 7", "PRAGMA synchronous = OFF", "INSERT INTO owner DEFAULT VALUES",
        "CREATE TRIGGER t AFTER INSERT ON events BEGIN SELECT 1; END", "ALTER TABLE runs ADD COLUMN more",
    ],
)  # fmt: skip
async def test_what_would_harm_the_store_is_denied(tmp_path: Path, text: str) -> None:
    bank = Bank(f"sqlite:///{tmp_path / 'bank.db'}")
    bank.during = lambda connection, amount: connection.execute(text)
    async with bank.engine() as engine:
        with pytest.raises(RunFailed, match="not authorized"):
            await (await engine.start("pay", 5)).result()
        assert await bank.paid() == []
        bank.during = lambda connection, amount: None
        assert await (await engine.start("pay", 6)).result() == 6


async def test_past_its_limit_nothing_of_it_stays(tmp_path: Path) -> None:
    bank = Bank(f"sqlite:///{tmp_path / 'bank.db'}")
    late: list[str] = []

    def endless(connection: sqlite3.Connection, amount: int) -> None:
        def rows() -> Any:
            while True:
                time.sleep(0.05)
                yield (amount,)

        try:
            if amount == 1:
                connection.execute(
                    "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT sum(x) FROM n"
                ).fetchall()
            else:
                connection.executemany("INSERT INTO paid VALUES (?)", rows())
        except sqlite3.Error as error:
            late.append(str(error))
            raise

    bank.during = endless
    async with bank.engine(timeout=0.3) as engine:
        for amount in (1, 2):
            with pytest.raises(RunFailed):
                await (await engine.start("pay", amount)).result()
        bank.during = lambda connection, amount: None
        assert await (await engine.start("pay", 3)).result() == 3
        async with asyncio.timeout(60):
            while len(late) < 4:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert await bank.paid() == [3]


async def test_a_slow_transaction_on_postgres_holds_up_nobody(postgres_url: str) -> None:
    bank = Bank(postgres_url)
    gate = asyncio.Event()
    bank.during = lambda connection, amount: gate.wait() if amount == 1000 else None
    async with bank.engine() as engine:
        slow = await engine.start("pay", 1000)
        others = [await engine.start("pay", n) for n in range(20)]
        async with asyncio.timeout(20):
            assert [await run.result() for run in others] == list(range(20))
        assert await slow.status() == "RUNNING"
        gate.set()
        assert await slow.result() == 1000


def test_what_cannot_be_is_refused_at_registration() -> None:
    with pytest.raises(Rejected, match="takes no connection"):

        @activity(transactional=True)
        def alone(amount: int) -> None: ...

    with pytest.raises(Rejected, match="cpu=True"):

        @activity(transactional=True, cpu=True)
        def heavy(connection: Any) -> None: ...


async def test_each_store_says_which_activities_it_can_serve(
    tmp_path: Path, postgres_url: str
) -> None:
    @activity(transactional=True)
    async def beside(connection: Any) -> None: ...

    @activity(transactional=True)
    def plain(db: sqlite3.Connection) -> None: ...

    for url, one, message in (
        ("memory:", plain, "no transactions to give"),
        (f"sqlite:///{tmp_path / 'x.db'}", beside, "plain `def`"),
        (postgres_url, plain, "async def"),
    ):
        with pytest.raises(Rejected) as caught:
            async with penstock.open(url, activities=[one]):
                pass
        assert caught.value.code == "activity-invalid"
        assert message in f"{caught.value} {caught.value.hint}"


async def test_an_input_named_as_the_connection_is_refused(tmp_path: Path) -> None:
    bank = Bank(f"sqlite:///{tmp_path / 'bank.db'}")
    async with bank.engine() as engine:
        with pytest.raises(penstock.PenstockError):
            await engine.register(
                {"id": "x", "tasks": {"pay": {"do": "pay", "inputs": {"connection": {"value": 1}}}}}
            )
