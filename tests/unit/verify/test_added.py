"""What is said of tasks whose type a plugin added, and of conditions in its language (SPEC 2.2, 3)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import msgspec
import pytest

from penstock.adapters.entry_points import InstalledPlugins
from penstock.dsl.derive import derive
from penstock.dsl.diff import compare
from penstock.dsl.finding import Finding
from penstock.dsl.load import Loaded, load
from penstock.dsl.rewrite import rewrite
from penstock.errors import Rejected
from penstock.plugin import Attempt, Language, Problem, Program, TaskType
from penstock.verify.structure import examine_text
from penstock.verify.verification import Verification, verify


class Sql(TaskType):
    """A query."""

    config: ClassVar[Any] = {
        "type": "object",
        "properties": {
            "query": {"type": "string"},
            "limit": {"type": "integer", "minimum": 1},
            "retry": {"type": "boolean"},
            "rows": {"$ref": "#/$defs/rows"},
        },
        "required": ["query"],
        "additionalProperties": False,
        "$defs": {"rows": {"type": "array", "items": {"type": "integer"}}},
    }
    inputs: ClassVar[Any] = {
        "type": "object",
        "properties": {"shop": {"type": "string"}},
        "additionalProperties": False,
    }
    output: ClassVar[Any] = {
        "type": "object",
        "properties": {"count": {"type": "integer"}},
        "required": ["count"],
        "additionalProperties": False,
    }

    def check(self, config: dict[str, Any]) -> Iterable[Problem]:
        if "${" in config["query"]:
            yield Problem("a query is no template", ("query",), hint="give it `inputs`")
        if config.get("limit", 1) > 1000:
            yield Problem("that is much", ("limit",), level="warning")

    def effects(self, config: dict[str, Any]) -> str:
        return "" if config["query"].startswith("select") else "changes the database"

    def reads(self, config: dict[str, Any]) -> Iterable[str]:
        return ["db"]

    def writes(self, config: dict[str, Any]) -> Iterable[str]:
        return [] if config["query"].startswith("select") else ["db"]

    async def execute(self, attempt: Attempt) -> Any: ...


class Mail(msgspec.Struct, forbid_unknown_fields=True):
    to: str
    body: str = ""


class Send(TaskType):
    config = Mail

    async def execute(self, attempt: Attempt) -> Any: ...


class Clumsy(TaskType):
    def check(self, config: dict[str, Any]) -> Iterable[Problem]:
        if config:
            return ["text", Problem("x", level="fatal"), Problem("x", 5)]  # type: ignore
        raise LookupError("it stumbles")

    def effects(self, config: dict[str, Any]) -> str:
        raise LookupError("effects")

    def reads(self, config: dict[str, Any]) -> Iterable[str]:
        raise LookupError("reads")

    async def execute(self, attempt: Attempt) -> Any: ...


class Above(Language):
    """`PATH N`: what is there is more than that."""

    def compile(self, text: str) -> Program:
        path, _, number = text.partition(" ")
        *names, last = path.split(".")

        def evaluate(values: Any) -> bool:
            for name in names:
                values = values[name]
            return values[last] > int(number)

        return Program([path], evaluate, [int(number)])


PLUGINS = InstalledPlugins(
    {"sql": Sql, "send": Send, "clumsy": Clumsy, "above": Above, "archive": object},
    installed=False,
)


def examined(text: str) -> list[Finding]:
    return examine_text(text, plugins=PLUGINS.added).findings


def loaded(text: str) -> Loaded:
    return load(text, plugins=PLUGINS.added)


def verified(text: str) -> Verification:
    return verify(loaded(text))


def told(findings: Iterable[Finding]) -> list[tuple[str, str, int, int]]:
    return [(each.code, each.level, each.place.line, each.place.column) for each in findings]


@pytest.mark.parametrize(
    ("task", "expected", "message"),
    [
        ("{type: sql, query: select, limit: 0}", ("field-invalid", "error", 3, 40), "`limit` does not fit the type `sql`"),
        ("{type: sql, config: {limit: 2}}", ("field-missing", "error", 3, 18), "`a` needs `query`"),
        ("{type: sql, query: x, lmit: 2}", ("unknown-field", "error", 3, 28), "no field `lmit`"),
        ("{type: sql, config: {query: x, lmit: 2}}", ("unknown-field", "error", 3, 37), "no field `lmit` in the config"),
        ("{type: sql, query: x, rows: [1, x]}", ("field-invalid", "error", 3, 38), "`rows.1` does not fit"),
        ("{type: send, to: 5}", ("field-invalid", "error", 3, 23), "`to` does not fit the type `send`"),
        ("{type: send, to: x, subject: y}", ("unknown-field", "error", 3, 26), "no field `subject`"),
        ("{type: sql, query: 'x ${input.n}'}", ("plugin-check", "error", 3, 25), "a query is no template"),
        ("{type: sql, query: x, limit: 5000}", ("plugin-check", "warning", 3, 35), "that is much"),
        ("{type: sql, query: x, rows: '${inpt}'}", ("unknown-name", "error", 3, 37), "nothing is called `inpt`"),
        ("{type: clumsy}", ("plugin-check-failed", "warning", 3, 3), "`check` of the type `clumsy`"),
        ("{type: archive}", ("plugin-invalid", "error", 3, 13), "no class that extends"),
        ("{type: sqll}", ("unknown-type", "error", 3, 13), "no type of task is called `sqll`"),
        ("{type: sql, query: x, when: {language: above, expression: inptu.n 3}}", ("unknown-name", "error", 3, 64), "nothing is called `inptu`"),
        ("{type: sql, query: x, when: {language: above, expression: input.n}}", ("expression-invalid", "error", 3, 64), "the language `above` cannot read this: ValueError"),
        ("{type: sql, query: x, when: {language: abov, expression: input.n 3}}", ("unknown-language", "error", 3, 45), "abov"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_found_where_it_stands(
    task: str, expected: tuple[str, str, int, int], message: str
) -> None:
    found = examined(f"id: x\ntasks:\n  a: {task}\n")

    assert expected in told(found), found
    assert all(each.hint for each in found), found
    assert any(message in each.message for each in found), found


def test_a_mistyped_name_is_guessed() -> None:
    (found,) = examined("id: x\ntasks:\n  a: {type: sqll}\n")
    assert found.hint == "did you mean `sql`?"


def test_an_expression_may_stand_for_any_value() -> None:
    text = "id: x\ntasks:\n  a: {type: sql, query: x, limit: '${1 + 1}', rows: ['${3}']}\n"
    assert examined(text) == []


def test_a_config_field_that_every_task_has_stands_in_the_config() -> None:
    definition = loaded("id: x\ntasks:\n  a: {type: sql, query: q, retry: 2, config: {retry: true}}").definition  # fmt: skip
    task = definition.tasks["a"]
    assert task.config == {"query": "q", "retry": True}
    assert task.retry is not None
    assert task.retry.attempts == 2


def test_a_plugin_that_goes_wrong_is_a_warning_for_each_question() -> None:
    found = verified("id: x\ntasks:\n  a: {type: clumsy}\n  b: {type: clumsy, config: {x: 1}}")

    failed = [each for each in found.findings if each.code == "plugin-check-failed"]
    assert len(failed) == 8  # check, effects and reads of each; the second says three wrong things
    assert {each.level for each in failed} == {"warning"}
    assert not found.errors
    assert found.verdict("3.2") == "proved"


def test_effects_without_a_way_back_are_named_in_the_words_of_the_plugin() -> None:
    found = verified(
        "id: x\ntasks:\n  a: {type: sql, query: delete}\n  b: {type: sql, query: select, after: a}"
    )
    (note,) = [each for each in found.findings if each.code == "undo-missing"]
    assert note.message.startswith("`a` changes the database")
    assert note.counterexample is not None

    calm = verified(
        "id: x\ntasks:\n  a: {type: sql, query: select}\n  b: {type: sql, query: select, after: a}"
    )
    assert calm.verdict("3.7") == "proved"


def test_what_it_writes_is_raced_for() -> None:
    found = verified(
        "id: x\ntasks:\n  a: {type: sql, query: delete}\n  b: {type: sql, query: delete}"
    )
    assert "data-race" in [each.code for each in found.findings]
    calm = verified(
        "id: x\ntasks:\n  a: {type: sql, query: select}\n  b: {type: sql, query: select}"
    )
    assert calm.verdict("3.5") == "proved"


def test_inputs_and_outputs_have_types() -> None:
    text = """
