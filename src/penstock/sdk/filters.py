"""What `list`, `batch` and `export` are asked to find: the fields of `Query`, checked before anything is done to a run."""

from __future__ import annotations

import functools
import typing
from collections.abc import Mapping
from typing import Any

from penstock.dsl.finding import did_you_mean
from penstock.errors import Rejected, shown
from penstock.model.payload import encode_payload
from penstock.ports.arguments import check
from penstock.ports.store import STATUSES, Query


def checked_query(wanted: Mapping[str, Any]) -> Query:
    """A filter with a typing error finds other runs than were meant: it is refused."""
    fields = Query.__struct_fields__
    for name, value in wanted.items():
        if name not in fields:
            raise Rejected(
                "filter-invalid",
                f"runs are not found by `{name}`",
                hint=did_you_mean(name, fields) or f"there are: {', '.join(fields)}",
            )
        check(name, value, _hints()[name], code="filter-invalid")
    status = wanted.get("status")
    if status is not None and not (isinstance(status, str) and status in STATUSES):
        raise Rejected(
            "filter-invalid",
            f"{shown(status, 80)} is no status of a run",
            hint=(did_you_mean(status, STATUSES) if isinstance(status, str) else None)
            or f"there are: {', '.join(STATUSES)}",
        )
    if wanted.get("limit", 0) < 0:
        raise Rejected(
            "filter-invalid", "`limit` is less than 0", hint="say how many runs to give at most"
        )
    encode_payload(wanted.get("attributes"))
    return Query(**wanted)


@functools.cache
def _hints() -> dict[str, Any]:
    return typing.get_type_hints(Query)
