"""What a plugin is written with: task types and languages of your own (docs/howto/plugins.md)."""

from __future__ import annotations

from penstock.core.vocabulary import Problem
from penstock.errors import CompleteLater, ExpressionError, Fail
from penstock.expr.language import Language, Program
from penstock.model.definition import Retry
from penstock.ports.plugins import Attempt, TaskType

__all__ = [
    "Attempt",
    "CompleteLater",
    "ExpressionError",
    "Fail",
    "Language",
    "Problem",
    "Program",
    "Retry",
    "TaskType",
]
