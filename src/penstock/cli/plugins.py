"""`plugins`: what installed packages add to definitions, and what is wrong with those that cannot be used (SPEC 2.2)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

import click
import msgspec

from penstock.cli.output import (
    COMPLETED,
    FAILED,
    REFUSED,
    Problem,
    give,
    give_json,
    paint,
    say,
    table,
)
from penstock.cli.session import json_option
from penstock.cli.words import did_you_mean

if TYPE_CHECKING:
    from penstock.core.vocabulary import AddedType
    from penstock.ports.plugins import Extension, Plugins, TaskType

OK = "ready"


@click.command("plugins")
@click.argument("name", required=False)
@json_option
def plugins_command(name: str | None, as_json: bool) -> int:
    """List the task types and languages that plugins add, or show one.

    A plugin is a Python package; `pip install` it where definitions are verified and where their runs are executed. It
    is imported when a definition first mentions what it adds, and by this command, which tries every one: exit status 1
    if one cannot be used.

    \b
    Example:
      penstock plugins
      penstock plugins slug         what such a task takes and gives
      penstock plugins --json

    \b
    In a definition:
      tasks:
        name: {type: slug, text: "${input.title}"}
      links:
        - {from: name, to: publish, condition: {language: words, expression: input.n above 3}}

    docs/howto/plugins.md shows how to write one.
    """
    from penstock.wiring import installed_plugins

    plugins = installed_plugins()
    found = plugins.list()
    if name is not None:
        return _one(plugins, [each for each in found if each.name == name], name, found, as_json)
    if as_json:
        give_json([_plain(each) for each in found])
    elif found:
        _show(found)
    else:
        say("no plugins are installed here; `pip install` one, or write it: docs/howto/plugins.md")
    return FAILED if any(each.fault for each in found) else COMPLETED


def _show(found: list[Extension]) -> None:
    rows = [
        (each.name, each.kind, each.package, each.version, "fault" if each.fault else OK, each.summary)
        for each in found
    ]  # fmt: skip
    table(("NAME", "ADDS A", "PACKAGE", "VERSION", "STATE", ""), rows)
    for each in found:
        if each.fault:
            say(f"{paint('fault', 'failed')}: {each.kind} `{each.name}`: {each.fault}")


def _one(
    plugins: Plugins, chosen: list[Extension], name: str, found: list[Extension], as_json: bool
) -> int:
    if not chosen:
        known = [each.name for each in found]
        raise Problem(
            "usage", f"no plugin here has a type or a language `{name}`", status=REFUSED,
            hint=did_you_mean(name, known) or "penstock plugins lists what there is",
        )  # fmt: skip
    if as_json:
        give_json([_plain(each) | _details(plugins, each) for each in chosen])
    else:
        for each in chosen:
            for line in _told(plugins, each):
                give(line)
    return FAILED if any(each.fault for each in chosen) else COMPLETED


def _plain(each: Extension) -> dict[str, Any]:
    return {
        "kind": each.kind, "name": each.name, "package": each.package, "version": each.version,
        "target": each.target, "summary": each.summary, "state": "fault" if each.fault else OK, "fault": each.fault,
    }  # fmt: skip


def _described(plugins: Plugins, each: Extension) -> tuple[AddedType, type[TaskType]] | None:
    from penstock.core.vocabulary import Mentioned

    if each.kind != "type" or each.fault:
        return None
    added = plugins.added(Mentioned(frozenset({each.name}))).types[each.name]
    kind = plugins.executor(each.name)
    assert kind is not None
    return added, kind


def _details(plugins: Plugins, each: Extension) -> dict[str, Any]:
    found = _described(plugins, each)
    if found is None:
        return {}
    added, kind = found
    return {
        "config": added.config, "inputs": added.inputs, "output": added.output, "once": kind.once,
        "retry": kind.retry, "timeout": kind.timeout, "heartbeat": kind.heartbeat,
    }  # fmt: skip


def _told(plugins: Plugins, each: Extension) -> Iterator[str]:
    origin = f"{each.package} {each.version}, {each.target}" if each.package else each.target
    yield f"{each.kind} {each.name}  ({origin})"
    if each.summary:
        yield f"  {each.summary}"
    if each.fault:
        yield f"  cannot be used: {each.fault}"
        return
    found = _described(plugins, each)
    if found is None:
        yield f"  in a definition: condition: {{language: {each.name}, expression: …}}"
        return
    added, kind = found
    for word, schema in (("config", added.config), ("inputs", added.inputs)):
        yield from _fields(word, schema)
    if added.output is not None:
        yield f"  output: {_shown(added.output)}"
    limits = [
        f"{word} {value:g} s"
        for word, value in (("timeout", kind.timeout), ("heartbeat", kind.heartbeat))
        if value is not None
    ]
    if kind.retry is not None:
        limits.append(f"{kind.retry.attempts} attempts")
    if kind.once:
        limits.append("never begun twice")
    if limits:
        yield f"  unless the task says otherwise: {', '.join(limits)}"


def _fields(word: str, schema: Any) -> Iterator[str]:
    from penstock.core.vocabulary import fields_of
    from penstock.verify.samples import resolve

    rules = resolve(schema, schema)
    names = fields_of(schema)
    if not names or not isinstance(rules, dict):
        return
    known = cast("dict[str, Any]", rules)
    required = set(known.get("required", ()))
    yield f"  {word}:"
    width = max(len(name) for name in names)
    for name in names:
        need = "" if name in required else " (may be left out)"
        yield f"    {name:<{width}}  {_shown(known['properties'][name])}{need}"


def _shown(schema: Any) -> str:
    text = msgspec.json.encode(schema).decode()
    return text if len(text) <= 100 else f"{text[:99]}…"
