"""Whether a run can go on as one of another version, from where it stands, and if not, why (SPEC 2.7, 3.8).

What counts is where the run stands: what is open, which links are decided and not yet used, what may have to be undone, what
is read by what is ahead. What has been passed counts no more. A run is moved only if a run of the new version could stand
there: then it ends as that one would. How the state is rewritten is in `core/moving.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.core.flow import Flow
from penstock.core.pairing import Pairing, ScopePair, changed, differences, name, paired, paths
from penstock.core.plan import BACK, INTERNAL, Edge, Node, Out, Plan
from penstock.core.reading import reads_ahead
from penstock.errors import NotFound, Rejected
from penstock.model.commands import MigrateRun
from penstock.model.definition import Definition
from penstock.model.events import Event, RunMigrated
from penstock.model.migration import Move, Obstacle
from penstock.model.run import COMPLETED, OPEN_TASK, PENDING, Run, Scope, TaskState, still_open

SHOWN_MAX = 3
AHEAD, OPEN, ENDED = "ahead", "open", "ended"


class Survey:
    """A run looked at with another version in mind."""

    def __init__(self, flow: Flow, pairing: Pairing) -> None:
        self.flow, self.pairing = flow, pairing
        self.old, self.new = pairing.old, pairing.new
        self.obstacles: list[Obstacle] = []
        self.dropped: list[str] = []
        self.renamed: dict[str, str] = {}
        self.passed: list[str] = []

    def add(self, why: str, key: str, message: str) -> None:
        self.obstacles.append(Obstacle(why, key, message))

    def made(self) -> Survey:
        run = self.flow.run
        self._whole(run)
        for path, scope in run.scopes.items():
            pair = self.pairing.scopes.get(scope.plan)
            if pair is None or not self._same_place(scope, pair):
                continue  # its owner is open, and said to be gone or changed
            Standing(self, path, scope, pair).look()
        self._undo(run)
        self._leaving(run)
        return self

    def _same_place(self, scope: Scope, pair: ScopePair) -> bool:
        """The scope belongs to the same task as before, not to one that has its name by chance."""
        return pair.old.kind == pair.new.kind

    def _whole(self, run: Run) -> None:
        old, new = self.old.definition, self.new.definition
        if old.orchestration != new.orchestration or old.rules != new.rules:
            self.add("orchestration", "", "the new version is orchestrated otherwise")
        if (self.old.runs_max is None) != (self.new.runs_max is None):
            self.add("limits", "", "the limit on open runs comes or goes with the new version")
        if self.new.input_schema is not None and old.input_schema != new.input_schema:
            problems = self.new.input_schema.problems(self.flow.input())
            if problems:
                self.add(
                    "input", "input", f"the input does not fit the new inputSchema: {problems}"
                )
        for signal in run.signals:
            if signal not in self.new.signals or signal in self.new.transient:
                self.add(
                    "signal", signal, f"signal `{signal}` was received, and the new version does not keep it"
                )  # fmt: skip
        for datum, write in run.data.items():
            both = datum in old.data and datum in new.data
            if (
                both
                and (write.key or write.parts)
                and old.data[datum].merge != new.data[datum].merge
            ):
                self.add(
                    "data", datum, f"`{datum}` was written, and merges otherwise in the new version"
                )

    def _undo(self, run: Run) -> None:
        for entry in run.undo:
            before, after, _ = self.pairing.node(entry.key)
            if before is None:
                continue
            if after is None:
                self.add(
                    "undo-removed", entry.key,
                    f"what `{entry.key}` did may have to be undone, and the new version does not have it",
                )  # fmt: skip
            elif changed(before, after):
                self.add(
                    "undo-changed", entry.key,
                    f"what `{entry.key}` did may have to be undone, and it has changed ({_what(before, after)})",
                )  # fmt: skip

    def _leaving(self, run: Run) -> None:
        for key in run.ending:
            before, after, today = self.pairing.node(key)
            if before is None or after is None or today != key or changed(before, after):
                self.add("leaving", key, f"`{key}` was told to stop and has not ended")
        for key, child in run.leaving.items():
            if key.startswith("~"):
                continue  # of a generation before
            before, after, today = self.pairing.node(key)
            if before is None or after is None or today != key or changed(before, after):
                self.add(
                    "leaving", key, f"run {child} of `{key}` was told to stop and has not ended"
                )


class Standing:
    """Where a run stands in one scope, by the tasks of both versions."""

    def __init__(self, survey: Survey, path: str, scope: Scope, pair: ScopePair) -> None:
        self._survey, self._path, self._scope, self._pair = survey, path, scope, pair
        self._flow = survey.flow
        self._nodes = pair.new.nodes

    def look(self) -> None:
        survey, scope = self._survey, self._scope
        if scope.failure is not None:
            where = f"`{self._path}`" if self._path else "the run"
            survey.add("failing", self._path, f"{where} is failing")
        for id, state in scope.tasks.items():
            self._task(id, state)
        passed = self._passed()
        self._links(passed)
        for id in passed:
            survey.passed.append(self._key(id))
        self._reads(passed)

    def _key(self, id: str) -> str:
        return self._flow.key(self._path, id)

    def _state(self, id: str) -> TaskState | None:
        """Of a task of the new version."""
        before = self._pair.back.get(id)
        return None if before is None else self._scope.tasks.get(before)

    def where(self, id: str) -> str:
        """Where the run stands with a task of the new version."""
        node = self._nodes[id]
        if node.type == "start" and id in self._pair.back:
            return ENDED
        if _plain_end(node):
            return ENDED if self._scope.ended and id in self._pair.back else AHEAD
        state = self._state(id)
        if state is None or state.status == PENDING:
            return AHEAD
        return OPEN if state.status in OPEN_TASK else ENDED

    # --- tasks -----------------------------------------------------------------------------------------------

    def _task(self, id: str, state: TaskState) -> None:
        survey, pair = self._survey, self._pair
        key, today = self._key(id), pair.ids.get(id)
        node = pair.old.nodes[id]
        active = still_open(state)
        if today is None:
            if active:
                survey.add(
                    "open-removed", key, f"`{key}` is open, and the new version does not have it"
                )
            elif state.status != PENDING:
                survey.dropped.append(key)
            return
        after = self._nodes[today]
        if today != id and state.status != PENDING:
            survey.renamed[key] = self._key(today)
        if state.status != PENDING and (node.loop is None) != (after.loop is None):
            survey.add("loop", key, f"`{key}` has begun, and is in a loop in one version alone")
        elif active:
            self._open_task(key, state, node, after)
        elif state.status == PENDING:
            self._waiting(key, state, after)
        elif state.status == COMPLETED and node.task.output_schema != after.task.output_schema:
            self._output(key, state, after)

    def _open_task(self, key: str, state: TaskState, node: Node, after: Node) -> None:
        survey, pair = self._survey, self._pair
        if changed(node, after):
            survey.add(
                "open-changed", key, f"`{key}` is open, and has changed ({_what(node, after)})"
            )
            return
        held = state.attempt or state.child is not None or node.body or node.loop
        if node.id != after.id and held:
            survey.add(
                "open-renamed", key, f"`{key}` is open, and is `{after.id}` in the new version: it is known by its name"
            )  # fmt: skip
        if node.type == "map" and state.map is not None and node.body and after.body:
            before = self._survey.pairing.scopes.get(node.body.path)
            results = (
                [] if before is None else [before.names.get(id, "") for id in node.body.results]
            )
            if (state.map.completed or state.map.failed) and results != after.body.results:
                survey.add(
                    "results",
                    key,
                    f"items of `{key}` have ended, and its new body gives another result",
                )
        if state.group is not None:
            gateway = pair.ids.get(state.group)
            armed = {out.target for out in self._nodes[gateway].outs} if gateway else set[str]()
            if gateway is None or self._nodes[gateway].gateway != "event" or after.id not in armed:
                survey.add(
                    "gateway",
                    key,
                    f"`{key}` was armed by `{state.group}`, which the new version does not let arm it",
                )

    def _waiting(self, key: str, state: TaskState, after: Node) -> None:
        """A join that has counted links: in the new version it must wait as well, and be able to fire."""
        arrivals, trues, deads = len(after.arrivals), state.trues, state.deads
        if not trues and not deads:
            return
        if after.join == "merge":
            waits = trues + deads < arrivals
        else:
            wanted = arrivals if after.join == "all" else after.join_n
            waits = trues < wanted <= arrivals - deads
        if not waits:
            self._survey.add(
                "join-ripe", key, f"`{key}` waits, and in the new version it would wait no more"
            )

    def _output(self, key: str, state: TaskState, after: Node) -> None:
        schema = after.output_schema
        if schema is None:
            return
        problems = schema.problems(self._flow.output(state))
        if problems:
            self._survey.add(
                "output",
                key,
                f"the output of `{key}` does not fit its new outputSchema: {problems}",
            )

    # --- links -----------------------------------------------------------------------------------------------

    def _passed(self) -> list[str]:
        """New tasks that come before what has begun: a run that stands here will not run them."""
        added = set(self._pair.added())
        found: dict[str, str] = {}
        begun = (id for id, node in self._nodes.items() if id not in added and not _plain_end(node))
        todo = [id for id in begun if self.where(id) != AHEAD]
        while todo:
            id = todo.pop()
            for source in self._sources(self._nodes[id]):
                if source in added and source not in found:
                    found[source] = id
                    todo.append(source)
        for id, before in found.items():
            if not self._wholly_passed(id, before, found):
                return []
        return [id for id in self._nodes if id in found]

    def _wholly_passed(self, id: str, before: str, found: Mapping[str, str]) -> bool:
        survey, node = self._survey, self._nodes[id]
        for out in node.outs:
            if out.role != INTERNAL or (
                out.target not in found and self.where(out.target) == AHEAD
            ):
                survey.add(
                    "half-passed", self._key(id),
                    f"`{id}` is new; it comes before `{before}`, which has begun, and before `{out.edge.target}`, which has not",
                )  # fmt: skip
                return False
        for source in self._sources(node):
            if source not in found and self.where(source) != ENDED:
                survey.add(
                    "order", self._key(id),
                    f"`{before}` has begun; in the new version `{id}` comes before it, and `{source}` before that",
                )  # fmt: skip
                return False
        return True

    def _sources(self, node: Node) -> list[str]:
        inner = self._pair.new.inner
        return [inner.get(edge.source, edge.source) for edge in node.arrivals]

    def _links(self, passed: list[str]) -> None:
        pair = self._pair
        for id, node in self._nodes.items():
            before = pair.back.get(id)
            if before is None:
                continue
            if self.where(id) == ENDED:
                self._decided(pair.old.nodes[before], node, passed)
        old = {pair.ident(edge) for node in pair.old.nodes.values() for edge in node.arrivals}
        for id, node in self._nodes.items():
            if node.join == "n" or id not in pair.back or _plain_end(node):
                continue
            if self.where(id) == AHEAD:
                continue
            for edge in node.arrivals:
                source = pair.new.inner.get(edge.source, edge.source)
                new = (edge.source, edge.target, edge.on) not in old
                if new and source not in passed and self.where(source) != ENDED:
                    self._survey.add(
                        "order", self._key(id),
                        f"`{id}` has begun; in the new version `{source}` comes before it, and has not ended",
                    )  # fmt: skip

    def _decided(self, before: Node, after: Node, passed: list[str]) -> None:
        """The links of a task that has ended are decided: those that are still to be used must be the same."""
        pair = self._pair
        new = {name(out): out for out in after.outs}
        for out in before.outs:
            there = new.pop(pair.ident(out.edge), None)
            if there is None:
                self._gone(out)
            elif _differs(out, there) and self._unused(there, passed):
                self._survey.add(
                    "link-changed", self._link(there.edge),
                    f"link {there.edge.name} is decided, and its condition is another in the new version",
                )  # fmt: skip
        for out in new.values():
            if self._unused(out, passed):
                self._survey.add(
                    "link-new", self._link(out.edge),
                    f"`{out.edge.source}` has ended, and its link to `{out.edge.target}` is new",
                )  # fmt: skip

    def _gone(self, out: Out) -> None:
        if out.role == INTERNAL:
            today = self._pair.ids.get(out.target)
            gone = today is not None and self.where(today) == AHEAD
        else:
            gone = self._scope.back if out.role == BACK else out.edge.index in self._scope.exits
        if gone:
            self._survey.add(
                "link-gone", self._link(out.edge),
                f"link {out.edge.name} is decided, and is not in the new version",
            )  # fmt: skip

    def _unused(self, out: Out, passed: list[str]) -> bool:
        """What the link leads to has not begun."""
        if out.role != INTERNAL:
            return True
        return out.target not in passed and self.where(out.target) == AHEAD

    def _link(self, edge: Edge) -> str:
        return f"{self._path}: {edge.name}" if self._path else edge.name

    # --- what is read ----------------------------------------------------------------------------------------

    def _reads(self, passed: list[str]) -> None:
        if not passed:
            return
        ended = {id for id in self._nodes if self.where(id) == ENDED} | set(passed)
        found = reads_ahead(self._survey.new, self._pair.new, set(passed), ended)
        for id, reader in dict.fromkeys(found):  # one may read it in several places
            self._survey.add(
                "passed-read", self._key(id),
                f"{reader} reads `{id}`, which is new and comes before what this run has begun",
            )  # fmt: skip


def _plain_end(node: Node) -> bool:
    return node.type == "end" and node.join == "merge" and not node.config and not node.conditions


def _differs(one: Out, other: Out) -> bool:
    texts = [None if out.edge.guard is None else out.edge.guard.text for out in (one, other)]
    return texts[0] != texts[1] or one.role != other.role


def _what(before: Node, after: Node) -> str:
    found = differences(before, after) or ["its place"]
    return ", ".join(found[:SHOWN_MAX]) + (", …" if len(found) > SHOWN_MAX else "")


def migrate_run(flow: Flow, command: MigrateRun) -> list[Event]:
    """The event, or Rejected with all that stands in the way."""
    run = flow.run
    if command.version == run.version:
        return []
    found = preview_of(flow, command.version, command.mapping)
    if found.obstacles:
        raise unsafe(found)
    new = flow.plan.of(command.version)
    return [
        RunMigrated(
            at=command.at, version=command.version, was=run.version, mapping=command.mapping,
            passed=list(found.passed), due=_due(flow, new), by=command.by, reason=command.reason,
            keyed=_appended(flow, new, command.mapping),
        )
    ]  # fmt: skip


def _appended(flow: Flow, new: Plan, mapping: Mapping[str, str]) -> bool:
    """Whether tasks that have another name now have appended something."""
    pairing = paired(flow.plan, new, mapping)
    return bool(mapping) and any(
        key and pairing.node(key)[2] != key
        for write in flow.run.data.values()
        for key, _ in write.parts
    )


def preview_of(flow: Flow, version: str, mapping: Mapping[str, str]) -> Move:
    """What the command would do; Rejected for a run that no version could be changed of. May raise Need."""
    run = flow.run
    new = flow.plan.kin.get(version)
    if new is None:
        raise NotFound(
            f"run {run.id} is one of `{run.definition}`, which has no version {version!r:.80}",
            hint="take one that is registered",
        )
    check_mapping(mapping, flow.plan.definition, new.definition)
    if run.closed:
        raise Rejected("run-closed", f"run {run.id} has ended {run.status}", run_id=run.id)
    if run.stopping is not None or run.rewinding:
        told = (
            f"is being stopped and then ends {run.stopping}"
            if run.stopping is not None
            else "undoes what the generation before had done"
        )
        raise Rejected(
            "run-stopping" if run.stopping is not None else "run-rewinding",
            f"run {run.id} {told}; its version cannot be changed now",
            hint="`why` says what it waits for",
            run_id=run.id,
        )
    return survey(flow, new, mapping)


def unsafe(found: Move) -> Rejected:
    """The first reasons, in words."""
    told = "; ".join(each.message for each in found.obstacles[:SHOWN_MAX])
    more = len(found.obstacles) - SHOWN_MAX
    rest = f"; and {more} more" if more > 0 else ""
    return Rejected(
        "migration-unsafe",
        f"run {found.run} cannot go on as version {found.after}: {told}{rest}",
        hint="let it go on until that is over, or change the new version; `penstock migrate ID --to VERSION --preview` tells all",
        run_id=found.run,
        obstacles=found.obstacles,
    )


def _due(flow: Flow, new: Plan) -> float | None:
    """When the run's own timeout ends it: counted from the same moment, with the limit of the new version."""
    run = flow.run
    before, after = (
        None if plan.definition.timeouts is None else plan.definition.timeouts.run
        for plan in (flow.plan, new)
    )
    if before == after or run.held:
        return run.due
    if after is None:
        return None
    if run.due is not None and before is not None:
        return run.due - before + after
    return (run.begin or run.started_at or run.created_at) + after


