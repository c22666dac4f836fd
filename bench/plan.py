"""What is measured: the questions, who is asked each of them, how often, how long it may take."""

from __future__ import annotations

from dataclasses import dataclass

SUBJECTS = ("raw", "penstock", "dbos", "restate")
PEERS = ("dbos", "restate")


@dataclass(frozen=True)
class Question:
    name: str
    asks: str
    subjects: tuple[str, ...]
    rounds: int
    """Every subject is asked once in each round; the medians are reported."""
    limit_seconds: float
    """For one subject in one round."""
    shared_folder: bool = False
    """The subjects use the same files, one after the other."""


QUESTIONS = (
    Question("sequence", "runs/s of three sequential tasks", SUBJECTS, 3, 180),
    Question(
        "latency", "one task, one at a time: p50, p99", ("penstock", "dbos", "restate"), 3, 120
    ),
    Question(
        "fanout",
        "one run of 1,000 parallel tasks: tasks/s",
        ("penstock", "dbos", "restate"),
        3,
        180,
    ),
    Question(
        "recovery",
        "500 open runs, kill -9, restart: seconds",
        ("penstock", "dbos", "restate"),
        1,
        240,
    ),
    Question(
        "growth", "cost with 1,000,000 runs, with 100,000 events", ("penstock", "raw"), 1, 420, True
    ),
    Question("memory", "100,000 waiting runs; 100,000 tasks in a run", ("penstock",), 1, 300),
)


def script(subject: str, question: str) -> str:
    """The measuring script, relative to this folder."""
    if (subject, question) == ("raw", "sequence"):
        return "raw.py"
    folder = "peers/" if subject in PEERS else ""
    return f"{folder}{subject}_{question}.py"
