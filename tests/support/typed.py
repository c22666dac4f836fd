"""Definitions by chance in which it is said what tasks return, and conditions and inputs read it (SPEC 3.3, 3.6).

The shapes are those of `support/graphs.py`; some of what is read may not be there, and some expressions may fail.
`Fitting` lets tasks return what their schemas allow, so that what is proved of the types can be held against runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from penstock.core.keys import static
from support.chance import Chance
from support.graphs import Document, Draw, graphs
from support.world import Case

OBJECT: Document = {
    "type": "object",
    "properties": {"n": {"type": "integer"}, "s": {"type": "string"}},
    "required": ["n"],
    "additionalProperties": False,
}
SCHEMAS: dict[str, tuple[Document, tuple[str, ...]]] = {
    "integer": (
        {"type": "integer"},
        ("{} > 3", "{} <= 3", "{} == 2", "{} % 2 == 0", "10 / {} > 2"),
    ),
    "small": (
        {"type": "integer", "minimum": 1, "maximum": 5},
        ("{} > 3", "10 / {} > 2", "{} < 6", "{} != 9"),
    ),
    "boolean": ({"type": "boolean"}, ("{}", "!{}")),
    "text": ({"enum": ["a", "b", "c"]}, ('{} == "a"', '{} in ["a", "b"]', '{} != "d"')),
    "object": (
        OBJECT,
        ("{}.n > 3", '{}.s == "a"', 'has({}.s) && {}.s == "a"', "has({}.s) || {}.n > 3"),
    ),
    "list": (
        {"type": "array", "items": {"type": "integer"}},
        ("size({}) > 1", "{}[0] > 2", "{}.exists(i, i > 2)", "size({}) == 0 || {}[0] > 2"),
    ),
    "number": ({"type": "number"}, ("{} > 1.5", "{} >= 0.0")),
}
"""By name: a schema, and conditions over a value of it."""


class Typing:
    def __init__(self, draw: Draw, document: Document) -> None:
        self.draw, self.document = draw, document
        self.kinds: dict[str, str] = {}

    def pick(self, *choices: Any) -> Any:
        return self.draw(st.sampled_from(choices))

    def one_in(self, n: int) -> bool:
        return self.draw(st.integers(1, n)) == 1

    def give(self) -> None:
        for body, seen in _bodies(self.document, []):
            known = list(seen)
            for id, task in body["tasks"].items():
                if "do" in task and not self.one_in(4):
                    self.kinds[id] = self.pick(*SCHEMAS)
                    task["outputSchema"] = SCHEMAS[self.kinds[id]][0]
                if "do" in task and self.kinds.keys() & set(known) and self.one_in(2):
                    self.feed(task, known)
                known.append(id)
            self.ask(body, known)

    def source(self, known: list[str]) -> str:
        return self.pick(*(id for id in known if id in self.kinds))

    def condition(self, known: list[str]) -> str:
        id = self.source(known)
        text = self.pick(*SCHEMAS[self.kinds[id]][1]).replace("{}", f"tasks.{id}.output")
        return f'tasks.{id}.status == "COMPLETED" && ({text})' if self.one_in(3) else text

    def feed(self, task: Document, known: list[str]) -> None:
        """What it reads may not be there; what it computes may fail, if not for what the source returns."""
        id = self.source(known)
        given: Document = {"from": id}
        match self.pick("from", "template", "computed", "computed"):
            case "template":
                given = {"template": f"got ${{tasks.{id}.output}}"}
            case "computed":
                given = {"template": f"is it so? ${{{self.condition(known)}}}"}
            case _ if self.kinds[id] == "object":
                given["path"] = self.pick("$.n", "$.s")
                if self.one_in(2):
                    given["default"] = 0
            case _:
                pass
        task["inputs"] = {"p": given}

    def ask(self, body: Document, known: list[str]) -> None:
        if not any(id in self.kinds for id in known):
            return
        kinds = {id: task.get("kind") for id, task in body["tasks"].items()}
        for link in body["links"]:
            if "iteration" in link.get("when", "iteration") or not self.one_in(2):
                continue
            link["when"] = self.condition(known)
            others = [each for each in body["links"] if each["from"] == link["from"]]
            if kinds[link["from"]] == "exclusive" and others[-1] is not link and self.one_in(2):
                others[-1]["when"] = f"!({link['when']})"
                if self.one_in(2):
                    body["tasks"][link["from"]].pop("default", None)


def _bodies(body: Document, seen: list[str]) -> Iterator[tuple[Document, list[str]]]:
    """Each with the tasks around that it sees."""
    yield body, seen
    for task in body["tasks"].values():
        if "body" in task:
            yield from _bodies(task["body"], [*seen, *body["tasks"]])


@st.composite
def typed(draw: Draw) -> Document:
    document = draw(graphs(shared=True))
    Typing(draw, document).give()
    return document


class Fitting(Chance):
    """Gives a task something that its schema allows."""

    def output(self, case: Case, key: str) -> object:
        if key in case.run.undoing:
            return super().output(case, key)
        # By its plan: an attempt that was told to stop may end when the scope around its task is gone.
        path, _, id = key.rpartition("/")
        node = case.flow.plan.scopes[static(path)].nodes[id]
        draw = self.draw(case.id, key, "output")
        luck = int(draw * 10_000)
        kind = next((k for k, (s, _) in SCHEMAS.items() if s == node.task.output_schema), "")
        match kind:
            case "integer":
                return luck % 9 - 2
            case "small":
                return luck % 5 + 1
            case "boolean":
                return bool(luck % 2)
            case "text":
                return "abc"[luck % 3]
            case "object":
                return {"n": luck % 7, **({"s": "a" if luck % 3 else "z"} if luck % 2 else {})}
            case "list":
                return list(range(luck % 4))
            case "number":
                return [0, 1, 1.5, 2.5, -3][luck % 5]
            case _:
                return super().output(case, key)