id: x
tasks:
  a: {type: sql, query: select, inputs: {shop: 5}}
  b: {type: sql, query: select, after: a, inputs: {shp: x}}
  c: {type: transform, after: b, set: {n: tasks.b.output.cont}}
"""
    codes = {(each.code, each.place.line) for each in verified(text).findings}

    assert {("input-unfit", 4), ("unused-input", 5)} <= codes
    assert any(line == 6 for _, line in codes)


def test_a_choice_in_another_language_is_refuted_by_a_run_or_unknown_by_name() -> None:
    text = """
id: x
inputSchema: {type: object, properties: {n: {type: integer}}, required: [n], additionalProperties: false}
tasks:
  pick: {type: gateway, kind: exclusive}
  a: {type: sql, query: select}
  b: {type: sql, query: select}
links:
  - {from: pick, to: a, condition: {language: above, expression: input.n 41}}
  - {from: pick, to: b, condition: input.n < 10}
"""
    (error,) = verified(text).errors
    assert error.code == "no-branch"
    assert 10 <= error.counterexample.input["n"] <= 41

    whole = verified(text.replace("input.n < 10", "input.n < 100"))
    assert not whole.errors
    found = {each.code: each for each in whole.findings}
    assert set(found) == {"no-branch", "branch-fails", "branch-overlap"}
    assert {each.level for each in found.values()} == {"warning"}
    assert "the solver does not read the language `above`" in found["branch-fails"].message
    assert found["branch-overlap"].counterexample is not None


def test_the_same_words_in_two_languages_are_two_conditions() -> None:
    """Facts about one say nothing of the other."""
    text = """
