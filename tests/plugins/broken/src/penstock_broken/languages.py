"""Languages that cannot be spoken."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.plugin import Language, Program


class Mute(Language):
    """Says nothing."""


class Gibberish(Language):
    """Goes wrong as its text says."""

    def compile(self, text: str) -> Program:
        match text:
            case "raise":
                raise ZeroDivisionError("of a sentence")
            case "exit":
                raise SystemExit("that was all")
            case "nothing":
                return None  # type: ignore
            case "everything":
                return Program(["tasks"], lambda values: True)
            case "empty":
                return Program([()], lambda values: True)
            case _:
                return Program(["input.n"], lambda values: self._evaluate(text, values))

    def _evaluate(self, text: str, values: Mapping[str, Any]) -> Any:
        if text == "later":
            raise ZeroDivisionError("of a value")
        if text == "leave":
            raise SystemExit("that was all")
        if text == "change":
            values["input"]["n"].append(9)
        return "perhaps" if text == "perhaps" else True
