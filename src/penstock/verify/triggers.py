"""A definition's `triggers`: each a schedule that means something, and takes an input that the definition takes (SPEC 4.6)."""

from __future__ import annotations

from typing import Any, cast

from penstock.core.values import decode
from penstock.errors import ExpressionError
from penstock.expr.schema import compile_schema
from penstock.model.schedule import Plan
from penstock.policy.cron import Misfit
from penstock.policy.plans import LATER, plan_of, schedule_id, words_of
from penstock.verify.scopes import Notes

_WRITTEN = {"catch_up": "catchUp"}


def check_triggers(notes: Notes) -> None:
    definition = notes.loaded.definition
    seen: dict[str, int] = {}
    for place, trigger in enumerate(definition.triggers):
        if not isinstance(trigger, dict):
            continue  # the schema has said so
        path = ("triggers", place)
        words = cast("dict[str, Any]", trigger)
        later = next((name for name in LATER if name in words), None)
        if later is not None:
            notes.add(
                "not-yet", (*path, later), f"triggers by {later} are not here yet",
                "schedules are: cron, every or calendar; until then use `engine.start`", key=True,
            )  # fmt: skip
            continue
        id = schedule_id(definition.id, place, words)
        if id in seen:
            notes.add(
                "duplicate-id", (*path, "name"), f"two triggers make the schedule `{id}`", "give each its own `name`"
            )  # fmt: skip
        seen[id] = place
        try:
            plan = plan_of(words_of(words, definition.id))
        except Misfit as error:
            field = tuple(_WRITTEN.get(str(part), part) for part in error.field)
            notes.add(error.code, (*path, *field), error.message, error.hint)
        else:
            _check_input(notes, place, plan)


def _check_input(notes: Notes, place: int, plan: Plan) -> None:
    schema = notes.loaded.definition.input_schema
    if schema is None:
        return
    try:
        problems = compile_schema(schema).problems(decode(plan.input))
    except ExpressionError:
        return  # the schema itself is wrong, which is said elsewhere
    if problems:
        notes.add(
            "input-invalid", ("triggers", place, "input"), f"the definition does not take this input: {problems}",
            "each run is started with it",
        )  # fmt: skip
