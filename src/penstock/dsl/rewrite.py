"""One way to orchestrate rewritten as another, where both give the same tasks and the same outcome (SPEC 2.5).

Works on documents as they are stored, and gives one like that. Where the other way cannot say the same, Rejected names the
task or link that stands in the way. Only the tasks that make up the way itself differ: waits for events, the loop of rules.
"""

from __future__ import annotations

from typing import Any, Literal, cast, get_args

from penstock.core.vocabulary import mentioned_in
from penstock.dsl.derive import OWN, sources
from penstock.errors import Rejected
from penstock.policy.topics import is_topic

Document = dict[str, Any]
Way = Literal["control", "data", "event", "rule"]
WAYS: tuple[Way, ...] = get_args(Way)


def rewrite(source: Any, to: Way) -> Document:
    """The definition (a document, a Loaded or a composition) orchestrated by `to`."""
    from penstock.dsl.compose import Composition
    from penstock.dsl.load import Loaded, load_document

    if to not in WAYS:
        raise Rejected("rewrite-impossible", f"`{to}` is none of {', '.join(WAYS)}")
    if isinstance(source, Composition):
        source = source.document
    document = source.document if isinstance(source, Loaded) else load_document(source).document
    have = document.get("orchestration", "control")
    if have == to:
        return document
    for language in sorted(mentioned_in(document).languages):
        raise _impossible(
            f"a condition in the language `{language}`", "is read by its plugin alone"
        )
    if have == "rule" and to != "control":
        raise _impossible("a table of rules", "is rewritten as control flow alone")
    document = _to_control(document, have)
    match to:
        case "control":
            return document
        case "data":
            _check_bodies(document)
            return {**document, "orchestration": "data", "links": _unread(document)}
        case "event":
            return _to_events(document)
        case "rule":
            return _to_rules(document)


def _to_control(document: Document, have: str) -> Document:
    """Links are written out when a definition is read; of events, those that only a task of its own gives are links."""
    document = {k: v for k, v in document.items() if k not in ("orchestration", "rules")}
    return _without_events(document) if have == "event" else document


def _impossible(what: str, why: str) -> Rejected:
    return Rejected("rewrite-impossible", f"{what} {why}", hint="leave this part as it is")


# --- to data flow --------------------------------------------------------------------------------------------


def _unread(document: Document) -> list[Document]:
    """The links that stay: from the start and to the ends. All others must be read off the inputs."""
    tasks, kept = document["tasks"], list[Document]()
    for link in document["links"]:
        source, target = link["from"], link["to"]
        if tasks[source]["type"] == "start" or tasks[target]["type"] == "end":
            _check_plain(document, link)
            kept.append(link)
            continue
        _check_plain(document, link)
        if source not in {read for read, _ in sources(tasks[target])}:
            raise _impossible(
                f"the link from `{source}` to `{target}`",
                f"is an order that no input of `{target}` gives",
            )
    _check_linked(document)
    return kept


def _check_linked(scope: Document) -> None:
    """What is read was waited for already: no link would be added."""
    tasks = scope["tasks"]
    written = {(link["from"], link["to"]) for link in scope["links"]}
    for id, task in tasks.items():
        for read, _ in sources(task):
            if read in tasks and read != id and (read, id) not in written:
                raise _impossible(f"`{id}` reads `{read}`", "without a link between them")


def _check_bodies(scope: Document) -> None:
    for task in scope["tasks"].values():
        body = _dict(task.get("config")).get("body")
        if isinstance(body, dict):
            _check_linked(cast("Document", body))
            _check_bodies(cast("Document", body))


def _check_plain(document: Document, link: Document) -> None:
    """Taken whenever its task has completed."""
    name = f"the link from `{link['from']}` to `{link['to']}`"
    if link.get("on", "success") != "success":
        raise _impossible(name, f"is taken on {link['on']}")
    if link.get("condition"):
        raise _impossible(name, "has a condition")
    for id in (link["from"], link["to"]):
        if document["tasks"][id]["type"] == "gateway":
            raise _impossible(f"gateway `{id}`", "decides by links")
    if document["tasks"][link["to"]].get("join", {}).get("kind", "merge") not in ("merge", "all"):
        raise _impossible(f"`{link['to']}`", "counts the links that lead to it")


# --- to events and back --------------------------------------------------------------------------------------


def _to_events(document: Document) -> Document:
    """Each task tells that it is done, and those that follow wait for that."""
    tasks: Document = {id: dict(task) for id, task in document["tasks"].items()}
    start = next(id for id, task in tasks.items() if task["type"] == "start")
    links: list[Document] = []
    for link in document["links"]:
        source, target = link["from"], link["to"]
        _check_plain(document, link)
        if tasks[source]["type"] == "start" or tasks[target]["type"] == "end":
            links.append(link)
            continue
        if tasks[source].get("conditions"):
            raise _impossible(f"`{source}`", "may be skipped, and would then tell nobody")
        topic = f"{document['id']}.{source}.done"
        _tell(tasks[source], topic)
        wait = _free(f"on_{target}_{source}", tasks)
        tasks[wait] = {"type": "event", "config": {"topic": topic, "where": OWN}}
        links += [{"from": start, "to": wait}, {"from": wait, "to": target}]
    end = next((id for id, task in tasks.items() if task == {"type": "end"}), None)
    if end is None:
        raise _impossible("every end", "ends more than the task before it")
    leading = {link["from"] for link in links} | {end}
    links += [{"from": id, "to": end} for id in document["tasks"] if id not in leading]
    result = {} if links == document["links"] else _result(document)
    return {**document, "orchestration": "event", "tasks": tasks, "links": links, **result}


