"""`penstock simulate`: an application's workflows under seeded crashes, delays and duplicates (SPEC 13, 15)."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from functools import partial
from itertools import count
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.output import (
    COMPLETED,
    FAILED,
    INTERRUPTED,
    USAGE,
    Problem,
    complain_of_definition,
    give,
    give_json,
    paint,
    say,
    visible,
)
from penstock.cli.session import json_option
from penstock.errors import DefinitionInvalid, Rejected

if TYPE_CHECKING:
    from penstock.testing.reporting import Report
    from penstock.testing.studies import Study

TELL_SECONDS = 0.2
STANDARD = 1000
ALONE_MAX = 100
"""So few seeds are not worth another process."""
CODES = (
    "undo-missing", "timeout-unmet", "order-dependent", "effect-repeated", "world-broken", "workflow-error", "run-stuck",
)  # fmt: skip
"""What --ignore takes."""


@click.command("simulate")
@click.argument("files", nargs=-1, required=True, metavar="APP|FILE...", type=click.Path())
@click.option(
    "--seeds", type=click.IntRange(1), metavar="N",
    help=f"How many; {STANDARD:,} unless --seconds says how long.",
)  # fmt: skip
@click.option(
    "--from", "first", type=click.IntRange(0), default=0, metavar="SEED", help="The first seed."
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    metavar="SEED",
    help="Play this one alone: what it shows again.",
)
@click.option("--seconds", type=click.FloatRange(0.1), metavar="S", help="Stop after so long.")
@click.option(
    "--jobs", type=click.IntRange(1, 256), metavar="N", help="Processes; else one a core."
)
@click.option(
    "--workflow",
    "names",
    multiple=True,
    metavar="NAME",
    help="Start only this one; may be repeated.",
)
@click.option(
    "-i", "--input", "inputs", multiple=True, metavar="JSON|@FILE|K=V",
    help="Start runs with this; else inputs are drawn from types.",
)  # fmt: skip
@click.option(
    "--faults", type=click.Choice(["none", "mild", "rough"]), default="rough", show_default=True,
    help="How much breaks.",
)  # fmt: skip
@click.option(
    "--ignore",
    multiple=True,
    metavar="CODE[:WORKFLOW]",
    help="Do not report this; may be repeated.",
)
@json_option
def simulate_command(
    files: tuple[str, ...], seeds: int | None, first: int, seed: int | None, seconds: float | None, jobs: int | None,
    names: tuple[str, ...], inputs: tuple[str, ...], faults: str, ignore: tuple[str, ...], as_json: bool,
) -> int:  # fmt: skip
    """Play workflows under crashes, delays and duplicates.

    \b
    Example:
      penstock simulate shop.py
      penstock simulate shop.py --seeds 5000 --workflow order
      penstock simulate shop.py --seed 4711
      penstock simulate shop.py refunds.yaml -i '{"payment": "p-1"}' --json

    Takes Python files (their workflows, composed definitions, activities and a World) and definitions. The real engine runs
    them in simulated time; activities are stubs drawn from their types, unless they are marked `simulate=True` or a World says
    what they do. A seed says what breaks, and always gives the same histories.

    \b
    Exit status, for CI:
      0  no mistake was found (notes may have been)
      1  a mistake was found
      2  the application or the command was not understood
    """
    from penstock.cli.inputs import parse_inputs

    _check_ignored(ignore)
    if seed is not None and (seeds is not None or seconds is not None):
        raise Problem("usage", "--seed plays one seed; it takes neither --seeds nor --seconds")
    given = (parse_inputs(inputs),) if inputs else ()
    request = Request(files, names, given, faults)
    # As it was asked for, to be pasted.
    again = _again(files, names, inputs, faults)
    try:
        report = _played(
            request,
            seeds,
            first,
            seed,
            seconds,
            jobs,
            ignore,
            again,
            as_json,
        )
    except DefinitionInvalid as error:
        complain_of_definition(error, "nothing was simulated")
        return USAGE
    except Rejected as error:
        raise Problem(error.code, error.message, hint=error.hint) from None
    if as_json:
        give_json(report.as_json())
    else:
        _tell(report, seed)
    if report.interrupted:
        return INTERRUPTED
    return FAILED if report.errors else COMPLETED


@dataclass(frozen=True)
class Request:
    """What is simulated: sent to each process, which reads the files itself."""

    files: tuple[str, ...]
    names: tuple[str, ...]
    given: tuple[Any, ...]
    faults: str


def study_of(request: Request, place: str) -> Study:
    """The application, read and ready to be played."""
    from penstock.cli.app import load_modules
    from penstock.cli.definitions import looks_like_file, read_definition
    from penstock.testing.apps import DRAWN, App
    from penstock.testing.studies import Study

    things: list[Any] = []
    for name in request.files:
        if looks_like_file(name) and not name.endswith(".py"):
            things.append(read_definition(name))
        else:
            things.append(load_modules(name))
    given = request.given[0] if request.given else DRAWN
    try:
        app = App(things, only=request.names, input=given)
    except Rejected as error:
        if error.code == "app-empty":
            raise Rejected(
                "app-empty", f"{', '.join(request.files)}: {error.message}", hint=error.hint
            ) from None
        raise
    return Study(app, level=request.faults, folder=place)


def _played(
    request: Request, seeds: int | None, first: int, seed: int | None, seconds: float | None, jobs: int | None,
    ignore: tuple[str, ...], again: str, as_json: bool,
) -> Report:  # fmt: skip
    from penstock.testing.simulating import Campaign, folder

    with folder() as place:
        number = seeds if seeds is not None else None if seconds is not None else STANDARD
        few = seed is not None or (number is not None and number <= ALONE_MAX)
        campaign = Campaign(
            partial(study_of, request),
            place,
            jobs=jobs or (1 if few else os.cpu_count() or 1),
            ignore=ignore,
            replay=again,
        )
        if seed is not None:
            return campaign.run([seed])
        wanted = count(first) if number is None else range(first, first + number)
        progress = None if as_json else Progress(number, seconds)
        try:
            return campaign.run(wanted, seconds=seconds, progress=progress)
        finally:
            if progress is not None:
                progress.clear()


class Progress:
    """One line on a terminal, overwritten; nothing anywhere else."""

    def __init__(self, seeds: int | None, seconds: float | None) -> None:
        self._seeds, self._seconds = seeds, seconds
        self._began = self._told = time.monotonic()
        self._shown = False
        self._live = sys.stderr.isatty()

    def __call__(self, played: int, found: int) -> None:
        now = time.monotonic()
        if not self._live or now < self._told + TELL_SECONDS:
            return
        self._told = now
        rate = played / max(now - self._began, 0.001)
        left = self._left(played, rate, now)
        of = "" if self._seeds is None else f" of {self._seeds:,}"
        mistakes = paint(f"{found} found", "failed" if found else "completed")
        self._shown = True
        print(
            f"\r\x1b[2K{played:,}{of} seeds, {rate:,.0f} a second{left}, {mistakes}",
            end="", file=sys.stderr, flush=True,
        )  # fmt: skip

    def _left(self, played: int, rate: float, now: float) -> str:
        lefts: list[float] = []
        if self._seeds is not None and rate:
            lefts.append((self._seeds - played) / rate)
        if self._seconds is not None:
            lefts.append(self._began + self._seconds - now)
        return f", {max(0.0, min(lefts)):.0f} s left" if lefts else ""

    def clear(self) -> None:
        if self._shown:
            print("\r\x1b[2K", end="", file=sys.stderr, flush=True)
            self._shown = False


def _tell(report: Report, seed: int | None) -> None:
    from penstock.testing.reporting import told

    out = sys.stdout

    def painted(text: str, style: str) -> str:
        return paint(visible(text), style, out)

    for line in report.lines(painted):
        give(line)
    if not report.problems and report.timeline:
        for line in told(report.timeline, painted):
            give(line)
        give("")
    for line in report.happened(painted):
        give(line)
    give("")
    if seed is not None:
        give(
            f"history {report.digests.get(seed, '')} (SHA-256 of all events; the same whenever it is played)"
        )
    style = "failed" if report.errors else "completed"
    stopped = " (interrupted)" if report.interrupted else ""
    give(paint(report.summary() + stopped, style, out))
    codes = dict.fromkeys(each.finding.code for each in report.errors)
    if codes:
        say(f"{paint('hint', 'hint')}: {'; '.join(f'penstock explain {code}' for code in codes)}")


def _again(
    files: tuple[str, ...], names: tuple[str, ...], inputs: tuple[str, ...], faults: str
) -> str:
    words = ["penstock", "simulate", *files]
    for name in names:
        words += ["--workflow", name]
    for given in inputs:
        words += ["-i", given]
    if faults != "rough":
        words += ["--faults", faults]
    return " ".join(quote(word) for word in words)


def _check_ignored(ignore: tuple[str, ...]) -> None:
    from penstock.cli.words import did_you_mean

    for each in ignore:
        code = each.partition(":")[0]
        if code not in CODES:
            raise Problem(
                "usage", f"`{code}` is nothing that a simulation finds", place="--ignore",
                hint=did_you_mean(code, CODES) or ", ".join(CODES),
            )  # fmt: skip
