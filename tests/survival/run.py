"""`make mutmut`: mutants of core/, each against the quick tests that touch its function; how many are killed, and which survive.

python tests/survival/run.py                   a draw of about 450, by share, spread over all files of core/
python tests/survival/run.py --number 200 --seed other
python tests/survival/run.py --all             every one of them: hours
python tests/survival/run.py --mutant NAME …   these (`*` at the end: all that begin so); with --show, only what they change
python tests/survival/run.py --all --only functions.done evolve    of all, or of a draw, those of these functions and files
python tests/survival/run.py --survivors       those that did, once more; with --tests tests/laws against other tests
python tests/survival/run.py --write           and what came of it into docs/concepts/survival.md

What has been judged is kept in build/mutmut/verdicts.jsonl until the file of core/ changes; --again forgets it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

import pytest  # noqa: E402

from survival.forest import PLACE, SOURCE, change, drawn, grow  # noqa: E402
from survival.page import only, table, write, written  # noqa: E402
from survival.trial import Trial, Verdict  # noqa: E402

TESTS = [
    "tests/unit/core",
    "tests/histories",
    "tests/engine/test_functions.py",
    "tests/engine/test_controls_table.py",
    "tests/engine/test_generations.py",
    "tests/engine/test_control.py",
    "tests/engine/test_review_core.py",
    "tests/engine/test_migration.py",
    "tests/laws/test_runs.py",
]
LEFT_OUT = [
    "--ignore=tests/unit/core/test_large.py",
    "-k=not postgres and not test_the_generators_reach_everything_often_enough",
]
EXAMPLES = "8"


FILES: dict[str, str] = {}
"""Where each mutant is."""


class Kept:
    """The verdicts so far: a line each."""

    def __init__(self, again: bool) -> None:
        self.path = PLACE / "verdicts.jsonl"
        self.texts = {
            file: hashlib.sha256((SOURCE / "core" / file).read_bytes()).hexdigest()[:12]
            for file in set(FILES.values())
        }
        if again:
            self.path.unlink(missing_ok=True)
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        self.verdicts: dict[str, Verdict] = {}
        self.changes: dict[str, list[str]] = {}
        for told in map(json.loads, lines):
            if self.texts.get(FILES.get(told["mutant"], "")) == told["text"]:
                verdict = Verdict(**{name: told[name] for name in Verdict._fields})
                self.verdicts[verdict.mutant] = verdict
                self.changes[verdict.mutant] = told["change"]

    def keep(self, verdict: Verdict, changed: list[str]) -> None:
        self.verdicts[verdict.mutant] = verdict
        self.changes[verdict.mutant] = changed
        told = verdict._asdict() | {"text": self.texts[FILES[verdict.mutant]], "change": changed}
        with self.path.open("a") as file:
            file.write(json.dumps(told, ensure_ascii=False) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)  # fmt: skip
    parser.add_argument("--number", type=int, default=450)
    parser.add_argument("--seed", default="penstock")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--mutant", nargs="+", default=[])
    parser.add_argument(
        "--only",
        nargs="+",
        default=[],
        help="as the page names them: `evolve`, `functions.RunPlan.add`",
    )
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--survivors", action="store_true")
    parser.add_argument("--tests", nargs="+", default=[])
    parser.add_argument(
        "--keep", action="store_true", help="what other tests kill counts as killed"
    )
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()

    forest = grow()
    FILES.update({name: file for file, names in forest.items() for name in names})
    sys.path.insert(0, str(PLACE / "src"))
    import penstock.core

    assert str(penstock.core.__file__).startswith(str(PLACE)), penstock.core.__file__
    kept = Kept(given.again)
    names = [name for names in forest.values() for name in names]
    if given.mutant:
        starts = tuple(name.rstrip("*") for name in given.mutant if name.endswith("*"))
        chosen = [n for n in names if n in given.mutant or (starts and n.startswith(starts))]
    else:
        chosen = names if given.all else drawn(forest, given.number, given.seed)
    if given.only:
        chosen = only(chosen, given.only)
    if given.survivors:
        chosen = [n for n in chosen if n in kept.verdicts and kept.verdicts[n].verdict != "killed"]
    fresh = bool(given.mutant or given.survivors)
    todo = [n for n in chosen if fresh or n not in kept.verdicts]
    print(f"{len(names):,} mutants, {len(chosen):,} chosen, {len(todo):,} to try", file=sys.stderr)
    told: list[Verdict] = []

    def tell(verdict: Verdict) -> None:
        told.append(verdict)
        changed = change(verdict.mutant)
        if not given.tests or (given.keep and verdict.verdict == "killed"):
            kept.keep(verdict, changed)
        print(f"{len(told)}/{len(todo)} {verdict.verdict} {verdict.mutant} {verdict.seconds} s {verdict.by}", file=sys.stderr)  # fmt: skip
        if verdict.verdict != "killed":
            print("\n".join(f"    {line}" for line in changed), file=sys.stderr, flush=True)

    if todo:
        os.environ.setdefault("PENSTOCK_EXAMPLES", EXAMPLES)
        tests = [*(given.tests or TESTS), *LEFT_OUT]
        options = ["-q", "-s", "-p", "no:cacheprovider", "--hypothesis-seed=0", "--no-header", "--tb=native", f"--rootdir={ROOT}"]  # fmt: skip
        code = pytest.main([*options, *tests], plugins=[Trial([] if given.show else todo, tell)])
        if given.show:
            print("\n".join(f"{n}\n" + "\n".join(change(n)) for n in todo))
        if code and not told:
            return int(code)
    verdicts = told if given.tests else [kept.verdicts[n] for n in chosen if n in kept.verdicts]
    head = table(verdicts, FILES, {file: len(names) for file, names in forest.items()})
    print(head)
    if given.write:
        write(written(verdicts, kept.changes, head))
    return 0


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main())
