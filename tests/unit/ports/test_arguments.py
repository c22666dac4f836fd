"""Arguments of public functions: what was good once is not looked at as closely again (SPEC 4.4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.errors import Rejected
from penstock.ports.arguments import checked


class Counting(type):
    asked = 0

    def __instancecheck__(cls, instance: Any) -> bool:
        Counting.asked += 1
        return False


class Never(metaclass=Counting):
    pass


@checked
class Desk:
    def start(
        self, what: Never | Callable[..., Any] | str, *args: Any, id: str | None = None
    ) -> Any:
        return what, args, id


def first() -> None:
    pass


def second() -> None:
    pass


def test_a_function_is_looked_at_once_as_others_of_its_kind_fit_too() -> None:
    desk = Desk()
    desk.start(first, 1, id="a")
    before = Counting.asked

    assert desk.start(second, 2, id="b") == (second, (2,), "b")
    assert Counting.asked == before


@pytest.mark.parametrize("id", ["a\0", "\ud800", 7])
def test_what_is_given_beside_it_is_looked_at_each_time(id: Any) -> None:
    desk = Desk()
    desk.start(first, 1, id="a")

    with pytest.raises(Rejected) as caught:
        desk.start(first, 1, id=id)

    assert caught.value.code == "id-invalid"


def test_what_is_no_function_is_refused_after_one() -> None:
    desk = Desk()
    desk.start(first, 1, id="a")

    with pytest.raises(Rejected):
        desk.start(7, 1, id="a")  # type: ignore[arg-type]
