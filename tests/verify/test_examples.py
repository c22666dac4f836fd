"""The examples are clean: `penstock verify` has no errors and no warnings to give, and the demo is proved."""

from __future__ import annotations

import pathlib

import pytest

from penstock.cli.main import main

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
WARNED = {"rules.yaml"}
"""What a table of rules holds is not known to the verifier."""


@pytest.mark.parametrize(
    "path", sorted([*EXAMPLES.glob("*.yaml"), *EXAMPLES.glob("patterns/*.yaml")]), ids=lambda p: p.name
)  # fmt: skip
def test_an_example_is_clean(path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["verify", str(path)])

    shown = capsys.readouterr().out
    assert status in (0, None)
    assert ("warning[" not in shown) is (path.name not in WARNED), shown


def test_the_demo_is_proved_with_the_types_of_its_activities(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(["verify", str(EXAMPLES / "demo.yaml"), "--app", str(EXAMPLES / "shop.py")])

    shown = capsys.readouterr().out
    assert "warning[" not in shown
    unproved = [line.split()[1] for line in shown.splitlines() if line.startswith("  unknown")]
    assert unproved == ["compensation:"], shown
