"""The published JSON Schema of a definition, shorthand included; `python -m penstock.dsl.schema` prints it.

Built so that its errors can be told to people (`complain.py`): alternatives by JSON type stand in one
schema instead of under `anyOf`, each has a `title` that completes "must be ...", and `x-needs` names the
fields of which exactly one must be there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from penstock.policy.durations import PATTERN as DURATION
from penstock.policy.retention import FIELDS as RETENTION
from penstock.policy.retention import FOREVER

Schema = dict[str, Any]

ID = r"^[A-Za-z_][A-Za-z0-9_-]*$"
ID_CHARACTERS_MAX = 200
LATER_DURATION = DURATION + r"|\$\{"
URI = "https://penstock.dev/schema/definition-1.json"


@dataclass(frozen=True, slots=True)
class Kind:
    """What a type of task takes: its config, and the fields of which exactly one must be there."""

    config: Schema = field(default_factory=dict[str, Any])
    needs: tuple[tuple[str, ...], ...] = ()
    added: bool = False
    """By a plugin, whose own schema says what the config holds (`verify/added.py`)."""


def _ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def _list_of(items: Schema, title: str, **more: Any) -> Schema:
    return {"title": title, "type": "array", "items": items, **more}


def _one_or_many(items: Schema, title: str) -> Schema:
    """A text, or a list."""
    return {"title": title, "type": ["string", "array"], "minLength": 1, "items": items}


_TEXT: Schema = {"title": "text", "type": "string"}
_NAME: Schema = {"title": "text", "type": "string", "minLength": 1}
_FLAG: Schema = {"title": "true or false", "type": "boolean"}
_COUNT: Schema = {"title": "a whole number from 1", "type": "integer", "minimum": 1}
_OBJECT: Schema = {"title": "an object", "type": "object"}
_SCHEMA: Schema = {"title": "a JSON Schema", "type": ["object", "boolean"]}
_ANY: Schema = {}
_ID: Schema = {"title": "an id", "type": "string", "pattern": ID, "maxLength": ID_CHARACTERS_MAX}

KINDS: dict[str, Kind] = {
    "start": Kind(),
    "end": Kind({"terminate": _FLAG}),
    "activity": Kind({"activity": _NAME, "queue": _NAME, "once": _FLAG}, (("activity",),)),
    "http": Kind(
        {
            "method": {
                "title": "an HTTP method",
                "enum": ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"],
            },
            "url": _NAME,
            "headers": {**_OBJECT, "additionalProperties": _ref("scalar")},
            "body": _ANY,
        },
        (("method",), ("url",)),
    ),
    "transform": Kind({"set": _ref("expressions")}, (("set",),)),
    "gateway": Kind(
        {
            "kind": {
                "title": "a kind of gateway",
                "enum": ["exclusive", "parallel", "inclusive", "event"],
            },
            "default": _ID,
            "ordered": {"type": "boolean"},
        },
        (("kind",),),
    ),
    "timer": Kind(
        {"delay": _ref("laterDuration"), "until": _ref("moment")},
        (("delay", "until"),),
    ),
    "signal": Kind(
        {
            "name": _NAME,
            "schema": _SCHEMA,
            "timeout": _ref("laterDuration"),
            "reply": _ref("expression"),
            "transient": _FLAG,
        }
    ),
    "event": Kind(
        {
            "topic": _NAME,
            "type": _NAME,
            "where": _ref("expression"),
            "timeout": _ref("laterDuration"),
        },
        (("topic",), ("where",)),
    ),
    "publish": Kind({"topic": _NAME, "payload": _ANY}, (("topic",), ("payload",))),
    "subworkflow": Kind(
        {"definition": _NAME, "version": _NAME, "detached": _FLAG}, (("definition",),)
    ),
    "map": Kind(
        {
            "items": _ref("expression"),
            "body": _ref("body"),
            "limit": _COUNT,
            "n": _COUNT,
            "cancel": _FLAG,
            "more": _NAME,
            "onItemError": {"title": "what to do", "enum": ["fail", "collect"]},
            "tolerate": {
                "title": "a number of items",
                "type": "integer",
                "minimum": 0,
            },
        },
        (("items",), ("body",)),
    ),
    "loop": Kind(
        {
            "while": _ref("expression"),
            "until": _ref("expression"),
            "body": _ref("body"),
            "max": _COUNT,
        },
        (("while", "until"), ("body",)),
    ),
    "form": Kind(
        {"schema": _SCHEMA, "assignee": _NAME, "due": _ref("laterDuration")}, (("schema",),)
    ),
    "cancel": Kind({"tasks": _one_or_many(_ID, "a task or a list of tasks")}, (("tasks",),)),
    "mutex": Kind({"name": _NAME, "body": _ref("body")}, (("name",), ("body",))),
}

TASK: dict[str, Schema] = {
    "type": {"title": "a type of task", "type": "string"},
    "name": _TEXT,
    "config": _OBJECT,
    "inputs": _ref("inputs"),
    "outputSchema": _SCHEMA,
    "retry": _ref("retry"),
    "timeout": _ref("timeout"),
    "conditions": {
        "title": "a condition or a list of them",
        "type": ["string", "boolean", "array"],
        "minLength": 1,
        "items": _ref("condition"),
    },
    "onComplete": _ref("actions"),
    "onError": _ref("actions"),
    "compensate": _ref("compensate"),
    "reads": _one_or_many(_NAME, "a path or a list of paths"),
    "writes": _one_or_many(_NAME, "a path or a list of paths"),
    "join": _ref("join"),
    "resources": _OBJECT,
    "priority": _ref("priority"),
    "queue": _NAME,
    "limits": _ref("taskLimits"),
}
SHORTHAND: dict[str, Schema] = {
    "after": {
        "title": "a task or a list of tasks",
        "type": ["string", "array", "object"],
        "minLength": 1,
        "items": _ref("way"),
        "$ref": "#/$defs/wayFields",
    },
    "when": _ref("condition"),
    "on": {
        "title": "a topic, an object with `topic`, or a list of them",
        "type": ["string", "object", "array"],
        "minLength": 1,
        "items": _ref("occasion"),
        "$ref": "#/$defs/occasionFields",
    },
}

TASK_FIELDS = tuple(TASK)
Added = tuple[tuple[str, tuple[str, ...]], ...]
"""Types that plugins add, each with the fields of its config."""
BODY_TYPES = tuple(name for name, kind in KINDS.items() if "body" in kind.config and name != "http")


def kinds_of(added: Added = ()) -> dict[str, Kind]:
    """All types of task that there are."""
    if not added:
        return KINDS
    more = {
        name: Kind(dict.fromkeys(fields, _ANY), added=True)
        for name, fields in added
        if name not in KINDS
    }
    return {**KINDS, **more}


def beside(fields: Iterable[str]) -> tuple[str, ...]:
    """Config fields that may be written beside `type`: those that no task has by the same name."""
    return tuple(name for name in fields if name not in TASK and name not in _WORDS)


_WORDS = frozenset({*SHORTHAND, "do"})


@lru_cache(maxsize=64)
def document_schema(added: Added = ()) -> Schema:
    """The schema; shared, so do not change it."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": URI,
        "description": "A Penstock workflow: tasks and the links between them.",
        **_object(_TOP, required=("id", "tasks"), title="a definition"),
        "$defs": _defs(kinds_of(added)),
    }


