"""Two versions compared: what came, went, changed and was renamed (SPEC 2.7)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.dsl.diff import Difference, compare
from penstock.dsl.load import load_document
from penstock.errors import Rejected
from penstock.model.definition import Definition


def made(tasks: dict[str, Any], **more: Any) -> Definition:
    return load_document({"id": "order", "tasks": tasks, **more}).definition


def chain(*names: str, **changes: dict[str, Any]) -> Definition:
    tasks: dict[str, Any] = {}
    for before, name in zip((None, *names), names, strict=False):
        tasks[name] = {"do": name.rstrip("2"), **({} if before is None else {"after": before})}
        tasks[name] |= changes.get(name, {})
    return made(tasks)


def test_the_same_has_no_difference() -> None:
    assert compare(chain("a", "b"), chain("a", "b")).same


def test_an_inserted_task_brings_its_links() -> None:
    found = compare(chain("a", "b"), chain("a", "x", "b"))

    assert found.added == ("x",)
    assert [str(link) for link in found.links_added] == ["a -> x", "x -> b"]
    assert [str(link) for link in found.links_removed] == ["a -> b"]
    assert not found.removed
    assert not found.changed


def test_a_field_is_named_at_its_deepest_place() -> None:
    found = compare(chain("a"), chain("a", a={"retry": {"attempts": 7}}))

    (change,) = found.changed
    assert [(f.field, f.before, f.after) for f in change.fields] == [
        ("retry", None, {"attempts": 7})
    ]
    found = compare(
        chain("a", a={"retry": {"attempts": 5}}), chain("a", a={"retry": {"attempts": 7}})
    )
    assert [(f.field, f.before, f.after) for f in found.changed[0].fields] == [
        ("retry.attempts", 5, 7)
    ]


def test_a_renamed_task_is_guessed_by_content_and_position() -> None:
    found = compare(chain("a", "b", "c"), chain("a", "b2", "c"))

    assert found.renamed == {"b": "b2"}
    assert found.changed[0].guessed
    assert not found.added
    assert not found.links_added


def test_another_activity_elsewhere_is_no_renaming() -> None:
    found = compare(chain("a", "b"), made({"a": {"do": "a"}, "z": {"do": "other"}}))

    assert found.removed == ("b",)
    assert found.added == ("z",)


def test_a_mapping_is_taken_at_its_word() -> None:
    old, new = chain("a", "b"), made({"a": {"do": "a"}, "z": {"do": "other", "after": "a"}})

    found = compare(old, new, {"b": "z"})

    assert found.renamed == {"b": "z"}
    assert not found.changed[0].guessed
    assert [f.field for f in found.changed[0].fields] == ["config.activity"]


@pytest.mark.parametrize(
    ("mapping", "told"),
    [
        ({"q": "a"}, "old version has no task `q`"),
        ({"a": "q"}, "new version has no task `q`"),
        ({"a": "b", "b": "b"}, "two tasks would become `b`"),
    ],
)
def test_a_mapping_of_what_is_not_there_is_refused(mapping: dict[str, str], told: str) -> None:
    with pytest.raises(Rejected, match=told) as caught:
        compare(chain("a", "b"), chain("a", "b"), mapping)

    assert caught.value.code == "mapping-invalid"
    assert caught.value.hint


def test_bodies_are_compared_task_by_task() -> None:
    def mapped(*inner: str) -> Definition:
        body = {
            "tasks": {
                name: {"do": name, **({"after": before} if before else {})}
                for before, name in zip((None, *inner), inner, strict=False)
            }
        }
        return made({"items": {"type": "map", "config": {"items": "[1]", "body": body}}})

    found = compare(mapped("pack", "seal"), mapped("pack", "label", "seal"))

    assert found.added == ("items/label",)
    assert not found.changed
    assert str(found.links_removed[0]) == "items: pack -> seal"


def test_a_condition_that_changed_is_a_changed_link() -> None:
    def guarded(expression: str) -> Definition:
        return made({
            "a": {"do": "a"}, "b": {"do": "b"}, "start": {"type": "start"}, "end": {"type": "end"},
        }, links=[
            {"from": "start", "to": "a"}, {"from": "a", "to": "b", "condition": {"expression": expression}},
            {"from": "a", "to": "end", "on": "error"}, {"from": "b", "to": "end"},
        ])  # fmt: skip

    found = compare(guarded("input.n > 1"), guarded("input.n > 2"))

    (change,) = found.links_changed
    assert str(change.link) == "a -> b"
    assert change.fields[0].after == "input.n > 2"


def test_data_and_outputs_are_told_by_their_names() -> None:
    old = made({"a": {"do": "a"}}, data={"n": {"value": 1}}, outputs={"n": "data.n"})
    new = made({"a": {"do": "a"}}, data={"n": {"value": 2}, "m": {}}, outputs={"n": "data.n + 1"})

    assert [f.field for f in compare(old, new).fields] == ["outputs.n", "data.n.value", "data.m"]


NAMES = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=6, unique=True)


@given(NAMES, NAMES)
def test_a_comparison_counts_every_task_once(before: list[str], after: list[str]) -> None:
    old, new = chain(*before), chain(*after)
    found: Difference = compare(old, new)

    renamed = found.renamed
    assert set(old.tasks) == set(found.removed) | set(renamed) | (set(old.tasks) & set(new.tasks))
    assert set(new.tasks) == set(found.added) | set(renamed.values()) | (
        set(old.tasks) & set(new.tasks)
    )
    assert found.same == (old == new)


@given(NAMES, NAMES)
def test_a_comparison_turned_round_tells_the_opposite(before: list[str], after: list[str]) -> None:
    there = compare(chain(*before), chain(*after), guess=False)
    back = compare(chain(*after), chain(*before), guess=False)

    assert there.added == back.removed
    assert {str(link) for link in there.links_added} == {str(link) for link in back.links_removed}
