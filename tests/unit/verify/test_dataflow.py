"""What data flow says beside the corpus of tests/verify (SPEC 3.6): signatures of activities, null, what is not known."""

from __future__ import annotations

import pytest

from penstock.core.plan import Plan
from penstock.dsl.finding import Finding
from penstock.dsl.load import load
from penstock.verify.rehearsal import rehearse
from penstock.verify.scenario import Scenario
from penstock.verify.verification import Signature, Verification, verify

CODES = ("input-missing", "input-unfit", "input-untyped", "expression-fails", "unused-input")
TEXT = {"type": "string"}
NUMBER = {"type": "integer"}
MAYBE = {"anyOf": [{"type": "string"}, {"type": "null"}]}
ACTIVITIES = {
    "ship": Signature({"to": TEXT, "count": NUMBER}, frozenset({"to"}), result=NUMBER),
    "note": Signature({"text": MAYBE}, frozenset(), result=TEXT),
    "any": Signature(open_ended=True),
}
INPUT = """\
inputSchema:
  type: object
  properties: {to: {type: string}, n: {type: integer}}
  required: [to, n]
  additionalProperties: false
"""


def verified(text: str) -> tuple[Verification, Plan]:
    loaded = load("id: it\n" + text, source="it.yaml")
    return verify(loaded, activities=ACTIVITIES), Plan(loaded.definition)


def found(text: str) -> list[Finding]:
    verification, plan = verified(text)
    findings = [finding for finding in verification.findings if finding.code in CODES]
    for finding in findings:
        if isinstance(finding.counterexample, Scenario):
            rehearsal = rehearse(plan, finding.counterexample)
            assert rehearsal.shown, rehearsal.why
    return findings


@pytest.mark.parametrize(
    ("task", "code"),
    [
        ("{do: ship, inputs: {to: {from: input, path: $.to}, cout: 3}}", "unused-input"),
        ("{do: ship, inputs: {count: 3}}", "input-missing"),
        ("{do: ship, inputs: {to: {value: 3}}}", "input-unfit"),
        ("{do: ship, inputs: {to: {from: input, path: $.n}}}", "input-unfit"),
        ("{do: ship, inputs: {to: a, count: {from: input, path: $.to}}}", "input-unfit"),
    ],
)
def test_a_call_that_does_not_fit_its_signature(task: str, code: str) -> None:
    given = INPUT
    if code == "input-missing":
        given = given.replace("to: {type: string}, ", "").replace("[to, n]", "[n]")

    (finding,) = found(given + f"tasks:\n  a: {task}\n")

    assert (finding.code, finding.level) == (code, "error")
    assert finding.place.line >= 7
    assert finding.hint


@pytest.mark.parametrize(
    "task",
    [
        "{do: ship, inputs: {to: {from: input, path: $.to}, count: 3}}",
        "{do: ship}",  # `to` comes from the input, by its name
        '{do: ship, inputs: {to: "${input.n}/${input.to}"}}',
        "{do: any, inputs: {whatever: 1}}",
        "{do: unknown, inputs: {whatever: 1}}",
    ],
)
def test_a_call_that_fits(task: str) -> None:
    text = INPUT + f"tasks:\n  a: {task}\n"
    loaded = load("id: it\n" + text, source="it.yaml")

    assert (
        verify(loaded, activities={**ACTIVITIES, "unknown": Signature(open_ended=True)}).findings
        == []
    )


def test_the_result_of_one_activity_is_given_to_another() -> None:
    (finding,) = found("""\
tasks:
  a: {do: ship, inputs: {to: x}}
  b: {do: ship, after: [a], inputs: {to: {from: a}}}
""")

    assert finding.code == "input-unfit"
    assert finding.message == "`to` of activity `ship` takes a string, and is given an integer"


SKIPPED = """\
inputSchema: {type: object, properties: {n: {type: integer}}, required: [n]}
tasks:
  a: {do: note, when: input.n > 3}
  b: {do: %s, after: [a], inputs: {text: {from: a}}}
"""


