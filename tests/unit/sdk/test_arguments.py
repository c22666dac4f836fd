"""Arguments: from JSON to a call."""

from __future__ import annotations

import dataclasses
import functools
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict
from uuid import UUID

import msgspec
import pytest

from penstock.sdk.arguments import BadArguments, Parameters

if TYPE_CHECKING:
    from collections.abc import Hashable as OnlyForTheChecker


@dataclasses.dataclass
class Line:
    sku: str
    price: Decimal


class Order(msgspec.Struct):
    lines: list[Line]
    due: date | None = None


class Colour(Enum):
    RED = "red"


class Box(TypedDict):
    day: date


def call(function: Any, arguments: Any, secrets: Any = None) -> Any:
    return Parameters(function).call(arguments, secrets)


def pair(a: Any, b: Any = 2) -> Any:
    return [a, b]


@pytest.mark.parametrize(
    ("arguments", "result"),
    [
        ({"a": 1}, [1, 2]),
        ({"b": 3, "a": 1}, [1, 3]),
        ([1, 5], [1, 5]),
        ("text", ["text", 2]),
        (None, [None, 2]),
        ([{"x": [1]}], [{"x": [1]}, 2]),
    ],
)
def test_a_dict_is_by_name_a_list_by_place_and_all_else_the_one(
    arguments: Any, result: Any
) -> None:
    assert call(pair, arguments) == result


def test_null_is_no_argument_for_a_function_that_takes_none() -> None:
    assert call(lambda: "called", None) == "called"
    assert call(lambda: "called", {}) == "called"


@pytest.mark.parametrize(
    ("arguments", "complaint", "parameter"),
    [
        ({}, r"missing a required argument: 'a'; it takes \(a", "a"),
        ({"a": 1, "c": 2}, "no parameter is named 'c'", "c"),
        ({"aa": 1}, "no parameter is named 'aa'", "aa"),
        ([1, 2, 3], "too many positional arguments", None),
    ],
)
def test_arguments_that_do_not_fit_name_the_parameter(
    arguments: Any, complaint: str, parameter: Any
) -> None:
    with pytest.raises(BadArguments, match=complaint) as refused:
        call(pair, arguments)
    assert refused.value.parameter == parameter


def test_a_type_error_of_the_function_itself_is_its_own() -> None:
    def adds(a: Any) -> Any:
        return a + 1

    with pytest.raises(TypeError, match="concatenate"):
        call(adds, {"a": "text"})


def test_annotated_values_arrive_as_what_they_are_annotated_with() -> None:
    def take(
        order: Order,
        when: datetime,
        id: UUID,
        colours: set[Colour],
        gap: timedelta | None = None,
        box: Box | None = None,
        small: Annotated[int, msgspec.Meta(le=9)] = 0,
        by_number: dict[int, Line] | None = None,
    ) -> Any:
        return [order, when, id, colours, gap, box, small, by_number]

    line = {"sku": "a", "price": "1.50"}
    result = call(
        take,
        {
            "order": {"lines": [line], "due": "2024-05-01"},
            "when": "2024-05-01T12:00:00Z",
            "id": "12345678-1234-5678-1234-567812345678",
            "colours": ["red"],
            "gap": "PT90S",
            "box": {"day": "2024-05-02"},
            "small": 9,
            "by_number": {"7": line},
        },
    )

    assert result[0] == Order([Line("a", Decimal("1.50"))], date(2024, 5, 1))
    assert (result[1].year, result[2].int & 0xFF, result[3]) == (2024, 0x78, {Colour.RED})
    assert (result[4], result[5]) == (timedelta(seconds=90), {"day": date(2024, 5, 2)})
    assert result[7] == {7: Line("a", Decimal("1.50"))}


