"""Settings: limits of one engine (SPEC 4.10, 16)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec

from penstock.errors import Rejected, shown
from penstock.model.queue import QueueOptions
from penstock.model.run import Run

NAME_CHARACTERS_MAX = 100
SECONDS_MAX = 1e11
"""Three thousand years."""
RATE_MAX = 1_000_000.0
COUNT_MAX = 10_000_000
TENANTS = ("created_by", "definition")
ATTRIBUTE, METADATA = "attributes.", "metadata."


class Settings:
    """Limits of one engine. `tenant` says between whom places are shared fairly: whoever started a run
    (`created_by`), its `definition`, or what one of its attributes or its metadata says (`attributes.customer`)."""

    __slots__ = (
        "_tenant", "_tenant_part", "audit_key", "cache_runs", "drain_seconds", "ease_collector", "inbox_max", "queues", "retention", "roots_every",
        "runs_max", "tasks_max",
    )  # fmt: skip

    def __init__(
        self,
        *,
        max_concurrent_workflows: int = 1_000_000,
        max_concurrent_tasks_per_node: int = 1000,
        priority_queue_depth: int = 100_000,
        cache_runs: int = 10_000,
        drain_seconds: float = 10.0,
        queues: Mapping[str, Mapping[str, Any]] | None = None,
        tenant: str = "created_by",
        retention: float | timedelta | None = None,
        ease_collector: bool = True,
        audit_key: bytes | str | None = None,
        roots_every: float = 3600.0,
    ) -> None:
        self.runs_max = max_concurrent_workflows
        """Runs that may be open; a start beyond them is refused as `busy`."""
        self.tasks_max = max_concurrent_tasks_per_node
        """Attempts at one time in this process, over all queues."""
        self.inbox_max = priority_queue_depth
        """Commands that may wait for their turn in this process; one beyond them is refused as `busy`."""
        self.cache_runs = cache_runs
        """Runs kept in memory; any other is read from its snapshot and the events since."""
        self.drain_seconds = drain_seconds
        """So long a closing engine waits for attempts that are under way; they are lost then, and done again."""
        self.ease_collector = ease_collector
        """Python's collector looks for cycles less often (decision 7)."""
        _check_keeping(retention, audit_key, roots_every)
        self.audit_key = audit_key.encode() if isinstance(audit_key, str) else audit_key
        """Signs roots and bundles (SPEC 6.3); without one there are no roots."""
        self.roots_every = roots_every
        """Seconds from one signed root over all histories to the next, with an `audit_key`."""
        self.retention = (
            retention.total_seconds() if isinstance(retention, timedelta) else retention
        )
        """Closed runs are deleted so many seconds after their end, unless their definition says otherwise; None: never."""
        for name, value, least in (
            ("max_concurrent_workflows", max_concurrent_workflows, 1), ("priority_queue_depth", priority_queue_depth, 1),
            ("max_concurrent_tasks_per_node", max_concurrent_tasks_per_node, 1), ("cache_runs", cache_runs, 0),
            ("drain_seconds", drain_seconds, 0), ("retention", self.retention, 0), ("roots_every", roots_every, 0),
        ):  # fmt: skip
            check_limit(name, value, least)
        self.queues = {name: queue_options(name, fields) for name, fields in (queues or {}).items()}
        """Options of queues by their names; what `set_queue` has kept in the database comes first."""
        check_reserves(self.queues, self.tasks_max)
        if tenant not in TENANTS and not (tenant.startswith((ATTRIBUTE, METADATA))):
            raise Rejected(
                "tenant-unknown",
                f"`{tenant}` does not say who the tenant of a run is",
                hint="take created_by, definition, attributes.NAME or metadata.NAME",
            )
        self._tenant = tenant
        """Between whom places are shared fairly: `created_by`, `definition`, `attributes.NAME` or `metadata.NAME`."""
        self._tenant_part = tenant.partition(".")[2]

    def tenant_of(self, run: Run) -> str:
        """Whom a place is charged to; all runs that say nothing are one tenant."""
        if self._tenant == "created_by":
            return run.created_by or ""
        if self._tenant == "definition":
            return run.definition
        held = run.attributes if self._tenant.startswith(ATTRIBUTE) else run.metadata
        value = held.get(self._tenant_part)
        return "" if value is None else str(value)


