"""What structure says about definitions that can't be right, and where."""

from __future__ import annotations

import pathlib
import time
from typing import Any

import pytest

from penstock.dsl.finding import Finding
from penstock.dsl.load import load, load_file
from penstock.errors import DefinitionInvalid
from penstock.verify.structure import check, examine_document, examine_file, examine_text

EXAMPLES = pathlib.Path(__file__).parents[3] / "examples"


def found(*lines: str, **more: Any) -> list[Finding]:
    text = "\n".join(["id: it", *lines])
    return examine_text(text, source="it.yaml", **more).findings


def seen(finding: Finding) -> tuple[str, int, int, str]:
    return finding.code, finding.place.line, finding.place.column, finding.message


def only(*lines: str, **more: Any) -> tuple[str, int, int, str]:
    (finding,) = found(*lines, **more)
    return seen(finding)


def codes(*lines: str, **more: Any) -> list[str]:
    return [finding.code for finding in found(*lines, **more)]


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.yaml")), ids=lambda file: file.stem)
def test_the_examples_are_sound(file: pathlib.Path) -> None:
    examined = examine_file(file)

    assert examined.findings == []
    assert check(load_file(file)) == []
    assert examined.accepted().definition.id == file.stem


# --- links ----------------------------------------------------------------------------------------


def test_a_dangling_link_is_named_with_what_was_meant() -> None:
    (finding,) = found(
        "tasks:",
        "  pay: {do: pay}",
        "  ship: {do: ship, after: pay}",
        "links:",
        "  - {from: pay, to: shp}",
    )

    assert seen(finding) == ("dangling-link", 6, 21, "no task `shp`")
    assert finding.hint == "did you mean `ship`?"


def test_an_after_that_dangles_is_found_where_it_is_written() -> None:
    assert only("tasks:", "  a: {do: a}", "  b:", "    do: b", "    after: [a, c]") == (
        *("dangling-link", 6, 16, "no task `c`"),
    )


def test_a_link_into_a_body_or_out_of_it_dangles() -> None:
    (finding,) = found(
        "tasks:",
        "  a: {do: a}",
        "  m: {type: map, items: input, body: {tasks: {b: {do: b, after: a}}}}",
    )

    assert seen(finding)[:3] == ("dangling-link", 4, 65)
    assert finding.hint == "links stay inside their scope: that task is around this body"


def test_nothing_leads_to_a_start_or_on_from_an_end() -> None:
    assert codes(
        "tasks:",
        "  s: {type: start}",
        "  a: {do: a, after: s}",
        "  e: {type: end, after: a}",
        "links: [{from: e, to: a, when: x}, {from: a, to: s, when: x}]",
    ) == ["link-from-end", "unknown-name", "link-to-start", "unknown-name"]


def test_a_second_start_is_refused() -> None:
    assert only(
        *("tasks:", "  s: {type: start}", "  t: {type: start}", "  a: {do: a, after: [s, t]}")
    ) == ("start-repeated", 4, 3, "`t` is a second start beside `s`")


def test_a_link_written_twice_is_a_warning() -> None:
    (finding,) = found(
        *("tasks:", "  a: {do: a}", "  b: {do: b, after: a}", "links: [{from: a, to: b}]")
    )

    assert (finding.code, finding.level) == ("duplicate-link", "warning")


# --- paths ----------------------------------------------------------------------------------------


def test_a_task_that_start_does_not_reach_is_named() -> None:
    assert only(
        *("tasks:", "  s: {type: start}", "  a: {do: a, after: s}", "  b: {do: b}"),
        *("  c: {do: c, after: b}",),
    ) == ("no-path", 5, 3, "no path from start to `b`")


def test_a_task_that_reaches_no_end_is_named() -> None:
    assert only(
        *("tasks:", "  a: {do: a}", "  b: {do: b, after: a}", "  c: {do: c, after: b}"),
        *("  e: {type: end, after: a}",),
    ) == ("no-path", 5, 3, "no path from `c` to an end")


def test_a_cycle_without_a_way_out_is_named_as_one() -> None:
    assert only(
        "tasks:",
        "  a: {do: a}",
        "  b: {do: b, after: a}",
        "  c: {do: c, after: b}",
        "  e: {type: end, after: a}",
        "links: [{from: c, to: b, when: iteration < 3}]",
    ) == ("no-path", 4, 3, "no path from `b`, `c` to an end")


