"""`make test`: everything, folder by folder, two processes beside each other.

python tests/run.py            all of it; what a folder said is shown when it has ended
python tests/run.py -k lease   what is given goes to pytest

Temporary files are in memory if the machine has such a place: most of the time went into waiting for a disk whose loss no
test can see (a loss of power is one of a disk that we make ourselves, `tests/crash/disk.py`). The kills of `tests/crash` stay on
the disk: there a commit takes its time, and a kill at random comes in the middle of it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TESTS = Path(__file__).resolve().parent
LONGEST = (
    "engine", "laws", "crash", "unit", "simulation", "conformance", "interfaces", "docs", "plugins", "embedding", "verify",
)  # fmt: skip
"""Begun in this order and the short ones after them, so that both processes end at about the same time."""
ON_DISK = ("crash",)
PROCESSES = 2
NONE_CHOSEN = 5
SHARED = "/dev/shm"
MEMORY_BYTES_MIN = 4 << 30
"""Free in memory, so that temporary files of all folders fit in many times."""


@contextmanager
def in_memory() -> Iterator[str | None]:
    """A folder that is in memory, for as long as it is needed; None where there is no room, or programs can't be run there."""
    roomy = os.access(SHARED, os.W_OK) and shutil.disk_usage(SHARED).free >= MEMORY_BYTES_MIN
    if not roomy or os.statvfs(SHARED).f_flag & os.ST_NOEXEC:
        yield None
    else:
        with tempfile.TemporaryDirectory(prefix="penstock-tests-", dir=SHARED) as folder:
            os.chmod(folder, 0o711)  # servers of tests are another user's
            yield folder


class Folders:
    """Those that are still to be run, and how those ended that were."""

    def __init__(self, todo: list[str], arguments: list[str], memory: str | None) -> None:
        self._todo, self._arguments, self._memory = todo, arguments, memory
        self._lock = threading.Lock()
        self.codes: dict[str, int] = {}

    def work(self) -> None:
        """Take one after the other until none is left."""
        while True:
            with self._lock:
                if not self._todo:
                    return
                name, begun = self._todo.pop(0), time.monotonic()
                print(f"--- {name} …", flush=True)
            in_memory = self._memory is not None and name not in ON_DISK
            done = subprocess.run(
                [sys.executable, "-m", "pytest", "-q", *self._arguments, f"tests/{name}"],
                cwd=TESTS.parent,
                env={**os.environ, "TMPDIR": self._memory} if in_memory else None,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                check=False,
            )
            with self._lock:
                self.codes[name] = done.returncode
                sys.stdout.buffer.write(done.stdout)
                print(f"--- {name}: {time.monotonic() - begun:.0f} s", flush=True)


def main() -> int:
    folders = sorted(path.name for path in TESTS.iterdir() if any(path.glob("**/test_*.py")))
    folders.sort(key=lambda name: LONGEST.index(name) if name in LONGEST else len(LONGEST))
    with in_memory() as memory:
        work = Folders(folders, sys.argv[1:], memory)
        workers = [threading.Thread(target=work.work) for _ in range(PROCESSES)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    failed = [name for name, code in work.codes.items() if code not in (0, NONE_CHOSEN)]
    print(f"failed: {'; '.join(failed)}" if failed else "all passed")
    return 1 if failed or all(code == NONE_CHOSEN for code in work.codes.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
