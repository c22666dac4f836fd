"""The bus as the application uses it (`engine.bus`): what is published reaches waiting runs, then subscribers."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec import Raw

from penstock.engine.checks import check_texts
from penstock.errors import Rejected
from penstock.model.envelope import Envelope
from penstock.model.payload import INLINE_PAYLOAD_BYTES_MAX, encode_payload
from penstock.policy.topics import is_topic
from penstock.ports.bus import BusStatus, DeadLetter, QoS, Receiver, Subscription

if TYPE_CHECKING:
    from penstock.engine.engine import Engine

ID_CHARACTERS_MAX = 200
BATCH_MAX = 10_000
FIELDS = frozenset({"topic", "data", "type", "id", "source", "metadata"})
SHAPE = 'a list of mappings: [{"topic": …, "data": …}, …]'


class LocalBus:
    """See `ports/bus.py`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def publish(
        self,
        topic: str,
        data: Any = None,
        *,
        type: str = "",
        id: str | None = None,
        source: str = "",
        metadata: Mapping[str, Any] | None = None,
        qos: QoS | None = None,
    ) -> str:
        """Tell the runs that wait for it, on disk, then all who subscribe; gives its id. The same id again is the same
        event, for whoever has had it."""
        envelope = self._made(topic, data, type, id, source, metadata)
        await self._publish([envelope], qos)
        return envelope.id

    async def publish_batch(
        self, events: Sequence[Mapping[str, Any]], *, qos: QoS | None = None
    ) -> list[str]:
        """Several, all or none: `[{"topic": …, "data": …, "type": …, "id": …, "source": …, "metadata": …}, …]`."""
        given: Any = events
        if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
            raise Rejected("event-invalid", f"{given!r:.80} is no list of events", hint=SHAPE)
        listed = list(cast("Iterable[Any]", given))
        if len(listed) > BATCH_MAX:
            raise Rejected("batch-too-large", f"a batch has at most {BATCH_MAX:,} events")
        envelopes: list[Envelope] = []
        for place, event in enumerate(listed):
            if not isinstance(event, Mapping):
                raise Rejected(
                    "event-invalid", f"event {place} is {event!r:.80}, no mapping", hint=SHAPE
                )
            event = cast("Mapping[str, Any]", event)
            unknown = {str(name) for name in event} - FIELDS
            if "topic" not in event or unknown:
                said = f"has no `{min(unknown)}`" if unknown else "needs a `topic`"
                hint = f"its fields are {', '.join(sorted(FIELDS))}"
                raise Rejected("event-invalid", f"event {place} {said}", hint=hint)
            envelopes.append(
                self._made(
                    event["topic"], event.get("data"), event.get("type", ""), event.get("id"),
                    event.get("source", ""), event.get("metadata"),
                )
            )  # fmt: skip
        _check_ids(envelopes)
        await self._publish(envelopes, qos)
        return [envelope.id for envelope in envelopes]

    async def _publish(self, envelopes: list[Envelope], qos: QoS | None) -> None:
        self._engine.check_open()
        await self._engine.routing.take(envelopes)
        await self._engine.bus.publish_batch(envelopes, qos=qos)

    def _made(
        self, topic: Any, data: Any, type: Any, id: Any, source: Any, metadata: Any
    ) -> Envelope:
        check_texts(topic=topic, type=type, id="-" if id is None else id, source=source)
        if not isinstance(topic, str) or not is_topic(topic):
            raise Rejected(
                "topic-invalid",
                f"`{topic!s:.80}` is no topic",
                hint="a topic is words with dots between them, such as orders.paid",
            )
        if id is not None and not 0 < len(id) <= ID_CHARACTERS_MAX:
            raise Rejected(
                "event-invalid", f"an event's id has 1 to {ID_CHARACTERS_MAX} characters"
            )
        extra = msgspec.json.decode(encode_payload(dict(metadata or {}), limit=65_536))
        raw = encode_payload(data, limit=INLINE_PAYLOAD_BYTES_MAX)
        engine = self._engine
        return Envelope(
            id=id or uuid.uuid4().hex, topic=topic, type=type or topic, time=engine.clock.now(),
            source=source or f"node:{engine.node}", raw=Raw(raw), metadata=extra,
        )  # fmt: skip

    async def subscribe(
        self,
        patterns: Sequence[str] | str,
        receiver: Receiver,
        *,
        group: str = "",
        name: str = "",
    ) -> Subscription:
        """Call `receiver(event)` with all that is published on these topics from now on, in this process."""
        given: Any = patterns
        if not isinstance(given, str | Iterable) or isinstance(given, bytes):
            raise Rejected(
                "topic-invalid", f"{given!r:.80} is no pattern of topics, and no list of them"
            )
        wanted = [given] if isinstance(given, str) else list(cast("Iterable[Any]", given))
        for pattern in wanted:
            if not isinstance(pattern, str):
                raise Rejected("topic-invalid", f"{pattern!r:.80} is no pattern of topics")
        return await self._engine.bus.subscribe(wanted, receiver, group=group, name=name)

    async def unsubscribe(self, subscription: Subscription) -> None:
        await self._engine.bus.unsubscribe(subscription)

    def status(self) -> BusStatus:
        return self._engine.bus.status()

    def dead_letters(self) -> list[DeadLetter]:
        """Events that a subscriber could not be given, the newest 1,000."""
        return self._engine.bus.dead_letters()

    def set_qos(self, qos: QoS) -> None:
        """What holds from now on where `publish` names none."""
        self._engine.bus.set_qos(qos)


def _check_ids(envelopes: list[Envelope]) -> None:
    """The same id is the same event: whoever has had it gets no second one, and would never see the other data."""
    seen: dict[str, Envelope] = {}
    for envelope in envelopes:
        first = seen.setdefault(envelope.id, envelope)
        if (first.topic, first.type, bytes(first.raw)) != (
            envelope.topic, envelope.type, bytes(envelope.raw),
        ):  # fmt: skip
            raise Rejected(
                "event-invalid",
                f"two events of the batch have the id `{envelope.id}` and differ",
                hint="give each event an id of its own, or none",
            )
