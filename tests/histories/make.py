"""Writes golden histories; `python tests/histories/make.py NAME…` writes those that do not exist yet.

A history that is there is never written anew: it is a fact about what was once released. Only its digest may change,
together with the rule of how a state is encoded, and `--digests` writes that.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import pathlib
import sys
from collections.abc import Callable, Iterator

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from penstock import Context, Retry, workflow  # noqa: E402
from penstock.core.evolve import evolve  # noqa: E402
from penstock.core.flow import Flow  # noqa: E402
from penstock.core.functions import FunctionPlan  # noqa: E402
from penstock.core.identity import signal_digest  # noqa: E402
from penstock.core.plan import Plan  # noqa: E402
from penstock.model import commands as c  # noqa: E402
from penstock.model.codec import (  # noqa: E402
    decode_definition,
    decode_event,
    encode_definition,
    encode_run,
)
from penstock.model.failure import Failure  # noqa: E402
from penstock.model.run import Run  # noqa: E402
from penstock.sdk.functions import Functions  # noqa: E402
from support.world import NOON, Case, World, given, plan_of  # noqa: E402

MAKERS: dict[str, Callable[[], Case]] = {}


def golden(make: Callable[[], Case]) -> Callable[[], Case]:
    MAKERS[make.__name__] = make
    return make


@golden
def order() -> Case:
    """Retries, a loss, progress, a branch, data that conflicts, a publish; completed."""
    run = given(
        """
data: {log: {merge: append}}
tasks:
  check: {do: check, retry: {attempts: 3, first: 2s}, onComplete: [{set: {log: '"checked"', seen: '1'}}]}
  stock: {do: stock, onComplete: [{set: {log: '"stock"', seen: '2'}}]}
  g: {type: gateway, kind: exclusive, default: small, after: [check, stock]}
  large: {do: ask, after: {from: g, when: 'tasks.check.output > 100'}}
  small: {do: charge, inputs: {sum: {from: check}}, after: g}
  tell: {type: publish, topic: orders, payload: {sum: '${tasks.check.output}'}, after: [large, small]}
outputs: {log: data.log, sum: tasks.check.output}
""",
        {"id": 7},
    )
    run.begin("check")
    run.command(
        c.RecordProgress(at=run.world.now, key="check", attempt=1, progress=b'{"half":true}')
    )
    run.fail("check", "busy", "try later")
    run.skip(3)
    run.lose("check")
    run.complete("stock", "ok")
    run.complete("check", 250)
    run.complete("large", "x" * 3000)
    return run


@golden
def ended() -> Case:
    """Tasks with an undo, in items too, that are under way as another fails: done all the same, failed, given up."""
    run = given(
        """
tasks:
  a: {do: x, compensate: u}
  b: {do: x, compensate: u}
  m:
    type: map
    items: '[7, 8]'
    limit: 2
    body:
      tasks:
        one: {do: x}
        two: {do: x, after: one, compensate: {do: u, inputs: {i: {from: item}, o: {from: one}, t: {from: two}}}}
  c: {do: x}
"""
    )
    run.complete("m[0]/one", "o")
    run.complete("m[1]/one", "p")
    run.fail("c", "boom")
    run.complete("m[1]/two", "t")
    run.fail("b", "cancelled")
    run.complete("a", "A")
    run.skip(40)
    run.complete("a")
    run.complete("m[1]/two")
    return run


@golden
def answered() -> Case:
    """An event gateway, forms in all their acts, signals, an update, a pause; delayed start; completed."""
    run = given(
        """
tasks:
  f: {type: form, schema: {type: object}, assignee: team, due: 1h}
  g: {type: gateway, kind: event, after: f}
  yes: {type: signal, reply: '"thanks"', after: g}
  late: {type: timer, delay: 2h, after: g}
  wait: {type: timer, delay: 10s, after: yes}
