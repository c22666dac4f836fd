"""Findings and proofs for people, as a good compiler shows them, and for machines as JSON.

What a document holds is shown with its control characters made visible: a definition must not be able to
write to the reader's terminal. SARIF is in `verify/sarif.py`, counterexamples in words in `verify/telling.py`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from penstock.dsl.finding import FINDINGS_MAX, Finding, Path, Place, Related
from penstock.verify.scenario import Scenario
from penstock.verify.telling import history
from penstock.verify.verification import Proof, Verdict

WIDTH_MAX = 120
MESSAGE_MAX = 300
"""Characters of a message in a report for people; JSON and SARIF have it whole."""
FAR = 3
"""Lines between two places of a finding, from which on a gap is drawn between them."""
RULES = {
    "3.1": "structure",
    "3.2": "behaviour",
    "3.3": "branches",
    "3.4": "termination",
    "3.5": "races",
    "3.6": "data flow",
    "3.7": "compensation",
    "3.8": "change",
}
"""Names of the rules, by their section of the spec."""
WORST: tuple[Verdict, ...] = ("refuted", "unknown", "proved")
_BREAK = re.compile(r"\r\n|\r|\n")
_WORD = re.compile(r"[\w$-]+")
_COLOURS = {
    "error": "1;31", "warning": "1;33", "note": "1;32", "hint": "36", "arrow": "34", "bold": "1", "also": "34",
    "proved": "32", "refuted": "1;31", "unknown": "33", "story": "35",
}  # fmt: skip


def render(
    findings: Iterable[Finding],
    text: str = "",
    *,
    colour: bool = False,
    replay: str = "",
    first: int = 1,
) -> str:
    """All findings with the lines they are about; `text` is the source that they were found in.

    With `replay`, a command that takes a number, each counterexample says how it is run; they count from `first`.
    """
    pen = _Pen(colour=colour)
    lines = _BREAK.split(text) if text else []
    blocks: list[str] = []
    number = first
    for finding in findings:
        blocks.append(_block(finding, lines, pen, number, replay))
        number += isinstance(finding.counterexample, Scenario)
    return "\n".join(blocks)


def shown(findings: Iterable[Finding]) -> list[Finding]:
    """Those that have a counterexample, in the order in which they are numbered."""
    return [finding for finding in findings if isinstance(finding.counterexample, Scenario)]


def render_proofs(proofs: Sequence[Proof], *, colour: bool = False) -> str:
    """A line a rule: what is proved, refuted, or unknown and why."""
    pen = _Pen(colour=colour)
    lines: list[str] = []
    for rule, verdict, messages in _by_rule(proofs):
        more = f" (and {len(messages) - 1} more)" if len(messages) > 1 else ""
        name = f"{RULES.get(rule, rule)}:"
        first = _visible(shortened(messages[0]))
        lines.append(f"{pen(verdict, f'{verdict:<7}')}  {name:<13} {first}{more}")
    return "\n".join(lines)


def shortened(message: str) -> str:
    """The beginning and the end of what is too long for a line: it begins with what is meant, and ends with why."""
    if len(message) <= MESSAGE_MAX:
        return message
    half = (MESSAGE_MAX - 3) // 2
    return f"{message[:half].rstrip()} … {message[-half:].lstrip()}"


def _by_rule(proofs: Sequence[Proof]) -> Iterator[tuple[str, Verdict, list[str]]]:
    """The worst that was said of each rule, with what was said."""
    for rule in sorted({proof.rule for proof in proofs}):
        said = [proof for proof in proofs if proof.rule == rule]
        worst: Verdict = next(v for v in WORST if any(proof.verdict == v for proof in said))
        messages = dict.fromkeys(proof.message for proof in said if proof.verdict == worst)
        yield rule, worst, list(messages)


def render_json(findings: Iterable[Finding], proofs: Sequence[Proof] = ()) -> str:
    """One object with `findings`, each flat, and `proofs`."""
    data = {
        "findings": [as_data(finding) for finding in findings],
        "proofs": [proof_data(proof) for proof in proofs],
    }
    return msgspec.json.encode(data).decode()


def as_data(finding: Finding) -> dict[str, Any]:
    """A finding as JSON has it: the fields of its place beside its own."""
    return {
        "code": finding.code,
        "level": finding.level,
        "message": finding.message,
        "hint": finding.hint,
        "counterexample": msgspec.to_builtins(finding.counterexample),
        **_place_data(finding.place),
        "related": [
            {"message": other.message, **_place_data(other.place)} for other in finding.related
        ],
    }


def _place_data(place: Place) -> dict[str, Any]:
    return {
        "source": place.source,
        "line": place.line,
        "column": place.column,
        "path": list(place.path),
    }


def proof_data(proof: Proof) -> dict[str, Any]:
    """A proof as JSON has it."""
    return {
        "rule": proof.rule,
        "name": RULES.get(proof.rule, proof.rule),
        "verdict": proof.verdict,
        "message": proof.message,
    }


def summary(findings: Iterable[Finding]) -> str:
    """`2 errors, 1 warning`, or `no findings`."""
    counts = {"error": 0, "warning": 0, "note": 0}
    for finding in findings:
        counts[finding.level] += 1
    parts = [f"{n} {level}{'s' if n != 1 else ''}" for level, n in counts.items() if n]
    if sum(counts.values()) >= FINDINGS_MAX:
        parts.append("and perhaps more")
    return ", ".join(parts) or "no findings"


def path_text(path: Path) -> str:
    """`tasks.charge.inputs.card`, `links[2].to`."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


