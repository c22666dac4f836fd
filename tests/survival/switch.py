"""What stands where mutmut's trampoline stood: one function becomes one of its mutants, in place, and nothing else is slower.

mutmut writes each function of a file once as it is and once a mutant, and a decorator that chooses at every call. Here every mutant is tried
in a process of its own, so the choice is made once: the function gets the code of its mutant.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

KNOWN: dict[str, tuple[FunctionType, dict[str, Any]]] = {}
"""By `module.x_function`, as mutmut names it: the function, and its mutants by their names."""
CODES: dict[CodeType, str] = {}
"""Which function runs this code."""
MutantDict = dict


def mutated(mutants: dict[str, Any], is_classmethod: bool = False) -> Callable[[Any], Any]:
    def known(function: Any) -> Any:
        name = function.__qualname__.split(".")
        mangled = f"xǁ{name[0]}ǁ{name[1]}" if len(name) == 2 else f"x_{name[0]}"
        KNOWN[f"{function.__module__}.{mangled}"] = (function, mutants)
        CODES[function.__code__] = f"{function.__module__}.{mangled}"
        return function

    return known


def function_of(mutant: str) -> str:
    return mutant.rpartition("__mutmut_")[0]


def become(mutant: str) -> None:
    """From now on, in this process, its function is this mutant."""
    function, mutants = KNOWN[function_of(mutant)]
    other = mutants[mutant.rpartition(".")[2]]
    function.__code__ = other.__code__
    function.__defaults__ = other.__defaults__
    function.__kwdefaults__ = other.__kwdefaults__
