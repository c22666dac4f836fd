"""Durable workflows for Python: verified before they run, never lost (see README)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock import sync
from penstock.dsl.algebra import loop, nothing, task, when
from penstock.dsl.compose import compose
from penstock.dsl.decompose import decompose
from penstock.dsl.rewrite import rewrite
from penstock.engine.settings import Settings
from penstock.errors import (
    Busy,
    CompleteLater,
    DefinitionInvalid,
    Fail,
    Nondeterminism,
    NotFound,
    PenstockError,
    Rejected,
    RunFailed,
    StartsRefused,
    StartsStopped,
    StepFailed,
)
from penstock.model.definition import Retry, Timeouts
from penstock.model.schedule import Calendar
from penstock.ports.projections import EventBatch
from penstock.ports.runs import Change
from penstock.ports.schedules import Debounce, Singleton
from penstock.sdk.attempt import current
from penstock.sdk.client import Engine, Run
from penstock.sdk.marks import workflow
from penstock.sdk.workflow import activity
from penstock.wiring import open

if TYPE_CHECKING:
    from penstock.sdk.context import Context

__all__ = [
    "Busy",
    "Calendar",
    "Change",
    "CompleteLater",
    "Context",
    "Debounce",
    "DefinitionInvalid",
    "Engine",
    "EventBatch",
    "Fail",
    "Nondeterminism",
    "NotFound",
    "PenstockError",
    "Rejected",
    "Retry",
    "Run",
    "RunFailed",
    "Settings",
    "Singleton",
    "StartsRefused",
    "StartsStopped",
    "StepFailed",
    "Timeouts",
    "activity",
    "compose",
    "current",
    "decompose",
    "loop",
    "nothing",
    "open",
    "rewrite",
    "sync",
    "task",
    "when",
    "workflow",
]


def __getattr__(name: str) -> Any:
    """What is not needed by everybody is imported when it is asked for."""
    if name == "Context":
        from penstock.sdk.context import Context

        return Context
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
