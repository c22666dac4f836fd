"""Wording: what is said of a definition that goes by rules, in the words of its table (SPEC 2.5).

The table becomes a loop with tasks of its own (`dsl/derive.py`), which nobody has written: findings name the rule instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

from penstock.dsl.derive import RULES
from penstock.dsl.finding import Finding
from penstock.model.definition import Definition

_HINTS = {
    "no-branch": "let `until` hold then, or add a rule for this case",
    "never-runs": "change its `when`, or leave the rule out",
}


def worded(definition: Definition) -> Callable[[str], str]:
    """Says the same of what was written."""
    if definition.orchestration != "rule" or RULES not in definition.tasks:
        return lambda text: text
    numbers = order(definition.rules)

    def number(found: re.Match[str]) -> str:
        place = int(found.group(1))
        return f"rule {numbers[place - 1] + 1}" if 0 < place <= len(numbers) else found.group(0)

    def index(found: re.Match[str]) -> str:
        return number(cast("re.Match[str]", re.match(r"(\d+)", str(int(found.group(1)) + 1))))

    def said(text: str) -> str:
        text = re.sub(rf"`data\.{RULES}_armed\[(\d+)\] && data\.{RULES}_hold\[\1\]`", index, text)
        text = re.sub(rf"`(?:{RULES}/)?{RULES}_(\d+)`", number, text)
        text = text.replace(
            f"perhaps no branch of `{RULES}_next` holds in some case, and it has no default",
            "perhaps no rule fires in some case, and `until` does not hold",
        )
        text = text.replace(
            f"no branch of `{RULES}_next` holds in some case, and it has no default",
            "no rule fires in some case, and `until` does not hold",
        )
        text = text.replace(f"it may be that no branch of `{RULES}_next` holds", "it may be that no rule fires")  # fmt: skip
        for name in ("next", "agenda", "look", "over"):
            text = re.sub(rf"`(?:{RULES}/)?{RULES}_{name}`", "the table of rules", text)
        return text.replace(f"`{RULES}/", "`").replace(f"`{RULES}`", "the table of rules")

    return said


def reworded(finding: Finding, said: Callable[[str], str]) -> Finding:
    message = said(finding.message)
    hint = finding.hint if finding.hint is None else said(finding.hint)
    if message != finding.message and ("rule" in message) and finding.code in _HINTS:
        hint = _HINTS[finding.code]
    return replace(finding, message=message, hint=hint)


def order(rules: Sequence[Any]) -> list[int]:
    """Places in the table of what fires, in the order in which it is looked at."""
    table = [cast("dict[str, Any]", rule) if isinstance(rule, dict) else {} for rule in rules]
    places = [place for place, rule in enumerate(table) if "task" in rule and "when" in rule]
    return sorted(places, key=lambda place: (table[place].get("priority", 0), place))