""",
        None,
        delay=60.0,
    )
    run.skip(60)
    for command in (
        c.ClaimForm(at=run.world.now, key="f", by="ann"),
        c.ReleaseForm(at=run.world.now, key="f", by="ann"),
        c.ClaimForm(at=run.world.now, key="f", by="ann"),
        c.DelegateForm(at=run.world.now, key="f", by="ann", to="bob"),
    ):
        run.command(command)
    run.skip(3700)
    run.submit("f", {"ok": True}, by="bob")
    run.pause()
    run.skip(10_000)
    run.resume()
    run.signal("yes", {"by": "ann"}, id="m1", update=True)
    run.skip(10)
    return run


@golden
def saga() -> Case:
    """A child's entries, undo that is retried, lost and done; failed."""
    run = given(
        """
id: parent
tasks:
  book: {do: book, compensate: unbook}
  sub: {type: subworkflow, definition: child, after: book}
  pay: {do: pay, after: sub, onError: [{signal: {run: other, name: go, payload: 1}}]}
""",
        None,
        "id: child\ntasks:\n  charge: {do: charge, compensate: {activity: refund, inputs: {p: {from: charge}}}}",
    )
    run.complete("book", "b1")
    child = run.world.start_child(run, "sub")
    child.complete("charge", "c1")
    run.world.close_child(child)
    run.fail("pay", "refused", "no money")
    run.world.deliver(run, next(iter(run.run.outgoing)))
    run.fail("sub/charge", "busy")
    run.skip(2)
    run.lose("sub/charge")
    run.complete("sub/charge")
    run.complete("book")
    return run


@golden
def stuck() -> Case:
    """An undo that fails for good: the run stays COMPENSATING."""
    run = given("tasks:\n  a: {do: x, compensate: u}\n  b: {do: x, after: a}")
    run.complete("a")
    run.fail("b", "boom")
    for _ in range(4):
        run.fail("a", "no")
        run.skip(10)
    return run


@golden
def suspect() -> Case:
    """An undo that is lost again and again: begun with care, then given up as poison."""
    run = given("tasks:\n  a: {do: x, compensate: u}\n  b: {do: x, after: a}")
    run.complete("a")
    run.fail("b", "boom")
    for _ in range(5):
        run.begin("a")
        run.lose("a")
    return run


@golden
def loops() -> Case:
    """Natural loops in each other, `loop`, `map` with collect and more, mutex; completed."""
    run = given(
        """
tasks:
  h: {do: x, after: {from: t, when: 'iteration < 2'}}
  i: {do: x, after: [h, {from: i, when: 'iteration < 2'}]}
  t: {type: transform, set: {passes: iteration}, after: i}
  l: {type: loop, until: 'tasks.x.output > 1', body: {do: x}, after: {from: t, when: 'iteration >= 2'}}
  m: {type: map, items: '[1, 2]', more: add, onItemError: collect, limit: 2, body: {type: mutex, name: k, body: {do: y}}, after: l}
outputs: {m: tasks.m.output, passes: data.passes, last: tasks.i.output}
"""
    )
    for number in (1, 2):
        run.complete(f"h[{number}]/h")
        run.complete(f"h[{number}]/i[1]/i", number)
        run.complete(f"h[{number}]/i[2]/i", number * 10)
    run.complete("l[1]/x", 1)
    run.complete("l[2]/x", 2)
    run.signal("add", "third")
    run.signal("add", None)
    run.fail("m[0]/mutex[1]/y", "bad", "first")
    run.complete("m[1]/mutex[1]/y", "second")
    run.complete("m[2]/mutex[1]/y", "third")
    return run


@golden
def cancelled() -> Case:
    """Cancelled in the middle; the grace is over."""
    run = given("tasks:\n  a: {do: x, compensate: u}\n  b: {do: x, after: a}\n  s: {type: signal}")
    run.complete("a", 1)
    run.cancel()
    run.skip(30)
    run.complete("a")
    return run


@golden
def stopped() -> Case:
    """Cancelled: one attempt stops, one is lost, one fails by itself meanwhile."""
    run = given(
        "tasks:\n  a: {do: x, compensate: {activity: u, when: attempted}}\n  b: {do: x}\n  c: {do: x}\n  m: {type: map, items: '[1]', body: {tasks: {n: {do: x}}}}"
    )
    run.cancel()
    run.fail("a", "cancelled", "told to stop")
    run.lose("b")
    run.fail("c", "boom")
    run.fail("m[0]/n", "cancelled", "told to stop")
    run.complete("a")
    return run


