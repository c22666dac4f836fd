"""Plan: a definition compiled for execution, once, when it is first needed.

Links become edges with compiled conditions, natural loops become scopes of their own (SPEC 2.3), inputs become
small readers. A Plan is immutable and shared by all runs of one version. Structure is not checked here
(`verify/structure.py` does): a definition that was registered compiles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import msgspec

from penstock.core.loops import Irreducible, outer_loops
from penstock.core.vocabulary import BUILT_IN, CEL, PLAIN, AddedType, Vocabulary
from penstock.errors import DefinitionInvalid, EvaluationError, ExpressionError, PluginMissing
from penstock.expr.compile import Expression, compile_expression
from penstock.expr.language import compile_foreign
from penstock.expr.paths import Path, compile_path
from penstock.expr.schema import Schema, compile_schema
from penstock.expr.template import Template, compile_template
from penstock.expr.typecheck import DYN, Environment, type_of_schema
from penstock.expr.types import Type, soft_object, softened
from penstock.model.definition import (
    Action,
    Body,
    Compensate,
    Condition,
    Definition,
    Link,
    Source,
    Task,
    Timeouts,
)
from penstock.model.queue import DEFAULT
from penstock.model.run import Run

Variables = Mapping[str, Any]
INTERNAL, BACK, EXIT = 0, 1, 2
SCOPED = frozenset({"item", "index", "iteration"})
ROOTS = ("input", "tasks", "data", "global", "run", "now", "item", "index", "iteration")
COST_MAX = 100_000
WORK = frozenset({"activity", "http"})


class NeedPlan(BaseException):
    """A history needs another version of its definition: compile it and fold the event again, which has changed nothing.

    Not an Exception, as `Need` is none.
    """

    def __init__(self, version: str) -> None:
        super().__init__(version)
        self.version = version


class Value:
    """A JSON value whose texts may hold `${CEL}`; a text that is one `${…}` alone gives the value itself."""

    __slots__ = ("_make", "constant", "reads")

    def __init__(self, source: Any, env: Environment | None) -> None:
        self.reads: set[tuple[str, ...]] = set()
        self.constant = True
        self._make = self._compile(source, env)

    def __call__(self, variables: Variables) -> Any:
        return self._make(variables)

    def _compile(self, source: Any, env: Environment | None) -> Callable[[Variables], Any]:
        if isinstance(source, str) and "${" in source:
            self.constant = False
            template: Template = compile_template(source, env)
            self.reads |= template.reads
            whole = template.parts[0]
            if len(template.parts) == 1 and isinstance(whole, Expression):
                return lambda variables: whole.evaluate_json(variables, cost_max=COST_MAX)
            return lambda variables: template.render(variables, cost_max=COST_MAX)
        if isinstance(source, dict):
            items = {
                str(k): self._compile(v, env) for k, v in cast("dict[Any, Any]", source).items()
            }
            return lambda variables: {k: make(variables) for k, make in items.items()}
        if isinstance(source, list | tuple):
            parts = [self._compile(v, env) for v in cast("list[Any]", source)]
            return lambda variables: [make(variables) for make in parts]
        return lambda variables: source


class Guard:
    """A compiled condition: true, false or an error, never a guess."""

    __slots__ = ("expression", "text")

    def __init__(self, condition: Condition | str, env: Environment | None) -> None:
        if isinstance(condition, str) or condition.language == CEL:
            self.text = condition if isinstance(condition, str) else condition.expression
            self.expression: Expression = compile_expression(self.text, env)
        else:
            language = None if env is None else env.languages.get(condition.language)
            if language is None:
                raise PluginMissing(languages=[condition.language])
            self.expression = compile_foreign(condition.language, language, condition.expression)
            self.text = self.expression.text

    def __call__(self, variables: Variables) -> bool:
        value = self.expression.evaluate(variables, cost_max=COST_MAX)
        if value is True or value is False:
            return value
        raise EvaluationError(f"`{self.text}` gave {type(value).__name__}, not true or false")


class Formula:
    """A compiled expression that gives a JSON value."""

    __slots__ = ("expression", "text")

    def __init__(self, text: str, env: Environment | None) -> None:
        self.text = text
        self.expression: Expression = compile_expression(text, env)

    def __call__(self, variables: Variables) -> Any:
        return self.expression.evaluate_json(variables, cost_max=COST_MAX)


class Edge:
    """A link of one scope. `index` is its place in the document's links of that body."""

    __slots__ = ("guard", "index", "name", "on", "source", "target")

    def __init__(self, link: Link, index: int, env: Environment | None) -> None:
        self.index = index
        self.source, self.target, self.on = link.from_, link.to, link.on
        self.guard = None if link.condition is None else Guard(link.condition, env)
        self.name = f"{link.from_} -> {link.to}"


