"""Input that is made to hurt: each is answered in bounded time and memory, with a clear error or what is unknown.

Each in a process of its own with a limit on its memory and on its processor time, which the system enforces.
"""

from __future__ import annotations

import json
import pathlib
import resource
import subprocess
import sys
from typing import Any

import pytest

EXPECTED = ("no-path", "never-runs", "branch-dead")
MEMORY_BYTES_MAX = 2 << 30
PROCESSOR_SECONDS_MAX = 60
OUTPUT_CHARACTERS_MAX = 1_000_000

COMMAND = """
import sys
from penstock.cli.main import main
sys.exit(main(["verify", sys.argv[1], "--json"]))
"""
ENGINE = """
import asyncio, json, pathlib, sys
sys.path.insert(0, TESTS)
from penstock import DefinitionInvalid
from penstock.verify.report import as_data
from verify.corpus import engine

async def main():
    async with engine() as (harness, _):
        try:
            kept = await harness.register(pathlib.Path(sys.argv[1]))
        except DefinitionInvalid as refused:
            assert len(str(refused)) < 3000, len(str(refused))
            return refused.findings
        return kept.findings

print(json.dumps({"findings": [as_data(finding) for finding in asyncio.run(main())]}))
"""
TESTS = str(pathlib.Path(__file__).parents[1])
WAYS = {"command": COMMAND, "engine": f"TESTS = {TESTS!r}\n{ENGINE}"}


