"""An activity gives what its annotation says, or fails for good: the verifier relies on it (SPEC 3.6)."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import msgspec
import pytest

from penstock import activity
from penstock.errors import RunFailed
from penstock.testing.harness import harness

GIVEN: list[Any] = []
CALLS: list[str] = []


class Order(msgspec.Struct):
    n: int


@dataclasses.dataclass
class Pair:
    a: str
    b: int | None = None


class Odd:
    """Of which no schema can be made."""


def _give() -> Any:
    CALLS.append("")
    return GIVEN[-1]


@activity
async def whole() -> int:
    return _give()


@activity
def threaded() -> int:
    return _give()


@activity
async def text() -> str:
    return _give()


@activity
async def real() -> float:
    return _give()


@activity
async def truth() -> bool:
    return _give()


@activity
async def nothing() -> None:
    return _give()


@activity
async def named() -> Literal["x", "y"]:
    return _give()


@activity
async def perhaps() -> int | None:
    return _give()


@activity
async def listed() -> list[int]:
    return _give()


@activity
async def order() -> Order:
    return _give()


@activity
async def pair() -> Pair:
    return _give()


@activity
async def mapped() -> dict[str, Any]:
    return _give()


@activity
async def odd() -> Odd:
    return _give()


@activity
async def anything():
    return _give()


ALL = (whole, threaded, text, real, truth, nothing, named, perhaps, listed, order, pair, mapped, odd, anything)  # fmt: skip


async def outcome(name: str, value: Any) -> Any:
    GIVEN.append(value)
    CALLS.clear()
    async with harness(activities=ALL) as engine:
        await engine.register(f"{{id: it, tasks: {{t: {{do: {name}, retry: {{attempts: 3}}}}}}}}")
        return await engine.finish(await engine.start("it"))


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("whole", True, "`int`"),
        ("threaded", True, "`int`"),
        ("whole", "1", "`int`"),
        ("whole", 1.5, "`int`"),
        ("whole", 4.0, "`int`"),  # which CEL would take for a double
        ("whole", None, "`int`"),
        ("text", 1, "`str`"),
        ("real", True, "`float`"),
        ("truth", 1, "`bool`"),
        ("nothing", 1, "None"),
        ("named", "z", "Literal['x', 'y']"),
        ("perhaps", "1", "`int | None`"),
        ("listed", [1, "2"], "`list[int]`"),
        ("listed", [True], "`list[int]`"),
        ("order", {"n": "1"}, "Order"),
        ("pair", Pair(1), "Pair"),  # type: ignore[arg-type]
        ("mapped", [1], "`dict[str, typing.Any]`"),
    ],
)
async def test_a_result_that_does_not_fit_its_annotation(name: str, value: Any, said: str) -> None:
    with pytest.raises(RunFailed) as raised:
        await outcome(name, value)
    failure = raised.value.failure
    assert failure is not None
    assert failure.code == "output-invalid"
    assert f"`{name}`" in failure.message
    assert said in failure.message
    assert len(CALLS) == 1, "another attempt is of no use"


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("whole", 1, 1),
        ("threaded", 1, 1),
        ("text", "a", "a"),
        ("real", 1.5, 1.5),
        ("truth", False, False),
        ("nothing", None, None),
        ("named", "x", "x"),
        ("perhaps", None, None),
        ("listed", [1, 2], [1, 2]),
        ("listed", (1, 2), [1, 2]),
        ("order", Order(1), {"n": 1}),
        ("pair", Pair("a"), {"a": "a", "b": None}),
        ("mapped", {"a": [1]}, {"a": [1]}),
        ("odd", 3, 3),
        ("anything", [None], [None]),
    ],
)
async def test_a_result_that_fits_is_kept(name: str, value: Any, kept: Any) -> None:
    assert await outcome(name, value) == kept


async def test_a_whole_number_of_a_float_is_kept_as_a_double() -> None:
    """SPEC 2.1: else `tasks.n.output / 2.0` would fail."""
    found = await outcome("real", 3)
    assert type(found) is float
    assert found == 3.0