def test_values_by_place_are_converted_too() -> None:
    def take(first: Any, line: Line, *rest: Any, **more: Any) -> Any:
        return [first, line, rest, more]

    assert call(take, [1, {"sku": "a", "price": "1"}, 5]) == [1, Line("a", Decimal(1)), (5,), {}]
    assert call(take, {"first": 1, "line": {"sku": "a", "price": "1"}, "x": 2})[3] == {"x": 2}
    with pytest.raises(BadArguments, match="'line'"):
        call(take, [1])


def test_a_value_that_cannot_be_converted_names_parameter_and_place() -> None:
    def take(order: Order) -> None: ...

    with pytest.raises(
        BadArguments, match=r"argument 'order': .*`\$\.lines\[0\]\.price`"
    ) as refused:
        call(take, {"order": {"lines": [{"sku": "a", "price": []}]}})
    assert refused.value.details == {"parameter": "order"}


def test_plain_annotations_convert_and_check_nothing() -> None:
    def take(a: int, b: list[str], c: dict[str, Any] | None, d: Literal["x"]) -> Any:
        return [a, b, c, d]

    parameters = Parameters(take)
    assert parameters.call(["text", [1], None, "y"]) == ["text", [1], None, "y"]
    assert parameters._converted == {}


def test_annotations_that_mean_nothing_at_run_time_do_no_harm() -> None:
    @dataclasses.dataclass
    class Local:
        x: int

    def take(a: OnlyForTheChecker, b: Local, c: object = Local) -> Any:
        return [a, b]

    # `Local` is found because the function itself refers to it.
    def refer(a: OnlyForTheChecker, b: Local) -> Any:
        return [a, isinstance(b, Local)]

    assert call(take, [1, {"x": 2}]) == [1, {"x": 2}]
    assert call(refer, [1, {"x": 2}]) == [1, True]


def test_a_type_that_json_knows_nothing_of_is_left_alone() -> None:
    class Custom: ...

    def take(a: Custom, b: Custom | date) -> Any:
        return [a, b]

    assert call(take, [1, "2024-05-01"])[0] == 1


def test_objects_methods_and_partials_are_converted_by_what_they_call() -> None:
    class Taker:
        def __call__(self, line: Line) -> Any:
            return line.sku

        def method(self, line: Line) -> Any:
            return line.sku

    def second(a: Any, line: Line) -> Any:
        return line.sku

    for function in (Taker(), Taker().method, functools.partial(second, 1)):
        assert call(function, {"line": {"sku": "a", "price": "1"}}) == "a"


def test_functions_written_in_c_are_called_as_they_are() -> None:
    assert call(max, [3, 4]) == 4
    assert call(dict, {"a": 1}) == {"a": 1}
    with pytest.raises(TypeError):
        call(max, [])


def test_what_is_given_by_position_leaves_out_what_the_engine_gives() -> None:
    """`ctx.call(book, 7)` of a transactional activity had 7 for its connection."""

    def book(connection: object, day: date, more: int = 1, *, key: str = "") -> Any:
        return connection, day, more, key

    given = {"connection": "db", "key": "k"}
    day = date(2026, 1, 2)
    assert call(book, ["2026-01-02"], given) == ("db", day, 1, "k")
    assert call(book, ["2026-01-02", 5], given) == ("db", day, 5, "k")
    assert call(book, "2026-01-02", given) == ("db", day, 1, "k")
    assert call(book, {"day": "2026-01-02"}, given) == ("db", day, 1, "k")

    def late(day: date, connection: object, *rest: int) -> Any:
        return day, connection, rest

    assert call(late, ["2026-01-02", 3, 4], {"connection": "db"}) == (day, "db", (3, 4))
    with pytest.raises(BadArguments, match="too many positional arguments"):
        call(book, ["2026-01-02", 5, 6], given)


def test_secrets_are_further_arguments() -> None:
    assert call(pair, {"a": 1}, {"b": "s"}) == [1, "s"]
    assert call(pair, [1], {"b": "s"}) == [1, "s"]
    assert call(lambda key: key, None, {"key": "s"}) == "s"
    with pytest.raises(BadArguments, match="no parameter is named 'c'"):
        call(pair, [1], {"c": "s"})
