"""Where the code of workflow functions is: `sdk/functions.py` makes it real."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Protocol

from penstock.core.functions import FunctionPlan

if TYPE_CHECKING:
    from penstock.core.program import Program
    from penstock.model.run import Run


class Functions(Protocol):
    def __bool__(self) -> bool:
        """Some are here."""
        ...

    def plan(self, name: str) -> FunctionPlan | None:
        """That of a function which is here."""
        ...

    def described(self) -> Mapping[str, bytes]:
        """Of each that is here what the store keeps of it, as JSON."""
        ...

    def begin(self, run: Run) -> Program | None:
        """The function of a run, told nothing; None if it is not here."""
        ...

    def together(self) -> AbstractContextManager[None]:
        """Within it functions go on one after the other, which costs each of them less; nothing is awaited there, and
        nobody asks for the running event loop."""
        ...


class NoFunctions:
    """A process that has none."""

    def __bool__(self) -> bool:
        return False

    def plan(self, name: str) -> FunctionPlan | None:
        return None

    def described(self) -> Mapping[str, bytes]:
        return {}

    def begin(self, run: Run) -> Program | None:
        return None

    def together(self) -> AbstractContextManager[None]:
        return nullcontext()