def test_bodies_are_checked_like_definitions() -> None:
    findings = found(
        "tasks:",
        "  l:",
        "    type: loop",
        "    while: iteration < 3",
        "    body:",
        "      tasks:",
        "        a: {do: a}",
        "        e: {type: end}",
    )

    assert [seen(finding) for finding in findings] == [
        ("no-path", 8, 9, "no path from `a` to an end"),
        ("no-path", 9, 9, "no path from start to `e`"),
    ]


# --- cycles ---------------------------------------------------------------------------------------


def test_an_irreducible_cycle_is_named_with_its_ways_in() -> None:
    (finding,) = found(
        "tasks:",
        "  a: {do: a}",
        "  b: {do: b, after: [a, c]}",
        "  c: {do: c, after: [a, b]}",
    )

    assert seen(finding) == (
        *("cycle-irreducible", 4, 3),
        "the cycle `b -> c -> b` has more than one way in: `b` and `c`",
    )


def test_a_cycle_without_condition_is_named_at_the_link_back() -> None:
    (finding,) = found(
        "tasks:",
        "  a: {do: a}",
        "  b: {do: b, after: a}",
        "  c: {do: c, after: b}",
        "links:",
        "  - {from: b, to: a}",
    )

    assert seen(finding) == (
        *("cycle-unconditional", 7, 5, "the cycle `a -> b -> a` goes round without a condition"),
    )
    assert finding.hint == "give the link from `b` to `a` a `condition`"


@pytest.mark.parametrize(
    ("link", "sound"),
    [
        ("{from: b, to: a, when: iteration < 3}", True),
        ("{from: b, to: a, on: error}", True),
        ("{from: b, to: a, on: always}", False),
        ("{from: b, to: a}", False),
    ],
)
def test_a_link_back_needs_a_condition_or_a_failure(link: str, sound: bool) -> None:
    found_codes = codes(
        *("tasks:", "  a: {do: a}", "  b: {do: b, after: a}", "  c: {do: c, after: b}"),
        f"links: [{link}]",
    )

    assert found_codes == ([] if sound else ["cycle-unconditional"])


@pytest.mark.parametrize(
    ("default", "other", "sound"),
    [
        ("default: a,", "when: input.ok", True),
        ("default: a,", "on: always", False),
        ("", "when: input.ok", False),
    ],
)
def test_a_gateways_default_leads_back_if_the_others_have_conditions(
    default: str, other: str, sound: bool
) -> None:
    found_codes = codes(
        "tasks:",
        "  a: {do: a}",
        f"  g: {{type: gateway, kind: exclusive, {default} after: a}}",
        "  c: {do: c}",
        f"links: [{{from: g, to: c, {other}}}, {{from: g, to: a}}]",
    )

    assert found_codes == ([] if sound else ["cycle-unconditional"])


# --- gateways and joins ---------------------------------------------------------------------------


def test_a_gateway_that_leads_nowhere_is_named_once() -> None:
    assert only(
        *("tasks:", "  a: {do: a}", "  g: {type: gateway, kind: inclusive, after: a}"),
        *("  e: {type: end, after: a}",),
    ) == ("gateway-no-links", 4, 3, "gateway `g` leads nowhere")


def test_a_default_must_be_a_target() -> None:
    lines = (
        "tasks:",
        "  g: {type: gateway, kind: exclusive, default: c}",
        "  b: {do: b, after: g}",
    )

    assert only(*lines, "  c: {do: c, after: b}") == (
        *("gateway-default", 3, 48, "`c` is no target of gateway `g`"),
    )


def test_only_choices_have_a_default() -> None:
    assert codes(
        *("tasks:", "  g: {type: gateway, kind: parallel, default: b}", "  b: {do: b, after: g}")
    ) == ["gateway-default"]


def test_an_event_gateway_leads_to_what_waits() -> None:
    lines = (
        "tasks:",
        "  g: {type: gateway, kind: event}",
        "  t: {type: timer, delay: 1s, after: g}",
    )

    assert codes(*lines, "  f: {type: form, schema: true, after: g}") == []
    assert only(*lines, "  b: {do: b, after: g}") == (
        *("gateway-event-target", 5, 21),
        "event gateway `g` leads to `b`, which is of type `activity`",
    )


