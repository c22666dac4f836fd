"""Laws of fair shares and rates (SPEC 5.1, 4.10)."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from penstock.policy.limits import Rate, remaining, smoothed
from penstock.policy.shares import Shares

NAMES = st.sampled_from("abcdefg")
WEIGHTS = st.dictionaries(NAMES, st.sampled_from([0.5, 1.0, 2.0, 3.0]), min_size=1)


def turns(shares: Shares, many: int) -> list[str]:
    found: list[str] = []
    for _ in range(many):
        found.append(shares.first())
        shares.took(more=True)
    return found


@given(WEIGHTS, st.integers(1, 300))
def test_over_any_window_each_gets_its_share_to_within_a_turn(
    weights: dict[str, float], window: int
) -> None:
    shares = Shares()
    shares.weights = weights
    for name in weights:
        shares.join(name)
    found = turns(shares, 600)
    whole = sum(weights.values())

    for start in range(0, 600 - window, 37):
        had = Counter(found[start : start + window])
        for name, weight in weights.items():
            # As many as its share of the window, give or take one's own turn and one of the others.
            slack = 1 + weight / min(weights.values())
            assert abs(had[name] - window * weight / whole) <= len(weights) * slack


@given(st.integers(2, 7), st.integers(1, 200))
def test_equals_differ_by_one_turn_at_most(count: int, window: int) -> None:
    shares = Shares()
    for name in "abcdefg"[:count]:
        shares.join(name)
    had = Counter(turns(shares, window))

    assert max(had.values()) - min(had[name] for name in "abcdefg"[:count]) <= 1


@given(st.lists(st.tuples(NAMES, st.booleans()), min_size=1, max_size=200))
def test_while_somebody_waits_somebody_has_the_turn(steps: list[tuple[str, bool]]) -> None:
    """Work conserving: an absent one's share goes to the others, at once."""
    shares = Shares()
    here: set[str] = set()
    for name, more in steps:
        shares.join(name)
        here.add(name)
        assert len(shares) == len(here)
        first = shares.first()
        assert first in here
        shares.took(more=more)
        if not more:
            here.discard(first)
        assert {each for each in "abcdefg" if each in shares} == here


@given(st.integers(1, 1000))
def test_who_comes_late_has_no_credit_for_having_been_away(before: int) -> None:
    shares = Shares()
    shares.join("a")
    turns(shares, before)
    shares.join("b")
    had = Counter(turns(shares, 10))

    assert had == {"a": 5, "b": 5}


@given(st.integers(1, 50))
def test_who_leaves_and_comes_again_gains_nothing(times: int) -> None:
    shares = Shares()
    shares.join("a")
    shares.join("b")
    had: Counter[str] = Counter()
    for _ in range(times * 2):
        first = shares.first()
        had[first] += 1
        shares.took(more=first == "b")
        shares.join("a")

    assert abs(had["a"] - had["b"]) <= 1


@given(
    st.sampled_from([0.5, 3.0, 50.0, 1000.0]),
    st.integers(1, 20),
    st.lists(st.floats(0, 2), min_size=1, max_size=100),
)
def test_a_rate_is_never_exceeded_in_any_window(
    rate: float, burst: int, pauses: list[float]
) -> None:
    limit = Rate(rate, burst)
    now, begun = 1_000_000.0, list[float]()
    for pause in pauses:
        now += pause
        for _ in range(burst + 2):
            if limit.due() <= now:
                limit.took(now)
                begun.append(now)

    for i, first in enumerate(begun):
        for count, last in enumerate(begun[i:], 1):
            assert count <= burst + rate * (last - first) + 1e-3


@given(st.sampled_from([0.5, 3.0, 50.0]), st.integers(1, 20))
def test_a_rate_is_used_in_full(rate: float, burst: int) -> None:
    """Whoever comes when the next is due may begin then."""
    limit = Rate(rate, burst)
    now = 100.0
    for _ in range(200):
        now = max(now, limit.due())
        limit.took(now)

    assert now <= 100.0 + (200 - burst) / rate + 1e-6


def test_a_changed_rate_gives_no_second_burst() -> None:
    limit = Rate(1.0, 10)
    for _ in range(10):
        limit.took(100.0)
    assert limit.due() > 100.0
    assert Rate(1.0, 10).like(limit).due() > 100.0


@given(st.lists(st.floats(0.001, 1e6), min_size=1))
def test_a_mean_stays_between_what_was_measured(measured: list[float]) -> None:
    mean = None
    for each in measured:
        mean = smoothed(mean, each)

    assert mean is not None
    assert min(measured) * (1 - 1e-9) <= mean <= max(measured) * (1 + 1e-9)


@given(st.floats(0, 1e6), st.floats(0, 1e4), st.integers(0, 10_000))
def test_what_remains_is_no_more_than_the_whole_and_shrinks(
    seconds: float, tasks: float, done: int
) -> None:
    left = remaining(seconds, tasks, done)

    assert 0 <= left <= seconds
    assert remaining(seconds, tasks, done + 1) <= left
