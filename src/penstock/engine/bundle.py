"""Bundles: files of whole runs, for archive, export and import (SPEC 6.1, 6.3, 18).

A bundle is JSON lines in zstd frames, so `zstd -dc FILE` shows it all: a header, each definition that its runs need, each
run in a frame of its own (its row, its events with their hashes, what stands beside them), an index of all frames with
their digests, and a trailer that says where the index is, with its digest and, given a key, a signature. So one run is
read without the others, and a file that was cut or changed anywhere is refused before anything is done with it.
"""

from __future__ import annotations

import hmac
import os
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from penstock.core.functions import FUNCTION
from penstock.errors import BundleDamaged, StoreCorrupt
from penstock.model.chain import link, prefix
from penstock.model.codec import decode_event
from penstock.model.events import RunMigrated, RunStarted
from penstock.model.packing import compress, digest_of, unpack
from penstock.ports.store import DefinitionRow, Row, Stored

FORMAT = 1
SUFFIX = ".jsonl.zst"
FRAME_BYTES_MAX = 8 << 30
"""One run with all its payloads."""
_SKIPPABLE = 0x184D2A50
_TRAILER = struct.Struct("<II4sQQ32s32s")
_MARK = b"PSTK"
_UNSIGNED = bytes(32)


class Header(Struct):
    penstock: str
    format: int
    made_at: float
    made_by: str = ""


class Frame(Struct):
    """Where something is in the file."""

    offset: int
    length: int
    digest: bytes


class Indexed(Struct):
    """A run as the index knows it."""

    row: Row
    frame: Frame


class Index(Struct):
    header: Frame
    runs: list[Indexed]
    definitions: list[Frame]
    root: bytes = b""
    """The digest of the heads of all its runs."""


class _Line(Struct, omit_defaults=True):
    """One line of a run's frame."""

    row: Row | None = None
    definition: DefinitionRow | None = None
    seq: int = 0
    hash: bytes = b""
    event: Raw = Raw(b"")
    """The payload, if it is plain JSON."""
    stored: bytes | None = None
    """The payload otherwise: compressed, or erased."""
    blob: bytes | None = None


class WholeRun(Struct):
    """All that is kept of one generation."""

    row: Row
    events: list[Stored]
    blobs: dict[bytes, bytes]


class Writer:
    """Writes a bundle under a name of its own beside the wanted one; `finish` makes it the wanted one."""

    def __init__(self, path: Path, header: Header) -> None:
        self.path = path
        self._beside = path.with_name(f".{path.name}.{os.getpid()}.part")
        self._file: BinaryIO = self._beside.open("wb")
        self._index = Index(self._frame(msgspec.json.encode(header) + b"\n"), [], [])
        self._known: set[tuple[str, str]] = set()

    def _frame(self, raw: bytes) -> Frame:
        packed = compress(raw)
        frame = Frame(self._file.tell(), len(packed), sha256(packed).digest())
        self._file.write(packed)
        return frame

    def knows(self, definition: str, version: str) -> bool:
        return (definition, version) in self._known

    def define(self, definition: DefinitionRow) -> None:
        self._known.add((definition.id, definition.version))
        self._index.definitions.append(self._frame(_lines([_Line(definition=definition)])))

    def add(self, run: WholeRun) -> None:
        lines = [_Line(row=run.row)]
        for each in run.events:
            line = _Line(seq=each.seq, hash=each.hash)
            if each.payload.startswith(b"{"):
                line.event = Raw(each.payload)
            else:
                line.stored = each.payload
            lines.append(line)
        lines += [_Line(hash=digest, blob=stored) for digest, stored in run.blobs.items()]
        self._index.runs.append(Indexed(run.row, self._frame(_lines(lines))))

    def finish(self, key: bytes | None) -> Index:
        """On disk under its own name on return."""
        self._index.root = _root(self._index.runs)
        frame = self._frame(msgspec.json.encode(self._index) + b"\n")
        signature = _UNSIGNED if key is None else sign(key, frame.digest)
        self._file.write(
            _TRAILER.pack(
                _SKIPPABLE,
                _TRAILER.size - 8,
                _MARK,
                frame.offset,
                frame.length,
                frame.digest,
                signature,
            )
        )
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        os.rename(self._beside, self.path)
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return self._index

    def drop(self) -> None:
        """It is not wanted after all."""
        self._file.close()
        self._beside.unlink(missing_ok=True)


