"""`make test`: everything, folder by folder, two processes beside each other.

python tests/run.py            all of it; what a folder said is shown when it has ended
python tests/run.py -k lease   what is given goes to pytest
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

TESTS = Path(__file__).resolve().parent
LONGEST = ("crash", "laws", "engine", "verify", "interfaces", "unit", "conformance", "docs")
"""Begun in this order, the rest after them together, so that both processes end at about the same time."""
PROCESSES = 2
NONE_CHOSEN = 5


class Folders:
    """Parts of the tests that are still to be run, and how those ended that were."""

    def __init__(self, parts: list[list[str]], arguments: list[str]) -> None:
        self._todo, self._arguments = parts, arguments
        self._lock = threading.Lock()
        self.codes: dict[str, int] = {}

    def work(self) -> None:
        """Take parts until none is left."""
        while True:
            with self._lock:
                if not self._todo:
                    return
                part = self._todo.pop(0)
                name, begun = ", ".join(part), time.monotonic()
                print(f"--- {name} …", flush=True)
            command = [sys.executable, "-m", "pytest", "-q", *self._arguments]
            done = subprocess.run(
                [*command, *(f"tests/{folder}" for folder in part)],
                cwd=TESTS.parent,
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
    alone = [[name] for name in LONGEST if name in folders]
    rest = [name for name in folders if name not in LONGEST]
    work = Folders([*alone, rest] if rest else alone, sys.argv[1:])
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