def answered(
    path: pathlib.Path,
    text: str | bytes,
    way: str = "command",
    processor_seconds: int = PROCESSOR_SECONDS_MAX,
) -> list[list[Any]]:
    """What is found, by a process that may not take more than it should."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
        resource.setrlimit(resource.RLIMIT_CPU, (processor_seconds, processor_seconds))

    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    done = subprocess.run(
        [sys.executable, "-c", WAYS[way], str(path)],
        capture_output=True,
        preexec_fn=limit,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode in (0, 1), (done.returncode, done.stderr[-2000:])
    assert "Traceback" not in done.stderr, done.stderr[-2000:]
    assert len(done.stdout) < OUTPUT_CHARACTERS_MAX
    found = json.loads(done.stdout)["findings"]
    return [[each[name] for name in ("level", "code", "message", "hint")] for each in found]


def choice(expression: str, **top: Any) -> str:
    """A definition with one condition."""
    tasks = {
        "way": {"type": "gateway", "config": {"kind": "exclusive", "default": "one"}},
        "one": {"do": "a"},
        "two": {"do": "b"},
    }
    condition = {"expression": expression}
    links = [{"from": "way", "to": "one"}, {"from": "way", "to": "two", "condition": condition}]
    return json.dumps({"id": "bad", "tasks": tasks, "links": links, **top})


def chained(tasks: int, each: int) -> str:
    names = [f"t{i}" for i in range(tasks)]
    links = [{"from": a, "to": b} for i, a in enumerate(names) for b in names[i + 1 : i + 1 + each]]
    return json.dumps({"id": "bad", "tasks": {n: {"do": "a"} for n in names}, "links": links})


def anchors() -> str:
    lines = ["id: bad", "metadata:", "  b0: &b0 [x, x, x, x, x, x, x, x, x, x]"]
    for i in range(1, 10):
        lines.append(f"  b{i}: &b{i} [{', '.join([f'*b{i - 1}'] * 10)}]")
    return "\n".join([*lines, "tasks: {t: {do: a}}"])


def doubling_schema() -> dict[str, Any]:
    defs: dict[str, Any] = {"d60": {"type": "integer"}}
    for i in range(60):
        defs[f"d{i}"] = {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}, {"$ref": f"#/$defs/d{i + 1}"}]}
    return {"$defs": defs, "$ref": "#/$defs/d0"}


def wide_schema() -> dict[str, Any]:
    defs: dict[str, Any] = {"d60": {"type": "integer"}}
    for i in range(60):
        both = {"$ref": f"#/$defs/d{i + 1}"}
        defs[f"d{i}"] = {"type": "object", "properties": {"a": both, "b": both}, "required": ["a", "b"]}  # fmt: skip
    return {"$defs": defs, "$ref": "#/$defs/d0"}


def unfolding() -> list[str]:
    """Short expressions that stand for very many parts: macros in macros, and variables that double what they name."""
    numbers = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"
    nested, bound = "true", "a49 + a49"
    for i in range(12):
        nested = f"{numbers}.all(x{i}, {nested} && x{i} > 0)"
    for i in range(49, 0, -1):
        bound = f"cel.bind(a{i}, a{i - 1} + a{i - 1}, {bound})"
    mapped = "['ab']" + ".map(a, a + a)" * 50
    return [nested, f"size(cel.bind(a0, 'ab', {bound})) > 3", f"size({mapped}) > 3"]


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("id: bad\ndescription: " + "x" * (10 << 20) + "\ntasks: {t: {do: a}}\n", "document-too-large", "10 MiB"),
        (anchors(), "document-too-large", "aliases"),
        ("id: bad\nmetadata: &m {x: *m}\ntasks: {t: {do: a}}\n", "syntax", "inside of what it names"),
        ("id: bad\nmetadata: " + "[" * 5000 + "]" * 5000 + "\ntasks: {t: {do: a}}\n", "document-too-large", "nested"),
        (choice("(" * 500 + "true" + ")" * 500), "expression-invalid", "nested deeper"),
        (choice("!" * 500 + "true"), "expression-invalid", "nested deeper"),
        (choice("[" * 500 + "]" * 500 + " == []"), "expression-invalid", "nested deeper"),
        (choice("true" + " " * 70_000), "expression-invalid", "KiB"),
        (choice("true", inputSchema={"$ref": "#"}), "schema-invalid", "itself without end"),
        (choice("true", inputSchema={"pattern": "((a{1000}){1000}){1000}"}), "schema-invalid", "regex"),
        (json.dumps({"id": "bad", "tasks": {"a": {"do": "a"}}, "links": [{"from": "a", "to": f"c{i}"} for i in range(100_000)]}),
         "dangling-link", "no task"),
        (json.dumps({"id": "bad", "tasks": {"a": {"do": "a", "inputs": {"x": {"from": "input", "path": "$" + "[0]" * 5000}}}}}),
         "path-invalid", "characters"),
        ("id: bad\nmetadata: " + "[" * 100_000 + "\n", "document-too-large", "nested"),
        ("id: bad\nmetadata: {n: " + "9" * 1_000_000 + "}\ntasks: {t: {do: a}}\n", "number-out-of-range", "does not fit"),
        (b"id: b\0d\ntasks: {t: {do: a}}\n", "syntax", "control characters"),
        ("id: " + "x" * 1_000_000 + "\ntasks: {t: {do: a}}\n", "id-invalid", "must be an id"),
        ("id: bad\ntasks: {t: {do: a, after: " + "b" * 1_000_000 + "}}\n", "dangling-link", "bbb"),
        ("id: bad\ntasks: {charge: {do: a}, ch\u0430rge: {do: b}}\n", "id-invalid", "can't be the id"),
        (json.dumps({"id": "bad", "tasks": {}})[:-2] + ",".join('"t":{"do":"a"}' for _ in range(20_000)) + "}}", "duplicate-id", "two tasks"),
        (choice("true", inputSchema={"$ref": "http://127.0.0.1:9/x.json"}), "schema-invalid", "outside of itself"),
        (choice("true", inputSchema=doubling_schema()), "schema-invalid", "more than 20000 times"),
        (choice("true", inputSchema={"$ref": "file:///etc/hostname"}), "schema-invalid", "outside of itself"),
        (json.dumps({"id": "bad", "tasks": {f"t{i}": {"do": "a"} for i in range(150)},
                     "links": [{"from": f"t{i}", "to": f"t{j}"} for i in range(150) for j in range(150) if i != j]}), "cycle-irreducible", "more than one way in"),
    ],
    ids=["10-mb", "anchors", "anchor-of-itself", "nested-document", "nested-500", "not-500", "lists-500", "long", "schema-of-itself",
         "schema-regex", "links-dangling", "long-path", "100000-brackets", "long-number", "nul", "long-id", "long-name", "confusable",
         "tasks-twice", "schema-of-http", "schema-that-doubles", "schema-of-a-file", "complete-graph"],
)  # fmt: skip
@pytest.mark.parametrize("way", WAYS)
def test_it_is_refused(
    tmp_path: pathlib.Path, text: str | bytes, code: str, words: str, way: str
) -> None:
    found = answered(tmp_path / "bad.yaml", text, way)

    assert found[0][:2] == ["error", code], found[0]
    assert any(words in message for _, _, message, _ in found), found[0]
    assert all(hint and len(message) < 2000 for _, _, message, hint in found)
    assert len(found) <= 201


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (choice("+".join(["input.n"] * 6000) + " > 3"), "branch-fails"),
        (choice(" && ".join(f"input.n{i} > {i}" for i in range(2500))), "branch-fails"),
        (choice("input.s.matches('^((a|b)*c){1,200}((d+)+e)*$') && input.s.matches('((a+)+b)+') ", inputSchema={"type": "object", "required": ["s"], "properties": {"s": {"type": "string", "pattern": "^(a+)+$"}}}),
         "never-runs"),
        (choice("input.a.b.a.b.a.b > 3", inputSchema=wide_schema()), "branch-fails"),
        (chained(10_000, 10), "too-many-states"),
        (json.dumps({"id": "bad", "tasks": {"a": {"do": "a"}, "b": {"do": "b"}}, "links": [{"from": "a", "to": "b"}] * 100_000}), "too-many-states"),
        (json.dumps({"id": "bad", "tasks": {"a": {"do": "a", "onComplete": [{"set": {f"k{i}": "1"}} for i in range(20_000)]}}}), "too-many-states"),
    ],
    ids=["sum-of-6000", "2500-conditions", "regex", "schema-that-fans-out", "100000-links", "100000-of-one-link", "20000-writes"],
)  # fmt: skip
@pytest.mark.parametrize("way", WAYS)
def test_it_is_unknown(tmp_path: pathlib.Path, text: str, code: str, way: str) -> None:
    found = answered(tmp_path / "bad.json", text, way)

    assert code in {found_code for _, found_code, _, _ in found}, found
    assert all(level != "error" or code in EXPECTED for level, code, _, _ in found), found


def test_a_definition_of_9_mb_is_read(tmp_path: pathlib.Path) -> None:
    text = "id: bad\ntasks:\n" + "".join(
        f"  t{i}: {{do: a, name: {'x' * 400}}}\n" for i in range(22_000)
    )
    assert len(text) > 9_000_000

    found = answered(tmp_path / "bad.yaml", text)

    assert [code for _, code, _, _ in found] == ["too-many-states"]


def test_an_enum_of_100000_values_is_looked_at(tmp_path: pathlib.Path) -> None:
    named = {"s": {"enum": [f"v{i}" for i in range(100_000)]}}
    schema = {"type": "object", "required": ["s"], "properties": named}

    assert answered(tmp_path / "bad.json", choice("input.s == 'v5'", inputSchema=schema)) == []


def test_a_chain_of_10000_references_is_followed_or_left(tmp_path: pathlib.Path) -> None:
    defs: dict[str, Any] = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(10_000)}
    schema = {"$defs": {**defs, "d10000": {"type": "integer"}}, "$ref": "#/$defs/d0"}

    found = answered(tmp_path / "bad.json", choice("input > 3", inputSchema=schema))

    assert all(level != "error" for level, _, _, _ in found), found


@pytest.mark.parametrize("expression", unfolding(), ids=["macros", "variables", "mapped"])
def test_what_unfolds_to_very_many_parts_is_not_unfolded(
    tmp_path: pathlib.Path, expression: str
) -> None:
    found = answered(tmp_path / "bad.json", choice(expression), processor_seconds=20)

    assert next(code for level, code, _, _ in found if level == "error") == "no-path"
