"""Behaviour: a path from start to end, nothing that can never run, no deadlock, no starved join (SPEC 3.2).

Every state is visited by the engine's own rules (`verify/space.py`), fragment by fragment. What is never seen there can
never happen. What is seen is made concrete (`verify/driving.py`) before it is reported, or before it is held proved that
a task can run.
"""

from __future__ import annotations

from msgspec.structs import replace

from penstock.core.plan import Edge, Node, ScopePlan, environment
from penstock.dsl.finding import Path
from penstock.model.run import PENDING
from penstock.verify.cases import Cases, Read
from penstock.verify.driving import (
    Driver,
    Goal,
    Route,
    begun,
    closed,
    completed,
    failing,
    has_run,
    ran,
)
from penstock.verify.fragments import Exploration
from penstock.verify.knowledge import asked_at, knowledge_of
from penstock.verify.models import Trail
from penstock.verify.mutexes import Holding, suspects
from penstock.verify.outputs import output_schema
from penstock.verify.regions import Fragment
from penstock.verify.rehearsal import Stage, rehearse
from penstock.verify.samples import accepts, sample
from penstock.verify.scenario import Scenario, Shows
from penstock.verify.scopes import place
from penstock.verify.types import TaskType, Types
from penstock.verify.verification import Subject

RULE = "3.2"
NAMED_MAX = 5
BY_HAND = frozenset({"timer", "signal", "event", "form"})
"""Waits that an operator can fail (`core/hands.py`)."""
ROAMS = 150
"""Runs that are played to see tasks begin that depend on data."""
TRIES = 400
"""Runs that are played to find a deadlock."""

HINTS = {
    "join-starved": "use the join `merge`, which takes what comes, or let every way in be taken",
    "no-branch": "give the gateway a `default`, or a branch for this case",
    "no-end": "let a link that is always taken lead to an end",
    "deadlock": "take the mutexes in the same order everywhere",
    "never-runs": "change the condition that keeps it from running, or leave it out",
    "no-input": "give the `inputSchema`, or the part of it that is hard to meet, `examples` with a value that it accepts",
    "too-many-states": "give it fewer open choices, or put parts of it into bodies or subworkflows",
}
NO_INPUT = "no input was found that the `inputSchema` accepts"


def check_behaviour(subject: Subject) -> None:
    large = subject.too_large()
    if large:
        message = f"its behaviour is not explored: {large}"
        root = subject.plan.root
        where, hint = place(root, root.entry.id), "put parts of it into subworkflows"
        subject.doubt(RULE, "too-many-states", where, message, hint, key=True)
        return
    exploration = Exploration(
        subject.plan, cases_of(subject), states=subject.budget.states, each=subject.budget.fragment
    )
    driver = subject.driver = Driver(exploration, subject.activities, work=subject.budget.work)
    Behaviour(subject, exploration, driver).check()


def cases_of(subject: Subject) -> Cases:
    """With all that is known of the values that conditions read."""
    schemas = schemas_of(subject)
    tasks = {
        node.id: TaskType(schemas.get(("tasks", node.id, "output")))
        for scope in subject.plan.scopes.values()
        for node in scope.nodes.values()
    }
    types = Types(environment(subject.definition), subject.definition.input_schema, tasks)
    solver = subject.solver()
    return Cases(schemas, types, solver, asked_at(subject))


def schemas_of(subject: Subject) -> dict[Read, object]:
    """What is known of values, by where they are read; nothing of tasks in several bodies that have one name."""
    found: dict[Read, object] = {}
    definition = subject.definition
    if definition.input_schema is not None:
        found["input",] = definition.input_schema
    for name, schema in knowledge_of(subject).data.types.items():
        if schema is not None and schema is not False:
            found["data", name] = schema
    outputs: dict[str, list[object]] = {}
    for scope in subject.plan.scopes.values():
        for node in scope.nodes.values():
            if node.loop is None:
                outputs.setdefault(node.id, []).append(output_schema(node, subject.activities))
    for id, schemas in outputs.items():
        if schemas[0] is not None and all(schema == schemas[0] for schema in schemas):
            found["tasks", id, "output"] = schemas[0]
    return found


