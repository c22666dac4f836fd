"""Where the code of workflow functions is: `sdk/functions.py` makes it real."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from penstock.core.functions import FunctionPlan

if TYPE_CHECKING:
    from penstock.core.program import Program
    from penstock.model.run import Run


class Functions(Protocol):
    def plan(self, name: str) -> FunctionPlan | None:
        """That of a function which is here."""
        ...

    def described(self) -> Mapping[str, bytes]:
        """Of each that is here what the store keeps of it, as JSON."""
        ...

    def begin(self, run: Run) -> Program | None:
        """The function of a run, told nothing; None if it is not here."""
        ...


class NoFunctions:
    """A process that has none."""

    def plan(self, name: str) -> FunctionPlan | None:
        return None

    def described(self) -> Mapping[str, bytes]:
        return {}

    def begin(self, run: Run) -> Program | None:
        return None
