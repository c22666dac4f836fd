"""What tasks do beside their work: they write data, announce, take signals and answer updates (SPEC 2.6).

Methods of Flow, and what they need.
"""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING, Any, cast

from msgspec import Raw

from penstock.core.keys import natural
from penstock.core.plan import Doing, Node
from penstock.core.values import Fault, decode, encode
from penstock.errors import Rejected
from penstock.model.effects import Answer, Deliver
from penstock.model.events import DataConflicted, Published, SignalSent
from penstock.model.run import SignalOut, Write
from penstock.policy.topics import is_topic

if TYPE_CHECKING:
    from penstock.core.flow import Flow


def do(flow: Flow, path: str, node: Node, doing: Doing) -> None:
    key = flow.key(path, node.id)
    if doing.kind == "set":
        for name, formula in doing.set:
            flow.set_data(path, node, name, formula, f"`{name}` set by `{node.id}`")
        return
    assert doing.value is not None
    make = doing.value
    if doing.kind == "publish":
        value = flow.ask(lambda seen: with_topic(make(seen)), path, f"publish of `{node.id}`")
    else:
        value = flow.ask(make, path, f"{doing.kind} of `{node.id}`")
    flow.announce(key, doing.kind, value)


def with_topic(message: Any) -> Any:
    """The message, if the bus takes its topic; asked once, before the outcome is recorded: what was published stays so."""
    topic = message.get("topic")
    if not isinstance(topic, str) or not is_topic(topic):
        raise Rejected("topic-invalid", f"`{shown(topic)}` is no topic")
    return message


def shown(value: Any) -> str:
    """In a message: as it is, or its beginning."""
    text = value if isinstance(value, str) else encode(value).decode()
    return text if len(text) <= 80 else f"{text[:80]}…"


def announce(flow: Flow, key: str, kind: str, value: Any) -> None:
    """A publish, a signal to another run, or a notice: an event of its own, which followers hand on."""
    run = flow.run
    if kind == "signal":
        id = f"{run.id}/{run.generation}/{flow.seq}/{len(run.pending)}"
        run.pending.append(
            SignalSent(
                at=flow.at, key=key, run=str(value.get("run", "")), name=str(value.get("name", "")),
                payload=Raw(encode(value.get("payload"))), id=id,
            )
        )  # fmt: skip
    elif kind == "publish":
        run.pending.append(
            Published(
                at=flow.at,
                key=key,
                topic=str(value["topic"]),
                payload=Raw(encode(value.get("payload"))),
            )
        )
    else:
        run.pending.append(
            Published(at=flow.at, key=key, topic="workflow.notify", payload=Raw(encode(value)))
        )


def set_data(flow: Flow, path: str, node: Node, name: str, formula: Any, what: str) -> Any:
    """Write a key of the run's data, merged as the definition says (SPEC 2.6)."""
    value = flow.ask(formula, path, what)
    raw = flow.outcomes[flow.cursor - 1]
    run, key = flow.run, flow.key(path, node.id)
    merge = flow.plan.merges.get(name)
    before = run.data.get(name)
    if merge == "append":
        if before is None or not before.key:
            first = None if before is None else decode(before.single)
            begun = cast("list[Any]", first) if isinstance(first, list) else []
            before = run.data[name] = Write(parts=[("", Raw(encode(each))) for each in begun])
        insort(before.parts, (key, raw), key=lambda part: natural(part[0]))
        before.key, before.node = key, node.path
        return value
    if merge is not None and merge != "last":
        current = None if before is None else decode(before.single)
        if before is not None and (before.key or current is not None):
            flow.ask(merge, path, f"merge of `{name}`", {"current": current, "value": value})
            raw = flow.outcomes[flow.cursor - 1]
    elif merge is None and before is not None and before.key and flow.apart(before.key, key):
        run.pending.append(DataConflicted(at=flow.at, name=name, first=before.key, second=key))
    run.data[name] = Write(raw, key, node.path)
    return value


def apart(flow: Flow, first: str, second: str) -> bool:
    """Two executions are concurrent: they differ in an item of a map (in a pass they follow one another), or, in
    one and the same scope, neither task lies on a path to the other."""
    static = ""
    for a, b in zip(first.split("/"), second.split("/"), strict=False):
        left, right = a.partition("[")[0], b.partition("[")[0]
        if a != b:
            one, other = (f"{static}/{left}", f"{static}/{right}") if static else (left, right)
            return (
                flow.plan.node(one).type == "map"
                if left == right
                else flow.plan.concurrent(one, other)
            )
        static = f"{static}/{left}" if static else left
    return False


def take_letter(flow: Flow, name: str, key: str) -> Any:
    """The oldest signal of that name that nobody has taken, or None."""
    letters = flow.run.signals.get(name)
    if not letters:
        return None
    letter = letters.pop(0)
    if not letters:
        del flow.run.signals[name]
    return letter


def forget_waiter(flow: Flow, name: str, key: str) -> None:
    waiting = flow.run.waiters.get(name)
    if waiting is not None and key in waiting:
        waiting.remove(key)
        if not waiting:
            del flow.run.waiters[name]


def answer(flow: Flow, path: str, node: Node, id: str) -> None:
    """An update was taken by a signal task: evaluate its reply."""
    reply = node.formulas.get("reply")
    raw = b"null"
    if reply is not None:
        try:
            flow.ask(reply, path, f"reply of `{node.id}`")
            raw = flow.asked()[1]
        except Fault as fault:
            flow.answered(Answer(id, b"null", refused=fault.failure.message))
            return
    flow.answered(Answer(id, raw))


def answered(flow: Flow, answer: Answer) -> None:
    flow.effects.append(answer)
    flow.answers.append(answer)


def deliver(flow: Flow, id: str, out: SignalOut) -> None:
    flow.run.outgoing[id] = out
    flow.effects.append(Deliver(id))
