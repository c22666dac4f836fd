"""Pictures of graphs, as they are drawn: four shapes, and what holds of every one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.graph import Link, Look, Rows, Task, arrange


def tasks(*ids: str) -> list[Task]:
    return [Task(id, "point", 0) if id in ("start", "end") else Task(id, detail=4) for id in ids]


def links(*pairs: str) -> list[Link]:
    return [Link(*pair.split()) for pair in pairs]


def drawn(
    nodes: list[Task],
    arcs: list[Link],
    *,
    width: int = 100,
    height: int = 100,
    looks: dict[str, Look] | None = None,
    states: dict[int, str] | None = None,
) -> str:
    drawing = arrange(nodes, arcs, width=width, height=height)
    assert drawing is not None
    return plain(drawing.draw(looks or {}, states or {}))


def plain(rows: Rows) -> str:
    return "\n".join("".join(text for text, _ in row) for row in rows)


DIAMOND = (
    tasks("start", "a", "b", "c", "d", "end"),
    links("start a", "a b", "a c", "b d", "c d", "d end"),
)


def test_a_sequence() -> None:
    assert (
        drawn(tasks("one", "two"), links("one two"))
        == """\
╭─────────────╮
│ · one       │
╰──────┬──────╯
       │
╭──────▽──────╮
│ · two       │
╰─────────────╯"""
    )


def test_a_diamond_with_a_branch_that_is_taken_and_one_that_is_dead() -> None:
    looks = {
        "start": Look("●", "completed"),
        "a": Look("✓", "completed", "1.2s"),
        "b": Look("▶", "running", "3s"),
        "c": Look("⤼", "skipped"),
        "end": Look("○", "pending"),
    }

    assert (
        drawn(*DIAMOND, looks=looks, states={0: "taken", 1: "taken", 2: "dead", 4: "dead"})
        == """\
             ●
             ┃
       ╭─────▼─────╮
       │ ✓ a  1.2s │
       ╰─────┰─────╯
      ┏━━━━━━┹┄┄┄┄┄┄┄┐
╭─────▼─────╮  ╭─────×─────╮
│ ▶ b    3s │  │ ⤼ c       │
╰─────┬─────╯  ╰─────┬─────╯
      └──────┬┄┄┄┄┄┄┄┘
       ╭─────▽─────╮
       │ · d       │
       ╰─────┬─────╯
             │
             ○"""
    )


def test_a_long_link_passes_beside_what_it_skips() -> None:
    assert (
        drawn(tasks("a", "b", "c"), links("a b", "b c", "a c"))
        == """\
    ╭───────────╮
    │ · a       │
    ╰─────┬─────╯
      ┌───┴────┐
╭─────▽─────╮  │
│ · b       │  │
╰─────┬─────╯  │
      └───┬────┘
    ╭─────▽─────╮
    │ · c       │
    ╰───────────╯"""
    )


def test_a_link_that_leads_back_is_told_beside_the_task_it_leaves() -> None:
    assert (
        drawn(
            tasks("draft", "review", "done"), links("draft review", "review draft", "review done")
        )
        == """\
 ╭───────────────╮
 │ · draft       │
 ╰───────┬───────╯
         │
╭────────▽───────╮
│ · review       │ ↺ draft
╰────────┬───────╯
         │
 ╭───────▽──────╮
 │ · done       │
 ╰──────────────╯"""
    )


def test_in_a_low_terminal_boxes_give_way() -> None:
    assert (
        drawn(*DIAMOND, height=9)
        == """\
     ·
     │
     · a
┌────┴─────┐
· b        · c
└────┬─────┘
     · d
     │
     ·"""
    )


def test_a_wide_symbol_takes_two_columns() -> None:
    text = drawn(tasks("one"), [], looks={"one": Look("⏳", "waiting", "in 3s"[:4])})

    assert text.splitlines()[1] == "│ ⏳ one in 3 │"


def test_what_does_not_fit_is_not_drawn() -> None:
    many = tasks(*(f"task-{i}" for i in range(30)))

    assert arrange(many, [], width=80, height=40) is None


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[Task], list[Link]]:
    count = draw(st.integers(1, 9))
    pairs = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1))
    chosen = draw(st.lists(pairs, max_size=16, unique=True))
    return tasks(*(f"t{i}" for i in range(count))), [Link(f"t{a}", f"t{b}") for a, b in chosen]


@given(graphs(), st.integers(30, 120), st.sampled_from(["taken", "dead", "open"]))
def test_every_task_is_in_the_picture_once_and_the_picture_fits(
    graph: tuple[list[Task], list[Link]], width: int, state: str
) -> None:
    nodes, arcs = graph
    drawing = arrange(nodes, arcs, width=width, height=60)
    if drawing is None:
        return
    rows = drawing.draw({}, dict.fromkeys(range(len(arcs)), state))
    text = plain(rows)

    assert len(rows) == drawing.height <= 60
    assert all(len(line) <= width for line in text.splitlines())
    assert all(text.count(f"· {task.id}") == 1 for task in nodes)
