"""Shorthand into the full document of SPEC 2.1; what is already full stays as it is.

What comes in has been held against the schema, and goes on without what was wrong (`complain.py`). Each
rewritten path is noted with the path that it was written at, so that findings point at what people wrote.
"""

from __future__ import annotations

import re
from typing import Any, cast

from penstock.core.vocabulary import PLAIN, Vocabulary
from penstock.dsl.derive import derive
from penstock.dsl.finding import Path
from penstock.dsl.implied import add_ends
from penstock.dsl.schema import BODY_TYPES, KINDS, beside
from penstock.policy.durations import parse as seconds
from penstock.policy.retention import FOREVER

Document = dict[str, Any]

ID = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*\Z")
UNKNOWN_TYPE = "?"
"""The type of a task that has none that can be read; nothing else is said about it."""
SOURCE_WORDS = ("from", "value", "template", "secret")
_DURATIONS = {"timer": ("delay",), "signal": ("timeout",), "event": ("timeout",), "form": ("due",)}
_COUNTS = {"map": ("limit", "n", "tolerate"), "loop": ("max",)}
_EXPRESSIONS = {
    "loop": ("while", "until"),
    "map": ("items",),
    "signal": ("reply",),
    "event": ("where",),
}


def expand(document: Document, vocabulary: Vocabulary = PLAIN) -> tuple[Document, dict[Path, Path]]:
    """The full document, and for each rewritten path the one that it was written at."""
    expansion = _Expansion(vocabulary)
    return expansion.definition(document), expansion.moved