def test_null_for_a_parameter_of_which_nothing_is_known_is_a_warning_that_is_shown() -> None:
    (finding,) = found(SKIPPED % "any")

    assert (finding.code, finding.level) == ("input-missing", "warning")
    assert isinstance(finding.counterexample, Scenario)
    assert finding.counterexample.shows.task_status == "SKIPPED"


def test_null_for_a_parameter_that_takes_it_is_none() -> None:
    assert found(SKIPPED % "note") == []


def test_what_nobody_describes_is_noted_once_and_the_rule_is_unknown() -> None:
    verification, _ = verified("""\
tasks:
  a: {do: any, inputs: {x: "${input.a.b}", y: "${input.c}"}}
  b: {do: any, after: [a], inputs: {x: "${tasks.a.output.z}"}}
""")

    (finding,) = [f for f in verification.findings if f.code == "input-untyped"]
    assert finding.level == "note"
    assert "`input`" in finding.message
    assert verification.verdict("3.6") == "unknown"


@pytest.mark.parametrize(
    "text",
    [
        # Correlated: whenever `c` runs, `a` did.
        """\
inputSchema: {type: object, properties: {n: {type: integer}}, required: [n]}
tasks:
  a: {do: note, when: input.n > 3, outputSchema: {type: object, properties: {z: {}}, required: [z]}}
  c: {do: any, after: [a], when: input.n > 5, inputs: {z: {from: a, path: $.z}}}
""",
        # A list of what there is may be empty.
        """\
tasks:
  a: {do: any, outputSchema: {type: array}}
  b: {do: any, after: [a], inputs: {z: {from: a, path: "$[*].z"}}}
""",
        # Null is as good as anything where it is only compared.
        """\
inputSchema: {type: object, properties: {n: {type: integer}}, required: [n]}
tasks:
  a: {do: note, when: input.n > 3}
  b: {do: any, after: [a], inputs: {z: "${tasks.a.output == null}"}}
""",
        # It comes from around the body.
        """\
tasks:
  a: {do: any, outputSchema: {type: object, properties: {z: {type: string}}, required: [z]}}
  m: {type: map, after: [a], items: "[1, 2]", body: {do: any, inputs: {z: {from: a, path: $.z}, i: {from: item}}}}
""",
        # Templates in a body; a task may be called as a field is.
        """\
inputSchema: {type: object, properties: {url: {type: string}}, required: [url]}
tasks:
  conditions:
    type: map
    items: "[1, 2]"
    body:
      tasks:
        config: {type: http, method: GET, url: "${input.url}/${index}"}
        onError: {type: publish, topic: t, payload: {n: "${index}"}, after: [config]}
""",
    ],
)
def test_near_misses(text: str) -> None:
    verification, _ = verified(text)

    assert [f for f in verification.findings if f.code in CODES] == []
    assert verification.verdict("3.6") == "proved"


def test_more_expressions_than_the_solver_is_asked_are_told_once() -> None:
    tasks = "".join(
        f'  t{n}: {{do: any, inputs: {{v: "${{input.n + {n}}}"}}}}\n' for n in range(170)
    )

    (finding,) = [f for f in found(INPUT + "tasks:\n" + tasks) if f.level != "note"]

    assert finding.level == "warning"
    assert finding.message.startswith("20 expressions were not looked at")


OBJECT = "outputSchema: {type: object, required: [a], properties: {a: {type: integer}}}"


@pytest.mark.parametrize(
    ("tasks", "words"),
    [
        (f"  x: {{do: any, {OBJECT}}}\n  y: {{do: any, after: x, inputs: {{p: {{from: x, path: $.b}}}}}}", "`tasks.x.output.b` need not be there"),
        (f"  x: {{do: any, {OBJECT}}}\n  y: {{type: transform, after: x, set: {{v: tasks.x.output.b + 1}}}}", "can fail"),
        ("  x: {type: gateway, kind: exclusive}\n  y: {do: any, after: x, inputs: {p: {from: x, path: $.b}}}", "`tasks.x.output.b` need not be there"),
        ("  x: {type: timer, delay: 1s}\n  y: {do: any, after: x, inputs: {p: {from: x, path: $.b}}}", "`tasks.x.output.b` need not be there"),
        ("  x: {do: any, onComplete: [{set: {n: data.n + 1}}]}", "the first time, before `x` has set it"),
        ("  x: {type: transform, set: {n: data.m + 1, m: '1'}}", "the first time, before `x` has set it"),
        ("  x: {type: loop, while: iteration < 3, body: {tasks: {y: {do: any, inputs: {p: {from: x, path: $.b}}}}}}", "as `x`, which it is in, is not over"),
    ],
)  # fmt: skip
def test_what_is_never_there_is_refuted(tasks: str, words: str) -> None:
    """Found by mutation (docs/concepts/mutation.md)."""
    (finding,) = [f for f in found(f"{INPUT}tasks:\n{tasks}\n") if f.level == "error"]

    assert words in finding.message