def test_what_an_event_gateway_waits_for_is_in_the_same_pass() -> None:
    assert only(
        "tasks:",
        "  a: {do: a}",
        "  g: {type: gateway, kind: event, after: a}",
        "  t: {type: timer, delay: 1s, after: g}",
        "  s: {type: signal, after: g}",
        "links: [{from: s, to: a, when: iteration < 5}, {from: s, to: end}]",
    ) == (
        *("gateway-event-target", 5, 38),
        "event gateway `g` leads to `t`, out of the loop or back in it",
    )


def test_a_join_cannot_wait_for_more_links_than_there_are() -> None:
    assert only(
        *("tasks:", "  a: {do: a}", "  b: {do: b}", "  c: {do: c, after: [a, b], join: {n: 3}}")
    ) == ("join-starved", 5, 35, "`c` waits for 3 links, and only 2 lead to it")


def test_links_back_do_not_count_for_a_join() -> None:
    assert codes(
        "tasks:",
        "  a: {do: a}",
        "  b: {do: b, after: a, join: {n: 2}}",
        "  c: {do: c, after: b}",
        "links: [{from: c, to: b, when: iteration < 2}]",
    ) == ["join-starved"]


# --- what tasks refer to --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "column", "code", "message", "hint"),
    [
        ("{from: chrge}", 20, "unknown-source", "no task or source `chrge`", "did you mean `charge`?"),
        ("{from: tasks.charge}", 20, "unknown-source", "no task or source `tasks.charge`", "did you mean `charge`?"),
        ("{from: charge.output}", 20, "unknown-source", "no task or source `charge.output`", "did you mean `charge`?"),
        ("{from: item}", 20, "unknown-source", "`item` exists only inside of a map", None),
        ("{from: iteration}", 20, "unknown-source", "`iteration` exists only inside of a loop", None),
        ("{from: input, path: x.y}", 33, "path-invalid", None, "a path looks like `$.order.lines[0]`"),
        ("Dear ${inptu.name}", 20, "unknown-name", "nothing is called `inptu`", "did you mean `input`?"),
        ("'${1 +}'", 19, "expression-invalid", None, None),
        ("{template: '${tasks.x.output}'}", 33, "unknown-task", "no task `x`", None),
    ],
)  # fmt: skip
def test_an_input_that_comes_from_nowhere_is_named(
    source: str, column: int, code: str, message: str | None, hint: str | None
) -> None:
    (finding,) = found(
        "tasks:",
        "  charge: {do: c}",
        "  ship:",
        "    do: s",
        "    inputs:",
        f"      card: {source}",
    )

    assert (finding.code, finding.place.line, finding.place.column) == (code, 7, column)
    assert message is None or finding.message == message
    assert hint is None or finding.hint == hint


@pytest.mark.parametrize(
    ("expression", "column", "code", "message"),
    [
        ("tasks.chrge.output", 17, "unknown-task", "no task `chrge`"),
        ("tasks.charge.outputs", 24, "unknown-name", "a task has no `outputs`"),
        ("charge.output == 1", 11, "unknown-name", "nothing is called `charge`"),
        ("index > 2", 11, "unknown-name", "`index` exists only inside of a map"),
        ("input.x >", 20, "expression-invalid", None),
        ("nofunction(1)", None, "expression-invalid", None),
        ("'now > run.strat || input.list.exists(i, i.ok)'", None, None, None),
        ("tasks[input.name].output", None, None, None),
    ],
)
def test_an_expression_that_reads_nothing_is_named(
    expression: str, column: int | None, code: str | None, message: str | None
) -> None:
    findings = found("tasks:", "  charge:", "    do: c", f"    when: {expression}")

    assert [finding.code for finding in findings] == ([] if code is None else [code])
    for finding in findings:
        assert column is None or (finding.place.line, finding.place.column) == (5, column)
        assert message is None or finding.message == message