class Out:
    """An edge as one scope sees it: inside, back to the header of its loop, or leaving the loop."""

    __slots__ = ("edge", "role", "target")

    def __init__(self, edge: Edge, role: int, target: str) -> None:
        self.edge, self.role = edge, role
        self.target = target
        """The node of this scope that it leads to: the composite, if the task is inside a loop."""


class Input:
    """One parameter and where it comes from."""

    __slots__ = ("default", "name", "path", "secret", "source", "template", "value")

    def __init__(self, name: str, source: Source, env: Environment | None) -> None:
        self.name = name
        self.source = source.from_
        self.path: Path | None = None if source.path is None else compile_path(source.path)
        self.default = source.default
        self.value = source.value
        self.secret = source.secret
        self.template = None if source.template is None else Value(source.template, env)


class Doing:
    """A compiled action of `onComplete` or `onError`."""

    __slots__ = ("kind", "set", "value")

    def __init__(self, action: Action, env: Environment | None) -> None:
        self.set: list[tuple[str, Formula]] = []
        self.value: Value | None = None
        if action.set is not None:
            self.kind = "set"
            self.set = [(name, Formula(text, env)) for name, text in action.set.items()]
        elif action.publish is not None:
            self.kind, self.value = "publish", Value(action.publish, env)
        elif action.signal is not None:
            self.kind, self.value = "signal", Value(action.signal, env)
        else:
            self.kind, self.value = "notify", Value(action.notify, env)


