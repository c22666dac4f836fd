"""What tasks refer to: other tasks, sources, paths, expressions, templates, schemas, activities."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from msgspec import ValidationError, structs

from penstock.core.plan import environment
from penstock.core.vocabulary import BUILT_IN, CEL
from penstock.dsl.expand import UNKNOWN_TYPE
from penstock.dsl.finding import Path, did_you_mean, listed, meant
from penstock.errors import ExpressionError
from penstock.expr.compile import Environment, compile_expression
from penstock.expr.language import Language, compile_foreign
from penstock.expr.paths import compile_path
from penstock.expr.schema import compile_schema
from penstock.expr.template import compile_template
from penstock.model.definition import Action, Condition, Definition, Source, Task
from penstock.policy.topics import is_pattern, is_topic
from penstock.verify.scopes import Notes, Scope, body_of

ROOTS = frozenset({"input", "tasks", "data", "global", "run", "now"})
SCOPED = {"item": "a map", "index": "a map", "iteration": "a loop"}
PASS = frozenset({"iteration"})
SOURCES = ("input", "data", "global")
TASK_PARTS = ("output", "status", "attempts", "error")
SECRET_TYPES = ("activity", "http")
INPUT_TYPES = (*SECRET_TYPES, "subworkflow")
HTTP_INPUTS = ("method", "url", "headers", "body", "timeout")
JSON_TYPES = ("string", "number", "integer", "boolean", "object", "array", "null")
CEL_HINT = "expressions are CEL, such as `input.total > 100 && tasks.check.output.ok`"
SCHEMA_HINT = "schemas are JSON Schema 2020-12, such as `{type: object, required: [total]}`"
_TEMPLATED = {
    "http": ("method", "url", "headers", "body"),
    "timer": ("delay", "until"),
    "publish": ("topic", "payload"),
    "form": ("assignee", "due"),
    "subworkflow": ("definition", "version"),
    "signal": ("timeout",),
    "event": ("topic", "timeout"),
}


@dataclass(frozen=True, slots=True)
class Sight:
    """What an expression at some place may read."""

    tasks: Collection[str]
    names: frozenset[str]
    environment: Environment


def check_references(
    scope: Scope, reader: Reader, activities: Collection[str] | None, looping: Collection[str]
) -> None:
    """`looping` are the tasks that lie on cycles: they count their passes."""
    for name, task in scope.tasks.items():
        if task.type != UNKNOWN_TYPE:
            names = scope.names | PASS if name in looping else scope.names
            _Task(scope, name, task, names, reader, activities).check()
    for index, link in enumerate(scope.links):
        if link.condition is not None:
            names = scope.names | PASS if link.from_ in looping else scope.names
            sight = reader.sight(scope.visible, names)
            reader.condition(link.condition, (*scope.link_at(index), "condition"), sight)


def check_definition(reader: Reader) -> None:
    """What stands at the top of the document, beside tasks and links."""
    notes = reader.notes
    definition = notes.loaded.definition
    sight = reader.sight(definition.tasks, frozenset())
    reader.schema(definition.input_schema, ("inputSchema",))
    for field, expressions in (
        ("outputs", definition.outputs or {}),
        ("queries", definition.queries),
    ):
        for name, text in expressions.items():
            reader.expression(text, (field, name), sight)
    if "key" in definition.limits:
        reader.expression(definition.limits["key"], ("limits", "key"), sight)
    merging = reader.sight((), frozenset({"current", "value"}))
    for name, datum in definition.data.items():
        reader.schema(datum.schema, ("data", name, "schema"))
        if datum.merge not in (None, "last", "append"):
            reader.expression(datum.merge, ("data", name, "merge"), merging)
    _check_rules(reader, definition)


def _check_rules(reader: Reader, definition: Definition) -> None:
    """A table of rules, which is there if it is gone by, and has an end (SPEC 2.5)."""
    notes = reader.notes
    rules = [
        cast("dict[str, Any]", rule) if isinstance(rule, dict) else {} for rule in definition.rules
    ]
    if definition.orchestration != "rule":
        if rules:
            message = f"there are rules, and the definition goes by `{definition.orchestration}`"
            notes.add("rules-invalid", ("rules",), message, "write `orchestration: rule`", key=True)
        return
    if not any("task" in rule for rule in rules):
        hint = "add `rules: [{when: EXPRESSION, task: ID}, …, {until: EXPRESSION}]`"
        notes.add("rules-invalid", ("orchestration",), "there is no rule to go by", hint)
    elif not any("until" in rule for rule in rules):
        message, hint = "no rule says when the run is over", "add a row `{until: EXPRESSION}`"
        notes.add("rules-invalid", ("rules",), message, hint, key=True)
    for index, rule in enumerate(rules):
        for field in ("when", "until"):
            for read in _reads_of(str(rule.get(field, ""))):
                if read[:1] == ("tasks",):
                    id = read[1] if len(read) > 1 else "ID"
                    message = f"a rule cannot read `tasks.{id}`, which may be of another firing"
                    hint = f"read `data.{id}`: the output of a task is kept there"
                    notes.add("rules-invalid", ("rules", index, field), message, hint)


def _reads_of(text: str) -> list[tuple[str, ...]]:
    try:
        return sorted(compile_expression(text).reads) if text else []
    except ExpressionError:
        return []


class Reader:
    """Compiles texts of a definition and notes what does not compile or names nothing."""

    def __init__(self, notes: Notes) -> None:
        self.notes = notes
        self._environment = _environment(notes.loaded.definition)

    def sight(self, tasks: Collection[str], names: frozenset[str]) -> Sight:
        return Sight(tasks, ROOTS | names, self._environment)

    def condition(self, condition: Condition, path: Path, sight: Sight) -> None:
        if condition.language == CEL:
            self.expression(condition.expression, (*path, "expression"), sight)
            return
        name, vocabulary = condition.language, self.notes.loaded.vocabulary
        language = vocabulary.languages.get(name)
        if language is not None:
            self._foreign(name, language, condition.expression, (*path, "expression"), sight)
        elif (fault := vocabulary.faults.get(("language", name))) is not None:
            message = f"the language `{name}` cannot be used: {fault}"
            hint = "`penstock plugins` lists what there is"
            self.notes.add("plugin-invalid", (*path, "language"), message, hint)
        else:
            known = [CEL, *(each for kind, each in vocabulary.known if kind == "language")]
            hint = did_you_mean(name, known) or "leave it out for CEL; a plugin can add others"
            message = f"no expression language is called `{name}`"
            self.notes.add("unknown-language", (*path, "language"), message, hint)

    def _foreign(self, name: str, language: Language, text: str, path: Path, sight: Sight) -> None:
        try:
            self._reads(compile_foreign(name, language, text).reads, text, path, sight)
        except ExpressionError as error:
            hint = error.hint or f"`penstock plugins {name}` says whose language it is"
            self.notes.add_inside(
                "expression-invalid", path, text, error.position, error.message, hint
            )

    def expression(self, text: str, path: Path, sight: Sight) -> None:
        self._compiled(text, path, sight, compile_expression)

    def template(self, text: str, path: Path, sight: Sight) -> None:
        self._compiled(text, path, sight, compile_template)

    def values(self, value: Any, path: Path, sight: Sight) -> None:
        """Every text in there that holds `${`."""
        for at, text in _texts(value, path):
            if "${" in text:
                self.template(text, at, sight)

    def schema(self, schema: Any, path: Path) -> None:
        fault = _schema_fault(schema, path)
        if fault is not None:
            self.notes.add("schema-invalid", *fault)

    def _compiled(self, text: str, path: Path, sight: Sight, compile: Any) -> None:
        try:
            found = compile(text)
            if self._reads(found.reads, text, path, sight):
                compile(
                    text, sight.environment
                )  # only now, as its message for a wrong name is terser
        except ExpressionError as error:
            self.notes.add_inside(
                "expression-invalid",
                path,
                text,
                error.position,
                error.message,
                error.hint or CEL_HINT,
            )

    def _reads(self, reads: Iterable[tuple[str, ...]], text: str, path: Path, sight: Sight) -> bool:
        """Whether each path that is read begins at something that exists."""
        sound = True
        for read in sorted(reads):
            problem = _unreadable(read, sight)
            if problem is not None:
                sound = False
                code, word, message, hint = problem
                self.notes.add_inside(code, path, text, _position(text, word), message, hint)
        return sound


class _Task:
    """The checks of one task."""

    def __init__(
        self,
        scope: Scope,
        name: str,
        task: Task,
        names: frozenset[str],
        reader: Reader,
        activities: Collection[str] | None,
    ) -> None:
        self._scope = scope
        self._name = name
        self._task = task
        self._names = names
        self._reader = reader
        self._notes = reader.notes
        self._activities = activities
        self._path = scope.at(name)
        self._sight = reader.sight(scope.visible, names)

    def check(self) -> None:
        task, path = self._task, self._path
        secret = task.type in SECRET_TYPES or task.type not in BUILT_IN
        self._inputs(task.inputs, (*path, "inputs"), may_hold_secrets=secret)
        self._parameters()
        for index, condition in enumerate(task.conditions):
            self._reader.condition(condition, (*path, "conditions", index), self._sight)
        for field, actions in (("onComplete", task.on_complete), ("onError", task.on_error)):
            self._actions(actions, (*path, field))
        self._reader.schema(task.output_schema, (*path, "outputSchema"))
        if "key" in task.limits:
            self._reader.expression(task.limits["key"], (*path, "limits", "key"), self._sight)
        self._config()
        if task.compensate is not None:
            undo = (*path, "compensate")
            self._activity(task.compensate.activity, (*undo, "activity"))
            inputs = task.compensate.inputs or {}
            self._inputs(inputs, (*undo, "inputs"), may_hold_secrets=True)
            for name, source in inputs.items():
                if source.secret is not None:
                    message = "a secret for what undoes a task is not here yet"
                    hint = "let the activity get it from where it runs"
                    self._notes.add("not-yet", (*undo, "inputs", name), message, hint)

    def _parameters(self) -> None:
        """Inputs that nothing takes."""
        task, path = self._task, (*self._path, "inputs")
        if task.inputs and task.type not in INPUT_TYPES and task.type in BUILT_IN:
            message = f"a task of type `{task.type}` takes no inputs"
            hint = "only activity, http and subworkflow tasks do; expressions read what they need"
            self._notes.add("unused-input", path, message, hint, key=True)
        if task.type == "http":
            for name in task.inputs:
                if name not in HTTP_INPUTS and not name.startswith("headers."):
                    hint = did_you_mean(name, HTTP_INPUTS)
                    hint = hint or f"it takes {', '.join(HTTP_INPUTS)} and `headers.NAME`"
                    message = f"http has no parameter `{name}`"
                    self._notes.add("unknown-name", (*path, name), message, hint, key=True)

    def _config(self) -> None:
        config, path = self._task.config, (*self._path, "config")
        kind = self._task.type
        for field in _TEMPLATED.get(kind, () if kind in BUILT_IN else config):
            if field in config:
                self._reader.values(config[field], (*path, field), self._sight)
        if kind not in BUILT_IN:
            return
        if kind in ("signal", "form"):
            self._reader.schema(config.get("schema"), (*path, "schema"))
        if kind == "signal" and "reply" in config:
            self._reader.expression(config["reply"], (*path, "reply"), self._sight)
        if kind == "event":
            topic = config.get("topic", "")
            if topic and "${" not in topic and not is_pattern(topic):
                hint = "a topic is words with dots between them; `*` is any word, `>` the rest"
                message = f"`{topic}` is neither a topic nor a pattern of topics"
                self._notes.add("topic-invalid", (*path, "topic"), message, hint)
        if kind == "publish":
            self._topic(config.get("topic"), (*path, "topic"))
        if kind == "event" and "where" in config:
            sight = self._reader.sight(self._scope.visible, self._names | {"event"})
            self._reader.expression(config["where"], (*path, "where"), sight)
        if kind == "activity" and "activity" in config:
            self._activity(config["activity"], (*path, "activity"))
        if kind == "transform":
            for name, text in cast("dict[str, str]", config.get("set", {})).items():
                self._reader.expression(text, (*path, "set", name), self._sight)
        if kind == "map" and "items" in config:
            self._reader.expression(config["items"], (*path, "items"), self._sight)
        if kind == "loop":
            self._loop(config, path)
        if kind == "cancel":
            self._cancel(config.get("tasks", []), (*path, "tasks"))

    def _loop(self, config: Mapping[str, Any], path: Path) -> None:
        """Asked after a pass, so it sees the tasks of the body."""
        body = body_of(self._task)
        inside: Collection[str] = body.tasks if body is not None else ()
        sight = self._reader.sight({*self._scope.visible, *inside}, self._names | PASS)
        for field in ("while", "until"):
            if field in config:
                self._reader.expression(config[field], (*path, field), sight)

    def _cancel(self, tasks: list[str], path: Path) -> None:
        for index, name in enumerate(tasks):
            if name not in self._scope.visible:
                hint = meant(name, self._scope.visible, "there is none to cancel")
                self._notes.add("unknown-task", (*path, index), f"no task `{name}`", hint)

    def _topic(self, topic: Any, path: Path) -> None:
        if isinstance(topic, str) and "${" not in topic and not is_topic(topic):
            hint = "a topic is words with dots between them, such as orders.paid"
            self._notes.add("topic-invalid", path, f"`{topic:.80}` is no topic", hint)

    def _activity(self, name: str, path: Path) -> None:
        if self._activities is not None and name not in self._activities:
            hint = did_you_mean(name, self._activities) or "register it with the engine"
            self._notes.add("unknown-activity", path, f"no activity `{name}`", hint)

    def _actions(self, actions: tuple[Action, ...], path: Path) -> None:
        for index, action in enumerate(actions):
            at = (*path, index)
            for name, text in (action.set or {}).items():
                self._reader.expression(text, (*at, "set", name), self._sight)
            if isinstance(action.publish, dict):
                self._topic(action.publish.get("topic"), (*at, "publish", "topic"))
            for field in ("publish", "signal", "notify"):
                self._reader.values(getattr(action, field), (*at, field), self._sight)

    def _inputs(self, inputs: Mapping[str, Source], path: Path, *, may_hold_secrets: bool) -> None:
        for name, source in inputs.items():
            at = (*path, name)
            if source.from_ is not None:
                self._source(source.from_, (*at, "from"))
            if source.path is not None:
                self._json_path(source.path, (*at, "path"))
            if source.template is not None:
                self._reader.template(source.template, (*at, "template"), self._sight)
            if source.secret is not None and not may_hold_secrets:
                message = f"a secret can't be given to a task of type `{self._task.type}`"
                hint = "secrets are resolved where an activity runs: only activity and http tasks take them"
                self._notes.add("secret-misplaced", at, message, hint)
            for where, text in _texts(source.value, (*at, "value")):
                if "${" in text and where != (*at, "value"):
                    self._notes.add(
                        "template-literal",
                        where,
                        "this `${` stays as it is: it stands inside of a plain value",
                        "give this part a parameter of its own, as a template",
                        level="warning",
                    )

    def _source(self, source: str, path: Path) -> None:
        visible = self._scope.visible
        special = source in SOURCES or source in SCOPED
        if special and source in visible:
            message = f"`{source}` is a task here, and `from: {source}` means something else"
            self._notes.add("ambiguous-source", path, message, "give the task another id")
        elif source in SCOPED and source not in self._names:
            message = f"`{source}` exists only inside of {SCOPED[source]}"
            hint = meant(source, [*visible, *SOURCES, *self._names], "")
            self._notes.add("unknown-source", path, message, hint)
        elif not special and source not in visible:
            bare = source.removeprefix("tasks.").split(".")[0]
            hint = f"did you mean `{bare}`?" if bare in visible else None
            hint = hint or meant(source, [*visible, *SOURCES, *self._names], "")
            hint = hint or "a source is a task, `input`, `data` or `global`"
            self._notes.add("unknown-source", path, f"no task or source `{source}`", hint)

    def _json_path(self, text: str, path: Path) -> None:
        try:
            compile_path(text)
        except ExpressionError as error:
            hint = error.hint or "a path looks like `$.order.lines[0]`"
            self._notes.add_inside("path-invalid", path, text, error.position, error.message, hint)


def _environment(definition: Definition) -> Environment:
    """The types that expressions see; a schema that is none says nothing about them."""
    if _schema_fault(definition.input_schema, ()) is not None:
        definition = structs.replace(definition, input_schema=None)
    try:
        return environment(definition)
    except (ValidationError, AttributeError, TypeError, LookupError):
        # A body or an outputSchema that can't be read is told elsewhere.
        return environment(structs.replace(definition, tasks={}))


def _schema_fault(schema: Any, path: Path) -> tuple[Path, str, str | None] | None:
    """Place, message and hint, if that is no schema."""
    if schema is None:
        return None
    try:
        compile_schema(schema)  # which fetches nothing
    except ExpressionError as error:
        cause: Any = error.__cause__
        outside = _OUTSIDE.match(getattr(cause, "message", ""))
        if outside is not None:
            return _outside(outside[1], schema, path)
        inside: Path = tuple(getattr(cause, "instance_path", ()))
        wrong = getattr(cause, "instance", None)
        if inside[-1:] == ("type",) and isinstance(wrong, str):
            message = f"no JSON type is called `{wrong}`"
            hint = did_you_mean(wrong, JSON_TYPES) or f"there are {', '.join(JSON_TYPES)}"
            return (*path, *inside), message, hint
        said = getattr(cause, "message", error.message).removeprefix("not a JSON Schema: ")
        message = said if said.startswith("not a JSON Schema") else f"not a JSON Schema: {said}"
        return (*path, *inside), message, error.hint or SCHEMA_HINT
    return None


_OUTSIDE = re.compile(r"Resource '(.*?)' is not present")


def _outside(address: str, schema: Any, path: Path) -> tuple[Path, str, str | None]:
    """A reference that no `$id` in the schema answers."""
    for at, reference in _texts(schema, path):
        if at[-1] in ("$ref", "$dynamicRef") and address.endswith(
            reference.partition("#")[0] or "?"
        ):
            path, address = at, reference
            break
    message = f"the schema refers to `{address}`, outside of itself"
    return path, message, "put what it needs into its `$defs`"


def _unreadable(read: tuple[str, ...], sight: Sight) -> tuple[str, str, str, str | None] | None:
    """Code, word, message and hint, if a path begins at nothing."""
    root, *rest = read
    if root in SCOPED and root not in sight.names:
        hint = f"here there are {listed(sorted(sight.names))}"
        return "unknown-name", root, f"`{root}` exists only inside of {SCOPED[root]}", hint
    if root not in sight.names:
        if root in sight.tasks:
            hint = f"a task is read as `tasks.{root}.output`"
        else:
            hint = meant(root, sight.names, "")
        return "unknown-name", root, f"nothing is called `{root}`", hint
    if root == "tasks" and rest:
        task, *parts = rest
        if task not in sight.tasks:
            hint = meant(task, sight.tasks, "there is no task that can be read here")
            return "unknown-task", task, f"no task `{task}`", hint
        if parts and parts[0] not in TASK_PARTS:
            hint = did_you_mean(parts[0], TASK_PARTS)
            hint = hint or f"a task has {', '.join(f'`{part}`' for part in TASK_PARTS)}"
            return "unknown-name", parts[0], f"a task has no `{parts[0]}`", hint
    return None


def _position(text: str, word: str) -> int:
    """Where a word stands by itself."""
    found = re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text)
    return found.start() if found else 0


def _texts(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    stack: list[tuple[Path, Any]] = [(path, value)]
    while stack:
        at, part = stack.pop()
        if isinstance(part, str):
            yield at, part
        elif isinstance(part, dict):
            stack.extend(((*at, key), inner) for key, inner in cast("dict[str, Any]", part).items())
        elif isinstance(part, list):
            stack.extend(((*at, i), inner) for i, inner in enumerate(cast("list[Any]", part)))