class Behaviour:
    def __init__(self, subject: Subject, exploration: Exploration, driver: Driver) -> None:
        self.subject, self.exploration, self.driver = subject, exploration, driver
        self.sound = True
        """Nothing was refuted or is unknown."""

    def check(self) -> None:
        self._budget()
        self._faults()
        self._mutexes()
        never = self._never()
        shown = self._shown(never)
        if self.sound:
            count = sum(f.explored.states for f in self.exploration.fragments)
            message = f"every run comes to an end of its own, and each of its {shown} tasks can run ({count} states)"
            self.subject.prove(RULE, message)

    # --- what was not seen whole --------------------------------------------------------------------------------

    def _budget(self) -> None:
        for fragment in self.exploration.fragments:
            if fragment.explored.over and not fragment.explored.aside:
                self.sound = False
                message = f"{fragment.name} has more states than were looked at ({fragment.explored.states})"
                path = place(fragment.scope, fragment.id or fragment.scope.entry.id)
                self.subject.doubt(RULE, "too-many-states", path, message, HINTS["too-many-states"])

    # --- what must not be ---------------------------------------------------------------------------------------

    def _faults(self) -> None:
        for fragment in self.exploration.fragments:
            if not self.reached(fragment):
                continue
            for (code, id), trails in fragment.explored.bad.items():
                self._fault(fragment, code, id, trails)

    def _fault(self, fragment: Fragment, code: str, id: str, trails: list[Trail]) -> None:
        self.sound = False
        scope = fragment.scope
        target = f"{scope.path}/{id}" if scope.path and id else id or scope.path
        where = place(scope, id) if id else place(scope, scope.entry.id)
        message = _said(code, id, scope)
        for trail in trails:
            route = self.driver.route_to(fragment, trail)
            scenario = self.driver.drive(route, failing(code, target))
            if scenario is not None:
                starved = scope.nodes[id] if code == "join-starved" else None
                looks = starved is not None or code == "no-end"
                dead = self._dead_link(route, starved) if looks else None
                related: list[tuple[Path, str]] = []
                if dead is not None and code == "no-end":
                    where, message = dead[0], f"{message}: {dead[1]} may be dead"
                elif dead is not None:
                    related.append((dead[0], "dead where its condition does not hold"))
                key = not (dead and code == "no-end")
                hint = HINTS[code]
                self.subject.refute(
                    RULE, code, where, message, scenario, hint, key=key, related=related
                )
                return
        reason = "no input and outputs were found that show it"
        self.subject.doubt(RULE, code, where, f"perhaps {message}: {reason}", HINTS[code], key=True)

    def _dead_link(self, route: Route, starved: Node | None) -> tuple[Path, str] | None:
        """The last link that was decided dead by its condition, of those on a way to a starved join, its own links first:
        where it stands, and its name."""
        asked = [guard for guard, outcome in reversed(route.asks) if outcome is False]
        if starved is not None:
            into = [edge.guard for edge in starved.arrivals if edge.guard is not None]
            dead = [guard for guard in into if guard in asked or not guard.expression.reads]
            asked = [*dead, *asked]
        for guard in asked:
            for scope in self.subject.plan.scopes.values():
                for node in scope.nodes.values():
                    for out in node.outs:
                        if out.edge.guard is not guard:
                            continue
                        if starved is not None and not _leads(scope, out.target, starved):
                            continue
                        path = (*place(scope, node.id)[:-2], "links", out.edge.index)
                        return path, f"the link `{out.edge.name}`"
        return None

    def _mutexes(self) -> None:
        found = suspects(self.subject.plan)
        if not found:
            return
        self.sound = False
        scope, inner, _, outer = found[0]
        message = (
            f"`{inner.path}` waits for mutex `{inner.config['name']}` while `{outer.path}` holds "
        )
        message += f"`{outer.config['name']}`, and another way takes them in the other order"
        if inner.config["name"] == outer.config["name"]:
            message = f"`{inner.path}` waits for mutex `{inner.config['name']}`, which `{outer.path}` holds"
        scenario = self._tangled(found)
        where, hint = place(scope, inner.id), HINTS["deadlock"]
        if scenario is not None:
            self.subject.refute(RULE, "deadlock", where, message, scenario, hint, key=True)
        else:
            doubt = f"perhaps {message}: no order of events was found that shows a deadlock"
            self.subject.doubt(RULE, "deadlock", where, doubt, hint, key=True)

    def _tangled(self, found: list[Holding]) -> Scenario | None:
        """A run that ends in a deadlock, by trying orders."""
        goals = [failing("deadlock", node.path) for _, node, _, _ in found]
        for number in range(TRIES):
            scenario = self.driver.wander(number, goals)
            if scenario is not None:
                return scenario
        return None

    # --- what must be possible ----------------------------------------------------------------------------------

    def reached(self, fragment: Fragment) -> bool:
        """The fragment can be begun."""
        if fragment.around is not None:
            return fragment.id in fragment.around.explored.fired and self.reached(fragment.around)
        scope = fragment.scope
        if scope.parent is None:
            return True
        owner = f"{scope.parent.path}/{scope.owner}" if scope.parent.path else scope.owner
        holder = self.driver.holder(owner)
        return scope.owner in holder.explored.fired and self.reached(holder)

    def runs(self, scope: ScopePlan, id: str) -> bool:
        """The task can be begun, as far as was seen."""
        path = f"{scope.path}/{id}" if scope.path else id
        holder = self.driver.holder(path)
        return holder.explored.over or (id in holder.explored.fired and self.reached(holder))

    def _never(self) -> set[str]:
        """Tasks that can't run, by static path; of those in a row the first is reported."""
        never: set[str] = set()
        for scope in self.subject.plan.scopes.values():
            for node in scope.nodes.values():
                if node.type not in ("start", "end") and not self.runs(scope, node.id):
                    never.add(node.path)
        for scope in self.subject.plan.scopes.values():
            for node in scope.nodes.values():
                before = {
                    f"{scope.path}/{source}" if scope.path else source
                    for source in (scope.inner.get(e.source, e.source) for e in node.arrivals)
                }
                first = node.path in never and not (before and before <= never)
                if first and (scope.parent is None or _owner(scope) not in never):
                    self._report_never(scope, node.id)
        return never

    def _report_never(self, scope: ScopePlan, id: str) -> None:
        path = f"{scope.path}/{id}" if scope.path else id
        waits = [
            edge.source
            for edge in scope.nodes[id].arrivals
            if edge.on == "error" and self._by_hand(_source(scope, edge))
        ]
        if waits:
            message = f"`{path}` runs only if an operator fails `{waits[0]}` by hand"
            self.subject.remark("never-runs", place(scope, id), message, key=True)
            return
        self.sound = False
        message = f"`{path}` can never run"
        where, hint = place(scope, id), HINTS["never-runs"]
        scenario = self._without(path if scope.parent is None else "")
        if scenario is not None:
            related = [
                ((*where[:-2], "links", edge.index), "its condition never holds when it is asked")
                for edge in scope.nodes[id].arrivals
                if edge.guard is not None
            ]
            self.subject.refute(
                RULE, "never-runs", where, message, scenario, hint, key=True, related=related
            )
            return
        reason = "no run that ends was found to show it"
        self.subject.doubt(RULE, "never-runs", where, f"{message}: {reason}", hint, key=True)

    def _by_hand(self, node: Node) -> bool:
        """An operator can fail it, or what is in it."""
        if node.type in BY_HAND:
            return True
        inside = (node.path, f"{node.path}/")
        return any(
            inner.type in BY_HAND
            for scope in self.subject.plan.scopes.values()
            if scope.path == inside[0] or scope.path.startswith(inside[1])
            for inner in scope.nodes.values()
        )

    def _without(self, path: str) -> Scenario | None:
        """A whole run, one that completes if there is any; with how the task was last seen in it."""
        root = self.exploration.scopes[""]
        for way, trail in sorted(root.explored.ways.items(), key=lambda item: item[0].failed):
            del way
            found = self.driver.drive(self.driver.route_to(root, trail), closed)
            if found is None:
                continue
            seen = rehearse(self.subject.plan, found)
            state = seen.tasks.get(path)
            if state is not None and has_run(state):
                continue  # the exploration saw less than there is: never a refutation
            status = "never" if state is None or state.status == PENDING else state.status
            shows = replace(found.shows, task=path, task_status=status if path else "")
            return Scenario(found.input, found.steps, shows)
        return None

    def _shown(self, never: set[str]) -> int:
        """How many tasks were seen to run; what was not, though it should be possible, is said."""
        plan = self.subject.plan
        wanted = {
            node.path: scope
            for scope in plan.scopes.values()
            for node in scope.nodes.values()
            if _counts(node) and node.path not in never
        }
        seen = Seen(wanted)
        root = self.exploration.scopes[""]
        ended = any(
            self.driver.drive(self.driver.route_to(root, trail), seen.until(completed)) is not None
            for way, first in root.explored.ways.items()
            if not way.failed
            for trail in (first, *root.explored.others.get(way, ()))
        )
        ended = ended or any(
            self.driver.drive(Route(), seen.until(completed), given=given) is not None
            for given in self.driver.cases.inputs([])
        )
        over = any(fragment.explored.over for fragment in self.exploration.fragments)
        if over:
            return len(seen.paths)  # said already: not all is known
        if not ended:
            self._endless(root)
        missing: list[str] = []
        if len(seen.paths) < len(wanted):
            self._roam(seen, wanted)
        for path in reversed(wanted):
            if path in seen.paths:
                continue
            if self.driver.steps < self.driver.steps_max and self._show(path, wanted[path], seen):
                continue
            missing.append(path)
        if missing:
            self.sound = False
            self._unseen(missing[::-1], wanted)
        return len(seen.paths)

    def _roam(self, seen: Seen, wanted: dict[str, ScopePlan]) -> None:
        """Where passes depend on data, look for what else may begin by playing runs as chance has it."""
        guards = (
            out.edge.guard
            for scope in self.subject.plan.scopes.values()
            if scope.parent is not None
            for node in scope.nodes.values()
            for out in node.outs
        )
        if not any(g is not None and any(r[0] == "data" for r in g.expression.reads) for g in guards):  # fmt: skip
            return
        watching = seen.until(closed)

        def goal(stage: Stage) -> Shows | None:
            shows = watching(stage)
            return shows if len(seen.paths) == len(wanted) else None

        self.driver.roam(ROAMS, goal)

    def _endless(self, root: Fragment) -> None:
        self.sound = False
        path, hint = place(root.scope, root.scope.entry.id), "see what else is found"
        if not root.explored.over and all(way.failed for way in root.explored.ways):
            scenario = self._without("")
            if scenario is not None:
                message = "no run can complete"
                self.subject.refute(RULE, "no-path", path, message, scenario, hint, key=True)
                return
        message = "no run was found that completes"
        if not self._input_found():
            message, hint = f"{message}: {NO_INPUT}", HINTS["no-input"]
        self.subject.doubt(RULE, "no-path", path, message, hint, key=True)

    def _input_found(self) -> bool:
        """There is an input to begin with."""
        schema = self.subject.definition.input_schema
        return schema is None or accepts(schema, sample(schema))

    def _show(self, path: str, scope: ScopePlan, seen: Seen) -> bool:
        holder, id = self.driver.holder(path), path.rpartition("/")[2]
        first = holder.explored.fired.get(id)
        trails = [] if first is None else [first, *holder.explored.again.get(id, ())]
        for trail in trails:
            route = self.driver.route_to(holder, trail)
            found = self.driver.drive(route, seen.until(begun(path)))
            if found is not None or path in seen.paths:
                return True
            if any(read[0] == "data" for guard, _ in route.asks for read in guard.expression.reads):
                for given in self.driver.cases.inputs([guard for guard, _ in route.asks]):
                    self.driver.drive(route, seen.until(begun(path)), given=given)
                    if path in seen.paths:
                        return True
        return False

    def _unseen(self, missing: list[str], wanted: dict[str, ScopePlan]) -> None:
        names = ", ".join(f"`{path}`" for path in missing[:NAMED_MAX])
        more = f" and {len(missing) - NAMED_MAX} more" if len(missing) > NAMED_MAX else ""
        first = missing[0]
        if not self._input_found():
            where = place(wanted[first], first.rpartition("/")[2])
            message = f"{names}{more} were not seen to begin: {NO_INPUT}"
            self.subject.doubt(RULE, "never-runs", where, message, HINTS["no-input"], key=True)
            return
        self.subject.doubt(
            RULE, "never-runs", place(wanted[first], first.rpartition("/")[2]),
            f"no input and outputs were found with which {names}{more} begin{'' if len(missing) > 1 else 's'}", HINTS["never-runs"], key=True,
        )  # fmt: skip


