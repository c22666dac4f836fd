"""JSON Schema 2020-12, compiled once: is a value as the schema says, and if not, where not."""

from __future__ import annotations

from typing import Any, cast

import jsonschema_rs

from penstock.errors import ExpressionError

PROBLEMS_MAX = 5


class Schema:
    """A compiled schema."""

    __slots__ = ("_validator", "document")

    def __init__(self, document: Any) -> None:
        self.document = document
        try:
            self._validator: Any = cast("Any", jsonschema_rs).Draft202012Validator(
                document, validate_formats=True, retriever=_refuse
            )
        except Exception as error:  # ValidationError, ReferencingError and ValueError by turns
            raise ExpressionError(f"not a JSON Schema: {error}") from error

    def problems(self, value: Any) -> str:
        """Empty if valid; else what is wrong and where, for people."""
        if self._validator.is_valid(value):
            return ""
        found: list[str] = []
        for error in self._validator.iter_errors(value):
            path = "$" + "".join(
                f"[{p}]" if isinstance(p, int) else f".{p}" for p in error.instance_path
            )
            found.append(f"{path}: {error.message}")
            if len(found) == PROBLEMS_MAX:
                found.append("…")
                break
        return "; ".join(found)


def _refuse(address: str) -> Any:
    """A schema is whole in itself: nothing is fetched."""
    raise ValueError(f"`{address}` is outside of the schema; put it under $defs")


def compile_schema(document: Any) -> Schema:
    """ExpressionError if it is not a schema."""
    return Schema(document)
