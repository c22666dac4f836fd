"""Knowledge: what holds whenever a task is reached: which tasks are over, what their outputs are, what must have held.

By dominators: a task on every way to another is over when that begins. Conditions are kept only where all they read
stays as it was; what a `transform` computed is replaced by its formula, so that conditions over it speak of the input.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from penstock.core.plan import SCOPED, Edge, Formula, Guard, Node, Plan, ScopePlan, environment
from penstock.expr.compile import Expression, compile_expression
from penstock.expr.language import Foreign
from penstock.expr.tree import Index, Logic
from penstock.expr.tree import Literal as Constant
from penstock.expr.tree import Node as Tree
from penstock.expr.typecheck import Environment, check
from penstock.verify.cases import Asked, Stand
from penstock.verify.certain import Certain, Ended, dominators
from penstock.verify.data import Data
from penstock.verify.inference import items_of, kinds, part
from penstock.verify.outputs import output_schema
from penstock.verify.samples import resolve
from penstock.verify.scopes import map_around
from penstock.verify.solver import Ask, Wanted
from penstock.verify.substitution import Read, plain_path, replaced, substituted
from penstock.verify.tables import ours, whens
from penstock.verify.types import TaskType, Types
from penstock.verify.verification import Subject

Moment = Literal["begun", "ended", "failed"]
_KNOWN = frozenset({"tasks", "data", "item"})
_FAILURE = frozenset(("error", name) for name in ("code", "message", "type"))


@dataclass(frozen=True, slots=True)
class Known:
    """At one task: types, what must have held, and formulas that stand for what was computed."""

    types: Types
    asks: tuple[Ask, ...]
    formulas: Mapping[Read, Tree]
    over: frozenset[str]


def knowledge_of(subject: Subject) -> Knowledge:
    """Made when first asked."""
    if subject.knowledge is None:
        subject.knowledge = Knowledge(subject)
    return subject.knowledge


def asked_at(subject: Subject) -> dict[str, Asked]:
    """By condition that reads what tasks have given or computed."""
    found: dict[str, Asked] = {}
    for text, expression in whens(subject.plan).items():
        when = Stand(text, expression)
        found[text] = Asked(frozenset(), when, when, fires=True)
    for scope in subject.plan.scopes.values():
        for node in scope.nodes.values():
            for guard, ended in _guards(node):
                reads = guard.expression.reads
                if ours(subject.plan, guard) or not any(read[0] in _KNOWN for read in reads):
                    continue
                knowledge = knowledge_of(subject)
                known = knowledge.at(scope, node) if ended else knowledge.before(scope, node)
                types = known.types.tasks
                whole = {r[1] for r in guard.expression.reads if len(r) == 3 and r[2] == "output"}
                done = frozenset(
                    id for id in whole & known.over if types[id].statuses == ("COMPLETED",)
                )
                expression = knowledge.expression(guard.expression, known)
                stand = guard if expression is guard.expression else Stand(guard.text, expression)
                before = found.get(guard.text)
                if before is not None:
                    done &= before.completed
                    same = before.guard.expression.tree == expression.tree
                    stand = stand if same else Guard(guard.text, knowledge.environment)
                found[guard.text] = Asked(done, stand, _first(scope, stand, knowledge.environment))
    return found


def _first(scope: ScopePlan | None, guard: Guard, env: Environment) -> Guard:
    """The condition with the first element of the list in place of `item`."""
    if not any(read[0] == "item" for read in guard.expression.reads):
        return guard
    element = _element(map_around(scope))
    if element is None:
        return guard
    return Stand(f"{guard.text} of the first", substituted(guard.expression, {("item",): element}, env))  # fmt: skip


def _element(scope: ScopePlan | None) -> Tree | None:
    """The first item of a map as an expression over what is outside of all maps; None if it is not a plain path."""
    if scope is None or scope.parent is None:
        return None
    items = scope.parent.nodes[scope.owner].formulas["items"].expression
    path, tree = plain_path(items.tree), items.tree
    if path is None:
        return None
    if path[0] == "item":
        outer = _element(map_around(scope.parent))
        inner = None if outer is None else replaced(tree, {("item",): outer})
        if inner is None:
            return None
        tree = inner
    return Index(0, tree, Constant(0, 0))


def _guards(node: Node) -> Iterator[tuple[Guard, bool]]:
    """What decides at a task, and whether it is asked once that is over, well."""
    for guard in (*node.conditions, *node.formulas.values()):
        if isinstance(guard, Guard):
            yield guard, False
    for out in node.outs if node.loop is None else ():
        if out.edge.guard is not None:
            yield out.edge.guard, out.edge.on != "error"


class Knowledge:
    """Of one definition."""

    def __init__(self, subject: Subject) -> None:
        self._subject, self._plan = subject, subject.plan
        self.environment = environment(subject.definition)
        self._dominators: dict[str, dict[str, str | None]] = {}
        self._certain: dict[str, Certain] = {}
        self.writers = _writers(subject.plan)
        self._known: dict[tuple[str, str, Moment], Known] = {}
        self._final: Known | None = None
        self._items: dict[str, Any] = {}
        self._then: dict[tuple[str, str], Mapping[Read, Tree]] = {}
        self.data = Data(subject.plan, self.output_schema)
        self._sights: dict[str, dict[str, TaskType]] = {}
        """By scope: the tasks that are seen from there."""
        self._named: dict[str, list[Node]] = {}
        for scope in subject.plan.scopes.values():
            for node in scope.nodes.values():
                self._named.setdefault(node.id, []).append(node)

    def at(self, scope: ScopePlan, node: Node) -> Known:
        """Once the task is over, well."""
        return self._at(scope, node, "ended")

    def before(self, scope: ScopePlan, node: Node) -> Known:
        """When the task is reached."""
        return self._at(scope, node, "begun")

    def failed(self, scope: ScopePlan, node: Node) -> Known:
        """Once the task has failed for good."""
        return self._at(scope, node, "failed")

    def amid(self, scope: ScopePlan, node: Node, expression: Expression, moment: Moment) -> Known:
        """When the task asks that, as it begins or ends: of what it writes, only what comes before."""
        known = self._at(scope, node, moment)
        if moment != "begun":
            begun = self._at(scope, node, "begun")
            held = {read: tree for read, tree in begun.formulas.items() if read[0] == "data"}
            held |= {read: tree for read, tree in known.formulas.items() if read[0] != "data"}
            types = replace(known.types, data=begun.types.data)
            known = replace(known, types=types, formulas=held)
        written = self.data.earlier(scope, node, expression)
        if not written:
            return known
        formulas = {read: tree for read, tree in known.formulas.items() if read[0] != "data" or read[1] not in written}  # fmt: skip
        formulas |= {("data", name): tree for name, tree in written.items() if tree is not None}
        data = {**known.types.data, "required": [*known.types.data["required"], *written]}
        return replace(known, types=replace(known.types, data=data), formulas=formulas)

    def _at(self, scope: ScopePlan, node: Node, moment: Moment) -> Known:
        key = (scope.path, node.id, moment)
        if key not in self._known:
            self._known[key] = self._find(scope, node, moment)
        return self._known[key]

    def expression(self, expression: Expression, known: Known) -> Expression:
        """The expression with what was computed before replaced by its formula."""
        return substituted(expression, known.formulas, self.environment)

    def ask(self, guard: Guard, wanted: Wanted, known: Known) -> Ask:
        return self.expression(guard.expression, known), wanted

    def implied(self, scope: ScopePlan, expression: Expression) -> Iterator[Ask]:
        """Of each task that is read: if it completed, what it waited for held, as far as that is for ever so."""
        for id in sorted({r[1] for r in expression.reads if r[0] == "tasks" and len(r) > 1}):
            cursor: ScopePlan | None = scope
            while cursor is not None and id not in cursor.nodes:
                cursor = cursor.parent
            if cursor is None:
                continue
            node = cursor.nodes[id]
            guards = [*node.conditions]
            if len(node.arrivals) == 1 and node.arrivals[0].guard is not None:
                guards.append(node.arrivals[0].guard)
            not_done = compile_expression(f'tasks["{id}"].status != "COMPLETED"')
            for guard in guards:
                if not isinstance(guard.expression, Foreign) and all(
                    read[0] == "input" for read in guard.expression.reads
                ):
                    tree = Logic(0, "||", (not_done.tree, guard.expression.tree))
                    text = f"{not_done.text} || ({guard.text})"
                    yield Expression(text, tree, check(text, tree, self.environment)), True

    def output_schema(self, node: Node) -> Any:
        """What its output fits if it completes; None: anything."""
        return output_schema(node, self._subject.activities)

    def typed(self, read: Read, known: Known) -> bool:
        """A schema, or the engine itself, says what is there."""
        match read[0]:
            case "input":
                return _described(known.types.input, read[1:])
            case "data":
                if read[:2] in known.formulas:
                    return True
                return len(read) > 1 and _described(known.types.data, read[1:])
            case "tasks":
                if len(read) < 3 or read[2] != "output":
                    return len(read) < 4 or (len(read) == 4 and read[2:] in _FAILURE)
                task = known.types.tasks.get(read[1])
                return task is not None and _described(task.schema, read[3:])
            case "item":
                return _described(known.types.item, read[1:])
            case "index" | "iteration" | "run" | "now":
                return True
            case _:
                return False

    # --- what holds ----------------------------------------------------------------------------------------------

    def final(self) -> Known:
        """When the run is over, well: an end was reached, and nothing is open."""
        if self._final is None:
            over: dict[str, TaskType] = {}
            edges: list[tuple[ScopePlan, Edge]] = []
            root = self._plan.root
            reached = root.ends if len(root.ends) == 1 else []
            self._ended(root, self.certain(root).final(), reached, over, edges)
            self._final = self._gathered(root, None, over, edges, ended=True)
        return self._final

    def _find(self, scope: ScopePlan, node: Node, moment: Moment) -> Known:
        over: dict[str, TaskType] = {}
        edges: list[tuple[ScopePlan, Edge]] = []
        if moment == "failed":
            over[node.id] = self._task_type(node, well=False, failed=True)
        cursor: tuple[ScopePlan, str] | None = (scope, node.id)
        include = moment == "ended"
        while cursor is not None:
            where, at = cursor
            self._climb(where, at, over, edges, include=include)
            include = False
            cursor = None if where.parent is None else (where.parent, where.owner)
        known = self._gathered(scope, node, over, edges, ended=moment != "begun")
        if moment == "failed":
            failed = compile_expression(f'tasks["{node.id}"].status == "FAILED"', self.environment)
            return replace(known, asks=(*known.asks, (failed, True)))
        return known

    def _gathered(
        self,
        scope: ScopePlan,
        node: Node | None,
        over: dict[str, TaskType],
        edges: list[tuple[ScopePlan, Edge]],
        *,
        ended: bool,
    ) -> Known:
        types = Types(
            self.environment,
            self._subject.definition.input_schema,
            self._visible(scope, over),
            self._data_schema(over),
            self.item(scope),
            iteration=1,
        )
        at = None if node is None else (scope, node)
        completed = {id: kind for id, kind in over.items() if _done(kind)}
        formulas = self.data.formulas(at, completed, ended=ended)
        known = Known(types, (), formulas, frozenset(over))
        asks: list[Ask] = []
        for where, edge in reversed(edges):
            asks += self._passed(where, edge, known, here=where is scope)
        asks += self._computed(scope, over, known)
        return replace(known, asks=tuple(asks))

    def _climb(
        self,
        scope: ScopePlan,
        id: str,
        over: dict[str, TaskType],
        edges: list[tuple[ScopePlan, Edge]],
        *,
        include: bool,
    ) -> None:
        """All that is over where a task of that scope begins."""
        if include:
            over[id] = self._task_type(scope.nodes[id], well=True)
        ended = self.certain(scope).before(id)
        self._ended(scope, ended, [scope.nodes[id]], over, edges)

    def _ended(
        self,
        scope: ScopePlan,
        ended: Ended,
        reached: list[Node],
        over: dict[str, TaskType],
        edges: list[tuple[ScopePlan, Edge]],
    ) -> None:
        """`reached` has begun; so has what is over, and each by a link that was taken."""
        failed: set[str] = set()
        for node in (*reached, *(scope.nodes[each] for each in ended.tasks)):
            if len(node.arrivals) == 1:
                edges.append((scope, node.arrivals[0]))
                if node.arrivals[0].on == "error":
                    failed.add(node.arrivals[0].source)
        for each in ended.tasks:
            kind = self._task_type(
                scope.nodes[each], well=each in ended.well, failed=each in failed
            )
            over.setdefault(each, kind)

    def _task_type(self, node: Node, *, well: bool, failed: bool = False) -> TaskType:
        """Of one that is over: `well`, it did not fail; `failed`, it did."""
        schema = self.output_schema(node)
        if node.loop is not None or node.type in ("loop", "mutex"):
            return TaskType(schema, nulls=False)
        statuses = ["COMPLETED"]
        if node.conditions:
            statuses.append("SKIPPED")
        if failed:
            statuses = ["FAILED"]
        elif not well and any(out.edge.on != "success" for out in node.outs):
            statuses.append("FAILED")
        return TaskType(schema, tuple(statuses))

    def _visible(self, scope: ScopePlan, over: Mapping[str, TaskType]) -> dict[str, TaskType]:
        """Tasks that are over, and the others in sight, of which less is known."""
        if scope.path not in self._sights:
            self._sights[scope.path] = self._sight(scope)
        return {**self._sights[scope.path], **over}

    def _sight(self, scope: ScopePlan) -> dict[str, TaskType]:
        found: dict[str, TaskType] = {}
        cursor: ScopePlan | None = scope
        while cursor is not None:
            for id, node in cursor.nodes.items():
                body = node.loop
                found.setdefault(
                    id, TaskType(self.output_schema(node), nulls=body is None and node.body is None)
                )
                if body is not None:
                    for inner in _all_nodes(body):
                        found.setdefault(inner.id, TaskType(self.output_schema(inner)))
            cursor = cursor.parent
        return found

    def _passed(
        self, scope: ScopePlan, edge: Edge, known: Known, *, here: bool = True
    ) -> list[Ask]:
        """What held when this link was taken, as far as it still does; `here`: in this scope, not in one around it."""
        source = scope.nodes.get(edge.source)
        if source is None or edge.on == "error":
            return []
        guards: list[tuple[Guard, Wanted]] = []
        exclusive = source.gateway == "exclusive"
        default = source.config.get("default") if source.gateway else None
        if source.gateway in ("exclusive", "inclusive") and default == edge.target:
            others = [o.edge for o in source.outs if o.edge.on != "error" and o.edge is not edge]
            guards = [
                (o.guard, False) for o in others if o.guard is not None and o.target != default
            ]
        else:
            for out in source.outs if exclusive else ():
                other = out.edge
                if other is edge:
                    break
                if other.guard is not None and other.on != "error" and other.target != default:
                    guards.append((other.guard, False))
            if edge.guard is not None:
                guards.append((edge.guard, True))
        asks: list[Ask] = []
        for guard, wanted in guards:
            if ours(self._plan, guard):
                continue  # flags: nothing that tasks read follows from them
            then = known.formulas
            if any(self._written(read) for read in guard.expression.reads):
                if not here:
                    continue
                then = self._formulas_at(scope, source)  # not what is there now
            if self._lasting(guard.expression, known.over, then, here=here):
                asks.append((substituted(guard.expression, then, self.environment), wanted))
        return asks

    def _written(self, read: Read) -> bool:
        return read[0] == "data" and (len(read) < 2 or read[1] in self.writers)

    def _formulas_at(self, scope: ScopePlan, node: Node) -> Mapping[Read, Tree]:
        """What was computed by the time that task was over."""
        key = (scope.path, node.id)
        if key not in self._then:
            over: dict[str, TaskType] = {}
            cursor: tuple[ScopePlan, str] | None = (scope, node.id)
            while cursor is not None:
                where, at = cursor
                self._climb(where, at, over, [], include=where is scope)
                cursor = None if where.parent is None else (where.parent, where.owner)
            completed = {id: kind for id, kind in over.items() if _done(kind)}
            self._then[key] = self.data.formulas((scope, node), completed, ended=True)
        return self._then[key]

    def _lasting(
        self,
        expression: Expression,
        over: frozenset[str],
        formulas: Mapping[Read, Tree],
        *,
        here: bool,
    ) -> bool:
        """What it reads is now as it was when it was asked, or has a formula of which that is so."""
        return all(
            (here or read[0] not in SCOPED) and self._fixed(read, over, formulas)
            for read in expression.reads
        )

    def _fixed(self, read: Read, over: frozenset[str], formulas: Mapping[Read, Tree]) -> bool:
        match read[0]:
            case "input" | "item" | "index" | "iteration" | "run":
                return True
            case "tasks":
                return len(read) > 1 and read[1] in over
            case "data":
                if len(read) < 2:
                    return not self.writers
                return read[1] not in self.writers or read[:2] in formulas
            case _:
                return False

    def item(self, scope: ScopePlan) -> Any:
        """What an item of the map is in whose body the scope lies; None: anything."""
        if scope.path not in self._items:
            cursor, found = map_around(scope), None
            if cursor is not None and cursor.parent is not None:
                owner = cursor.parent.nodes[cursor.owner]
                expression = owner.formulas["items"].expression
                if not owner.config.get("more"):  # a signal adds what it likes
                    match plain_path(expression.tree):
                        case ("item", *path):
                            found = items_of(part(self.item(cursor.parent), path))
                        case _:
                            found = items_of(self.data.given(expression))
            self._items[scope.path] = found
        return self._items[scope.path]

    # --- what was computed ---------------------------------------------------------------------------------------

    def _transform(self, id: str) -> Node | None:
        """The one of that name that is not in a loop, if there is but one."""
        found = self._named.get(id, [])
        return found[0] if len(found) == 1 and found[0].type == "transform" else None

    def _computed(self, scope: ScopePlan, over: Mapping[str, TaskType], known: Known) -> list[Ask]:
        """Its formulas had values, or it would have failed."""
        asks: list[Ask] = []
        for id in over:
            node = self._transform(id)
            if node is None or over[id].statuses != ("COMPLETED",):
                continue
            for formula in node.formulas.values():
                expression = cast("Formula", formula).expression
                if any(self._written(read) for read in expression.reads):
                    continue
                if self._lasting(expression, known.over, known.formulas, here=id in scope.nodes):
                    asks.append((self.expression(expression, known), "value"))
        return asks

    def _data_schema(self, over: Mapping[str, TaskType]) -> Any:
        """Keys that are not declared and not written never exist; those that a task wrote that is over do."""
        declared = self._subject.definition.data
        types = self.data.types
        properties = {name: True if types[name] is None else types[name] for name in types}
        made = [
            name
            for name, writers in self.data.writers.items()
            if name not in declared
            and any(not w.failed and _done(over.get(w.node.id)) and len(self._named[w.node.id]) == 1 for w in writers)
        ]  # fmt: skip
        return {
            "type": "object", "properties": properties, "required": [*declared, *made],
            "additionalProperties": False,
        }  # fmt: skip

    # --- what lies before ----------------------------------------------------------------------------------------

    def certain(self, scope: ScopePlan) -> Certain:
        if scope.path not in self._certain:
            self._certain[scope.path] = Certain(self._plan, scope)
        return self._certain[scope.path]

    def dominating(self, scope: ScopePlan) -> dict[str, str | None]:
        if scope.path not in self._dominators:
            self._dominators[scope.path] = dominators(scope)
        return self._dominators[scope.path]


def _done(kind: TaskType | None) -> bool:
    return kind is not None and kind.statuses == ("COMPLETED",)


def _all_nodes(scope: ScopePlan) -> list[Node]:
    found: list[Node] = []
    waiting = [scope]
    while waiting:
        for node in waiting.pop().nodes.values():
            if node.loop is not None:
                waiting.append(node.loop)
            else:
                found.append(node)
    return found


def _writers(plan: Plan) -> dict[str, list[str]]:
    """Keys of the run's data, and the tasks that write them."""
    found: dict[str, list[str]] = {}
    for scope in plan.scopes.values():
        for node in scope.nodes.values():
            names = list(node.formulas) if node.type == "transform" else []
            for doing in (*node.on_complete, *node.on_error):
                names += [name for name, _ in doing.set]
            times = Counter(names)
            for name in names:
                # Twice in one task, or in a loop, is more than one writer.
                repeated = scope.kind != "run" or times[name] > 1
                found.setdefault(name, []).extend([node.path] * (2 if repeated else 1))
    return found


def _described(schema: Any, path: Read) -> bool:
    root = schema
    for name in path:
        rules = resolve(schema, root)
        if not isinstance(rules, Mapping):
            return False
        known = cast("Mapping[str, Any]", rules)
        properties = cast("Mapping[str, Any]", known.get("properties") or {})
        schema = properties.get(name)
        if schema is None:
            # Not declared: a schema that says what is there, and does not name it, allows that it is missing; so does
            # one of what has no fields, as a gateway's null.
            held = kinds(known)
            closed = known.get("additionalProperties") is False or (held is not None and "object" not in held)  # fmt: skip
            return bool(properties) or closed
    found = resolve(schema, root)
    return isinstance(found, Mapping) and len(cast("Mapping[str, Any]", found)) > 0
