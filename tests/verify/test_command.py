"""What `penstock verify` takes: files, folders, pipes, the standard input; and what it says to what it cannot take."""

from __future__ import annotations

import io
import json
import os
import pathlib
import subprocess
import sys
import threading

import pytest

from penstock.cli.main import main
from penstock.dsl.finding import CODES

GOOD = "id: good\ntasks: {a: {do: x}}\n"
BAD = "id: bad\ntasks: {a: {do: x, after: b}}\n"


@pytest.fixture(autouse=True)
def _here(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)


def write(name: str, text: str | bytes) -> str:
    path = pathlib.Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return name


def test_of_a_folder_every_definition_in_it_and_below_is_checked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write("all/one.yaml", GOOD)
    write("all/below/two.json", json.dumps({"id": "two", "tasks": {"a": {"do": "x", "after": "b"}}}))  # fmt: skip
    write("all/compose.yml", "services: {db: {image: postgres}}\n")
    write("all/.hidden/three.yaml", BAD)
    write("all/readme.md", "tasks: none")

    assert main(["verify", "all", "all/one.yaml"]) == 1

    said = capsys.readouterr()
    assert said.out.count("\nall/one.yaml\n  proved") == 1
    assert "--> all/below/two.json:1:" in said.out
    assert said.err.startswith("all: 1 file without `tasks` left out\n")
    assert "all/one.yaml: 1 task: no findings\n" in said.err


def test_a_folder_without_definitions_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    write("none/notes.txt", "nothing")

    assert main(["verify", "none"]) == 2
    assert "there is no definition in none" in capsys.readouterr().err


def test_the_standard_input_is_a_file_called_minus(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stdin:
        buffer = io.BytesIO(BAD.encode())

    monkeypatch.setattr(sys, "stdin", Stdin)

    assert main(["verify", "-"]) == 1

    said = capsys.readouterr().out
    assert "--> <stdin>:2:27\n" in said
    assert "2 | tasks: {a: {do: x, after: b}}" in said


def test_a_pipe_is_read_once(capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo("pipe")
    writer = threading.Thread(target=lambda: pathlib.Path("pipe").write_text(BAD))
    writer.start()

    assert main(["verify", "pipe"]) == 1

    writer.join()
    assert "2 | tasks: {a: {do: x, after: b}}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "text", "status", "said"),
    [
        ("empty.yaml", "", 1, "error[wrong-type]: a definition is an object with `id` and `tasks`, and this is empty"),
        ("comment.yaml", "# nothing yet\n", 1, "and this is empty"),
        ("prose.yaml", "hello there\n", 1, "and this is text `hello there`"),
        ("list.json", "[]", 1, "and this is a list"),
        ("picture.yaml", b"\x89PNG\r\n\x1a\n\0", 1, "error[syntax]: not UTF-8: invalid start byte at byte 0"),
        ("nul.yaml", b"id: a\0b\n", 1, "hint: remove this character"),
        ("utf16.yaml", GOOD.encode("utf-16"), 1, "not UTF-8"),
        ("bom.yaml", b"\xef\xbb\xbf" + GOOD.encode(), 0, "proved   structure"),
        ("crlf.yaml", GOOD.replace("\n", "\r\n").encode(), 0, "proved   structure"),
    ],
)  # fmt: skip
def test_what_is_no_definition_is_said_to_be_none(
    name: str, text: str | bytes, status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", write(name, text)]) == status
    assert said in capsys.readouterr().out


def test_a_file_that_is_not_there_is_told_with_the_one_that_was_meant(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write("order.yaml", GOOD)

    assert main(["verify", "ordr.yaml"]) == 2

    assert capsys.readouterr().err == (
        "error[usage]: there is no file ordr.yaml\nhint: did you mean `order.yaml`?\n"
    )


def test_a_counterexample_is_run_without_a_word_of_the_engine(
    capsys: pytest.CaptureFixture[str],
) -> None:
    three = pathlib.Path(__file__).parent / "three-mistakes.yaml"

    assert main(["verify", str(three), "--run", "1"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("code", sorted(CODES))
def test_every_code_is_explained(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    for asked in (code, f"error[{code}]:", code.upper()):
        assert main(["explain", asked]) == 0
        assert capsys.readouterr().out.startswith(f"# {code}\n")


def test_a_code_that_is_none_is_told_with_the_one_that_was_meant(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["explain", "no-brnch"]) == 3
    assert "hint: did you mean `no-branch`?" in capsys.readouterr().err
    assert main(["explain", "gibberish"]) == 3
    assert "penstock explain lists the codes" in capsys.readouterr().err


def test_without_the_solver_it_says_what_is_unknown_and_how_to_get_it() -> None:
    code = "import sys; sys.modules['z3'] = None; from penstock.cli.main import main; sys.exit(main(['verify', sys.argv[1]]))"
    file = pathlib.Path(__file__).parent / "clean" / "branches" / "computed.yaml"

    done = subprocess.run([sys.executable, "-c", code, str(file)], capture_output=True, text=True, timeout=120, check=False)  # fmt: skip

    assert done.returncode == 0
    assert "hint: pip install 'penstock[verify]'" in done.stdout
    assert "unknown  branches:" in done.stdout
    assert "error[" not in done.stdout
