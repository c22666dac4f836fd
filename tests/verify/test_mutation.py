"""What docs/concepts/mutation.md says of good definitions that were broken still holds: of some of them, `make mutation` asks all."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from penstock.dsl.load import load_file
from penstock.verify.verification import verify
from support.mutation_page import page
from verify.mutation import EACH, GOOD, OTHERS, PAGE, RECORD, broken, judge, told, watched

RECORDS: list[dict[str, Any]] = json.loads(RECORD.read_text())
SAMPLE = [(path, place % EACH + 1) for place, path in enumerate(GOOD) if place % 2]
RUNS = 40


def test_the_page_is_what_was_judged() -> None:
    assert len(GOOD) == 30
    assert Counter(record["definition"] for record in RECORDS) == {p.stem: EACH for p in GOOD}
    assert PAGE.read_text() == page(RECORDS, json.loads(OTHERS.read_text()))


@pytest.mark.parametrize(("path", "number"), SAMPLE, ids=lambda it: getattr(it, "stem", it))
def test_nothing_is_missed_or_falsely_reported_beyond_the_page(path: Any, number: int) -> None:
    loaded = load_file(path)
    verification = verify(loaded)
    assert verification.errors == []
    mutant = broken(path)[number - 1]
    (record,) = [r for r in RECORDS if r["definition"] == path.stem and r["number"] == number]
    assert (record["operator"], record["words"]) == (mutant.operator, mutant.words)

    said = {told(finding) for finding in verification.findings}
    judged = judge(path, number, mutant, watched(loaded, RUNS), said, RUNS)

    assert judged.verdict not in ("missed", "false") or judged.verdict == record["verdict"], judged