def test_expressions_are_checked_everywhere() -> None:
    findings = found(
        "tasks:",
        "  a: {type: transform, set: {x: nope}}",
        "  b: {type: map, items: nope, body: {do: x, when: item.nope && nope}}",
        "  c: {type: loop, until: nope, body: {do: x}}",
        "  d: {do: d, onComplete: [{set: {x: nope}}], onError: {notify: '${nope}'}}",
        "  e: {type: http, method: GET, url: 'https://${nope}', headers: {x: '${nope}'}}",
        "  f: {type: publish, topic: t, payload: [{x: '${nope}'}]}",
        "  g: {type: signal, reply: nope, timeout: '${nope}'}",
        "  h: {type: form, schema: true, assignee: '${nope}'}",
        "  i: {type: subworkflow, definition: '${nope}'}",
        "  j: {type: timer, until: '${nope}'}",
        "  k: {do: k, compensate: {do: k, inputs: {x: '${nope}'}}}",
        "links: [{from: a, to: b, when: nope}]",
        "outputs: {x: nope}",
        "queries: {x: nope}",
        "data: {x: {merge: nope}, y: {merge: current + value}}",
    )

    assert {finding.code for finding in findings} == {"unknown-name"}
    lines = [finding.place.line for finding in findings]
    assert lines == [3, 4, 4, 5, 6, 6, 7, 7, 8, 9, 9, 10, 11, 12, 13, 14, 15, 16, 17]


def test_types_are_checked_against_the_input_schema() -> None:
    schema = (
        "inputSchema: {type: object, properties: {n: {type: integer}}, additionalProperties: false}"
    )

    assert codes("tasks:", "  a: {do: a, when: input.n > 1}", schema) == []
    assert codes("tasks:", "  a: {do: a, when: input.m > 1}", schema) == ["expression-invalid"]


def test_scopes_have_names_of_their_own() -> None:
    assert (
        codes(
            "tasks:",
            "  m:",
            "    type: map",
            "    items: input",
            "    body:",
            "      type: loop",
            "      until: tasks.try.output.ok || iteration > 3",
            "      body:",
            "        tasks:",
            "          try: {do: t, inputs: {i: {from: item}, n: {from: index}, k: {from: iteration}}}",
            "          log: {do: l, after: try, when: tasks.before.status != 'x' && item.y}",
            "  before: {do: b}",
        )
        == []
    )


def test_nobody_sees_into_a_body() -> None:
    assert codes(
        "tasks:",
        "  m: {type: map, items: input, body: {do: x}}",
        "  a: {do: a, after: m, when: tasks.x.output}",
    ) == ["unknown-task"]


def test_a_natural_loop_counts_its_passes() -> None:
    assert codes(
        "tasks:",
        "  a: {do: a, inputs: {n: {from: iteration}}}",
        "  b: {do: b, after: a, when: iteration > 1}",
        "links: [{from: b, to: a, when: iteration < 3}]",
    ) == []  # fmt: skip
    assert codes("tasks:", "  a: {do: a, when: iteration > 1}") == ["unknown-name"]


def test_cancel_names_tasks() -> None:
    assert only("tasks:", "  a: {do: a}", "  c: {type: cancel, tasks: [a, aa], after: a}") == (
        *("unknown-task", 4, 32, "no task `aa`"),
    )


@pytest.mark.parametrize(
    ("line", "column"),
    [
        ("  a: {do: a, outputSchema: {type: objekt}}", 35),
        ("  a: {type: form, schema: {properties: 5}}", 40),
        ("  a: {type: signal, schema: {type: 5}}", 36),
        ("  a: {do: a, outputSchema: {$ref: 'https://example.com/x'}}", 35),
        ("  a: {do: a, outputSchema: {$ref: '#/$defs/nothing'}}", 28),
    ],
)
def test_a_schema_that_is_none_is_named(line: str, column: int) -> None:
    code, at_line, at_column, _ = only("tasks:", line)

    assert (code, at_line, at_column) == ("schema-invalid", 3, column)


def test_secrets_go_only_where_they_are_resolved() -> None:
    assert codes("tasks:", "  a: {do: a, inputs: {k: {secret: K}}}") == []
    assert only("tasks:", "  a: {type: subworkflow, definition: x, inputs: {k: {secret: K}}}") == (
        *("secret-misplaced", 3, 53, "a secret can't be given to a task of type `subworkflow`"),
    )
    assert codes("tasks:", "  a: {do: a, compensate: {do: u, inputs: {k: {secret: K}}}}") == [
        "not-yet"
    ]


