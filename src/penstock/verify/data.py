"""Data: what is known of the run's data: what a key may hold, and, where it is sure who wrote it last, what that wrote.

A key may hold its first value and whatever a task writes, as far as the formulas say (`verify/inference.py`). Who wrote it
last is known where each other writer comes before that one, or only after where it is asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from penstock.core.plan import SCOPED, Formula, Node, Plan, ScopePlan
from penstock.expr.compile import Expression
from penstock.expr.tree import Literal, children
from penstock.expr.tree import Node as Tree
from penstock.verify.inference import either, inferred, kinds, part, widened
from penstock.verify.sets import Orders
from penstock.verify.substitution import Read, replaced

ROUNDS_MAX = 12
"""In which the types of keys that depend on one another must come to rest."""
WRITES_MAX = 200
"""Of one task, that are followed one by one."""
TREE_MAX = 1_500
"""Parts of a formula; what has more stays unknown."""
_PLAIN = ("int", "double", "string", "bool", "null", "list", "map", "dyn", "free")
Place = tuple[ScopePlan, Node]


@dataclass(frozen=True, slots=True)
class Writer:
    """One place where a key is written."""

    scope: ScopePlan
    node: Node
    name: str
    expression: Expression
    failed: bool = False
    """In `onError`."""
    again: bool = False
    """Its task writes the key more than once."""


@dataclass(frozen=True, slots=True)
class Computed:
    """A formula over what never changes."""

    tree: Tree
    scoped: bool
    """It reads `item`, `index` or `iteration`, which mean something else in another scope."""


class Data:
    """Of one definition."""

    def __init__(self, plan: Plan, schema_of: Callable[[Node], Any]) -> None:
        self._plan, self._schema_of = plan, schema_of
        self._orders = Orders(plan)
        self.writers: dict[str, list[Writer]] = {}
        for writer in _writers(plan):
            self.writers.setdefault(writer.name, []).append(writer)
        self._named: dict[str, list[Node]] = {}
        for scope in plan.scopes.values():
            for node in scope.nodes.values():
                if node.loop is None:
                    self._named.setdefault(node.id, []).append(node)
        self._computed: dict[tuple[str, str], Computed | None] = {}
        self._many: dict[str, dict[str, Tree | None]] = {}
        """By path of a task that writes more than can be followed: the names."""
        """By task and key: what it wrote."""
        self.types = self._types()
        """By key: a schema of what it may hold; None: anything."""

    # --- what a key may hold -------------------------------------------------------------------------------------

    def _types(self) -> dict[str, Any]:
        declared = self._plan.definition.data
        types: dict[str, Any] = {
            name: {"const": declared[name].value} if name in declared else False
            for name in {**declared, **self.writers}
        }
        for count in range(ROUNDS_MAX):
            made = {name: self._type(name, types) for name in types}
            if count > 1:
                made = {name: None if each is None else widened(each) for name, each in made.items()}  # fmt: skip
            if made == types:
                return types
            types = made
        return dict.fromkeys(types)

    def _type(self, name: str, types: Mapping[str, Any]) -> Any:
        declared = self._plan.definition.data
        first = [{"const": declared[name].value}] if name in declared else []
        written = [self.written(writer, types) for writer in self.writers.get(name, ())]
        merge = self._plan.merges.get(name)
        if not written or merge in (None, "last"):
            return either([*first, *written])
        if merge == "append":
            return {"type": "array"}
        current, value = either([*first, *written, types[name]]), either(written)
        made = _merged(merge.expression, _without_null(current), value)
        if any(held is None or "null" in held for held in (kinds(value), kinds(made))):
            made = _merged(merge.expression, current, value)
        return either([*first, *written, made])

    def merged(self, name: str) -> Any:
        """What comes of its `merge`, if that is an expression, and what it holds is not null."""
        merge, whole = self._plan.merges[name], self.types[name]
        value = either([self.written(each) for each in self.writers[name]])
        return _merged(merge.expression, _without_null(whole), value)

    def given(self, expression: Expression) -> Any:
        """What an expression gives wherever it is asked; None: not known."""
        return inferred(expression, self._reader(self.types))

    def written(self, writer: Writer, types: Mapping[str, Any] | None = None) -> Any:
        """What is written there; in `onComplete` the task itself has completed."""
        own = writer.node.formulas.get(writer.name) if writer.node.type == "transform" else None
        begun = writer.failed or (own is not None and own.expression is writer.expression)
        done = "" if begun else writer.node.id
        known = self._reader(self.types if types is None else types, done)
        return inferred(writer.expression, known)

    def _reader(self, types: Mapping[str, Any], done: str = "") -> Callable[[Read], Any]:
        def known(read: Read) -> Any:
            match read:
                case ("input", *path):
                    return part(self._plan.definition.input_schema, path)
                case ("data", str(name), *path):
                    found = types.get(name)
                    return found if not path or found is False else part(found, path)
                case ("tasks", _, "status"):
                    return {"type": "string"}
                case ("tasks", _, "attempts") | ("index",) | ("iteration",):
                    return {"type": "integer"}
                case ("tasks", str(id), "output", *path):
                    nodes = self._named.get(id, [])
                    found = part(self._schema_of(nodes[0]), path) if len(nodes) == 1 else None
                    return found if path or id == done else either([found, {"const": None}])
                case _:
                    return None

        return known

    def earlier(
        self, scope: ScopePlan, node: Node, expression: Expression
    ) -> dict[str, Tree | None]:
        """What the task has written when it asks that: by key, the formula if it is known and means the same here."""
        found: dict[str, Tree | None] = {}
        if _count(node) > WRITES_MAX:
            if node.path not in self._many:
                self._many[node.path] = {each.name: None for each in _writes(scope, node)}
            return self._many[node.path]  # any of them may have been written
        writers = _writes(scope, node)
        asks = next((writer for writer in writers if writer.expression is expression), None)
        for writer in () if asks is None else writers[: writers.index(asks)]:
            made = self._computed.get((node.path, writer.name))
            plainly = self._plan.merges.get(writer.name) in (None, "last")
            if asks is not None and writer.failed == asks.failed:
                found[writer.name] = made.tree if made is not None and plainly else None
        return found

    # --- who wrote it last ---------------------------------------------------------------------------------------

    def formulas(
        self, at: Place | None, over: Mapping[str, Any], *, ended: bool
    ) -> dict[Read, Tree]:
        """By path: what is there when a task begins, or has `ended`, or (None) the run has; `over`: tasks that have
        completed by then, the last first, by id."""
        here = self._plan.root if at is None else at[0]
        found: dict[Read, Tree] = {}
        for id in reversed(list(over)):
            nodes = self._named.get(id, [])
            if len(nodes) != 1:
                continue
            scope = self._plan.scopes[nodes[0].path.rpartition("/")[0]]
            for writer in _writes(scope, nodes[0]):
                made = self._value(writer, over)
                if made is None or (made.scoped and scope is not here):
                    continue
                if nodes[0].type == "transform" and writer.name in nodes[0].formulas:
                    found["tasks", id, "output", writer.name] = made.tree
        for name in self.writers:
            made = self._last(name, at, over, ended=ended)
            if made is not None and (not made.scoped or here is self._home(name, at, over, ended)):
                found["data", name] = made.tree
        return found

    def _home(
        self, name: str, at: Place | None, over: Mapping[str, Any], ended: bool
    ) -> ScopePlan | None:
        writer = self._writer(name, at, over, ended=ended)
        return None if writer is None else writer.scope

    def _last(
        self, name: str, at: Place | None, over: Mapping[str, Any], *, ended: bool
    ) -> Computed | None:
        if self._plan.merges.get(name) not in (None, "last"):
            return None
        writer = self._writer(name, at, over, ended=ended)
        if writer is not None:
            return self._computed.get((writer.node.path, name))
        declared = self._plan.definition.data.get(name)
        if declared is None or isinstance(declared.value, list | dict) or at is None:
            return None
        if all(self._after(other, at, None, ended=ended) for other in self.writers[name]):
            return Computed(Literal(0, declared.value), scoped=False)
        return None

    def _writer(
        self, name: str, at: Place | None, over: Mapping[str, Any], *, ended: bool
    ) -> Writer | None:
        writers = self.writers[name]
        for writer in writers:
            if writer.node.id not in over or writer.failed or writer.again:
                continue
            if len(self._named.get(writer.node.id, [])) != 1 or _in_map(writer.scope):
                continue
            others = [other for other in writers if other is not writer]
            if all(self._before(other, writer) or (at is not None and self._after(other, at, writer, ended=ended)) for other in others):  # fmt: skip
                return writer
        return None

    def _before(self, other: Writer, writer: Writer) -> bool:
        """It is over when that one writes, and does not come again before the next."""
        shared = _shared((other.scope, other.node), (writer.scope, writer.node))
        if shared is None:
            return False
        scope, one, two = shared
        return _waits(scope) and self._orders.of(scope).leads(one.id, two.id)

    def _after(self, other: Writer, at: Place, writer: Writer | None, *, ended: bool) -> bool:
        """It has not written yet, or not since that one did (None: since the run began)."""
        if other.node is at[1]:
            if ended:
                return False
            scope = at[0]
        else:
            shared = _shared((other.scope, other.node), at)
            if shared is None:
                return False
            scope, one, two = shared
            if not _waits(scope) or not self._orders.of(scope).leads(two.id, one.id):
                return False
        cursor: ScopePlan | None = scope
        while cursor is not None and (writer is None or cursor is not writer.scope):
            if cursor.kind not in ("run", "mutex"):
                return False  # it may have, in the pass before
            cursor = cursor.parent
        return True

    # --- what was written ----------------------------------------------------------------------------------------

    def _value(self, writer: Writer, over: Mapping[str, Any]) -> Computed | None:
        """`over` holds all that is over at the writer, of which the formulas are known already."""
        key = writer.node.path, writer.name
        if writer.again or writer.expression.type.name not in _PLAIN:
            self._computed[key] = None
        if key not in self._computed:
            self._computed[key] = self._make(writer, over)
        return self._computed[key]

    def _make(self, writer: Writer, over: Mapping[str, Any]) -> Computed | None:
        formulas: dict[Read, Tree] = {}
        scoped = bool(SCOPED & {read[0] for read in writer.expression.reads})
        for read in writer.expression.reads:
            match read:
                case ("input" | "item" | "index" | "iteration" | "run", *_):
                    pass
                case ("tasks", str(id), *rest):
                    if id not in over:
                        return None
                    nodes = self._named.get(id, [])
                    if len(nodes) == 1 and nodes[0].type == "transform" and rest[:1] == ["output"]:
                        made = self._computed.get((nodes[0].path, rest[1])) if len(rest) > 1 else None  # fmt: skip
                        if made is not None and not (made.scoped and _elsewhere(nodes[0], writer)):
                            formulas[read[:4]] = made.tree
                            scoped = scoped or made.scoped
                case ("data", str(name), *_):
                    if name not in self.writers:
                        continue
                    made = self._at_writer(writer, name, over)
                    if made is None:
                        return None
                    formulas["data", name] = made.tree
                    scoped = scoped or made.scoped
                case _:
                    return None
        tree = replaced(writer.expression.tree, formulas)
        return None if tree is None or _large(tree) else Computed(tree, scoped)

    def _at_writer(self, writer: Writer, name: str, over: Mapping[str, Any]) -> Computed | None:
        """What a key holds when that is written: a task writes in order, and sees what it wrote before."""
        names = [each.name for each in _writes(writer.scope, writer.node)]
        if name in names[: names.index(writer.name)]:
            plainly = self._plan.merges.get(name) in (None, "last")
            return self._computed.get((writer.node.path, name)) if plainly else None
        at = (writer.scope, writer.node)
        made = self._last(name, at, over, ended=False)
        home = self._home(name, at, over, ended=False)
        return None if made is None or (made.scoped and home is not writer.scope) else made


def _without_null(schema: Any) -> Any:
    """What was there from the start, and is null, is not merged."""
    held = kinds(schema)
    if held is None or "null" not in held:
        return schema
    rules = cast("dict[str, Any]", schema)
    if "enum" in rules:
        return {**rules, "enum": [each for each in rules["enum"] if each is not None]}
    if isinstance(rules.get("type"), list):
        return {**rules, "type": [each for each in rules["type"] if each != "null"]}
    parts = cast("list[Any]", rules.get("anyOf") or [rules])
    return either([_without_null(each) for each in parts if kinds(each) != {"null"}])


def _merged(merge: Expression, current: Any, value: Any) -> Any:
    def merging(read: Read) -> Any:
        root = {"current": current, "value": value}.get(read[0])
        if len(read) == 1:
            return root
        held = kinds(root)
        return False if held is not None and "object" not in held else part(root, read[1:])

    return inferred(merge, merging)


def _elsewhere(node: Node, writer: Writer) -> bool:
    return node.path.rpartition("/")[0] != writer.scope.path


def _large(tree: Tree) -> bool:
    count, stack = 0, [tree]
    while stack:
        count += 1
        if count > TREE_MAX:
            return True
        stack.extend(children(stack.pop()))
    return False


def _waits(scope: ScopePlan) -> bool:
    """No join goes on while one of its ways is still open: what leads to a task is over when it begins."""
    return not any(node.join == "n" for node in scope.nodes.values())


def _in_map(scope: ScopePlan | None) -> bool:
    while scope is not None:
        if scope.kind == "map":
            return True
        scope = scope.parent
    return False


def _shared(one: Place, other: Place) -> tuple[ScopePlan, Node, Node] | None:
    """The innermost scope that has both, and the tasks of it in which they are; None if one is inside the other."""
    lines: list[list[Place]] = []
    for scope, node in (one, other):
        line = [(scope, node)]
        while scope.parent is not None:
            scope, node = scope.parent, scope.parent.nodes[scope.owner]
            line.append((scope, node))
        lines.append(line[::-1])
    for (scope, left), (_, right) in zip(*lines, strict=False):
        if left is not right:
            return scope, left, right
    return None


def _writers(plan: Plan) -> Iterator[Writer]:
    for scope in plan.scopes.values():
        for node in scope.nodes.values():
            yield from _writes(scope, node)


def _count(node: Node) -> int:
    doings = (*node.on_complete, *node.on_error)
    return len(node.formulas) + sum(len(doing.set) for doing in doings)


def _writes(scope: ScopePlan, node: Node) -> list[Writer]:
    """What a task writes, in order."""
    found: list[tuple[str, Formula, bool]] = []
    if node.type == "transform":
        found += [(name, cast("Formula", formula), False) for name, formula in node.formulas.items()]  # fmt: skip
    for failed, doings in ((False, node.on_complete), (True, node.on_error)):
        found += [(name, formula, failed) for doing in doings for name, formula in doing.set]
    times = Counter(name for name, _, _ in found)
    return [
        Writer(scope, node, name, formula.expression, failed, times[name] > 1)
        for name, formula, failed in found
    ]
