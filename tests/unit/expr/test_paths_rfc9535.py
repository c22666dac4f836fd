"""`inputs.path` by RFC 9535, compiled once, in bounded time (SPEC 14)."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import CostExceeded, ExpressionError
from penstock.expr.paths import MISSING, compile_path

ORDER = {
    "lines": [{"sku": "a-1", "n": 1}, {"sku": "b-2", "n": 5}, {"sku": "a-3", "n": 9, "gift": None}],
    "bill to": {"name": "Ada"},
    "☺": 1,
}


@pytest.mark.parametrize(
    ("path", "singular", "found"),
    [
        ("$", True, ORDER),
        ("$.lines[0].sku", True, "a-1"),
        ("$.lines[-1].n", True, 9),
        ("$['bill to'][\"name\"]", True, "Ada"),
        ("$.☺", True, 1),
        ("$.lines[7]", True, MISSING),
        ("$.nothing.at.all", True, MISSING),
        ("$.lines[2].gift", True, None),
        ("$.lines[*].n", False, [1, 5, 9]),
        ("$.lines[1:].n", False, [5, 9]),
        ("$.lines[::-2].n", False, [9, 1]),
        ("$.lines[0, 2].n", False, [1, 9]),
        ("$..n", False, [1, 5, 9]),
        ("$.lines[?@.n > 4].sku", False, ["b-2", "a-3"]),
        ("$.lines[?@.gift].sku", False, ["a-3"]),
        ("$.lines[?@.n == $.lines[1].n].sku", False, ["b-2"]),
        ("$.lines[?match(@.sku, 'a-.')].n", False, [1, 9]),
        ("$.lines[?search(@.sku, '[23]')].n", False, [5, 9]),
        ("$.lines[?match(@.sku, 'a-[.]')].n", False, []),
        ("$.lines[?length(@.sku) == 3 && count(@.*) > 2].n", False, [9]),
        ("$.lines[?value(@..n) == 5].sku", False, ["b-2"]),
        ("$.nothing[*]", False, []),
    ],
)
def test_a_path(path: str, singular: bool, found: Any) -> None:
    compiled = compile_path(path)

    assert compiled.singular is singular
    assert compiled.read(ORDER) == found


@pytest.mark.parametrize(
    "path",
    ["", "lines", "$.", "$[", "$.lines[", "$[?]", "$[?@.a == ]", "$.a b", "$[01]", "$[?count(1) > 0]",
     "$[?nofunction(@)]", "$" + ".a" * 3000],
)  # fmt: skip
def test_what_is_no_path_is_refused_at_once(path: str) -> None:
    with pytest.raises(ExpressionError):
        compile_path(path)


def test_a_regular_expression_in_a_filter_does_not_explode() -> None:
    assert compile_path("$[?search(@, '(a+)+c')]").read(["a" * 50_000 + "b"]) == []


def test_a_path_visits_a_bounded_number_of_nodes() -> None:
    value: Any = 1
    for _ in range(90):
        value = [value]

    with pytest.raises(CostExceeded, match="visits more than 500000 nodes"):
        compile_path("$..*..*..*..*.nothing").read(value)


def test_a_value_that_is_nested_too_deep_is_refused() -> None:
    value: Any = 1
    for _ in range(300):
        value = [value]

    with pytest.raises(CostExceeded, match="deeper"):
        compile_path("$..x").read(value)


# --- the examples of RFC 9535, section by section ---------------------------------------------------------------------

BOOKS = [
    {"category": "reference", "author": "Nigel Rees", "title": "Sayings of the Century", "price": 8.95},
    {"category": "fiction", "author": "Evelyn Waugh", "title": "Sword of Honour", "price": 12.99},
    {"category": "fiction", "author": "Herman Melville", "title": "Moby Dick", "isbn": "0-553-21311-3", "price": 8.99},
    {"category": "fiction", "author": "J. R. R. Tolkien", "title": "The Lord of the Rings", "isbn": "0-395-19395-8", "price": 22.99},
]  # fmt: skip
STORE = {"store": {"book": BOOKS, "bicycle": {"color": "red", "price": 399}}}
NAMES = {"o": {"j j": {"k.k": 3}}, "'": {"@": 2}}
PAIR: dict[str, Any] = {"o": {"j": 1, "k": 2}, "a": [5, 3]}
LETTERS = ["a", "b", "c", "d", "e", "f", "g"]
FILTERED: dict[str, Any] = {
    "a": [3, 5, 1, 2, 4, 6, {"b": "j"}, {"b": "k"}, {"b": {}}, {"b": "kilo"}],
    "o": {"p": 1, "q": 2, "r": 3, "s": 5, "t": {"u": 6}},
    "e": "f",
}
DEEP = {"o": {"j": 1, "k": 2}, "a": [5, 3, [{"j": 4}, {"k": 6}]]}
NULLS: dict[str, Any] = {"a": None, "b": [None], "c": [{}], "null": 1}


@pytest.mark.parametrize(
    ("value", "path", "found"),
    [
        (STORE, "$.store.book[*].author", [book["author"] for book in BOOKS]),
        (STORE, "$..author", [book["author"] for book in BOOKS]),
        (STORE, "$.store.*", [BOOKS, {"color": "red", "price": 399}]),
        (STORE, "$.store..price", [8.95, 12.99, 8.99, 22.99, 399]),
        (STORE, "$..book[2]", [BOOKS[2]]),
        (STORE, "$..book[2].author", ["Herman Melville"]),
        (STORE, "$..book[2].publisher", []),
        (STORE, "$..book[-1]", [BOOKS[3]]),
        (STORE, "$..book[0,1]", BOOKS[:2]),
        (STORE, "$..book[:2]", BOOKS[:2]),
        (STORE, "$..book[?@.isbn]", BOOKS[2:]),
        (STORE, "$..book[?@.price<10]", [BOOKS[0], BOOKS[2]]),
        # 2.3.1 names
        (NAMES, "$.o['j j']", {"k.k": 3}),
        (NAMES, "$.o['j j']['k.k']", 3),
        (NAMES, '$.o["j j"]["k.k"]', 3),
        (NAMES, "$[\"'\"][\"@\"]", 2),
        ({"\U0001d11e": 1}, "$['\\uD834\\uDD1E']", 1),
        # 2.3.2 wildcard
        (PAIR, "$[*]", [{"j": 1, "k": 2}, [5, 3]]),
        (PAIR, "$.o[*]", [1, 2]),
        (PAIR, "$.o[*, *]", [1, 2, 1, 2]),
        (PAIR, "$.a[*]", [5, 3]),
        # 2.3.3 index
        (["a", "b"], "$[1]", "b"),
        (["a", "b"], "$[-2]", "a"),
        (["a", "b"], "$[-3]", MISSING),
        ({"0": "a"}, "$[0]", MISSING),
        # 2.3.4 slices
        (LETTERS, "$[1:3]", ["b", "c"]),
        (LETTERS, "$[5:]", ["f", "g"]),
        (LETTERS, "$[1:5:2]", ["b", "d"]),
        (LETTERS, "$[5:1:-2]", ["f", "d"]),
        (LETTERS, "$[::-1]", LETTERS[::-1]),
        (LETTERS, "$[::0]", []),
        (LETTERS, "$[-2:]", ["f", "g"]),
        (LETTERS, "$[10:]", []),
        # 2.3.5 filters
        (FILTERED, "$.a[?@.b == 'kilo']", [{"b": "kilo"}]),
        (FILTERED, "$.a[?(@.b == 'kilo')]", [{"b": "kilo"}]),
        (FILTERED, "$.a[?@>3.5]", [5, 4, 6]),
        (FILTERED, "$.a[?@.b]", FILTERED["a"][6:]),
        (FILTERED, "$[?@.*]", [FILTERED["a"], FILTERED["o"]]),
        (FILTERED, "$[?@[?@.b]]", [FILTERED["a"]]),
        (FILTERED, "$.o[?@<3, ?@<3]", [1, 2, 1, 2]),
        (FILTERED, '$.a[?@<2 || @.b == "k"]', [1, {"b": "k"}]),
        (FILTERED, '$.a[?match(@.b, "[jk]")]', [{"b": "j"}, {"b": "k"}]),
        (FILTERED, '$.a[?search(@.b, "[jk]")]', [{"b": "j"}, {"b": "k"}, {"b": "kilo"}]),
        (FILTERED, "$.o[?@>1 && @<4]", [2, 3]),
        (FILTERED, "$.o[?@.u || @.x]", [{"u": 6}]),
        (FILTERED, "$.a[?@.b == $.x]", [3, 5, 1, 2, 4, 6]),
        (FILTERED, "$.a[?@ == @]", FILTERED["a"]),
        (FILTERED, "$[?!(@.b || @[0])]", [FILTERED["o"], "f"]),
        # 2.4 functions
        ([["a"], {"b": 1, "c": 2}, "\U0001d11exy", 7, None], "$[?length(@) > 1]", [{"b": 1, "c": 2}, "\U0001d11exy"]),
        ([[1, 2], [1], {"a": [3]}], "$[?count(@.*) == 1]", [[1], {"a": [3]}]),
        ([["a", "b"], ["a"]], "$[?value(@.*) == 'a']", [["a"]]),
        (["\u2028", "\r", "\n", "a", True, [], {}], "$[?match(@, '.')]", ["\u2028", "a"]),
        (["abc", "axc", "a.c"], "$[?match(@, 'a\\\\.c')]", ["a.c"]),
        (["a.c", "abc"], "$[?match(@, 'a[.]c')]", ["a.c"]),
        (["\u0416", "\u0436", "1"], "$[?match(@, '\\\\p{Lu}')]", ["\u0416"]),
        (["contains bab", "bab"], "$[?match(@, 'b.b')]", ["bab"]),
        (["contains bab", "bob", "b"], "$[?search(@, 'b.b')]", ["contains bab", "bob"]),
        ([{"r": "b.?", "l": ["abc", "bcd", "bab", "bba", "a"]}], "$[0].l[?match(@, $[0].r)]", []),
        (["a"], "$[?match(@, '[')]", []),
        (["a"], "$[?match(@, 'a(?=b)?')]", []),  # no I-Regexp: it matches nothing
        # 2.5 segments
        (LETTERS, "$[0, 3]", ["a", "d"]),
        (LETTERS, "$[0:2, 5]", ["a", "b", "f"]),
        (LETTERS, "$[0, 0]", ["a", "a"]),
        (DEEP, "$..j", [1, 4]),
        (DEEP, "$..[0]", [5, {"j": 4}]),
        (DEEP, "$..o", [{"j": 1, "k": 2}]),
        (DEEP, "$.a..[0, 1]", [5, 3, {"j": 4}, {"k": 6}]),
        # 2.6 null
        (NULLS, "$.a", None),
        (NULLS, "$.a[0]", MISSING),
        (NULLS, "$.a.d", MISSING),
        (NULLS, "$.b[0]", None),
        (NULLS, "$.b[*]", [None]),
        (NULLS, "$.b[?@]", [None]),
        (NULLS, "$.b[?@==null]", [None]),
        (NULLS, "$.c[?@.d==null]", []),
        (NULLS, "$.null", 1),
    ],
)  # fmt: skip
def test_an_example_of_the_rfc(value: Any, path: str, found: Any) -> None:
    assert compile_path(path).read(value) == found


COMPARED: dict[str, Any] = {"obj": {"x": "y"}, "arr": [2, 3]}


@pytest.mark.parametrize(
    ("comparison", "holds"),
    [
        ("$.absent1 == $.absent2", True), ("$.absent1 <= $.absent2", True), ("$.absent == 'g'", False),
        ("$.absent1 != $.absent2", False), ("$.absent != 'g'", True), ("1 <= 2", True), ("1 > 2", False),
        ("13 == '13'", False), ("'a' <= 'b'", True), ("'a' > 'b'", False), ("$.obj == $.arr", False),
        ("$.obj != $.arr", True), ("$.obj == $.obj", True), ("$.obj != $.obj", False), ("$.arr == $.arr", True),
        ("$.arr != $.arr", False), ("$.obj == 17", False), ("$.obj != 17", True), ("$.obj <= $.arr", False),
        ("$.obj < $.arr", False), ("$.obj <= $.obj", True), ("$.arr <= $.arr", True), ("1 <= $.arr", False),
        ("1 >= $.arr", False), ("1 > $.arr", False), ("1 < $.arr", False), ("true <= true", True), ("true > true", False),
    ],
)  # fmt: skip
def test_a_comparison_of_the_rfc(comparison: str, holds: bool) -> None:
    assert compile_path(f"$[?{comparison}]").read(COMPARED) == (
        list(COMPARED.values()) if holds else []
    )


@pytest.mark.parametrize(
    ("path", "position"),
    [
        ("$[?length(@) < 3]", None), ("$[?length(@.*) < 3]", 3), ("$[?count(@.*) == 1]", None), ("$[?count(1) == 1]", 3),
        ("$[?count(foo(@.*)) == 1]", 9), ("$[?match(@.timezone, 'Europe/.*')]", None),
        ("$[?match(@.timezone, 'Europe/.*') == true]", 0), ("$[?value(@..color) == \"red\"]", None), ("$[?value(@..color)]", 2),
        ("$.a[", 4), ("$.a b", 4), ("$[01]", 2), ("$[1:2:3:4]", 7), ("lines", 0), ("$..", 3), ("$['a", 3),
        ("$[9007199254740992]", 2), ("$[?@.* == 1]", 7),
    ],
)  # fmt: skip
def test_what_is_not_well_typed_is_refused_with_its_place(path: str, position: int | None) -> None:
    if position is None:
        compile_path(path)
        return
    with pytest.raises(ExpressionError) as caught:
        compile_path(path)

    assert caught.value.message.startswith("not a JSONPath: ")
    assert "column" not in caught.value.message
    assert caught.value.position == position