def test_inputs_that_nothing_takes_are_named() -> None:
    assert only("tasks:", "  a: {type: timer, delay: 1s, inputs: {x: 1}}") == (
        *("unused-input", 3, 31, "a task of type `timer` takes no inputs"),
    )


def test_http_takes_what_it_takes_and_any_header() -> None:
    line = "  a: {type: http, method: GET, url: x, inputs: {headers.Auth: {secret: K}, %s: 1}}"

    assert codes("tasks:", line % "body") == []
    assert only("tasks:", line % "boddy") == (
        *("unknown-name", 3, 76, "http has no parameter `boddy`"),
    )


def test_a_template_inside_of_a_value_is_a_warning() -> None:
    (finding,) = found("tasks:", "  a: {do: a, inputs: {x: {y: ['${input.z}']}}}")

    assert (finding.code, finding.level) == ("template-literal", "warning")
    assert (finding.place.line, finding.place.column) == (3, 31)


def test_unknown_activities_are_named_where_they_are_known() -> None:
    line = "  a: {do: chrage, compensate: refnd}"

    assert codes("tasks:", line) == []
    assert [
        seen(finding) for finding in found("tasks:", line, activities=["charge", "refund"])
    ] == [
        ("unknown-activity", 3, 11, "no activity `chrage`"),
        ("unknown-activity", 3, 31, "no activity `refnd`"),
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("triggers: [{webhook: x}]", "triggers by webhook are not here yet"),
    ],
)
def test_what_is_not_here_yet_is_refused_not_ignored(line: str, message: str) -> None:
    code, at_line, _, text = only("tasks: {a: {do: a}}", line)

    assert (code, at_line, text) == ("not-yet", 3, message)


def test_only_cel_is_spoken() -> None:
    lines = ("tasks:", "  a: {do: a, conditions: [{expression: x, language: lua}]}")

    assert only(*lines) == ("unknown-language", 3, 53, "no expression language is called `lua`")


# --- all at once ----------------------------------------------------------------------------------


def test_what_is_wrong_with_document_and_structure_is_said_together() -> None:
    assert codes(
        "tasks:",
        "  a: {do: a, retri: 5}",
        "  b: {do: b, after: c}",
        "  d: {type: tmer, after: a}",
        "  e: {do: e, when: nope}",
    ) == ["unknown-field", "dangling-link", "unknown-type", "unknown-name"]


def test_links_that_can_not_be_read_make_no_further_findings() -> None:
    assert codes(
        *("tasks:", "  a: {do: a}", "  b: {do: b}", "  e: {type: end, after: b}"),
        *("links:", "  - {from: a, too: b}"),
    ) == ["field-missing", "unknown-field"]


def test_a_refused_definition_carries_every_finding() -> None:
    examined = examine_document({"id": "it", "tasks": {"a": {"do": "a", "after": ["b", "c"]}}})

    with pytest.raises(DefinitionInvalid, match=r"^no task `b` \(and 1 more\)\n") as caught:
        examined.accepted()
    assert caught.value.findings == examined.findings == examined.errors
    assert examined.findings[0].place.path == ("links", 0, "from")


def test_warnings_do_not_refuse() -> None:
    text = "id: it\ntasks:\n  a: {do: a}\n  b: {do: b, after: [a, a]}\n"

    examined = examine_text(text)

    assert [finding.level for finding in examined.findings] == ["warning"]
    assert examined.accepted().definition == load(text).definition


def test_two_thousand_tasks_and_ten_thousand_links_are_checked_in_a_moment() -> None:
    tasks = {f"t{n}": {"do": "x", "when": f"tasks.t{n}.attempts < {n}"} for n in range(2000)}
    links = [
        {"from": f"t{n}", "to": f"t{m}"}
        for n in range(2000)
        for m in (n + 1, n + 2, n + 5, n + 11, n + 50)
        if m < 2000
    ]
    links.append({"from": "t1999", "to": "t0", "when": "iteration < 3"})
    began = time.process_time()

    examined = examine_document({"id": "it", "tasks": tasks, "links": links})

    assert examined.findings == []
    assert time.process_time() - began < 4