def check_limit(name: str, value: Any, least: float) -> None:
    """Settings are numbers that make sense; None is no limit, where one may say so."""
    if value is None and name == "retention":
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= least:
        raise Rejected(
            "limit-invalid", f"`{name}` is {value!r:.40}, not a number from {least:g} on",
            hint=f"write Settings({name}=1000)",
        )  # fmt: skip


def _check_keeping(retention: Any, audit_key: Any, roots_every: Any) -> None:
    """How long data is kept, and how it is signed: a mistake here deletes runs, or leaves them unsigned."""
    if retention is not None and not _is_span(retention, 0.0):
        raise _invalid("retention", "seconds or a timedelta from 0 on; None keeps all")
    if not _is_span(roots_every, 1.0):
        raise _invalid("roots_every", "seconds from 1 on")
    if audit_key is not None:
        try:
            good = isinstance(audit_key, bytes | str) and bool(
                audit_key.encode() if isinstance(audit_key, str) else audit_key
            )
        except UnicodeEncodeError:
            good = False
        if not good:
            raise Rejected(
                "audit-key-invalid",
                "`audit_key` is no key",
                hint="give bytes or a text that is not empty; None signs nothing",
            )


def _is_span(value: Any, least: float) -> bool:
    if isinstance(value, timedelta):
        value = value.total_seconds()
    return type(value) in (int, float) and least <= value <= SECONDS_MAX


def _invalid(name: str, wanted: str) -> Rejected:
    return Rejected(
        "limit-invalid", f"`{name}` of the settings makes no sense", hint=f"give {wanted}"
    )


def queue_options(
    name: str, fields: Mapping[str, Any], before: QueueOptions | None = None
) -> QueueOptions:
    """The options of a queue, those not named as `before`; Rejected for what makes no sense."""
    if not name or len(name) > NAME_CHARACTERS_MAX or not name.isprintable():
        raise Rejected(
            "queue-invalid",
            f"a queue's name has 1 to {NAME_CHARACTERS_MAX} printable characters, not {shown(name, 80)}",
            hint="give a text such as mail",
        )
    known = QueueOptions.__struct_fields__
    for field in fields:
        if field not in known:
            raise Rejected(
                "queue-invalid",
                f"a queue has no `{field}`",
                hint=f"it has {', '.join(known)}",
            )
    now: dict[str, Any] = {} if before is None else msgspec.structs.asdict(before)
    now.update(fields)
    for field, least, most, whole in (
        ("limit", 1, COUNT_MAX, True), ("rate", 0.000_001, RATE_MAX, False), ("burst", 1, COUNT_MAX, True),
        ("depth", 1, COUNT_MAX, True), ("reserve", 0, COUNT_MAX, True), ("reserve_high", 0, COUNT_MAX, True),
        ("longest_wait", 0.0, 1e9, False), ("weight", 0.001, 1000.0, False),
    ):  # fmt: skip
        _check_number(name, field, now.get(field), least, most, whole=whole)
    options = QueueOptions(**{k: v for k, v in now.items() if v is not None})
    if options.reserve_high and options.limit is None:
        raise Rejected(
            "queue-invalid",
            f"queue `{name}` keeps {options.reserve_high} places for high priority, and has no limit",
            hint="say of how many places: give it a limit too",
        )
    if options.limit is not None and options.reserve_high >= options.limit:
        raise Rejected(
            "queue-invalid",
            f"queue `{name}` has {options.limit} places and keeps {options.reserve_high} for high priority",
            hint="leave at least one for the others",
        )
    return options


def _check_number(
    name: str, field: str, value: Any, least: float, most: float, *, whole: bool
) -> None:
    if value is None:
        return  # back to what holds if nothing is said
    good = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
    if not good or not least <= value <= most:
        what = "a whole number" if whole else "a number"
        raise Rejected(
            "queue-invalid",
            f"`{field}` of queue `{name}` is {shown(value, 40)}, not {what} from {least:g} to {most:g}",
            hint="leave it out to keep it as it is",
        )


def check_reserves(queues: Mapping[str, QueueOptions], places: int) -> None:
    kept = sum(each.reserve or 0 for each in queues.values())
    if kept >= places and kept:
        raise Rejected(
            "queue-invalid",
            f"the queues reserve {kept} places, and the node has {places}",
            hint="leave at least one place to all, or raise max_concurrent_tasks_per_node",
        )
