"""`make bench`: every subject asked every question side by side, in one go.

    python bench/run.py                     all of it, about ten minutes
    python bench/run.py --quick             smaller, noisier, in three; nothing is kept
    python bench/run.py --only sequence --subjects penstock,raw

Figures go to stdout as a table, progress to stderr. A whole question asked of all its subjects is kept in
`bench/latest.json`, `bench/history.jsonl`, `docs/bench.md` and `docs/bench.svg`.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import process
import report
from peers import install
from plan import PEERS, QUESTIONS, SUBJECTS, Question, script
from verdict import judge

QUICK_ROUNDS = 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer, shorter, smaller; not kept")
    parser.add_argument("--only", metavar="QUESTION", help="one or several, with commas")
    parser.add_argument("--subjects", metavar="NAMES", help="one or several, with commas")
    parser.add_argument("--list", action="store_true", help="what can be asked, and of whom")
    given = parser.parse_args()
    if given.list:
        for question in QUESTIONS:
            print(f"{question.name:<10} {question.asks:<52} {', '.join(question.subjects)}")
        return
    questions = _chosen(given.only, [question.name for question in QUESTIONS], parser)
    subjects = _chosen(given.subjects, list(SUBJECTS), parser)
    bench = Bench(subjects, quick=given.quick)
    for question in QUESTIONS:
        if question.name in questions:
            bench.ask(question)
    bench.tell(complete=not given.quick and len(subjects) == len(SUBJECTS))
    if bench.failures:
        raise SystemExit(1)


def _chosen(given: str | None, known: list[str], parser: argparse.ArgumentParser) -> list[str]:
    names = given.split(",") if given else known
    for name in names:
        if name not in known:
            parser.error(f"unknown: {name}; choose from {', '.join(known)}")
    return names


class Bench:
    """Asks, and gathers the answers."""

    def __init__(self, subjects: list[str], *, quick: bool) -> None:
        self._quick = quick
        self._pythons: dict[str, Path] = {}
        self._answers: dict[tuple[str, str], list[dict[str, Any]]] = {}
        """By subject and question: the answer of each round."""
        self.failures: list[str] = []
        for subject in subjects:
            self._prepare(subject)

    def _prepare(self, subject: str) -> None:
        if subject not in PEERS:
            self._pythons[subject] = Path(sys.executable)
            return
        try:
            say(f"{subject}: looking for its environment in bench/work/")
            self._pythons[subject] = install.python_of(subject)
        except install.Unavailable as reason:
            say(f"{subject}: skipped, as it cannot be had here: {reason}")

    def ask(self, question: Question) -> None:
        subjects = [subject for subject in question.subjects if subject in self._pythons]
        rounds = QUICK_ROUNDS if self._quick else question.rounds
        install.WORK.mkdir(exist_ok=True)
        # Not in the system's folder for temporary files, which may be memory, where a sync costs nothing.
        with tempfile.TemporaryDirectory(dir=install.WORK, ignore_cleanup_errors=True) as shared:
            for number in range(1, rounds + 1):
                # Backwards in every other round, so that a slow hour of the machine meets all alike.
                for subject in subjects if number % 2 else reversed(subjects):
                    say(f"{question.name}, round {number} of {rounds}: {subject}")
                    self._ask_one(question, subject, Path(shared))

    def _ask_one(self, question: Question, subject: str, shared: Path) -> None:
        before = self._answers.setdefault((subject, question.name), [])
        variant = before[-1]["variant"] if before else None
        folder = shared if question.shared_folder else Path(tempfile.mkdtemp(dir=shared))
        try:
            answer = process.ask(
                self._pythons[subject],
                script(subject, question.name),
                folder,
                variant=variant,
                quick=self._quick,
                seconds_max=question.limit_seconds,
            )
        except process.Failed as error:
            self.failures.append(f"{question.name}, {subject}: {error}")
            say(f"  failed: {error}")
            return
        finally:
            if not question.shared_folder:
                shutil.rmtree(folder, ignore_errors=True)
        before.append(answer)
        for row in answer["rows"]:
            extra = f"  ({answer['variant']})" if answer["variant"] else ""
            say(f"  {row['question']}: {row['figure']:,.4g} {row['unit']}{extra}")

    def rows(self) -> list[dict[str, Any]]:
        """One row a question and subject: the median over the rounds, with their spread."""
        found: list[dict[str, Any]] = []
        for (subject, _), answers in self._answers.items():
            by_question: dict[str, list[dict[str, Any]]] = {}
            for answer in answers:
                for row in answer["rows"]:
                    by_question.setdefault(row["question"], []).append(row)
            for question, rows in by_question.items():
                figures = [row["figure"] for row in rows]
                row = {
                    "question": question,
                    "subject": subject,
                    "figure": round(statistics.median(figures), 4),
                    "unit": rows[0]["unit"],
                }
                if len(figures) > 1:
                    row |= {"low": round(min(figures), 4), "high": round(max(figures), 4)}
                elif "low" in rows[0]:
                    row |= {"low": round(rows[0]["low"], 4), "high": round(rows[0]["high"], 4)}
                if rows[0].get("reduced"):
                    row["reduced"] = True
                if answers[-1]["variant"]:
                    row["variant"] = answers[-1]["variant"]
                found.append(row)
        return found

    def facts(self) -> dict[str, Any]:
        """What Penstock says of itself besides its figures: commits and syncs per run."""
        found: dict[str, Any] = {}
        for (subject, _), answers in self._answers.items():
            if subject == "penstock":
                for answer in reversed(answers):
                    found |= {
                        name: v for name, v in answer["facts"].items() if not isinstance(v, dict)
                    }
        return found

    def tell(self, *, complete: bool) -> None:
        rows, facts = self.rows(), self.facts()
        whole = [row for row in rows if not row.get("reduced")]
        figures = {(row["question"], row["subject"]): row["figure"] for row in whole}
        verdicts = judge(figures)
        report.show(rows, facts, verdicts)
        for failure in self.failures:
            say(f"failed: {failure}")
        if not complete or self.failures:
            say("not kept: only a bench of all subjects, without failures and not quick, is")
            return
        report.keep(rows, facts)
        report.write_page(rows, facts, verdicts)
        import plot  # late: it takes a second

        plot.draw(rows)
        say("kept in bench/latest.json, bench/history.jsonl, docs/bench.md and docs/bench.svg")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
