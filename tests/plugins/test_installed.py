"""Plugins installed for real, with pip, and found by their entry points (SPEC 2.2): used, broken, killed, missing."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import DefinitionInvalid, RunFailed
from penstock.cli.main import main

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parents[1] / "src"
POST = """\
id: post
inputSchema:
  type: object
  properties: {title: {type: string}}
  required: [title]
  additionalProperties: false
tasks:
  name: {type: slug, text: "${input.title}"}
  pick: {type: gateway, kind: exclusive, default: short, after: name}
  short: {type: note, file: FOLDER/short.txt, line: "${tasks.name.output.slug}"}
  long: {type: note, file: FOLDER/long.txt, line: long, fails: 1}
links:
  - {from: pick, to: long, condition: {language: words, expression: tasks.name.output.length above 5}}
  - {from: pick, to: short}
"""
SLOW = """\
id: slow
tasks:
  go: {type: signal}
  write: {type: note, after: go, file: FOLDER/slow.txt, line: slow, seconds: SECONDS}
"""
Use = Callable[..., None]


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Each package in a folder of its own, as `pip install --target` leaves it."""
    found = {name: tmp_path_factory.mktemp(name) for name in ("sample", "broken")}
    running = [
        subprocess.Popen(
            [
                *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
                *("--no-index", "--no-deps", "--no-build-isolation", "--no-compile"),
                *("--target", str(folder), str(HERE / name)),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for name, folder in found.items()
    ]
    for each in running:
        told = each.communicate(timeout=120)[0]
        assert each.returncode == 0, told
    return found


@pytest.fixture
def use(installed: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[Use]:
    """Makes packages importable in this process, until the test is over."""

    def prepend(*names: str) -> None:
        for name in names:
            monkeypatch.syspath_prepend(str(installed[name]))

    yield prepend
    for name in [each for each in sys.modules if each.startswith(("penstock_sample", "penstock_broken"))]:  # fmt: skip
        del sys.modules[name]


def written(folder: Path, text: str, **more: Any) -> Path:
    file = folder / "definition.yaml"
    text = text.replace("FOLDER", str(folder))
    for name, value in more.items():
        text = text.replace(name, str(value))
    file.write_text(text)
    return file


def python(code: str, *folders: Path, **options: Any) -> subprocess.Popen[str]:
    paths = os.pathsep.join(str(each) for each in (SOURCE, *folders))
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, "PYTHONPATH": paths},
        text=True,
        **options,
    )


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


async def test_a_definition_runs_retries_and_fails_with_what_a_plugin_adds(
    use: Use, tmp_path: Path
) -> None:
    use("sample")
    async with penstock.open("memory:") as engine:
        registered = await engine.register(written(tmp_path, POST))
        assert {each.level for each in registered.findings} == {"warning"}
        assert "penstock_sample" in sys.modules
        run = await engine.start("post", {"title": "Hello, World"})
        assert await run.result() == {"long": 2}
        events = [each.type for each in await run.history()]
        assert events.count("task_retried") == 1
        assert await (await engine.start("post", {"title": "Hi!"})).result() == {"short": 1}
        with pytest.raises(RunFailed) as caught:
            await (await engine.start("post", {"title": "?"})).result()
        assert caught.value.failure.code == "slug-empty"
        assert len(lines(tmp_path / "long.txt")) == 2  # nothing is closed yet
    first, second, closed = lines(tmp_path / "long.txt")
    assert (first.split()[0], second.split()[0], closed) == ("1", "2", "closed")
    assert first.split()[1] == second.split()[1]  # the idempotency key


async def test_an_executor_waits_in_the_loop_beats_and_is_cancelled(
    use: Use, tmp_path: Path
) -> None:
    use("sample")
    text = "id: w\ntasks:\n  a: {type: wait-for-file, path: FOLDER/there, timeout: {heartbeat: 2s}}"
    async with penstock.open("memory:") as engine:
        await engine.register(written(tmp_path, text))
        run, other = await engine.start("w"), await engine.start("w")
        await asyncio.sleep(0.15)
        await other.cancel()
        with pytest.raises(RunFailed, match="CANCELLED"):
            await other.result()
        (tmp_path / "there").write_text("12345")
        assert await run.result() == 5


def test_nothing_is_imported_that_no_definition_mentions(installed: dict[str, Path]) -> None:
    code = """
    import asyncio, json, sys, time
    begun = time.perf_counter()
    import penstock, penstock.cli.main
    took = time.perf_counter() - begun
    async def work():
        async with penstock.open("memory:") as engine:
            await engine.register({"id": "a", "tasks": {"a": {"type": "transform", "set": {"n": "1"}}}})
            await (await engine.start("a")).result()
            plain = [name for name in sys.modules if name.startswith("penstock_")]
            await engine.register({"id": "b", "tasks": {"a": {"type": "slug", "text": "x"}}})
            return plain, [name for name in sys.modules if name.startswith("penstock_")]
    print(json.dumps([*asyncio.run(work()), took]))
    """
    done = python(code, installed["sample"], stdout=subprocess.PIPE)
    plain, mentioned, _ = json.loads(done.communicate(timeout=60)[0])

    assert plain == []
    assert mentioned == ["penstock_sample", "penstock_sample.types"]  # and not its language


def test_verify_finds_what_is_wrong_with_a_plugins_config(
    use: Use, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    use("sample")
    file = written(
        tmp_path,
        """\
id: post
tasks:
  name:
    type: slug
    text: A title
    separator: xx
  note: {type: note, file: a.txt, after: name}
  last:
    type: slug
    txt: A title
    after:
      from: note
      when: {language: words, expression: tasks.name.output.length over 5}
""",
    )
    assert main(["verify", str(file)]) == 1
    told = capsys.readouterr().out

    assert "error[plugin-check]: letters run into each other" in told
    assert f"{file}:6:16" in told
    assert "error[field-missing]: `note` needs `line` (type `note`)" in told
    assert "error[unknown-field]: no field `txt` in a task of type slug" in told
    assert "did you mean `text`?" in told
    assert "`over` is no word of this language" in told
    assert f"{file}:13:68" in told
    assert "hint: is, above, below, begins" in told


def test_simulate_plays_definitions_with_types_of_plugins_and_executes_none(
    use: Use, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It said that the engine was broken: nobody served the type, or the definition could not be compiled."""
    use("sample")
    file = written(tmp_path, POST)
    assert main(["simulate", str(file), "--seeds", "24"]) == 0
    assert "no mistake found" in capsys.readouterr().out
    assert not list(tmp_path.glob("*.txt"))


def test_plugins_lists_what_there_is_and_what_is_wrong_with_it(
    use: Use, capsys: pytest.CaptureFixture[str]
) -> None:
    use("sample")
    assert main(["plugins"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0].split() == ["NAME", "ADDS", "A", "PACKAGE", "VERSION", "STATE"]
    assert "slug" in told[2]
    assert "penstock-sample" in told[2]
    assert "Make a title fit for an address." in told[2]
    assert main(["plugins", "slug"]) == 0
    assert "separator" in capsys.readouterr().out

    use("broken")
    assert main(["plugins", "--json"]) == 1
    found = {(each["kind"], each["name"]): each for each in json.loads(capsys.readouterr().out)}
    faults = {name: each["fault"] for (_, name), each in found.items() if each["state"] == "fault"}
    for name, words in {
        "absent": "No module named 'penstock_broken.absent'",
        "exits": "SystemExit: no licence",
        "fails": "No module named 'a_module_that_nobody_has'",
        "http": "the name `http`, which is our own",
        "lazy": "has no `execute`",
        "mis shapen": "can be no name",
        "needy": "cannot be made without arguments",
        "number": "is 7, and no class",
        "schemaless": "has a wrong `config`",
        "unhurried": "`timeout = -1`",
        "cel": "the name `cel`, which is our own",
        "mute": "has no `compile`",
    }.items():
        assert "penstock-broken 0.1" in faults[name]
        assert words in faults.pop(name)
    both = faults.pop("slug")
    assert "penstock-broken 0.1 (penstock_broken.types:Good)" in both
    assert "penstock-sample 1.2 (penstock_sample.types:Slug)" in both
    assert faults == {}
    assert found["type", "note"]["state"] == "ready"


async def test_a_broken_plugin_harms_nobody_but_who_mentions_it(use: Use, tmp_path: Path) -> None:
    use("sample", "broken")
    async with penstock.open("memory:") as engine:
        for name, words in (
            ("slug", "both penstock-"),
            ("exits", "no licence"),
            ("http2", "called"),
        ):
            with pytest.raises(DefinitionInvalid, match=words):
                await engine.register({"id": "x", "tasks": {"a": {"type": name}}})
        await engine.register({"id": "x", "tasks": {"a": {"type": "http", "method": "GET", "url": "http://127.0.0.1:9/", "retry": 1}}})  # fmt: skip
        with pytest.raises(RunFailed, match="127"):
            await (await engine.start("x")).result()  # ours, not theirs
        text = "id: n\ntasks:\n  a: {type: note, file: FOLDER/n.txt, line: x}\n  b: {type: raising, after: a, retry: 1}"
        registered = await engine.register(written(tmp_path, text))
        failed = [each for each in registered.findings if each.code == "plugin-check-failed"]
        assert len(failed) == 4
        assert all("penstock-broken 0.1" in each.message for each in failed)
        with pytest.raises(RunFailed) as caught:
            await (await engine.start("n")).result()
        assert caught.value.failure.type == "LookupError"
        assert len(lines(tmp_path / "n.txt")) == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("raise", "ZeroDivisionError: of a sentence"),
        ("exit", "SystemExit: that was all"),
        ("nothing", "made None of this"),
        ("everything", "by the id of a task"),
        ("empty", "is no path"),
        ("later", "ZeroDivisionError: of a value"),
        ("leave", "SystemExit: that was all"),
        ("perhaps", "gave str, not true or false"),
        ("change", "no attribute 'append'"),
    ],
)
async def test_a_language_that_goes_wrong_fails_the_definition_or_the_run(
    use: Use, text: str, words: str
) -> None:
    use("broken")
    definition = {
        "id": "g",
        "tasks": {
            "a": {
                "type": "transform",
                "set": {"n": "1"},
                "when": {"language": "gibberish", "expression": text},
            }
        },
    }
    async with penstock.open("memory:") as engine:
        if text in ("later", "leave", "perhaps", "change"):
            await engine.register(definition, force="it can fail")
            with pytest.raises(RunFailed) as failed:
                await (await engine.start("g", {"n": 1})).result()
            assert failed.value.failure.code == "expression-failed"
            assert words in failed.value.failure.message
        else:
            with pytest.raises(DefinitionInvalid, match=words):
                await engine.register(definition)


def test_a_kill_while_it_executes_gives_a_new_attempt_and_a_missing_plugin_loses_nothing(
    installed: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Killed in the middle; then an owner without the plugin comes and goes, properly; then one that has it."""
    url, file = f"sqlite:///{tmp_path / 'a.db'}", tmp_path / "slow.txt"
    written(tmp_path, SLOW, SECONDS=30)
    code = f"""
    import asyncio, penstock
    async def work():
        async with penstock.open({url!r}) as engine:
            await engine.register({str(tmp_path / "definition.yaml")!r})
            run = await engine.start("slow", id="slow-1")
            await run.signal("go")
            await run.result()
    asyncio.run(work())
    """
    process = python(code, installed["sample"])
    try:
        until = time.monotonic() + 30
        while not lines(file):
            assert time.monotonic() < until
            assert process.poll() is None
            time.sleep(0.02)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()

    # Without the plugin.
    for arguments in (["show", "slow-1"], ["why", "slow-1"], ["signal", "slow-1", "go"], ["graph", "slow-1"]):  # fmt: skip
        assert main([*arguments, "--store", url]) in (1, 3), arguments
        told = capsys.readouterr().err
        assert "error[plugin-missing]: definition `slow` needs the task type `note`" in told
        assert "pip install penstock-sample" in told
        assert "Traceback" not in told
    assert main(["list", "--store", url]) == 0
    assert main(["history", "slow-1", "--store", url]) == 0
    assert "slow-1" in capsys.readouterr().out
    asyncio.run(_owned(url))
    assert len(lines(file)) == 1

    # With it.
    code = f"""
    import asyncio, json, penstock
    async def work():
        async with penstock.open({url!r}) as engine:
            run = await engine.get("slow-1")
            while not any(each.type == "task_lost" for each in await run.history()):
                await asyncio.sleep(0.02)
            while len(open({str(file)!r}).readlines()) < 2:
                await asyncio.sleep(0.02)
            await run.cancel()
            try:
                await run.result()
            except penstock.RunFailed as error:
                print(json.dumps([error.status, [each.type for each in await run.history()]]))
    asyncio.run(work())
    """
    done = python(code, installed["sample"], stdout=subprocess.PIPE)
    status, events = json.loads(done.communicate(timeout=60)[0])
    assert status == "CANCELLED"
    assert events.count("task_lost") == 1
    first, second, closed = lines(file)
    assert (first.split()[0], second.split()[0], closed) == ("1", "2", "closed")
    assert first.split()[1:] == second.split()[1:]


async def _owned(url: str) -> None:
    """An owner without the plugin, which executes what it can."""
    async with penstock.open(url) as engine:
        await engine.register({"id": "q", "tasks": {"a": {"type": "transform", "set": {"n": "1"}}}})
        await (await engine.start("q")).result()
