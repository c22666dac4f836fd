"""What is measured: the questions, who is asked each of them, how often, how long it may take."""

from __future__ import annotations

from dataclasses import dataclass

STORES = {
    "sqlite": ("raw", "penstock", "dbos", "restate"),
    "postgres": ("raw-postgres", "penstock-postgres", "dbos-postgres"),
}
"""Who keeps its runs where; Restate has a store of its own, and stands beside those on a file."""
SUBJECTS = (*STORES["sqlite"], *STORES["postgres"])
PEERS = ("dbos", "restate", "dbos-postgres")
ENGINES = ("penstock", "dbos", "restate", "penstock-postgres", "dbos-postgres")
OURS = ("penstock", "penstock-postgres")


@dataclass(frozen=True)
class Question:
    name: str
    asks: str
    subjects: tuple[str, ...]
    rounds: int
    """Every subject is asked once in each round; the medians are reported."""
    limit_seconds: float
    """For one subject in one round."""
    choosing: tuple[str, ...] = ()
    """Who first tries its variants, in a round that does not count, and keeps to the best."""
    shared_folder: bool = False
    """The subjects use the same files, one after the other."""


QUESTIONS = (
    Question("sequence", "runs/s of three sequential tasks", SUBJECTS, 5, 180, choosing=ENGINES),
    Question("latency", "one task, one at a time: p50, p99", ENGINES, 5, 120, choosing=PEERS),
    Question(
        "fanout", "one run of 1,000 parallel tasks: tasks/s", ENGINES, 5, 180, choosing=("restate",)
    ),
    Question(
        "recovery",
        "500 open runs, kill -9, restart: seconds",
        ("penstock", "dbos", "restate"),
        2,
        240,
    ),
    Question(
        "growth",
        "cost with many runs, with 100,000 events",
        ("penstock", "raw", "penstock-postgres", "raw-postgres"),
        1,
        600,
        shared_folder=True,
    ),
    Question("memory", "100,000 waiting runs; 100,000 tasks in a run", ("penstock",), 1, 300),
    Question("bulk", "100,000 starts in one call, and one by one", OURS, 1, 300),
    Question("list", "50 of 1,000,000 runs by status and attribute", OURS, 1, 420),
    Question("functions", "workflow functions against definitions; 100,000 steps", OURS, 3, 300),
    Question(
        "idle", "statements a second when nothing is to be done", ("penstock-postgres",), 1, 90
    ),
)


def store_of(subject: str) -> str:
    return "postgres" if subject in STORES["postgres"] else "sqlite"


def script(subject: str, question: str) -> str:
    """The measuring script, relative to this folder."""
    match subject, question:
        case "raw", "sequence":
            return "raw.py"
        case "raw-postgres", "sequence":
            return "raw_postgres.py"
        case "raw-postgres", _:
            return f"raw_postgres_{question}.py"
        case _:
            folder = "peers/" if subject in PEERS else ""
            return f"{folder}{subject.removesuffix('-postgres')}_{question}.py"
