"""Every command, found by walking the parser, met with what a newcomer does wrong: no traceback, a status that is not 0,
what and where it is, and what to do; nothing is made or changed."""

from __future__ import annotations

import shutil
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from penstock.adapters.postgres.store import PostgresStore
from penstock.adapters.sqlite.store import SqliteStore
from penstock.cli.main import main, tree
from support.cli import Tool
from support.postgres import Server

WAITING = "id: waiting\ntasks:\n  approve: {type: signal}\n"
APP = """from penstock import Context, activity, workflow

@activity
def nothing() -> None: ...

@workflow
async def something(ctx: Context) -> None: ...
"""
GIVEN = {
    "id": "w", "definition": "waiting", "name": "approve", "key": "approve", "payload": "true", "data": "{}", "value": "true",
    "values": "a=1", "token": "WyJvcmRlci03IiwxLCJwYXkiLDFd", "begin": "2026-01-01", "end": "2026-01-02",
    "before": "waiting@1", "after": "waiting@1", "folder": "kept", "app": "app.py", "to": "1", "by": "ann", "reason": "why",
}  # fmt: skip
"""What makes sense for each argument and each required option."""
FILES = {
    "rewrite": "waiting.yaml",
    "run": "waiting.yaml",
    "import": "runs.zst",
    "export": "out.zst",
    "backup": "copy.db",
}
MAKING = {"run", "serve", "import"}
"""They make the database that they are given."""


