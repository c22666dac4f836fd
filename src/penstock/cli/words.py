"""Which known word was probably meant."""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    from penstock.dsl.finding import did_you_mean as found  # late: only wrong words need it

    return found(word, known)
