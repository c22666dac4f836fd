"""A document back into blocks of the algebra, as far as it is made of them (SPEC 2.4).

Walked from the start: after a split the walk goes on at the task that every way from it passes, and a task belongs where
it stands only if all that leads to it was met on the way. Where that does not hold, or a link says what no operator
can (on error, a condition beside others, an inclusive gateway, a natural loop), the smallest part with one way in and
one way out is kept as it was written, a Rest that names its tasks and the reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from penstock.dsl.algebra import (
    Block,
    Choice,
    Leaf,
    Parallel,
    Rest,
    Way,
    begun_outside,
    chosen,
    nothing,
    parallel,
    sequence,
)
from penstock.dsl.compose import Composition
from penstock.dsl.loops import nearest_dominators

if TYPE_CHECKING:
    from penstock.dsl.load import Loaded

Document = dict[str, Any]
EXIT = "\n"
"""Stands behind every end; no task can be called that."""
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ID = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_BODIES = ("loop", "map", "mutex")


def decompose(source: Loaded | Composition | Document) -> Composition:
    """Blocks that compile to an equivalent graph; `.rest` names what is not made of blocks."""
    from penstock.dsl.load import (
        Loaded,
        load_document,
    )  # late: heavy, and `import penstock` leads here

    if isinstance(source, Composition):
        source = source.document
    document = source.document if isinstance(source, Loaded) else load_document(source).document
    fields = {
        name: value for name, value in document.items() if name not in ("id", "tasks", "links")
    }
    return Composition(document["id"], _read(document, _words(document)), fields)


def _read(scope: Document, words: frozenset[str]) -> Block:
    """The block of one scope, given with its start and end."""
    graph = _Graph(scope, words)
    try:
        block, last = graph.walk(graph.start, [], EXIT)
    except _Unlike as unlike:
        return graph.whole(str(unlike))
    if {out.edge for out in last} != set(graph.into[EXIT]):
        return graph.whole("not all of its tasks are reached from its start")
    return block


class _Unlike(Exception):
    """Here is something that no operator says."""


@dataclass(frozen=True, slots=True, eq=False)
class _Edge:
    index: int
    """Of its link; negative where no link is written: from an end to the exit."""
    source: str
    target: str
    link: Document | None


@dataclass(frozen=True, slots=True)
class _Out:
    """An edge that leaves a block."""

    edge: _Edge
    certain: bool = True
    """It is true whenever the block was entered; one of a choice is not."""


class _Graph:
    def __init__(self, scope: Document, words: frozenset[str]) -> None:
        self.words = words
        self.tasks: Document = scope["tasks"]
        self.start = next(id for id, task in self.tasks.items() if task["type"] == "start")
        self.outs: dict[str, list[_Edge]] = {id: [] for id in self.tasks}
        self.into: dict[str, list[_Edge]] = {id: [] for id in (*self.tasks, EXIT)}
        self.ends = {id for id, task in self.tasks.items() if task == {"type": "end"}}
        """Ends that say nothing more: what leads to them leads to the exit."""
        for index, link in enumerate(scope.get("links", ())):
            target = EXIT if link["to"] in self.ends else link["to"]
            self._edge(_Edge(index, link["from"], target, link))
        for number, id in enumerate(self.tasks, 1):
            if not self.outs[id] and id not in self.ends:
                self._edge(_Edge(-number, id, EXIT, None))
        edges = [(edge.target, edge.source) for outs in self.outs.values() for edge in outs]
        self.after = nearest_dominators((EXIT, *self.tasks), edges, EXIT)
        """The first task behind each that every way from it passes."""

    def _edge(self, edge: _Edge) -> None:
        self.outs[edge.source].append(edge)
        self.into[edge.target].append(edge)

    # --- walking ---------------------------------------------------------------------------------------------

    def walk(self, at: str, came: list[_Out], stop: str) -> tuple[Block, list[_Out]]:
        """From a task to just before `stop`: the block, and the edges by which it leads there."""
        parts: list[Block] = []
        while at != stop:
            try:
                part, came = self._step(at, came, stop)
            except _Unlike as unlike:
                part, came = self._rest(at, came, stop, str(unlike))
            parts.append(part)
            at = came[0].edge.target
        return sequence(*parts), came

    def _step(self, at: str, came: list[_Out], stop: str) -> tuple[Block, list[_Out]]:
        if {out.edge for out in came} != set(self.into[at]):
            if any(edge.source in self._between([at], EXIT) for edge in self.into[at]):
                raise _Unlike(f"a link leads back to `{at}`")
            raise _Unlike(f"what leads to `{at}` does not come from one block")
        outs, task = self.outs[at], self.tasks[at]
        if task["type"] == "gateway" and self._plain(at):
            return self._gateway(at, came, outs, stop)
        for edge in outs:
            if edge.link is not None and (edge.link.get("condition") or edge.link.get("on")):
                raise _Unlike(_described(edge))
        leaf = nothing if task == {"type": "start"} else self._leaf(at)
        if len(outs) == 1:
            return leaf, [_Out(outs[0])]
        if task["type"] == "gateway":
            raise _Unlike(f"gateway `{at}` says more than which way to go")
        block, last = self._fan(outs, self._behind(at, stop))
        return sequence(leaf, block), last

    def _behind(self, at: str, stop: str) -> str:
        """Where the ways from a task come together again."""
        behind = self.after.get(at)
        if behind is None:
            raise _Unlike(f"`{at}` leads to no end")
        return behind

    def _fan(self, edges: list[_Edge], stop: str) -> tuple[Block, list[_Out]]:
        """All of these ways, at a time; those that meet before the others do are a block of their own."""
        if self._join(stop) not in ("merge", "all") and any(edge.target == stop for edge in edges):
            raise _Unlike(f"`{stop}` counts a link that comes straight from a split")
        groups = self._groups(edges, stop)
        branches: list[Block] = []
        last: list[_Out] = []
        for group in groups:
            if len(group) == 1:
                block, came = self._way(group[0], stop)
            else:
                meeting = self._meeting([edge.target for edge in group])
                if meeting == stop:
                    names = ", ".join(f"`{edge.target}`" for edge in group)
                    raise _Unlike(f"the ways that begin with {names} cross")
                block, came = self._fan(group, meeting)
                more, came = self.walk(meeting, came, stop)
                block = sequence(block, more)
            branches.append(block)
            last += came
        return parallel(*branches), last

    def _way(self, edge: _Edge, stop: str) -> tuple[Block, list[_Out]]:
        if edge.target == stop:
            return nothing, [_Out(edge)]
        return self.walk(edge.target, [_Out(edge)], stop)

    def _groups(self, edges: list[_Edge], stop: str) -> list[list[_Edge]]:
        """Edges whose ways share a task before `stop`, together."""
        owner: dict[str, int] = {}
        number = list(range(len(edges)))

        def root(of: int) -> int:
            while number[of] != of:
                of = number[of]
            return of

        for place, edge in enumerate(edges):
            for id in self._between([edge.target], stop):
                if id in owner:
                    number[root(place)] = root(owner[id])
                else:
                    owner[id] = place
        groups: dict[int, list[_Edge]] = {}
        for place, edge in enumerate(edges):
            groups.setdefault(root(place), []).append(edge)
        return list(groups.values())

    def _meeting(self, targets: list[str]) -> str:
        """The first task that every way from all of these passes."""
        chains = [self._chain(target) for target in targets]
        return next(id for id in chains[0] if all(id in chain for chain in chains[1:]))

    def _chain(self, at: str) -> list[str]:
        chain = [at]
        while chain[-1] != EXIT:
            following = self.after.get(chain[-1])
            if following is None:
                raise _Unlike(f"`{at}` leads to no end")
            chain.append(following)
        return chain

    # --- gateways --------------------------------------------------------------------------------------------

    def _gateway(
        self, at: str, came: list[_Out], outs: list[_Edge], stop: str
    ) -> tuple[Block, list[_Out]]:
        config = self.tasks[at]["config"]
        kind = config["kind"]
        for edge in outs:
            if edge.link is None or edge.link.get("on"):
                raise _Unlike(_described(edge))
        join = self._join(at)
        if join not in ("merge", "all") or (
            join == "all" and len(came) > 1 and not all(out.certain for out in came)
        ):
            raise _Unlike(f"gateway `{at}` waits for `{join}` of what leads to it")
        guards = [cast("Document", edge.link).get("condition") for edge in outs]
        if len(outs) == 1 and guards == [None] and kind != "event":
            if self._join(outs[0].target) != "merge" and len(came) > 1:
                return self._leaf(at), [_Out(outs[0])]
            return nothing, [_Out(outs[0])]
        if kind == "exclusive":
            return self._exclusive(at, config.get("default"), outs, self._behind(at, stop))
        if kind == "event":
            return self._event(at, outs, guards, self._behind(at, stop))
        if kind == "inclusive" or any(guards):
            raise _Unlike(f"gateway `{at}` is {kind}, with conditions of its own for each link")
        block, last = self._fan(outs, self._behind(at, stop))
        return (replace(block, id=at) if isinstance(block, Parallel) else block), last

    def _exclusive(
        self, at: str, default: str | None, outs: list[_Edge], stop: str
    ) -> tuple[Block, list[_Out]]:
        ways: list[tuple[str | None, _Edge]] = []
        remaining: _Edge | None = None
        for edge in outs:
            assert edge.link is not None
            condition = edge.link.get("condition")
            if edge.link["to"] == default:
                if remaining is not None:
                    raise _Unlike(f"the default of `{at}` is linked twice")
                remaining = edge
            elif condition is None:
                raise _Unlike(f"the link from `{at}` to `{edge.target}` has no condition")
            elif condition.get("language", "cel") != "cel":
                raise _Unlike(_described(edge))
            else:
                ways.append((condition["expression"], edge))
        if not ways or (remaining is None and len(ways) == 1):
            raise _Unlike(f"gateway `{at}` has one way to go, or none")
        read: list[Way] = []
        last: list[_Out] = []
        for guard, edge in [*ways, *([] if remaining is None else [(None, remaining)])]:
            block, came = self._way(edge, stop)
            last += came
            read += self._remaining(block) if guard is None else [Way(guard, block)]
        if len(read) == 2 and read[1] == Way(None, nothing):
            del read[1]
        block = chosen(read)
        return (
            replace(block, id=at) if isinstance(block, Choice) else block,
            [replace(out, certain=False) for out in last],
        )

    def _remaining(self, block: Block) -> list[Way]:
        """What is done if no guard holds: another choice goes on where this one ends."""
        if not isinstance(block, Choice):
            return [Way(None, block)]
        if len(block.ways) == 1:
            return [*block.ways, Way(None, nothing)]
        return list(block.ways)

    def _event(
        self, at: str, outs: list[_Edge], guards: list[Any], stop: str
    ) -> tuple[Block, list[_Out]]:
        if any(guards) or len(outs) < 2:
            raise _Unlike(f"event gateway `{at}` has conditions, or one way to go")
        read: list[Way] = []
        last: list[_Out] = []
        for edge in outs:
            block, came = self._way(edge, stop)
            if not begun_outside(block):
                raise _Unlike(f"`{edge.target}` is not begun from outside")
            last += came
            read.append(Way(None, block))
        return Choice(tuple(read), id=at), [replace(out, certain=False) for out in last]

    # --- tasks -----------------------------------------------------------------------------------------------

    def _leaf(self, at: str) -> Leaf:
        task = self.tasks[at]
        if task["type"] not in _BODIES:
            return Leaf(at, task)
        config = {name: value for name, value in task["config"].items() if name != "body"}
        return Leaf(at, {**task, "config": config}, _read(task["config"]["body"], self.words))

    def _join(self, at: str) -> str:
        return "merge" if at == EXIT else self.tasks[at].get("join", {}).get("kind", "merge")

    def _plain(self, at: str) -> bool:
        """A gateway that does nothing but split or join, and of which nobody speaks."""
        task = self.tasks[at]
        if not task.keys() <= {"type", "config", "join"} or task.get("join", {}).get("cancel"):
            return False
        return at not in self.words

    # --- what is left ----------------------------------------------------------------------------------------

    def _rest(self, at: str, came: list[_Out], stop: str, why: str) -> tuple[Block, list[_Out]]:
        """The smallest part from here that has one way in and one way out, as it is."""
        arriving = {out.edge for out in came}
        chain = self._chain(at)
        for behind in chain[1 : chain.index(stop) + 1]:
            inside = self._between([at], behind)
            entering = {
                edge for id in inside for edge in self.into[id] if edge.source not in inside
            }
            if entering == arriving and (at != self.start or not came):
                return self._kept(at, inside, behind, why)
        raise _Unlike(why)

    def whole(self, why: str) -> Rest:
        """Nothing of it is a block."""
        inside = {id for id in self.tasks if id not in self.ends}
        return self._kept(self.start, inside, EXIT, why)[0]

    def _kept(self, at: str, inside: set[str], behind: str, why: str) -> tuple[Rest, list[_Out]]:
        links: list[tuple[int, Document]] = []
        last: list[_Out] = []
        for id in self.tasks:
            for edge in self.outs[id] if id in inside else ():
                if edge.target == behind:
                    last.append(_Out(edge, certain=False))
                if edge.link is None:
                    continue
                link = edge.link
                if edge.target == behind:
                    link = {name: value for name, value in link.items() if name != "to"}
                    if self._default(id) == edge.link["to"]:
                        link["default"] = True
                links.append((edge.index, link))
        tasks = {id: self.tasks[id] for id in self.tasks if id in inside}
        ordered = tuple(link for _, link in sorted(links, key=lambda pair: pair[0]))
        return Rest(at, tasks, ordered, why), last

    def _default(self, at: str) -> str | None:
        return self.tasks[at].get("config", {}).get("default")

    def _between(self, sources: Iterable[str], stop: str) -> set[str]:
        """What is reached without passing `stop`."""
        found = {id for id in sources if id != stop}
        waiting = list(found)
        while waiting:
            for edge in self.outs.get(waiting.pop(), ()):
                if edge.target not in found and edge.target not in (stop, EXIT):
                    found.add(edge.target)
                    waiting.append(edge.target)
        return found


def _described(edge: _Edge) -> str:
    link = edge.link or {}
    what = f"is taken on {link['on']}" if link.get("on") else "has a condition of its own"
    return f"the link from `{edge.source}` to `{link.get('to', 'end')}` {what}"


def _words(document: Document) -> frozenset[str]:
    """Every word that expressions, inputs and templates use: a task of that name may be meant."""
    found: set[str] = set()
    waiting: list[Any] = list(document.values())
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            found.update(_WORD.findall(value))
            found.update(_ID.findall(value))
        elif isinstance(value, dict):
            full = cast("Document", value)
            if full.get("type") == "gateway":
                waiting.extend(each for name, each in full.items() if name != "config")
            else:
                waiting.extend(
                    each
                    for name, each in full.items()
                    if name not in ("from", "to") or "to" not in full
                )
        elif isinstance(value, list | tuple):
            waiting.extend(cast("list[Any]", value))
    return frozenset(found)
