"""Both styles agree (SPEC 2.8, 15): a workflow as definition and as function does the same, whatever its activities do.

A plan is a list of shapes; it is written once as a document and once as code. What the k-th call of an activity does, and
how long that takes, follows from a seed: then both call the same activities with the same arguments, in the same order,
and end alike, also when they are cancelled on the way. With faults each keeps what the judge of the simulation asks for, and ends.
`PENSTOCK_EXAMPLES=2000 pytest tests/laws/test_styles.py` looks longer.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter
from random import Random
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from penstock import Context, Fail, Retry, StepFailed, activity, workflow
from penstock.model.codec import decode_event
from penstock.model.events import ChildClosed, RunFailed, TaskCompleted, TaskFailed, UndoCompleted
from penstock.model.intents import DECODER, Call
from penstock.sdk.attempt import current
from penstock.testing.faults import KINDS, Fault
from penstock.testing.people import People
from penstock.testing.simulator import Deed, Scenario, Simulation, Start, Workload, definition_row

EXAMPLES = int(os.environ.get("PENSTOCK_EXAMPLES", "60"))
PATIENT = Retry(attempts=4, first=0.5, factor=2, jitter=0)
PATIENT_AS_TEXT = {"attempts": 4, "first": "500ms", "factor": 2, "jitter": 0}
SILENCE = 100
OTHERWISE = 1_000_000
ties: list[int] = []
Shape = tuple[Any, ...]


class World:
    """What activities do, by their name and the ordinal of the call."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.calls: list[tuple[str, int, int, Any]] = []
        """Name, ordinal, attempt, arguments: in the order in which they began."""
        self.named: dict[tuple[str, int, str, bool], tuple[str, int]] = {}
        """Name and ordinal of each task or step, and of each undo, by run, generation and key."""
        self._count: Counter[str] = Counter()

    async def work(self, name: str, given: Any) -> int:
        job = current().job
        whose = (job.run_id, job.generation, job.key, job.undo)
        if whose not in self.named:
            self._count[name] += 1
            self.named[whose] = name, self._count[name]
        ordinal = self.named[whose][1]
        self.calls.append((name, ordinal, job.attempt, given))
        chance = Random(f"{self.seed} {name} {ordinal} {job.attempt}")
        if name == "d":
            await deaf(chance.random() * 3)
        else:
            await asyncio.sleep(chance.random() * 3)
        luck = chance.random()
        if luck < 0.04 and name != "back":
            raise Fail("for good", code=f"bad-{name}")
        if luck < 0.12:
            raise RuntimeError("not now")
        return chance.randrange(10)


async def deaf(seconds: float) -> None:
    """It is told to stop, and ends its work all the same."""
    end = asyncio.get_running_loop().time() + seconds
    while (left := end - asyncio.get_running_loop().time()) > 0:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(left)


world = World(0)


@activity(retry=PATIENT)
async def a(n: int) -> int:
    return await world.work("a", n)


@activity
async def b(n: int) -> int:
    return await world.work("b", n)


@activity(retry=Retry(attempts=2, first=0.1, jitter=0), timeout=2.5)
async def c(n: int) -> int:
    return await world.work("c", n)


@activity
async def d(n: int) -> int:
    return await world.work("d", n)


@activity(retry=PATIENT)
async def add(values: list[int]) -> int:
    return sum(values) % 10 + 0 * await world.work("add", values)


@activity
async def bad(n: int) -> int:
    await world.work("bad", n)
    raise Fail("as always", code="bad")


@activity
async def back(n: int) -> None:
    await world.work("back", n)


NAMED: dict[str, Any] = {"a": a, "b": b, "c": c, "d": d, "bad": bad}
ACTIVITIES = [a, b, c, d, add, bad, back]


# --- as a document --------------------------------------------------------------------------------------------


