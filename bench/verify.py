"""How long does it take to verify a definition, and how much memory?

`python bench/verify.py` makes definitions of 50 and of 1,000 tasks (acyclic, with 30 gateways of all kinds), and harder ones,
and verifies each in a process of its own. The limits are those that were set: 50 tasks in 1 s, 1,000 in 10 s, 1 GiB.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from typing import Any

from penstock.dsl.load import load_document
from penstock.verify.verification import verify

SCHEMA = {
    "type": "object",
    "required": ["n", "kind", "ok"],
    "properties": {
        "n": {"type": "integer"},
        "kind": {"enum": ["a", "b", "c"]},
        "ok": {"type": "boolean"},
    },
}
KINDS = ("exclusive", "inclusive", "parallel", "event")


def graph(tasks: int, gateways: int) -> dict[str, Any]:
    """A sequence of splits that meet again, each with branches of several tasks; every fourth nested in another."""
    made: dict[str, Any] = {"first": {"do": "x"}}
    links: list[dict[str, Any]] = []
    last, count = "first", 0
    each = max(1, (tasks - gateways * 2 - 1) // max(1, gateways))
    for number in range(gateways):
        kind = KINDS[number % 4]
        split, join = f"g{number}", f"j{number}"
        made[split], made[join] = {"type": "gateway", "kind": kind}, {"do": "x"}
        if kind == "parallel":
            made[join]["join"] = "all"
        links.append({"from": last, "to": split})
        for branch, length in enumerate((each // 3, each // 3, each - 2 * (each // 3))):
            before = split
            for step in range(max(1, length)):
                count += 1
                id = f"t{count}"
                made[id] = {"do": "x"}
                link: dict[str, Any] = {"from": before, "to": id}
                if before == split:
                    if kind == "event":
                        made[id] = {"type": "signal", "name": id}
                    elif kind == "exclusive" and branch < 2:
                        link["when"] = f"input.kind == '{'ab'[branch]}'"
                    elif kind == "inclusive" and branch:
                        link["when"] = f"input.n > {branch * 10}"
                elif step == 2 and branch == 0:
                    handler = f"h{count}"
                    made[handler] = {"do": "x"}
                    links.append({"from": before, "to": handler, "on": "error"})
                    links.append({"from": handler, "to": id})
                links.append(link)
                before = id
            links.append({"from": before, "to": join})
            if kind == "exclusive" and branch == 2:
                made[split]["default"] = f"t{count - max(1, length) + 1}"
        last = join
    return {"id": "bench", "inputSchema": SCHEMA, "tasks": made, "links": links}


def ladder(width: int, length: int) -> dict[str, Any]:
    """Parallel chains with rungs between them: one fragment that can't be taken apart."""
    made: dict[str, Any] = {"first": {"do": "x"}, "last": {"do": "x"}}
    links: list[dict[str, Any]] = []
    for row in range(width):
        for column in range(length):
            made[f"t{row}_{column}"] = {"do": "x"}
            links.append(
                {"from": f"t{row}_{column - 1}" if column else "first", "to": f"t{row}_{column}"}
            )
            if row and column % 2:
                links.append({"from": f"t{row - 1}_{column - 1}", "to": f"t{row}_{column}"})
        links.append({"from": f"t{row}_{length - 1}", "to": "last"})
    return {"id": "bench", "tasks": made, "links": links}


CASES = {
    "50 tasks, 3 gateways": (graph(50, 3), 1.0),
    "1,000 tasks, 30 gateways": (graph(1000, 30), 10.0),
    "1,000 tasks in a row": (
        {"id": "row", "tasks": {f"t{n}": {"do": "x", **({"after": f"t{n - 1}"} if n else {})} for n in range(1000)}},
        10.0,
    ),
    "ladder of 4 by 25": (ladder(4, 25), 10.0),
}  # fmt: skip


def measure(name: str) -> None:
    document, limit = CASES[name]
    loaded = load_document(document)
    began = time.perf_counter()
    verification = verify(loaded)
    took = time.perf_counter() - began
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    verdicts = ", ".join(f"{p.rule} {p.verdict}" for p in verification.proofs)
    count = len(loaded.definition.tasks)
    print(f"{name:28}{count:7}{took:9.2f} s{limit:8.0f} s{memory:8.0f} MiB  {verdicts}")
    for finding in verification.findings[:3]:
        print(f"    {finding.level} {finding.code}: {finding.message}")
    if took > limit or memory > 1024:
        sys.exit(1)


def main() -> None:
    if len(sys.argv) > 1:
        measure(sys.argv[1])
        return
    print(f"{'':28}{'tasks':>7}{'took':>11}{'limit':>10}{'memory':>12}")
    failed = 0
    for name in CASES:
        failed += subprocess.run([sys.executable, __file__, name], check=False).returncode != 0
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
