"""A definition checked, verified and published: nothing is kept that is refuted (SPEC 2.7, 3)."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from penstock.core.plan import Plan, ScopePlan
from penstock.dsl.finding import Finding, did_you_mean
from penstock.dsl.load import Loaded, load, load_document, load_file, refused
from penstock.engine.engine import Engine
from penstock.errors import NotFound
from penstock.model.codec import encode_definition
from penstock.ports.runs import Registered
from penstock.ports.store import DefinitionRow
from penstock.verify.structure import check


def read(source: Any, *, name: str = "<definition>") -> Loaded:
    """A path, a text, or a document as data; DefinitionInvalid with all that is wrong."""
    if isinstance(source, Loaded):
        return source
    if isinstance(source, str) and ("\n" in source or source.lstrip().startswith("{")):
        return load(source, source=name)
    if isinstance(source, str | Path):
        try:
            return load_file(source)
        except OSError as error:
            raise NotFound(f"cannot read {source}: {error.strerror}", hint="give a file, a text or a dict") from error
    return load_document(source, source=name)


async def register(
    engine: Engine, source: Any, *, name: str = "<definition>", by: str | None = None
) -> Registered:
    """Keep a version; the same content again is a no-op."""
    loaded = read(source, name=name)
    findings = [*loaded.findings, *check(loaded)]
    plan: Plan | None = None
    if not any(f.level == "error" for f in findings):
        plan = Plan(loaded.definition)
        findings.extend(unserved(engine, loaded, plan))
    if any(f.level == "error" for f in findings):
        raise refused([f for f in findings if f.level == "error"], loaded.source)
    assert plan is not None
    definition = loaded.definition
    content = encode_definition(replace(definition, version=""))
    row = DefinitionRow(
        id=definition.id, version=definition.version, number=0, document=encode_definition(definition),
        digest=sha256(content).digest(), created_at=engine.clock.now(), created_by=by,
    )  # fmt: skip
    kept = await engine.store.publish(row)
    engine.plans.setdefault((kept.id, kept.version), plan)
    engine.newest.pop(kept.id, None)
    return Registered(id=kept.id, version=kept.version, new=kept.created_at == row.created_at, findings=findings)


def unserved(engine: Engine, loaded: Loaded, plan: Plan) -> Iterator[Finding]:
    """Activities that this engine does not know, parameters that they do not take; nothing if it serves none."""
    known = engine.activities.names()
    if not known:
        return
    for scope in plan.scopes.values():
        for node in scope.nodes.values():
            path = _document_path(scope, node.id)
            if node.type == "activity":
                name = node.config.get("activity", "")
                served = engine.activities.get(name)
                if served is None:
                    yield Finding(
                        code="unknown-activity", level="error", message=f"no activity `{name}` is registered here",
                        place=loaded.place((*path, "config", "activity")), hint=did_you_mean(name, known),
                    )  # fmt: skip
                elif served.parameters and not served.open_ended:
                    for given in node.inputs:
                        if given.name not in served.parameters:
                            yield Finding(
                                code="unknown-name", level="error",
                                message=f"activity `{name}` has no parameter `{given.name}`",
                                place=loaded.place((*path, "inputs", given.name)),
                                hint=did_you_mean(given.name, served.parameters)
                                or f"it takes {', '.join(served.parameters)}",
                            )  # fmt: skip
            if node.compensate is not None and engine.activities.get(node.compensate.activity) is None:
                yield Finding(
                    code="unknown-activity", level="error",
                    message=f"no activity `{node.compensate.activity}` is registered here",
                    place=loaded.place((*path, "compensate", "activity")), hint=did_you_mean(node.compensate.activity, known),
                )  # fmt: skip


def _document_path(scope: ScopePlan, id: str) -> tuple[str | int, ...]:
    """Where a node stands in the document; a natural loop is no place of its own."""
    path: tuple[str | int, ...] = ("tasks", id)
    cursor = scope
    while cursor.parent is not None:
        if cursor.kind != "natural":
            path = ("tasks", cursor.owner, "config", "body", *path)
        cursor = cursor.parent
    return path
