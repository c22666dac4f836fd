"""Two versions of a definition compared: what was added, removed, changed or renamed (SPEC 2.7).

Tasks are known by their path in the document: `items/charge` is the task `charge` in the body of `items`. A renamed
task is one that the mapping names, or that is guessed: of the same type, with like content, between like neighbours.
Pure data; `cli/diff.py` tells and draws it, `core/migration.py` says which runs can move.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

import msgspec
from msgspec import Struct

from penstock.core.migration import check_mapping
from penstock.core.pairing import BODIES, bodies
from penstock.core.vocabulary import CEL
from penstock.model.definition import Body, Definition, Link, Task

ALIKE = 0.6
"""From so much likeness on (0 to 1) a removed and an added task count as one that was renamed."""
CONTENT, POSITION = 0.65, 0.35
_APART = ("id", "version", "tasks", "links")


class FieldChange(Struct, frozen=True, omit_defaults=True):
    """One value that differs; None where there is none."""

    field: str
    """Where it stands, such as `config.activity` or `retry.attempts`."""
    before: Any = None
    after: Any = None


class TaskChange(Struct, frozen=True, omit_defaults=True):
    """A task that both versions have, with what differs."""

    path: str
    """In the new version."""
    was: str
    """In the old version."""
    fields: tuple[FieldChange, ...] = ()
    guessed: bool = False
    """Nobody said that it was renamed; it looks like it."""

    @property
    def renamed(self) -> bool:
        return self.path != self.was


class LinkName(Struct, frozen=True, omit_defaults=True):
    """A link as people name it; `scope` is the path of the task in whose body it is."""

    scope: str
    from_: str = msgspec.field(name="from")
    to: str = ""
    on: str = "success"
    condition: str | None = None

    def __str__(self) -> str:
        inside = f"{self.scope}: " if self.scope else ""
        on = "" if self.on == "success" else f" on {self.on}"
        return f"{inside}{self.from_} -> {self.to}{on}"


class LinkChange(Struct, frozen=True, omit_defaults=True):
    """A link that both versions have, with what differs; named as in the new one."""

    link: LinkName
    fields: tuple[FieldChange, ...]


class Difference(Struct, frozen=True, omit_defaults=True):
    """All that differs between two versions."""

    id: str
    before: str
    after: str
    added: tuple[str, ...] = ()
    """Paths of tasks."""
    removed: tuple[str, ...] = ()
    changed: tuple[TaskChange, ...] = ()
    """Renamed or with other content."""
    links_added: tuple[LinkName, ...] = ()
    links_removed: tuple[LinkName, ...] = ()
    links_changed: tuple[LinkChange, ...] = ()
    fields: tuple[FieldChange, ...] = ()
    """Of the definition itself: data, outputs, inputSchema, timeouts, …"""

    @property
    def same(self) -> bool:
        return not (
            self.added or self.removed or self.changed or self.fields
            or self.links_added or self.links_removed or self.links_changed
        )  # fmt: skip

    @property
    def renamed(self) -> dict[str, str]:
        """Old path to new path, as a migration's mapping has it."""
        return {change.was: change.path for change in self.changed if change.renamed}


def joined(path: str, id: str) -> str:
    return f"{path}/{id}" if path else id


def compare(
    before: Definition,
    after: Definition,
    mapping: Mapping[str, str] | None = None,
    *,
    guess: bool = True,
) -> Difference:
    """What differs. `mapping` says which task became which; what it leaves open is guessed, unless `guess` is false."""
    return _Comparison(before, after, mapping or {}, guess=guess).made()