class Document:
    """Tasks and links, shape by shape; each ends with a task whose output is its value."""

    def __init__(self, id: str, shapes: list[Shape]) -> None:
        self.tasks: dict[str, Any] = {}
        self.links: list[dict[str, Any]] = []
        self.data: dict[str, Any] = {}
        self.last = ""
        for number, shape in enumerate(shapes):
            getattr(self, f"_{shape[0]}")(f"s{number}", *shape[1:])
            self.last = f"s{number}"
        self.document = {
            "id": id, "tasks": self.tasks, "links": self.links, "data": self.data,
            "outputs": {"value": f"tasks.{self.last}.output"},
        }  # fmt: skip

    @property
    def value(self) -> dict[str, Any]:
        return {"from": self.last} if self.last else {"from": "input", "path": "$.n"}

    def _task(self, id: str, name: str, value: Any, *after: str, **more: Any) -> None:
        self.tasks[id] = {"do": name, "inputs": {"n": value}, **more}
        for each in after or ((self.last,) if self.last else ()):
            self.links.append({"from": each, "to": id})

    def _call(self, id: str, name: str) -> None:
        self._task(id, name, self.value)

    def _patient(self, id: str, name: str) -> None:
        self._task(id, name, self.value, retry=PATIENT_AS_TEXT)

    def _fails(self, id: str) -> None:
        self._task(id, "bad", self.value)

    def _undoable(self, id: str, name: str) -> None:
        undo = {"do": "back", "inputs": {"n": {"from": id}}}
        self._task(id, name, self.value, compensate=undo)

    def _both(self, id: str, names: tuple[str, ...], *, undo: bool = False) -> None:
        parts = [f"{id}_{number}" for number in range(len(names))]
        for part, name in zip(parts, names, strict=True):
            back = {"do": "back", "inputs": {"n": {"from": part}}}
            self._task(part, name, self.value, **({"compensate": back} if undo else {}))
        values = "${[" + ", ".join(f"tasks.{part}.output" for part in parts) + "]}"
        self.tasks[id] = {"do": "add", "inputs": {"values": values}, "after": parts}

    def _both_undoable(self, id: str, names: tuple[str, ...]) -> None:
        self._both(id, names, undo=True)

    def _choice(self, id: str, one: str, other: str) -> None:
        before = f"tasks.{self.last}.output" if self.last else "input.n"
        self.tasks[f"{id}_x"] = {"type": "gateway", "kind": "exclusive"}
        if self.last:
            self.links.append({"from": self.last, "to": f"{id}_x"})
        for part, name, when in (
            ("yes", one, f"{before} > 4"),
            ("no", other, f"{before} <= 4"),
        ):
            self.tasks[f"{id}_{part}"] = {"do": name, "inputs": {"n": self.value}}
            self.links.append({"from": f"{id}_x", "to": f"{id}_{part}", "condition": when})
            self.links.append({"from": f"{id}_{part}", "to": id})
        self._either(id, f"{id}_yes", f"tasks.{id}_no.output")

    def _either(self, id: str, first: str, other: str) -> None:
        text = f'${{tasks.{first}.status == "COMPLETED" ? tasks.{first}.output : {other}}}'
        self.tasks[id] = {"do": "a", "inputs": {"n": text}}

    def _loop(self, id: str, name: str, most: int) -> None:
        self.data |= {f"{id}v": 0, f"{id}c": 0}
        tick = {
            "do": name, "inputs": {"n": {"from": "data", "path": f"$.{id}v"}},
            "onComplete": [{"set": {f"{id}v": "tasks.tick.output", f"{id}c": f"data.{id}c + 1"}}],
        }  # fmt: skip
        self.tasks[f"{id}_l"] = {
            "type": "loop", "until": f"data.{id}v % 3 == 0 || data.{id}c >= {most}",
            "body": {"tasks": {"tick": tick}},
        }  # fmt: skip
        if self.last:
            self.links.append({"from": self.last, "to": f"{id}_l"})
        self._task(id, "a", {"from": "data", "path": f"$.{id}v"}, f"{id}_l")

    def _map(self, id: str, name: str, items: list[int], limit: int) -> None:
        body = {"do": name, "inputs": {"n": {"from": "item"}}}
        self.tasks[f"{id}_m"] = {"type": "map", "items": str(items), "limit": limit, "body": body}
        if self.last:
            self.links.append({"from": self.last, "to": f"{id}_m"})
        self.tasks[id] = {
            "do": "add", "inputs": {"values": {"from": f"{id}_m"}}, "after": [f"{id}_m"],
        }  # fmt: skip

    def _timer(self, id: str, milliseconds: int) -> None:
        self.tasks[f"{id}_t"] = {"type": "timer", "delay": f"{milliseconds}ms"}
        if self.last:
            self.links.append({"from": self.last, "to": f"{id}_t"})
        self._task(id, "a", self.value, f"{id}_t")

    def _signal(self, id: str, milliseconds: int) -> None:
        self.tasks[f"{id}_g"] = {"type": "gateway", "kind": "event"}
        if self.last:
            self.links.append({"from": self.last, "to": f"{id}_g"})
        self.tasks[f"{id}_s"] = {"type": "signal", "name": "go", "after": [f"{id}_g"]}
        self.tasks[f"{id}_t"] = {
            "type": "timer", "delay": f"{milliseconds}ms", "after": [f"{id}_g"],
        }  # fmt: skip
        self.links += [{"from": f"{id}_s", "to": id}, {"from": f"{id}_t", "to": id}]
        self._either(id, f"{id}_s", str(SILENCE))

    def _caught(self, id: str, name: str, handler: str) -> None:
        self._task(f"{id}_x", name, self.value)
        self.tasks[f"{id}_h"] = {"do": handler, "inputs": {"n": self.value}}
        self.links.append({"from": f"{id}_x", "to": f"{id}_h", "on": "error"})
        self.links += [{"from": f"{id}_x", "to": id}, {"from": f"{id}_h", "to": id}]
        self._either(id, f"{id}_x", f"tasks.{id}_h.output")

    def _child(self, id: str) -> None:
        self.tasks[f"{id}_k"] = {
            "type": "subworkflow", "definition": "kid", "inputs": {"n": self.value},
        }  # fmt: skip
        if self.last:
            self.links.append({"from": self.last, "to": f"{id}_k"})
        self._task(
            id, "a", "${tasks." + f"{id}_k" + ".output.value}", f"{id}_k"
        )  # what the child's outputs say


