"""`penstock verify`: a definition checked before anything runs, and its counterexamples run (SPEC 3)."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.definitions import (
    STDIN,
    SUFFIXES,
    examined_bytes,
    first_sentence,
    pages,
    read_bytes,
)
from penstock.cli.output import (
    COMPLETED,
    FAILED,
    Problem,
    coloured,
    give,
    give_json,
    paint,
    say,
    visible,
)
from penstock.cli.session import json_option

if TYPE_CHECKING:
    from penstock.dsl.finding import Finding
    from penstock.dsl.load import Loaded
    from penstock.ports.activities import Served
    from penstock.testing.acting import Performance
    from penstock.verify.scenario import Scenario
    from penstock.verify.verification import Proof, Signature


LEVELS = ("error", "warning", "note")


@dataclass
class Verified:
    """One file, and all that is to be said of it."""

    name: str
    """As it was given."""
    source: str
    text: str
    loaded: Loaded | None
    findings: list[Finding]
    proofs: list[Proof]

    def worst(self, *levels: str) -> bool:
        return any(finding.level in levels for finding in self.findings)


@click.command("verify")
@click.argument("files", nargs=-1, required=True, metavar="FILE|FOLDER|-...", type=click.Path())
@click.option(
    "--format",
    "format",
    type=click.Choice(["text", "json", "sarif", "svg"]),
    default="text",
    show_default=True,
    help="For people, for programs, for code hosts, or a picture with what was found marked.",
)
@click.option("-o", "--output", metavar="FILE", help="Write it there, not to stdout.")
@click.option(
    "--strict", is_flag=True, help="What could not be proved counts as well: exit status 1."
)
@click.option(
    "--run",
    "number",
    type=click.IntRange(min=1),
    metavar="N",
    help="Run counterexample N on an engine and show what happens.",
)
@click.option(
    "--app",
    metavar="FILE|MODULE[:ATTR]",
    help="Check too that its activities exist there and take what they are given.",
)
@json_option
def verify_command(
    files: tuple[str, ...], format: str, output: str | None, strict: bool, number: int | None, app: str | None,
    as_json: bool,
) -> int:  # fmt: skip
    """Check definitions before anything runs.

    \b
    Example:
      penstock verify order.yaml
      penstock verify order.yaml --run 1
      penstock verify definitions/ --strict
      render-order | penstock verify -
      penstock verify *.yaml --app shop.py --strict --format sarif -o penstock.sarif
      penstock verify order.yaml --format svg -o order.svg

    Of a folder, every YAML and JSON file in it and below that has `tasks` in it is checked; - is the standard input.

    An error is refuted: its counterexample is an input and outcomes of tasks with which it happens. A warning is
    unknown: neither proved nor refuted, and it says what stands in the way. A note is only worth knowing.

    \b
    Exit status, for CI:
      0  nothing is refuted (with --strict: everything is proved)
      1  something is refuted (with --strict: or unknown); with --run: it did not happen as said
      2  the command was not understood, or a file is not there
    """
    format = "json" if as_json else format
    files = tuple(dict.fromkeys(each for name in files for each in named(name)))
    if (number is not None or format == "svg") and len(files) > 1:
        what = "--run" if number is not None else "--format svg"
        raise Problem(
            "usage", f"{what} takes one file, not {len(files)}", hint=f"{what} {files[0]}"
        )
    served: dict[str, Served] | None = None
    signatures: dict[str, Signature] | None = None
    if app:
        from penstock.cli.app import load_app, served_by, signatures_by

        activities = load_app(app)
        served, signatures = served_by(activities), signatures_by(activities)
    found = [verified(name, served, app, signatures) for name in files]
    if number is not None:
        return _run(found[0], number, format)
    _report(found, format, output)
    levels = ("error", "warning") if strict else ("error",)
    return FAILED if any(each.worst(*levels) for each in found) else COMPLETED


def verified(
    name: str,
    served: dict[str, Served] | None,
    app: str | None,
    signatures: dict[str, Signature] | None,
) -> Verified:
    """A file with everything that can be said of it."""
    from penstock.dsl.finding import in_order
    from penstock.verify.verification import Proof, verify

    data = read_bytes(name)
    text = data.decode("utf-8", errors="replace")
    each = examined_bytes(name, data, served, app)
    if each.loaded is None or each.errors:
        many = f"{len(each.errors)} mistake{'s' if len(each.errors) != 1 else ''}"
        proof = Proof("3.1", "refuted", f"{many}; the other rules wait until they are mended")
        return Verified(name, each.source, text, each.loaded, each.findings, [proof])
    verification = verify(each.loaded, activities=signatures, structure=[])
    known = [finding for finding in verification.findings if finding not in each.findings]
    # What must be mended first; in each level as it stands in the text.
    findings = sorted(in_order([*each.findings, *known]), key=lambda f: LEVELS.index(f.level))
    return Verified(name, each.source, text, each.loaded, findings, verification.proofs)


def named(name: str) -> list[str]:
    """The file itself; of a folder the definitions in it and below."""
    folder = Path(name)
    if name == STDIN or not folder.is_dir():
        return [name]
    found: list[str] = []
    others = 0
    for path in sorted(folder.rglob("*")):
        if path.suffix not in SUFFIXES or not path.is_file():
            continue
        if any(part.startswith(".") for part in path.relative_to(folder).parts):
            continue
        if _TASKS.search(read_bytes(str(path))):
            found.append(str(path))
        else:
            others += 1
    if not found:
        raise Problem(
            "usage", f"there is no definition in {name}",
            hint="a definition is a YAML or JSON file with `tasks` in it",
        )  # fmt: skip
    if others:
        say(f"{name}: {others} file{'s' if others != 1 else ''} without `tasks` left out")
    return found


_TASKS = re.compile(rb"""\btasks["']?\s*:""")