class Node:
    """A task of one scope, compiled."""

    shape: Any = None
    """Of a step of a workflow function: what all that are executed alike have in common."""

    __slots__ = (
        "added", "arrivals", "body", "cancels", "compensate", "conditions", "config", "formulas", "gateway", "id", "inputs",
        "join", "join_cancel", "join_n", "key", "loop", "on_complete", "on_error", "output_schema", "outs", "path",
        "priority", "queue", "retry", "schema", "task", "timeouts", "type", "undo_inputs", "values",
    )  # fmt: skip

    def __init__(
        self,
        id: str,
        path: str,
        task: Task,
        env: Environment | None,
        added: AddedType | None = None,
    ) -> None:
        self.id, self.path, self.task, self.type = id, path, task, task.type
        self.added = added
        """What a plugin says of its type, if it is none of ours."""
        self.config: dict[str, Any] = task.config
        self.outs: list[Out] = []
        self.arrivals: list[Edge] = []
        join = task.join
        self.join = "merge" if join is None else ("n" if join.kind == "any" else join.kind)
        self.join_n = 1 if join is None or join.kind == "any" else join.n
        self.join_cancel = join is not None and join.cancel
        self.cancels: tuple[str, ...] = ()
        """In the order of the document: every replay cancels alike."""
        self.conditions = [Guard(c, env) for c in task.conditions]
        self.inputs = [Input(name, source, env) for name, source in task.inputs.items()]
        self.output_schema: Schema | None = (
            None if task.output_schema is None else compile_schema(task.output_schema)
        )
        self.schema: Schema | None = None
        self.on_complete = [Doing(a, env) for a in task.on_complete]
        self.on_error = [Doing(a, env) for a in task.on_error]
        self.compensate: Compensate | None = task.compensate
        self.undo_inputs: list[Input] | None = None
        if task.compensate is not None and task.compensate.inputs is not None:
            self.undo_inputs = [Input(n, s, env) for n, s in task.compensate.inputs.items()]
        self.retry = task.retry
        self.timeouts = task.timeout or Timeouts()
        own = task.config.get("queue") if added is None else None
        self.priority, self.queue = task.priority, task.queue or own
        self.key = None if "key" not in task.limits else Formula(task.limits["key"], env)
        """Of its own key limit (SPEC 4.10)."""
        self.gateway: str | None = self.config.get("kind") if task.type == "gateway" else None
        self.body: ScopePlan | None = None
        self.loop: ScopePlan | None = None
        """Of a natural loop's composite: its pass."""
        self.formulas: dict[str, Any] = {}
        self.values: dict[str, Value] = {}
        self._compile_config(env)

    def _compile_config(self, env: Environment | None) -> None:
        config = self.config
        if self.added is not None:
            self.values = {name: Value(value, env) for name, value in config.items()}
            self.schema = None if self.constant else compile_schema(self.added.config)
            return
        match self.type:
            case "transform":
                self.formulas = {n: Formula(t, env) for n, t in config.get("set", {}).items()}
            case "http":
                self.values = {
                    name: Value(config[name], env)
                    for name in ("method", "url", "headers", "body")
                    if name in config
                }
            case "timer" | "publish" | "form" | "subworkflow":
                self.values = {
                    name: Value(value, env) for name, value in config.items() if name != "schema"
                }
            case "signal":
                if "reply" in config:
                    self.formulas["reply"] = Formula(config["reply"], env)
                if "timeout" in config:
                    self.values["timeout"] = Value(config["timeout"], env)
            case "event":
                self.formulas["where"] = Guard(config["where"], env)
                for name in ("topic", "timeout"):
                    if name in config:
                        self.values[name] = Value(config[name], env)
            case "map":
                self.formulas["items"] = Formula(config["items"], env)
            case "loop":
                for name in ("while", "until"):
                    if name in config:
                        self.formulas[name] = Guard(config[name], env)
            case _:
                pass
        if self.type in ("signal", "form") and config.get("schema") is not None:
            self.schema = compile_schema(config["schema"])

    @property
    def works(self) -> bool:
        """Its attempts are executed outside of the run."""
        return self.added is not None or self.type in WORK

    @property
    def constant(self) -> bool:
        """Nothing in its config is an expression."""
        return all(value.constant for value in self.values.values())


class ScopePlan:
    """One scope: its nodes, where it begins, what its result is made of."""

    __slots__ = ("ends", "entry", "inner", "kind", "nodes", "owner", "parent", "path", "results")

    def __init__(self, path: str, kind: str, parent: ScopePlan | None, owner: str) -> None:
        self.path, self.kind, self.parent, self.owner = path, kind, parent, owner
        self.nodes: dict[str, Node] = {}
        self.entry: Node = cast("Node", None)
        self.ends: list[Node] = []
        self.results: list[str] = []
        """Ids of the tasks before the ends."""
        self.inner: dict[str, str] = {}
        """Tasks inside natural loops of this scope: id to the loop's header."""


