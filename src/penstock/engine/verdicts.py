"""What verification says of a definition when it is registered, and what is kept of that (SPEC 3).

Refuted is refused, unknown is told; `force` takes both and is kept with who and why, before the definition is. A kill in
between leaves a verdict on what was never registered, which says nothing. Content that the store has was judged once and is
not verified again. Verifying takes a thread: the runs of this process go on meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.json import Decoder
from msgspec.structs import replace

from penstock.core.plan import Plan
from penstock.dsl.finding import Finding, Level, Place
from penstock.dsl.load import Loaded, refused
from penstock.engine.checks import check_texts
from penstock.engine.records import readable, written
from penstock.errors import Rejected
from penstock.model.codec import definition_content
from penstock.model.definition import Definition
from penstock.ports.control import DefinitionAct
from penstock.ports.store import Record
from penstock.verify.verification import QUICK, Signature, verify

if TYPE_CHECKING:
    from penstock.engine.engine import Engine

log = logging.getLogger("penstock.engine")

VERDICTS = "verdict"
"""The kind of the records that keep what was found; ids are `DEFINITION/DIGEST`."""
KEPT_MAX = 100
"""Findings of one definition that are kept."""
CACHE_MAX = 256
FORCE = "force"


class Noted(Struct, frozen=True, omit_defaults=True):
    """A finding as it is kept; its counterexample can be found again."""

    code: str
    level: Level
    message: str
    source: str
    line: int
    column: int
    path: tuple[str | int, ...] = ()
    hint: str | None = None


class Verdict(Struct, frozen=True, omit_defaults=True):
    """What was found when a content was first registered, and who registered it all the same."""

    at: float
    findings: tuple[Noted, ...] = ()
    forced: str = ""
    """The reason, if something in it is refuted."""
    by: str | None = None


_VERDICT = Decoder(Verdict)
_found: dict[bytes, list[Finding]] = {}
"""What was found in this process, by content and all else that it depends on; the oldest first."""


@dataclass(frozen=True, slots=True)
class Terms:
    """How a definition is to be judged."""

    by: str | None = None
    force: str | None = None
    strict: bool = False

    def check(self) -> None:
        if self.force is None:
            return
        check_texts(force=self.force)
        if not self.force.strip():
            raise Rejected(
                "reason-missing", "`force` needs a reason, which is kept",
                hint='say why it may be registered all the same: force="reviewed by Ann, ticket 12"',
            )  # fmt: skip


async def judge(
    engine: Engine,
    loaded: Loaded,
    plan: Plan,
    digest: bytes,
    findings: list[Finding],
    terms: Terms,
) -> tuple[list[Finding], bool]:
    """What is to be said beside `findings`, and whether the store has this content already; DefinitionInvalid if it may
    not be registered. Keeps what was found."""
    definition = loaded.definition
    id = f"{definition.id}/{digest.hex()}"
    kept = await engine.store.definition(definition.id, definition.version or None)
    known = kept is not None and kept.digest == digest
    if known and not terms.strict:
        record = await engine.store.record(VERDICTS, id)
        for _, verdict in readable(_VERDICT, [] if record is None else [record]):
            return [_finding(each) for each in verdict.findings], True
        return [], True
    signatures = signatures_of(engine.activities.names(), engine.activities.signature, plan)
    found = await asyncio.to_thread(verified, loaded, digest, findings, signatures)
    bad = [each for each in found if each.level == "error"]
    if terms.force is None:
        warned = [each for each in (*findings, *found) if each.level == "warning"]
        if bad or (terms.strict and warned):
            raise refused([*findings, *found], loaded.source)
    worth = [each for each in found if each.level != "note"]
    if worth:
        await _keep(engine, id, worth, terms, forced=bool(bad))
        codes = sorted({each.code for each in worth})
        log.warning(
            "definition.unproved: `%s`: %s; `penstock verify` says where and what to do",
            definition.id, ", ".join(codes), extra={"definition": definition.id, "codes": codes},
        )  # fmt: skip
    return found, known


def verified(
    loaded: Loaded,
    digest: bytes,
    structure: list[Finding],
    signatures: Mapping[str, Signature] | None,
) -> list[Finding]:
    """What the rules after structure find; the same question is answered once in a process."""
    known = repr(
        (loaded.source, sorted((signatures or {}).items()), signatures is None, loaded.vocabulary)
    )
    key = sha256(b"\n".join([digest, loaded.text.encode("utf-8", "replace"), known.encode()]))
    question = key.digest()
    found = _found.get(question)
    if found is None:
        verification = verify(loaded, activities=signatures, structure=structure, budget=QUICK)
        before = [*loaded.findings, *structure]
        found = [each for each in verification.findings if each not in before]
        while len(_found) >= CACHE_MAX:
            _found.pop(next(iter(_found)), None)
        _found[question] = found
    return list(found)


def signatures_of(
    names: Collection[str], signature: Callable[[str], Signature | None], plan: Plan
) -> Mapping[str, Signature] | None:
    """Of what the definition calls, as far as it is known here; None where there are no activities at all."""
    if not names:
        return None
    called = {
        node.config.get("activity", "")
        for scope in plan.scopes.values()
        for node in scope.nodes.values()
        if node.type == "activity"
    }
    found = {name: signature(name) for name in sorted(called)}
    return {name: known for name, known in found.items() if known is not None}


def digest_of(definition: Definition) -> bytes:
    """Of the content, whatever its version is called."""
    return sha256(definition_content(replace(definition, version=""))).digest()


async def _keep(
    engine: Engine, id: str, findings: list[Finding], terms: Terms, *, forced: bool
) -> None:
    """On disk before the definition is."""
    notes = tuple(_note(each) for each in findings[:KEPT_MAX])
    reason = terms.force if forced and terms.force is not None else ""
    verdict = Verdict(engine.clock.now(), notes, reason, terms.by)
    record = await engine.store.record(VERDICTS, id)
    revision = 0 if record is None else record.revision
    # Refused if another process keeps one of the same content at this moment: then that stands.
    await engine.store.put([Record(VERDICTS, id, written(_VERDICT, verdict), revision)])


async def forced_acts(engine: Engine, definition: str) -> list[DefinitionAct]:
    """Who registered what was refuted, when and why."""
    acts: list[DefinitionAct] = []
    after = f"{definition}/"
    while page := await engine.store.records(VERDICTS, after=after):
        own = [record for record in page if record.id.rpartition("/")[0] == definition]
        for _, verdict in readable(_VERDICT, own):
            if verdict.forced:
                acts.append(DefinitionAct(FORCE, verdict.at, verdict.by, verdict.forced))
        if len(own) < len(page):
            break
        after = page[-1].id
    return acts


def _note(finding: Finding) -> Noted:
    place = finding.place
    return Noted(
        finding.code, finding.level, finding.message, place.source, place.line, place.column, place.path,
        finding.hint,
    )  # fmt: skip


def _finding(noted: Noted) -> Finding:
    place = Place(noted.source, noted.line, noted.column, noted.path)
    return Finding(noted.code, noted.level, noted.message, place, noted.hint)
