"""`penstock` in this process, in an empty folder: what it gave back, on stdout and on stderr.

    def test_mine(tool: Tool) -> None:
        status, out, err = tool("list", "--json")

A file of tests that needs more in the folder has a fixture `tool` of its own that takes this one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Said = tuple[int, str, str]
Tool = Callable[..., Said]


@pytest.fixture
def tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Tool:
    from penstock.cli.main import main  # late: not every session has to do with the command line

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("PENSTOCK_STORE", raising=False)

    def call(*arguments: str) -> Said:
        capfd.readouterr()
        status = main(arguments)
        out, err = capfd.readouterr()
        assert "Traceback" not in err, err
        assert "error[internal]" not in err, (arguments, err)
        return status, out, err

    return call
