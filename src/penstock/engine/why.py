"""Why a run is where it is: what its state waits for, and which place, key or rate an attempt waits for (SPEC 4.8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.core.flow import Flow
from penstock.core.owed import reasons
from penstock.ports.control import PausedDefinition
from penstock.ports.runs import WhyView

if TYPE_CHECKING:
    from penstock.engine.engine import Engine


async def why(engine: Engine, id: str) -> list[WhyView]:
    """Every thing that the run waits for; empty once it is closed."""
    queues: dict[str, str] = {}

    def ask(flow: Flow) -> list[WhyView]:
        run = flow.run
        found = [WhyView(r.kind, r.key, r.message, r.due) for r in reasons(run)]
        for view in found:
            if view.kind in ("attempt", "retry", "undo"):
                _place(engine, flow, view)
                if view.kind in ("attempt", "retry"):
                    queues[view.key] = flow.plan.queue_of(flow.locate(view.key)[2])
            elif view.kind == "code":
                view.message = engine.programs.why(run)
            elif view.kind == "quota" and engine.owner is not None:
                view.message = f"the start waits for {engine.admission.why(run, flow.plan)}"
        if found and (run.late or run.escalated):
            word = "was missed" if run.late else "will probably be missed; it goes first"
            found.append(WhyView("deadline", "", f"its deadline {word}", run.deadline))
        return found

    found = await engine.read(id, ask)
    if any(view.kind in ("attempt", "retry") for view in found):
        found += await _paused(engine, id)
    if found and engine.owner is None:
        await _from_afar(engine, found, queues)
    return found


def _place(engine: Engine, flow: Flow, view: WhyView) -> None:
    """An attempt that is to begin waits for a place or for a worker: which, and why."""
    run, key, attempts = flow.run, view.key, engine.attempts
    undo = view.kind == "undo"
    number = run.undoing[key].attempt if undo else flow.locate(key)[3].attempt
    ticket = (run.id, key, number, undo, run.generation)
    waits = attempts.dispatch.why(ticket)
    if waits is not None:
        view.kind, view.due = "quota", waits[1]
        view.message = f"attempt {number} of `{key}` waits for {waits[0]}"
        return
    for activity, tickets in attempts.unserved.items():
        if ticket in tickets:
            view.message += f"; it waits for a worker that serves `{activity}`"


async def _paused(engine: Engine, id: str) -> list[WhyView]:
    """Its definition is paused: no attempt of it begins."""
    row = await engine.store.find(id)
    record = None if row is None else await engine.store.record("paused", row.definition)
    if record is None:
        return []
    paused = msgspec.json.decode(record.value, type=PausedDefinition)
    by = f" by {paused.by}" if paused.by else ""
    reason = f": {paused.reason}" if paused.reason else ""
    message = f"definition `{paused.definition}` is paused{by}{reason}; resume it to go on"
    return [WhyView("pause", "", message)]


async def _from_afar(engine: Engine, found: list[WhyView], queues: dict[str, str]) -> None:
    """What the process that executes the runs knows is not known here, but for what it wrote down."""
    owner = await engine.store.owner()
    if owner is None or owner.pid == 0:
        found.append(WhyView("owner", "", "no engine owns the database now; start one to go on"))
        return
    crowded = {view.name: view for view in await engine.queueing.views() if view.waiting}
    for view in found:
        queue = crowded.get(queues.get(view.key, ""))
        if queue is not None:
            limit = "" if queue.limit is None else f" of {queue.limit}"
            rate = "" if queue.rate is None else f", {queue.rate:g} begin per second"
            view.message += f"; {queue.waiting} attempts wait in its queue `{queue.name}`, {queue.running}{limit} are under way{rate}"
