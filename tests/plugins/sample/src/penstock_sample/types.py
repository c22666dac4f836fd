"""Task types: one that computes, one that writes a file in a thread, one that waits in the event loop."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec

from penstock.plugin import Attempt, Fail, Problem, Retry, TaskType


class SlugConfig(msgspec.Struct, forbid_unknown_fields=True):
    text: str
    separator: Annotated[str, msgspec.Meta(max_length=3)] = "-"


class Slug(TaskType):
    """Make a title fit for an address."""

    config = SlugConfig
    output: ClassVar[Any] = {
        "type": "object",
        "properties": {"slug": {"type": "string"}, "length": {"type": "integer"}},
        "required": ["slug", "length"],
        "additionalProperties": False,
    }

    def check(self, config: dict[str, Any]) -> Iterable[Problem]:
        if config.get("separator", "-").isalnum():
            yield Problem("letters run into each other", ("separator",), hint="take `-` or `_`")
        if config["text"] != config["text"].strip():
            yield Problem("spaces around it are dropped", ("text",), level="warning")

    def effects(self, config: dict[str, Any]) -> str:
        return ""

    async def execute(self, attempt: Attempt) -> dict[str, Any]:
        config: SlugConfig = attempt.config
        words = re.findall(r"[a-z0-9]+", config.text.lower())
        if not words:
            raise Fail("there is no letter in it", code="slug-empty", details={"text": config.text})
        slug = config.separator.join(words)
        return {"slug": slug, "length": len(slug)}


class Note(TaskType):
    """Add a line to a file, slowly if asked to."""

    config: ClassVar[Any] = {
        "type": "object",
        "properties": {
            "file": {"type": "string", "minLength": 1},
            "line": {"type": "string"},
            "seconds": {"type": "number", "minimum": 0},
            "fails": {"type": "integer", "minimum": 0},
        },
        "required": ["file", "line"],
        "additionalProperties": False,
    }
    retry = Retry(attempts=3, first=0.05, jitter=0)

    def __init__(self) -> None:
        self._files: set[str] = set()

    def effects(self, config: dict[str, Any]) -> str:
        return "adds a line to a file"

    def writes(self, config: dict[str, Any]) -> Iterable[str]:
        return [f"file:{config['file'].replace('.', '_')}"]

    def execute(self, attempt: Attempt) -> int:
        config = attempt.config
        self._files.add(config["file"])
        _add(config["file"], f"{attempt.number} {attempt.idempotency_key} {config['line']}")
        for step in range(int(config.get("seconds", 0) * 20)):
            if attempt.cancelled:
                break
            attempt.heartbeat({"step": step, "before": (attempt.progress or {}).get("step")})
            time.sleep(0.05)
        if attempt.number <= config.get("fails", 0):
            raise OSError(f"attempt {attempt.number} is told to fail")
        return attempt.number

    async def close(self) -> None:
        for name in sorted(self._files):
            await asyncio.to_thread(_add, name, "closed")


def _add(name: str, line: str) -> None:
    with Path(name).open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")


class WaitForFile(TaskType):
    """Wait until a file is there."""

    config: ClassVar[Any] = {
        "type": "object",
        "properties": {"path": {"type": "string"}, "every": {"type": "number"}},
        "required": ["path"],
        "additionalProperties": False,
    }
    output: ClassVar[Any] = {"type": "integer"}
    timeout = 60.0

    def reads(self, config: dict[str, Any]) -> Iterable[str]:
        return [f"file:{config['path'].replace('.', '_')}"]

    def effects(self, config: dict[str, Any]) -> str:
        return ""

    async def execute(self, attempt: Attempt) -> int:
        path = Path(attempt.config["path"])
        while not await asyncio.to_thread(path.exists):
            attempt.heartbeat()
            await asyncio.sleep(attempt.config.get("every", 0.05))
        return (await asyncio.to_thread(path.stat)).st_size
