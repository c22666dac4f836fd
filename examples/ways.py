"""Activities of dataflow.yaml, eventflow.yaml and rules.yaml: one engine, four ways to orchestrate (SPEC 2.5)."""

from __future__ import annotations

from penstock import activity


@activity
async def measure(city: str) -> list[float]:
    return [11.5, 14.0, 9.0]


@activity
async def average(values: list[float]) -> float:
    return sum(values) / len(values)


@activity
async def maximum(values: list[float]) -> float:
    return max(values)


@activity
async def write(city: str, mean: float, highest: float) -> str:
    return f"{city}: {mean} on average, {highest} at most"


@activity
async def place() -> None: ...


@activity
async def charge() -> None: ...


@activity
async def reserve() -> None: ...


@activity
async def ship() -> str:
    return "shipped"


@activity
async def score(amount: int) -> int:
    return amount // 10


@activity
async def review(score: int) -> str:
    return "fine" if score < 80 else "bad"


@activity
async def accept() -> str:
    return "accepted"


@activity
async def decline() -> str:
    return "declined"


ACTIVITIES = [
    measure,
    average,
    maximum,
    write,
    place,
    charge,
    reserve,
    ship,
    score,
    review,
    accept,
    decline,
]