class Plan:
    """A whole definition, compiled."""

    function = False
    """It is that of a workflow function (`core/functions.py`)."""

    __slots__ = (
        "awaits", "check", "conflicts", "declared", "definition", "digest", "fits", "input_schema", "key", "kin", "limits", "merges", "on_bus", "outputs", "pairings", "publishes", "queries", "queued",
        "queues", "root", "runs_max", "scopes", "signals", "transient", "version", "vocabulary",
    )  # fmt: skip

    def __init__(self, definition: Definition, vocabulary: Vocabulary = PLAIN) -> None:
        """`vocabulary` has what plugins add of what the definition mentions; PluginMissing if it lacks something."""
        self.definition, self.vocabulary = definition, vocabulary
        self.version = ""
        """As it was registered; empty for one that stands alone."""
        self.kin: dict[str, Plan] = {}
        """The versions of this definition that were compiled, by their names; shared by all of them."""
        self.pairings: dict[Any, Any] = {}
        """With older versions, as `core/pairing.py` makes them."""
        env = environment(definition, vocabulary)
        self.scopes: dict[str, ScopePlan] = {}
        self.root = self._scope(Body(definition.tasks, definition.links), "", "run", None, "", env)
        self.input_schema: Schema | None = (
            None if definition.input_schema is None else compile_schema(definition.input_schema)
        )
        self.outputs: dict[str, Formula] | None = (
            None
            if definition.outputs is None
            else {name: Formula(text, env) for name, text in definition.outputs.items()}
        )
        self.queries = {name: Formula(text, env) for name, text in definition.queries.items()}
        self.check: Callable[[bytes], None] | None = None
        self.fits: Callable[[str, bytes], None] | None = None
        """Of a workflow function whose code is here: rejects an input with which it cannot be called."""
        self.declared: frozenset[str] | None = None
        """Of a workflow function: the signals and updates that it takes; None: any."""
        self.signals: dict[str, list[Node]] = {}
        self.transient: set[str] = set()
        self._declare_signals()
        self.merges: dict[str, Any] = {}
        for name, datum in definition.data.items():
            if datum.merge in ("last", "append", None):
                self.merges[name] = datum.merge
            else:
                self.merges[name] = Formula(datum.merge, None)
        self.conflicts: dict[tuple[str, str], bool] = {}
        limits = definition.limits
        self.key = None if "key" not in limits else Formula(limits["key"], env)
        self.runs_max: int | None = limits.get("runs")
        working = [
            node for scope in self.scopes.values() for node in scope.nodes.values() if node.works
        ]
        self.queues = tuple(dict.fromkeys(self.queue_of(node) for node in working))
        self.queued = any(
            node.priority is not None or node.key is not None or self.key is not None or self.queue_of(node) != DEFAULT
            for node in working
        )  # fmt: skip
        """An attempt of it needs more than a place in the queue of all."""
        nodes = [node for scope in self.scopes.values() for node in scope.nodes.values()]
        self.awaits = any(node.type == "event" for node in nodes)
        self.publishes = any(
            node.type == "publish"
            or any(
                doing.kind in ("publish", "notify") for doing in (*node.on_complete, *node.on_error)
            )
            for node in nodes
        )
        self.on_bus = self.awaits or self.publishes

    def join(self, kin: dict[str, Plan], version: str) -> None:
        """It is that version of its definition; the others are found through it."""
        self.kin, self.version = kin, version
        kin[version] = self

    def of(self, version: str) -> Plan:
        """Another version of the definition, or NeedPlan."""
        found = self.kin.get(version)
        if found is None:
            raise NeedPlan(version)
        return found

    def takes(self, signal: str) -> bool:
        """A signal of that name can be sent to its runs."""
        return signal in self.signals

    def of_run(self, run: Run) -> Plan:
        """As one run needs it; that of a definition is shared by all."""
        return self

    def queue_of(self, node: Node) -> str:
        return node.queue or self.definition.limits.get("queue") or DEFAULT

    def node(self, path: str) -> Node:
        """By static path."""
        scope, _, id = path.rpartition("/")
        return self.scopes[scope].nodes[id]

    def concurrent(self, first: str, second: str) -> bool:
        """Of two tasks of one scope, by static path: neither lies on a path to the other within one pass. Computed
        when first asked."""
        pair = (first, second) if first <= second else (second, first)
        known = self.conflicts.get(pair)
        if known is None:
            known = self.conflicts[pair] = _concurrent(self, *pair)
        return known

    def _declare_signals(self) -> None:
        kept: set[str] = set()
        for scope in self.scopes.values():
            for node in scope.nodes.values():
                if node.type == "signal":
                    name = node.config["name"]
                    self.signals.setdefault(name, []).append(node)
                    if not node.config.get("transient"):
                        kept.add(name)
                elif node.type == "map" and node.config.get("more"):
                    self.signals.setdefault(node.config["more"], []).append(node)
                    kept.add(node.config["more"])
        self.transient = set(self.signals) - kept

    def _scope(
        self,
        body: Body,
        path: str,
        kind: str,
        parent: ScopePlan | None,
        owner: str,
        env: Environment | None,
    ) -> ScopePlan:
        edges = [Edge(link, index, env) for index, link in enumerate(body.links)]
        start = next((id for id, task in body.tasks.items() if task.type == "start"), None)
        if start is None:
            raise DefinitionInvalid(f"no start in `{path or self.definition.id}`", [])
        return self._part(dict(body.tasks), edges, start, path, kind, parent, owner, env)

    def _part(
        self,
        tasks: dict[str, Task],
        edges: list[Edge],
        entry: str,
        path: str,
        kind: str,
        parent: ScopePlan | None,
        owner: str,
        env: Environment | None,
    ) -> ScopePlan:
        """Tasks and edges with one entry; loops among them become composites with a part of their own."""
        scope = self.scopes[path] = ScopePlan(path, kind, parent, owner)
        looping = kind == "natural"

        def role(edge: Edge) -> int:
            if looping and edge.target == entry:
                return BACK
            return INTERNAL if edge.target in tasks else EXIT

        arcs = [(e.index, e.source, e.target) for e in edges if role(e) == INTERNAL]
        hidden: dict[str, str] = {}
        for loop in outer_loops(tasks, arcs, entry):
            if isinstance(loop, Irreducible):
                raise DefinitionInvalid(
                    "a cycle with more than one entry: " + " -> ".join(loop.cycle), []
                )
            hidden.update(dict.fromkeys(loop.body, loop.header))
            inner_path = f"{path}/{loop.header}" if path else loop.header
            composite = Node(loop.header, inner_path, Task(type="natural"), None)
            composite.loop = self._part(
                {id: tasks[id] for id in tasks if id in loop.body},
                [e for e in edges if e.source in loop.body],
                loop.header,
                inner_path,
                "natural",
                scope,
                loop.header,
                env,
            )
            join = tasks[loop.header].join
            if join is not None:
                composite.join = "n" if join.kind == "any" else join.kind
                composite.join_n, composite.join_cancel = join.n, join.cancel
            scope.nodes[loop.header] = composite
        scope.inner = hidden
        for id, task in tasks.items():
            if id not in hidden:
                scope.nodes[id] = self._node(id, task, scope, env)
        for edge in edges:
            source, target = hidden.get(edge.source), hidden.get(edge.target)
            where = role(edge)
            if where == INTERNAL and source is not None and source == target:
                continue  # inside an inner loop
            scope.nodes[source or edge.source].outs.append(Out(edge, where, target or edge.target))
            if where == INTERNAL:
                scope.nodes[target or edge.target].arrivals.append(edge)
        scope.entry = scope.nodes[entry]
        scope.ends = [n for n in scope.nodes.values() if n.type == "end"]
        scope.results = _results(scope)
        for node in scope.nodes.values():
            if node.join_cancel:
                node.cancels = _only_through(scope, node)
        return scope

    def _node(self, id: str, task: Task, scope: ScopePlan, env: Environment | None) -> Node:
        path = f"{scope.path}/{id}" if scope.path else id
        added = None if task.type in BUILT_IN else self._added(task.type)
        if added is not None:
            task = _told(task, added)
        try:
            node = Node(id, path, task, env, added)
        except ExpressionError as error:
            raise DefinitionInvalid(
                f"task `{path}`: {error.message} in `{error.text}`", []
            ) from error
        limit = None if self.definition.timeouts is None else self.definition.timeouts.task
        if (
            limit is not None
            and node.timeouts.task is None
            and (node.works or task.type == "subworkflow")
        ):
            node.timeouts = msgspec.structs.replace(node.timeouts, task=limit)
        if task.type in ("map", "loop", "mutex"):
            body = msgspec.convert(task.config["body"], Body)
            node.body = self._scope(body, path, task.type, scope, id, env)
        return node

    def _added(self, type: str) -> AddedType:
        found = self.vocabulary.types.get(type)
        if found is None:
            raise PluginMissing(types=[type])
        return found


