"""The work that every subject is given: the same dicts, the same steps, the same checks.

Standard library only, as the peers import this from environments of their own.
"""

from __future__ import annotations

STEPS = 3
FANOUT = 1_000
OPEN_RUNS = 500


def order(number: int) -> dict[str, object]:
    """The input of run `number`: a dict of about 200 bytes as JSON."""
    return {
        "order": number,
        "customer": f"customer-{number % 9973:06d}",
        "address": "12 Sluice Lane, Upper Weir, Millpond District",
        "lines": [{"sku": "turbine-blade", "count": 3}, {"sku": "gasket", "count": 12}],
        "stage": 0,
        "total": 1000 + number % 97,
    }


def step(stage: int, data: dict[str, object]) -> dict[str, object]:
    """What task `stage` does: it reads the dict and answers with one of the same size."""
    total = data["total"]
    assert isinstance(total, int), data
    return {**data, "stage": stage, "total": total + stage}


def check(number: int, result: object) -> None:
    """Every result of every subject is held against what the three steps must give."""
    expected = order(number)
    for stage in range(1, STEPS + 1):
        expected = step(stage, expected)
    if result != expected:
        raise SystemExit(f"wrong result for run {number}: {result!r}")


def check_one(number: int, result: object) -> None:
    """The same for a run of a single task."""
    expected = step(1, order(number))
    if result != expected:
        raise SystemExit(f"wrong result for run {number}: {result!r}")


def check_all(tasks: int, results: object) -> None:
    """The same for a run of many parallel tasks: their results in order."""
    if results != [step(1, order(number)) for number in range(tasks)]:
        raise SystemExit("wrong results of the parallel tasks")