@golden
def timed_out() -> Case:
    run = given(
        "timeouts: {run: 60s}\ntasks:\n  s: {type: signal}\n  a: {do: x, timeout: {task: 20s}}\n  h: {do: y, after: {from: a, on: error}}"
    )
    run.skip(20)
    run.complete("h")
    run.skip(40)
    return run


@golden
def terminated() -> Case:
    run = given("tasks:\n  a: {do: x}\n  s: {type: signal}")
    run.signal("s", "x")
    run.terminate()
    return run


@golden
def named() -> Case:
    """A moment that was given a name."""
    run = given("tasks:\n  a: {type: signal, name: go}\n", 1)
    run.command(c.NameSnapshot(at=run.world.now, name="before", by="ada"))
    run.signal("go", 2)
    return run


@golden
def late() -> Case:
    """A run that waits for its definition's limit, is foreseen to be late, and is."""
    run = given(
        "limits: {runs: 1}\ntimeouts: {run: 1h}\ntasks:\n  a: {do: x}\n",
        None,
        delay=5.0,
        deadline=NOON + 100.0,
    )
    run.skip(5)
    run.command(c.AdmitRun(at=run.world.now))
    run.command(c.ForeseeMiss(at=run.world.now, expected=run.world.now + 200))
    run.skip(100)
    run.complete("a", 1)
    return run


@golden
def operated() -> Case:
    """Waits that operators fire, skip and fail; attributes; commands with ids; a deferred attempt; completed."""
    run = given(
        """
tasks:
  t: {type: timer, delay: 1h}
  r: {do: x, retry: {attempts: 3, first: 600s}, after: t}
  s: {type: signal, name: go, after: r}
  f: {type: form, schema: {type: object}, after: s}
  h: {do: y, after: {from: f, on: error}}
  d: {do: later, after: h}
""",
        1,
        attributes={"region": "eu", "tier": 1},
    )
    now = run.world.now
    who = {"by": "ann", "reason": "it is late"}
    run.command(
        c.Identified(
            at=now, id="c1", digest="d1", command=c.HandleWait(at=now, key="t", act="fire", **who)
        )
    )
    run.fail("r", "busy")
    run.command(c.HandleWait(at=now, key="r", act="fire", **who))
    run.complete("r", 1)
    run.command(c.HandleWait(at=now, key="s", act="skip", **who))
    run.command(c.HandleWait(at=now, key="f", act="fail", **who))
    run.complete("h")
    run.command(c.ChangeAttributes(at=now, values={"region": "us", "tier": None, "n": 2}, **who))
    run.command(c.DeferTask(at=now, key="d", attempt=1, due=now + 60))
    run.skip(10)
    run.complete("d", "done outside")
    return run


@golden
def undo_by_hand() -> Case:
    """Undos that fail, and what an operator decides."""
    run = given(
        "tasks:\n  a: {do: x, compensate: u}\n  b: {do: x, after: a, compensate: u}\n"
        "  c: {do: x, after: b, compensate: u}\n  d: {do: x, after: c}"
    )
    for key in "abc":
        run.complete(key)
    run.fail("d", "boom")
    for key in "cba":
        run.fail(key, "no", final=True)
    now = run.world.now
    run.command(c.ResolveUndo(at=now, key="a", act="accept", by="ann", reason="by hand"))
    run.command(c.ResolveUndo(at=now, key="b", act="skip", by="ann"))
    run.command(c.ResolveUndo(at=now, key="c", act="retry", by="ann"))
    run.complete("c")
    return run


@golden
def continued() -> Case:
    """The generation that a reset has ended."""
    run = given("tasks:\n  a: {do: x}\n  s: {type: signal, name: go, after: a}")
    run.complete("a", 1)
    return run.reset(1, keep=True)


@golden
def second() -> Case:
    """The generation that a retry has opened: a signal given again, a child anew, a child to be stopped, an undo."""
    run = given(
        """
id: parent
tasks:
  a: {do: x, compensate: u}
  s: {type: signal, name: go, after: a}
  sub: {type: subworkflow, definition: child, after: s}
  z: {type: signal, name: end, after: sub}
""",
        None,
        "id: child\ntasks:\n  w: {type: signal, name: never}",
    )
    run.complete("a", "x" * 3000)
    run.signal("go", 1, id="m1")
    run.world.start_child(run, "sub")
    run = run.reset(1, undo=True, later={"sub": "run/sub"})
    run.complete("~1/a", None)
    run.complete("a", 2)
    run.command(c.CloseChild(at=run.world.now, key="sub", status="CANCELLED", run="run/sub"))
    child = run.world.start_child(run, "sub")
    child.signal("never")
    run.world.close_child(child)
    run.signal("end")
    return run


