"""`make bench`: every subject asked every question side by side, in one go.

    python bench/run.py                     all of it, about twenty minutes
    python bench/run.py --quick             smaller, noisier, in six; nothing is kept
    python bench/run.py --store postgres    the subjects on one store: sqlite or postgres
    python bench/run.py --only sequence --subjects penstock,raw

Figures go to stdout as a table, progress to stderr. A question asked of all subjects of a store is kept in
`bench/latest.json` and `bench/history.jsonl`; the newest answers to all questions make `docs/bench.md` and `docs/bench.svg`,
which say at which commit each was asked.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import process
import report
import server
from peers import install
from plan import OURS, PEERS, QUESTIONS, STORES, SUBJECTS, Question, script, store_of
from verdict import Verdict, judge

QUICK_ROUNDS = 1
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer, shorter, smaller; not kept")
    parser.add_argument("--only", metavar="QUESTION", help="one or several, with commas")
    parser.add_argument("--subjects", metavar="NAMES", help="one or several, with commas")
    parser.add_argument("--store", choices=list(STORES), help="only the subjects on this store")
    parser.add_argument("--list", action="store_true", help="what can be asked, and of whom")
    given = parser.parse_args()
    if given.list:
        for question in QUESTIONS:
            print(f"{question.name:<10} {question.asks:<52} {', '.join(question.subjects)}")
        return
    questions = _chosen(given.only, [question.name for question in QUESTIONS], parser)
    known = list(STORES[given.store] if given.store else SUBJECTS)
    subjects = _chosen(given.subjects, known, parser)
    for number in STOPS:
        if signal.getsignal(number) != signal.SIG_IGN:  # as `nohup` wants it
            signal.signal(number, _stop)
    bench = Bench(subjects, quick=given.quick)
    for question in QUESTIONS:
        if question.name in questions:
            bench.ask(question)
    bench.tell(keep=not given.quick and len(subjects) == len(known))
    if bench.failures:
        raise SystemExit(1)


def _stop(number: int, _frame: object) -> None:
    """Leave through the `finally` blocks that end the script and its server; a second one must not cut them short: `timeout`
    tells all of its group, and `make` tells us once more."""
    for each in STOPS:
        signal.signal(each, signal.SIG_IGN)
    say(f"ended by {signal.Signals(number).name}: nothing is kept")
    sys.exit(128 + number)


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
        self._variants: dict[tuple[str, str], str | None] = {}
        self._answers: dict[tuple[str, str], list[dict[str, Any] | None]] = {}
        """By subject and question: the answer of each round."""
        self.facts: dict[str, Any] = {}
        self.failures: list[str] = []
        os.environ[server.PROGRAMS] = str(server.programs())
        for subject in subjects:
            self._prepare(subject)

    def _prepare(self, subject: str) -> None:
        if subject not in PEERS:
            self._pythons[subject] = Path(sys.executable)
            return
        peer = subject.removesuffix("-postgres")
        try:
            say(f"{subject}: looking for its environment in bench/scratch/")
            self._pythons[subject] = install.python_of(peer)
        except install.Unavailable as reason:
            say(f"{subject}: skipped, as it cannot be had here: {reason}")

    def ask(self, question: Question) -> None:
        subjects = [subject for subject in question.subjects if subject in self._pythons]
        rounds = QUICK_ROUNDS if self._quick else question.rounds
        install.WORK.mkdir(exist_ok=True)
        # Not in the system's folder for temporary files, which may be memory, where a sync costs nothing.
        with tempfile.TemporaryDirectory(dir=install.WORK, ignore_cleanup_errors=True) as shared:
            Path(shared).chmod(
                0o711
            )  # PostgreSQL does not run as root: `nobody` must be able to pass
            for subject in subjects:
                if subject in question.choosing and not self._quick:
                    say(f"{question.name}, variants: {subject}")
                    self._choose(question, subject, Path(shared))
            for number in range(1, rounds + 1):
                # Backwards in every other round, so that a slow hour of the machine meets all alike.
                for subject in subjects if number % 2 else reversed(subjects):
                    say(f"{question.name}, round {number} of {rounds}: {subject}")
                    answer = self._ask_one(question, subject, Path(shared))
                    self._answers.setdefault((subject, question.name), []).append(answer)

    def _choose(self, question: Question, subject: str, shared: Path) -> None:
        answer = self._ask_one(question, subject, shared)
        if answer is not None:
            self._variants[subject, question.name] = answer["variant"]
            self._remember(subject, answer)

    def _ask_one(self, question: Question, subject: str, shared: Path) -> dict[str, Any] | None:
        variant = self._variants.get((subject, question.name))
        folder = shared if question.shared_folder else Path(tempfile.mkdtemp(dir=shared))
        try:
            answer = process.ask(
                self._pythons[subject],
                script(subject, question.name),
                folder,
                store=None if store_of(subject) == "sqlite" else "postgres",
                variant=variant,
                quick=self._quick,
                seconds_max=question.limit_seconds,
            )
        except process.Failed as error:
            self.failures.append(f"{question.name}, {subject}: {error}")
            say(f"  failed: {error}")
            return None
        finally:
            if not question.shared_folder:
                shutil.rmtree(folder, ignore_errors=True)
        self._remember(subject, answer)
        for row in answer["rows"]:
            extra = f"  ({answer['variant']})" if answer["variant"] else ""
            say(f"  {row['question']}: {row['figure']:,.4g} {row['unit']}{extra}")
        return answer

    def _remember(self, subject: str, answer: dict[str, Any]) -> None:
        """What Penstock says of itself besides its figures: commits and syncs per run."""
        if subject in OURS:
            mark = "" if store_of(subject) == "sqlite" else ", on PostgreSQL"
            for name, value in answer["facts"].items():
                if not isinstance(value, dict):
                    self.facts[name + mark] = value

    def _by_round(self) -> dict[tuple[str, str], list[dict[str, Any]]]:
        """The row of each round, by question and subject."""
        found: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for (subject, _), answers in self._answers.items():
            for answer in answers:
                for row in answer["rows"] if answer else ():
                    kept = {**row, "variant": answer["variant"]}
                    found.setdefault((row["question"], subject), []).append(kept)
        return found

    def rows(self) -> list[dict[str, Any]]:
        """One row a question and subject: the median over the rounds, with their spread."""
        found: list[dict[str, Any]] = []
        for (question, subject), rounds in self._by_round().items():
            figures = [row["figure"] for row in rounds]
            row: dict[str, Any] = {"question": question, "subject": subject}
            row |= {"figure": round(statistics.median(figures), 4), "unit": rounds[0]["unit"]}
            low = min(one.get("low", one["figure"]) for one in rounds)
            high = max(one.get("high", one["figure"]) for one in rounds)
            if low != high:
                row |= {"low": round(low, 4), "high": round(high, 4)}
            row |= {name: rounds[0][name] for name in ("reduced", "variant") if rounds[0].get(name)}
            row["rounds"] = [round(figure, 4) for figure in figures]
            found.append(row)
        return found

    def tell(self, *, keep: bool) -> None:
        rows = self.rows()
        report.show(rows, self.facts, judged(rows))
        for failure in self.failures:
            say(f"failed: {failure}")
        if not keep or self.failures:
            say(
                "not kept: only a bench of all subjects of a store, without failures and not quick, is"
            )
            return
        rows, facts = report.keep(rows, self.facts)
        report.write_page(rows, facts, judged(rows))
        import plot  # late: it takes a second

        plot.draw(rows)
        say(
            "kept in bench/latest.json and bench/history.jsonl, shown in docs/bench.md and docs/bench.svg"
        )


def judged(rows: list[dict[str, Any]]) -> list[Verdict]:
    """What was asked for less than the question says is not judged."""
    return judge(
        {(row["question"], row["subject"]): row["rounds"] for row in rows if not row.get("reduced")}
    )


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
