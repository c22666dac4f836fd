"""What every store decides alike."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.adapters.store_rules import attribute_text, attributes_of, published, refusal
from penstock.errors import Rejected
from penstock.ports.store import DefinitionRow
from penstock.testing.conformance.store import new


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (1, 1.0, True),
        (1, True, False),
        (0, False, False),
        (0, None, False),
        ("1", 1, False),
        ({"a": 1, "b": [2.0]}, {"b": [2], "a": 1.0}, True),
        ([1, 2], [2, 1], False),
        (10**20, 1e20, True),
        (0.1, 0.1, True),
        ("Zoë", "Zoë", True),
    ],
)
def test_attributes_are_compared_as_json(one: object, other: object, same: bool) -> None:
    assert (attribute_text(one) == attribute_text(other)) is same


def test_attributes_are_read_from_the_row() -> None:
    assert attributes_of(b'{"n":1.0,"s":"x","o":{"b":1,"a":2}}') == {
        "n": "1",
        "s": '"x"',
        "o": '{"a":2,"b":1}',
    }


def test_an_append_by_itself_must_make_sense() -> None:
    assert refusal(new("a", b"1", b"2")) is None
    for change, reason in (
        ({"payloads": []}, "no events"),
        ({"expected": 3}, "revision 1"),
        ({"previous": b"x"}, "begins"),
    ):
        append = new("a")
        for name, value in change.items():
            setattr(append, name, value)
        assert reason in str(refusal(append))


@given(st.lists(st.tuples(st.sampled_from(["", "1", "2", "x"]), st.sampled_from([b"a", b"b"]))))
def test_versions_count_up_and_never_change(publications: list[tuple[str, bytes]]) -> None:
    kept: list[DefinitionRow] = []
    for version, digest in publications:
        wanted = DefinitionRow("order", version, 0, digest, digest, 1.0)
        if any(r.version == version and r.digest != digest for r in kept):
            with pytest.raises(Rejected) as caught:
                published(kept, wanted)
            assert caught.value.code == "version-exists"
            continue
        row = published(kept, wanted)
        assert row.digest == digest
        assert row.version == version or not version
        if row not in kept:
            kept.append(row)
    assert [row.number for row in kept] == list(range(1, len(kept) + 1))
    assert len({row.version for row in kept}) == len(kept)