def walk(
    command: click.Command, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from walk(found, (*path, name))


ALL = dict(walk(tree))
LEAVES = {path: each for path, each in ALL.items() if not isinstance(each, click.Group)}
STORED = {path: each for path, each in LEAVES.items() if any(p.name == "url" for p in each.params)}


def given(path: tuple[str, ...], command: click.Command) -> list[str]:
    """The command with all that it takes, right as far as one can be without looking."""
    words = list(path)
    for each in command.params:
        assert each.name is not None
        if isinstance(each, click.Argument):
            if path == ("simulate",):
                words += ["app.py", "--seeds", "1"]
                continue
            if each.name == "files" and not each.required:
                continue  # it is about the database then
            if isinstance(each.type, click.Choice):
                words.append(each.type.choices[0])
            else:
                words.append(FILES[path[0]] if each.name == "file" else GIVEN[each.name])
        elif each.required:
            words += [each.opts[0], GIVEN[each.name]]
    return [*words, "--every", "1d"] if path == ("schedule", "create") else words


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a database, a run in it, what was exported from it, and an app."""
    folder = tmp_path_factory.mktemp("prepared")
    (folder / "waiting.yaml").write_text(WAITING)
    (folder / "app.py").write_text(APP)
    store = ("--store", f"sqlite:///{folder}/good.db")
    assert main(("start", str(folder / "waiting.yaml"), "--id", "w", *store)) == 0
    assert main(("export", str(folder / "runs.zst"), *store)) == 0
    return folder


@pytest.fixture
def tool(tool: Tool, prepared: Path, tmp_path: Path) -> Tool:
    shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
    return tool


def hurry(monkeypatch: pytest.MonkeyPatch, store: type, option: str) -> None:
    """A store that waits for a moment only."""
    defaults = store.__init__.__kwdefaults__
    assert option in defaults
    monkeypatch.setitem(defaults, option, 0.05)


def all_refuse(
    tool: Tool, url: str, *said: str, status: int = 4, but: set[str] | None = None
) -> None:
    for path, command in STORED.items():
        if path[0] not in (but or ()):
            told = tool(*given(path, command), "--store", url)
            assert told[0] == status, (path, told)
            assert told[1] == "", (path, told)
            for each in (*said, "hint: "):
                assert each in told[2], (path, told)


@pytest.mark.parametrize("path", ALL, ids=lambda path: " ".join(path) or "penstock")
def test_help_teaches_with_an_example(path: tuple[str, ...], tool: Tool) -> None:
    status, out, _ = tool(*path, "--help")
    assert status == 0
    assert "..." not in out.partition("\nCommands:")[2], "a list is cut"
    example = out if not path else out.partition("Example:\n")[2]
    assert f"  {' '.join(('penstock', *path))} " in example.replace("\n", " \n")
    for line in out.partition("\nOptions:\n")[2].splitlines():
        assert len(line) <= 100, line


@pytest.mark.parametrize("path", ALL, ids=lambda path: " ".join(path) or "penstock")
def test_an_option_that_does_not_exist(path: tuple[str, ...], tool: Tool) -> None:
    name = " ".join(("penstock", *path))
    status, _, err = tool(*path, "--nonsense")
    assert (status, f"{name} has no option `--nonsense`" in err, "hint: " in err) == (2, True, True)


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_an_argument_that_is_missing_or_too_many(path: tuple[str, ...], tool: Tool) -> None:
    command = LEAVES[path]
    needed = [p for p in command.params if p.required]
    if needed:
        status, _, err = tool(*path)
        assert (status, "error[usage]: missing " in err.lower()) == (2, True), err
        assert f"hint: {' '.join(('penstock', *path))}" in err
    if not any(p.nargs == -1 for p in command.params):
        surplus = [*given(path, command), "nonsense", "more"] if path != ("explain",) else [*path, "usage", "more"]  # fmt: skip
        status, _, err = tool(*surplus)
        assert (status, "error[usage]: " in err, "hint: " in err) == (2, True, True), err


def test_a_database_that_is_not_there(tool: Tool, tmp_path: Path) -> None:
    all_refuse(tool, "sqlite:///none.db", "there is no database none.db", but=MAKING)
    assert not (tmp_path / "none.db").exists()
    all_refuse(tool, "sqlite:///no/folder.db", but=MAKING)
    all_refuse(tool, "mysql://x", "is no store that we know", status=2)
    all_refuse(tool, "sqlite:", "names no file", status=2)
    for name in MAKING:
        words = given((name,), STORED[(name,)])
        if name == "import":
            words = [*words, "--take-open"]  # else the file is refused first
        assert "mkdir -p" in tool(*words, "--store", "sqlite:///no/folder.db")[2]


def test_a_database_that_is_none_of_ours(tool: Tool, tmp_path: Path) -> None:
    (tmp_path / "folder.db").mkdir()
    (tmp_path / "text.db").write_text("not a database, and long enough for its header\n" * 9)
    with sqlite3.connect(tmp_path / "other.db") as other:
        other.execute("CREATE TABLE mine (x)")
    shutil.copy(tmp_path / "good.db", tmp_path / "newer.db")
    with sqlite3.connect(tmp_path / "newer.db") as newer:
        newer.execute("PRAGMA user_version = 999")
    shutil.copy(tmp_path / "good.db", tmp_path / "cut.db")
    with (tmp_path / "cut.db").open("r+b") as cut:
        cut.truncate(5000)
    for file, said in (
        ("folder.db", "is a folder, not a database"),
        ("text.db", "is not a SQLite database"),
        ("other.db", "is a database of another application"),
        ("newer.db", "error[store-too-new]"),
        ("cut.db", "error[store-corrupt]"),
    ):
        before = (tmp_path / file).read_bytes() if file != "folder.db" else b""
        all_refuse(tool, f"sqlite:///{file}", str(tmp_path / file), said)
        assert file == "folder.db" or (tmp_path / file).read_bytes() == before


def test_a_database_that_is_locked(
    tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurry(monkeypatch, SqliteStore, "busy_seconds_max")
    lock = sqlite3.connect(tmp_path / "good.db", isolation_level=None)
    lock.execute("BEGIN EXCLUSIVE")
    try:
        for path, command in STORED.items():
            status, _, err = tool(*given(path, command), "--store", "sqlite:///good.db")
            if status == 4:
                assert "error[store-locked]" in err, (path, err)
                assert "hint: which other program" in err
            else:  # it only reads, or is refused by what it has read
                assert status in (0, 2, 3), (path, err)
        for path in (("run",), ("serve",), ("signal",), ("start",)):
            words = given(path, STORED[path])
            assert tool(*words, "--store", "sqlite:///good.db")[0] == 4
    finally:
        lock.close()


def test_a_server_that_is_away_is_named_while_it_is_waited_for() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # and does not listen
        url = f"postgresql://ann:s3cret@127.0.0.1:{held.getsockname()[1]}/shop"
        command = [sys.executable, "-m", "penstock", "list", "--store", url]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as child:
            assert child.stderr is not None
            line = child.stderr.readline()
            still_waits = child.poll() is None
            child.kill()
    assert still_waits
    assert line == f"waiting for {url.replace('s3cret', '***')}\n"


def test_a_postgres_address_that_is_wrong(tool: Tool, postgres: Server) -> None:
    at = f"postgresql://postgres:s3cret@127.0.0.1:{postgres.port}"
    all_refuse(tool, f"{at}/nope", 'database "nope" does not exist', "createdb nope")
    all_refuse(tool, f"{at.replace('postgres:s3cret', 'ann:s3cret')}/postgres", 'role "ann" does not exist', "user and password")  # fmt: skip
    all_refuse(tool, f"{at}/postgres?schema=A-b", "no name for a schema", status=2)
    all_refuse(tool, f"{at}/postgres?nonsense=1", "ours are schema and unsafe")
    all_refuse(tool, "postgresql://127.0.0.1:99999/x", "from 1 to 65535", status=2)


def test_a_postgres_server_that_is_not_there(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch, PostgresStore, "away_seconds_max")
    url = "postgresql://ann:s3cret@127.0.0.1:1/shop"
    all_refuse(tool, url, "127.0.0.1:1/shop", "is the server running")
    assert "s3cret" not in tool("list", "--store", url)[2]


def test_postgres_without_its_driver(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in sys.modules if each.startswith("penstock.adapters.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    all_refuse(
        tool, "postgresql://ann@db/shop", "the driver for PostgreSQL is not installed",
        "pip install 'penstock[postgres]'", status=3,
    )  # fmt: skip