class _Pen:
    def __init__(self, *, colour: bool) -> None:
        self._colour = colour

    def __call__(self, style: str, text: str) -> str:
        return f"\x1b[{_COLOURS[style]}m{text}\x1b[0m" if self._colour else text


def _block(finding: Finding, lines: list[str], pen: _Pen, number: int, replay: str) -> str:
    place = finding.place
    head = pen(finding.level, f"{finding.level}[{finding.code}]")
    out = [f"{head}: {pen('bold', _visible(shortened(finding.message)))}"]
    if not place.line:
        where = path_text(place.path)
        out.append(
            f"  {pen('arrow', '-->')} {_visible(place.source)}{': ' if where else ''}{_visible(where)}"
        )
        out += [f"  {pen('arrow', '---')} {_also(other)}" for other in finding.related]
    else:
        out.append(f"  {pen('arrow', '-->')} {_visible(place.source)}:{place.line}:{place.column}")
        out += _excerpts(finding, lines, pen)
    if isinstance(finding.counterexample, Scenario) and finding.level == "note":
        if replay:  # worth a line, not a story
            out.append(f"see it happen: {_visible(replay)} {number}")
    elif isinstance(finding.counterexample, Scenario):
        out.append(f"{pen('story', f'counterexample {number}')}:")
        out += [f"  {_visible(line)}" for line in history(finding.counterexample)]
        if replay:
            out.append(f"  see it happen: {_visible(replay)} {number}")
    elif finding.counterexample is not None:
        out.append(
            f"counterexample: {_visible(msgspec.json.encode(finding.counterexample).decode())}"
        )
    if finding.hint is not None:
        out.append(f"{pen('hint', 'hint')}: {_visible(finding.hint)}")
    return "\n".join(out) + "\n"


def _also(other: Related) -> str:
    place = other.place
    where = f":{place.line}:{place.column}" if place.line else f": {path_text(place.path)}"
    return f"{_visible(place.source + where)}: {_visible(other.message)}"


def _excerpts(finding: Finding, lines: list[str], pen: _Pen) -> list[str]:
    """The lines of all places of a finding, in the order of the text, each with a mark and what is said there."""
    marks = [(finding.place, str(finding.level), "^", "")]
    marks += [(other.place, "also", "-", other.message) for other in finding.related]
    there = [
        m for m in marks if m[0].source == finding.place.source and 0 < m[0].line <= len(lines)
    ]
    there.sort(key=lambda mark: (mark[0].line, mark[0].column))
    if not there:
        return []
    gutter = len(str(there[-1][0].line))
    bar = pen("arrow", "|")
    out = [f"{' ' * gutter} {bar}"]
    before = 0
    for place, style, mark, said in there:
        if before and place.line - before >= FAR:
            out.append(f"{' ' * gutter} {pen('arrow', ':')}")
        shown_line, under = _excerpt(lines[place.line - 1], place, mark)
        if place.line != before:
            number = pen("arrow", f"{place.line:>{gutter}}")
            out.append(f"{number} {bar} {shown_line}".rstrip())
        space = under[: len(under) - len(under.lstrip())]
        label = f" {_visible(said)}" if said else ""
        out.append(f"{' ' * gutter} {bar} {space}{pen(style, under.lstrip() + label)}")
        before = place.line
    return out


def _excerpt(line: str, place: Place, mark: str) -> tuple[str, str]:
    """The line, cut to a window if it is long, and a mark under the word that is meant."""
    column = place.column - 1
    first = max(0, column - WIDTH_MAX // 2) if len(line) > WIDTH_MAX else 0
    before = _visible(line[first:column])
    after = line[column : first + WIDTH_MAX]
    word = _WORD.match(after)
    marked = word.group() if word else after[:1]
    lead = "..." if first else ""
    space = " " * (_width(before) + len(lead))
    return f"{lead}{before}{_visible(after)}", space + mark * max(1, _width(marked))


def _visible(text: str) -> str:
    """Control and formatting characters as escapes; a tab as a space."""
    if text.isprintable():
        return text
    return "".join(
        " " if c == "\t" else c if c.isprintable() else c.encode("unicode_escape").decode()
        for c in text
    )


def _width(text: str) -> int:
    """Columns of a terminal."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )
