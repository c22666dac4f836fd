"""What is measured: the questions, who is asked each of them, how often, how long it may take."""

from __future__ import annotations

from dataclasses import dataclass

SUBJECTS = ("raw", "penstock", "dbos", "restate")
PEERS = ("dbos", "restate")
ENGINES = ("penstock", "dbos", "restate")


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
    Question("recovery", "500 open runs, kill -9, restart: seconds", ENGINES, 2, 240),
    Question(
        "growth",
        "cost with 1,000,000 runs, with 100,000 events",
        ("penstock", "raw"),
        1,
        420,
        shared_folder=True,
    ),
    Question("memory", "100,000 waiting runs; 100,000 tasks in a run", ("penstock",), 1, 300),
)


def script(subject: str, question: str) -> str:
    """The measuring script, relative to this folder."""
    if (subject, question) == ("raw", "sequence"):
        return "raw.py"
    folder = "peers/" if subject in PEERS else ""
    return f"{folder}{subject}_{question}.py"
