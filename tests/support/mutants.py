"""Mutants: definitions broken in one way, drawn from a seed (issue "mutation" of SPEC 3).

An operator looks through a document for the places where it can be applied and changes one of them. The document is the
expanded one, or, where links are derived from data, events or rules, the one that was written.
"""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

Document = dict[str, Any]
Site = tuple[str, Callable[[], None]]
"""What is done, in words, and the doing of it."""
Operator = Callable[[Document, random.Random], Iterator[Site]]
JOINS: tuple[Any, ...] = (
    {"kind": "all"},
    {"kind": "any"},
    {"kind": "merge"},
    {"kind": "n", "n": 2},
)


@dataclass(frozen=True)
class Mutant:
    operator: str
    words: str
    document: Document


def mutants(
    document: Document, count: int, seed: str, readable: Callable[[Document], bool]
) -> list[Mutant]:
    """So many that differ and can be read, each by one change; operators take turns, in an order that the seed draws."""
    dice = random.Random(seed)
    made: list[Mutant] = []
    known = {json.dumps(document, sort_keys=True)}
    names: list[str] = []
    for _ in range(count * 20):
        if len(made) == count:
            break
        if not names:
            names = list(OPERATORS)
            dice.shuffle(names)
        name = names.pop()
        changed = copy.deepcopy(document)
        sites = list(OPERATORS[name](changed, dice))
        if not sites:
            continue
        words, change = dice.choice(sites)
        change()
        text = json.dumps(changed, sort_keys=True)
        if text not in known and readable(changed):
            known.add(text)
            made.append(Mutant(name, words, changed))
    return made


# --- places --------------------------------------------------------------------------------------------------------


def bodies(document: Document) -> Iterator[Document]:
    """The definition and every body in it: what has `tasks`, and `links` if any."""
    yield document
    for task in document["tasks"].values():
        body = task.get("config", task).get("body")
        if isinstance(body, dict) and "tasks" in body:
            yield from bodies(body)


def tasks(document: Document) -> Iterator[tuple[str, Document]]:
    for body in bodies(document):
        for id, task in body["tasks"].items():
            if task.get("type") not in ("start", "end"):
                yield id, task


def links(document: Document) -> Iterator[tuple[list[Document], Document]]:
    for body in bodies(document):
        for link in body.get("links", []):
            yield body["links"], link


def named(link: Document) -> str:
    return f"{link['from']} -> {link['to']}"


def expressions(document: Document) -> Iterator[tuple[str, Document, str]]:
    """Every condition: where it is, what holds it, and by which name."""
    for _, link in links(document):
        if "condition" in link:
            yield f"of {named(link)}", link["condition"], "expression"
    for id, task in tasks(document):
        for condition in task.get("conditions", []):
            yield f"of {id}", condition, "expression"
        for word in ("while", "until"):
            if word in task.get("config", {}):
                yield f"`{word}` of {id}", task["config"], word
    for rule in document.get("rules", []):
        for word in ("when", "until"):
            if word in rule:
                yield f"of the rule for {rule.get('task', word)}", rule, word


def sources(document: Document) -> Iterator[tuple[str, str, Document]]:
    """Inputs that are read from somewhere: task, parameter, source."""
    for id, task in tasks(document):
        for name, source in task.get("inputs", {}).items():
            if isinstance(source, dict) and "from" in source:
                yield id, name, source


def schemas(document: Document) -> Iterator[tuple[str, Document]]:
    """Schemas of objects that tasks give."""
    for id, task in tasks(document):
        for schema in (task.get("outputSchema"), task.get("config", {}).get("schema")):
            if isinstance(schema, dict) and schema.get("properties"):
                yield id, schema


def setter(holder: Any, name: Any, value: Any) -> Callable[[], None]:
    return lambda: holder.__setitem__(name, value)


def dropper(holder: Any, name: Any) -> Callable[[], None]:
    return lambda: holder.__delitem__(name)


# --- operators -----------------------------------------------------------------------------------------------------


def drop_link(document: Document, dice: random.Random) -> Iterator[Site]:
    for held, link in links(document):
        yield f"without the link {named(link)}", lambda held=held, link=link: held.remove(link)


def retarget_link(document: Document, dice: random.Random) -> Iterator[Site]:
    for body in bodies(document):
        ids = [id for id, task in body["tasks"].items() if task.get("type") != "start"]
        for link in body.get("links", []):
            others = [id for id in ids if id not in (link["to"], link["from"])]
            if others:
                to = dice.choice(others)
                yield f"{named(link)} leads to {to}", setter(link, "to", to)