@pytest.mark.parametrize(
    "tasks",
    [
        "  x: {type: transform, set: {m: '1', n: data.m + 1}}",
        "  x: {do: any, onComplete: [{set: {m: '1'}}, {set: {n: data.m + 1}}]}",
        "  x: {do: any, onComplete: [{set: {n: 'has(data.n) ? 2 : 1'}}]}",
    ],
)
def test_what_a_task_has_set_itself_is_there(tasks: str) -> None:
    assert [f for f in found(f"{INPUT}tasks:\n{tasks}\n") if f.level == "error"] == []


GUARDED = """\
inputSchema: {type: object, required: [n], properties: {n: {type: integer}, c: {type: string}}}
tasks:
  x: {do: any, when: input.n > 5, outputSchema: {type: object, REQUIRED properties: {a: {type: integer}}}}
  y: {do: any, when: has(input.c), outputSchema: {type: object, required: [b], properties: {b: {type: integer}}}}
  z: {type: transform, after: [x, y], set: {v: '(tasks.x.output == null ? 0 : tasks.x.output.a) + (tasks.y.output == null ? 0 : tasks.y.output.b)'}}
"""  # fmt: skip


def test_a_task_that_completed_had_its_condition_hold() -> None:
    """What may be missing of `x` is shown with an input for which `x` runs; `y`, which may be skipped, is not to blame."""
    (finding,) = found(GUARDED.replace("REQUIRED", ""))

    assert (finding.code, finding.level) == ("expression-fails", "error")
    assert finding.counterexample.input["n"] > 5
    (note,) = found(GUARDED.replace("REQUIRED", "required: [a],"))
    assert (note.level, "leave 64 bits" in note.message) == ("note", True)


def test_a_loop_asks_before_anything_in_it_has_run() -> None:
    (finding,) = [f for f in found("""\
tasks:
  x: {type: loop, while: data.n < 3, body: {tasks: {y: {type: transform, set: {n: '1'}}}}}
""") if f.level == "error"]  # fmt: skip

    assert "before anything in `x` has run" in finding.message


def test_a_run_that_waits_for_an_event_is_played() -> None:
    findings = found("""\
tasks:
  x: {type: event, topic: t, where: event.run == run.id}
  y: {do: any, after: x, outputSchema: {type: object, properties: {a: {type: integer}}}}
outputs: {v: tasks.y.output.a}
""")

    assert [f.code for f in findings if f.level == "error"] == ["expression-fails"]


TIMED = """\
inputSchema:
  type: object
  required: [d]
  properties: {{d: {schema}}}
tasks: {{t: {{type: timer, {field}: "{what}"}}}}
"""


@pytest.mark.parametrize(
    ("field", "schema", "what", "level"),
    [
        ("delay", "{type: string}", "${input.d}", "error"),
        ("delay", "{type: string, format: duration}", "${input.d}", "warning"),
        ("delay", "{}", "${input.d}", "warning"),
        ("delay", "{type: number}", "${input.d}", "error"),
        ("delay", "{type: [integer, 'null'], minimum: 0}", "${input.d}", "error"),
        ("delay", "{type: number, minimum: 0}", "${input.d}", ""),
        ("delay", "{enum: [1s, PT5M, 3]}", "${input.d}", ""),
        ("delay", "{enum: [1s, P1M]}", "${input.d}", "error"),
        ("delay", "{type: integer}", "${input.d}m", "error"),
        ("delay", "{type: integer, minimum: 0}", "${input.d}m", ""),
        ("until", "{type: string}", "${input.d}", "error"),
        ("until", "{type: string, format: date-time}", "${input.d}", "warning"),
        ("until", "{type: number}", "${input.d}", ""),
        ("until", "{type: number}", "${now + duration('1h')}", ""),
    ],
)
def test_what_a_timer_reads_is_a_duration_or_a_time(
    field: str, schema: str, what: str, level: str
) -> None:
    text = TIMED.format(field=field, schema=schema, what=what)
    levels = [each.level for each in found(text) if each.code == "expression-fails"]
    assert levels == ([level] if level else [])
    verdicts = [proof.verdict for proof in verified(text)[0].proofs if proof.rule == "3.6"]
    assert (verdicts == ["proved"]) is (not level)


