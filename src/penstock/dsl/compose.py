"""Blocks of the algebra into a document (SPEC 2.4, 2.1).

A block has one way in. What leaves it are stubs: links that lead to whatever comes next, so that no gateway is written
where a task's own join does the same. Joins are `merge`: of parallel branches each brings a true link, of a choice one
does. Names that nobody gave are made from what a task does, and counted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.dsl.algebra import (
    Block,
    Choice,
    Leaf,
    Parallel,
    Rest,
    Sequence,
    Way,
    as_block,
    camel,
    nothing,
    rests,
)
from penstock.errors import Rejected

Document = dict[str, Any]
DEPTH_MAX = 150
"""Blocks within blocks; a document cannot be deeper either."""


@dataclass(frozen=True)
class Composition:
    """A block with the name and the other fields of a definition; `engine.register` takes it."""

    id: str
    block: Block
    fields: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def document(self) -> Document:
        """The definition as data (SPEC 2.1)."""
        return {"id": self.id, **self.fields, **scope_of(self.block)}

    @property
    def rest(self) -> tuple[Rest, ...]:
        """What of a graph that was read back is not made of blocks, each with its tasks and the reason."""
        return tuple(rests(self.block))


def compose(id: str, block: Any, /, **fields: Any) -> Composition:
    """A definition: `compose("order", reserve >> charge, outputs={…})`; fields as in a document, or with underscores."""
    full = {camel(name): value for name, value in fields.items()}
    return Composition(id, as_block(block), full)


def scope_of(block: Block) -> Document:
    """Tasks and links of one scope, its start and end written out."""
    return _Scope(_Names(block)).write(block)


@dataclass(frozen=True, slots=True)
class _Stub:
    """A link that waits for its target."""

    source: str
    link: Document | None = None
    """Written already, but for its target: a gateway asks its links in order."""
    plain: bool = False
    """From a task that takes all its links: several may follow without a gateway."""
    default: bool = False
    """What its gateway takes when no guard holds."""


class _Names:
    """Ids that are free, over the whole document."""

    def __init__(self, block: Block) -> None:
        self.given: set[str] = set()
        self.taken: set[str] = {"start", "end"}
        self._collect(block, 0)
        self.taken |= self.given

    def make(self, wish: str, *, count: bool = False) -> str:
        """The wish, or with a number behind it."""
        number = 1
        name = f"{wish}_1" if count else wish
        while name in self.taken:
            number += 1
            name = f"{wish}_{number}"
        self.taken.add(name)
        return name

    def _collect(self, block: Block, depth: int) -> None:
        if depth > DEPTH_MAX:
            message = f"blocks are nested more than {DEPTH_MAX} deep"
            raise Rejected(
                "algebra-invalid", message, hint="make the inner part a definition of its own"
            )
        match block:
            case Leaf():
                if block.id is not None:
                    self.given.add(block.id)
                if block.body is not None:
                    self._collect(block.body, depth + 1)
            case Sequence():
                for part in block.parts:
                    self._collect(part, depth + 1)
            case Parallel():
                self.taken.add(block.id or "")
                for part in block.branches:
                    self._collect(part, depth + 1)
            case Choice():
                self.taken.add(block.id or "")
                for way in block.ways:
                    self._collect(way.then, depth + 1)
            case Rest():
                self.given |= set(block.tasks)


class _Scope:
    """One scope on its way into a document."""

    def __init__(self, names: _Names) -> None:
        self.names = names
        self.tasks: Document = {}
        self.links: list[Document] = []

    def write(self, block: Block) -> Document:
        first = block
        while isinstance(first, Sequence) and first.parts:
            first = first.parts[0]
        stubs: list[_Stub] = []
        if not _starts(first):
            start = self._free("start")
            self.tasks[start] = {"type": "start"}
            stubs = [_Stub(start, plain=True)]
        stubs = self._add(block, stubs)
        end = self._free("end")
        self.tasks[end] = {"type": "end"}
        self._lead(stubs, end)
        return {"tasks": self.tasks, "links": self.links}

    def _free(self, wish: str) -> str:
        while wish in self.names.given:
            wish += "_"
        return wish

    def _add(self, block: Block, stubs: list[_Stub]) -> list[_Stub]:
        """Write the block behind the stubs; the stubs that leave it."""
        match block:
            case Leaf():
                return self._leaf(block, stubs)
            case Sequence():
                for part in block.parts:
                    if not stubs and self.tasks:
                        raise Rejected("algebra-invalid", "nothing can follow an end")
                    stubs = self._add(part, stubs)
                return stubs
            case Parallel():
                return self._parallel(block, stubs)
            case Choice():
                return self._choice(block, stubs)
            case Rest():
                return self._rest(block, stubs)

    def _leaf(self, leaf: Leaf, stubs: list[_Stub]) -> list[_Stub]:
        id = self.names.make(_wish(leaf)) if leaf.id is None else leaf.id
        if id in self.tasks:
            raise Rejected(
                "algebra-invalid",
                f"two tasks of one scope are called `{id}`",
                hint="give each an id of its own, or none: then they are counted",
            )
        fields = dict(leaf.fields)
        self.tasks[id] = fields
        if leaf.body is not None:
            fields["config"] = {**fields.get("config", {}), "body": {}}
            fields["config"]["body"] = _Scope(self.names).write(leaf.body)
        self._lead(stubs, id)
        if leaf.type == "end":
            return []
        return [_Stub(id, plain=leaf.type != "gateway")]

    def _parallel(self, block: Parallel, stubs: list[_Stub]) -> list[_Stub]:
        if not (len(stubs) == 1 and stubs[0].plain):
            fork = self._gateway(block.id, "fork", "parallel", join="merge")
            self._lead(stubs, fork)
            stubs = [_Stub(fork)]
        # A branch that begins with a split gets a gateway of its own: which belong together stays to be seen.
        stubs = [replace(stub, plain=False) for stub in stubs]
        return [out for branch in block.branches for out in self._add(branch, stubs)]

    def _choice(self, block: Choice, stubs: list[_Stub]) -> list[_Stub]:
        guarded = [way for way in block.ways if way.guard is not None]
        opened = [way.then for way in block.ways if way.guard is None]
        if not guarded:
            return self._events(block.id, opened, stubs)
        gateway = self._gateway(block.id, "choose", "exclusive")
        self._lead(stubs, gateway)
        if not opened and len(guarded) == 1:
            opened = [nothing]
        outs: list[_Stub] = []
        for way in guarded:
            outs += self._guarded(gateway, way, empty=opened == [nothing])
        stub = _Stub(gateway, default=True)
        if len(opened) > 1:
            outs += self._events(None, opened, [stub])
        elif opened:
            outs += self._add(opened[0], [stub])
        return outs

    def _guarded(self, gateway: str, way: Way, *, empty: bool) -> list[_Stub]:
        """`empty`: the default leads to what comes next, so that a guard that does needs a step of its own."""
        stub = self._stub(gateway, {"condition": way.guard})
        if way.then == nothing and empty:
            step = self._gateway(None, "pass", "exclusive")
            self._lead([stub], step)
            return [_Stub(step)]
        return self._add(way.then, [stub])

    def _events(self, id: str | None, ways: list[Block], stubs: list[_Stub]) -> list[_Stub]:
        gateway = self._gateway(id, "await", "event")
        self._lead(stubs, gateway)
        return [out for way in ways for out in self._add(way, [_Stub(gateway)])]

    def _rest(self, block: Rest, stubs: list[_Stub]) -> list[_Stub]:
        self.tasks.update({id: dict(task) for id, task in block.tasks.items()})
        self._lead(stubs, block.entry)
        outs: list[_Stub] = []
        for link in block.links:
            if "to" in link:
                self.links.append(dict(link))
                continue
            fields = {
                name: value for name, value in link.items() if name not in ("from", "default")
            }
            outs.append(self._stub(link["from"], fields, default=bool(link.get("default"))))
        return outs

    def _stub(self, source: str, fields: Document, *, default: bool = False) -> _Stub:
        link = {"from": source, "to": "", **fields}
        self.links.append(link)
        return _Stub(source, link, default=default)

    def _gateway(self, id: str | None, wish: str, kind: str, **fields: Any) -> str:
        if id is None or id in self.tasks:
            id = self.names.make(wish, count=True)
        self.tasks[id] = {"type": "gateway", "config": {"kind": kind}, **fields}
        return id

    def _lead(self, stubs: list[_Stub], target: str) -> None:
        for stub in stubs:
            if stub.link is None:
                self.links.append({"from": stub.source, "to": target})
            else:
                stub.link["to"] = target
            if stub.default:
                task = self.tasks[stub.source]
                task["config"] = {**task.get("config", {}), "default": target}


def _starts(first: Block) -> bool:
    """A start was written, with more to it than that it is one."""
    if isinstance(first, Rest):
        return first.tasks[first.entry].get("type") == "start"
    return isinstance(first, Leaf) and first.type == "start"


def _wish(leaf: Leaf) -> str:
    """What a task without an id would be called."""
    said = leaf.fields.get("do") or leaf.fields.get("activity") or leaf.fields.get("name")
    name = re.sub(r"[^A-Za-z0-9_-]", "_", str(said or leaf.type))
    return name if name[0].isalpha() or name[0] == "_" else f"_{name}"
