"""Counts commits in SQLite's write-ahead log, without asking who wrote them.

The log is a header of 32 bytes and frames of 24 bytes and a page each; a frame that ends a transaction
carries the size of the database after it. Frames of an older log behind the newest have other salts.
"""

from __future__ import annotations

import struct
from pathlib import Path

HEADER_BYTES = 32
FRAME_BYTES = 24


def commits(database: Path) -> int:
    """How many transactions the log of this database holds."""
    log = database.with_name(database.name + "-wal")
    if not log.exists() or log.stat().st_size < HEADER_BYTES:
        return 0
    content = log.read_bytes()
    page_bytes: int = struct.unpack_from(">I", content, 8)[0]
    salts = content[16:24]
    found = 0
    for frame in range(HEADER_BYTES, len(content) - FRAME_BYTES + 1, FRAME_BYTES + page_bytes):
        if content[frame + 8 : frame + 16] != salts:
            break
        found += content[frame + 4 : frame + 8] != b"\0\0\0\0"
    return found