def _object(
    properties: Schema, *, required: tuple[str, ...] = (), title: str = "an object"
) -> Schema:
    schema: Schema = {
        "title": title,
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
    }
    if required:
        schema["required"] = list(required)
    return schema


_TASKS: Schema = {
    "title": "an object of tasks by id",
    "type": "object",
    "minProperties": 1,
    "propertyNames": _ref("id"),
    "additionalProperties": _ref("task"),
}
_LINKS: Schema = _list_of(_ref("link"), "a list of links")
_TOP: Schema = {
    "id": _ref("id"),
    "name": _TEXT,
    "version": _NAME,
    "description": _TEXT,
    "tasks": _TASKS,
    "links": _LINKS,
    "inputSchema": _SCHEMA,
    "outputs": _ref("expressions"),
    "timeouts": _ref("timeouts"),
    "queries": _ref("expressions"),
    "triggers": _list_of(_ref("trigger"), "a list of triggers"),
    "orchestration": {
        "title": "a way to orchestrate",
        "enum": ["control", "data", "event", "rule"],
    },
    "rules": _list_of(_ref("rule"), "a list of rules"),
    "data": {"title": "an object", "type": "object", "additionalProperties": _ref("datum")},
    "consistency": {
        "title": "a level of consistency",
        "enum": ["strong", "causal", "session", "monotonic-read", "eventual"],
    },
    "durability": {"title": "a level of durability", "enum": ["durable", "buffered"]},
    "priority": _ref("priority"),
    "limits": _ref("limits"),
    "retention": _ref("retention"),
    "metadata": _OBJECT,
}


