"""Races: two tasks that may run in parallel and touch one path, one of them writing (SPEC 3.5, 2.6).

A race of which two orders of the same events are found that come out differently is refuted; any other is unknown, with
what stands in the way. A key with a `merge` may be written by many; one whose merge depends on the order is a race again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from penstock.core.plan import Formula, Node, ScopePlan
from penstock.verify.cases import Read
from penstock.verify.certain import terminating
from penstock.verify.merging import commutes
from penstock.verify.reordering import SAME, Reordering
from penstock.verify.sets import Orders, Sets, Touch, by_root, overlap, resolve
from penstock.verify.verification import Proof, Subject

RULE = "3.5"
PER_PATH_MAX = 8
"""Races on one path that are named."""
SHOWN_MAX = 12
"""Races that are tried to be shown, in one verification."""

DEPENDS = "; its `merge` depends on which comes first"
MAY_DEPEND = "; its `merge` may depend on which comes first"

UNTYPED = f"{SAME}, and too little is known of the values to prove it of all"

Kind = Literal["write-write", "read-write"]


@dataclass(frozen=True, slots=True)
class Race:
    """Two touches that may come in either order."""

    first: Touch
    """It writes."""
    second: Touch
    items: Node | None = None
    """They are in two items of this map."""

    @property
    def kind(self) -> Kind:
        return "write-write" if self.second.writes else "read-write"

    @property
    def in_turn(self) -> bool:
        """They are in two items of a map that runs one item after another."""
        return self.items is not None and self.items.config.get("limit") == 1

    @property
    def weight(self) -> tuple[bool, bool]:
        """Of races of the same two tasks: one that may happen hides one that comes in turn; then writes come first."""
        return not self.in_turn, self.kind == "write-write"

    @property
    def tasks(self) -> frozenset[str]:
        return frozenset({self.first.node.path, self.second.node.path})


def check_races(subject: Subject) -> None:
    Races(subject).check()


class Races:
    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._orders = Orders(subject.plan)
        self._reordering = Reordering(subject)
        self._tried = 0
        self._sound = True
        self._merged: dict[str, bool | None] = {}
        """By key: its merge comes to the same in either order."""

    def check(self) -> None:
        sets = Sets(self._subject.plan, self._subject.activities)
        for root, touches in by_root(sets.touches).items():
            if any(touch.writes for touch in touches):
                for race in self._named(root, touches):
                    self._report(race)
        self._ended_early(sets.touches)
        if self._sound:
            count = len({touch.path for touch in sets.touches})
            message = "no task reads or writes what a concurrent one writes"
            self._subject.prove(RULE, f"{message} ({count} paths)")

    # --- finding -------------------------------------------------------------------------------------------------

    def _named(self, root: Read, touches: list[Touch]) -> list[Race]:
        """One race for two tasks, that which weighs most, and not more than are worth reading."""
        found: dict[frozenset[str], Race] = {}
        races = self._of_task(touches) if root[0] == "tasks" else self._of_path(touches)
        for race in races:
            known = found.get(race.tasks)
            if known is None or race.weight > known.weight:
                found[race.tasks] = race
            if sum(not each.in_turn for each in found.values()) >= PER_PATH_MAX:
                break
        return list(found.values())

    def _of_task(self, touches: list[Touch]) -> Iterator[Race]:
        """Who reads the results of a task that may not be over."""
        writers = [touch for touch in touches if touch.writes]
        for reader in touches:
            for writer in writers:
                if not reader.writes and self._meet(writer, reader):
                    yield Race(writer, reader)

    def _meet(self, one: Touch, other: Touch) -> bool:
        left, right = _line(one), _line(other)
        for (scope, first), (beside, second) in zip(left, right, strict=False):
            if scope is not beside:
                return False
            if first is not second:
                return self._orders.of(scope).concurrent(first.id, second.id)
        return False

    def _of_path(self, touches: list[Touch]) -> Iterator[Race]:
        """Scope by scope: what is in tasks of it that neither lead to one another nor exclude one another."""
        inside: dict[str, tuple[ScopePlan, dict[str, list[Touch]]]] = {}
        for touch in touches:
            for scope, node in _line(touch):
                _, held = inside.setdefault(scope.path, (scope, {}))
                held.setdefault(node.id, []).append(touch)
        for scope, held in inside.values():
            order = self._orders.of(scope)
            mask = 0
            for id in held:
                mask |= 1 << order.place[id]
            for id, own in held.items():
                node = scope.nodes[id]
                if node.type == "map":
                    yield from _pairs(own, own, node)
                if not any(touch.writes for touch in own):
                    continue
                rest = order.apart(id) & mask
                while rest:
                    bit = rest & -rest
                    rest ^= bit
                    other = order.ids[bit.bit_length() - 1]
                    if not order.exclusive(id, other):
                        yield from _pairs(own, held[other], None)

    def _ended_early(self, touches: list[Touch]) -> None:
        """Outputs of the run that read what a task does, where an end gives up what is open and so may come first."""
        plan = self._subject.plan
        order = self._orders.of(plan.root)
        for end in terminating(plan.root):
            for name, formula in (plan.outputs or {}).items():
                for read in sorted(formula.expression.reads):
                    beside = next((t for t in touches if t.writes and self._read(t, read) and order.concurrent(_line(t)[0][1].id, end.id)), None)  # fmt: skip
                    if beside is None:
                        continue
                    message = f"output `{name}` reads `{'.'.join(read)}`, and `{end.id}` may end the run before `{beside.node.path}` is over (read-write)"
                    hint = f"let `{end.id}` come after `{beside.node.id}`, or leave out its `terminate`"
                    self._sound = False
                    self._subject.doubt(RULE, "data-race", ("outputs", name), message, hint)
                    break

    def _read(self, touch: Touch, read: Read) -> bool:
        if touch.declared:
            return False
        if read[0] != "tasks":
            return overlap(touch.path, read)
        found = resolve(self._subject.plan, self._subject.plan.root, read[1]) if read[1:] else None
        return found is not None and touch.path == ("tasks", found[1].path)

    # --- reporting -----------------------------------------------------------------------------------------------

    def _report(self, race: Race) -> None:
        plan = self._subject.plan
        path = race.second.path if len(race.second.path) > len(race.first.path) else race.first.path
        name = path[1] if path[0] == "data" and len(path) > 1 else ""
        merge = plan.merges.get(name)
        if race.kind == "write-write" and merge is not None and not isinstance(merge, Formula):
            return
        message, hint = _said(race, merge is not None), _hint(race, path, merge is not None)
        later = max((race.first, race.second), key=self._line_of)
        if race.in_turn:
            if merge is None and race.kind == "write-write":
                self._subject.remark("data-race", later.where, f"{message}; the items run one after another, and the last is read", hint)  # fmt: skip
            return
        reason = "other races were looked at first"
        if self._tried < SHOWN_MAX:
            self._tried += 1
            reason, scenario = self._reordering.find(race.first, race.second, race.items)
            if scenario is not None:
                self._sound = False
                if merge is not None and race.kind == "write-write":
                    hint = "write a `merge` that comes to the same in either order, or let one come after the other"
                self._subject.refute(RULE, "data-race", later.where, message, scenario, hint)
                return
        if merge is not None and race.kind == "write-write":
            commutes = self._commutes(name)
            if commutes:
                return
            message = message.replace(DEPENDS, MAY_DEPEND)
            if commutes is None and reason == SAME:
                self._sound = False
                self._subject.remark("data-race", later.where, f"{message}: {UNTYPED}", hint)
                self._subject.proofs.append(Proof(RULE, "unknown", f"{message}: {UNTYPED}"))
                return
        self._sound = False
        self._subject.doubt(RULE, "data-race", later.where, f"{message}: {reason}", hint)

    def _commutes(self, name: str) -> bool | None:
        if name not in self._merged:
            self._merged[name] = commutes(self._subject, name)
        return self._merged[name]

    def _line_of(self, touch: Touch) -> tuple[int, int]:
        place = self._subject.loaded.place(touch.where)
        return place.line, place.column


def _line(touch: Touch) -> list[tuple[ScopePlan, Node]]:
    """The task and those around it, outermost first."""
    scope, node = touch.scope, touch.node
    line = [(scope, node)]
    while scope.parent is not None:
        node, scope = scope.parent.nodes[scope.owner], scope.parent
        line.append((scope, node))
    return line[::-1]


def _pairs(left: list[Touch], right: list[Touch], items: Node | None) -> Iterator[Race]:
    for one in left:
        if not one.writes:
            continue
        for other in right:
            if overlap(one.path, other.path):
                yield Race(one, other, items)


def _said(race: Race, merged: bool) -> str:
    one, other = race.first, race.second
    path = max((one.name, other.name), key=len)
    if race.items is not None and one.node is other.node:
        verb = "writes" if race.kind == "write-write" else "reads and writes"
        said = f"each item of `{race.items.path}` {verb} `{path}` in `{one.node.path}`"
    elif race.kind == "write-write":
        said = f"`{one.node.path}` and `{other.node.path}` both write `{path}`"
    elif one.path[0] == "tasks":
        said = f"`{other.node.path}` reads `{path}`, and `{one.node.path}` may not be over"
    else:
        said = f"`{one.node.path}` writes `{path}` and `{other.node.path}` reads it"
    if race.items is not None and one.node is not other.node:
        said += f", in items of `{race.items.path}` that run in parallel"
    elif race.items is None and one.path[0] != "tasks":
        said += ", and neither comes after the other"
    if merged and race.kind == "write-write":
        said += DEPENDS
    return f"{said} ({race.kind})"


def _hint(race: Race, path: Read, merged: bool) -> str:
    one, other = race.first.node.id, race.second.node.id
    if race.kind == "write-write" and merged:
        return f"give the tasks that write `{path[1]}` an `outputSchema`, or let one come after the other; `merge: append` keeps all"
    if race.kind == "write-write" and path[0] == "data" and len(path) > 1:
        return f"give `{path[1]}` a `merge` under `data`, or let one task come after the other"
    if race.kind == "read-write" and race.items is None:
        return f"let `{other}` come after `{one}`"
    return "let one come after the other"