def _result(document: Document) -> Document:
    """What the run gives, said: otherwise it would be what all tasks give, as each now leads to the end."""
    if document.get("outputs") is not None:
        return {}
    tasks: Document = document["tasks"]
    last = [link["from"] for link in document["links"] if tasks[link["to"]]["type"] == "end"]
    if len(last) < 2:
        raise _impossible("the result", f"is that of `{last[0]}`; write `outputs`")
    return {"outputs": {id: f'tasks["{id}"].output' for id in last}}


def _tell(task: Document, topic: str) -> None:
    action = {"publish": {"topic": topic, "payload": None}}
    actions = cast("list[Any]", task.get("onComplete", []))
    if action not in actions:
        task["onComplete"] = [*actions, action]


def _without_events(document: Document) -> Document:
    tasks: Document = document["tasks"]
    waits = {id: task["config"] for id, task in tasks.items() if task["type"] == "event"}
    replaced: dict[str, str] = {}
    for id, config in waits.items():
        replaced[id] = _teller(document, id, config)
    links: list[Document] = []
    for link in document["links"]:
        if link["to"] in waits:
            continue
        if link["from"] in waits:
            _check_plain(document, link)
            link = {**link, "from": replaced[link["from"]]}
        if link not in links:
            links.append(link)
    kept = {id: task for id, task in tasks.items() if id not in waits}
    return {**document, "tasks": kept, "links": _from_start_only_if_first(kept, links)}


def _from_start_only_if_first(tasks: Document, links: list[Document]) -> list[Document]:
    led = {link["to"] for link in links if tasks[link["from"]]["type"] != "start"}
    return [
        link for link in links if not (tasks[link["from"]]["type"] == "start" and link["to"] in led)
    ]


def _teller(document: Document, id: str, config: Document) -> str:
    """The one task that gives the event a task waits for, always and to this run alone."""
    tasks: Document = document["tasks"]
    topic = config["topic"]
    if not is_topic(topic) or "${" in topic or "type" in config or "timeout" in config:
        raise _impossible(f"`{id}`", "waits for more than one topic, for a type, or not for ever")
    if config["where"] != OWN:
        raise _impossible(f"`{id}`", "waits for events that may come from elsewhere")
    for other, task in tasks.items():
        if id in {read for read, _ in sources(task)}:
            raise _impossible(f"`{other}`", f"reads what the event of `{id}` carries")
    before = [link["from"] for link in document["links"] if link["to"] == id]
    if any(tasks[source]["type"] != "start" for source in before):
        raise _impossible(f"`{id}`", "does not wait from the start on")
    tellers = [name for name, task in tasks.items() if _tells(task, topic)]
    if len(tellers) != 1:
        said = "nobody" if not tellers else " and ".join(f"`{each}`" for each in tellers)
        raise _impossible(f"`{id}`", f"waits for `{topic}`, which {said} in this definition gives")
    teller = tasks[tellers[0]]
    if teller.get("conditions") or any(
        link["from"] == tellers[0] and link.get("on") for link in document["links"]
    ):
        raise _impossible(f"`{tellers[0]}`", f"may end without telling `{id}`")
    return tellers[0]


def _tells(task: Document, topic: str) -> bool:
    if task["type"] == "publish":
        return task["config"]["topic"] == topic
    return any(
        _dict(action.get("publish")).get("topic") == topic
        for field in ("onComplete", "onError")
        for action in task.get(field, [])
    )


# --- to rules ------------------------------------------------------------------------------------------------


def _to_rules(document: Document) -> Document:
    """One rule a task: when all that lead to it are done. One after another, as rules fire."""
    tasks: Document = document["tasks"]
    if any("tasks." in str(text) for text in _dict(document.get("outputs")).values()):
        raise _impossible("`outputs`", "reads tasks, and rules keep what they gave as data")
    if document.get("outputs") is None:
        raise _impossible("the result", "is that of the last task; write `outputs` over `data`")
    work = {id: task for id, task in tasks.items() if task["type"] not in ("start", "end")}
    before: dict[str, list[str]] = {id: [] for id in work}
    for link in document["links"]:
        _check_plain(document, link)
        if link["from"] in work and link["to"] in work:
            before[link["to"]].append(link["from"])
    rules: list[Document] = []
    made: Document = {}
    for id, task in work.items():
        read = next((read for read, _ in sources(task) if read in tasks), None)
        if read is not None:
            raise _impossible(f"`{id}`", f"reads task `{read}`; rules pass values by data")
        if task.get("conditions"):
            raise _impossible(f"`{id}`", "may be skipped, and would then never be done")
        done = [f"data.{_done(each)}" for each in before[id]]
        rules.append({"when": " && ".join(done) or "true", "task": id})
        flag = {"set": {_done(id): "true"}}
        made[id] = {**task, "onComplete": [*task.get("onComplete", []), flag]}
        made[id].pop("join", None)
    rules.append({"until": " && ".join(f"data.{_done(id)}" for id in work) or "true"})
    data = {**_dict(document.get("data")), **{_done(id): {"value": False} for id in work}}
    rest = {name: value for name, value in document.items() if name not in ("tasks", "links")}
    return {**rest, "orchestration": "rule", "rules": rules, "data": data, "tasks": made}


def _done(id: str) -> str:
    return f"{id.replace('-', '_')}_done"


def _free(name: str, tasks: Document) -> str:
    while name in tasks:
        name += "_"
    return name


def _dict(value: Any) -> Document:
    return cast("Document", value) if isinstance(value, dict) else {}