class Reader:
    """Reads a bundle; BundleDamaged for whatever is not as it was written."""

    def __init__(self, path: Path, key: bytes | None = None) -> None:
        self.path = path
        try:
            size = path.stat().st_size
            with path.open("rb") as file:
                file.seek(max(0, size - _TRAILER.size))
                trailer = file.read()
        except OSError as error:
            raise BundleDamaged(path, f"it cannot be read: {error.strerror}") from error
        if len(trailer) != _TRAILER.size:
            raise BundleDamaged(path, "it is too short to be a bundle")
        skip, rest, mark, offset, length, self.digest, self._signature = _TRAILER.unpack(trailer)
        if (skip, rest, mark) != (_SKIPPABLE, _TRAILER.size - 8, _MARK):
            raise BundleDamaged(path, "it has no trailer: it is no bundle, or it was cut")
        if offset + length + _TRAILER.size != size:
            raise BundleDamaged(
                path, "its trailer does not fit its size: it was cut, or something was added"
            )
        self.signed = self._signature != _UNSIGNED
        if (
            self.signed
            and key is not None
            and not hmac.compare_digest(self._signature, sign(key, self.digest))
        ):
            raise BundleDamaged(path, "its signature is not of this key")
        self.index = self._decode(
            self._read(Frame(offset, length, self.digest), "index"), Index, "index"
        )
        if self.index.root != _root(self.index.runs):
            raise BundleDamaged(path, "its root is not that of its runs")

    def damaged(self, reason: str) -> BundleDamaged:
        return BundleDamaged(self.path, reason)

    def _read(self, frame: Frame, what: str) -> bytes:
        try:
            with self.path.open("rb") as file:
                file.seek(frame.offset)
                packed = file.read(frame.length)
        except OSError as error:
            raise BundleDamaged(self.path, f"it cannot be read: {error.strerror}") from error
        if sha256(packed).digest() != frame.digest:
            raise BundleDamaged(self.path, f"its {what} is not what was written")
        try:
            return unpack(packed, limit=FRAME_BYTES_MAX)
        except StoreCorrupt as error:
            raise BundleDamaged(self.path, f"its {what} cannot be read: {error}") from error

    def _decode(self, raw: bytes, type: Any, what: str) -> Any:
        try:
            return msgspec.json.decode(raw, type=type)
        except msgspec.MsgspecError as error:
            raise BundleDamaged(self.path, f"its {what} cannot be read: {error}") from error

    def definitions(self) -> Iterator[DefinitionRow]:
        for frame in self.index.definitions:
            line: _Line = self._decode(self._read(frame, "definition"), _Line, "definition")
            if line.definition is None:
                raise BundleDamaged(self.path, "a definition is missing")
            yield line.definition

    def run(self, indexed: Indexed) -> WholeRun:
        """One run, its chain checked from the first event to the head."""
        name = f"run {indexed.row.id}"
        lines = [
            self._decode(line, _Line, name) for line in self._read(indexed.frame, name).splitlines()
        ]
        if not lines or lines[0].row != indexed.row:
            raise BundleDamaged(self.path, f"{name} is not what its index says")
        row, events, blobs = indexed.row, list[Stored](), dict[bytes, bytes]()
        head, start = b"", prefix(row.id, row.generation)
        for line in lines[1:]:
            if line.blob is not None:
                blobs[line.hash] = line.blob
                continue
            payload = bytes(line.event) if line.stored is None else line.stored
            head = link(head, start, len(events) + 1, payload)
            if line.seq != len(events) + 1 or line.hash != head:
                raise BundleDamaged(
                    self.path, f"event {line.seq} of {name} is not what was written"
                )
            events.append(Stored(0, row.key, line.seq, payload, head))
        if head != row.hash or len(events) != row.revision:
            raise BundleDamaged(self.path, f"{name} does not end where its row says")
        self._check_blobs(name, events, blobs)
        return WholeRun(row, events, blobs)

    def _check_blobs(
        self, name: str, events: Sequence[Stored], blobs: Mapping[bytes, bytes]
    ) -> None:
        for digest, stored in blobs.items():
            if digest_of(stored) != digest:
                raise BundleDamaged(self.path, f"a payload of {name} is not what was written")
        for each in events:
            for digest, _ in decode_event(each.payload).beside.values():
                if bytes.fromhex(digest) not in blobs:
                    raise BundleDamaged(self.path, f"a payload of {name} is missing")

    def verify(self) -> None:
        """Read it all; raises at the first thing that is wrong."""
        header: Header = self._decode(self._read(self.index.header, "header"), Header, "header")
        if header.penstock != "runs" or header.format > FORMAT:
            raise self.damaged(f"it is of format {header.format}; this Penstock reads {FORMAT}")
        known = {(each.id, each.version) for each in self.definitions()}
        for indexed in self.index.runs:
            whole = self.run(indexed)
            row = whole.row
            if any((row.definition, version) not in known for version in versions_of(whole)):
                raise BundleDamaged(self.path, f"the definition of run {row.id} is missing")


def versions_of(run: WholeRun) -> list[str]:
    """All versions of its definition that it has been of."""
    found = {run.row.version: None}
    for each in run.events:
        # By far most events say nothing of it: only what could is decoded.
        if each.seq == 1 or b"run_migrated" in each.payload or not each.payload.startswith(b"{"):
            event = decode_event(each.payload)
            if isinstance(event, RunStarted | RunMigrated):
                found[event.version] = None
    found.pop(FUNCTION, None)  # code, which no store keeps
    return list(found)


def sign(key: bytes, digest: bytes) -> bytes:
    return hmac.new(key, digest, sha256).digest()


def _root(runs: Iterable[Indexed]) -> bytes:
    """Of the heads of all runs."""
    root = sha256()
    for each in runs:
        root.update(prefix(each.row.id, each.row.generation) + each.row.hash)
    return root.digest()


def _lines(lines: Iterable[_Line]) -> bytes:
    return b"".join(msgspec.json.encode(line) + b"\n" for line in lines)


def outside(row: Row) -> Row:
    """A row as a bundle keeps it: without the numbers of the store it came from."""
    return replace(row, key=0, position=0)