@golden
def replaced() -> Case:
    """The generation that a start in place of another has opened: its children are to be stopped, ids are known."""
    run = given(
        """
id: parent
tasks:
  a: {do: x}
  s: {type: signal, name: go, after: a}
""",
        None,
        generation=2,
        later={"sub": "run/sub", "~0/old": "run/old"},
        known={"m1": (NOON - 60.0, signal_digest("go", b"1", 1))},
    )
    run.command(c.CloseChild(at=run.world.now, key="~1/sub", status="CANCELLED", run="run/sub"))
    run.signal("go", 1, id="m1")  # which the generation before has heard
    run.complete("a", 2)
    run.command(c.CloseChild(at=run.world.now, key="~1/~0/old", status="COMPLETED", run="run/old"))
    run.signal("go", 3, id="m2")
    return run


@golden
def listened() -> Case:
    """Bus events: one for a task of an event gateway, one for two tasks at a time, one that is none of ours; completed."""
    run = given(
        """
tasks:
  g: {type: gateway, kind: event}
  paid: {type: event, topic: 'orders.${input}', where: event.data.sum > 10, timeout: 1d, after: g}
  late: {type: timer, delay: 2d, after: g}
  a: {type: event, topic: 'stock.*', where: 'true', after: paid}
  b: {type: event, config: {topic: 'stock.>', type: arrived, where: 'event.source == "depot"'}, after: paid}
""",
        "x",
    )

    def offer(id: str, topic: str, data: bytes, **more: str) -> None:
        run.command(c.OfferEvent(at=run.world.now, id=id, topic=topic, data=data, **more))

    offer("e1", "orders.x", b'{"sum":5}')
    offer("e2", "orders.y", b'{"sum":50}')
    offer("e3", "orders.x", b'{"sum":50}', source="bank")
    offer("e3", "orders.x", b'{"sum":50}', source="bank")
    offer("e4", "stock.book", b"[1,2]", kind="arrived", source="depot")
    return run


@golden
def migrated() -> Case:
    """Moved twice: with a task renamed, one dropped, one passed, data and timeout of its own; then another; completed."""
    kin: dict[str, Plan] = {}
    for number, text in enumerate(VERSIONS, 1):
        plan_of(text).join(kin, str(number))
    run = World(kin["1"]).start(None, {"n": 3})
    run.complete("old", 1)
    run.complete("made[1]/made", 2)
    run.command(
        c.MigrateRun(
            at=run.world.now + 1, version="2", mapping={"wait": "ask", "part/y": "part/z"}, by="ann", reason="new bank"
        )
    )  # fmt: skip
    run.complete("part[0]/x", 5)
    run.complete("part[0]/z", 6)
    run.complete("part[1]/x", 7)
    run.complete("part[1]/z", 8)
    run.complete("made[1]/tail", 4)
    run.complete("made[2]/made", 9)
    run.command(c.MigrateRun(at=run.world.now + 2, version="3"))
    run.complete("made[2]/tail", 9)
    run.signal("go", {"yes": True})
    run.complete("last", 10)
    return run


