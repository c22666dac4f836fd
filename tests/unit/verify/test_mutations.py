"""Definitions with anything changed in them: always an answer, never a crash."""

from __future__ import annotations

import copy
import pathlib
import random
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.core.plan import Plan
from penstock.dsl.finding import CODES, Path
from penstock.dsl.load import load_file
from penstock.dsl.read_yaml import read_yaml
from penstock.verify.report import render, render_json
from penstock.verify.structure import examine_document

EXAMPLES = sorted((pathlib.Path(__file__).parents[3] / "examples").glob("*.yaml"))
VALUES: list[Any] = [
    *(None, True, 0, 3.0, -1, 2.5, "", "x", "30s", "${", "${x", "${input.a}", "start", "end"),
    *([], {}, [1], ["a"], {"a": 1}, {"from": "x"}, {"tasks": {}}, {"type": "map"}, {"do": "x"}),
    *("gateway", "loop", "timer", "tasks.x.output", {"type": "loop", "while": "x", "body": "y"}),
]
WORDS = "x type do after when body config tasks links on n value default schema timeout name"


def paths(value: Any, path: Path = ()) -> Iterator[Path]:
    yield path
    if isinstance(value, dict):
        for key, part in value.items():
            yield from paths(part, (*path, key))
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from paths(part, (*path, index))


def at(document: Any, path: Path) -> Any:
    for step in path:
        document = document[step]
    return document


def mutate(document: Any, dice: random.Random) -> None:
    places = list(paths(document))
    path = dice.choice(places[1:])
    around = at(document, path[:-1])
    match dice.randrange(5):
        case 0 | 1:
            around[path[-1]] = copy.deepcopy(dice.choice(VALUES))
        case 2:
            del around[path[-1]]
        case 3:
            around[path[-1]] = copy.deepcopy(at(document, dice.choice(places)))
        case _:
            inside = at(document, path)
            if isinstance(inside, dict):
                inside[dice.choice(WORDS.split())] = copy.deepcopy(dice.choice(VALUES))


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_a_changed_definition_is_accepted_or_refused_with_reasons(file: pathlib.Path) -> None:
    root = read_yaml(file.read_text("utf-8")).root
    assert root is not None
    originals = [root.plain(), load_file(file).document]
    dice = random.Random(file.stem)

    for _ in range(60):
        document = copy.deepcopy(dice.choice(originals))
        for _ in range(dice.choice([1, 1, 2, 5, 12])):
            if document:
                mutate(document, dice)
        examined = examine_document(document)

        assert {finding.code for finding in examined.findings} <= CODES
        render(examined.findings)
        render_json(examined.findings)
        if not examined.errors:
            definition = examined.accepted().definition
            if not any(task.type == "http" for task in definition.tasks.values()):
                Plan(definition)