@pytest.mark.parametrize(
    ("schema", "topic", "level"),
    [
        ("{type: string}", "${input.t}", "error"),
        ("{type: string}", "orders.${input.t}", "error"),
        ("{enum: [a, b c]}", "${input.t}", "error"),
        ("{}", "${input.t}", "warning"),
        ("{type: string, pattern: '^[a-z]+$'}", "${input.t}", "warning"),
        ("{enum: [a, b.c]}", "${input.t}", None),
        ("{enum: [a, b.c]}", "orders.${input.t}", None),
        ("{const: a}", "orders.${input.t}", None),
    ],
)
@pytest.mark.parametrize(
    "task",
    [
        "{type: publish, payload: 1, %s}",
        "{do: any, onComplete: {publish: {payload: 1, %s}}}",
        "{type: event, where: 'true', %s}",
    ],
)
def test_a_computed_topic(schema: str, topic: str, level: str | None, task: str) -> None:
    message = f'topic: "{topic}"'
    verification, plan = verified(
        f"inputSchema: {{type: object, required: [t], properties: {{t: {schema}}}}}\n"
        f"tasks: {{p: {task.replace('%s', message)}}}"
    )
    findings = [each for each in verification.findings if each.code == "topic-invalid"]

    assert [each.level for each in findings] == ([] if level is None else [level])
    for finding in findings:
        if level == "error":
            assert isinstance(finding.counterexample, Scenario)
            assert rehearse(plan, finding.counterexample).shown
    verdicts = {proof.verdict for proof in verification.proofs if proof.rule == "3.6"}
    wanted = {None: "proved", "warning": "unknown", "error": "refuted"}[level]
    assert wanted in verdicts
    assert level is None or "proved" not in verdicts


def test_a_task_waits_for_a_pattern_too() -> None:
    text = """\
inputSchema: {type: object, required: [t], properties: {t: {enum: ["a.*", "b.>", ">"]}}}
tasks: {w: {type: TYPE, topic: "${input.t}", MORE}}
"""
    waits = verified(text.replace("TYPE", "event").replace("MORE", "where: 'true'"))[0]
    tells = verified(text.replace("TYPE", "publish").replace("MORE", "payload: 1"))[0]

    assert waits.errors == []
    assert waits.verdict("3.6") == "proved"
    assert [each.code for each in tells.errors] == ["topic-invalid"]


MERGED = """\
data: {{x: {{{value}merge: "{merge}"}}}}
tasks:
  a: {{do: any, onComplete: [{{set: {{x: "1"}}}}]}}
  b: {{do: any, after: a, onComplete: [{{set: {{x: "{written}"}}}}]}}
"""


@pytest.mark.parametrize(
    ("value", "merge", "written", "verdict"),
    [
        ("value: 0, ", "current.foo + value", "2", "refuted"),
        ("value: 0, ", "10 / value", "0", "refuted"),
        ("value: 0, ", "current + value", "2", "proved"),
        ("", "current + value", "2", "proved"),
        ("value: 0, ", "current + value", "tasks.b.output", "unknown"),
    ],
)
def test_a_merge_is_looked_at_with_what_is_there_and_what_is_written(
    value: str, merge: str, written: str, verdict: str
) -> None:
    text = MERGED.format(value=value, merge=merge, written=written)
    found(text)
    verdicts = {proof.verdict for proof in verified(text)[0].proofs if proof.rule == "3.6"}
    assert verdicts == {verdict}
