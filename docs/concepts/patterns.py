"""Writes `patterns.md`, the page of the 43 control-flow patterns, from `examples/patterns` (SPEC 14).

Each file there is a definition, and its `metadata` says what the pattern is, how well it is served and what runs of it do.
`make docs` runs this; `tests/docs/test_patterns.py` runs the definitions, and fails while the page is not what this would write.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.dsl.load import load

HERE = Path(__file__).parent
FOLDER = HERE.parents[1] / "examples" / "patterns"
FILES = sorted(FOLDER.glob("*.yaml"))
SCORES = ("+", "+/-", "-")
HEAD = """# The 43 control-flow patterns

What a workflow language can be asked for, as collected by van der Aalst, ter Hofstede, Kiepuszewski and Barros (2003) and revised by
Russell, ter Hofstede, van der Aalst and Mulyar (2006). Each is a definition in `examples/patterns`, which the tests run and hold to the
traces below. The scores are our own: **+** there is a construct for it, **+/-** it can be written, with the restriction named,
**-** it cannot.

{counts}

*Verified* tells what `penstock verify` says of the definition by rules 3.1 to 3.6 ([what is proved](verification.md)); ways back (3.7) are
left out, as no task here has one. In a trace each line is what happens, and after `=>` the tasks that are then open; the last
is how the run ended, and each task that neither completed nor was skipped.

Generated from `examples/patterns` by `make docs`; do not edit."""


def patterns() -> list[tuple[Path, str, dict[str, Any]]]:
    """File, name and metadata of each, by number."""
    found: list[tuple[Path, str, dict[str, Any]]] = []
    for file in FILES:
        definition = load(file.read_text(encoding="utf-8")).definition
        found.append((file, definition.name, definition.metadata))
    return found


def verified(about: dict[str, Any]) -> str:
    unproved: dict[str, str] = about.get("unproved", {})
    return ", ".join(f"{rule} {verdict}" for rule, verdict in unproved.items()) or "proved"


def page() -> str:
    every = patterns()
    counts = ", ".join(
        f"{sum(about['score'] == score for _, _, about in every)} are {score}" for score in SCORES
    )
    rows = ["| | pattern | score | verified | why |", "|---|---|---|---|---|"]
    parts: list[str] = []
    for file, name, about in every:
        number, score, why = about["pattern"], about["score"], about.get("why", "")
        rows.append(f"| {number} | {name} | {score} | {verified(about)} | {why} |")
        text = file.read_text(encoding="utf-8")
        definition = text[text.index("\nid: ") + 1 : text.index("\nmetadata:") + 1]
        parts += [f"## {number}. {name} ({score})", about["says"], f"```yaml\n{definition}```"]
        parts += [f"```\n{trace}```" for trace in about["runs"]]
    return "\n\n".join([HEAD.format(counts=f"Of 43, {counts}."), "\n".join(rows), *parts]) + "\n"


if __name__ == "__main__":
    (HERE / "patterns.md").write_text(page(), encoding="utf-8")