def drop_default(document: Document, dice: random.Random) -> Iterator[Site]:
    for held, link in links(document):
        for id, task in tasks(document):
            if id == link["from"] and task.get("config", {}).get("default") == link["to"]:
                yield f"{id} without its default", dropper(task["config"], "default")
                yield f"{id} without its default and the link to it", lambda t=task, h=held, k=link: _forget_default(t, h, k)  # fmt: skip
    for id, name, source in sources(document):
        if "default" in source:
            yield f"input {name} of {id} without its default", dropper(source, "default")


def _forget_default(task: Document, held: list[Document], link: Document) -> None:
    del task["config"]["default"]
    held.remove(link)


def flip_condition(document: Document, dice: random.Random) -> Iterator[Site]:
    for where, holder, name in expressions(document):
        yield f"the condition {where} is !({holder[name]})", setter(holder, name, f"!({holder[name]})")  # fmt: skip


OTHER = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&"}
TOKEN = re.compile(r"<=|>=|==|!=|&&|\|\||(?<![=-])[<>]|(?<![\w.])\d+(?![\w.])|!(?=[a-z])")


def change_condition(document: Document, dice: random.Random) -> Iterator[Site]:
    for where, holder, name in expressions(document):
        text = holder[name]
        for found in TOKEN.finditer(text):
            old = found.group()
            new = OTHER.get(old) or ("" if old == "!" else str(int(old) + dice.choice((-1, 1, 2))))
            made = text[: found.start()] + new + text[found.end() :]
            yield f"the condition {where} is {made}", setter(holder, name, made)


def drop_condition(document: Document, dice: random.Random) -> Iterator[Site]:
    for _, link in links(document):
        if "condition" in link:
            yield f"{named(link)} without its condition", dropper(link, "condition")
    for id, task in tasks(document):
        if task.get("conditions"):
            yield f"{id} without its condition", dropper(task, "conditions")
    rules = document.get("rules", [])
    for rule in rules:
        if "task" in rule:
            yield f"without the rule for {rule['task']}", lambda rule=rule: rules.remove(rule)


def cross_write(document: Document, dice: random.Random) -> Iterator[Site]:
    """Another task writes the same, in the run's data or outside."""
    written = sorted(_written(document) | set(document.get("data", {})))
    outside = sorted({path for _, task in tasks(document) for path in task.get("reads", [])})
    for id, task in tasks(document):
        if task.get("type") in ("gateway", "cancel"):
            continue
        for name in written:
            action = {"set": {name: str(dice.randrange(9))}}
            yield f"{id} writes data.{name} too", lambda task=task, action=action: _append(task, action)  # fmt: skip
        others = [path for path in outside if path not in task.get("reads", [])]
        if others and task.get("type", "activity") == "activity":
            path = dice.choice(others)
            yield f"{id} writes {path}", setter(task, "writes", [path])


def _written(document: Document) -> set[str]:
    names: set[str] = set()
    for _, task in tasks(document):
        if task.get("type") == "transform":
            names |= set(task["config"]["set"])
        for action in task.get("onComplete", []):
            names |= set(action.get("set", {})) if isinstance(action, dict) else set()
    return names


def _append(task: Document, action: Document) -> None:
    done = task.get("onComplete", [])
    task["onComplete"] = [*(done if isinstance(done, list) else [done]), action]


def back_link(document: Document, dice: random.Random) -> Iterator[Site]:
    """From a task to one that leads to it: on no condition, on one that is there, or with a bound."""
    known = [holder[name] for _, holder, name in expressions(document)]
    for body in bodies(document):
        after: dict[str, set[str]] = {}
        for link in body.get("links", []):
            after.setdefault(link["from"], set()).add(link["to"])
        for id, task in body["tasks"].items():
            if task.get("type") in ("start", "end"):
                continue
            for later in sorted(_reached(after, id)):
                if body["tasks"][later].get("type") == "end":
                    continue
                link: Document = {"from": later, "to": id}
                condition = dice.choice([None, "iteration < 3", *known[:4]])
                if condition is not None:
                    link["condition"] = {"expression": condition}
                words = f"back from {later} to {id}" + (f" when {condition}" if condition else "")
                yield words, lambda body=body, link=link: body["links"].append(link)


def _reached(after: dict[str, set[str]], id: str) -> set[str]:
    found: set[str] = set()
    todo = [id]
    while todo:
        for other in after.get(todo.pop(), ()):
            if other not in found:
                found.add(other)
                todo.append(other)
    return found


def rename_output(document: Document, dice: random.Random) -> Iterator[Site]:
    for id, schema in schemas(document):
        for name in schema["properties"]:
            yield f"{id} gives {name}_ instead of {name}", lambda s=schema, n=name: _rename(s, n)


