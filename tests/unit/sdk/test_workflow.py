"""`@activity` and the registry."""

from __future__ import annotations

import functools
import math
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.errors import Rejected
from penstock.model.definition import Retry, Timeouts
from penstock.ports.activities import Served
from penstock.sdk.workflow import Registry, activity, name_of


@activity
async def plain(card: str) -> str:
    return card


@activity(name="pay", retry=Retry(attempts=5, first=0.2), timeout=30, heartbeat=2, once=True)
def charge(card: str, cents: int) -> str:
    return f"{card}:{cents}"


@activity(cpu=True)
def heavy(n: int) -> int:
    return n


class Sender:
    async def __call__(self, text: str) -> str:
        return text

    @activity
    def send(self, text: str) -> str:
        return text


def served(*activities: Any) -> list[Served]:
    return [entry.served for entry in Registry(activities)]


def test_a_decorated_function_is_still_called_as_before() -> None:
    assert charge("4242", cents=5) == "4242:5"
    assert charge.__name__ == "charge"


def test_what_the_decorator_said_is_what_is_served() -> None:
    first, second, third = served(plain, charge, heavy)

    assert (first.name, first.kind, first.retry, first.start_to_close) == (
        "plain",
        "loop",
        None,
        None,
    )
    assert (second.name, second.kind, second.once) == ("pay", "thread", True)
    assert second.retry == Retry(attempts=5, first=0.2)
    assert (second.start_to_close, second.heartbeat) == (30.0, 2.0)
    assert (third.name, third.kind, third.cpu) == ("heavy", "process", True)


def test_the_engine_is_told_which_names_can_be_given() -> None:
    def any_name(a: int, /, b: int, *, c: int, **more: Any) -> None: ...

    told = [(each.parameters, each.open_ended) for each in served(charge, any_name, print)]

    assert told == [
        (("card", "cents"), False),
        (("b", "c"), True),
        (("sep", "end", "file", "flush"), False),
    ]
    assert served(max)[0].open_ended
    assert "pay" in Registry([charge])


def test_functions_without_decorator_methods_and_objects_are_served_too() -> None:
    def simple() -> None: ...

    sender = Sender()
    bound = functools.partial(charge, "4242")
    named = activity(name="deliver")(Sender())

    assert [
        (each.name, each.kind) for each in served(simple, sender, sender.send, bound, named)
    ] == [
        ("simple", "thread"),
        ("Sender", "loop"),
        ("send", "thread"),
        ("charge", "thread"),
        ("deliver", "loop"),
    ]


@pytest.mark.parametrize(
    ("timeout", "seconds"),
    [
        (0.5, (0.5, None)),
        (timedelta(minutes=1), (60.0, None)),
        (Timeouts(start_to_close=5, heartbeat=1), (5.0, 1.0)),
    ],
)
def test_a_timeout_is_seconds_a_timedelta_or_both_kinds(timeout: Any, seconds: Any) -> None:
    @activity(timeout=timeout)
    def work() -> None: ...

    [found] = served(work)
    assert (found.start_to_close, found.heartbeat) == seconds


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"timeout": 0}, "`timeout` must be more than 0 seconds"),
        ({"timeout": math.inf}, "`timeout` must be more than 0 seconds"),
        ({"timeout": "30s"}, "`timeout` must be seconds or a timedelta"),
        ({"timeout": True}, "`timeout` must be seconds or a timedelta"),
        ({"timeout": Timeouts(task=3)}, "`task` is not a timeout of an activity"),
        ({"heartbeat": -1}, "`heartbeat` must be more than 0 seconds"),
        ({"retry": 3}, "`retry` must be a Retry"),
        ({"name": ""}, "`name` of an activity must be text"),
    ],
)
def test_a_wrong_option_is_refused_when_the_module_is_read(options: Any, complaint: str) -> None:
    with pytest.raises(Rejected, match=complaint) as refused:
        activity(**options)
    assert refused.value.code == "activity-invalid"


async def a_generator() -> Any:
    yield 1


@pytest.mark.parametrize(
    ("thing", "complaint"),
    [
        (42, "42 is not an activity"),
        (math, "is not an activity"),
        (Sender, "test_workflow.Sender is not an activity"),
        (a_generator, "is a generator"),
        (lambda: 1, "a lambda has no name"),
    ],
)
def test_what_is_no_function_is_refused_by_name(thing: Any, complaint: str) -> None:
    with pytest.raises(Rejected, match=complaint):
        Registry([thing])


def test_what_takes_no_attribute_cannot_be_marked() -> None:
    with pytest.raises(Rejected, match="takes no attributes") as refused:
        activity(Sender().__call__)
    assert "in its class" in str(refused.value.hint)


def test_two_of_one_name_are_refused_and_one_listed_twice_is_not() -> None:
    def pay() -> None: ...

    assert len(Registry([charge, charge])) == 1
    with pytest.raises(Rejected, match=r"two activities are named `pay`: .*charge and .*pay"):
        Registry([charge, pay])


def test_the_names_of_built_in_activities_are_taken() -> None:
    def http() -> None: ...

    with pytest.raises(Rejected, match="`http` belongs to a built-in"):
        Registry([http])


def test_a_child_process_must_be_able_to_find_the_function() -> None:
    def nested() -> None: ...

    renamed = activity(cpu=True)(_make_module_level())
    for wrong in (nested, lambda: 1):
        with pytest.raises(Rejected, match="cannot be found by a child process"):
            activity(name="x", cpu=True)(wrong)
    for wrong in (renamed, activity(name="s", cpu=True)(SimpleCallable())):
        with pytest.raises(Rejected, match="cannot be found by a child process"):
            Registry([wrong])
    with pytest.raises(Rejected, match="`cpu=True` is for a plain `def`"):
        activity(cpu=True)(Sender())


class SimpleCallable:
    def __call__(self) -> None: ...


def _make_module_level() -> Any:
    def replaced() -> None: ...

    replaced.__qualname__ = "replaced"  # as a decorator leaves it that does not return its function
    return replaced


def test_a_function_that_was_typed_in_is_refused_for_a_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def typed() -> None: ...

    typed.__module__, typed.__qualname__ = "__main__", "typed"
    main = SimpleNamespace(typed=typed, __spec__=None)
    monkeypatch.setitem(__import__("sys").modules, "__main__", main)

    with pytest.raises(Rejected, match="was typed in"):
        Registry([activity(cpu=True)(typed)])


def test_an_activity_is_named_by_function_or_text() -> None:
    assert [name_of(each) for each in (charge, plain, "other", Sender())] == [
        "pay",
        "plain",
        "other",
        "Sender",
    ]
