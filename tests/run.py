"""`make test`: everything, in two processes beside each other, as on one core it takes a quarter of an hour.

python tests/run.py            both halves; the second is shown when the first has ended
python tests/run.py -k lease   what is given goes to pytest
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).resolve().parent
FIRST = ("bounds", "conformance", "crash", "embedding", "interfaces")
"""Those that wait for processes and servers; the others compute."""
NONE_CHOSEN = 5


def main() -> int:
    folders = sorted(path.name for path in TESTS.iterdir() if any(path.glob("**/test_*.py")))
    halves = [
        [name for name in folders if name in FIRST],
        [name for name in folders if name not in FIRST],
    ]
    with tempfile.TemporaryFile() as held:
        first = _start(halves[0], None)
        second = _start(halves[1], held)
        codes = [first.wait(), second.wait()]
        held.seek(0)
        sys.stdout.buffer.write(held.read())
        sys.stdout.flush()
    failed = [
        ", ".join(half)
        for half, code in zip(halves, codes, strict=True)
        if code not in (0, NONE_CHOSEN)
    ]
    print(f"failed: {'; '.join(failed)}" if failed else "all passed")
    return 1 if failed or all(code == NONE_CHOSEN for code in codes) else 0


def _start(half: list[str], output: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "pytest", "-q", *sys.argv[1:]]
    return subprocess.Popen(
        [*command, *(f"tests/{name}" for name in half)],
        cwd=TESTS.parent,
        stdout=output,  # type: ignore[arg-type]
        stderr=subprocess.STDOUT if output else None,
    )


if __name__ == "__main__":
    sys.exit(main())
