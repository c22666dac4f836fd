"""What is wrong with a document: said in full, at its place, for people."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.dsl.finding import CODES, Finding
from penstock.dsl.load import attempt, attempt_document, load, load_document, load_file
from penstock.dsl.schema import KINDS, document_schema
from penstock.errors import DefinitionInvalid


def findings(text: str, **more: Any) -> list[Finding]:
    with pytest.raises(DefinitionInvalid) as caught:
        load(text, source="it.yaml", **more)
    assert all(finding.code in CODES for finding in caught.value.findings)
    return caught.value.findings


def only(text: str, **more: Any) -> Finding:
    (finding,) = findings(text, **more)
    return finding


def seen(finding: Finding) -> tuple[str, int, int, str, str | None]:
    place = finding.place
    return finding.code, place.line, place.column, finding.message, finding.hint


def in_task(line: str) -> Finding:
    """The only finding in a task that is written on line 3 from column 6 on."""
    return only(f"id: it\ntasks:\n  a: {line}\n")


def test_an_unknown_field_is_named_with_its_place_and_what_was_meant() -> None:
    finding = in_task("{do: charge, retri: 5}")

    assert seen(finding) == (
        *("unknown-field", 3, 19, "no field `retri` in a task of type activity"),
        "did you mean `retry`?",
    )
    assert finding.place.path == ("tasks", "a", "retri")


def test_an_unknown_field_at_the_top_is_named() -> None:
    finding = only("id: it\ntaskz: {}\ntasks: {a: {do: a}}\n")

    assert seen(finding) == (
        *("unknown-field", 2, 1, "no field `taskz` in a definition", "did you mean `tasks`?"),
    )


def test_a_wrong_type_is_named_with_what_it_should_be() -> None:
    assert seen(only("id: it\nversion: 2\ntasks: {a: {do: a}}\n")) == (
        *("wrong-type", 2, 10, "`version` must be text, not the number 2"),
        'put it in quotes: `version: "2"`',
    )
    # It was read as 1.1, which is another version.
    hint = only("id: it\nversion: 1.10\ntasks: {a: {do: a}}\n").hint
    assert hint == "put it in quotes, as it is written"
    assert seen(only("id: it\ntasks: [a]\n")) == (
        *("wrong-type", 2, 8, "`tasks` must be an object of tasks by id, not a list"),
        "write `name: value` for each part, in `{ }` or one in a line, indented under it",
    )
    assert in_task("{do: a, retry: [1]}").message == (
        "`retry` must be a number of attempts, or an object, not a list"
    )
    assert in_task("{type: end, terminate: yes}").hint == "write `true`"
    assert in_task("{type: end, terminate: off}").hint == "write `false`"
    assert in_task("{do: true}").hint == 'put it in quotes: `do: "true"`'
    assert in_task("5").message == "`a` must be a task, not the number 5"


def test_a_task_written_twice_is_reported_with_both_places() -> None:
    finding = only("id: it\ntasks:\n  a: {do: x}\n  b: {do: y}\n  a: {do: z}\n")

    assert seen(finding) == (
        *("duplicate-id", 5, 3, "two tasks are called `a`, first at 3:3"),
        "give one of them another id",
    )


def test_a_key_written_twice_is_reported_with_both_places() -> None:
    finding = in_task("{do: x, retry: 1, retry: 2}")

    assert seen(finding) == (
        "duplicate-key",
        3,
        24,
        "`retry` is written twice, first at 3:14",
        "keep one of the two",
    )


@pytest.mark.parametrize(
    ("line", "code", "column", "message", "hint"),
    [
        ("{type: timr}", "unknown-type", 13, "no type of task is called `timr`", "did you mean `timer`?"),
        ("{name: x}", "field-missing", 3, "task `a` needs `type` or `do`", "add one of them"),
        ("{type: timer}", "field-missing", 3, "task `a` needs `delay` or `until`", "add one of them"),
        ("{type: http, method: GET}", "field-missing", 3, "task `a` needs `url`", "add `url: …`"),
        (
            "{type: timer, delay: 1s, config: {until: '2030-01-01T00:00:00Z'}}",
            *("field-invalid", 3, "task `a` takes only one of `delay` and `until`", "keep one of them"),
        ),
        (
            "{type: timer, delay: 1s, config: {delay: 2s}}",
            *("duplicate-key", 20, "`delay` says again what the config says", "keep one of the two"),
        ),
        (
            "{do: a, activity: b}",
            *("duplicate-key", 7, "`do` says again what `activity` says", "keep one of the two"),
        ),
        (
            "{do: a, type: timer}",
            *("field-invalid", 20, "`do` makes this an activity, and `type` says text `timer`"),
            "leave out one of the two",
        ),
        (
            "{do: a, timeout: 30 parsecs}",
            *("duration-invalid", 23),
            "`timeout` must be a duration, or an object of them, not text `30 parsecs`",
            "write `500ms`, `30s`, `5m`, `2h`, `1d` or ISO 8601",
        ),
        (
            "{do: a, timeout: {task: -5}}",
            *("duration-invalid", 30, "`task` must be a duration, not the number -5"),
            "write `500ms`, `30s`, `5m`, `2h`, `1d` or ISO 8601",
        ),
        (
            "{do: a, join: {n: 0}}",
            *("field-invalid", 24, "`n` must be a whole number from 1, not the number 0", "write a whole number from 1"),
        ),
        (
            "{do: a, priority: urgent}",
            *("field-invalid", 24, "`priority` must be `high`, `normal` or `low`, not text `urgent`"),
            "take one of these",
        ),
        (
            "{type: gateway, kind: exclusiv}",
            *("field-invalid", 28),
            "`kind` must be `exclusive`, `parallel`, `inclusive` or `event`, not text `exclusiv`",
            "did you mean `exclusive`?",
        ),
        (
            "{do: a, inputs: {x: {from: b, value: 3}}}",
            *("field-invalid", 23),
            "input `x` takes only one of `from`, `value`, `template` and `secret`",
            "keep one of them",
        ),
        (
            "{do: a, inputs: {x: {from: b, pth: 3}}}",
            *("unknown-field", 36, "no field `pth` in a source", "did you mean `path`?"),
        ),
        (
            "{do: a, inputs: {x: {value: 3, path: $.y}}}",
            *("field-missing", 23, "input `x` needs `from`", "add `from: …`"),
        ),
        (
            "{do: a, after: {form: b, from: c}}",
            *("unknown-field", 22, "no field `form` in a link", "did you mean `from`?"),
        ),
        (
            "{do: a, onComplete: [{publish: {payload: 1}}]}",
            *("field-missing", 28, "`publish` needs `topic`", "add `topic: …`"),
        ),
        (
            "{type: map, items: x, body: {do: b, foo: 1}}",
            *("unknown-field", 42, "no field `foo` in a task of type activity"),
            "it takes `type`, `name`, `config`, `inputs`, `outputSchema`, `retry`, `timeout`, `conditions`, `onComplete`, `onError`, "
            "`compensate`, `reads`, `writes`, `join`, `resources`, `priority`, `queue`, `limits`, `after`, `when`, `on`, `activity`, "
            "`once` and `do`",
        ),
        (
            "{type: loop, while: x, body: {tasks: {q: {type: signl}}}}",
            *("unknown-type", 54, "no type of task is called `signl`", "did you mean `signal`?"),
        ),
        (
            "{type: event, topic: x}",
            *("field-missing", 3, "task `a` needs `where`"),
            "add `where: …`",
        ),
        (
            "{type: start, config: {x: 1}}",
            *("unknown-field", 29, "no field `x` in the config of a task of type start", "it takes none"),
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_task_is_said_at_its_column(
    line: str, code: str, column: int, message: str, hint: str | None
) -> None:
    assert seen(in_task(line)) == (code, 3, column, message, hint)


def test_ids_have_a_form() -> None:
    assert seen(only("id: it\ntasks:\n  1a: {do: x}\n")) == (
        *("id-invalid", 3, 3, "`1a` can't be the id of a task"),
        "an id begins with a letter or `_` and goes on with letters, digits, `_` and `-`",
    )
    assert only("id: my order\ntasks: {a: {do: x}}\n").code == "id-invalid"


@pytest.mark.parametrize(
    ("link", "column", "message"),
    [
        ("{from: a}", 5, "a link needs `to`"),
        ("7", 5, "`links[0]` must be a link, not the number 7"),
        ("{from: a, to: b, on: succes}", 26, "`on` must be `success`, `error` or `always`, not text `succes`"),
        ("{from: a, to: b, when: x, condition: y}", 22, "`when` says again what `condition` says"),
    ],
)  # fmt: skip
def test_links_have_a_form(link: str, column: int, message: str) -> None:
    finding = only(f"id: it\ntasks: {{a: {{do: x}}, b: {{do: y}}}}\nlinks:\n  - {link}\n")

    assert (finding.place.line, finding.place.column, finding.message) == (4, column, message)


def test_all_that_is_wrong_is_said_at_once_in_the_order_of_the_text() -> None:
    found = findings("id: 5\nfoo: 1\ntasks:\n  a: {do: x, bar: 2}\n  a: {do: y}\n  b: {type: z}\n")

    assert [(finding.code, finding.place.line) for finding in found] == [
        ("wrong-type", 1),
        ("unknown-field", 2),
        ("unknown-field", 4),
        ("duplicate-id", 5),
        ("unknown-type", 6),
    ]


def test_the_error_says_the_first_and_how_many_more() -> None:
    with pytest.raises(DefinitionInvalid, match=r"it\.yaml:1:5: `id` must be .*\(and 1 more\)"):
        load("id: 5\nfoo: 1\ntasks: {a: {do: a}}\n", source="it.yaml")


def test_what_is_no_document_is_said() -> None:
    assert seen(only("")) == (
        *(
            "wrong-type",
            1,
            1,
            "a definition is an object with `id` and `tasks`, and this is empty",
            "begin with `id: NAME`, then `tasks:` and under it `NAME: {do: ACTIVITY}` for each",
        ),
    )
    assert only("- a\n").message.endswith("this is a list")
    assert only("just text").message.endswith("this is text `just text`")
    assert only("a: [1").code == "syntax"
    assert only('{"a": [1,]}', format="json").place.column == 10
    assert only("a: '\ud800'").code == "syntax"
    assert {finding.message for finding in findings("{}")} == {
        "a definition needs `id`",
        "a definition needs `tasks`",
    }
    assert only("id: a\ntasks: {}").message == (
        "`tasks` must be an object with at least one task, not empty"
    )


def test_documents_over_ten_megabytes_are_refused() -> None:
    assert only("x" * (10 * 1024 * 1024 + 1)).code == "document-too-large"
    assert only("é" * (6 * 1024 * 1024)).code == "document-too-large"


def test_json_and_yaml_give_the_same_definition() -> None:
    document = {"id": "it", "tasks": {"a": {"do": "x", "inputs": {"on": "no", "n": 1}}}}
    text = json.dumps(document)

    assert (
        load(text).definition
        == load(text, format="json").definition
        == load(text, format="yaml").definition
        == load(text, source="x.json").definition
        == load("\ufeff" + text).definition
        == load_document(document).definition
    )


def test_json_has_places_too() -> None:
    finding = only('{"id": "it",\n "tasks": {\n  "a": {"do": "x", "retri": 1}}}', format="json")

    assert (finding.place.line, finding.place.column) == (3, 20)


def test_a_flow_document_that_is_no_json_is_read_as_yaml() -> None:
    assert load("{id: it, tasks: {a: {do: x}}}").definition.id == "it"


def test_files_are_read_by_their_ending(tmp_path: pathlib.Path) -> None:
    yaml, bad, wrong = tmp_path / "a.yaml", tmp_path / "a.json", tmp_path / "b.yaml"
    yaml.write_text("id: it\ntasks: {a: {do: é}}\n", "utf-8")
    bad.write_text("id: it\n", "utf-8")
    wrong.write_bytes(b"id: \xff\n")

    assert load_file(yaml).source == str(yaml)
    with pytest.raises(DefinitionInvalid, match="a value should stand"):
        load_file(bad)
    with pytest.raises(DefinitionInvalid, match="not UTF-8"):
        load_file(str(wrong))


def test_data_that_was_never_a_text_has_paths_instead_of_lines() -> None:
    with pytest.raises(DefinitionInvalid, match=r"^no field `x` in a task") as caught:
        load_document({"id": "it", "tasks": {"a": {"do": "y", "x": 1}}})

    (finding,) = caught.value.findings
    assert finding.place.line == 0
    assert finding.place.path == ("tasks", "a", "x")


@pytest.mark.parametrize(
    "value", [{1, 2}, b"x", object(), float("nan"), float("inf"), 2**64, "\ud800", {1: 2}, (1,)]
)
def test_data_that_json_cannot_hold_is_refused_with_its_path(value: Any) -> None:
    document = {"id": "it", "tasks": {"a": {"do": "x", "inputs": {"v": {"value": value}}}}}

    loaded, found = attempt_document(document)

    assert loaded is None
    assert found[0].code == "wrong-type"
    assert found[0].place.path == ("tasks", "a", "inputs", "v", "value")


def test_data_that_is_nested_too_deep_is_refused() -> None:
    deep: Any = []
    for _ in range(5000):
        deep = [deep]

    assert attempt_document({"id": "it", "tasks": deep})[1][0].message.startswith("nested deeper")


ANY = st.recursive(
    st.sampled_from(
        [None, True, 0, 3, 3.0, -1, 2.5, "", "x", "30s", "${", "${x}", "a", "all", "success"]
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    *("id", "tasks", "links", "type", "do", "after", "when", "config", "inputs"),
                    *(
                        "from",
                        "to",
                        "on",
                        "condition",
                        "expression",
                        "retry",
                        "timeout",
                        "join",
                        "n",
                    ),
                    *(
                        "compensate",
                        "onComplete",
                        "set",
                        "body",
                        "items",
                        "while",
                        "value",
                        "a",
                        "name",
                    ),
                    *("conditions", "data", "outputs", "kind", "delay", "schema", "reads", "merge"),
                ]
            ),
            inner | st.sampled_from(list(KINDS)),
            max_size=6,
        )
    ),
    max_leaves=40,
)


@settings(max_examples=250, deadline=None)
@given(ANY, ANY, ANY)
def test_nothing_that_is_written_breaks_the_loader(tasks: Any, links: Any, top: Any) -> None:
    task = {"type": "map", "items": "x", "body": tasks}
    document: Any = {"id": "it", "tasks": {"a": tasks, "b": task}, "links": links, "data": top}
    if isinstance(top, dict):
        document |= top

    loaded, found = attempt_document(document)

    assert loaded is not None or found
    assert all(finding.hint for finding in found)
    assert all(finding.code in CODES for finding in found)


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet="ab:{}[]-,&*<! \n\t'\"|>?#%@0", max_size=60))
def test_no_text_breaks_the_loader(text: str) -> None:
    loaded, found = attempt(text)

    assert loaded is not None or found
    assert all(finding.hint for finding in found)


def test_json_may_write_a_count_with_a_fraction_of_nothing() -> None:
    text = """{"id": "it", "tasks": {
        "a": {"do": "x", "retry": 3.0, "join": {"n": 1.0}},
        "b": {"do": "x", "retry": {"attempts": 2.0}},
        "m": {"type": "map", "items": "x", "limit": 5.0, "body": "x"}}}"""

    tasks = load(text).definition.tasks

    assert tasks["a"].retry is not None
    assert tasks["a"].retry.attempts == 3
    assert tasks["m"].config["limit"].__class__ is int


def test_only_so_many_findings_are_told_at_once() -> None:
    tasks = "".join(f"  t{n}: {{do: x, y: 1}}\n" for n in range(1000))

    assert len(findings(f"id: it\ntasks:\n{tasks}")) == 200


def test_a_join_says_one_thing() -> None:
    assert in_task("{do: a, join: {kind: all, any: true}}").message == (
        "`any` says again what another field of the join says"
    )


def test_a_wrong_after_leaves_the_others_in_place() -> None:
    loaded, found = attempt(
        "id: it\ntasks:\n  a: {do: a}\n  b: {do: b, after: [5, a, [], {from: a}]}\n"
    )

    assert [finding.code for finding in found] == ["wrong-type", "wrong-type"]
    assert loaded is not None
    assert loaded.place(("links", 0)).column == 25
    assert loaded.place(("links", 1)).column == 32


def test_case_is_no_reason_not_to_understand() -> None:
    assert (
        only("id: it\nINPUTSCHEMA: {}\ntasks: {a: {do: a}}\n").hint == "did you mean `inputSchema`?"
    )


def test_a_place_inside_of_a_text_is_found_where_the_text_stands_in_one_piece() -> None:
    text = "id: it\ntasks:\n  a:\n    do: x\n    when: |\n      input.x\n    name: 'abc'\n"
    loaded = load(text)

    assert loaded.place_inside(("tasks", "a", "name"), "abc", 2).column == 14
    assert loaded.place_inside(("tasks", "a", "conditions", 0), "input.x\n", 2).column == 11


def test_a_big_file_is_not_even_read(tmp_path: pathlib.Path) -> None:
    big = tmp_path / "big.yaml"
    with big.open("wb") as file:
        file.truncate(11 * 1024 * 1024)

    with pytest.raises(DefinitionInvalid, match="at most 10 MiB"):
        load_file(big)


def test_every_type_of_task_is_in_the_published_schema() -> None:
    schema = document_schema()

    assert schema["$schema"].endswith("2020-12/schema")
    assert all(f"{kind}Task" in schema["$defs"] for kind in KINDS)
    assert json.loads(json.dumps(schema)) == schema


def test_the_published_schema_is_the_one_that_is_used() -> None:
    published = pathlib.Path(__file__).parents[3] / "docs" / "definition.schema.json"

    assert json.loads(published.read_text("utf-8")) == document_schema()  # else: make docs
