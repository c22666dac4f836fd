"""Transactions of activities in a simulation: they begin late or not at all, and end with their node."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from penstock.errors import StoreError
from penstock.ports.store import Append, Appended
from penstock.ports.transactions import Transaction
from penstock.testing.faults import Trouble

if TYPE_CHECKING:
    from penstock.testing.nodes import Node


class FaultyTransactions:
    """Those of a node's store."""

    def __init__(self, transactions: Any, node: Node, trouble: Trouble) -> None:
        self._transactions, self._node, self._trouble = transactions, node, trouble
        self.activities: str = transactions.activities

    async def begin(self, *, seconds_max: float) -> WatchedTransaction:
        node, trouble = self._node, self._trouble
        await asyncio.sleep(trouble.delay())
        lost = node.cut_off or trouble.chance.random() < trouble.failing
        if lost or not node.place.alive:
            trouble.counts["store failures"] += 1
            raise StoreError("the simulated store fails")
        trouble.counts["transactions"] += 1
        begun = await self._transactions.begin(seconds_max=seconds_max)
        return WatchedTransaction(begun, node, trouble)


class WatchedTransaction:
    """The judge sees what is stored with it, also if its answer is lost."""

    def __init__(self, transaction: Transaction, node: Node, trouble: Trouble) -> None:
        self._transaction, self._node, self._trouble = transaction, node, trouble
        node.transactions[self] = None

    @property
    def connection(self) -> Any:
        return self._transaction.connection

    async def ready(self) -> None:
        await self._transaction.ready()

    async def append(self, append: Append) -> Appended | Exception:
        node = self._node
        node.transactions.pop(self, None)
        newest = node.simulation.disk.token()
        outcome = await self._transaction.append(append)
        if isinstance(outcome, Appended):
            node.judge.appended(node, append, newest)
        elif isinstance(outcome, StoreError) and node.simulation.disk.holds(append):
            self._trouble.counts["transactions done whose answer was lost"] += 1
            node.judge.appended(node, append, newest)
        else:
            self._trouble.counts["transactions rolled back"] += 1
        return outcome

    async def roll_back(self) -> None:
        self._node.transactions.pop(self, None)
        await self._transaction.roll_back()

    def cut(self) -> None:
        """Its process is gone."""
        self._trouble.counts["transactions cut"] += 1
        with suppress(sqlite3.Error):
            self.connection.close()
