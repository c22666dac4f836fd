"""Definitions by chance that are mostly right: blocks inside blocks, and now and then a mistake.

Each condition reads a field of the input of its own, so that any combination of them may happen; with `shared` some
read the same field. `support/definitions.py` has what is wild, `support/typed.py` gives types to what tasks return.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

Document = dict[str, Any]
Draw = Callable[..., Any]
SIZE = 14
"""Tasks of a scope, about."""


class Building:
    def __init__(self, draw: Draw, *, shared: bool) -> None:
        self.draw, self.shared = draw, shared
        self.tasks: Document = {}
        self.links: list[Document] = []
        self.count = 0
        self.field = 0
        self.left = SIZE
        self.nested = 0
        """Bodies around this one."""

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

    def whole(self) -> None:
        """A scope: a row of blocks."""
        _, last = self.block(0)
        for _ in range(self.draw(st.integers(0, 2 if self.nested else 3))):
            if self.left <= 0:
                break
            begin, end = self.block(0 if not self.nested else 1)
            self.link(last, begin)
            last = end
        if any(task.get("type") == "end" for task in self.tasks.values()):
            self.link(last, self.name("x", {"type": "end"}))

    def block(self, depth: int) -> tuple[str, str]:
        """Where it begins and where it ends."""
        shapes = ["task", "wait", "handled"]
        if depth < 3 and self.left > 0:
            shapes += ["row", "split", "split", "split", "loop", "event", "race"]
            shapes += ["body"] * (3 if self.nested < 2 else 0)
        shape = self.draw(st.sampled_from(shapes))
        match shape:
            case "task":
                id = self.name("t", self.activity())
                if self.one_in(6):
                    self.tasks[id]["when"] = f"{self.fresh()} > 3"
                return id, id
            case "wait":
                id = self.name("w", self.wait())
                return id, id
            case "handled":
                return self.handled()
            case "row":
                first, middle = self.block(depth + 1)
                again, last = self.block(depth + 1)
                self.link(middle, again)
                return first, last
            case "loop":
                return self.loop(depth)
            case "body":
                return self.body()
            case "event":
                return self.event()
            case "race":
                return self.race(depth)
            case _:
                return self.split(depth)

    def activity(self) -> Document:
        task: Document = {"do": "x"}
        if self.one_in(4):
            task["compensate"] = "undo"
        if self.one_in(5):
            task["retry"] = {"attempts": 2, "first": 1}
        if self.one_in(8):
            task["onError"] = [{"publish": {"topic": "bad", "payload": "it"}}]
        return task

    def wait(self) -> Document:
        kind = self.pick("signal", "timer", "form", "event", "subworkflow", "transform")
        made: Document = {
            "signal": {"type": "signal", "name": f"s{self.count}"},
            "timer": {"type": "timer", "delay": f"{self.count + 1}s"},
            "form": {"type": "form", "schema": {}},
            "event": {"type": "event", "topic": f"e{self.count}", "where": "true"},
            "subworkflow": {"type": "subworkflow", "definition": "child"},
            "transform": {"type": "transform", "set": {"n": "1"}},
        }[kind]
        if kind in ("signal", "event") and self.one_in(4):
            made["timeout"] = "20s"
        return made

    def handled(self) -> tuple[str, str]:
        id, handler = self.name("t", self.activity()), self.name("h", {"do": "x"})
        join = self.name("j", {"do": "x"})
        if self.one_in(4):
            self.tasks[id] = self.wait()
        link: Document = {"on": self.pick("error", "error", "always")}
        if self.one_in(6):
            link["when"] = f"{self.fresh()} > 3"
        self.link(id, handler, **link)
        self.link(id, join)
        self.link(handler, join)
        if self.one_in(8):
            self.tasks[join]["join"] = self.pick("all", "any")
        return id, join

    def split(self, depth: int) -> tuple[str, str]:
        kind = self.pick("exclusive", "inclusive", "parallel", "links")
        made: Document = {"do": "x"} if kind == "links" else {"type": "gateway", "kind": kind}
        first, join = self.name("g", made), self.name("j", {"do": "x"})
        count = self.draw(st.integers(2, 4 if depth == 0 else 3))
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
            if self.one_in(20) and self.tasks[begin].get("kind") != "event":
                stop = self.name("x", {"type": "end", "terminate": True})
                self.link(begin, stop, when=f"{self.fresh()} > 3")
        conditional = any("when" in link for link in self.links if link["from"] == first)
        if kind == "parallel" or not conditional:
            join_n = {"n": self.draw(st.integers(1, count))}
            cancelling = {**join_n, "cancel": True}
            self.tasks[join]["join"] = self.pick("all", "merge", join_n, cancelling, "any")
        elif self.one_in(8):
            self.tasks[join]["join"] = self.pick("all", {"n": 2})
        return first, join

    def event(self) -> tuple[str, str]:
        gate = self.name("e", {"type": "gateway", "kind": "event"})
        join = self.name("j", {"do": "x"})
        for _ in range(self.draw(st.integers(2, 3))):
            wait: Document = self.pick(
                {"type": "signal", "name": f"s{self.count}"},
                {"type": "signal", "name": f"s{self.count}", "timeout": "20s"},
                {"type": "timer", "delay": f"{self.count + 1}s"},
                {"type": "form", "schema": {}},
                {"type": "event", "topic": f"e{self.count}", "where": "true"},
            )
            id = self.name("w", wait)
            self.link(gate, id)
            self.link(id, join)
        if self.one_in(8):
            self.tasks[join]["join"] = "all"
        return gate, join

    def race(self, depth: int) -> tuple[str, str]:
        """The first of several cancels the others."""
        first, join = self.name("t", {"do": "x"}), self.name("j", {"do": "x"})
        self.tasks[join]["join"] = {"any": True, "cancel": True}
        for _ in range(2):
            begin, end = self.block(depth + 1)
            self.link(first, begin)
            self.link(end, join)
        return first, join

    def loop(self, depth: int) -> tuple[str, str]:
        """A natural loop, perhaps around a block, perhaps left by a failure."""
        head, tail = self.name("n", {"do": "x"}), self.name("n", {"do": "x"})
        out = self.name("o", {"do": "x"})
        passes = self.draw(st.integers(1, 3))
        inside = [head, tail]
        if self.one_in(2) and self.left > 0:
            begin, end = self.block(max(depth + 1, 2))
            self.link(head, begin)
            self.link(end, tail)
            inside += [begin, end]
        else:
            self.link(head, tail)
        self.link(tail, head, when=f"iteration < {passes}")
        self.link(tail, out, when=f"iteration {self.pick('>=', '>=', '>=', '>')} {passes}")
        if self.one_in(3):
            handler = self.name("h", {"do": "x"})
            self.link(self.pick(*inside), handler, on=self.pick("error", "error", "always"))
            self.link(handler, out)
        return head, out

    def body(self) -> tuple[str, str]:
        inside = Building(self.draw, shared=self.shared)
        inside.count, inside.field, inside.left = self.count, self.field, max(2, self.left // 2)
        inside.nested = self.nested + 1
        inside.whole()
        self.count, self.field, self.left = inside.count, inside.field, self.left - 3
        body = {"tasks": inside.tasks, "links": inside.links}
        items: Document = {"type": "map", "items": self.pick("[1, 2]", "[1, 2, 3]", "[]"), "body": body}  # fmt: skip
        made: Document = self.pick(
            items,
            {**items, "onItemError": "collect"},
            {**items, "onItemError": "collect", "tolerate": 1, "limit": 1},
            {**items, "items": "[1, 2]", "n": 1, "cancel": self.pick(True, False)},
            {"type": "loop", "while": "iteration < 2", "body": body},
            {"type": "loop", "until": "iteration >= 2", "body": body},
            {"type": "mutex", "name": self.pick("m", "k"), "body": body},
        )
        id = self.name("b", made)
        if self.one_in(3):
            handler, join = self.name("h", {"do": "x"}), self.name("j", {"do": "x"})
            self.link(id, handler, on=self.pick("error", "error", "always"))
            self.link(id, join)
            self.link(handler, join)
            return id, join
        return id, id

    def stop(self) -> None:
        """Some task cancels another."""
        names = sorted(id for id, task in self.tasks.items() if task.get("type") != "end")
        given_up = self.draw(st.sampled_from(names))
        sources = [id for id in names if id != given_up and self.tasks[id].get("kind") != "event"]
        ends = [id for id, task in self.tasks.items() if task.get("type") == "end"]
        if sources:
            self.link(self.pick(*sources), self.name("s", {"type": "cancel", "tasks": [given_up]}))
            if ends:
                self.link(f"s{self.count}", ends[-1])


@st.composite
def graphs(draw: Draw, shared: bool = False) -> Document:
    building = Building(draw, shared=shared)
    building.whole()
    if building.one_in(4) and len(building.tasks) > 1:
        building.stop()
    fields = {f"f{n}": {"type": "integer"} for n in range(max(1, building.field))}
    return {
        "id": "flow",
        "inputSchema": {"type": "object", "properties": fields, "required": sorted(fields)},
        "tasks": building.tasks,
        "links": building.links,
        "data": {"n": {"merge": "last"}},
    }