VERSIONS = (
    """
data: {total: {value: 1}}
tasks:
  old: {do: x}
  made: {do: x, compensate: undo, after: old}
  tail: {do: x, after: made}
  wait: {type: signal, name: go, timeout: 1h, after: old}
  part: {type: map, items: '[1, 2]', limit: 1, body: {tasks: {x: {do: x}, y: {do: y, after: x}}}, after: old}
  last: {do: x, after: [tail, wait, part]}
links:
  - {from: tail, to: made, when: iteration < 2}
""",
    """
timeouts: {run: 2h}
data: {total: {value: 2}, seen: {value: [1]}}
tasks:
  early: {do: x}
  made: {do: x, compensate: undo, after: early}
  tail: {do: x, after: made}
  ask: {type: signal, name: go, timeout: 1h, after: early}
  part: {type: map, items: '[1, 2]', limit: 1, body: {tasks: {x: {do: x}, z: {do: y, after: x}}}, after: early}
  last: {do: x, after: [tail, ask, part]}
links:
  - {from: tail, to: made, when: iteration < 2}
""",
    """
data: {total: {value: 2}, seen: {value: [1]}}
tasks:
  early: {do: x}
  made: {do: x, compensate: undo, after: early}
  tail: {do: x, after: made}
  ask: {type: signal, name: go, timeout: 1h, after: early}
  part: {type: map, items: '[1, 2]', limit: 1, body: {tasks: {x: {do: x}, z: {do: y, after: x}}}, after: early}
  last: {do: x, inputs: {all: '${tasks.part.output}', seen: '${data.seen}'}, after: [tail, ask, part]}
links:
  - {from: tail, to: made, when: iteration < 2}
outputs: {last: tasks.last.output, total: data.total}
""",
)
"""Of the definition of `migrated`."""


@golden
def function() -> Case:
    """A workflow function: steps together, a letter that waits, a timer, undo, a child, code that is away for a while; cancelled."""
    host = Functions([travel])
    case = Case(World(host.get("travel").plan), "run", host.plan("travel"))
    case.flow.host = host
    now = case.world.now
    start = c.StartRun(
        at=now, id="run", definition="travel", version="function", input=b'{"where": "Oslo"}'
    )
    case.command(start)
    case.command(c.CompleteTask(at=now, key="book#1", attempt=1, output=b'"hotel"'))
    case.command(c.SendSignal(at=now, name="ready", payload=b"1"))
    case.command(c.CompleteTask(at=now + 1, key="book#2", attempt=1, output=b'"flight"'))
    case.command(c.Wake(at=now + 61))
    child = "run/child:pack#1"
    case.command(c.RecordChild(at=now + 62, key="child:pack#1", run=child, version="function"))
    case.command(
        c.CloseChild(at=now + 63, key="child:pack#1", status="COMPLETED", output=b"7", run=child)
    )
    case.flow.host, away = None, case.flow.program
    case.flow.program = None
    case.command(c.SendSignal(at=now + 64, name="go", payload=b"true"))
    case.flow.host, case.flow.program = host, away
    case.command(c.AdvanceRun(at=now + 65))
    case.command(c.CancelRun(at=now + 66, reason="rain"))
    for key in ("book#2", "book#1"):
        case.command(c.CompleteTask(at=now + 67, key=key, attempt=1, output=b"null", undo=True))
    return case


@workflow
async def travel(ctx: Context, where: str) -> None:
    hotel, flight = await asyncio.gather(
        ctx.call("book", "hotel", where, undo="cancel"),
        ctx.call("book", "flight", where, undo="cancel", retry=Retry(attempts=2)),
    )
    ctx.query("booked", lambda: [hotel, flight])
    if await ctx.signal("ready"):
        await asyncio.sleep(60)
    ctx.publish("travel.booked", ctx.side_effect(lambda: 42))
    await ctx.child("pack", where)
    if await ctx.signal("go", timeout=3600) and ctx.changed("wave"):
        ctx.set_attributes({"gone": True})
    await asyncio.Event().wait() if where == "nowhere" else await ctx.signal("back")


@golden
def told() -> Case:
    """A workflow function that is cancelled while two steps are under way: one is done all the same, one stops."""
    host = Functions([hasty])
    case = Case(World(host.get("hasty").plan), "run", host.plan("hasty"))
    case.flow.host = host
    now = case.world.now
    case.command(
        c.StartRun(at=now, id="run", definition="hasty", version="function", input=b"null")
    )
    case.command(c.CancelRun(at=now + 1, reason="rain"))
    case.command(c.CompleteTask(at=now + 2, key="book#1", attempt=1, output=b'"hotel"'))
    case.command(c.CompleteTask(at=now + 3, key="sweep#1", attempt=1, output=b"null"))
    stopped = Failure(code="cancelled", message="it has stopped")
    case.command(c.FailTask(at=now + 4, key="book#2", attempt=1, failure=stopped))
    case.command(c.CompleteTask(at=now + 5, key="book#1", attempt=1, output=b"null", undo=True))
    return case