class _Expansion:
    def __init__(self, vocabulary: Vocabulary) -> None:
        self.moved: dict[Path, Path] = {}
        self._derived: dict[Path, Path] = {}
        """What follows from something that was written elsewhere (SPEC 2.5)."""
        self._vocabulary = vocabulary

    def definition(self, document: Document) -> Document:
        document, self.moved = derive(document, self._vocabulary.languages)
        self._derived = dict(self.moved)
        full = dict(document)
        full.update(self._scope(document, (), ()))
        if "timeouts" in full:
            full["timeouts"] = _durations(full["timeouts"])
        if "retention" in full:
            full["retention"] = _kept(full["retention"])
        for field in ("outputs", "queries"):
            if field in full:
                full[field] = _expressions(full[field])
        if "data" in full:
            full["data"] = self._data(full["data"])
        if "limits" in full:
            full["limits"] = _limits(full["limits"])
        return full

    def _data(self, data: Document) -> Document:
        full: Document = {}
        for name, datum in data.items():
            if isinstance(datum, dict):
                full[name] = datum
            else:
                full[name] = {"value": datum}
                self.moved[("data", name, "value")] = ("data", name)
        return full

    def _scope(self, scope: Document, at: Path, written: Path) -> Document:
        """Tasks and links of one scope, its start and end added."""
        tasks: Document = {}
        links: list[Document] = []
        for index, link in enumerate(_list(scope.get("links"))):
            if link is not None:  # what was wrong there has left a gap
                origin = self._derived.get((*at, "links", index), (*written, "links", index))
                self._moves((*at, "links", len(links)), origin)
                links.append(self._link(link, (*at, "links", len(links))))
        for name, task in _dict(scope.get("tasks")).items():
            place = (*at, "tasks", name)
            origin = self._derived.get(place, (*written, "tasks", name))
            self._moves(place, origin)
            tasks[name] = self._task(name, _dict(task), place, origin)
            for link, spelled in _after(name, _dict(task), origin):
                self.moved[(*at, "links", len(links))] = spelled
                links.append(self._link(link, (*at, "links", len(links))))
        return self._with_ends(tasks, links, at)

    def _with_ends(self, tasks: Document, links: list[Document], at: Path) -> Document:
        full, linked = add_ends(tasks, links)
        for index, link in enumerate(linked[len(links) :], len(links)):
            real = link["to"] if link["to"] in tasks else link["from"]
            self._moves((*at, "links", index), (*at, "tasks", real))
        return {"tasks": full, "links": linked}

    def _link(self, link: Document, at: Path) -> Document:
        full = dict(link)
        if "when" in full:
            full["condition"] = full.pop("when")
            self._moves((*at, "condition"), (*at, "when"))
        if "condition" in full:
            full["condition"] = self._condition(full["condition"], (*at, "condition"))
        return full

    def _condition(self, condition: Any, at: Path) -> Document:
        if isinstance(condition, dict):
            full = cast("Document", condition)
            return {**full, "expression": _expression(full["expression"])}
        self._moves((*at, "expression"), at)
        return {"expression": _expression(condition)}

    def _task(self, name: str, task: Document, at: Path, written: Path) -> Document:
        full = {key: value for key, value in task.items() if key not in ("after", "when", "do")}
        if "do" in task:
            full["type"] = "activity"
            self._moves((*at, "type"), (*written, "do"))
        kind: Any = full.get("type")
        if kind not in KINDS and kind not in self._vocabulary.types:
            return {"type": UNKNOWN_TYPE}
        config = self._config(kind, name, task, full, at, written)
        full.pop("config", None)
        if config:
            full["config"] = config
        if "inputs" in full:
            full["inputs"] = self._inputs(full["inputs"], (*at, "inputs"))
        if "retry" in full:
            full["retry"] = self._retry(full["retry"], (*at, "retry"))
        if "limits" in full:
            full["limits"] = _limits(full["limits"])
        if "timeout" in full:
            full["timeout"] = self._timeout(full["timeout"], (*at, "timeout"))
        if "when" in task or "conditions" in full:
            full["conditions"] = self._conditions(task, at, written)
        for field in ("onComplete", "onError"):
            if field in full:
                full[field] = self._actions(full[field], (*at, field))
        if "compensate" in full:
            full["compensate"] = self._compensate(full["compensate"], (*at, "compensate"))
        for field in ("reads", "writes"):
            if isinstance(full.get(field), str):
                full[field] = [full[field]]
                self._moves((*at, field, 0), (*written, field))
        if "join" in full:
            full["join"] = _join(full["join"])
        elif kind == "gateway" and _dict(full.get("config")).get("kind") == "parallel":
            full["join"] = {"kind": "all"}
        return full

    def _config(
        self, kind: str, name: str, task: Document, full: Document, at: Path, written: Path
    ) -> Document:
        """The config, with what was written beside `type` moved into it."""
        config = dict(_dict(task.get("config")))

        def take(field: str, spelled: str) -> None:
            config[field] = task[spelled]
            full.pop(spelled, None)
            self._moves((*at, "config", field), (*written, spelled))

        if "do" in task:
            take("activity", "do")
        for field in beside(self._fields(kind)):
            if field in task and field not in config:
                take(field, field)
        # A signal's and a mutex's name, and how long a signal is awaited, are what people mean there.
        if kind in ("signal", "mutex") and "name" in task and "name" not in config:
            take("name", "name")
        if kind in ("signal", "event"):
            if "timeout" not in config and isinstance(task.get("timeout"), (str, int, float)):
                take("timeout", "timeout")
            if kind == "signal" and "name" not in config:
                config["name"] = name
                self._moves((*at, "config", "name"), written)
        for field in _DURATIONS.get(kind, ()):
            if field in config:
                config[field] = _duration(config[field])
        for field in _EXPRESSIONS.get(kind, ()):
            if field in config:
                config[field] = _expression(config[field])
        for field in _COUNTS.get(kind, ()):
            if field in config:
                config[field] = _whole(config[field])
        if kind == "transform" and "set" in config:
            config["set"] = _expressions(config["set"])
        if kind == "cancel" and isinstance(config.get("tasks"), str):
            config["tasks"] = [config["tasks"]]
        if kind in BODY_TYPES and "body" in config:
            config["body"] = self._body(config["body"], (*at, "config", "body"))
        return config

    def _fields(self, kind: str) -> tuple[str, ...]:
        if kind in KINDS:
            return tuple(KINDS[kind].config)
        return self._vocabulary.types[kind].fields

    def _body(self, body: Any, at: Path) -> Any:
        """A scope of its own: a single task becomes the only one in it."""
        written = self._written(at)
        if isinstance(body, str):
            body = {"do": body}
            self.moved[(*at, "do")] = written
        scope = cast("Document", body)
        if "tasks" not in scope or "type" in scope:
            name = _single(scope)
            self.moved[(*at, "tasks", name)] = written
            task = self._task(name, scope, (*at, "tasks", name), written)
            return self._with_ends({name: task}, [], at)
        return {**scope, **self._scope(scope, at, written)}

    def _inputs(self, inputs: Document, at: Path) -> Document:
        full: Document = {}
        for name, given in inputs.items():
            if isinstance(given, dict) and any(word in given for word in SOURCE_WORDS):
                full[name] = given
            elif isinstance(given, str) and "${" in given:
                full[name] = {"template": given}
                self._moves((*at, name, "template"), (*at, name))
            else:
                full[name] = {"value": given}
                self._moves((*at, name, "value"), (*at, name))
        return full

    def _retry(self, retry: Any, at: Path) -> Document:
        if not isinstance(retry, dict):
            self._moves((*at, "attempts"), at)
            return {"attempts": _whole(retry)}
        full = dict(cast("Document", retry))
        if "attempts" in full:
            full["attempts"] = _whole(full["attempts"])
        for field in ("first", "maximum"):
            if field in full:
                full[field] = _duration(full[field])
        if isinstance(full.get("never"), str):
            full["never"] = [full["never"]]
        return full

    def _timeout(self, timeout: Any, at: Path) -> Any:
        if isinstance(timeout, dict):
            return _durations(timeout)
        self._moves((*at, "startToClose"), at)
        return {"startToClose": _duration(timeout)}

    def _conditions(self, task: Document, at: Path, written: Path) -> Any:
        given = task.get("conditions", [])
        conditions: list[Any] = list(given) if isinstance(given, list) else [given]  # pyright: ignore[reportUnknownArgumentType] (a document is Any)
        place = (*at, "conditions")
        if not isinstance(given, list):
            self._moves((*place, 0), (*written, "conditions"))
        if "when" in task:
            self._moves((*place, len(conditions)), (*written, "when"))
            conditions.append(task["when"])
        return [self._condition(one, (*place, index)) for index, one in enumerate(conditions)]

    def _actions(self, actions: Any, at: Path) -> list[Document]:
        if isinstance(actions, dict):
            self._moves((*at, 0), at)
            actions = [actions]
        return [
            {**action, "set": _expressions(action["set"])} if "set" in action else action
            for action in cast("list[Document]", actions)
        ]

    def _compensate(self, compensate: Any, at: Path) -> Document:
        if isinstance(compensate, str):
            self._moves((*at, "activity"), at)
            return {"activity": compensate}
        full = dict(cast("Document", compensate))
        if "do" in full:
            full["activity"] = full.pop("do")
            self._moves((*at, "activity"), (*at, "do"))
        if "inputs" in full:
            full["inputs"] = self._inputs(full["inputs"], (*at, "inputs"))
        if "retry" in full:
            full["retry"] = self._retry(full["retry"], (*at, "retry"))
        return full

    def _moves(self, path: Path, written: Path) -> None:
        written = self._written(written)
        if path != written:
            self.moved[path] = written

    def _written(self, path: Path) -> Path:
        """A path of the expansion as far as it is known, led back to the text."""
        for length in range(len(path), 0, -1):
            found = self.moved.get(path[:length])
            if found is not None:
                return found + path[length:]
        return path


