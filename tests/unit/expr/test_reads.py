"""Reads are lazy, exact, and let through whatever a mapping raises."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

import pytest

from penstock.errors import EvaluationError
from penstock.expr.compile import compile_expression
from penstock.expr.typecheck import Environment
from penstock.expr.types import DOUBLE, DYN, INT, STRING, list_of, map_of, object_of


class Status(StrEnum):
    OPEN = "OPEN"


class Need(BaseException):
    """What the engine raises when something must be loaded first."""


class Lazy(Mapping[str, Any]):
    """Remembers what was asked for; may be neither iterated nor measured."""

    def __init__(self, entries: dict[str, Any], missing: BaseException | None = None) -> None:
        self.entries = entries
        self.missing = missing
        self.asked: list[str] = []

    def __getitem__(self, key: str) -> Any:
        self.asked.append(key)
        if key not in self.entries and self.missing is not None:
            raise self.missing
        return self.entries[key]

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("iterated")

    def __len__(self) -> int:
        raise AssertionError("measured")


class LazyList(Sequence[Any]):
    def __init__(self, size: int) -> None:
        self.size = size
        self.asked: list[int] = []

    def __getitem__(self, index: Any) -> Any:
        self.asked.append(index)
        return index * 10

    def __len__(self) -> int:
        return self.size


def evaluate(text: str, /, **variables: Any) -> Any:
    return compile_expression(text).evaluate(variables)


def test_a_path_asks_for_its_own_key_only() -> None:
    tasks = Lazy({f"t{n}": {"output": {"x": n}} for n in range(1000)})

    assert evaluate("tasks.t5.output.x > 3", tasks=tasks) is True
    assert tasks.asked == ["t5"]


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("tasks['t5'].output.x == 5", ["t5"]),
        ("has(tasks.t5)", ["t5"]),
        ("has(tasks.gone)", ["gone"]),
        ("'t5' in tasks", ["t5"]),
        ("tasks.?t5.output.x.orValue(0) == 5", ["t5"]),
        ("tasks[?'gone'].hasValue()", ["gone"]),
        ("cel.bind(t, tasks.t5, t.output.x + t.output.x) == 10", ["t5"]),
        ("false && tasks.t5.output.x == 5", []),
        ("true ? 1 : tasks.t5", []),
        ("cel.bind(t, tasks.t5, true || t.output.x == 5)", []),
    ],
)
def test_every_way_to_read_is_lazy(text: str, asked: list[str]) -> None:
    tasks = Lazy({"t5": {"output": {"x": 5}}})

    evaluate(text, tasks=tasks)

    assert tasks.asked == asked


def test_a_lazy_list_gives_one_element() -> None:
    items = LazyList(1_000_000)

    assert evaluate("items[7] + size(items)", items=items) == 1_000_070
    assert items.asked == [7]


def test_the_variables_themselves_may_be_lazy() -> None:
    variables = Lazy({"a": 1})

    assert compile_expression("a + 1").evaluate(variables) == 2
    with pytest.raises(EvaluationError, match="no such variable `b`"):
        compile_expression("b").evaluate(variables)


@pytest.mark.parametrize("signal", [Need("x"), RuntimeError("x"), TypeError("x"), IndexError("x")])
@pytest.mark.parametrize(
    "text",
    [
        "tasks.gone.output",
        "tasks.gone.output == 1 || true",
        "tasks.gone.output == 1 && false",
        "false || tasks.gone.a || true",
        "[1, 2].exists(i, tasks.gone.x == i)",
        "[1, 2].all(i, tasks.gone.x == i)",
        "has(tasks.gone)",
        "has(tasks.gone.x)",
        "'gone' in tasks",
        "tasks[?'gone']",
        "tasks.?gone",
        "tasks[key]",
        "optional.of(tasks).gone",
        "cel.bind(t, tasks, t.gone) == 1 || true",
        "tasks.gone ? true : true",
    ],
)
def test_what_a_mapping_raises_passes_through_untouched(text: str, signal: BaseException) -> None:
    with pytest.raises(type(signal)) as caught:
        evaluate(text, tasks=Lazy({}, missing=signal), key="gone")

    assert caught.value is signal


def test_an_error_of_an_expression_inside_a_mapping_is_not_absorbed() -> None:
    class Derived(Lazy):
        def __getitem__(self, key: str) -> Any:
            return evaluate("1 / 0")

    with pytest.raises(EvaluationError, match="division by zero"):
        evaluate("data.x == 1 || true", data=Derived({}))


def test_a_missing_key_is_absorbed_like_any_error() -> None:
    assert evaluate("tasks.gone.x == 1 || true", tasks=Lazy({})) is True
    with pytest.raises(EvaluationError, match="no such key `gone`"):
        evaluate("tasks.gone.x == 1 || false", tasks=Lazy({}))


def test_messages_say_what_and_where() -> None:
    with pytest.raises(EvaluationError) as caught:
        evaluate("tasks.a.output.totl > 3", tasks={"a": {"output": {"total": 5}}})

    assert caught.value.message == (
        "no such key `totl` (at character 16 of `tasks.a.output.totl > 3`)"
    )


def test_a_long_expression_is_shown_around_the_place() -> None:
    text = " + ".join(["1"] * 100) + " + here.it.fails + " + " + ".join(["1"] * 100)
    with pytest.raises(EvaluationError) as caught:
        evaluate(text, here={})

    assert "here.it.fails" in caught.value.message
    assert len(caught.value.message) < 200


def test_members_of_enums_are_the_text_they_stand_for() -> None:
    assert evaluate("s == 'OPEN' && s in ['OPEN'] && [s].join() == 'OPEN'", s=Status.OPEN) is True


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ("tasks.charge.output.id == 'x'", [("tasks", "charge", "output", "id")]),
        ("tasks['a-b'].output + input.x", [("tasks", "a-b", "output"), ("input", "x")]),
        ("has(tasks.a.output.x)", [("tasks", "a", "output", "x")]),
        ("tasks.?a.?output", [("tasks", "a", "output")]),
        ("tasks[input.which].output", [("tasks",), ("input", "which")]),
        ("input.items[0].name", [("input", "items")]),
        ("input.items.map(i, i.price * data.rate)", [("input", "items"), ("data", "rate")]),
        ("input.xs.transformMap(k, v, k == v)", [("input", "xs")]),
        ("cel.bind(t, tasks.a, t.output.x)", [("tasks", "a")]),
        ("math.abs(input.n) > 1", [("input", "n")]),
        ("input.name.startsWith('x')", [("input", "name")]),
        ("type(x) == google.protobuf.Timestamp", [("x",)]),
        ("type(x) == int", [("x",)]),
        ("[1].map(x, .x)", [("x",)]),
        ("[1].map(x, x)", []),
        ("now > run.start + duration('1h')", [("now",), ("run", "start")]),
        ("{'a': input.a}[input.b]", [("input", "a"), ("input", "b")]),
    ],
)
def test_reads_are_the_longest_constant_paths(text: str, reads: list[tuple[str, ...]]) -> None:
    assert compile_expression(text).reads == frozenset(reads)


NUMBERS = Environment(
    {
        "input": object_of(
            {"total": DOUBLE, "count": INT, "rates": list_of(DOUBLE), "by": map_of(STRING, DOUBLE)}
        ),
        "price": DOUBLE,
        "any": DYN,
    }
)
VALUES: dict[str, Any] = {
    "input": {"total": 5, "count": 5, "rates": [1, 2], "by": {"a": 3}},
    "price": 7,
    "any": 7,
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("input.total", 5.0),
        ("input['total'] / 2.0", 2.5),
        ("price / 2.0", 3.5),
        ("input.rates[1] / 4.0", 0.5),
        ("input.by.a / 2.0", 1.5),
        ("input.by['a'] / 2.0", 1.5),
        ("input.rates.map(r, r / 2.0)", [0.5, 1.0]),
        ("input.rates.filter(r, r > 1.5)[0] / 4.0", 0.5),
        ("input.?total.orValue(0.0) / 2.0", 2.5),
        ("input.rates.first().value() / 2.0", 0.5),
        ("input.?total.optMap(t, t / 2.0).value()", 2.5),
        ("math.greatest(input.rates) / 4.0", 0.5),
        ("math.greatest(input.total, price) / 2.0", 3.5),
        ("cel.bind(p, price, p / 2.0)", 3.5),
        ("input.by.transformList(k, v, v / 2.0)", [1.5]),
        ("type(input.total) == double", True),
        ("string(input.total)", "5"),
        ("input.count / 2", 2),
        ("any / 2", 3),
        ("(input.count > 1 ? input.total : price) / 2.0", 2.5),
    ],
)
def test_what_is_declared_a_double_is_one_also_when_written_whole(text: str, value: Any) -> None:
    found = compile_expression(text, NUMBERS).evaluate(VALUES)

    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    "text", ["n + 1", "n > 3", "[n][0]", "m.n == 1", "xs[0] == 1", "xs.map(x, x)"]
)
def test_numbers_beyond_64_bits_are_errors_when_used(text: str) -> None:
    big = 2**63
    with pytest.raises(EvaluationError, match="64 bits"):
        evaluate(text, n=big, m={"n": big}, xs=[big])


def test_python_objects_that_are_no_values_are_errors_when_used() -> None:
    with pytest.raises(EvaluationError, match="Python set is not a CEL value"):
        evaluate("x < 1", x={1})
    with pytest.raises(EvaluationError, match="needs a time zone"):
        evaluate("x < x", x=datetime(2024, 1, 1))  # noqa: DTZ001 - that it is naive is the point