class _Comparison:
    def __init__(
        self, before: Definition, after: Definition, mapping: Mapping[str, str], *, guess: bool
    ) -> None:
        self._before, self._after, self._guess = before, after, guess
        self._old, self._new = bodies(before), bodies(after)
        self._mapping = dict(mapping)
        check_mapping(self._mapping, before, after)
        self._added: list[str] = []
        self._removed: list[str] = []
        self._changed: list[TaskChange] = []
        self._links: tuple[list[LinkName], list[LinkName], list[LinkChange]] = ([], [], [])

    def made(self) -> Difference:
        self._bodies("", "")
        before, after = self._before, self._after
        gained, lost, changed = self._links
        return Difference(
            id=after.id, before=before.version, after=after.version, added=tuple(self._added),
            removed=tuple(self._removed), changed=tuple(self._changed), links_added=tuple(gained),
            links_removed=tuple(lost), links_changed=tuple(changed),
            fields=tuple(_fields(_plain(before, _APART), _plain(after, _APART))),
        )  # fmt: skip

    def _bodies(self, was: str, path: str) -> None:
        old, new = self._old[was], self._new[path]
        pairs = self._pairs(was, path, old, new)
        guessed = self._guesses(old, new, pairs) if self._guess else {}
        pairs.update(guessed)
        back = {after: before for before, after in pairs.items()}
        self._removed += [joined(was, id) for id in old.tasks if id not in pairs]
        for id, task in new.tasks.items():
            here = joined(path, id)
            if id not in back:
                self._added.append(here)
                continue
            there = joined(was, back[id])
            fields = tuple(_fields(_plain(old.tasks[back[id]], ()), _plain(task, ())))
            if fields or here != there:
                self._changed.append(TaskChange(here, there, fields, back[id] in guessed))
            if here in self._new and there in self._old:
                self._bodies(there, here)
        self._compare_links(was, path, pairs)

    def _pairs(self, was: str, path: str, old: Body, new: Body) -> dict[str, str]:
        """Who is who by name: as the mapping says, else by the same id."""
        said = {
            before.rpartition("/")[2]: after.rpartition("/")[2]
            for before, after in self._mapping.items()
            if before.rpartition("/")[0] == was and after.rpartition("/")[0] == path
        }
        taken = set(said.values())
        for id in old.tasks:
            if id not in said and id in new.tasks and id not in taken:
                said[id] = id
        return said

    def _guesses(self, old: Body, new: Body, pairs: Mapping[str, str]) -> dict[str, str]:
        """Of those left over, who probably became whom: the most alike first."""
        lost = [id for id in old.tasks if id not in pairs]
        gained = [id for id in new.tasks if id not in pairs.values()]
        if not lost or not gained or len(lost) * len(gained) > 10_000:
            return {}
        near_old, near_new = _neighbours(old), _neighbours(new)
        ranked = sorted(
            (-_likeness(old, new, a, b, near_old[a], near_new[b], pairs), i, j)
            for i, a in enumerate(lost)
            for j, b in enumerate(gained)
        )
        found: dict[str, str] = {}
        for score, i, j in ranked:
            if -score < ALIKE:
                break
            if lost[i] not in found and gained[j] not in found.values():
                found[lost[i]] = gained[j]
        return found

    def _compare_links(self, was: str, path: str, pairs: Mapping[str, str]) -> None:
        old = {_identity(link, pairs): link for link in self._old[was].links}
        new = {_identity(link, None): link for link in self._new[path].links}
        gained, lost, changed = self._links
        lost += [_name(was, link) for name, link in old.items() if name not in new]
        for name, link in new.items():
            there = old.get(name)
            if there is None:
                gained.append(_name(path, link))
            elif there.condition != link.condition:
                fields = _fields({"condition": _text(there)}, {"condition": _text(link)})
                changed.append(LinkChange(_name(path, link), tuple(fields)))


def _identity(link: Link, pairs: Mapping[str, str] | None) -> tuple[str, str, str]:
    if pairs is None:
        return link.from_, link.to, link.on
    # A task that is gone has no name of today: an id with a space is nobody's.
    return (
        pairs.get(link.from_, f" {link.from_}"), pairs.get(link.to, f" {link.to}"), link.on,
    )  # fmt: skip


def _name(scope: str, link: Link) -> LinkName:
    return LinkName(scope=scope, from_=link.from_, to=link.to, on=link.on, condition=_text(link))


def _text(link: Link) -> str | None:
    condition = link.condition
    if condition is None or condition.language == CEL:
        return None if condition is None else condition.expression
    return f"{condition.language}: {condition.expression}"


def _neighbours(body: Body) -> dict[str, tuple[set[str], set[str]]]:
    found: dict[str, tuple[set[str], set[str]]] = {id: (set(), set()) for id in body.tasks}
    for link in body.links:
        if link.from_ in found and link.to in found:
            found[link.from_][1].add(link.to)
            found[link.to][0].add(link.from_)
    return found


def _likeness(
    old: Body, new: Body, before: str, after: str, near: tuple[set[str], set[str]],
    far: tuple[set[str], set[str]], pairs: Mapping[str, str],
) -> float:  # fmt: skip
    """From 0 to 1: how much of the content is the same, and how many of the neighbours."""
    one, other = old.tasks[before], new.tasks[after]
    if one.type != other.type:
        return 0.0
    content = _shared(_plain(one, ("type", "name")), _plain(other, ("type", "name")))
    places = [
        ({pairs[id] for id in left if id in pairs}, right)
        for left, right in zip(near, far, strict=True)
    ]
    union = sum(len(left | right) for left, right in places)
    position = sum(len(left & right) for left, right in places) / union if union else 1.0
    return CONTENT * content + POSITION * position


def _shared(one: dict[str, Any], other: dict[str, Any]) -> float:
    leaves, others = dict(_leaves("", one)), dict(_leaves("", other))
    union = leaves.keys() | others.keys()
    if not union:
        return 1.0
    return sum(leaves.get(name, _APART) == others.get(name, _APART) for name in union) / len(union)


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for name, each in cast("dict[str, Any]", value).items():
            yield from _leaves(f"{path}.{name}" if path else name, each)
    else:
        yield path, value


def _plain(thing: Definition | Task, without: tuple[str, ...]) -> dict[str, Any]:
    """As JSON data; a body is compared by its own tasks and links."""
    found = cast("dict[str, Any]", msgspec.to_builtins(thing))
    for name in without:
        found.pop(name, None)
    if isinstance(thing, Task) and thing.type in BODIES:
        found["config"] = {k: v for k, v in found.get("config", {}).items() if k != "body"}
    return found


def _fields(before: Any, after: Any, path: str = "") -> Iterator[FieldChange]:
    """Each value that differs, at its deepest place; lists are compared whole."""
    if before == after and type(before) is type(after):
        return
    if isinstance(before, dict) and isinstance(after, dict):
        old, new = cast("dict[str, Any]", before), cast("dict[str, Any]", after)
        for name in [*old, *(name for name in new if name not in old)]:
            yield from _fields(old.get(name), new.get(name), f"{path}.{name}" if path else name)
        return
    yield FieldChange(path, before, after)
