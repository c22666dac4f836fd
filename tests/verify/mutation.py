"""Mutation: 30 good definitions, each broken in 10 random ways; what the verifier says of each, and what is so.

What is so is decided without the verifier: by runs (`support/trials.py`). `make mutation` judges all of them and writes
mutation.json and docs/concepts/mutation.md (`mutation_page.py`); with NAME and NUMBER it shows one, with `--seed` it breaks them
in other ways. It takes minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import pathlib
import re
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from penstock.core.plan import Plan
from penstock.dsl.finding import Finding
from penstock.dsl.load import Loaded, attempt_document, load_file
from penstock.dsl.read_yaml import read_yaml
from penstock.errors import PenstockError
from penstock.testing.acting import act
from penstock.verify.scenario import Scenario
from penstock.verify.verification import Verification, verify
from support.mutants import Document, Mutant, mutants
from support.mutation_page import page
from support.trials import Seen, tried

HERE = pathlib.Path(__file__).parent
GOOD = sorted((HERE / "good").glob("*.yaml"))
RECORD = HERE / "mutation.json"
OTHERS = HERE / "mutation-others.json"
"""Counts of other seeds."""
PAGE = HERE.parents[1] / "docs" / "concepts" / "mutation.md"
EACH = 10
RUNS = 300
SEED = "penstock"
KINDS: dict[str, tuple[str, frozenset[str]]] = {
    "no-plan": ("3.1", frozenset()),
    "no-branch": ("3.3", frozenset({"no-branch", "branch-untyped"})),
    "overlap": ("3.3", frozenset({"branch-overlap", "never-runs", "branch-dead", "branch-untyped"})),
    "join-starved": ("3.2", frozenset({"join-starved"})),
    "no-end": ("3.2", frozenset({"no-end", "no-path"})),
    "deadlock": ("3.2", frozenset({"deadlock"})),
    "stuck": ("3.2", frozenset({"deadlock", "never-runs"})),
    "left-open": ("3.2", frozenset({"deadlock"})),
    "never-runs": ("3.2", frozenset({"never-runs", "branch-dead", "no-path"})),
    "never-completes": ("3.2", frozenset({"no-path", "no-end"})),
    "endless": ("3.4", frozenset({"loop-endless", "loop-unbounded"})),
    "advance-limit": ("3.4", frozenset({"loop-endless", "loop-unbounded"})),
    "race": ("3.5", frozenset({"data-race"})),
    "fails": (
        "3.6",
        frozenset({"input-missing", "input-unfit", "input-untyped", "expression-fails", "branch-fails", "branch-untyped", "data-race"}),
    ),
    "left-behind": ("3.7", frozenset({"undo-missing"})),
}  # fmt: skip
"""What runs can show: the rule it breaks, and the codes that say so."""
FOLLOWS = frozenset({"never-runs", "never-completes"})
"""Says nothing new where something else was seen, which keeps runs from going on."""
LOOSE = frozenset({"overlap", "never-runs", "never-completes", "race", "no-end", "stuck", "endless", "advance-limit"})  # fmt: skip
"""May be reported at another task: the first of a row, the other of a pair, the loop around."""


@dataclass
class Judged:
    """One mutant, what was seen of it and what was said."""

    definition: str
    number: int
    operator: str
    words: str
    verdict: str = ""
    """found, unknown, missed, harmless, doubted, false."""
    rules: list[str] = field(default_factory=list)
    seen: dict[str, str] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    false: list[str] = field(default_factory=list)


def base(path: pathlib.Path) -> Document:
    """What is changed: the expanded document, or what was written if its links are derived."""
    written = read_yaml(path.read_text()).root
    assert written is not None
    plain: Any = written.plain()
    return plain if plain.get("orchestration") in ("data", "rule") else load_file(path).document


def readable(document: Document) -> bool:
    loaded, findings = attempt_document(document)
    return loaded is not None and not any(f.level == "error" for f in findings)


def broken(path: pathlib.Path, count: int = EACH, seed: object = SEED) -> list[Mutant]:
    return mutants(base(path), count, f"{seed}/{path.stem}", readable)


def watched(loaded: Loaded, runs: int, *, refused: bool = False) -> dict[Seen, str]:
    """What runs show of it; `refused`: its structure is wrong, so that the core need not be able to run it."""
    try:
        return tried(loaded.document, Plan(loaded.definition), runs=runs)
    except (PenstockError, KeyError, ValueError) as error:
        if not refused:
            raise
        return {("no-plan", ""): f"it can't be run: {error!r}"}


def judge(path: pathlib.Path, number: int, mutant: Mutant, before: dict[Seen, str], said_before: set[str], runs: int = RUNS) -> Judged:  # fmt: skip
    loaded, _ = attempt_document(mutant.document)
    assert loaded is not None
    found = verify(loaded)
    every = watched(loaded, runs, refused=found.verdict("3.1") == "refuted")
    seen = {key: words for key, words in every.items() if key not in before}
    if any(kind not in FOLLOWS for kind, _ in seen):
        seen = {key: words for key, words in seen.items() if key[0] not in FOLLOWS}
    judged = Judged(path.stem, number, mutant.operator, mutant.words)
    judged.seen = {f"{kind} {where}".strip(): words for (kind, where), words in seen.items()}
    judged.said = newly_said(found, said_before)
    judged.false = refuse(loaded, found, every)
    structure = found.verdict("3.1") == "refuted"
    levels = [level(found, *key, words) for key, words in seen.items()]
    judged.rules = sorted({"3.1"} if structure else {KINDS[kind][0] for kind, _ in seen})
    if judged.false:
        judged.verdict = "false"
    elif structure:
        judged.verdict = "found"
    elif not seen:
        new = [f for f in found.findings if f.level != "note" and told(f) not in said_before]
        judged.rules = sorted({rule_of(f.code) for f in new})
        errors = [f for f in new if f.level == "error" or f.counterexample is not None]
        judged.verdict = "found" if errors else "doubted" if new else "harmless"
    else:
        judged.missed = [f"{kind} {where}: {words}" for ((kind, where), words), each in zip(seen.items(), levels, strict=True) if each == "missed"]  # fmt: skip
        judged.verdict = next(each for each in ("missed", "unknown", "found") if each in levels)
    return judged


def newly_said(found: Verification, said_before: set[str]) -> list[str]:
    """What is said of it and was not of the good one: errors, warnings, then notes."""
    findings = sorted(found.findings, key=lambda f: ("error", "warning", "note").index(f.level))
    return [told(f) for f in findings if told(f) not in said_before]


def told(finding: Finding) -> str:
    return f"{finding.level} {finding.code}: {finding.message}"


def rule_of(code: str) -> str:
    return next((rule for rule, codes in KINDS.values() if code in codes), "3.3")


def level(found: Verification, kind: str, where: str, words: str) -> str:
    """How what was seen is told."""
    codes = KINDS[kind][1]
    about = [f for f in found.findings if f.code in codes and (kind in LOOSE or names(f, where, words))]  # fmt: skip
    if any(f.level == "error" or f.counterexample is not None for f in about):
        return "found"
    if kind == "left-behind" and about:
        return "found"
    return "unknown" if about else "missed"


def names(finding: Finding, where: str, words: str) -> bool:
    """The finding speaks of that task, or of what is in the words."""
    id = where.rpartition("/")[2]
    if not id or id in finding.place.path:
        return True
    for part in re.findall(r"`([^`]+)`", finding.message):
        if part == id or part.endswith(f"/{id}") or f".{id}." in part or part in words:
            return True
        path = part.split(".")
        if path[0] == "tasks" and all(f"`{p}`" in words or f".{p}" in words for p in (path[1], path[-1])):  # fmt: skip
            return True  # the same is read at several places, and told once
    return False


def refuse(loaded: Loaded, found: Verification, seen: dict[Seen, str]) -> list[str]:
    """Errors that neither the runs nor an engine confirm."""
    wrong: list[str] = []
    for finding in found.errors:
        about = [(key[1], words) for key, words in seen.items() if finding.code in KINDS[key[0]][1]]
        if any(names(finding, *each) for each in about):
            continue
        if found.verdict("3.1") == "refuted":
            continue
        scenario = finding.counterexample
        if not isinstance(scenario, Scenario):
            wrong.append(f"{told(finding)} (without a counterexample)")
            continue
        performance = asyncio.run(act(loaded, scenario))
        if not performance.seen.shown:
            wrong.append(f"{told(finding)} (on the engine: {performance.seen.why})")
        elif finding.code in ("never-runs", "loop-endless", "no-path"):
            wrong.append(f"{told(finding)} (runs say otherwise)")
    return wrong


def judged_of(
    path: pathlib.Path, count: int = EACH, runs: int = RUNS, seed: object = SEED
) -> list[Judged]:
    """All mutants of one definition."""
    loaded = load_file(path)
    before = watched(loaded, runs)
    said = {told(f) for f in verify(loaded).findings}
    return [
        judge(path, number, mutant, before, said, runs)
        for number, mutant in enumerate(broken(path, count, seed), 1)
    ]


def all_judged(seed: object = SEED) -> list[Judged]:
    done: list[Judged] = []
    with ProcessPoolExecutor(2) as pool:
        for path, each in zip(GOOD, pool.map(partial(judged_of, seed=seed), GOOD), strict=True):
            done += each
            print(f"{path.stem:14} {dict(Counter(one.verdict for one in each))}", flush=True)
    return done


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Without arguments: all of it, and the page is written."
    )
    parser.add_argument("definition", nargs="?", help="show one mutant of this one")
    parser.add_argument("number", nargs="?", type=int, default=1)
    parser.add_argument("--seed", default=SEED, help="break them in other ways; only counted")
    given = parser.parse_args()
    if given.definition is not None:
        show(given.definition, given.number, given.seed)
        return
    done = all_judged(given.seed)
    print(dict(Counter(each.verdict for each in done)))
    others: dict[str, dict[str, int]] = json.loads(OTHERS.read_text())
    if given.seed != SEED:
        for each in done:
            for words in (*each.missed, *each.false):
                print(f"{each.verdict} {each.definition} {each.number} ({each.words}): {words}")
        others[given.seed] = dict(Counter(each.verdict for each in done))
        OTHERS.write_text(json.dumps(others, indent=1, sort_keys=True) + "\n")
        PAGE.write_text(page(json.loads(RECORD.read_text()), others))
        return
    records = [recorded(each) for each in done]
    RECORD.write_text(json.dumps(records, indent=1) + "\n")
    PAGE.write_text(page(records, others))


def recorded(judged: Judged) -> dict[str, Any]:
    """What was said is kept only where it is told."""
    record = asdict(judged)
    if judged.verdict in ("found", "harmless"):
        record["seen"], record["said"] = {}, []
    return record


def show(name: str, number: int, seed: object) -> None:
    path = HERE / "good" / f"{name}.yaml"
    loaded = load_file(path)
    said = {told(f) for f in verify(loaded).findings}
    mutant = broken(path, seed=seed)[number - 1]
    judged = judge(path, number, mutant, watched(loaded, RUNS), said)
    print(json.dumps(asdict(judged), indent=1))
    made, _ = attempt_document(mutant.document)
    assert made is not None
    for proof in verify(made).proofs:
        print(proof.rule, proof.verdict, proof.message)


if __name__ == "__main__":
    main()
