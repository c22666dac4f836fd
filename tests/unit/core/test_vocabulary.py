"""Which names of a definition are a plugin's (SPEC 2.2)."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.core.plan import Plan
from penstock.core.vocabulary import BUILT_IN, Mentioned, Vocabulary, mentioned, mentioned_in
from penstock.dsl.load import load, load_document
from penstock.dsl.schema import KINDS
from penstock.errors import PluginMissing

LUA = {"expression": "x", "language": "lua"}


def test_our_own_types_are_those_of_the_schema() -> None:
    assert set(KINDS) == BUILT_IN


@pytest.mark.parametrize(
    "document",
    [
        {"tasks": {"a": {"type": "sql"}, "b": {"do": "x", "when": LUA}}},
        {"tasks": {"a": {"type": "sql", "after": {"from": "b", "when": LUA}}}},
        {"tasks": {"a": {"type": "sql", "after": ["c", {"from": "b", "condition": LUA}]}}},
        {"tasks": {"a": {"type": "sql", "conditions": [LUA]}}},
        {"tasks": {"m": {"type": "map", "items": "[1]", "body": {"type": "sql", "conditions": LUA}}}},
        {
            "tasks": {
                "m": {
                    "type": "loop",
                    "config": {"body": {"tasks": {"a": {"type": "sql"}}, "links": [{"condition": LUA}]}},
                }
            }
        },
        {"tasks": {"a": {"type": "sql"}}, "links": [None, "?", {"from": "a", "when": LUA}]},
    ],
)  # fmt: skip
def test_names_are_found_wherever_they_may_stand(document: dict[str, Any]) -> None:
    assert mentioned_in(document) == Mentioned(frozenset({"sql"}), frozenset({"lua"}))


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"tasks": []},
        {"tasks": {"a": None, "b": {"type": 5}, "c": {"type": "http", "body": {"type": "sql"}}}},
        {"inputSchema": {"type": "sql"}, "tasks": {"a": {"do": "x", "inputs": {"type": "sql"}}}},
        {"tasks": {"a": {"do": "x", "when": {"expression": "true", "language": "cel"}}}},
    ],
)
def test_what_only_looks_like_a_name_is_none(document: dict[str, Any]) -> None:
    assert not mentioned_in(document)


def test_a_definition_mentions_what_its_document_does() -> None:
    plain = load("{id: a, tasks: {m: {type: map, items: '[1]', body: x}, b: {do: y, after: m}}}")

    assert not mentioned(plain.definition)


def test_without_its_plugin_a_definition_is_not_compiled() -> None:
    added = {"id": "a", "tasks": {"a": {"type": "http", "method": "GET", "url": "x"}}}
    definition = load_document(added).definition
    spoken = {**added, "links": [{"from": "start", "to": "a", "condition": LUA}]}
    with pytest.raises(PluginMissing, match="the language `lua`"):
        Plan(load_document(spoken).definition, Vocabulary())
    Plan(definition)
