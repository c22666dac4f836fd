"""YAML without its traps, and within its bounds."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.dsl.read_yaml import read_yaml
from penstock.dsl.tree import Places


def value(text: str) -> Any:
    reading = read_yaml(text)
    assert reading.root is not None, reading.problems
    assert not reading.problems
    return reading.root.plain()


def problem(text: str) -> tuple[str, int, str]:
    (found,) = read_yaml(text).problems
    return found.code, found.at, found.message


@pytest.mark.parametrize(
    "word",
    [
        *("on", "off", "yes", "no", "y", "n", "Yes", "NO", "12:30:00", "1:30", "2024-01-01"),
        *("0123", "0o17", "0x1f", "1_000", "+49", ".5", "1.", ".inf", ".nan", "1e", "=", "tRuE"),
    ],
)
def test_words_that_yaml_makes_something_of_stay_text(word: str) -> None:
    assert value(f"a: {word}") == {"a": word}


def test_only_what_json_calls_a_number_is_a_number() -> None:
    text = "[0, -0, 7, -12, 1.5, -0.25, 1e3, 2E-2, 9223372036854775807]"

    assert value(text) == [0, 0, 7, -12, 1.5, -0.25, 1000.0, 0.02, 2**63 - 1]


def test_true_false_and_null_are_what_they_are() -> None:
    assert value("[true, True, false, FALSE, null, Null, ~, ]") == [
        *(True, True, False, False, None, None, None)
    ]
    assert value("a:") == {"a": None}


def test_quotes_make_text() -> None:
    assert value("""["1", 'true', "null", '~', ""]""") == ["1", "true", "null", "~", ""]


def test_keys_are_always_text() -> None:
    assert value("{on: 1, 1: 2, true: 3, null: 4, 2024-01-01: 5}") == {
        "on": 1,
        "1": 2,
        "true": 3,
        "null": 4,
        "2024-01-01": 5,
    }


def test_standard_tags_are_heeded_and_others_refused() -> None:
    assert value("[!!str 5, !!int 5, !!float 1.5, !!bool true]") == ["5", 5, 1.5, True]
    assert problem("a: !!python/object:os.system x")[:2] == ("syntax", 3)
    assert problem("a: !env {b: 1}")[2] == "the YAML tag `!env` is not allowed"


def test_a_key_written_twice_is_reported_with_both_places() -> None:
    reading = read_yaml("a: 1\nb: 2\na: 3\n")

    (found,) = reading.problems
    assert (found.code, found.at, found.first_at) == ("duplicate-key", 10, 0)
    assert reading.root is not None
    assert reading.root.plain() == {"a": 1, "b": 2}


def test_anchors_aliases_and_merges_work() -> None:
    text = "base: &b {x: 1, y: 2}\none: {<<: *b, y: 3}\ntwo: {<<: [{z: 1}, *b]}\nsame: *b"

    assert value(text) == {
        "base": {"x": 1, "y": 2},
        "one": {"x": 1, "y": 3},
        "two": {"z": 1, "x": 1, "y": 2},
        "same": {"x": 1, "y": 2},
    }


def test_anchors_that_explode_are_refused_quickly() -> None:
    levels = [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, 10)]
    text = "\n".join(["l0: &l0 [x, x, x, x, x, x, x, x, x, x]", *levels])

    assert problem(text)[0] == "document-too-large"


def test_merges_that_explode_are_refused_too() -> None:
    wide = ", ".join(f"k{n}: [{', '.join('x' * 1000)}]" for n in range(30))
    text = f"a: &a {{{wide}}}\n" + "\n".join(f"m{n}: {{<<: *a}}" for n in range(40))

    assert problem(text)[0] == "document-too-large"


@pytest.mark.parametrize(
    ("text", "at", "message"),
    [
        ("a: *b", 3, "no anchor `&b` before this alias"),
        ("a: &b [*b]", 7, "`*b` stands inside of what it names"),
        ("a: 1\n---\nb: 2\n", 5, "a second document begins here"),
        ("? [a]\n: 1", 2, "a key must be text, not a list or an object"),
        ("a: &x b\n*x : 1", 8, "a key must be text, not an alias"),
        ("a: {<<: 5}", 8, "`<<` takes an object, or a list of them"),
        ("a: b: c", 4, "mapping values are not allowed in this context"),
        ("a: \x01", 3, "control characters are not allowed"),
    ],
)
def test_what_is_no_document_is_said_with_its_place(text: str, at: int, message: str) -> None:
    assert problem(text) == ("syntax", at, message)


def test_depth_is_bounded() -> None:
    assert problem("[" * 5000)[0] == "document-too-large"
    assert problem("? " * 5000 + "x")[0] in ("syntax", "document-too-large")


def test_numbers_that_do_not_fit_are_refused() -> None:
    assert problem("a: 9223372036854775808")[:2] == ("number-out-of-range", 3)
    assert problem("a: 1e999")[0] == "number-out-of-range"
    assert problem("a: " + "9" * 10_000)[2].endswith("999... does not fit")


def test_places_are_those_of_values_and_a_block_is_where_its_key_is() -> None:
    text = "a: 1\nb:\n  c: 'x'\n  d:\n    - é\n    - {e: 5}\nf: &g {h: 1}\ni: *g\r\nj: 2\n"
    places = Places(read_yaml(text).root, text)

    assert dict(places) == {
        (): (1, 1),
        ("a",): (1, 4),
        ("b",): (2, 1),
        ("b", "c"): (3, 6),
        ("b", "d"): (4, 3),
        ("b", "d", 0): (5, 7),
        ("b", "d", 1): (6, 7),
        ("b", "d", 1, "e"): (6, 11),
        ("f",): (7, 4),
        ("f", "h"): (7, 11),
        ("i",): (8, 4),
        ("i", "h"): (7, 11),
        ("j",): (9, 4),
    }
    assert places.nearest(("b", "d", 1, "e"), key=True) == (6, 8)
    assert places.nearest(("b", "c", "nothing", 3)) == (3, 6)
    assert len(places) == 13
    with pytest.raises(KeyError):
        places["b", "x"]


def test_without_a_text_there_are_no_places() -> None:
    places = Places()

    assert list(places) == []
    assert places.nearest(("a",)) == (0, 0)
    with pytest.raises(KeyError):
        places["a",]
