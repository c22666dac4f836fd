"""A group of appends before it meets a database: its hashes, and who of it is refused. Every SQL store asks here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from penstock.adapters.store_rules import attributes_of, refusal
from penstock.errors import Fenced, RevisionConflict, StoreCorrupt, StoreError, ValueUnfit
from penstock.model.chain import link, prefix
from penstock.ports.store import Append, Appended, Row, RunKey

Outcome = Appended | Exception
NONE = b"{}"
"""The attributes of a run that has none."""


class Group:
    """Appends with their hashes, ready for any number of tries."""

    def __init__(self, appends: Sequence[Append]) -> None:
        self.partners: dict[int, int] = {}
        """Places of appends that stand or fall together (`Append.also`), both ways."""
        self._firsts: list[int] | None = None
        if any(append.also is not None for append in appends):
            appends = self._with_partners(appends)
        self.appends = appends
        """With the partners, each right after its own."""
        self.hashes: list[list[bytes]] = []
        self.attributes: dict[int, dict[str, str]] = {}
        """Those of new runs, by place in the group."""
        self.size = 0
        """Bytes of all that is to be written."""
        self.problems: dict[int, Exception] = {}
        """What is wrong with an append by itself, by place."""
        for place, append in enumerate(appends):
            row, seq, payloads = append.row, append.expected, append.payloads
            hashes: list[bytes] = []
            self.hashes.append(hashes)
            if reason := refusal(append):
                problem = StoreError(f"the append to run {row.id} makes no sense: {reason}")
                self.problems[place] = problem
                continue
            try:
                if row.key == 0 and row.attributes != NONE:
                    self.attributes[place] = attributes_of(row.attributes)
                head, start = append.previous, prefix(row.id, row.generation)
                if append.blobs:
                    self.size += sum(map(len, append.blobs.values()))
                for payload in payloads:
                    seq += 1
                    self.size += len(payload)
                    head = link(head, start, seq, payload)
                    hashes.append(head)
            except (TypeError, ValueError) as error:
                self.problems[place] = unfit(row, error)
        self.spread(self.problems)

    def _with_partners(self, appends: Sequence[Append]) -> list[Append]:
        every: list[Append] = []
        self._firsts = []
        for append in appends:
            place = len(every)
            self._firsts.append(place)
            every.append(append)
            if append.also is not None:
                every.append(append.also)
                self.partners[place], self.partners[place + 1] = place + 1, place
        return every

    def spread(self, refused: dict[int, Exception]) -> bool:
        """Refuse the partners of those that are refused; whether there were any."""
        alone = {
            place: refused[other]
            for place, other in self.partners.items()
            if other in refused and place not in refused
        }
        refused.update(alone)
        return bool(alone)

    def answers(self, outcomes: list[Outcome]) -> list[Outcome]:
        """The outcomes of those that the caller gave, in its order."""
        return outcomes if self._firsts is None else [outcomes[place] for place in self._firsts]


def unfit(row: Row, error: Exception) -> ValueUnfit:
    problem = ValueUnfit(f"run {row.id!a} has a value that cannot be stored: {error}")
    problem.__cause__ = error
    return problem


class Known(Struct, frozen=True):
    """What is stored of a run that a group wants to append to."""

    revision: int
    hash: bytes
    attributes: bytes
    newest: int
    """The seq of its newest event: the same as its revision, or the database is damaged."""


class Change(Struct, frozen=True):
    """Attributes of a run that its append adds or drops."""

    key: RunKey
    drops: list[tuple[str, str]]
    adds: list[tuple[str, str]]


def judge(
    group: Group,
    *,
    token: int,
    known: Mapping[RunKey, Known],
    taken: Mapping[tuple[str, int], tuple[RunKey, int]],
    refused: dict[int, Exception],
) -> list[Change]:
    """Fill in who is refused, in the order of the group; say which attributes of the others change.

    `taken` are key and revision of the runs that have an id and generation wanted by a new one.
    """
    while True:
        found = dict(refused)
        changes = _judge(group, token=token, known=known, taken=taken, refused=found)
        if not group.spread(found):
            refused.update(found)
            return changes
        # Those whose partner is refused are refused too; judge anew, as others may have stood on them.
        for place, other in group.partners.items():
            if place in found and other in found:
                refused[place] = found[place]


def _judge(
    group: Group,
    *,
    token: int,
    known: Mapping[RunKey, Known],
    taken: Mapping[tuple[str, int], tuple[RunKey, int]],
    refused: dict[int, Exception],
) -> list[Change]:
    runs = dict(known)
    begun: dict[tuple[str, int], int] = {}
    changes: list[Change] = []
    for place, append in enumerate(group.appends):
        row = append.row
        if append.token is not None and append.token < token:
            refused.setdefault(place, Fenced(token=append.token, newest=token))
        if place in refused:
            continue
        try:
            wanted = attributes_of(row.attributes)
        except ValueError as error:
            refused[place] = unfit(row, error)
            continue
        if row.key == 0:
            name = row.id, row.generation
            actual = begun.get(name)
            if name in taken:
                key, actual = taken[name]
                actual = runs[key].revision if key in runs else actual
            if actual is None:
                begun[name] = row.revision
            else:
                refused[place] = RevisionConflict(row.id, expected=0, actual=actual)
            continue
        now = runs.get(row.key)
        if now is None or now.revision != append.expected or now.hash != append.previous:
            revision = None if now is None else now.revision
            actual = None if revision == append.expected else revision
            refused[place] = RevisionConflict(row.id, expected=append.expected, actual=actual)
            continue
        if now.newest > append.expected:
            refused[place] = StoreCorrupt(
                f"run {row.id} has {now.newest} events, but its row says {append.expected}",
                hint="restore a backup; the other runs go on",
            )
            continue
        head = group.hashes[place][-1]
        runs[row.key] = Known(row.revision, head, row.attributes, row.revision)
        if now.attributes != row.attributes:
            before = attributes_of(now.attributes)
            drops = sorted(before.items() - wanted.items())
            changes.append(Change(row.key, drops, sorted(wanted.items() - before.items())))
    return changes