# --- as code --------------------------------------------------------------------------------------------------


async def follow(ctx: Context, shapes: list[Shape], n: int) -> int:
    for shape in shapes:
        match shape:
            case ("call", name):
                n = await ctx.call(NAMED[name], n)
            case ("patient", name):
                n = await ctx.call(NAMED[name], n=n, retry=PATIENT)
            case ("fails",):
                n = await ctx.call(bad, n)
            case ("undoable", name):
                n = await ctx.call(NAMED[name], n, undo=back)
            case ("both" | "both_undoable" as kind, names):
                undo = back if kind == "both_undoable" else None
                async with asyncio.TaskGroup() as group:
                    parts = [
                        group.create_task(ctx.call(NAMED[name], n, undo=undo)) for name in names
                    ]
                n = await ctx.call(add, [part.result() for part in parts])
            case ("choice", one, other):
                n = await ctx.call(a, await ctx.call(NAMED[one if n > 4 else other], n))
            case ("loop", name, most):
                n = 0
                for _ in range(most):
                    n = await ctx.call(NAMED[name], n)
                    if n % 3 == 0:
                        break
                n = await ctx.call(a, n)
            case ("map", name, items, limit):
                n = await ctx.call(add, await ctx.map(NAMED[name], items, limit=limit))
            case ("timer", milliseconds):
                await ctx.sleep(milliseconds / 1000)
                n = await ctx.call(a, n)
            case ("signal", milliseconds):
                got = await ctx.signal("go", type=int, timeout=milliseconds / 1000)
                n = await ctx.call(a, SILENCE if got is None else got)
            case ("caught", name, handler):
                try:
                    found = await ctx.call(NAMED[name], n)
                except StepFailed:
                    found = await ctx.call(NAMED[handler], n)
                n = await ctx.call(a, found)
            case _:
                n = await ctx.call(a, (await ctx.child(kid_of_code, n))["value"])
    return n


KID: list[Shape] = [("undoable", "b"), ("call", "a")]


@workflow
async def kid_of_code(ctx: Context, n: int) -> dict[str, int]:
    return {"value": await follow(ctx, KID, n)}


def code_of(shapes: list[Shape]) -> Any:
    @workflow(name="code")
    async def code(ctx: Context, n: int) -> dict[str, int]:
        return {"value": await follow(ctx, shapes, n)}

    return code


