"""Writes the pages of this folder that follow from the code: settings, events, commands, errors (STYLE 5).

`make docs` runs it; `tests/docs/test_reference.py` fails while a page is not what it would write.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from penstock.cli.definitions import first_sentence
from penstock.cli.main import SECTIONS, tree
from penstock.engine import settings
from penstock.model import events, queue

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src" / "penstock"
COLUMNS = 100
NOTE = "Generated from the code by `make docs`; do not edit."

ENVIRONMENT = {
    "PENSTOCK_STORE": "The database of every command that takes `--store`.",
    "PENSTOCK_AUDIT_KEY": "`audit_key` of the engines that commands open.",
    "PENSTOCK_SECRET_NAME": "The value of `{secret: NAME}` for what `penstock run` and `serve` execute.",
    "PENSTOCK_DEBUG": "If set, commands show tracebacks and all that the engine logs.",
    "NO_COLOR": "If set, commands write no colours.",
    "FORCE_COLOR": "If set, commands write colours into pipes too.",
}
"""Read by the command line; the library reads none."""
URLS = (
    ("`sqlite:///shop.db`", "A file, beside which `-wal` and `-shm` appear; `sqlite:////var/lib/shop.db` is an absolute path."),
    ("`sqlite:///shop.db?thread=1`", "Commits happen in a thread, so that a slow disk does not hold up the event loop."),
    ("`postgresql://user:password@host:5432/database`", "Needs `pip install 'penstock[postgres]'`."),
    ("`…?schema=penstock`", "PostgreSQL: the schema that is ours; several engines side by side take one each."),
    ("`…?unsafe=1`", "PostgreSQL: takes a server that may lose commits (`fsync` or `synchronous_commit` off)."),
    ("`memory:`", "Ends with its process; for tests."),
)  # fmt: skip
COMMON = {
    "key": "The task.",
    "attempt": "Which try of it, from 1.",
    "by": "Who asked.",
    "reason": "Why.",
    "failure": "What went wrong, with its cause.",
    "logs": "What the attempt has logged.",
    "began": "When the attempt began.",
    "due": "When it is time.",
    "output": "The result.",
    "payload": "What was sent.",
    "progress": "What the activity has told of its progress, for its next attempt.",
    "generation": "The generation, from 1.",
    "run": "The id of the other run.",
    "worker": "The process that executes it.",
}
"""Fields that mean the same in every event."""


def pages() -> dict[str, str]:
    """All that is generated, by the name of the file."""
    return {
        "settings.md": settings_page(),
        "events.md": events_page(),
        "cli.md": cli_page(),
        "errors.md": errors_page(),
    }


def settings_page() -> str:
    meanings = _meanings_of_settings()
    rows: list[tuple[str, ...]] = []
    for each in inspect.signature(settings.Settings).parameters.values():
        variable = "PENSTOCK_AUDIT_KEY" if each.name == "audit_key" else ""
        rows.append((
            f"`{each.name}`", _type(each.annotation), _value(each.default), variable and f"`{variable}`",
            meanings[each.name],
        ))  # fmt: skip
    read = {
        f"{name}NAME" if name.endswith("_") else name
        for file in SOURCE.rglob("*.py")
        for name in re.findall(r"\bPENSTOCK_[A-Z_]+", file.read_text(encoding="utf-8"))
    }
    assert read <= ENVIRONMENT.keys(), read - ENVIRONMENT.keys()
    return _page(
        "Settings",
        "Limits of one engine: `penstock.open(url, settings=penstock.Settings(cache_runs=1000))`. What makes no sense is"
        " refused when they are made.",
        _table(("setting", "type", "default", "environment", "meaning"), rows),
        "## Stores",
        "The first argument of `penstock.open`, and `--store` of the commands:",
        _table(("URL", "meaning"), URLS),
        "## Queues",
        "What `Settings(queues={NAME: {…}})`, `engine.set_queue(NAME, …)` and `penstock queues NAME` take"
        " ([how](../howto/queues.md)); the last two hold while others work, and are kept in the database.",
        _table(("option", "type", "default", "meaning"), list(_fields(queue.QueueOptions, queue))),
        "## Environment",
        "Read by the command `penstock`, and by nothing else:",
        _table(("variable", "meaning"), [(f"`{k}`", v) for k, v in ENVIRONMENT.items()]),
    )


def _meanings_of_settings() -> dict[str, str]:
    """The text below the attribute that keeps a parameter."""
    source = ast.parse(inspect.getsource(settings.Settings))
    init = next(
        n for n in ast.walk(source) if isinstance(n, ast.FunctionDef) and n.name == "__init__"
    )
    names = {each.arg for each in init.args.kwonlyargs}
    found: dict[str, str] = {}
    for node, text in zip(init.body, init.body[1:], strict=False):
        if isinstance(node, ast.Assign) and _is_text(text):
            for each in ast.walk(node.value):
                if isinstance(each, ast.Name) and each.id in names:
                    found[each.id] = _text(text)
    return found


def events_page() -> str:
    envelope, *_ = events.EVENT_TYPES[0].__bases__
    parts = [
        "What can have happened to a run, as `run.history()`, `engine.on` and `penstock history --json` give it. An event is"
        " never changed and its meaning never either; a later version may add fields. Where a field has a default, JSON"
        " leaves it out while it has that value.",
        "Every event has `type` and",
        _table(("field", "type", "default", "meaning"), list(_fields(envelope, events))),
    ]
    for kind in sorted(events.EVENT_TYPES, key=_tag):
        assert kind.__doc__, f"{kind.__name__} says nothing"
        rows = [row for row in _fields(kind, events) if row[0].strip("`") in _own(kind)]
        parts += [f"## {_tag(kind)}", _text_of(kind.__doc__)]
        if rows:
            parts.append(_table(("field", "type", "default", "meaning"), rows))
    return _page("Events", *parts)


def _tag(kind: Any) -> str:
    return str(kind.__struct_config__.tag)


def _own(kind: Any) -> set[str]:
    return {*kind.__struct_fields__} - {*kind.__bases__[0].__struct_fields__}


def _fields(kind: Any, module: Any) -> Iterator[tuple[str, ...]]:
    """Each field of a Struct with its type, its default and the text below it."""
    tree_ = ast.parse(inspect.getsource(module))
    body = next(
        n for n in tree_.body if isinstance(n, ast.ClassDef) and n.name == kind.__name__
    ).body
    texts: dict[str, str] = {}
    for node, text in zip(body, [*body[1:], ast.Pass()], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name = node.target.id
            texts[name] = _text(text) if _is_text(text) else COMMON.get(name, "")
    kinds = {n.target.id: ast.unparse(n.annotation) for n in body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)}  # fmt: skip
    for each in msgspec.structs.fields(kind):
        if each.name in texts:
            made = each.default_factory
            empty = None if made is msgspec.NODEFAULT else made()
            default = each.default if made is msgspec.NODEFAULT else empty
            yield f"`{each.name}`", _type(kinds[each.name]), _value(default), texts[each.name]


def cli_page() -> str:
    parts = [
        "What `penstock --help` and `penstock COMMAND --help` print. Exit status: 0 done, 1 failed, 2 usage, 3 refused,"
        " 4 unreachable, 130 interrupted. Results go to stdout, all else to stderr.",
    ]
    root = _context(tree, "penstock", None)
    for section, commands in SECTIONS.items():
        parts.append(f"## {section}")
        for name in commands:
            for context in _contexts(tree.get_command(root, name), name, root):
                parts += [f"### {context.command_path}", f"```\n{context.get_help()}\n```"]
    return _page("Commands", *parts)


def _context(command: click.Command, name: str, parent: click.Context | None) -> click.Context:
    return click.Context(
        command, info_name=name, parent=parent, terminal_width=COLUMNS, max_content_width=COLUMNS,
        help_option_names=["-h", "--help"],
    )  # fmt: skip


def _contexts(
    command: click.Command | None, name: str, parent: click.Context
) -> Iterator[click.Context]:
    assert command is not None
    context = _context(command, name, parent)
    yield context
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            yield from _contexts(command.get_command(context, each), each, context)


def errors_page() -> str:
    rows = [
        (f"[{page.stem}](../errors/{page.name})", first_sentence(page.read_text(encoding="utf-8")))
        for page in sorted((HERE.parent / "errors").glob("*.md"))
    ]
    return _page(
        "Errors",
        "Every code that Penstock says: of errors and refusals (`error.code`), of failures inside a run (`failure.code`) and"
        " of findings of `penstock verify`. `penstock explain CODE` prints the page.",
        _table(("code", "meaning"), rows),
    )


# -- Markdown


def _page(title: str, *parts: str) -> str:
    return "\n\n".join((f"# {title}", NOTE, *parts)) + "\n"


def _table(heads: tuple[str, ...], rows: Any) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(
        f"| {' | '.join(str(cell) for cell in line)} |".replace("  |", " |") for line in lines
    )


def _type(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    text = text.replace("Raw", "JSON").replace("Any", "JSON").replace(" | ", " or ")
    return f"`{text}`"


def _value(default: Any) -> str:
    if default in (msgspec.NODEFAULT, inspect.Parameter.empty):
        return "required"
    if isinstance(default, msgspec.Raw):
        return f"`{bytes(default).decode()}`"
    return f"`{default!r}`"


def _is_text(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _text(node: Any) -> str:
    return _text_of(node.value.value)


def _text_of(text: str) -> str:
    text = re.sub(r" \(SPEC [^)]*\)", "", " ".join(text.split()))
    return text.replace("|", "\\|")


if __name__ == "__main__":
    for name, text in pages().items():
        (HERE / name).write_text(text, encoding="utf-8")
