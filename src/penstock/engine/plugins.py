"""Definitions that need plugins: compiled with those here, and what was missing when one is not (SPEC 2.2).

What brought each name is kept when a definition is registered, before the definition is: whoever lacks the plugin later
is told what to install. A kill in between leaves a note on what was never registered, which says nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.json import Decoder

from penstock.core.plan import Plan
from penstock.core.vocabulary import Mentioned, Vocabulary, mentioned
from penstock.engine.records import readable, written
from penstock.errors import DefinitionInvalid, ExpressionError, PluginError, PluginMissing
from penstock.model.codec import decode_definition
from penstock.model.definition import Definition
from penstock.ports.store import DefinitionRow, Record, Store

if TYPE_CHECKING:
    from penstock.engine.engine import Engine
    from penstock.ports.plugins import Plugins

KIND = "plugin"
"""The kind of the records that keep what brought a name; ids are `DEFINITION/DIGEST`."""


class Brought(Struct, frozen=True, omit_defaults=True):
    """By what is mentioned (`type slug`): the distribution and version that had it."""

    names: dict[str, str] = {}


_BROUGHT = Decoder(Brought)


async def plan_of(store: Store | None, plugins: Plugins, row: DefinitionRow) -> Plan:
    """A registered version, compiled; PluginMissing with what to install."""
    definition = decode_definition(row.document)
    return Plan(definition, await vocabulary_of(store, plugins, definition, row))


async def vocabulary_of(
    store: Store | None, plugins: Plugins, definition: Definition, row: DefinitionRow
) -> Vocabulary:
    """What a registered version mentions; PluginMissing if it is not here, `plugin-invalid` if it has changed its mind."""
    wanted = mentioned(definition)
    if not wanted:
        return Vocabulary()
    vocabulary = plugins.added(wanted)
    lacking = vocabulary.lacks(wanted)
    if lacking:
        raise await _missing(store, row, lacking, vocabulary)
    try:
        Plan(definition, vocabulary)
    except (ExpressionError, DefinitionInvalid) as error:
        names = ", ".join(sorted(set(plugins.packages(wanted).values())))
        raise PluginError(
            f"version {row.version} of definition `{row.id}` no longer fits the plugins here ({names}): {error.message}",
            hint="install the version of the plugin that it was registered with",
        ) from error
    return vocabulary


async def _missing(
    store: Store | None, row: DefinitionRow, lacking: Mentioned, vocabulary: Vocabulary
) -> PluginMissing:
    id = f"{row.id}/{row.digest.hex()}"
    record = None if store is None else await store.record(KIND, id)
    brought: dict[str, str] = {}
    for _, kept in readable(_BROUGHT, [] if record is None else [record]):
        brought = kept.names
    names = [f"type {each}" for each in sorted(lacking.types)]
    names += [f"language {each}" for each in sorted(lacking.languages)]
    had = list(dict.fromkeys(brought[name] for name in names if name in brought))
    faults = [why for (kind, name), why in vocabulary.faults.items() if f"{kind} {name}" in names]
    hint = None
    if had and not faults:
        installed = [each.partition(" ")[0] for each in had if " " in each]
        way = "give it to `penstock.open(…, plugins=…)`"  # as whoever registered it did
        if installed:
            way = f"pip install {' '.join(installed)}, and start again"
        hint = f"it was registered with {', '.join(had)}: {way}"
    return PluginMissing(
        types=sorted(lacking.types),
        languages=sorted(lacking.languages),
        definition=row.id,
        reason="; ".join(faults),
        hint=hint,
    )


async def keep(engine: Engine, definition: Definition, digest: bytes) -> None:
    """What brought the names that it mentions, on disk before the definition is."""
    wanted = mentioned(definition)
    if not wanted:
        return
    id = f"{definition.id}/{digest.hex()}"
    value = written(_BROUGHT, Brought(engine.plugins.packages(wanted)))
    record = await engine.store.record(KIND, id)
    if record is None or record.value != value:
        revision = 0 if record is None else record.revision
        # Refused if another process keeps one at this moment: then that stands.
        await engine.store.put([Record(KIND, id, value, revision)])
