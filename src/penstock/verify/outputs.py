"""Outputs: what is known of what a task gives, from its schema, its kind, or the annotations of its activity (SPEC 3.3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.core.plan import Node
from penstock.verify.verification import Signature


def output_schema(node: Node, activities: Mapping[str, Signature] | None) -> Any:
    """What its output fits if it completes; None: anything."""
    if node.task.output_schema is not None:
        return node.task.output_schema
    match node.type:
        case "signal" | "form":
            return node.config.get("schema")
        case "transform":
            names = list(node.formulas)
            return {
                "type": "object", "properties": dict.fromkeys(names, True), "required": names,
                "additionalProperties": False,
            }  # fmt: skip
        case "map":
            return {"type": "array"}
        case "gateway" | "timer" | "publish" | "cancel":
            return {"type": "null"}
        case "activity":
            signature = (activities or {}).get(node.config.get("activity", ""))
            found = None if signature is None else signature.result
            return None if found is True else found
        case _:
            return None