def check_mapping(mapping: Mapping[str, str], old: Definition, new: Definition) -> None:
    """Rejected, if it names what is not there or names one twice."""
    if not mapping:
        return
    known = (paths(old), "old"), (paths(new), "new")
    for pair in mapping.items():
        for each, (there, which) in zip(pair, known, strict=True):
            if each not in there:
                raise Rejected(
                    "mapping-invalid",
                    f"the {which} version has no task `{each:.80}`",
                    hint=f"it has: {', '.join(sorted(there)[:10])}{', …' if len(there) > 10 else ''}",
                )
        before, after = pair
        if list(mapping.values()).count(after) > 1:
            raise Rejected(
                "mapping-invalid",
                f"two tasks would become `{after:.80}`",
                hint="map each task to one of its own",
            )
        outer, home = before.rpartition("/")[0], after.rpartition("/")[0]
        if outer != home and mapping.get(outer) != home:
            raise Rejected(
                "mapping-invalid",
                f"`{before:.80}` and `{after:.80}` are not in the same body",
                hint="a task stays in its body; map the task that has the body too, if that is renamed",
            )


def survey(flow: Flow, new: Plan, mapping: Mapping[str, str]) -> Move:
    """What moving the run would do and what stands in the way; may raise Need."""
    found = Survey(flow, paired(flow.plan, new, mapping)).made()
    return Move(
        run=flow.run.id, before=flow.run.version, after=new.version, mapping=dict(mapping),
        obstacles=tuple(found.obstacles), dropped=tuple(found.dropped), renamed=found.renamed, passed=tuple(found.passed),
    )  # fmt: skip