def _trigger() -> Schema:
    """When runs start by themselves (SPEC 4.6); what the parts mean is checked by `verify/triggers.py`."""
    texts = _one_or_many(_NAME, "text, or a list of texts")
    fields: Schema = {
        "name": _ref("id"),
        "cron": texts,
        "every": _ref("duration"),
        "offset": _ref("duration"),
        "anchor": _NAME,
        "calendar": {"title": "a calendar, or a list of them", "type": ["object", "array"]},
        "zone": _NAME,
        "exclude": texts,
        "after": _NAME,
        "until": _NAME,
        "jitter": _ref("duration"),
        "input": _ANY,
        "overlap": _NAME,
        "buffer": _COUNT,
        "catchUp": _ref("duration"),
        "priority": _ref("priority"),
        "attributes": _OBJECT,
        "metadata": _OBJECT,
        "paused": _FLAG,
        "event": _ANY,
        "webhook": _ANY,
        "chat": _ANY,
    }
    return _object(fields, title="a trigger")


def _defs(kinds: dict[str, Kind]) -> Schema:
    condition_fields: Schema = {"expression": _ref("expression"), "language": _NAME}
    source_fields: Schema = {
        "from": _NAME,
        "path": _NAME,
        "default": _ANY,
        "value": _ANY,
        "template": _TEXT,
        "secret": _NAME,
    }
    sources = ("from", "value", "template", "secret")
    timeouts: Schema = {
        name: _ref("duration")
        for name in ("run", "task", "scheduleToStart", "startToClose", "heartbeat")
    }
    timeout: Schema = {
        **_object({name: part for name, part in timeouts.items() if name != "run"}),
        "title": "a duration, or an object of them",
        "type": ["number", "string", "object"],
        "minimum": 0,
        "pattern": DURATION,
    }
    way_fields: Schema = {
        "from": _ID,
        "condition": _ref("condition"),
        "when": _ref("condition"),
        "on": {"title": "an outcome", "enum": ["success", "error", "always"]},
    }
    message = {"name": _NAME, "payload": _ANY}
    key_limit: Schema = {"key": _ref("expression"), "concurrency": _COUNT, "name": _NAME}
    counted_by_key: Schema = {"dependentRequired": {"concurrency": ["key"], "name": ["key"]}}
    return {
        "id": _ID,
        "trigger": _trigger(),
        "scalar": {
            "title": "text, a number, true or false",
            "type": ["string", "number", "boolean"],
        },
        "duration": {
            "title": "a duration",
            "type": ["number", "string"],
            "minimum": 0,
            "pattern": DURATION,
        },
        "retention": _object(
            {name: _ref("kept") for name in RETENTION},
            title="an object of durations",
        ),
        "kept": {
            "title": "a duration, or `forever`",
            "type": ["number", "string"],
            "minimum": 0,
            "pattern": f"{DURATION}|^{FOREVER}$",
        },
        "laterDuration": {
            "title": "a duration, or text with `${EXPRESSION}`",
            "type": ["number", "string"],
            "minimum": 0,
            "pattern": LATER_DURATION,
        },
        "moment": {
            "title": "a time such as `2030-01-31T12:00:00Z`, or text with `${EXPRESSION}`",
            "type": "string",
            "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)$|\$\{",
        },
        "expression": {
            "title": "an expression",
            "type": ["string", "number", "boolean", "null"],
            "minLength": 1,
        },
        "expressions": {
            "title": "an object of expressions by name",
            "type": "object",
            "additionalProperties": _ref("expression"),
        },
        "condition": {
            **_object(condition_fields, required=("expression",)),
            "title": "an expression, or an object with `expression`",
            "type": ["string", "boolean", "object"],
            "minLength": 1,
        },
        "way": {
            "type": ["string", "object"],
            "title": "a task, or a link",
            "$ref": "#/$defs/wayFields",
        },
        "wayFields": {
            "title": "a link",
            "properties": way_fields,
            "required": ["from"],
            "additionalProperties": False,
            **_not_both({"required": ["condition"]}, "when"),
        },
        "link": {
            **_object({**way_fields, "to": _ID}, required=("from", "to"), title="a link"),
            **_not_both({"required": ["condition"]}, "when"),
        },
        "inputs": {
            "title": "an object of parameters",
            "type": "object",
            "additionalProperties": _ref("source"),
        },
        "source": {
            "if": {"type": "object", "anyOf": [{"required": [name]} for name in sources]},
            "then": {
                **_object(source_fields, title="a source"),
                "dependentRequired": {"path": ["from"], "default": ["from"]},
                "allOf": [_exactly_one(sources, [{"required": [name]} for name in sources])],
            },
        },
        "occasion": {
            "type": ["string", "object"],
            "title": "a topic, or an object with `topic`",
            "$ref": "#/$defs/occasionFields",
        },
        "occasionFields": {
            "title": "an event that begins the task",
            "properties": {
                "topic": _NAME,
                "type": _NAME,
                "where": _ref("expression"),
                "timeout": _ref("laterDuration"),
            },
            "required": ["topic"],
            "additionalProperties": False,
        },
        "rule": {
            **_object(
                {
                    "when": _ref("expression"),
                    "task": _ID,
                    "priority": {"title": "a whole number", "type": "integer"},
                    "until": _ref("expression"),
                    "max": _COUNT,
                },
                title="a rule",
            ),
            "dependentRequired": {
                "task": ["when"],
                "when": ["task"],
                "priority": ["task"],
                "max": ["until"],
            },
            "allOf": [
                _exactly_one(("task", "until"), [{"required": [n]} for n in ("task", "until")])
            ],
        },
        "taskLimits": {**_object(key_limit, required=("key",)), **counted_by_key},
        "limits": {
            **_object(
                {
                    **key_limit,
                    "runs": _COUNT,
                    "over": {"title": "what to do", "enum": ["wait", "refuse"]},
                    "queue": _NAME,
                }
            ),
            **counted_by_key,
        },
        "retry": {
            **_object(
                {
                    "attempts": _COUNT,
                    "first": _ref("duration"),
                    "maximum": _ref("duration"),
                    "factor": {"title": "a number from 1", "type": "number", "minimum": 1},
                    "jitter": {
                        "title": "a number from 0 to 1",
                        "type": "number",
                        "minimum": 0,
                        "maximum": 1,
                    },
                    "never": _one_or_many(_NAME, "a list of error codes"),
                }
            ),
            "title": "a number of attempts, or an object",
            "type": ["integer", "object"],
            "minimum": 1,
        },
        "timeouts": _object(timeouts, title="an object of durations"),
        "timeout": timeout,
        "signalTimeout": {**timeout, "pattern": LATER_DURATION},
        "join": {
            **_object(
                {
                    "kind": {"title": "a kind of join", "enum": ["merge", "all", "any", "n"]},
                    "n": _COUNT,
                    "cancel": _FLAG,
                    "any": {"title": "true", "const": True},
                    "all": {"title": "true", "const": True},
                }
            ),
            "title": "a join",
            "type": ["string", "object"],
            "pattern": "^(merge|all|any)$",
            "allOf": [
                _not_both({"required": ["kind"]}, "any", "all"),
                _not_both({"required": ["any"]}, "all", "n"),
                _not_both({"required": ["all"]}, "n"),
            ],
        },
        "actions": {
            **_ref("actionFields"),
            "title": "an action or a list of them",
            "type": ["array", "object"],
            "items": {"title": "an action", "type": "object", **_ref("actionFields")},
        },
        "actionFields": {
            "properties": {
                "set": _ref("expressions"),
                "publish": _object({"topic": _NAME, "payload": _ANY}, required=("topic",)),
                "signal": _object({"run": _NAME, **message}, required=("run", "name")),
                "notify": _ANY,
            },
            "additionalProperties": False,
            "allOf": [
                {
                    "if": {"type": "object"},
                    "then": _exactly_one(
                        ("set", "publish", "signal", "notify"),
                        [{"required": [name]} for name in ("set", "publish", "signal", "notify")],
                    ),
                }
            ],
        },
        "compensate": {
            **_object(
                {
                    "activity": _NAME,
                    "do": _NAME,
                    "inputs": _ref("inputs"),
                    "retry": _ref("retry"),
                    "when": {"title": "a moment", "enum": ["completed", "attempted"]},
                    "parallel": _FLAG,
                }
            ),
            "title": "an activity, or an object with `activity`",
            "type": ["string", "object"],
            "minLength": 1,
            "allOf": [
                {
                    "if": {"type": "object"},
                    "then": _exactly_one(
                        ("activity",), [{"required": ["activity"]}, {"required": ["do"]}]
                    ),
                }
            ],
        },
        "priority": {"title": "a priority", "enum": ["high", "normal", "low"]},
        "datum": {
            "if": {"type": "object"},
            "then": _object(
                {
                    "value": _ANY,
                    "merge": {"title": "`last`, `append` or an expression", "type": "string"},
                    "schema": _SCHEMA,
                },
                title="an object with `value`, `merge` or `schema`",
            ),
        },
        "body": {
            "title": "a task, or an object with `tasks`",
            "type": ["string", "object"],
            "minLength": 1,
            "if": {"type": "object"},
            "then": {
                "if": {"required": ["tasks"], "not": {"required": ["type"]}},
                "then": _object({"tasks": _TASKS, "links": _LINKS}),
                "else": _ref("task"),
            },
        },
        "task": {
            "title": "a task",
            "type": "object",
            "if": {"type": "object", "required": ["do"]},
            "then": _ref("activityTask"),
            "else": {
                "x-needs": ["type", "do"],
                "required": ["type"],
                "properties": {
                    "type": {"title": "a type of task", "enum": list(kinds)},
                    "after": SHORTHAND["after"],
                },
                "allOf": [
                    {
                        "if": {
                            "type": "object",
                            "required": ["type"],
                            "properties": {"type": {"const": name}},
                        },
                        "then": _ref(f"{name}Task"),
                    }
                    for name in kinds
                ],
            },
        },
        **{f"{name}Task": _task(name, kind) for name, kind in kinds.items()},
    }


