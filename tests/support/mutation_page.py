"""The page of mutation, from what `tests/verify/mutation.py` has judged."""

from __future__ import annotations

from collections import Counter
from typing import Any

Record = dict[str, Any]
VERDICTS = ("found", "unknown", "missed", "harmless", "doubted", "false")
RULES = {
    "3.1": "structure", "3.2": "behaviour", "3.3": "branches", "3.4": "termination", "3.5": "races", "3.6": "data flow",
    "3.7": "compensation",
}  # fmt: skip
HEAD = """\
# Mutation: good definitions, broken

<!-- written by `make mutation`, from tests/verify/mutation.json -->

How much does [verification](verification.md) find, and does it ever cry wolf? 30 good definitions (`tests/verify/good`: orders, approvals,
maps, loops, locks, sagas, event gateways, rules, data flow and others, with schemas) are each broken in 10 random ways, drawn from a
seed: a link is dropped or leads elsewhere, a default is gone, a condition is flipped or another, a task writes what another one
writes, there is a link back, an output has another name, a join or a gateway is of another kind.

What is so is decided without the verifier: each mutant is run 300 to 450 times on the core, with inputs, outputs and payloads drawn
from its schemas, with failures, in any order, and watched: joins that starve, gateways without a branch, expressions that
fail, inputs that are not there, runs of which two orders differ, loops of more than 40 passes, tasks that never began, effects that stay
behind when the run fails.

| verdict | means |
|---|---|
| found | it breaks a rule, and an error with the right code says so, with a run that shows it (an overlap of branches and what has no way back are told with a run too, as warning and note); its structure is refused; or no run came there by chance, and the error's own counterexample shows it on an engine |
| unknown | it breaks a rule, and a warning or a note of the right code names it, without a run |
| missed | it breaks a rule, and nothing says so |
| harmless | no run shows anything, and nothing is said: it is another definition, and as good as the first; a flipped condition that still has a branch for every case, a join of two links that always come together |
| doubted | no run shows anything, and a warning says that something is not known |
| false | an error that neither the runs nor an engine confirm |

"""


WHY = """\
What stands in the way, by kind: a schema that names nothing any more says nothing of what is read (a note, `input-untyped`); an exit
condition alone is unknown by the rule (SPEC 3.4), though a stubborn activity makes the loop go on; what a task declares to write
outside the engine can't be shown by a run; what a rule table, the items of a map in a map, or items that are added by signals come
to, is told by name, but no run was driven there.

"""


OTHERS = """
What that seed showed was mended until nothing was missed, so that it flatters. Other seeds break the same definitions in other
ways, and were not mended by (`python tests/verify/mutation.py --seed NAME`):

"""


def page(records: list[Record], others: dict[str, dict[str, int]]) -> str:
    """As Markdown; `others`: counts of other seeds."""
    counts = Counter(record["verdict"] for record in records)
    broken = counts["found"] + counts["unknown"] + counts["missed"]
    parts = [HEAD, f"Of {len(records)} mutants {broken} break a rule: ", f"{counts['found']} are found, {counts['unknown']} unknown, {counts['missed']} missed. "]  # fmt: skip
    parts.append(f"{counts['false']} are falsely reported.\n")
    if others:
        parts.append(OTHERS)
        parts.append(f"| seed | {' | '.join(VERDICTS)} |\n|---|{'---|' * len(VERDICTS)}\n")
        for seed, found in sorted(others.items()):
            shown = " | ".join(str(found.get(verdict, 0)) for verdict in VERDICTS)
            parts.append(f"| `{seed}` | {shown} |\n")
    parts.append("\n## By what was done to them\n\n")
    parts.append(_table("mutation", records, "operator"))
    parts.append("\n## By the rule that they break\n\nOne that breaks several counts for each.\n\n")
    spread = [{**record, "rule": f"{rule} {RULES[rule]}"} for record in records for rule in record["rules"] if record["verdict"] in VERDICTS[:3]]  # fmt: skip
    parts.append(_table("rule", spread, "rule", VERDICTS[:3], total=False))
    parts.append("\n## By definition\n\n")
    parts.append(_table("definition", records, "definition"))
    parts.append("\n## Each that was not found\n\n")
    parts.append("`python tests/verify/mutation.py NAME NUMBER` shows one.\n")
    for verdict in ("missed", "false", "unknown", "doubted"):
        parts.append(f"\n### {verdict.capitalize()}\n\n")
        parts.append(WHY if verdict == "unknown" else "")
        chosen = [record for record in records if record["verdict"] == verdict]
        parts.append("".join(map(_line, chosen)) or "None.\n")
    return "".join(parts)


def _table(
    head: str,
    records: list[Record],
    key: str,
    verdicts: tuple[str, ...] = VERDICTS,
    *,
    total: bool = True,
) -> str:
    lines = [f"| {head} | mutants | {' | '.join(verdicts)} |", "|---" * (len(verdicts) + 2) + "|"]
    for name in sorted({record[key] for record in records}):
        lines.append(_row(name, [r for r in records if r[key] == name], verdicts))
    if total:
        lines.append(_row("**all**", records, verdicts))
    return "\n".join(lines) + "\n"


def _row(name: str, records: list[Record], verdicts: tuple[str, ...]) -> str:
    counts = Counter(record["verdict"] for record in records)
    cells = [str(counts[verdict] or "") for verdict in verdicts]
    return f"| {name} | {len(records)} | {' | '.join(cells)} |"


def _line(record: Record) -> str:
    words = _quiet(record["words"])
    line = f"- `{record['definition']} {record['number']}`: {words}."
    seen = [f"{kind} ({_quiet(words)})" for kind, words in record["seen"].items()]
    if seen:
        line += " Seen: " + "; ".join(seen[:3]) + "."
    told = [_quiet(said) for said in record["missed"] or record["false"] or record["said"]]
    if told and record["verdict"] != "missed":
        line += " Said: " + "; ".join(told[:3]) + "."
    return line + "\n"


def _quiet(text: str) -> str:
    """In a line of Markdown."""
    text = " ".join(text.split()).replace("`", "").replace("|", "\\|").replace("*", "\\*")
    return text if len(text) < 200 else text[:197] + "…"
