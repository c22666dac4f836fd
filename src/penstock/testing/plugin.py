"""Fixtures for pytest, there as soon as Penstock is installed: `penstock_harness`, `penstock_golden`, `penstock_simulate`.

Nothing of the engine is imported before a test asks for it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from penstock.testing.histories import Golden


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("penstock").addoption(
        "--penstock-golden", action="store_true", help="Write golden histories anew."
    )


@pytest.fixture
def penstock_harness() -> Any:
    """`async with penstock_harness(workflows=[…], activities=[…]) as engine:`, an engine whose clock skips."""
    from penstock.testing.harness import harness

    return harness


@pytest.fixture
def penstock_simulate() -> Any:
    """`penstock_simulate(shop, seeds=200)` plays a module's workflows, and fails the test with what was found."""
    from penstock.testing.simulating import simulate

    def play(*things: Any, **options: Any) -> Any:
        report = simulate(*things, **options)
        report.check()
        return report

    return play


@pytest.fixture
def penstock_golden(request: pytest.FixtureRequest) -> Golden:
    """Golden histories in the folder `golden` beside the test: `await penstock_golden.check(run, "order")`."""
    from penstock.testing.histories import Golden

    folder = Path(request.path).parent / "golden"
    return Golden(folder, write=bool(request.config.getoption("--penstock-golden")))