def _told(task: Task, added: AddedType) -> Task:
    """The task with what its type says of it, where it does not say so itself."""
    return msgspec.structs.replace(
        task,
        output_schema=added.output if task.output_schema is None else task.output_schema,
        reads=(*task.reads, *added.reading(task.config)),
        writes=(*task.writes, *added.writing(task.config)),
    )


def environment(definition: Definition, vocabulary: Vocabulary = PLAIN) -> Environment:
    """What expressions of this definition see."""
    types: dict[str, Any] = dict.fromkeys(ROOTS, DYN)
    if definition.input_schema is not None:
        types["input"] = type_of_schema(definition.input_schema)
    outputs: dict[str, Type] = {}
    _note_numbers(Body(definition.tasks, definition.links), outputs)
    if any(known is not DYN for known in outputs.values()):
        tasks = {id: soft_object({"output": known}) for id, known in outputs.items()}
        types["tasks"] = soft_object(tasks)
    kept = {
        name: softened(type_of_schema(datum.schema)) or DYN
        for name, datum in definition.data.items()
        if datum.schema is not None
    }
    if any(known is not DYN for known in kept.values()):
        types["data"] = soft_object(kept)
    for name in ("current", "value", "event"):
        types[name] = DYN
    return Environment(variables=types, languages=vocabulary.languages)


