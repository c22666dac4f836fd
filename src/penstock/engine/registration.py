"""A definition checked, verified and published: nothing is kept that is refuted (SPEC 2.7, 3)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Protocol

from penstock.core.functions import FUNCTION
from penstock.core.plan import Plan, ScopePlan
from penstock.core.vocabulary import Find
from penstock.dsl.algebra import Choice, Leaf, Parallel, Rest, Sequence
from penstock.dsl.compose import Composition
from penstock.dsl.finding import Finding, did_you_mean
from penstock.dsl.load import Loaded, refused
from penstock.engine.engine import Engine
from penstock.engine.plugins import keep as keep_brought
from penstock.engine.verdicts import Terms, digest_of, judge
from penstock.errors import NotFound, Rejected, shown
from penstock.model.codec import decode_definition, encode_definition
from penstock.ports.activities import Served
from penstock.ports.runs import Registered
from penstock.ports.store import DefinitionRow
from penstock.verify.structure import Examined, check, examine_document, examine_file, examine_text


def examine(
    source: Any,
    *,
    name: str = "<definition>",
    activities: Collection[str] | None = None,
    plugins: Find | None = None,
) -> Examined:
    """A path, a text, a document as data, or a composition of the algebra, with all that is to be said about it."""
    if isinstance(source, Loaded):
        findings = [*source.findings, *check(source, activities=activities)]
        return Examined(source, findings, source.source)
    if isinstance(source, Composition):
        return examine_document(
            source.document, source=source.id, activities=activities, plugins=plugins
        )
    if isinstance(source, Leaf | Sequence | Parallel | Choice | Rest):
        raise Rejected(
            "algebra-invalid", "blocks have no id", hint='name them: compose("order", a >> b)'
        )
    if isinstance(source, str) and ("\n" in source or source.lstrip().startswith("{")):
        return examine_text(source, source=name, activities=activities, plugins=plugins)
    if isinstance(source, str | Path):
        try:
            return examine_file(source, activities=activities, plugins=plugins)
        except (OSError, ValueError) as error:  # of a name that no file can have
            why = error.strerror if isinstance(error, OSError) else "no file has such a name"
            raise NotFound(
                f"cannot read {shown(str(source))}: {why}", hint="give a file, a text or a dict"
            ) from error
    return examine_document(source, source=name, activities=activities, plugins=plugins)


async def register(
    engine: Engine,
    source: Any,
    *,
    name: str = "<definition>",
    by: str | None = None,
    force: str | None = None,
    strict: bool = False,
) -> Registered:
    """Keep a version; the same content again is a no-op. See `engine/verdicts.py` for `force` and `strict`."""
    terms = Terms(by, force, strict)
    terms.check()
    examined = examine(
        source,
        name=name,
        activities=engine.activities.names() or None,
        plugins=engine.plugins.added,
    )
    loaded = examined.accepted()
    definition = loaded.definition
    if definition.version == FUNCTION:
        raise Rejected(
            "version-reserved",
            f"a version of definition `{definition.id}` cannot be named `{FUNCTION}`: so are those of workflow functions",
            hint="name it otherwise, or leave it out and it is numbered",
        )
    plan = Plan(definition, loaded.vocabulary)
    findings = [*examined.findings, *misfits(engine.activities, loaded, plan)]
    if any(f.level == "error" for f in findings):
        raise refused(findings, loaded.source)
    digest = digest_of(definition)
    found, known = await judge(engine, loaded, plan, digest, findings, terms)
    findings += found
    await keep_brought(engine, definition, digest)
    row = DefinitionRow(
        id=definition.id, version=definition.version, number=0, document=encode_definition(definition),
        digest=digest, created_at=engine.clock.now(), created_by=by,
    )  # fmt: skip
    kept = await engine.store.publish(row)
    if (
        kept.document != row.document
    ):  # the same in another order: everybody goes by the one that is kept
        plan = Plan(decode_definition(kept.document))
    engine.know(kept.id, kept.version, plan)
    engine.newest.pop(kept.id, None)
    new = not known and kept.created_at == row.created_at
    return Registered(id=kept.id, version=kept.version, new=new, findings=findings)


class Known(Protocol):
    """Activities by name, whoever would execute them."""

    def get(self, name: str, /) -> Served | None: ...


def misfits(activities: Known, loaded: Loaded, plan: Plan) -> Iterator[Finding]:
    """Inputs that the activity, as far as it is known here, does not take."""
    for scope in plan.scopes.values():
        for node in scope.nodes.values():
            called = node.config.get("activity", "") if node.type == "activity" else ""
            served = activities.get(called) if called else None
            if served is None or not served.parameters or served.open_ended:
                continue
            for given in node.inputs:
                if given.name not in served.parameters:
                    yield Finding(
                        code="unknown-name", level="error",
                        message=f"activity `{served.name}` has no parameter `{given.name}`",
                        place=loaded.place((*_document_path(scope, node.id), "inputs", given.name)),
                        hint=did_you_mean(given.name, served.parameters)
                        or f"it takes {', '.join(served.parameters)}",
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
