"""Definition, Task, Link and their policies, as registered: the document of SPEC 2.1 after expansion.

No behaviour: `dsl/load.py` makes these from JSON or YAML, `core/plan.py` compiles them for execution.
Durations are seconds as numbers; in documents they may be written `30s` or ISO 8601.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType, field

On = Literal["success", "error", "always"]
Priority = Literal["high", "normal", "low"]


class Condition(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """An expression that decides; CEL unless a plugin adds another language."""

    expression: str
    language: str = "cel"


class Link(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """From one task to another, taken on success, on error or always, if its condition holds."""

    from_: str = field(name="from")
    to: str
    condition: Condition | None = None
    on: On = "success"


class Source(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Where one parameter comes from: exactly one of `from`, `value`, `template`, `secret`.

    `from` names a task (its output), `input`, `data`, `global`, or in scopes `item`, `index`, `iteration`.
    """

    from_: str | None = field(name="from", default=None)
    path: str | None = None
    default: Any | UnsetType = UNSET
    value: Any | UnsetType = UNSET
    template: str | None = None
    secret: str | None = None


class Retry(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """How often and how patiently a task is tried: attempts in all, delays in seconds (SPEC 4.3)."""

    attempts: int = 3
    first: float = 1.0
    maximum: float = 60.0
    factor: float = 2.0
    jitter: float = 0.1
    never: tuple[str, ...] = ()
    """Error codes or exception names that are not retried."""


class Timeouts(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, rename="camel"):
    """Seconds; `task` spans all attempts, `run` the whole run, the others one attempt."""

    run: float | None = None
    task: float | None = None
    schedule_to_start: float | None = None
    start_to_close: float | None = None
    heartbeat: float | None = None


class Join(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """When a task fires, by its incoming links (SPEC 2.3); `any` is n with 1."""

    kind: Literal["merge", "all", "any", "n"] = "merge"
    n: int = 1
    cancel: bool = False


class Action(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One thing done when a task completes or fails: exactly one field is set."""

    set: dict[str, str] | None = None
    """Run data by name, each an expression."""
    publish: dict[str, Any] | None = None
    """`{topic, payload}`; texts may hold `${CEL}`."""
    signal: dict[str, Any] | None = None
    """`{run, name, payload}`; texts may hold `${CEL}`."""
    notify: Any | None = None


class Compensate(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The way back of a task: an activity, called with its own inputs or with the task's output."""

    activity: str
    inputs: dict[str, Source] | None = None
    retry: Retry | None = None
    when: Literal["completed", "attempted"] = "completed"
    parallel: bool = False
    """May be undone together with its neighbours on the stack that are parallel and concurrent."""


class Task(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, rename="camel"):
    """A node of a definition. `config` depends on `type` (SPEC 2.2); `config.body` is a `Body` as data."""

    type: str
    name: str = ""
    config: dict[str, Any] = {}
    inputs: dict[str, Source] = {}
    output_schema: Any = None
    retry: Retry | None = None
    timeout: Timeouts | None = None
    conditions: tuple[Condition, ...] = ()
    on_complete: tuple[Action, ...] = ()
    on_error: tuple[Action, ...] = ()
    compensate: Compensate | None = None
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    join: Join | None = None
    resources: dict[str, Any] = {}
    priority: Priority | None = None
    queue: str | None = None
    limits: dict[str, Any] = {}
    """`{key, concurrency?, name?}`: at most so many attempts at one time per value of `key`, over all runs (SPEC 4.10)."""


class Body(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Tasks and links of one scope: of the definition itself, or the body of a map, loop or mutex."""

    tasks: dict[str, Task]
    links: tuple[Link, ...] = ()


class Datum(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A key of the run's data: its first value, how concurrent writes merge, what it may hold."""

    value: Any = None
    merge: str | None = None
    """`last`, `append`, or an expression over `current` and `value`."""
    schema: Any = None


class Definition(
    Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, rename="camel"
):
    """A workflow as data. Expanded: start and end exist, every shorthand is gone."""

    id: str
    tasks: dict[str, Task]
    links: tuple[Link, ...] = ()
    version: str = ""
    name: str = ""
    description: str = ""
    input_schema: Any = None
    outputs: dict[str, str] | None = None
    timeouts: Timeouts | None = None
    queries: dict[str, str] = {}
    triggers: tuple[Any, ...] = ()
    orchestration: str = "control"
    rules: tuple[Any, ...] = ()
    data: dict[str, Datum] = {}
    consistency: str = "strong"
    durability: str = "durable"
    priority: Priority = "normal"
    limits: dict[str, Any] = {}
    """`{runs?, over?: wait | refuse, queue?, key?, concurrency?, name?}` (SPEC 4.10)."""
    retention: dict[str, Any] = {}
    metadata: dict[str, Any] = {}


ENCODER = msgspec.json.Encoder(order="deterministic")
DECODER = msgspec.json.Decoder(Definition)