def _limits(limits: Document) -> Document:
    """Of a task or the definition: counts as whole numbers, the key as an expression."""
    full = dict(limits)
    for field in ("concurrency", "runs"):
        if field in full:
            full[field] = _whole(full[field])
    if "key" in full:
        full["key"] = _expression(full["key"])
    return full


def _after(name: str, task: Document, origin: Path) -> list[tuple[Document, Path]]:
    after = task.get("after")
    if isinstance(after, str):
        return [({"from": after, "to": name}, (*origin, "after"))]
    if isinstance(after, dict):
        return [({**after, "to": name}, (*origin, "after"))]
    links: list[tuple[Document, Path]] = []
    for index, one in enumerate(_list(after)):
        if isinstance(one, str):
            links.append(({"from": one, "to": name}, (*origin, "after", index)))
        elif one is not None:  # what was wrong there has left a gap
            links.append(({**one, "to": name}, (*origin, "after", index)))
    return links


def _single(task: Document) -> str:
    """What the only task of a body is called: its activity, if that can be an id, else its type."""
    config = _dict(task.get("config"))
    activity = task.get("do", task.get("activity", config.get("activity")))
    if isinstance(activity, str) and ID.match(activity):
        return activity
    kind = task.get("type", "activity")
    return kind if isinstance(kind, str) and ID.match(kind) else "task"


def _join(join: Any) -> Any:
    if isinstance(join, str):
        return {"kind": join}
    full = dict(cast("Document", join))
    if "n" in full:
        full["n"] = _whole(full["n"])
    if "kind" not in full:
        for kind in ("any", "all", "merge"):
            if full.get(kind) is True:
                del full[kind]
                full["kind"] = kind
                return full
        if "n" in full:
            full["kind"] = "n"
    return full


def _duration(value: Any) -> Any:
    if isinstance(value, str):
        found = seconds(value)
        return value if found is None else found
    return value


def _durations(values: Any) -> Document:
    return {key: _duration(value) for key, value in cast("Document", values).items()}


def _kept(values: Any) -> Document:
    return {
        key: value if value == FOREVER else _duration(value)
        for key, value in cast("Document", values).items()
    }


def _whole(value: Any) -> Any:
    """JSON has one kind of number: a count may be written `3.0`."""
    return int(value) if isinstance(value, float) else value


def _expression(value: Any) -> Any:
    """An expression is text; a number, true, false or null is what it says."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    return value


def _expressions(values: Any) -> Document:
    return {key: _expression(value) for key, value in cast("Document", values).items()}


def _dict(value: Any) -> Document:
    return cast("Document", value) if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
