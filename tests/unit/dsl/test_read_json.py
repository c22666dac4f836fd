"""JSON to the letter, with places."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.dsl.read_json import read_json
from penstock.dsl.tree import Places

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=150)
@given(JSON, st.sampled_from([None, 2, "\t"]), st.booleans())
def test_what_json_writes_is_read_as_json_reads_it(
    document: Any, indent: Any, ascii_only: bool
) -> None:
    text = json.dumps(document, indent=indent, ensure_ascii=ascii_only)

    reading = read_json(text)

    assert not reading.problems
    assert reading.root is not None
    assert reading.root.plain() == json.loads(text)


@settings(max_examples=300)
@given(st.text(alphabet='{}[]:,"\\u0019.-eE+tfn rulasbd\n', max_size=25))
def test_it_accepts_exactly_what_json_accepts(text: str) -> None:
    try:
        document = json.loads(text, parse_constant=lambda word: pytest.fail(word))
    except ValueError:
        document = ...
    reading = read_json(text)

    if document is ...:
        assert reading.problems
    else:
        codes = {problem.code for problem in reading.problems}
        assert codes <= {"duplicate-key", "number-out-of-range"}
        if not codes:
            assert reading.root is not None
            assert reading.root.plain() == document


@pytest.mark.parametrize(
    ("text", "at", "message"),
    [
        ("", 0, "the text ends where a value should stand"),
        ('{"a": ', 6, "the text ends where a value should stand"),
        ('{"a": 1', 7, "the text ends where `,` or `}` should stand"),
        ('{"a" 1}', 5, "`1` where `:` should stand"),
        ("{'a': 1}", 1, "`'a'` where a key in double quotes should stand"),
        ('{"a": 1,}', 8, "`}` where a key in double quotes should stand"),
        ("[1,]", 3, "`]` where a value should stand"),
        ("[1 2]", 3, "`2` where `,` or `]` should stand"),
        ("[01]", 1, "`01` where a value should stand"),
        ("[NaN]", 1, "`NaN` where a value should stand"),
        ("[tru]", 1, "`tru` where a value should stand"),
        ("1 2", 2, "`2` where the end of the text should stand"),
    ],
)
def test_what_is_no_json_is_said_with_its_place(text: str, at: int, message: str) -> None:
    (found,) = read_json(text).problems

    assert (found.code, found.at, found.message) == ("syntax", at, message)


def test_the_usual_slips_have_a_hint() -> None:
    assert read_json("{'a': 1}").problems[0].hint == "JSON takes double quotes"
    assert (
        read_json('{"a": 1,}').problems[0].hint == "JSON allows no comma before a closing bracket"
    )


def test_keys_and_tasks_written_twice_are_reported_with_both_places() -> None:
    found = read_json('{"tasks": {"a": 1, "a": 2}, "x": 1, "x": 2}').problems

    assert [(p.code, p.at, p.first_at) for p in found] == [
        ("duplicate-id", 19, 11),
        ("duplicate-key", 36, 28),
    ]


def test_depth_is_bounded() -> None:
    assert read_json("[" * 100_000).problems[0].code == "document-too-large"


def test_numbers_that_do_not_fit_are_refused() -> None:
    assert read_json("[18446744073709551616]").problems[0].code == "number-out-of-range"


def test_half_of_a_surrogate_pair_is_no_character() -> None:
    assert read_json('["\\ud83d\\ude00"]').problems == []
    assert read_json('["x", "\\ud83d"]').problems[0].at == 6


def test_the_number_of_values_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.dsl.read_json.VALUES_MAX", 100)

    assert read_json("[" + "0," * 98 + "0]").problems == []
    assert read_json("[" + "0," * 99 + "0]").problems[0].code == "document-too-large"


def test_places_count_lines_and_columns_from_one() -> None:
    text = '{\n  "a": 1,\n  "b": {"c": [true,\n null]}\n}'
    places = Places(read_json(text).root, text)

    assert dict(places) == {
        (): (1, 1),
        ("a",): (2, 8),
        ("b",): (3, 8),
        ("b", "c"): (3, 14),
        ("b", "c", 0): (3, 15),
        ("b", "c", 1): (4, 2),
    }
