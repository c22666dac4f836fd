"""Definitions that break a rule are found with the right code and place, and by a counterexample that reproduces; near misses are clean.

What the files say of themselves: `corpus.py`. How their counterexamples come out on an engine: `test_acting.py`.
"""

from __future__ import annotations

import difflib
import pathlib
import re
from collections.abc import Iterable

import pytest

from penstock.cli.main import main
from penstock.core.plan import Plan
from penstock.dsl.finding import CODES, Finding
from penstock.errors import DefinitionInvalid, NotFound
from penstock.verify.rehearsal import rehearse
from penstock.verify.scenario import Scenario
from verify.corpus import CHANGE, RULES, SILENT, engine, examined, files, header, path_of, wanted

LINES_CHANGED_MAX = 5
SLOW = {"behaviour/sixteen-open-choices.yaml"}
"""Looked at once, not in every way: it is there to be too much."""


def rule_of(name: str) -> str:
    return name.partition("/")[0]


def seen(findings: Iterable[Finding]) -> set[tuple[str, int, int, str]]:
    return {(f.code, f.place.line, f.place.column, f.level) for f in findings}


@pytest.mark.parametrize("name", files("bad"))
def test_what_is_wrong_is_found(name: str) -> None:
    path, rule = path_of("bad", name), rule_of(name)
    expected = wanted(path)

    found, verification = examined(path)
    findings = found.findings if verification is None else verification.findings

    told = {(w.code, w.line, w.column, w.level) for w in expected}
    assert told <= seen(findings), findings
    assert told >= seen(f for f in findings if f.level == "error"), findings
    assert all(f.hint for f in findings), [f for f in findings if not f.hint]
    worst = expected[0].level
    if rule == "structure":
        assert worst == "error" or not found.errors
        return
    assert verification is not None
    verdicts = {"error": ["refuted"], "warning": ["unknown"], "note": ["unknown", "proved"]}
    assert verification.verdict(RULES[rule]) in verdicts[worst]
    assert found.loaded is not None
    plan = Plan(found.loaded.definition)
    for finding in findings:
        if (finding.code, finding.place.line, finding.place.column, finding.level) in told:
            shown = isinstance(finding.counterexample, Scenario)
            assert shown or finding.code in SILENT, finding
        if isinstance(finding.counterexample, Scenario):
            rehearsal = rehearse(plan, finding.counterexample)
            assert rehearsal.shown, rehearsal.why


@pytest.mark.parametrize("name", files("clean"))
def test_what_is_right_is_proved(name: str) -> None:
    path, rule = path_of("clean", name), rule_of(name)

    found, verification = examined(path)

    assert found.errors == []
    assert verification is not None
    assert verification.errors == []
    assert verification.verdict(RULES[rule]) == "proved", verification
    twin = path_of("bad", name)
    codes = {w.code for w in wanted(twin)} if twin.exists() else set[str]()
    assert codes.isdisjoint(f.code for f in (*found.findings, *verification.findings))


@pytest.mark.parametrize("name", files("bad"))
def test_a_near_miss_is_the_smallest_change(name: str) -> None:
    one, other = (path_of(kind, name).read_text("utf-8").splitlines() for kind in ("bad", "clean"))
    body = [line for line in one if not line.startswith("#")]
    changes = [line for line in difflib.ndiff(body, other) if line.startswith(("+ ", "- "))]

    assert 1 <= len(changes) <= 2 * LINES_CHANGED_MAX, changes


def test_there_are_enough_of_them() -> None:
    for rule in (*RULES, CHANGE):
        bad, clean = files("bad", rule), files("clean", rule)
        assert len(bad) >= 5
        assert set(bad) <= set(clean), "each has its near miss"


def test_every_code_has_a_definition_that_has_it() -> None:
    """But those that need a plugin: tests/unit/verify/test_added.py and tests/plugins have them."""
    added = {code for code in CODES if code.startswith("plugin-")}

    found = {w.code for name in files("bad") for w in wanted(path_of("bad", name))}
    assert found == CODES - added


# --- as people and engines meet them ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in files("bad") if name not in SLOW])
def test_the_command_says_where_it_is(
    name: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    path = path_of("bad", name)
    (tmp_path / "it.yaml").write_bytes(path.read_bytes())
    monkeypatch.chdir(tmp_path)
    more = _app(path, tmp_path)

    status = main(["verify", "it.yaml", *more])

    said = capsys.readouterr().out
    expected = wanted(path)
    assert status == (1 if any(w.level == "error" for w in expected) else 0)
    for each in expected:
        head = rf"^{each.level}\[{each.code}\]: .*\n  --> it.yaml:{each.line}:{each.column}$"
        assert re.search(head, said, re.MULTILINE), said


def _app(path: pathlib.Path, folder: pathlib.Path) -> list[str]:
    """`--app` with those activities that the file says there are."""
    known = [line for line in header(path) if line.startswith("activities: ")]
    if not known:
        return []
    each = "@activity\nasync def {}() -> None: ...\n"
    text = "".join(each.format(name) for name in known[0].split()[1:])
    (folder / "corpus_app.py").write_text(f"from penstock import activity\n{text}")
    return ["--app", "corpus_app.py"]


@pytest.mark.parametrize("name", files("bad"))
async def test_an_engine_refuses_what_is_wrong(name: str) -> None:
    path = path_of("bad", name)
    errors = {(w.code, w.line, w.column, w.level) for w in wanted(path) if w.level == "error"}
    if not errors or header(path)[-1].startswith("activities: "):
        return

    async with engine() as (harness, _):
        with pytest.raises(DefinitionInvalid) as caught:
            await harness.register(path)
        assert errors <= seen(caught.value.findings)
        with pytest.raises(NotFound):
            await harness.start("order", {})


@pytest.mark.parametrize("name", files("clean", "structure"))
async def test_an_engine_takes_what_is_right(name: str) -> None:
    async with engine() as (harness, _):
        kept = await harness.register(path_of("clean", name))
        assert kept.version == "1"