id: x
inputSchema: {type: object, properties: {n: {type: integer}}, required: [n], additionalProperties: false}
tasks:
  a: {type: sql, query: select, when: {language: above, expression: "input.n 0"}}
  b: {type: sql, query: select, after: a, when: "input.n > 0"}
"""
    assert not verified(text).errors


def test_data_flow_follows_what_a_language_reads() -> None:
    document = {
        "id": "x",
        "orchestration": "data",
        "tasks": {
            "a": {"do": "x"},
            "b": {"do": "y", "when": {"language": "above", "expression": "tasks.a.output 3"}},
        },
    }
    full, _ = derive(document, {"above": Above()})

    assert full["links"] == [{"from": "a", "to": "b"}]
    assert derive(document)[0].get("links") == []


def test_another_language_is_another_condition() -> None:
    text = "id: x\ntasks:\n  a: {do: x}\n  b: {do: y, after: {from: a, when: {language: above, expression: input.n 3}}}"
    old, new = loaded(text), loaded(text.replace("language: above, ", "").replace("input.n 3", "true"))  # fmt: skip

    (change,) = compare(old.definition, new.definition, None).links_changed
    assert "above: input.n 3" in str(change)


def test_what_only_a_plugin_reads_is_not_rewritten() -> None:
    text = "id: x\ntasks:\n  a: {do: x}\n  b: {do: y, after: {from: a, when: {language: above, expression: input.n 3}}}"
    with pytest.raises(Rejected, match="the language `above`"):
        rewrite(loaded(text), "data")
