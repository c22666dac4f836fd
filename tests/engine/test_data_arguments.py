"""Every public function of the life of data, with a wrong argument in every place (SPEC 6): refused with code and hint, or it
works."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.engine.settings import Settings
from penstock.sdk.data import Data
from penstock.testing.harness import harness
from support.stores import Make
from support.wrong import WRONG, complaint, named, places

DOCUMENT = {"id": "d", "tasks": {"a": {"type": "transform", "config": {"set": {"x": "input"}}}}}
GOOD: dict[str, dict[str, Any]] = {
    "sweep": {},
    "payload": {"id": "r0", "seq": 1},
    "erase": {"id": "r0", "by": "me", "reason": "asked for", "tasks": ["none"]},
    "erasures": {"id": "r0"},
    "archive": {"folder": "none"},
    "archives": {},
    "archived": {},
    "restore": {"id": "none"},
    "export": {"path": "none/x"},
    "import_runs": {"path": "none"},
    "backup": {"path": "none/x"},
    "sign": {},
}


def test_all_functions_are_walked() -> None:
    assert {name for name in vars(Data) if not name.startswith("_")} == set(GOOD)


async def test_a_wrong_argument_is_refused_with_code_and_hint(
    make_store: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # some of the wrong values are good names of files
    settings = Settings(drain_seconds=0, audit_key=b"key")
    complaints: list[str] = []
    async with harness(store=make_store(), settings=settings) as engine:
        await engine.register(DOCUMENT)
        for n in range(3):
            await engine.finish(await engine.start("d", n, id=f"r{n}"))
        for method, good in GOOD.items():
            function = getattr(engine.data, method)
            for place in places(function)[0]:
                for value in WRONG:
                    problem = await complaint(lambda: function(**{**good, place: value}))  # noqa: B023
                    if problem:
                        complaints.append(f"{method}({place}={named(value)}): {problem}")
        for value in WRONG:
            if problem := await complaint(lambda: engine.audit(value)):  # noqa: B023
                complaints.append(f"audit({named(value)}): {problem}")
        assert complaints == []
        assert await engine.audit() == []
