"""Definitions by chance that are mostly right: blocks inside blocks, and now and then a mistake.

Each condition reads a field of the input of its own, so that any combination of them may happen; with `shared` some
read the same field. `support/definitions.py` has what is wild.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

Document = dict[str, Any]
Draw = Callable[..., Any]
FIELDS = 12


class Building:
    def __init__(self, draw: Draw, *, shared: bool) -> None:
        self.draw, self.shared = draw, shared
        self.tasks: Document = {}
        self.links: list[Document] = []
        self.count = 0
        self.field = 0
        self.left = 14

    def pick(self, *choices: Any) -> Any:
        return self.draw(st.sampled_from(choices))

    def one_in(self, n: int) -> bool:
        return self.draw(st.integers(1, n)) == 1

    def name(self, letter: str, task: Document) -> str:
        self.count += 1
        id = f"{letter}{self.count}"
        self.tasks[id] = task
        self.left -= 1
        return id

    def link(self, source: str, target: str, **more: Any) -> None:
        self.links.append({"from": source, "to": target, **more})

    def fresh(self) -> str:
        """A field that no other condition reads, or (shared) perhaps one that does."""
        if self.shared and self.field and self.one_in(2):
            return f"input.f{self.draw(st.integers(0, self.field - 1))}"
        self.field += 1
        return f"input.f{self.field - 1}"

    def block(self, depth: int) -> tuple[str, str]:
        """Where it begins and where it ends."""
        shapes = ["task", "task", "wait", "handled"]
        if depth < 3 and self.left > 0:
            shapes += ["row", "row", "split", "split", "split", "loop", "body", "event", "race"]
        shape = self.draw(st.sampled_from(shapes))
        match shape:
            case "task":
                id = self.name("t", {"do": "x"})
                if self.one_in(6):
                    self.tasks[id]["when"] = f"{self.fresh()} > 3"
                return id, id
            case "wait":
                kind = self.pick("signal", "timer", "form", "subworkflow", "transform")
                made: Document = {
                    "signal": {"type": "signal", "name": f"s{self.count}"},
                    "timer": {"type": "timer", "delay": f"{self.count + 1}s"},
                    "form": {"type": "form", "schema": {}},
                    "subworkflow": {"type": "subworkflow", "definition": "child"},
                    "transform": {"type": "transform", "set": {"n": "1"}},
                }[kind]
                id = self.name("w", made)
                return id, id
            case "handled":
                return self.handled()
            case "row":
                first, middle = self.block(depth + 1)
                again, last = self.block(depth + 1)
                self.link(middle, again)
                return first, last
            case "loop":
                return self.loop()
            case "body":
                return self.body(depth)
            case "event":
                return self.event(depth)
            case "race":
                return self.race(depth)
            case _:
                return self.split(depth)

    def handled(self) -> tuple[str, str]:
        id, handler = self.name("t", {"do": "x"}), self.name("h", {"do": "x"})
        join = self.name("j", {"do": "x"})
        self.link(id, handler, on=self.pick("error", "error", "always"))
        self.link(id, join)
        self.link(handler, join)
        if self.one_in(8):
            self.tasks[join]["join"] = self.pick("all", "any")
        return id, join

    def split(self, depth: int) -> tuple[str, str]:
        kind = self.pick("exclusive", "inclusive", "parallel", "links")
        made: Document = {"do": "x"} if kind == "links" else {"type": "gateway", "kind": kind}
        first, join = self.name("g", made), self.name("j", {"do": "x"})
        count = self.draw(st.integers(2, 3))
        for branch in range(count):
            begin, end = self.block(depth + 1)
            link: Document = {}
            if (kind in ("exclusive", "inclusive") and branch < count - 1) or (
                kind == "links" and branch and self.one_in(2)
            ):
                link["when"] = f"{self.fresh()} > 3"
            elif kind in ("exclusive", "inclusive"):
                if self.one_in(6):
                    link["when"] = f"{self.fresh()} > 3"
                else:
                    made["default"] = begin
            self.link(first, begin, **link)
            self.link(end, join)
        conditional = any("when" in link for link in self.links if link["from"] == first)
        if kind == "parallel" or not conditional:
            self.tasks[join]["join"] = self.pick("all", "merge", {"n": 2}, "any")
        elif self.one_in(8):
            self.tasks[join]["join"] = self.pick("all", {"n": 2})
        return first, join

    def event(self, depth: int) -> tuple[str, str]:
        gate, join = (
            self.name("e", {"type": "gateway", "kind": "event"}),
            self.name("j", {"do": "x"}),
        )
        for _ in range(2):
            wait = self.name("w", {"type": "signal", "name": f"s{self.count}"})
            if self.one_in(3):
                self.tasks[wait]["timeout"] = "20s"
            self.link(gate, wait)
            self.link(wait, join)
        if self.one_in(8):
            self.tasks[join]["join"] = "all"
        return gate, join

    def race(self, depth: int) -> tuple[str, str]:
        """The first of several cancels the others, or a task does."""
        first, join = self.name("t", {"do": "x"}), self.name("j", {"do": "x"})
        self.tasks[join]["join"] = {"any": True, "cancel": True}
        for _ in range(2):
            begin, end = self.block(depth + 1)
            self.link(first, begin)
            self.link(end, join)
        return first, join

    def loop(self) -> tuple[str, str]:
        head, tail = self.name("n", {"do": "x"}), self.name("n", {"do": "x"})
        out = self.name("o", {"do": "x"})
        passes = self.draw(st.integers(1, 3))
        self.link(head, tail)
        self.link(tail, head, when=f"iteration < {passes}")
        self.link(tail, out, when=f"iteration {self.pick('>=', '>=', '>=', '>')} {passes}")
        if self.one_in(4):
            handler = self.name("h", {"do": "x"})
            self.link(self.pick(head, tail), handler, on="error")
            self.link(handler, out)
        return head, out

    def body(self, depth: int) -> tuple[str, str]:
        inside = Building(self.draw, shared=self.shared)
        inside.count, inside.field, inside.left = self.count, self.field, min(6, self.left)
        inside.block(depth + 1)
        self.count, self.field, self.left = inside.count, inside.field, self.left - 3
        body = {"tasks": inside.tasks, "links": inside.links}
        made: Document = self.pick(
            {"type": "map", "items": "[1, 2]", "body": body},
            {"type": "map", "items": "[1, 2]", "body": body, "onItemError": "collect"},
            {"type": "loop", "while": "iteration < 2", "body": body},
            {"type": "mutex", "name": self.pick("m", "k"), "body": body},
        )
        id = self.name("b", made)
        if self.one_in(3):
            handler, join = self.name("h", {"do": "x"}), self.name("j", {"do": "x"})
            self.link(id, handler, on="error")
            self.link(id, join)
            self.link(handler, join)
            return id, join
        return id, id


@st.composite
def graphs(draw: Draw, shared: bool = False) -> Document:
    building = Building(draw, shared=shared)
    building.block(0)
    if building.one_in(4) and len(building.tasks) > 1:
        names = sorted(building.tasks)
        given_up = building.draw(st.sampled_from(names))
        building.tasks["stop"] = {"type": "cancel", "tasks": [given_up]}
        building.link(building.pick(*(id for id in names if id != given_up)), "stop")
    fields = {f"f{n}": {"type": "integer"} for n in range(max(1, building.field))}
    return {
        "id": "flow",
        "inputSchema": {"type": "object", "properties": fields, "required": sorted(fields)},
        "tasks": building.tasks,
        "links": building.links,
        "data": {"n": {"merge": "last"}},
    }
