"""What a simulation shares with the process around it: chance, which is taken from the seed, and what is logged."""

from __future__ import annotations

import logging
import random
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from traceback import format_exception

from penstock.errors import PenstockError
from penstock.testing.judging import Judge

GRAVE = ("run.turn_failed", "run.unreadable", "run.unfit", "engine.broken", "report.failed")
"""What the engine says of itself only when something is wrong with it."""


@contextmanager
def sealed(seed: int) -> Generator[None]:
    """Names and chances that are made up on the way come from the seed, too."""
    chance, real, state = random.Random(f"{seed}/names"), uuid.uuid4, random.getstate()
    random.seed(f"{seed}/chance")
    uuid.uuid4 = lambda: uuid.UUID(int=chance.getrandbits(128), version=4)  # type: ignore[assignment]
    try:
        yield
    finally:
        uuid.uuid4 = real
        random.setstate(state)


class Ear(logging.Handler):
    """What the engine says when something is wrong with it."""

    def __init__(self, judge: Judge) -> None:
        super().__init__(logging.ERROR)
        self._judge = judge

    def emit(self, record: logging.LogRecord) -> None:
        text, error = record.getMessage(), record.exc_info[1] if record.exc_info else None
        told = "" if error is None else "".join(format_exception(error))
        if text in GRAVE:
            said = (str(record.__dict__.get(name, "")) for name in ("run", "error"))
            self._judge.note(f"{text}: {' '.join(said)} {told}")
        elif error is not None and not isinstance(error, PenstockError):
            self._judge.note(f"{text}: {told}")


@contextmanager
def heard_by(judge: Judge) -> Generator[None]:
    """The judge hears what the engine has to say, and nobody else does."""
    logger, ear = logging.getLogger("penstock"), Ear(judge)
    before = logger.propagate, logger.level
    logger.addHandler(ear)
    logger.propagate = False
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.removeHandler(ear)
        logger.propagate, level = before
        logger.setLevel(level)