# --- what is said ------------------------------------------------------------------------------------------------


def _report(found: list[Verified], format: str, output: str | None) -> None:
    match format:
        case "json":
            _machine(_json(found), output)
        case "sarif":
            _machine(_sarif(found), output)
        case "svg":
            _text(_svg(found[0]), output)
        case _:
            _people(found, output)


def _people(found: list[Verified], output: str | None) -> None:
    from penstock.verify.report import render, render_proofs, summary

    colour = coloured(sys.stdout) and not output
    parts: list[str] = []
    for each in found:
        if each.findings:
            replay = f"penstock verify {quote(each.name)} --run"
            parts.append(render(each.findings, each.text, colour=colour, replay=replay))
        proofs = render_proofs(each.proofs, colour=colour)
        parts.append(f"{visible(each.source)}\n{_indented(proofs)}\n")
    _text("\n".join(parts).rstrip("\n"), output)
    for each in found:
        size = ""
        if each.loaded is not None and not each.worst("error"):
            definition = each.loaded.definition
            written = [t for t in definition.tasks.values() if t.type not in ("start", "end")]
            size = f": {len(written)} task{'s' if len(written) != 1 else ''}"
        say(f"{each.source}{size}: {summary(each.findings)}")
    codes = list(dict.fromkeys(finding.code for each in found for finding in each.findings))
    if codes:
        say(f"{paint('next', 'hint')}: penstock explain {codes[0]}")
        for code in codes[1:]:
            say(f"      penstock explain {code}")


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


def _json(found: list[Verified]) -> dict[str, Any]:
    from penstock.verify.report import as_data, proof_data, shown

    findings: list[dict[str, Any]] = []
    for each in found:
        numbers = {id(finding): n for n, finding in enumerate(shown(each.findings), 1)}
        findings += [
            {**as_data(finding), "number": numbers.get(id(finding))} for finding in each.findings
        ]
    proofs = [{"source": each.source, **proof_data(p)} for each in found for p in each.proofs]
    return {"findings": findings, "proofs": proofs}


def _sarif(found: list[Verified]) -> dict[str, Any]:
    from importlib.metadata import version

    from penstock.verify.sarif import sarif

    def page(code: str) -> str:
        file = pages() / f"{code}.md"
        return file.read_text(encoding="utf-8") if file.is_file() else ""

    def explain(code: str) -> str:
        return first_sentence(page(code)) if page(code) else ""

    findings = [finding for each in found for finding in each.findings]
    proofs = {each.source: each.proofs for each in found}
    return sarif(findings, proofs, version=version("penstock"), explain=explain, page=page)


def _svg(each: Verified) -> str:
    if each.loaded is None:
        from penstock.verify.report import render

        say(render(each.findings, each.text, colour=coloured(sys.stderr)))
        raise Problem(
            "usage", f"{each.source} cannot be drawn: nothing could be read of it", status=FAILED,
            hint=f"mend what is said above first: penstock verify {quote(each.name)}",
        )  # fmt: skip
    from penstock.cli.picture import svg

    return svg(each.loaded.definition, each.findings).rstrip("\n")


def _machine(data: dict[str, Any], output: str | None) -> None:
    if output is None:
        give_json(data)
        return
    import msgspec

    text = msgspec.json.format(msgspec.json.encode(data), indent=2).decode()
    _text(text, output)


def _text(text: str, output: str | None) -> None:
    if output is None:
        give(text)
        return
    try:
        Path(output).write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise Problem(
            "usage", f"{output} cannot be written: {error.strerror}", hint="-o FILE names another"
        ) from None


# --- a counterexample on an engine -------------------------------------------------------------------------------


def _run(each: Verified, number: int, format: str) -> int:
    from penstock.verify.report import render, shown

    examples = shown(each.findings)
    if each.loaded is None or number > len(examples):
        have = f"it has {len(examples)}" if examples else "it has none"
        hint = f"penstock verify {quote(each.name)} shows what was found"
        raise Problem("usage", f"{each.source} has no counterexample {number}: {have}", hint=hint)
    if format not in ("text", "json"):
        raise Problem("usage", f"--run shows text or json, not {format}", hint="leave --format out")
    finding = examples[number - 1]
    performance = _acted(each.loaded, finding.counterexample)
    if format == "json":
        from penstock.cli.playing import played_json

        give_json(played_json(performance))
    else:
        from penstock.cli.playing import played

        give(render([finding], each.text, colour=coloured(sys.stdout), first=number))
        for line in played(each.loaded, finding.counterexample, performance):
            give(line)
    return COMPLETED if performance.seen.shown else FAILED


def _acted(loaded: Loaded, scenario: Scenario) -> Performance:
    import asyncio

    from penstock.cli.voice import heard
    from penstock.testing.acting import act

    with heard():
        return asyncio.run(act(loaded, scenario))
