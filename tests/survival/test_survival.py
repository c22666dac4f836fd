"""The machinery of `make mutmut`: its draw is repeatable and reaches every file, and a function becomes its mutant."""

from __future__ import annotations

import sys
import types

import pytest

from survival import switch
from survival.forest import AT_LEAST, TRAMPOLINE, change, drawn
from survival.page import only

SOURCE = '''
def price(cents: int, count: int = 1) -> int:
    """Of so many."""
    return cents * count


class Cart:
    def total(self, *prices: int) -> int:
        return sum(prices) + 1
'''


def test_a_draw_is_repeatable_reaches_every_file_and_grows() -> None:
    forest = {name: [f"{name}{n}" for n in range(size)] for name, size in (("a", 900), ("b", 90), ("c", 4))}  # fmt: skip
    small, large = drawn(forest, 100, "s"), drawn(forest, 300, "s")

    assert small == drawn(forest, 100, "s")
    assert set(small) < set(large)
    assert set(small) != set(drawn(forest, 100, "t"))
    shares = [sum(name.startswith(file) for name in small) for file in "abc"]
    assert shares == [round(100 * 900 / 994), AT_LEAST, 4]


def test_of_them_those_of_a_file_a_class_or_a_function_are_taken() -> None:
    names = [
        f"penstock.core.{name}__mutmut_1"
        for name in ("kinds.maps.x_end", "functions.x_done", "functions.x_done_for", "functions.xǁRunPlanǁadd")
    ]  # fmt: skip

    assert only(names, ["functions"]) == names[1:]
    assert only(names, ["functions.done"]) == names[1:2]
    assert only(names, ["kinds", "functions.RunPlan"]) == [names[0], names[3]]


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory):
    from mutmut.mutation.file_mutation import mutate_file_contents

    code = mutate_file_contents("shop.py", SOURCE).code
    file = tmp_path_factory.mktemp("shop") / "shop.py"
    file.write_text(code.replace(TRAMPOLINE, "from survival.switch import mutated as"))
    module = types.ModuleType("shop")
    monkeypatch.setitem(sys.modules, "shop", module)
    exec(compile(file.read_text(), str(file), "exec"), module.__dict__)
    yield module
    for name in [name for name in switch.KNOWN if name.startswith("shop.")]:
        switch.CODES.pop(switch.KNOWN.pop(name)[0].__code__, None)


def test_a_function_becomes_its_mutant(shop: types.ModuleType) -> None:
    assert shop.price(5, 3) == 15
    _, mutants = switch.KNOWN["shop.x_price"]
    changes = {name: change(f"shop.{name}") for name in mutants if name != "_mutmut_orig"}
    (name,) = [name for name, lines in changes.items() if lines[-1] == "+ return cents / count"]
    assert changes[name] == ["- return cents * count", "+ return cents / count"]

    switch.become(f"shop.{name}")

    assert shop.price(6, 3) == 2
    assert switch.function_of(f"shop.{name}") == "shop.x_price"


def test_so_does_a_method(shop: types.ModuleType) -> None:
    _, mutants = switch.KNOWN["shop.xǁCartǁtotal"]
    cart = shop.Cart()
    assert cart.total(1, 2) == 4

    switch.become(
        f"shop.{next(name for name in mutants if '__mutmut_' in name and change(f'shop.{name}')[-1] == '+ return sum(prices) - 1')}"
    )

    assert cart.total(1, 2) == 2
