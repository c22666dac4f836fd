"""Edits by chance: a definition becomes its next version, as people change them.

Each kind of edit is a function of a document (as `support/definitions.py` makes them); what is no definition afterwards is
for the caller to throw away.
"""

from __future__ import annotations

import re
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

Document = dict[str, Any]
CALM_KINDS = ("insert", "append", "content", "rename", "outputs", "data", "retry")
"""They leave what a run has passed as it would be in the new version."""
PAST_KINDS = ("remove", "guard", "join", "swap", "undo", "loop", "unlink")
"""After them a run of the new version may have come another way."""
KINDS = (*CALM_KINDS, *PAST_KINDS)


@dataclass
class Edit:
    document: Document
    mapping: dict[str, str] = field(default_factory=dict[str, str])
    kinds: list[str] = field(default_factory=list[str])
    old: dict[str, str] = field(default_factory=dict[str, str])
    """New ids of renamed tasks and what they were called; ids are unique in a document."""


def _bodies(body: Document, path: str = "") -> list[tuple[str, Document]]:
    found = [(path, body)]
    for id, task in body["tasks"].items():
        if "body" in task and "tasks" in task["body"]:
            found += _bodies(task["body"], f"{path}/{id}" if path else id)
    return found


@st.composite
def edits(draw: Any, document: Document, kinds: tuple[str, ...] = KINDS) -> Edit:
    edit = Edit(deepcopy(document))
    for number in range(draw(st.integers(1, 3))):
        path, body = draw(st.sampled_from(_bodies(edit.document)))
        kind = draw(st.sampled_from(kinds))
        _EDITS[kind](draw, edit, path, body, f"x{number}")
        edit.kinds.append(kind)
    return edit


def _insert(draw: Any, edit: Edit, path: str, body: Document, name: str) -> None:
    if not body["links"]:
        return _append(draw, edit, path, body, name)
    link = draw(st.sampled_from(body["links"]))
    body["tasks"][name] = {"do": "x"}
    body["links"].append({"from": name, "to": link["to"]})
    link["to"] = name
    return None


def _append(draw: Any, edit: Edit, path: str, body: Document, name: str) -> None:
    id = draw(st.sampled_from(list(body["tasks"])))
    body["tasks"][name] = {"do": "x"}
    body["links"].append({"from": id, "to": name})


def _plain(body: Document) -> list[str]:
    return [id for id, task in body["tasks"].items() if "do" in task]


def _content(draw: Any, edit: Edit, path: str, body: Document, name: str) -> None:
    ids = _plain(body)
    if ids:
        body["tasks"][draw(st.sampled_from(ids))]["inputs"] = {"extra": {"value": name}}


def _retry(draw: Any, edit: Edit, path: str, body: Document, name: str) -> None:
    ids = _plain(body)
    if ids:
        body["tasks"][draw(st.sampled_from(ids))]["retry"] = {"attempts": 9}


def _undo(draw: Any, edit: Edit, path: str, body: Document, name: str) -> None:
    ids = _plain(body)
    if ids:
        body["tasks"][draw(st.sampled_from(ids))]["compensate"] = "undo2"


def _rename(draw: Any, edit: Edit, path: str, body: Document, name: str) -> None:
    id = draw(st.sampled_from(list(body["tasks"])))
    if id in edit.old or any(part in edit.old for part in path.split("/")):
        return
    was = f"{path}/{id}" if path else id
    inner = [each for each in edit.mapping if each.startswith(was + "/")]
    if inner or id.startswith("x"):
        return
    body["tasks"] = {(name if each == id else each): task for each, task in body["tasks"].items()}
    for link in body["links"]:
        for end in ("from", "to"):
            if link[end] == id:
                link[end] = name
    _rewrite(edit.document, id, name)
    edit.mapping[was] = f"{path}/{name}" if path else name
    edit.old[name] = id


def _rewrite(value: Any, id: str, name: str) -> None:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, each in list(items):
        if isinstance(each, dict | list):
            _rewrite(each, id, name)
        elif isinstance(each, str):
            if each == id and (key in ("default", "from") or isinstance(value, list)):
                value[key] = name
            else:
                value[key] = re.sub(rf"\btasks\.{id}\b", f"tasks.{name}", each)


def _outputs(draw: Any, edit: Edit, path: str, body: Document, name: str) -> None:
    edit.document["outputs"] = {"all": "data.all", "total": "data.sum + 1"}


def _data(draw: Any, edit: Edit, path: str, body: Document, name: str) -> None:
    edit.document["data"] = {**edit.document["data"], name: {"value": 7}}


def _remove(draw: Any, edit: Edit, path: str, body: Document, name: str) -> None:
    if len(body["tasks"]) < 2:
        return
    id = draw(st.sampled_from(list(body["tasks"])))
    before = [link for link in body["links"] if link["to"] == id and link["from"] != id]
    after = [link for link in body["links"] if link["from"] == id and link["to"] != id]
    body["links"] = [link for link in body["links"] if id not in (link["from"], link["to"])]
    del body["tasks"][id]
    known = {(link["from"], link["to"]) for link in body["links"]}
    for one in before:
        for other in after:
            if (one["from"], other["to"]) not in known and one["from"] != other["to"]:
                known.add((one["from"], other["to"]))
                body["links"].append({**one, "to": other["to"]})


def _guard(draw: Any, edit: Edit, path: str, body: Document, name: str) -> None:
    if body["links"]:
        link = draw(st.sampled_from(body["links"]))
        link["when"] = draw(st.sampled_from(["true", "input.n % 2 == 0", "false"]))


def _unlink(draw: Any, edit: Edit, path: str, body: Document, name: str) -> None:
    if body["links"]:
        body["links"].remove(draw(st.sampled_from(body["links"])))


def _join(draw: Any, edit: Edit, path: str, body: Document, name: str) -> None:
    id = draw(st.sampled_from(list(body["tasks"])))
    body["tasks"][id]["join"] = draw(st.sampled_from(["merge", "all", "any"]))


def _swap(draw: Any, edit: Edit, path: str, body: Document, name: str) -> None:
    """Two tasks change places."""
    ids = list(body["tasks"])
    one, other = draw(st.sampled_from(ids)), draw(st.sampled_from(ids))
    turned = {one: other, other: one}
    for link in body["links"]:
        for end in ("from", "to"):
            link[end] = turned.get(link[end], link[end])


def _loop(draw: Any, edit: Edit, path: str, body: Document, name: str) -> None:
    """A link leads back: tasks come into a natural loop."""
    ids = list(body["tasks"])
    one, other = draw(st.sampled_from(ids)), draw(st.sampled_from(ids))
    body["links"].append({"from": one, "to": other, "when": "iteration < 2"})


_EDITS = {
    "insert": _insert, "append": _append, "content": _content, "rename": _rename, "outputs": _outputs, "data": _data,
    "retry": _retry, "remove": _remove, "guard": _guard, "join": _join, "swap": _swap, "undo": _undo, "loop": _loop,
    "unlink": _unlink,
}  # fmt: skip