# --- what chance makes ----------------------------------------------------------------------------------------


def shapes_of(chance: Random) -> list[Shape]:
    def name() -> str:
        return chance.choice("abc")

    def shape() -> Shape:
        match chance.choice(KINDS_OF_SHAPES):
            case "both":
                return "both", tuple(name() for _ in range(chance.randint(2, 4)))
            case "both_undoable":
                names = [chance.choice("bdd") for _ in range(3)]
                return "both_undoable", (*names, "bad") if chance.random() < 0.3 else tuple(names)
            case "choice":
                return "choice", name(), name()
            case "loop":
                return "loop", name(), chance.randint(1, 4)
            case "map":
                items = [chance.randrange(10) for _ in range(chance.randint(1, 5))]
                return "map", name(), items, chance.randint(1, 3)
            case "timer" | "signal" as kind:
                return kind, chance.randrange(100, 6000)
            case "caught":
                return "caught", name(), name()
            case "child":
                return ("child",)
            case kind:
                return kind, name()

    shapes = [shape() for _ in range(chance.randint(1, 6))]
    return [*shapes, ("fails",)] if chance.random() < 0.35 else shapes


KINDS_OF_SHAPES = (
    "call", "patient", "undoable", "undoable", "both", "both_undoable", "choice", "loop", "map", "timer", "signal", "caught", "child",
)  # fmt: skip


def workload_of(shapes: list[Shape]) -> Workload:
    definitions = [Document("plain", shapes).document, Document("kid", KID).document]
    return Workload(
        [definition_row(each) for each in definitions], [code_of(shapes), kid_of_code], ACTIVITIES
    )


class Nobody(People):
    """Nothing is done but what the scenario says."""

    async def attend(self) -> None:
        await asyncio.Event().wait()


class Alone(Simulation):
    people = Nobody


def played(seed: int, shapes: list[Shape], definition: str, deeds: list[Deed]) -> tuple[Any, ...]:
    """What was called, and how it ended."""
    global world
    world = World(seed)
    scenario = Scenario(
        seed=seed, starts=[Start(0.5, "run", definition, {"n": seed % 10})], deeds=deeds
    )
    simulation = Alone(scenario, workload_of(shapes))
    result = simulation.play()
    assert result.problems == [], f"seed {seed}: {definition} {shapes}"
    run = simulation.judge.run("run")
    last = decode_event(result.histories["run/1"][-1])
    output = msgspec.json.decode(getattr(last, "output", b"null"))
    code = "" if run.failure is None else run.failure.code
    undone = undone_of(
        result.histories, Document("plain", shapes) if definition == "plain" else None
    )
    return world.calls, run.status, code, output, undone, late_of(result.histories["run/1"])


def late_of(history: Any) -> int:
    """Tasks that were done after the one whose failure ended the run."""
    events = [decode_event(each) for each in history]
    if not isinstance(events[-1], RunFailed):
        return 0
    after = iter(events)
    for event in after:
        if isinstance(event, TaskFailed) and event.key == events[-1].failure.key:
            break
    return sum(isinstance(each, TaskCompleted) for each in after)


def undone_of(histories: dict[str, Any], document: Document | None) -> list[tuple[str, int]]:
    """What was undone, in order, by the name and ordinal of what had done it: all that was done, last first, or nothing."""
    events = [decode_event(each) for each in histories["run/1"]]
    done: list[str] = []
    undone: list[str] = []
    undoable = (
        set[str]()
        if document is None
        else {key for key, task in document.tasks.items() if "compensate" in task}
    )
    for event in events:
        if document is None:
            wanted = [each for raw in event.outcomes for each in DECODER.decode(raw)]
            undoable |= {each.key for each in wanted if isinstance(each, Call) and each.undo}
        match event:
            case TaskCompleted() if event.key in undoable:
                done.append(event.key)
            case ChildClosed(status="COMPLETED"):
                done += [f"{event.key}/{entry.key}" for entry in event.undo]
            case UndoCompleted():
                undone.append(event.key)
            case _:
                pass
    everywhere = [decode_event(each) for history in histories.values() for each in history]
    backs = {ordinal for name, ordinal, *_ in world.calls if name == "back"}
    assert len(backs) == sum(isinstance(each, UndoCompleted) for each in everywhere)  # each once
    assert undone == ([] if events[-1].type == "run_completed" else done[::-1])
    return [world.named[_whose(key)] for key in undone]


