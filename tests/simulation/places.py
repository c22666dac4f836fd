"""Where the databases of simulations are: in memory, if the machine has such a place."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

SHARED = "/dev/shm"


@contextmanager
def folder() -> Iterator[str]:
    """For as long as it is needed."""
    place = SHARED if os.access(SHARED, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="penstock-", dir=place) as made:
        yield made
