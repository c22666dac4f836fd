"""A definition as SVG, with what was found marked where it is and told below."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from penstock.cli.follow import links_of, tasks_of
from penstock.cli.svg import Badge, Entry, Look, page
from penstock.verify.report import path_text, summary
from penstock.verify.scenario import Scenario
from penstock.verify.telling import history

if TYPE_CHECKING:
    from penstock.dsl.finding import Finding
    from penstock.model.definition import Definition

STYLE = """\
.error { stroke: #cf222e; stroke-width: 2.6 }
.warning { stroke: #bf8700; stroke-width: 2.4; stroke-dasharray: 6 3 }
.note { stroke: #1a7f37; stroke-width: 2; stroke-dasharray: 2 3 }
.badge.error { fill: #cf222e } .badge.warning { fill: #9a6700 } .badge.note { fill: #1a7f37 }
"""
DARK = "  .box.error, .line.error { stroke: #ff7b72 } .box.warning, .line.warning { stroke: #d29922 }\n"
RANK = {"error": 0, "warning": 1, "note": 2}


def svg(definition: Definition, findings: Sequence[Finding]) -> str:
    """The graph with each finding marked by its number, and under it what was found."""
    entries = [_entry(number, finding) for number, finding in enumerate(findings, 1)]
    return page(
        f"{definition.id}: {summary(findings)}",
        tasks_of(definition),
        links_of(definition),
        _looks(definition, findings),
        entries or [Entry(None, (("head", "no findings"),))],
        style=STYLE,
        dark=DARK,
    )


def _looks(
    definition: Definition, findings: Iterable[Finding]
) -> tuple[dict[str, Look], dict[int, Look]]:
    """Which tasks and links of the definition each finding is about; what is in a body marks its task."""
    tasks: dict[str, list[Badge]] = {}
    links: dict[int, list[Badge]] = {}
    for number, finding in enumerate(findings, 1):
        badge = Badge(str(number), finding.level)
        for path in (finding.place.path, *(other.place.path for other in finding.related)):
            match path:
                case ("tasks", str(id), *_) if id in definition.tasks:
                    held = tasks.setdefault(id, [])
                case ("links", int(index), *_) if index < len(definition.links):
                    held = links.setdefault(index, [])
                case _:
                    continue
            if badge not in held:
                held.append(badge)
    return (
        {id: _look(badges) for id, badges in tasks.items()},
        {index: _look(badges) for index, badges in links.items()},
    )


def _look(badges: list[Badge]) -> Look:
    worst = min((badge.style for badge in badges), key=RANK.__getitem__)
    return Look(worst, tuple(badges))


def _entry(number: int, finding: Finding) -> Entry:
    place = finding.place
    where = f":{place.line}:{place.column}" if place.line else f": {path_text(place.path)}"
    lines = [
        ("head", f"{finding.level}[{finding.code}]: {finding.message}"),
        ("story", f"{place.source}{where}"),
    ]
    if isinstance(finding.counterexample, Scenario) and finding.level != "note":
        lines += [("story", f"  {line}") for line in history(finding.counterexample)]
    if finding.hint:
        lines.append(("story", f"hint: {finding.hint}"))
    return Entry(Badge(str(number), finding.level), tuple(lines))