def _rename(schema: Document, name: str) -> None:
    schema["properties"] = {
        f"{n}_" if n == name else n: part for n, part in schema["properties"].items()
    }
    schema["required"] = [f"{n}_" if n == name else n for n in schema.get("required", [])]


def loosen_schema(document: Document, dice: random.Random) -> Iterator[Site]:
    """Something need not be given any more; or nothing is said of it."""
    whole = [("the input", document.get("inputSchema") or {})]
    for id, schema in [*whole, *schemas(document)]:
        for name in schema.get("required", []):
            rest = [other for other in schema["required"] if other != name]
            yield f"{name} of {id} may be missing", setter(schema, "required", rest)
    for id, schema in schemas(document):
        for name in schema["properties"]:
            yield f"{id} does not say that it gives {name}", lambda s=schema, n=name: _forget(s, n)


def _forget(schema: Document, name: str) -> None:
    del schema["properties"][name]
    schema["required"] = [other for other in schema.get("required", []) if other != name]


def swap_join(document: Document, dice: random.Random) -> Iterator[Site]:
    for body in bodies(document):
        for id, task in body["tasks"].items():
            arriving = sum(link["to"] == id for link in body.get("links", []))
            if arriving < 2 or task.get("type") in ("start", "end"):
                continue
            now = task.get("join")
            kind = now.get("kind", "merge") if isinstance(now, dict) else now
            for join in JOINS:
                if join["kind"] != kind:
                    yield f"{id} joins {json.dumps(join)}", setter(task, "join", dict(join))


def swap_kind(document: Document, dice: random.Random) -> Iterator[Site]:
    for id, task in tasks(document):
        kind = task.get("config", {}).get("kind")
        if kind in ("exclusive", "inclusive", "parallel"):
            for other in ("exclusive", "inclusive", "parallel"):
                if other != kind:
                    yield f"{id} is {other}", setter(task["config"], "kind", other)


def swap_on(document: Document, dice: random.Random) -> Iterator[Site]:
    for _, link in links(document):
        now = link.get("on", "success")
        for other in ("success", "error", "always"):
            if other != now:
                yield f"{named(link)} on {other}", setter(link, "on", other)


def rename_source(document: Document, dice: random.Random) -> Iterator[Site]:
    ids = [id for id, _ in tasks(document)]
    for id, name, source in sources(document):
        others = [other for other in ids if other not in (id, source["from"])]
        other = dice.choice([*others, "input"])
        yield f"input {name} of {id} comes from {other}", setter(source, "from", other)
        if "path" in source:
            yield f"input {name} of {id} reads {source['path']}_", setter(source, "path", source["path"] + "_")  # fmt: skip


def drop_undo(document: Document, dice: random.Random) -> Iterator[Site]:
    for id, task in tasks(document):
        if "compensate" in task:
            yield f"{id} without its way back", dropper(task, "compensate")


def drop_bound(document: Document, dice: random.Random) -> Iterator[Site]:
    for id, task in tasks(document):
        if "max" in task.get("config", {}):
            yield f"{id} without its max", dropper(task["config"], "max")
    for where, holder, name in expressions(document):
        if "iteration" in holder[name]:
            yield f"the condition {where} is true", setter(holder, name, "true")


def drop_data(document: Document, dice: random.Random) -> Iterator[Site]:
    data = document.get("data", {})
    for name, datum in data.items():
        yield f"data.{name} is not there at first", dropper(data, name)
        if isinstance(datum, dict) and "merge" in datum:
            yield f"data.{name} without its merge", dropper(datum, "merge")
    for id, task in tasks(document):
        for place, action in enumerate(task.get("onComplete", [])):
            if isinstance(action, dict) and "set" in action:
                yield f"{id} does not write {', '.join(action['set'])}", dropper(task["onComplete"], place)  # fmt: skip


OPERATORS: dict[str, Operator] = {
    "drop a link": drop_link,
    "retarget a link": retarget_link,
    "drop a default": drop_default,
    "flip a condition": flip_condition,
    "change a condition": change_condition,
    "drop a condition": drop_condition,
    "cross-write": cross_write,
    "add a back link": back_link,
    "rename an output": rename_output,
    "loosen a schema": loosen_schema,
    "swap a join": swap_join,
    "swap a gateway's kind": swap_kind,
    "swap what a link is on": swap_on,
    "rename a source": rename_source,
    "drop an undo": drop_undo,
    "drop a bound": drop_bound,
    "drop data": drop_data,
}