class Seen:
    """Tasks that were seen to run, over many runs."""

    def __init__(self, wanted: dict[str, ScopePlan]) -> None:
        self._wanted = wanted
        self.paths: set[str] = set()

    def until(self, goal: Goal) -> Goal:
        """The same goal; what ran on the way to it is noted."""

        def watching(stage: Stage) -> Shows | None:
            shows = goal(stage)
            if shows is not None or stage.run.closed:
                self.paths |= ran(stage) & self._wanted.keys()
            return shows

        return watching


def _leads(scope: ScopePlan, id: str, to: Node) -> bool:
    """There is a path from the task to that one, in this scope."""
    todo, seen = [id], {id}
    while todo:
        node = scope.nodes.get(todo.pop())
        if node is to:
            return True
        for out in () if node is None else node.outs:
            if out.target not in seen:
                seen.add(out.target)
                todo.append(out.target)
    return False


def _counts(node: Node) -> bool:
    """A task that is to run some time."""
    return node.loop is None and node.type not in ("start", "end")


def _source(scope: ScopePlan, edge: Edge) -> Node:
    """The task that a link comes from; it may be in a natural loop that the link leaves."""
    while edge.source in scope.inner:
        loop = scope.nodes[scope.inner[edge.source]].loop
        assert loop is not None
        scope = loop
    return scope.nodes[edge.source]


def _owner(scope: ScopePlan) -> str:
    parent = scope.parent
    assert parent is not None
    return f"{parent.path}/{scope.owner}" if parent.path else scope.owner


def _said(code: str, id: str, scope: ScopePlan) -> str:
    where = f"`{scope.path}`" if scope.path else "the run"
    match code:
        case "join-starved":
            return f"`{id}` may wait for links of which some are dead"
        case "no-branch":
            return f"it may be that no branch of `{id}` holds"
        case "no-end":
            return f"{where} may come to where nothing is open and no end was reached"
        case _:
            return f"{where} may come to where all that is open waits for itself"