def _task(name: str, kind: Kind) -> Schema:
    own = {field: kind.config[field] for field in beside(kind.config)}
    extra: Schema = {"do": _NAME} if name == "activity" else {}
    config = _OBJECT if kind.added else _object(kind.config)
    config = {**config, "title": f"the config of a task of type {name}"}
    fields: Schema = {**TASK, **SHORTHAND, **own, **extra, "config": config}
    fields["type"] = {"title": "a type of task", "const": name}
    if name in ("signal", "event"):
        fields["timeout"] = _ref("signalTimeout")
    schema = _object(fields, title=f"a task of type {name}")
    checks = [_needs(kind, alternatives) for alternatives in kind.needs]
    checks += [_not_both(_in_config(field), field) for field in own]
    if name == "activity":
        checks += [
            _not_both(_in_config("activity"), "do"),
            _not_both({"required": ["activity"]}, "do"),
        ]
    if checks:
        schema["allOf"] = checks
    return schema


def _needs(kind: Kind, alternatives: tuple[str, ...]) -> Schema:
    """Exactly one of these fields, in the config or beside `type`."""
    options: list[Schema] = []
    for name in alternatives:
        written: list[Schema] = (
            [{"required": [name]}] if name in beside(kind.config) or name == "name" else []
        )
        if name == "activity":
            written.append({"required": ["do"]})
        written.append(_in_config(name))
        options.append({"anyOf": written})
    return _exactly_one(alternatives, options)


def _in_config(name: str) -> Schema:
    return {
        "required": ["config"],
        "properties": {"config": {"type": "object", "required": [name]}},
    }


def _not_both(one: Schema, *others: str) -> Schema:
    """Where `one` holds, each of the other fields would say the same a second time."""
    return {"if": one, "then": {"properties": dict.fromkeys(others, False)}}


def _exactly_one(names: tuple[str, ...], options: list[Schema]) -> Schema:
    return {"x-needs": list(names), "oneOf": options}


if __name__ == "__main__":
    print(json.dumps(document_schema(), indent=2))
