"""The mutants of core/: a copy of the package whose core is as mutmut writes it, and a seeded draw of them over all files."""

from __future__ import annotations

import difflib
import hashlib
import inspect
import json
import random
import shutil
from pathlib import Path

from survival import switch

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "penstock"
PLACE = ROOT / "build" / "mutmut"
TRAMPOLINE = "from mutmut.mutation.trampoline import wrap_in_trampoline as"
AT_LEAST = 10
"""Of a file, however small its share is."""


def grow() -> dict[str, list[str]]:
    """Write the copy, as far as it is not there; the names of the mutants by file."""
    package = PLACE / "src" / "penstock"
    shutil.rmtree(package, ignore_errors=True)
    shutil.copytree(SOURCE, package, ignore=shutil.ignore_patterns("__pycache__"))
    return {
        str(path.relative_to(SOURCE / "core")): names
        for path in sorted((SOURCE / "core").rglob("*.py"))
        if (names := _grown(path, package / path.relative_to(SOURCE)))
    }


def _grown(path: Path, into: Path) -> list[str]:
    text = path.read_text()
    module = ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(
        ".__init__"
    )
    kept = PLACE / "kept" / f"{module}-{hashlib.sha256(text.encode()).hexdigest()[:12]}.json"
    if not kept.exists():
        from mutmut.mutation.file_mutation import mutate_file_contents

        made = mutate_file_contents(str(path.relative_to(ROOT)), text)
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps([made.code, list(made.mutant_names)]))
    code, names = json.loads(kept.read_text())
    into.write_text(code.replace(TRAMPOLINE, "from survival.switch import mutated as"))
    return [f"{module}.{name}" for name in names]


def drawn(forest: dict[str, list[str]], number: int, seed: str) -> list[str]:
    """About so many, of each file by its share: the same ones for the same seed, and more for a greater number."""
    total = sum(map(len, forest.values()))
    chosen: list[str] = []
    for file, names in forest.items():
        share = min(len(names), max(AT_LEAST, round(number * len(names) / total)))
        chosen += random.Random(f"{seed} {file}").sample(names, len(names))[:share]
    random.Random(seed).shuffle(chosen)
    return chosen


def change(mutant: str) -> list[str]:
    """The lines that differ, as `- was` and `+ is`; once the copy has been imported."""
    function, mutants = switch.KNOWN[switch.function_of(mutant)]
    was, now = (
        inspect.getsource(each).replace(each.__name__, function.__name__).splitlines()
        for each in (mutants["_mutmut_orig"], mutants[mutant.rpartition(".")[2]])
    )
    lines = difflib.unified_diff(was, now, lineterm="", n=0)
    return [
        f"{line[0]} {line[1:].strip()}"
        for line in lines
        if line[0] in "+-" and not line.startswith(("--- ", "+++ "))
    ]