def _note_numbers(body: Body, found: dict[str, Type]) -> None:
    """By id of a task: where its output has numbers, which are read by their type (SPEC 2.1). Where tasks of several bodies
    share an id and disagree nothing is said."""
    for id, task in body.tasks.items():
        schema = task.output_schema
        if schema is None and task.type in ("signal", "form"):
            schema = task.config.get("schema")
        known = DYN if schema is None else softened(type_of_schema(schema)) or DYN
        found[id] = known if found.get(id, known) == known else DYN
        if task.type in ("map", "loop", "mutex"):
            _note_numbers(msgspec.convert(task.config["body"], Body), found)


def _results(scope: ScopePlan) -> list[str]:
    """The tasks before the ends, seen through gateways, in order of the links."""
    found: list[str] = []
    seen: set[str] = set()
    todo = [edge.source for end in scope.ends for edge in end.arrivals]
    while todo:
        id = todo.pop(0)
        if id in seen:
            continue
        seen.add(id)
        node = scope.nodes.get(id)
        if node is not None and node.type == "gateway":
            todo = [edge.source for edge in node.arrivals] + todo
        elif node is None or node.type != "start":
            found.append(id)
    return found


def _only_through(scope: ScopePlan, join: Node) -> tuple[str, ...]:
    """Tasks from which every path leads to `join`: those that reach it and, without it, reach no end."""
    before: dict[str, set[str]] = {}
    for node in scope.nodes.values():
        for out in node.outs:
            if out.role == INTERNAL:
                before.setdefault(out.target, set()).add(node.id)

    def reaching(targets: Iterable[str], without: str | None) -> set[str]:
        found: set[str] = set()
        todo = [t for t in targets if t != without]
        while todo:
            for source in before.get(todo.pop(), ()):
                if source not in found and source != without:
                    found.add(source)
                    todo.append(source)
        return found

    leaves = {
        n.id
        for n in scope.nodes.values()
        if n is not join and not all(o.role == INTERNAL for o in n.outs)
    }
    leaves |= {n.id for n in scope.nodes.values() if n is not join and not n.outs}
    elsewhere = reaching(leaves, join.id) | leaves
    found = reaching([join.id], None) - elsewhere - {join.id}
    return tuple(id for id in scope.nodes if id in found)


def _concurrent(plan: Plan, first: str, second: str) -> bool:
    path, _, left = first.rpartition("/")
    right = second.rpartition("/")[2]
    scope = plan.scopes[path]
    return not (_reaches(scope, left, right) or _reaches(scope, right, left))


def _reaches(scope: ScopePlan, source: str, target: str) -> bool:
    todo, seen = [source], {source}
    while todo:
        node = scope.nodes.get(todo.pop())
        if node is None:
            continue
        for out in node.outs:
            step = out.target
            if out.role != INTERNAL:
                continue
            if step == target:
                return True
            if step not in seen:
                seen.add(step)
                todo.append(step)
    return False