@workflow
async def hasty(ctx: Context) -> None:
    try:
        await asyncio.gather(*(ctx.call("book", each, undo="cancel") for each in "ab"))
    finally:
        await ctx.call("sweep")


@golden
def given_up() -> Case:
    """A workflow function that gives a step up and then fails while another is under way: both are done all the same."""
    host = Functions([impatient])
    case = Case(World(host.get("impatient").plan), "run", host.plan("impatient"))
    case.flow.host = host
    now = case.world.now
    case.command(
        c.StartRun(at=now, id="run", definition="impatient", version="function", input=b"null")
    )
    case.command(c.Wake(at=now + 5))
    case.command(c.CompleteTask(at=now + 6, key="book#1", attempt=1, output=b'"hotel"'))
    full = Failure(code="full", message="no room")
    case.command(c.FailTask(at=now + 7, key="eat#1", attempt=1, failure=full))
    case.command(c.CompleteTask(at=now + 8, key="book#2", attempt=1, output=b'"flight"'))
    for key in ("book#2", "book#1"):
        case.command(c.CompleteTask(at=now + 9, key=key, attempt=1, output=b"null", undo=True))
    return case


@workflow
async def impatient(ctx: Context) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(ctx.call("book", "hotel", undo="cancel"), 5)
    await asyncio.gather(ctx.call("book", "flight", undo="cancel"), ctx.call("eat"))


@golden
def taken_along() -> Case:
    """One that goes on as new while a step is under way."""
    host = Functions([restless])
    case = Case(World(host.get("restless").plan), "run", host.plan("restless"))
    case.flow.host = host
    now = case.world.now
    case.command(
        c.StartRun(at=now, id="run", definition="restless", version="function", input=b"null")
    )
    case.command(c.Wake(at=now + 5))
    case.command(c.CompleteTask(at=now + 6, key="book#1", attempt=1, output=b'"hotel"'))
    case.command(c.Wake(at=now + 35))
    return case


@workflow
async def restless(ctx: Context) -> None:
    _bookings = [asyncio.create_task(ctx.call("book", each, undo="cancel")) for each in "ab"]
    await ctx.sleep(5)
    ctx.continue_as_new()


def digest(name: str) -> str:
    """Of every state between two turns on the way, the last one included."""
    found = hashlib.sha256()
    for flow, _ in replay(name):
        if not flow.run.pending:
            found.update(encode_run(flow.run))
    return found.hexdigest()


def replay(name: str) -> Iterator[tuple[Flow, bytes]]:
    """The flow before each event of a golden history, and that event as stored; last the flow at the end."""
    definition = HERE / f"{name}.definition.json"
    plan = (
        Plan(decode_definition(definition.read_bytes()))
        if definition.exists()
        else FunctionPlan(name)
    )
    for path in HERE.glob(f"{name}.definition-*.json"):
        plan.join(plan.kin, "1")
        version = path.name.removesuffix(".json").rpartition("-")[2]
        Plan(decode_definition(path.read_bytes())).join(plan.kin, version)
    flow = Flow(Run(id="run"), plan)
    for line in (HERE / f"{name}.jsonl").read_bytes().splitlines():
        yield flow, line
        evolve(flow, decode_event(line))
    yield flow, b""


def main() -> None:
    for name, make in MAKERS.items():
        path = HERE / f"{name}.jsonl"
        if not path.exists():
            case = make()
            path.write_bytes(b"".join(payload + b"\n" for payload in case.stored))
            if case.plan.function:
                continue
            for version, plan in (case.plan.kin or {"1": case.plan}).items():
                more = "" if version == "1" else f"-{version}"
                file = HERE / f"{name}.definition{more}.json"
                file.write_bytes(encode_definition(plan.definition))
        elif "--digests" not in sys.argv:
            continue
    for path in HERE.glob("*.jsonl"):
        name = path.name.removesuffix(".jsonl")
        if "--digests" in sys.argv or not (HERE / f"{name}.sha256").exists():
            _write(name)


def _write(name: str) -> None:
    (HERE / f"{name}.sha256").write_text(digest(name) + "\n")


if __name__ == "__main__":
    main()

__all__ = ["HERE", "MAKERS", "digest", "replay"]
