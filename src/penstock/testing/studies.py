"""Seeds of somebody's workflows: what each one plays, what it shows, and how it is made small (SPEC 13).

Every fifth seed is calm: nothing breaks, so that what depends on order and what takes too long is seen. The others are
rough. A seed says all of it, so that any of them can be played again, alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from penstock.core.plan import Plan
from penstock.errors import Rejected
from penstock.model import events as e
from penstock.model import intents as i
from penstock.testing.apps import App
from penstock.testing.faults import Fault
from penstock.testing.findings import Finding, Line, Story
from penstock.testing.inspection import inspected, intents_of
from penstock.testing.plays import Play, Setup
from penstock.testing.pretending import Troupe
from penstock.testing.scenario import Deed, Result, Scenario, Start
from penstock.testing.shrinking import Shrinking
from penstock.testing.telling import outcome, told
from penstock.testing.timeouts import Timeouts, count_timeouts, short_timeouts, unmet

CALM_EVERY = 5
SQLITE_EVERY = 8
LEVELS = ("none", "mild", "rough")
MILD = ("restart", "crash", "slow", "deaf")
ROUGH = (
    "crash", "crash", "crash", "crash", "power", "restart", "stall", "jump", "slow", "failing", "unsure", "full", "partition", "late",
    "deaf", "cut",
)  # fmt: skip
SHRINK_TRIES = 60
ORDERS = 2
"""Other orders that a calm seed tries."""


class Seen(Struct):
    """What one seed showed."""

    seed: int
    digest: str
    runs: int
    findings: list[Finding]
    counts: Counter[str]
    met: dict[tuple[str, str], int] = {}
    fired: dict[tuple[str, str], int] = {}


class Study:
    """An application that is played under many seeds."""

    def __init__(self, app: App, *, level: str = "rough", folder: str | None = None) -> None:
        if level not in LEVELS:
            raise Rejected("usage", f"`{level}` is no level of faults", hint=", ".join(LEVELS))
        self.app, self.level, self._folder = app, level, folder
        self._troupe = Troupe(app)

    def seen(self, seed: int) -> Seen:
        """Play a seed, and look."""
        if self.calm(seed):
            return self._calm(seed)
        play, result = self._play(
            Setup(scenario_of(self.app, seed, self.level, self._folder), self.level)
        )
        return Seen(
            seed, result.digest, result.counts["runs"], inspected(play), _told(play, result)
        )

    def calm(self, seed: int) -> bool:
        return self.level == "none" or seed % CALM_EVERY == 0

    def _calm_setup(self, seed: int) -> Setup:
        return Setup(calm_scenario(self.app, seed), self.level, calm=True, guard=True)

    def _play(self, setup: Setup) -> tuple[Play, Result]:
        if self.app.careless:
            setup = replace(setup, guard=True)
        play = Play(self._troupe, setup, self._folder)
        return play, play.play()

    # --- calm ------------------------------------------------------------------------------------------------

    def _calm(self, seed: int) -> Seen:
        setup = self._calm_setup(seed)
        play, result = self._play(setup)
        counted = Timeouts()
        count_timeouts(play, counted)
        found = [*inspected(play), *short_timeouts(play)]
        counts = _told(play, result)
        if not found and not play.judge.problems:
            for finding, other in self._orders(setup, play):
                found.append(finding)
                counts += _told(other, None)
                break
        return Seen(
            seed, result.digest, result.counts["runs"], found, counts, dict(counted.met), dict(counted.fired)
        )  # fmt: skip

    def _orders(self, setup: Setup, play: Play) -> Iterator[tuple[Finding, Play]]:
        """Results that are others in another order."""
        first = outcome(play)
        setup = replace(setup, guard=False)
        if len(play.taken) < 2:
            return
        for number in range(1, ORDERS + 1):
            other, _ = self._play(replace(setup, pace=f"order {number}"))
            changed = [
                id
                for id, how in outcome(other).items()
                if id in first and self._differs(play, other, id, first[id], how)
            ]
            if not changed or other.judge.problems:
                continue
            # The same order, and only slower: then it is time that is in the result, and not the order.
            slower, _ = self._play(
                replace(setup, paces={k: v * 1.7 for k, v in play.taken.items()})
            )
            later = outcome(slower)
            for id in changed:
                if later.get(id) == first[id]:
                    name = play.judge.run(id).definition
                    yield self._order_finding(name, id, play), other
                    return

    def _differs(self, one: Play, other: Play, id: str, first: object, how: object) -> bool:
        if first == how:
            return False
        kind = self.app.kinds[one.judge.run(id).definition]
        if kind.plan is not None:
            return not _racing(kind.plan)
        return not any(_gave_up(play, id) for play in (one, other))

    def _order_finding(self, name: str, id: str, play: Play) -> Finding:
        return Finding(
            "order-dependent", "error", name, "",
            f"the result of `{name}` depends on the order in which its steps end",
            "join results in a fixed order, as `asyncio.gather` does, or `merge` what is written; if the race is meant: --ignore "
            f"order-dependent:{name}",
            self.app.kinds[name].place, id,
        )  # fmt: skip

    def timeline(self, seed: int) -> list[Line]:
        """All that a seed plays."""
        if self.calm(seed):
            setup = self._calm_setup(seed)
        else:
            setup = Setup(scenario_of(self.app, seed, self.level, self._folder), self.level)
        return told(self._play(setup)[0], None)

    # --- stories ---------------------------------------------------------------------------------------------

    def story(self, seed: int, finding: Finding) -> Story | None:
        """How it comes about, made small; None for what is plain without a run."""
        if not finding.told:
            return None
        if finding.code == "order-dependent":
            return self._story_of_orders(seed, finding)
        if self.calm(seed):
            setup = self._calm_setup(seed)
        else:
            setup = self._shrunk(
                Setup(scenario_of(self.app, seed, self.level, self._folder), self.level), finding
            )
        play, _ = self._play(setup)
        same = next((each for each in inspected(play) if each.ident == finding.ident), finding)
        return Story(told(play, same))

    def _shrunk(self, setup: Setup, finding: Finding) -> Setup:
        """Fewer faults, runs and nodes; then fewer attempts that fail."""

        def played(scenario: Scenario) -> Result:
            play, result = self._play(replace(setup, scenario=scenario))
            problems = [each.ident for each in inspected(play)]
            return Result(result.digest, problems, result.counts, {})

        small = Shrinking(played, tries_max=SHRINK_TRIES).shrink(setup.scenario, finding.ident)
        setup = replace(setup, scenario=small)
        play, _ = self._play(setup)
        for name in list(play.mishaps)[:20]:
            fewer = replace(setup, spared=setup.spared | {name})
            shown, _ = self._play(fewer)
            if any(each.ident == finding.ident for each in inspected(shown)):
                setup = fewer
        return setup

    def _story_of_orders(self, seed: int, finding: Finding) -> Story:
        """The one call that makes the difference by taking longer, or less long."""
        setup = self._calm_setup(seed)
        scenario = replace(
            setup.scenario, starts=[s for s in setup.scenario.starts if s.id == finding.run]
        )
        alone = replace(setup, scenario=scenario)
        if self._order_shown(alone, finding):
            setup = alone
        play, _ = self._play(setup)
        first = outcome(play).get(finding.run)
        for number in range(1, ORDERS + 1):
            other, _ = self._play(replace(setup, pace=f"order {number}"))
            if outcome(other).get(finding.run) == first:
                continue
            paces = dict(play.taken)
            before = play
            for ident in play.taken:
                paces[ident] = other.taken.get(ident, paces[ident])
                step, _ = self._play(replace(setup, paces=dict(paces)))
                if outcome(step).get(finding.run) != first:
                    return Story(
                        told(before, finding), told(step, finding), _pace(ident, before, step)
                    )
                before = step
            return Story(told(play, finding), told(other, finding))
        return Story(told(play, finding))

    def _order_shown(self, setup: Setup, finding: Finding) -> bool:
        play, _ = self._play(setup)
        return any(each.ident == finding.ident for each, _ in self._orders(setup, play))


def unmet_timeouts(
    study: Study, met: Counter[tuple[str, str]], fired: Counter[tuple[str, str]]
) -> list[Finding]:
    """Over all calm seeds."""
    counted = Timeouts()
    counted.met, counted.fired = met, fired
    places: dict[tuple[str, str], str] = {}
    for workflow, step in fired:
        if not step.startswith("@"):
            kind = study.app.kinds.get(workflow)
            node = study.app.nodes.get((workflow, step))
            places[workflow, step] = (
                node[1] if node is not None else "" if kind is None else kind.place
            )
    return list(unmet(None, counted, places))


# --- scenarios -------------------------------------------------------------------------------------------------


def _starts(app: App, seed: int, chance: Random, count: int) -> list[Start]:
    starts: list[Start] = []
    for number in range(1, count + 1):
        kind = app.started[(seed + number) % len(app.started)]
        given = app.input_of(kind, Random(f"{seed}/input {number}"))
        starts.append(
            Start(round(chance.random() * 1.5, 3), f"{kind.name}-{number}", kind.name, given)
        )
    return starts


def calm_scenario(app: App, seed: int) -> Scenario:
    chance = Random(f"calm {seed}")
    return Scenario(seed, starts=_starts(app, seed // CALM_EVERY, chance, min(2, len(app.started))))


def scenario_of(app: App, seed: int, level: str, folder: str | None) -> Scenario:
    """A seed draws its own weather: some faults often, some never, so that what hides behind another is found too."""
    chance = Random(f"scenario {seed}")
    rough = level == "rough"
    nodes = chance.choice([1, 1, 2, 2] if rough else [1, 1, 1, 2])
    starts = _starts(app, seed, chance, chance.choice([1, 2, 3]))
    deeds: list[Deed] = []
    for start in starts:
        draw, at = chance.random(), round(start.at + chance.random() * 4, 3)
        act = "cancel" if draw < 0.2 else "pause" if rough and draw < 0.26 else ""
        if act:
            deeds.append(Deed(at, act, start.id))
    seconds = chance.choice([1.5, 3.0, 6.0])
    kinds = ROUGH if rough else MILD
    faults = [
        Fault(round(chance.random() * seconds, 3), kind, chance.randrange(nodes), _amount(chance, kind))
        for kind in chance.sample(kinds, chance.randint(1, 6 if rough else 2))
    ]  # fmt: skip
    return Scenario(
        seed, store="sqlite" if rough and folder and seed % SQLITE_EVERY == 3 else "memory", nodes=nodes, starts=starts,
        deeds=deeds, faults=sorted(faults, key=lambda each: each.at), cache_runs=chance.choice([0, 1000, 1000]),
    )  # fmt: skip


def _amount(chance: Random, kind: str) -> float:
    match kind:
        case "crash" | "power":
            return float(chance.choice([0, 5, 30, 100]) + chance.randrange(20))
        case "jump":
            return chance.choice([-20.0, -2.0, 0.5, 7.0])
        case "stall" | "cut":
            return chance.choice([0.5, 3.0, 8.0])
        case "late":
            return round(chance.random() * 3, 3)
        case _:
            return chance.choice([0.3, 1.0, 3.0])


# --- what is meant ---------------------------------------------------------------------------------------------


def _racing(plan: Plan) -> bool:
    """The definition says itself that the first wins: order is meant to matter."""
    nodes = [node for scope in plan.scopes.values() for node in scope.nodes.values()]
    return any(
        node.join == "n" or node.gateway == "event" or node.type == "cancel" or bool(node.config.get("terminate"))
        or (node.type == "map" and "n" in node.config)
        for node in nodes
    ) or any(merge == "last" for merge in plan.merges.values())  # fmt: skip


def _gave_up(play: Play, id: str) -> bool:
    """The function let go of a step: a race that is meant."""
    return any(
        isinstance(each, i.Drop) and not each.key.startswith("sleep")
        for moment in play.story
        if moment.run == id and isinstance(moment.what, e.EVENT_TYPES)
        for each in intents_of(moment.what)
    )


def _pace(ident: str, before: Play, after: Play) -> str:
    name = ident.split("|")[1]
    return f"`{name}` takes {after.taken[ident]:.2f} s, not {before.taken[ident]:.2f} s"


_COUNTED = {
    e.TaskRetried: "retries", e.TaskLost: "attempts lost with a node", e.UndoCompleted: "steps undone",
    e.TimeoutReached: "run timeouts", e.SignalReceived: "signals", e.CancelRequested: "runs cancelled",
    e.TaskCompleted: "steps completed", e.RunCompleted: "runs completed", e.RunFailed: "runs failed",
}  # fmt: skip


def _told(play: Play, result: Result | None) -> Counter[str]:
    counts = Counter(play.counts if result is None else result.counts)
    for moment in play.story:
        name = _COUNTED.get(cast("Any", type(moment.what)))
        if name:
            counts[name] += 1
    counts["simulated seconds"] += int(play.now())
    return counts


__all__ = ["Line", "Seen", "Study", "unmet_timeouts"]
