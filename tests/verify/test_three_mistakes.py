"""A file with three mistakes: the report that a newcomer sees is the one that the docs show, with and without colour."""

from __future__ import annotations

import pathlib
import re

import pytest

from penstock.cli.main import main

HERE = pathlib.Path(__file__).parent
FILE = HERE / "three-mistakes.yaml"
PAGE = HERE.parents[1] / "docs" / "howto" / "verify.md"


@pytest.fixture
def order(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "order.yaml").write_text(FILE.read_text())
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FORCE_COLOR", raising=False)


@pytest.mark.usefixtures("order")
def test_the_report_is_the_one_in_the_docs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "order.yaml"]) == 1

    said = capsys.readouterr()
    assert re.findall(r"^error\[(.*?)\]", said.out, re.MULTILINE) == [
        "no-branch", "never-runs", "join-starved",
    ]  # fmt: skip
    assert said.out in PAGE.read_text()
    assert FILE.read_text() in PAGE.read_text()
    assert said.err.startswith("order.yaml: 3 errors\n")


@pytest.mark.usefixtures("order")
def test_colour_changes_nothing_but_the_colour(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")

    assert main(["verify", "order.yaml"]) == 1

    coloured = capsys.readouterr().out
    assert coloured.count("\x1b[") > 40
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) in PAGE.read_text()


@pytest.mark.usefixtures("order")
@pytest.mark.parametrize("number", ["1", "2", "3"])
def test_each_of_its_counterexamples_happens(
    number: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", "order.yaml", "--run", number]) == 0

    said = capsys.readouterr().out
    assert "it happens as the report says: " in said
    if number == "3":
        assert said.partition("\non the engine")[2] in PAGE.read_text()
