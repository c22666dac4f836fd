"""docs/concepts/survival.md, from the verdicts and from what was said of each survivor (`judged.json`)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from survival.trial import Verdict

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "concepts" / "survival.md"
VERDICTS = ("killed", "survived", "timeout", "suspicious", "no tests")
BEGIN, END = "<!-- written by `make mutmut` -->", "<!-- end -->"
UNSEEN = "not looked at"


def table(verdicts: Sequence[Verdict], files: Mapping[str, str], total: Mapping[str, int]) -> str:
    lines = [
        "| file | mutants | tried | " + " | ".join(VERDICTS) + " |",
        "|---|---|---|" + "---|" * len(VERDICTS),
    ]
    counts: dict[str, Counter[str]] = {}
    for verdict in verdicts:
        counts.setdefault(files[verdict.mutant], Counter())[verdict.verdict] += 1
    counts = dict(sorted(counts.items()))
    for file, count in [*counts.items(), ("**all**", sum(counts.values(), Counter[str]()))]:
        cells = " | ".join(str(count[verdict] or "") for verdict in VERDICTS)
        mutants = total.get(file) or sum(total.values())
        lines.append(f"| {file} | {mutants:,} | {count.total():,} | {cells} |")
    return "\n".join(lines)


def where(mutant: str) -> str:
    """`module.Class.function`, without what mutmut puts around it."""
    module, _, name = mutant.removeprefix("penstock.core.").rpartition(".")
    name = name.rpartition("__mutmut_")[0].removeprefix("x_").removeprefix("xǁ").replace("ǁ", ".")
    return f"{module}.{name}"


def only(mutants: Sequence[str], places: Sequence[str]) -> list[str]:
    """Those of these files, classes and functions."""
    starts = tuple(f"{place}." for place in places)
    return [each for each in mutants if f"{where(each)}.".startswith(starts)]


def told(mutant: str, changed: Sequence[str]) -> str:
    """By what a survivor is known as long as its lines are the same, whatever its number is."""
    return f"{where(mutant)}: {' '.join(changed)}"


def written(verdicts: Sequence[Verdict], changes: Mapping[str, list[str]], head: str) -> str:
    """The part of the page between its marks."""
    judged: dict[str, str] = json.loads((HERE / "judged.json").read_text())
    groups: dict[str, list[str]] = {}
    for verdict in sorted(verdicts):
        if verdict.verdict in ("killed", "timeout"):
            continue
        lines = changes[verdict.mutant]
        group, _, why = judged.get(told(verdict.mutant, lines), UNSEEN).partition(": ")
        said = f": {why}" if why else ""
        code = " → ".join(
            f"`{' '.join(line[2:] for line in lines if line[0] == sign) or '(nothing)'}`".replace("|", "\\|")
            for sign in "-+"
        )  # fmt: skip
        groups.setdefault(group, []).append(f"- `{where(verdict.mutant)}` {code}{said}")
    parts = [BEGIN, "", head, ""]
    for group, lines in sorted(groups.items(), key=lambda each: -len(each[1])):
        parts += [f"### {group.capitalize()} ({len(lines)})", "", *lines, ""]
    return "\n".join([*parts, END])


def write(text: str) -> None:
    page = PAGE.read_text()
    before, after = page.partition(BEGIN)[0], page.partition(END)[2]
    PAGE.write_text(before + text + after)
