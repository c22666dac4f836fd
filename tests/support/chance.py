"""Chance: a seed says what happens in a world, in which order, until every run is closed or can only wait for people.

Outcomes of activities depend on the run, the task and the attempt (not on the order), so that two orders of the same
world can be compared.
"""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import dataclass
from zlib import crc32

from penstock.errors import PenstockError, Rejected
from penstock.model import commands as c
from penstock.model import effects as f
from penstock.model.run import RETRYING
from support.world import Case, World, encode


@dataclass(frozen=True)
class Odds:
    """How likely it is that things go wrong, of 1."""

    fail: float = 0.08
    crash: float = 0.05
    begin: float = 0.1
    pause: float = 0.02
    cancel: float = 0.01
    terminate: float = 0.003
    nonsense: float = 0.05
    time: float = 0.1
    hand: float = 0.03
    """Operators fire, skip and fail waits, and decide about undos that failed."""
    defer: float = 0.05
    reset: float = 0.01


CALM = Odds(
    fail=0.0, crash=0.0, pause=0.0, cancel=0.0, terminate=0.0, nonsense=0.0, time=0.0, hand=0.0, defer=0.0, reset=0.0
)  # fmt: skip
RESETS_MAX = 3
"""Of one run, so that it comes to an end."""


class Chance:
    def __init__(
        self, world: World, seed: int, *, outcomes: int | None = None, odds: Odds | None = None
    ) -> None:
        self.world, self.random = world, random.Random(seed)
        self.outcomes = seed if outcomes is None else outcomes
        self.odds = odds or Odds()
        self.steps = 0

    def draw(self, *what: object) -> float:
        """From 0 to 1, the same for the same things."""
        return crc32(repr((self.outcomes, *what)).encode()) / 0xFFFFFFFF

    def output(self, case: Case, key: str) -> object:
        draw = self.draw(case.id, key, "output")
        if draw < 0.05:
            return "x" * 3000
        return int(draw * 1000) % 10

    def play(self, steps_max: int = 400) -> None:
        """Until nothing can happen any more; what a run then waits for is for the laws to judge."""
        while self.steps < steps_max:
            self.steps += 1
            if not self.step():
                return
        # Bring what is still open to its end.
        self.world.cut = True
        for case in list(self.world.cases.values()):
            if not case.run.closed:
                case.terminate()

    def step(self) -> bool:
        while sum([self._settle(case) for case in list(self.world.cases.values())]):
            pass  # until all messages have arrived
        odds, chance = self.odds, self.random
        cases = [case for case in self.world.cases.values() if not case.run.closed]
        if not cases:
            return False
        case = chance.choice(cases)
        if chance.random() < odds.pause:
            with suppress(Rejected):  # it stops already
                case.pause()
        if chance.random() < odds.cancel:
            with suppress(Rejected):
                case.cancel()
        if chance.random() < odds.terminate and not case.run.closed:
            case.terminate()
        if chance.random() < odds.nonsense:
            self.nonsense(chance.choice(list(self.world.cases.values())))
        if chance.random() < odds.time:
            self.world.skip(chance.choice([0.5, 5.0, 40.0]))
        if chance.random() < odds.hand and not case.run.closed:
            self.lay_hands(case)
        if chance.random() < odds.reset:
            self.reset(chance.choice(list(self.world.cases.values())))
            cases = [each for each in self.world.cases.values() if not each.run.closed]
        moves = [(each, move) for each in cases if not each.run.closed for move in self.moves(each)]
        if not moves:
            settled = sum([self._settle(each) for each in list(self.world.cases.values())])
            return bool(settled) or self._wait(cases)
        self.act(*chance.choice(moves))
        return True

    def lay_hands(self, case: Case) -> None:
        """Somebody fires, skips or fails a wait, or decides about an undo."""
        run, now = case.run, self.world.now
        act = self.random.choice(["fire", "skip", "fail"])
        failed = [each.entry.key for each in run.undo_failed]
        command: c.Command
        if failed:
            act = self.random.choice(["accept", "skip", "retry"])
            command = c.ResolveUndo(at=now, key=self.random.choice(failed), act=act, by="ann")
        else:
            keys = [*(key for key, _ in case.tasks()), *run.undoing] or ["gone"]
            command = c.HandleWait(at=now, key=self.random.choice(keys), act=act, by="ann")
        if self.random.random() < 0.3:
            command = c.Identified(at=now, id=f"c{self.steps}", digest="d", command=command)
        with suppress(Rejected):
            case.command(command)
        if self.random.random() < 0.2 and not case.run.closed:
            case.command(c.ChangeAttributes(at=now, values={"n": self.steps}))

    def reset(self, case: Case) -> None:
        """Another generation goes on from some event, open or closed as the run may be."""
        run = case.run
        if run.generation > RESETS_MAX or run.parent is not None:
            return
        if run.rewinding or (not run.closed and run.stopping is not None):
            return
        with suppress(Rejected):
            case.reset(
                self.random.randrange(1, len(case.stored) + 1), undo=self.random.random() < 0.5
            )

    def _settle(self, case: Case) -> bool:
        """Messengers: children begin and are told to stop, parents learn of ends, signals arrive. Whether any did."""
        world, before = self.world, sum(len(each.events) for each in self.world.cases.values())
        for mark, effect in list(case.todo.items()):
            if mark[0] == "child" and case.has(mark[1]) and not case.run.closed:
                world.start_child(case, mark[1])
            elif mark[0] == "admit" and not case.run.closed and not case.run.paused:
                case.command(c.AdmitRun(at=world.now))
            elif mark[0] == "deliver" and not case.run.closed:
                world.deliver(case, mark[1])
            elif mark[0] == "cancel":
                del case.todo[mark]
                assert isinstance(effect, f.CancelChild)
                child = world.cases.get(effect.run)
                if child is None and mark[1] in case.run.leaving and not case.run.closed:
                    # It was never begun, and is not any more.
                    case.command(c.CloseChild(at=world.now, key=mark[1], status="CANCELLED"))
                elif child is not None and not child.run.closed:
                    with suppress(Rejected):
                        child.cancel()
        run = case.run
        if run.closed and run.parent is not None:
            parent = world.cases[run.parent]
            key = run.parent_key
            assert key is not None
            awaited = case.id in parent.run.leaving.values() or (
                parent.has(key)
                and parent.task(key).status == "WAITING"
                and parent.task(key).child == case.id
            )
            if awaited and not parent.run.closed:
                world.close_child(case)
        return sum(len(each.events) for each in world.cases.values()) > before

    def moves(self, case: Case) -> list[tuple[str, str]]:
        found = [("attempt", key) for key in case.open if case.ready(key)]
        run = case.run
        found += [("signal", name) for name in run.waiters]
        found += [("event", topic) for topic in run.listening.values()]
        found += [
            ("form", key)
            for key, state in case.tasks()
            if state.form is not None and state.status == "WAITING"
        ]
        found += [("outside", key) for key, state in case.tasks() if state.deferred]
        if run.paused and not run.rewinding:
            found.append(("resume", ""))
        if case.due() is not None and case.due() <= self.world.now:  # type: ignore[operator]
            found.append(("wake", ""))
        return found

    def act(self, case: Case, move: tuple[str, str]) -> None:
        kind, key = move
        match kind:
            case "attempt":
                self.attempt(case, key)
            case "signal":
                more = any(node.type == "map" for node in case.plan.signals[key])
                case.signal(
                    key, None if more and self.random.random() < 0.5 else self.random.randrange(5)
                )
            case "event":
                number = self.steps if self.random.random() < 0.8 else 0
                with suppress(Rejected):  # that id came before, on another topic
                    case.command(
                        c.OfferEvent(
                            at=self.world.now, id=f"e{number}", topic=key.replace("*", "then"),
                            data=encode(self.random.randrange(5)),
                        )
                    )  # fmt: skip
            case "form":
                now, draw = self.world.now, self.random.random()
                if draw < 0.2:
                    case.command(c.ClaimForm(at=now, key=key, by="ann"))
                elif draw < 0.3:
                    case.command(c.ReleaseForm(at=now, key=key, by="ann"))
                elif draw < 0.4:
                    case.command(c.DelegateForm(at=now, key=key, by="ann", to="bob"))
                else:
                    case.submit(key, {"n": 1}, by="ann")
            case "resume":
                case.resume()
            case "outside":
                if self.random.random() < self.odds.fail:
                    case.fail(key, "boom")
                else:
                    case.complete(key, self.output(case, key))
            case _:
                case.command(c.Wake(at=self.world.now))

    def attempt(self, case: Case, key: str) -> None:
        odds, attempt = self.odds, case.attempt(key)
        undo = key in case.run.undoing
        if self.random.random() < odds.crash:
            case.lose(key)
            return
        if not undo and case.run.stopping is None and self.random.random() < odds.defer:
            due = self.random.choice([None, self.world.now + 30])
            case.command(c.DeferTask(at=self.world.now, key=key, attempt=attempt, due=due))
            return
        if not undo and self.random.random() < odds.begin and case.begin(key):
            case.command(
                c.RecordProgress(at=self.world.now, key=key, attempt=attempt, progress=b"1")
            )
            return
        if self.draw(case.id, key, attempt, undo) < odds.fail:
            draw = self.random.random()
            case.fail(key, "boom", died=draw < 0.1 and not undo, final=draw > 0.8)
        else:
            case.complete(key, self.output(case, key))

    def _wait(self, cases: list[Case]) -> bool:
        """Nothing can happen now: move the clock to whatever is due next."""
        dues = [case.due() for case in cases]
        for case in cases:
            dues += [
                state.due
                for _, state in case.tasks()
                if state.status == RETRYING and not case.run.paused
            ]
            dues += [undoing.due for undoing in case.run.undoing.values()]
        later = [due for due in dues if due is not None]
        if not later:
            return False
        self.world.now = max(self.world.now, min(later))
        for case in cases:
            due = case.due()
            if due is not None and due <= self.world.now:
                case.command(c.Wake(at=self.world.now))
        return True

    def nonsense(self, case: Case) -> None:
        """Commands that come late, twice or to the wrong place change nothing."""
        now = self.world.now
        keys = [key for key, _ in case.tasks()] or ["gone"]
        key = self.random.choice(keys)
        attempt = self.random.choice([0, 99, 1])
        command = self.random.choice(
            [
                c.CompleteTask(at=now, key=key, attempt=attempt + 50, output=b"1"),
                c.LoseTask(at=now, key="no[1]/such", attempt=1),
                c.SendSignal(at=now, name="undeclared"),
                c.SubmitForm(at=now, key=key + "x", output=encode({})),
                c.CloseChild(at=now, key="nobody", status="COMPLETED"),
                c.RecordDelivery(at=now, id="nothing"),
                c.HandleWait(at=now, key="no[1]/such", act="skip"),
                c.ResolveUndo(at=now, key="nothing", act="accept"),
                c.ChangeAttributes(at=now, values={"absent": None}),
                c.DeferTask(at=now, key=key, attempt=attempt + 50),
                c.StartRun(at=now, id=case.id, definition="flow", version="1", input=b"null"),
            ]
        )
        before = case.digest()
        try:
            events = case.command(command)
        except PenstockError:
            events = []
        assert events == [], (command, events)
        assert case.digest() == before, command
