"""Finding: what is wrong with a definition, where, why and what to do.

Data only; `verify/report.py` gives it to people and machines.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

Level = Literal["error", "warning", "note"]
"""Refuted or wrong; unknown, with what stands in the way; worth knowing, and never a reason to refuse."""
Path = tuple[str | int, ...]
FINDINGS_MAX = 200
"""About one definition, that are told."""
MESSAGE_CHARACTERS_MAX = 1_000
LISTED_MAX = 24
"""Words that a hint names one by one."""

CODES = frozenset(
    {
        # of the document
        *("syntax", "document-too-large", "duplicate-key", "duplicate-id", "number-out-of-range"),
        *("unknown-field", "field-missing", "wrong-type", "field-invalid", "id-invalid"),
        *("duration-invalid", "unknown-type", "not-yet"),
        *("plugin-invalid", "plugin-check", "plugin-check-failed"),
        # of the graph
        *("start-repeated", "dangling-link", "link-from-end", "link-to-start", "duplicate-link"),
        *("gateway-no-links", "gateway-default", "gateway-event-target", "join-starved"),
        *("no-path", "cycle-irreducible", "cycle-unconditional"),
        # of how it behaves
        *("no-branch", "no-end", "deadlock", "never-runs", "too-many-states"),
        # of its branches
        *("branch-fails", "branch-untyped", "branch-overlap", "branch-dead"),
        # of its data
        *("data-race", "input-missing", "input-unfit", "input-untyped", "expression-fails"),
        # of what is left behind
        *("undo-missing",),
        # of its loops
        *("loop-endless", "loop-unbounded"),
        # of what tasks refer to
        *("unknown-source", "ambiguous-source", "unknown-task", "unknown-name", "unknown-activity"),
        *("unknown-language", "expression-invalid", "path-invalid", "schema-invalid"),
        *("unused-input", "secret-misplaced", "template-literal", "topic-invalid"),
        *("rules-invalid",),
        # of its triggers
        *("cron-invalid", "cron-never", "zone-unknown", "interval-invalid", "calendar-invalid"),
        *("schedule-invalid", "schedule-never", "overlap-unknown", "input-invalid"),
    }
)
"""Every code that a finding about a definition can have; each has its page."""


@dataclass(frozen=True, slots=True)
class Place:
    """Line and column count from 1; both are 0 where the document was never a text."""

    source: str
    line: int
    column: int
    path: Path


@dataclass(frozen=True, slots=True)
class Related:
    """Another place that a finding is about: the other task of a race, the link that is dead."""

    message: str
    place: Place


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found; `docs/errors/CODE.md` explains its code."""

    code: str
    level: Level
    message: str
    place: Place
    hint: str | None = None
    counterexample: Any = None
    """A `Scenario`, if one was found that shows it."""
    related: tuple[Related, ...] = ()

    def __post_init__(self) -> None:
        """What is quoted may be of any length."""
        if len(self.message) > MESSAGE_CHARACTERS_MAX:
            object.__setattr__(self, "message", _cut(self.message))
        if self.hint is not None and len(self.hint) > MESSAGE_CHARACTERS_MAX:
            object.__setattr__(self, "hint", _cut(self.hint))


def _cut(text: str) -> str:
    half = MESSAGE_CHARACTERS_MAX // 2
    return f"{text[:half]} … {text[-half:]}"


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that was probably meant."""
    words = list(known)
    folded = {known_word.casefold(): known_word for known_word in words}
    if word.casefold() in folded:
        return folded[word.casefold()]
    close = get_close_matches(word, words, n=1, cutoff=0.6)
    return close[0] if close else None


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """A hint that names the word that was probably meant."""
    meant = nearest(word, known)
    return None if meant is None else f"did you mean `{meant}`?"


def meant(word: str, known: Iterable[str], none: str) -> str:
    """A hint that names the word that was probably meant, or all there are; `none` if there is nothing to name."""
    words = sorted(known)
    if not words:
        return none
    return (
        did_you_mean(word, words) or f"there {'is' if len(words) == 1 else 'are'} {listed(words)}"
    )


def listed(words: Iterable[str], last: str = "and") -> str:
    """`a`, `b` and `c`, of which no more are named than can be read."""
    quoted = [f"`{word}`" for word in words]
    if len(quoted) > LISTED_MAX:
        quoted = [*quoted[:LISTED_MAX], f"{len(quoted) - LISTED_MAX} more"]
    return f"{', '.join(quoted[:-1])} {last} {quoted[-1]}" if len(quoted) > 1 else "".join(quoted)


def fewer(findings: Iterable[Finding]) -> list[Finding]:
    """As they stand in the text, and no more of them than anyone would read: errors before others."""
    found = list(findings)
    if len(found) > FINDINGS_MAX:
        found.sort(key=lambda finding: finding.level != "error")
        del found[FINDINGS_MAX:]
    return in_order(found)


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """As they stand in the text."""
    return sorted(findings, key=lambda finding: (finding.place.line, finding.place.column))
