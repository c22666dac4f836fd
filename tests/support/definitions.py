"""Definitions by chance: nested scopes, every join and gateway, natural loops, handlers of failure, all kinds of task.

A Hypothesis strategy of documents that register; `features` says what is in one, so that a law can tell what it was
held against.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

Document = dict[str, Any]
Draw = Callable[..., Any]

CHILD: Document = {
    "id": "child",
    "tasks": {
        "c1": {"do": "x", "compensate": "undo"},
        "c2": {"do": "x", "after": "c1", "retry": {"attempts": 2, "first": 1}},
    },
}


class Making:
    """One definition in the making."""

    def __init__(
        self, sampled: Callable[[Any], Any], between: Callable[[int, int], int], *, calm: bool
    ) -> None:
        """`sampled` picks one of several, `between` a number of two and all that is between them."""
        self.sampled, self.between, self.calm = sampled, between, calm
        self.count = 0
        self.left = 20
        self.known: list[str] = []
        """Tasks that can be seen from where we are."""

    def pick(self, *choices: Any) -> Any:
        return self.sampled(choices)

    def one_in(self, n: int) -> bool:
        return self.between(1, n) == 1

    def name(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}"

    def body(self, depth: int) -> Document:
        """Tasks in an order in which each may follow earlier ones."""
        tasks: Document = {}
        links: list[Document] = []
        exits: list[str] = []
        """Tasks that later ones may follow."""
        seen = len(self.known)
        for _ in range(self.between(1, 3) if depth else self.between(3, 7)):
            if self.left <= 0 and tasks:
                break
            before = [each for each in exits if self.one_in(2)] if exits else []
            if exits and not before and not self.one_in(4):
                before = [exits[-1]]
            exits += self.piece(tasks, links, before, depth)
            self.known += [id for id in tasks if id not in self.known]
        del self.known[seen:]
        return {"tasks": tasks, "links": links}

    def piece(
        self, tasks: Document, links: list[Document], before: list[str], depth: int
    ) -> list[str]:
        """A task, a gateway with its branches, or a natural loop; what later tasks may follow."""
        self.left -= 1
        shape = self.pick("task", "task", "task", "task", "gateway", "gateway", "natural", "event")
        if shape == "event" and self.calm:
            shape = "gateway"
        if shape == "gateway":
            return self.gateway(tasks, links, before, depth)
        if shape == "event":
            return self.event(tasks, links, before)
        if shape == "natural":
            return self.natural(tasks, links, before, depth)
        id = self.name("t")
        tasks[id] = self.task(depth, id)
        self.enter(tasks, links, before, id)
        found = [id]
        if self.one_in(3):
            handler = self.name("h")
            tasks[handler] = {"do": "x"}
            on = self.pick("error", "always")
            link: Document = {"from": id, "to": handler, "on": on}
            if self.one_in(4):
                link["when"] = self.guard(id)
            links.append(link)
            found.append(handler)
        return found

    def enter(self, tasks: Document, links: list[Document], before: list[str], id: str) -> None:
        for source in before:
            link: Document = {"from": source, "to": id}
            if self.one_in(4):
                link["when"] = self.guard(source)
            if self.one_in(12):
                link["on"] = self.pick("always", "error")
            links.append(link)
        if len(before) > 1 and self.one_in(2):
            if self.calm:
                tasks[id]["join"] = self.pick("merge", "all")
            else:
                tasks[id]["join"] = self.pick(
                    "all", "any", {"any": True, "cancel": True}, {"n": 2}, {"n": 2, "cancel": True}
                )

    def guard(self, source: str) -> str:
        return self.pick(
            "true", "true", "true", "input.n % 2 == 0", "input.n % 2 == 1", f"tasks.{source}.output != 3",
            f'tasks.{source}.status == "COMPLETED"', f'tasks.{source}.status != "FAILED"', "false",
            "true" if self.calm else f"tasks.{source}.output > 3",
        )  # fmt: skip

    def gateway(
        self, tasks: Document, links: list[Document], before: list[str], depth: int
    ) -> list[str]:
        id = self.name("g")
        kind = self.pick("exclusive", "inclusive", "parallel")
        tasks[id] = {"type": "gateway", "kind": kind}
        self.enter(tasks, links, before, id)
        branches: list[str] = []
        for _ in range(self.between(2, 3)):
            branch = self.name("b")
            self.left -= 1
            tasks[branch] = self.task(depth, branch)
            branches.append(branch)
            link: Document = {"from": id, "to": branch}
            if kind != "parallel":
                link["when"] = self.pick("input.n % 2 == 0", "input.n % 3 == 0", "true", "false")
            links.append(link)
        if kind != "parallel" and not self.one_in(6):
            tasks[id]["default"] = branches[-1]
        if self.one_in(6):
            handler = self.name("h")
            tasks[handler] = {"do": "x"}
            links.append({"from": id, "to": handler, "on": "error"})
        return branches

    def event(self, tasks: Document, links: list[Document], before: list[str]) -> list[str]:
        id = self.name("e")
        tasks[id] = {"type": "gateway", "kind": "event"}
        self.enter(tasks, links, before, id)
        armed: list[str] = []
        for _ in range(self.between(2, 3)):
            target = self.name("w")
            tasks[target] = self.wait(target)
            links.append({"from": id, "to": target})
            armed.append(target)
        return armed

    def natural(
        self, tasks: Document, links: list[Document], before: list[str], depth: int
    ) -> list[str]:
        head, tail = self.name("n"), self.name("n")
        self.left -= 1
        passes = self.between(1, 3)
        tasks[head], tasks[tail] = self.task(depth, head), self.task(depth, tail)
        self.enter(tasks, links, before, head)
        inner = head
        if self.one_in(3):
            inner = self.name("n")
            tasks[inner] = {"do": "x"}
            links += [
                {"from": head, "to": inner},
                {"from": inner, "to": inner, "when": "iteration < 2"},
            ]
        links.append({"from": inner, "to": tail})
        links.append({"from": tail, "to": head, "when": f"iteration < {passes}"})
        out = self.name("o")
        tasks[out] = {"do": "x"}
        links.append({"from": tail, "to": out, "when": f"iteration >= {passes}"})
        found = [out]
        if self.one_in(3):
            handler = self.name("h")
            tasks[handler] = {"do": "x"}
            links.append(
                {
                    "from": self.pick(head, inner, tail),
                    "to": handler,
                    "on": self.pick("error", "always"),
                }
            )
            found.append(handler)
        return found

    def wait(self, id: str) -> Document:
        kind = self.pick("signal", "timer", "form", "event")
        if kind == "event":
            where = self.pick("true", "event.data > 1", "event.data == input.n")
            topic = self.pick("go.now", "go.*", id)
            listening: Document = {"type": "event", "topic": topic, "where": where}
            return {**listening, "timeout": "20s"} if self.one_in(3) else listening
        if kind == "signal":
            task: Document = {"type": "signal", "name": self.pick("go", "stop", id)}
            if self.one_in(3):
                task["timeout"] = "20s"
            if self.one_in(5):
                task["transient"] = True
            return task
        if kind == "timer":
            return {"type": "timer", "delay": self.pick("1s", "1m", "0s")}
        return {"type": "form", "schema": {}, "due": "30s"}

    def task(self, depth: int, id: str) -> Document:
        kinds = ["activity"] * 6 + ["transform", "subworkflow"]
        if not self.calm:
            kinds += ["wait", "publish", "send"]
            if self.known:
                kinds += ["cancel", "cancel"]
        if depth < 2 and self.left > 0:
            kinds += ["loop", "map", "mutex"]
        kind = self.sampled(kinds)
        task = self.kind(kind, depth, id)
        if self.one_in(12):
            task["when"] = self.pick("input.n % 2 == 0", "true", "false")
        if self.one_in(6):
            # Integers only, so that the order of floating-point sums plays no part.
            names = ("all", "sum") if self.calm else ("all", "sum", "last", "loose", "loose")
            name = self.pick(*names)
            task["onComplete"] = [{"set": {name: str(self.between(0, 5))}}]
        if self.one_in(10):
            task["onError"] = [{"publish": {"topic": "bad", "payload": id}}]
        if (
            not self.calm
            and self.one_in(10)
            and kind not in ("wait", "cancel", "publish", "transform")
        ):
            task["timeout"] = {"task": "15s"}
        return task

    def kind(self, kind: str, depth: int, id: str) -> Document:
        match kind:
            case "activity":
                return self.activity()
            case "transform":
                return {"type": "transform", "set": {"sum": "input.n", "all": f'"{id}"'}}
            case "subworkflow":
                task = {"type": "subworkflow", "definition": "child"}
                return {**task, "detached": True} if self.one_in(6) and not self.calm else task
            case "wait":
                return self.wait(id)
            case "cancel":
                return {"type": "cancel", "tasks": [self.sampled(self.known)]}
            case "publish":
                return {"type": "publish", "topic": "t", "payload": {"n": "${input.n}"}}
            case "send":
                return {
                    "do": "x",
                    "onComplete": [{"signal": {"run": "run", "name": "go", "payload": 1}}],
                }
            case "loop":
                task: Document = {"type": "loop", "body": self.body(depth + 1)}
                word = self.pick("while", "until")
                task[word] = "iteration < 2" if word == "while" else "iteration >= 2"
                return task
            case "map":
                return self.map(depth)
            case _:
                return {"type": "mutex", "name": self.pick("m", "k"), "body": self.body(depth + 1)}

    def map(self, depth: int) -> Document:
        task: Document = {
            "type": "map",
            "items": self.pick("[1, 2, 3]", "[]", "input.items", "[input.n]"),
            "body": self.body(depth + 1),
        }
        if self.one_in(3):
            task["limit"] = self.pick(1, 2)
        if self.one_in(2):
            task["onItemError"] = "collect"
            if self.one_in(2):
                task["tolerate"] = 1
        if not self.calm:
            if self.one_in(4):
                task["n"] = self.pick(1, 2)
                task["cancel"] = self.pick(True, False)
            if self.one_in(5):
                task["more"] = "add"
        return task

    def activity(self) -> Document:
        task: Document = {"do": "x"}
        if self.one_in(3):
            task["compensate"] = self.pick(
                "undo",
                {"activity": "undo", "when": "attempted"},
                {"activity": "undo", "parallel": True},
            )
        if self.one_in(3):
            task["retry"] = {"attempts": self.pick(2, 3), "first": self.pick(0, 2, 5)}
        if self.one_in(8):
            task["inputs"] = {"n": "${input.n}", "items": {"from": "input", "path": "$.items"}}
        if self.one_in(12) and not self.calm:
            task["once"] = True
        return task


@st.composite
def documents(draw: Draw, calm: bool = False) -> Document:
    """`calm`: nothing whose outcome depends on the order of completion (SPEC 2.6)."""
    return document_of(
        Making(
            lambda choices: draw(st.sampled_from(choices)),
            lambda least, most: draw(st.integers(least, most)),
            calm=calm,
        )
    )


def document_of(making: Making) -> Document:
    """A whole one."""
    calm = making.calm
    document: Document = {"id": "flow", **making.body(0)}
    document["data"] = {
        "all": {"merge": "append"},
        "sum": {"value": 0, "merge": "current + value"},
        "last": {"merge": "last"},
    }
    if making.one_in(6) and not calm:
        document["timeouts"] = {"run": "90s"}
    if making.one_in(3):
        document["outputs"] = {"all": "data.all", "sum": "data.sum"}
    return document


def features(document: Document) -> set[str]:
    """What is in a definition, by the words of SPEC 2.3."""
    found: set[str] = set()
    _features(document, found)
    return found


def _features(body: Document, found: set[str]) -> None:
    incoming: dict[str, int] = {}
    for link in body["links"]:
        incoming[link["to"]] = incoming.get(link["to"], 0) + 1
        if link.get("on") in ("error", "always"):
            found.add(f"handler {link['on']}")
        if link["from"] == link["to"] or (
            link["to"].startswith("n") and "iteration <" in link.get("when", "")
        ):
            found.add("scope natural loop")
    for id, task in body["tasks"].items():
        join = task.get("join")
        if incoming.get(id, 0) > 1 and (join is None or join == "merge"):
            found.add("join merge")
        if isinstance(join, str) and join != "merge":
            found.add(f"join {join}")
        if isinstance(join, dict):
            found.add("join any" if "any" in join else "join n")
            if join.get("cancel"):
                found.add("join cancel")
        kind = task.get("type", "activity")
        if kind == "gateway":
            found.add(f"gateway {task['kind']}")
        elif kind in ("loop", "map", "mutex", "subworkflow"):
            found.add(f"scope {kind}")
        elif kind in ("signal", "timer", "form", "event", "cancel"):
            found.add(f"task {kind}")
        if "compensate" in task:
            found.add("handler compensate")
        if "onError" in task:
            found.add("handler onError")
        if task.get("onItemError") == "collect":
            found.add("handler collect")
        if "retry" in task:
            found.add("handler retry")
        if "body" in task:
            _features(task["body"], found)


WANTED = (
    "join merge", "join all", "join any", "join n", "join cancel",
    "gateway exclusive", "gateway inclusive", "gateway parallel", "gateway event",
    "scope natural loop", "scope loop", "scope map", "scope mutex", "scope subworkflow",
    "handler error", "handler always", "handler compensate", "handler onError", "handler collect", "handler retry",
    "task signal", "task timer", "task form", "task event", "task cancel",
)  # fmt: skip
