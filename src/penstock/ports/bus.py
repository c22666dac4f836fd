"""Bus: carries events to whoever subscribes (SPEC 7.1).

A topic is words with dots between them; in a pattern `*` is any word and `>`, as the last, one or more. Of subscribers
that name a group each event goes to one, in turn; whoever names none hears all. Events of one run reach a subscriber, or
a group, in the order in which they were published. One that fails is tried again, then put with the dead letters; no
subscriber keeps an event from others. The laws of every bus: `penstock.testing.conformance.bus`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from penstock.model.envelope import Envelope

QoS = Literal["at-most-once", "at-least-once", "exactly-once"]
QOS: tuple[QoS, ...] = ("at-most-once", "at-least-once", "exactly-once")
Receiver = Callable[[Envelope], Any]
"""`async def`, or a plain function, which is called in a thread."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An event that a subscriber could not be given."""

    envelope: Envelope
    subscriber: str
    error: str
    tries: int
    at: float


@dataclass(frozen=True, slots=True)
class SubscriberStatus:
    name: str
    patterns: tuple[str, ...]
    group: str
    handled: int
    failed: int
    """How often it raised, retries included."""
    waiting: int
    """Events that its group has not handled yet."""


@dataclass(frozen=True, slots=True)
class BusStatus:
    """How the bus fares, counted since it was opened."""

    kind: str
    qos: QoS
    published: int
    delivered: int
    duplicates: int
    """Events that came again and were not given again."""
    lost: int
    """At most once: the subscriber failed, or its queue was full."""
    dead: int
    subscribers: tuple[SubscriberStatus, ...]


class Subscription(Protocol):
    """One subscriber; `await bus.unsubscribe(subscription)` ends it."""

    @property
    def name(self) -> str: ...

    @property
    def patterns(self) -> tuple[str, ...]: ...

    @property
    def group(self) -> str: ...


class Bus(Protocol):
    """See the module's docstring. `open()` before use, `close()` after."""

    async def open(self) -> None: ...

    async def close(self) -> None:
        """Let subscribers finish what they were given, for a moment, then end."""
        ...

    async def publish(
        self, envelope: Envelope, *, qos: QoS | None = None, wait: bool = True
    ) -> None:
        """Hand it to all who subscribe. At most once: not waited for. Otherwise on return each has acknowledged it, or
        it is with the dead letters; Unacknowledged if that takes longer than 5 s (it is still being delivered; to
        publish the same id again waits for that, and delivers nothing twice). With `wait` false that is not waited for."""
        ...

    async def publish_batch(
        self, envelopes: Sequence[Envelope], *, qos: QoS | None = None, wait: bool = True
    ) -> None:
        """All or none: one that is refused, for its topic or for want of room (Busy), refuses all."""
        ...

    async def subscribe(
        self, patterns: Sequence[str], receiver: Receiver, *, group: str = "", name: str = ""
    ) -> Subscription:
        """Hear what is published from now on."""
        ...

    async def unsubscribe(self, subscription: Subscription) -> None:
        """It hears nothing more on return; twice is harmless."""
        ...

    def status(self) -> BusStatus: ...

    def dead_letters(self) -> list[DeadLetter]:
        """The newest, oldest first."""
        ...

    @property
    def qos(self) -> QoS:
        """What holds where `publish` names none; may be changed at any time."""
        ...

    def set_qos(self, qos: QoS) -> None: ...

    def bury(self, letter: DeadLetter) -> None:
        """Put something with the dead letters that could not be delivered elsewhere."""
        ...

    def quiet(self) -> bool:
        """Nothing waits for a subscriber."""
        ...


class EngineBus(Protocol):
    """The bus as an application uses it: `engine.bus`. What is published also reaches the runs that wait for it, and is
    acknowledged only once that is on disk."""

    async def publish(
        self, topic: str, data: Any = None, *, type: str = "", id: str | None = None, source: str = "",
        metadata: Mapping[str, Any] | None = None, qos: QoS | None = None,
    ) -> str: ...  # fmt: skip

    async def publish_batch(
        self, events: Sequence[Mapping[str, Any]], *, qos: QoS | None = None
    ) -> list[str]: ...

    async def subscribe(
        self, patterns: Sequence[str] | str, receiver: Receiver, *, group: str = "", name: str = ""
    ) -> Subscription: ...

    async def unsubscribe(self, subscription: Subscription) -> None: ...

    def status(self) -> BusStatus: ...

    def dead_letters(self) -> list[DeadLetter]: ...

    def set_qos(self, qos: QoS) -> None: ...
