"""How applications test with Penstock: an engine whose clock skips, stubs, histories, simulation (SPEC 13)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.testing.harness import Harness, harness
from penstock.testing.histories import Golden, Steps, lines_of, replayed
from penstock.testing.stubs import stub
from penstock.testing.worlds import World, does, invariant

if TYPE_CHECKING:
    from penstock.testing.reporting import Report
    from penstock.testing.simulating import simulate

__all__ = [
    "Golden", "Harness", "Report", "Steps", "World", "does", "harness", "invariant", "lines_of", "replayed", "simulate", "stub",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """The simulation is imported when it is asked for: an application that has a World in its own file does not need it."""
    if name == "simulate":
        from penstock.testing.simulating import simulate

        return simulate
    if name == "Report":
        from penstock.testing.reporting import Report

        return Report
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
