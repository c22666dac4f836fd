"""Links that nobody wrote: order that follows from data, from bus events or from a table of rules (SPEC 2.5).

One engine runs all four: what is not control flow becomes control flow here, before shorthand is expanded, and is stored so.
To derive what is derived already changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from penstock.core.vocabulary import CEL
from penstock.dsl.finding import Path
from penstock.errors import ExpressionError
from penstock.expr.compile import compile_expression
from penstock.expr.language import Language, compile_foreign
from penstock.expr.template import compile_template

Document = dict[str, Any]
Moves = dict[Path, Path]

OWN = "event.run == run.id"
"""Which events begin a task where its `on` does not say: those of its own run."""
RULES = "rules"
"""The loop that works a table of rules off."""
FIRINGS_MAX = 1000
_EXPRESSIONS = (
    "when", "condition", "conditions", "while", "until", "items", "reply", "where", "key", "set",
)  # fmt: skip
_SILENT = ("after", "on", "name", "links", "language")
_BODY = ("tasks", RULES, "config", "body")


def derive(
    document: Document, languages: Mapping[str, Language] | None = None
) -> tuple[Document, Moves]:
    """The document with all its links, and for each new path the one that it follows from; `languages` are those of
    plugins that its conditions are written in."""
    moves: Moves = {}
    tasks = document.get("tasks")
    if not isinstance(tasks, dict):
        return document, moves
    document = {**document, **_begun_by_events(document, (), moves)}
    match document.get("orchestration"):
        case "data":
            return {**document, **_by_data(document, (), moves, languages or {})}, moves
        case "rule":
            return _by_rules(document, moves), moves
        case _:
            return document, moves


# --- data flow -----------------------------------------------------------------------------------------------


def _by_data(
    scope: Document, at: Path, moves: Moves, languages: Mapping[str, Language]
) -> Document:
    """A link from each task to those that read its output, unless one is written."""
    tasks = _dict(scope.get("tasks"))
    links = _links(scope)
    known = {(_dict(link).get("from"), _dict(link).get("to")) for link in links}
    known |= {(source, id) for id, task in tasks.items() for source in _after(_dict(task))}
    full: Document = {}
    for id, task in tasks.items():
        full[id] = _with_body(task, (*at, "tasks", id), moves, languages)
        for source, place in sources(task, languages):
            if source in tasks and source != id and (source, id) not in known:
                known.add((source, id))
                moves[(*at, "links", len(links))] = (*at, "tasks", id, *place)
                links.append({"from": source, "to": id})
    return {**scope, "tasks": full, "links": links}


def _with_body(task: Any, at: Path, moves: Moves, languages: Mapping[str, Language]) -> Any:
    if not isinstance(task, dict):
        return task
    full = cast("Document", task)
    for holder, path in ((full, at), (_dict(full.get("config")), (*at, "config"))):
        body = holder.get("body")
        if isinstance(body, dict) and isinstance(cast("Document", body).get("tasks"), dict):
            within = _by_data(cast("Document", body), (*path, "body"), moves, languages)
            inner = {**holder, "body": within}
            return inner if holder is full else {**full, "config": inner}
    return full


def sources(
    task: Any, languages: Mapping[str, Language] | None = None
) -> Iterator[tuple[str, Path]]:
    """Tasks whose outcome a task reads, each with the place where it does."""
    inside = set(_inner(task))
    for place, value, expression in _read_in(task, (), False):
        if place[-1:] == ("from",) and "inputs" in place:
            if isinstance(value, str) and value not in inside:
                yield value, place
        else:
            if isinstance(value, _Spoken):
                reads = _reads_in(value, languages or {})
            else:
                reads = _reads(value, expression=expression) if isinstance(value, str) else []
            for read in reads:
                if len(read) > 1 and read[0] == "tasks" and read[1] not in inside:
                    yield read[1], place


def _read_in(value: Any, at: Path, expression: bool) -> Iterator[tuple[Path, Any, bool]]:
    """Every value of a task, and whether its place is that of an expression."""
    if isinstance(value, dict):
        given = cast("Document", value)
        language, text = given.get("language"), given.get("expression")
        if expression and isinstance(language, str) and isinstance(text, str) and language != CEL:
            yield (*at, "expression"), _Spoken(language, text), True
            return
        for name, inner in given.items():
            if name in _SILENT and "inputs" not in at:
                continue
            said = (expression or name in _EXPRESSIONS) and "inputs" not in at and name != "inputs"
            yield from _read_in(inner, (*at, name), said and name not in ("body", "tasks"))
    elif isinstance(value, list):
        for index, inner in enumerate(cast("list[Any]", value)):
            yield from _read_in(inner, (*at, index), expression)
    else:
        yield at, value, expression


@dataclass(frozen=True, slots=True)
class _Spoken:
    """A condition in a language that is not CEL."""

    language: str
    text: str


def _reads_in(said: _Spoken, languages: Mapping[str, Language]) -> list[tuple[str, ...]]:
    language = languages.get(said.language)
    if language is None:
        return []  # the verifier says so
    try:
        return sorted(compile_foreign(said.language, language, said.text).reads)
    except ExpressionError:
        return []


def _reads(text: str, *, expression: bool) -> list[tuple[str, ...]]:
    """Sorted, so that the same document always gets the same links."""
    try:
        if "${" in text:
            return sorted(compile_template(text).reads)
        return sorted(compile_expression(text).reads) if expression else []
    except ExpressionError:
        return []  # the verifier says so


def _inner(task: Any) -> Iterator[str]:
    """Ids of the tasks inside a body, at any depth."""
    if isinstance(task, dict):
        for name, value in cast("Document", task).items():
            if name == "body" and isinstance(value, dict):
                yield from _dict(cast("Document", value).get("tasks"))
            yield from _inner(value)


# --- events --------------------------------------------------------------------------------------------------


def _begun_by_events(scope: Document, at: Path, moves: Moves) -> Document:
    """`on: TOPIC`: a task that waits for the event stands before the one that it begins."""
    tasks = _dict(scope.get("tasks"))
    if not any(isinstance(task, dict) and "on" in task for task in tasks.values()):
        return scope
    full: Document = {}
    links = _links(scope)
    for id, task in tasks.items():
        if not isinstance(task, dict) or "on" not in task:
            full[id] = task
            continue
        given = cast("Document", task)
        rest = {name: value for name, value in given.items() if name not in ("on", "after")}
        written = given["on"]
        events: list[Any] = cast("list[Any]", written) if isinstance(written, list) else [written]
        for place, event in enumerate(events):
            name = _free(f"on_{id}" if len(events) == 1 else f"on_{id}_{place + 1}", tasks, full)
            origin = (*at, "tasks", id, "on", *((place,) if isinstance(written, list) else ()))
            config = {"topic": event} if isinstance(event, str) else dict(_dict(event))
            full[name] = {"type": "event", "config": {**config, "where": config.get("where", OWN)}}
            if "after" in given:
                full[name]["after"] = given["after"]
            moves[(*at, "tasks", name)] = moves[(*at, "tasks", name, "config")] = origin
            moves[(*at, "links", len(links))] = origin
            links.append({"from": name, "to": id})
        full[id] = rest
    return _led_to_an_end({**scope, "tasks": full, "links": links})


def _led_to_an_end(scope: Document) -> Document:
    """Where an end was written for one of the tasks, the others that lead nowhere get one too."""
    tasks, links = _dict(scope["tasks"]), list(scope["links"])
    if not any(_dict(task).get("type") == "end" for task in tasks.values()):
        return scope
    leading = {_dict(link).get("from") for link in links}
    leading |= {source for task in tasks.values() for source in _after(_dict(task))}
    last = [
        id for id, task in tasks.items() if id not in leading and _dict(task).get("type") != "end"
    ]
    if not last:
        return scope
    end = _free("end", tasks, {})
    links += [{"from": id, "to": end} for id in last]
    return {**scope, "tasks": {**tasks, end: {"type": "end"}}, "links": links}


# --- rules ---------------------------------------------------------------------------------------------------


def _by_rules(document: Document, moves: Moves) -> Document:
    """A loop: each pass looks at the table and does the first rule that is armed and holds, until the end is reached.

    A rule is armed at first, disarmed when it fires, and armed again once its condition is seen not to hold: it fires when
    its condition turns true. The output of a task is kept as data of its name, which conditions read.
    """
    tasks = _dict(document["tasks"])
    table = [_dict(rule) for rule in _list(document.get("rules"))]
    if RULES in tasks or not table:
        return document  # derived already, or nothing to go by: the verifier says so
    ends = [rule for rule in table if "until" in rule]
    order = sorted(
        (place for place, rule in enumerate(table) if "task" in rule and "when" in rule),
        key=lambda place: (table[place].get("priority", 0), place),
    )
    rules = [table[place] for place in order]
    body_tasks, links = _agenda(rules, [str(end["until"]) for end in ends])
    for name in ("rules_look", "rules_agenda", "rules_next", "rules_over"):
        moves[(*_BODY, "tasks", name)] = ("rules",)
    last = next((place for place, rule in enumerate(table) if "until" in rule), None)
    moves[(*_BODY, "links", 2)] = ("rules",) if last is None else ("rules", last, "until")
    for place, index in enumerate(order):
        moves[(*_BODY, "tasks", f"rules_{place + 1}")] = ("rules", index)
        moves[(*_BODY, "links", 3 + 2 * place)] = ("rules", index, "when")
        moves[(*_BODY, "links", 4 + 2 * place)] = ("rules", index)
    moves[_BODY] = ()
    moves[("tasks", RULES)] = ("rules",)
    for id, task in tasks.items():
        body_tasks[id] = _kept(id, task)
    data = {id: None for id in tasks if id not in _dict(document.get("data"))}
    flags = {"type": "array", "items": {"type": "boolean"}}
    state = {
        "rules_armed": {"value": [True] * len(rules), "schema": flags},
        "rules_hold": {"value": [False] * len(rules), "schema": flags},
        "rules_over": {"value": False, "schema": {"type": "boolean"}},
    }
    limit = max(
        (end["max"] for end in ends if isinstance(end.get("max"), int)), default=FIRINGS_MAX
    )
    loop = {
        "until": "data.rules_over",
        "max": limit + 1,
        "body": {"tasks": body_tasks, "links": [*links, *_links(document)]},
    }
    full = {name: value for name, value in document.items() if name != "links"}
    full["data"] = {**data, **state, **_dict(document.get("data"))}
    full["tasks"] = {RULES: {"type": "loop", "config": loop}}
    return full


def _agenda(rules: list[Document], until: list[str]) -> tuple[Document, list[Document]]:
    count = range(len(rules))
    holds = ", ".join(f"({rule['when']})" for rule in rules)
    armed = ", ".join(f"data.rules_armed[{n}] || !data.rules_hold[{n}]" for n in count)
    tasks: Document = {
        "rules_look": {"type": "start"},
        "rules_agenda": {
            "type": "transform",
            "config": {"set": {"rules_hold": f"[{holds}]", "rules_armed": f"[{armed}]"}},
        },
        "rules_next": {"type": "gateway", "config": {"kind": "exclusive", "ordered": True}},
        "rules_over": {"type": "transform", "config": {"set": {"rules_over": "true"}}},
    }
    links: list[Document] = [
        {"from": "rules_look", "to": "rules_agenda"},
        {"from": "rules_agenda", "to": "rules_next"},
    ]
    end = " || ".join(f"({text})" for text in until) or "false"
    links.append({"from": "rules_next", "to": "rules_over", "condition": end})
    for n, rule in enumerate(rules):
        name = f"rules_{n + 1}"
        after = ", ".join("false" if m == n else f"data.rules_armed[{m}]" for m in count)
        tasks[name] = {"type": "transform", "config": {"set": {"rules_armed": f"[{after}]"}}}
        links.append({"from": "rules_next", "to": name, "condition": fires(n)})
        links.append({"from": name, "to": rule["task"]})
    return tasks, links


def fires(place: int) -> str:
    """The condition with which the rule at that place of the agenda fires."""
    return f"data.rules_armed[{place}] && data.rules_hold[{place}]"


def _kept(id: str, task: Any) -> Any:
    """The task, whose output becomes data of its name."""
    if not isinstance(task, dict):
        return task
    full = cast("Document", task)
    actions = full.get("onComplete", [])
    actions = cast("list[Any]", actions) if isinstance(actions, list) else [actions]
    return {**full, "onComplete": [{"set": {id: f"tasks.{id}.output"}}, *actions]}


# --- documents, as far as they are what they should be ------------------------------------------------------


def _after(task: Document) -> list[str]:
    after = task.get("after")
    ways: list[Any] = cast("list[Any]", after) if isinstance(after, list) else [after]
    names = [_dict(way).get("from") if isinstance(way, dict) else way for way in ways]
    return [name for name in names if isinstance(name, str)]


def _links(scope: Document) -> list[Any]:
    return list(_list(scope.get("links")))


def _free(name: str, *taken: Document) -> str:
    while any(name in each for each in taken):
        name += "_"
    return name


def _dict(value: Any) -> Document:
    return cast("Document", value) if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
