"""How bytes are stored (SPEC 6.3): compressed where it pays, and what is left of them once they were erased.

What is stored is what the chain hashes. A stored payload begins with `{` (plain JSON), with zstd's magic number, or with
`ERASED`, the digest of the bytes that were there, and what is still to be known of the event.
"""

from __future__ import annotations

import sys
from hashlib import sha256

from penstock.errors import StoreCorrupt

if sys.version_info >= (3, 14):
    from compression import zstd  # pyright: ignore
else:
    from backports import zstd

PACK_FROM_BYTES = 4096
"""Below, a compressed event saves no page and costs time; from here on writing less makes up for it (measured)."""
LEVEL = 1
UNPACKED_BYTES_MAX = 512 * 1024 * 1024
"""More cannot have been packed by us: an event holds a payload, what expressions made of it, and little else."""
ERASED = b"\0erased\0"
_MAGIC = b"\x28\xb5\x2f\xfd"
_DIGEST_BYTES = 32


def pack(raw: bytes) -> bytes:
    """As it is to be stored."""
    if len(raw) < PACK_FROM_BYTES:
        return raw
    packed: bytes = zstd.compress(raw, LEVEL)
    return packed if len(packed) < len(raw) * 0.9 else raw


def compress(raw: bytes) -> bytes:
    """One zstd frame, whatever the size."""
    return zstd.compress(raw, LEVEL)


def unpack(stored: bytes, *, limit: int = UNPACKED_BYTES_MAX) -> bytes:
    """What `pack` was given."""
    if not stored.startswith(_MAGIC):
        return stored
    unpacker = zstd.ZstdDecompressor()
    try:
        raw: bytes = unpacker.decompress(stored, limit)
    except zstd.ZstdError as error:
        raise StoreCorrupt(f"compressed bytes cannot be read: {error}") from error
    if not unpacker.eof or unpacker.unused_data:
        raise StoreCorrupt("compressed bytes are cut, or larger than any that we write")
    return raw


def digest_of(stored: bytes) -> bytes:
    """Of stored bytes; of erased ones the digest that was kept."""
    if stored.startswith(ERASED):
        return stored[len(ERASED) : len(ERASED) + _DIGEST_BYTES]
    return sha256(stored).digest()


def is_erased(stored: bytes) -> bool:
    return stored.startswith(ERASED)


def erased(stored: bytes, rest: bytes) -> bytes:
    """What takes the place of stored bytes: their digest, and `rest`."""
    return ERASED + digest_of(stored) + rest


def rest_of(stored: bytes) -> bytes:
    """The `rest` of erased bytes."""
    return stored[len(ERASED) + _DIGEST_BYTES :]