def _whose(key: str) -> tuple[str, int, str, bool]:
    """A child's entries are undone by its parent under the key of its task."""
    child, _, inner = key.rpartition("/")
    return (f"run/{child}" if child else "run", 1, inner, False)


def agree(seed: int) -> tuple[list[Shape], Any]:
    chance = Random(f"styles {seed}")
    shapes = shapes_of(chance)
    times = sorted(chance.uniform(1, 12) for _ in range(chance.randint(0, 2)))
    deeds = [Deed(at, "signal", "run", "go", chance.randrange(10)) for at in times]
    if chance.random() < 0.25:
        deeds.append(Deed(chance.uniform(1, 12), "cancel", "run"))
    plain = played(seed, shapes, "plain", deeds)
    code = played(seed, shapes, "code", deeds)
    if plain != code:
        # What comes within the milliseconds that an engine takes, as a cancel with a retry, or a result with the failure of
        # another, may be first or not: the same at other times, and seldom.
        ties.append(seed)
        deeds = [replace(each, at=each.at + 0.05) for each in deeds]
        plain, code = (played(seed + OTHERWISE, shapes, each, deeds) for each in ("plain", "code"))
    assert plain == code, f"seed {seed}: {shapes}"
    return shapes, plain


def test_both_styles_call_the_same_and_end_alike() -> None:
    ends: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    ties.clear()
    for seed in range(EXAMPLES):
        shapes, (calls, status, code, _, undone, late) = agree(seed)
        ends[f"{status} {code}"] += 1
        seen.update(shape[0] for shape in shapes)
        seen["undone"] += bool(undone)
        seen["undone, several"] += len(undone) > 1
        seen["undone of a child"] += bool(undone) and ("child",) in shapes
        seen["given up, done all the same"] += late
        seen["tried again"] += any(attempt > 1 for _, _, attempt, _ in calls)
    assert len(ties) <= EXAMPLES // 300, ties
    assert set(KINDS_OF_SHAPES) <= set(seen)
    assert seen["undone"] > EXAMPLES // 12
    assert seen["undone, several"] > EXAMPLES // 60
    assert seen["undone of a child"] > EXAMPLES // 60
    assert seen["given up, done all the same"] > EXAMPLES // 60
    assert seen["tried again"] > EXAMPLES // 6
    assert ends["CANCELLED cancelled"] > EXAMPLES // 20
    assert ends["COMPLETED "] > EXAMPLES // 4
    assert sum(ends.values()) - ends["COMPLETED "] > EXAMPLES // 10


def faults_of(chance: Random) -> list[Fault]:
    kinds = sorted(KINDS)
    return [
        Fault(chance.uniform(0, 20), chance.choice(kinds), chance.randrange(2), chance.uniform(0, 4))
        for _ in range(chance.randint(1, 8))
    ]  # fmt: skip


@pytest.mark.parametrize("definition", ["plain", "code"])
def test_each_keeps_the_invariants_whatever_breaks(definition: str) -> None:
    global world
    counts: Counter[str] = Counter()
    for seed in range(EXAMPLES // 2):
        chance = Random(f"styles {seed}")
        shapes = shapes_of(chance)
        world = World(seed)
        starts = [Start(i * 0.7, f"run{i}", definition, {"n": i}) for i in range(3)]
        deeds = [Deed(chance.uniform(1, 20), "signal", f"run{i}", "go", i) for i in range(3)]
        if chance.random() < 0.3:
            deeds.append(Deed(chance.uniform(1, 15), "cancel", "run1"))
        scenario = Scenario(
            seed=seed, nodes=2, starts=starts, deeds=deeds, faults=faults_of(chance)
        )
        result = Simulation(scenario, workload_of(shapes)).play()
        assert result.problems == [], f"seed {seed}: {shapes}"
        counts += result.counts
    assert counts["crashes"] > EXAMPLES // 12
