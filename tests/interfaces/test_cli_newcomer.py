"""What somebody new to the command line gets wrong: each is refused with what to write instead, and nothing is done."""

from __future__ import annotations

import pickle
import traceback
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.wiring import shown_url
from support.cli import Tool
from support.postgres import Server

WAITING = "id: waiting\ntasks:\n  approve: {type: signal}\n"
PAID = """
id: paid
inputSchema: {type: object, properties: {card: {type: string}}}
tasks: {approve: {type: signal}}
"""


@pytest.fixture
def tool(tool: Tool, tmp_path: Path) -> Tool:
    (tmp_path / "waiting.yaml").write_text(WAITING)
    return tool


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ann:s3cret@db:5432/shop?schema=a", "postgresql://ann:***@db:5432/shop?schema=a"),
        ("postgresql://ann:s3@/cret@db/shop", "postgresql://ann:***@db/shop"),
        ("postgresql://:s3cret@db/shop", "postgresql://:***@db/shop"),
        ("postgresql://ann@db/shop", "postgresql://ann@db/shop"),
        ("postgresql://db/shop?user=ann&password=s3cret&x=1", "postgresql://db/shop?user=ann&password=***&x=1"),
        ("postgersql://ann:s3cret@db/shop", "postgersql://ann:***@db/shop"),
        ("sqlite:///shop.db", "sqlite:///shop.db"),
    ],
)  # fmt: skip
def test_a_password_is_not_shown(url: str, shown: str) -> None:
    assert shown_url(url) == shown


def test_no_command_prints_the_password(postgres_url: str, tool: Tool) -> None:
    url = postgres_url.replace("postgres@", "postgres:s3cret@")
    assert "s3cret" in url
    told = [
        tool("list", "--store", url),
        tool("start", "waiting.yaml", "--id", "w", "--store", url),
        tool("show", "nope", "--store", url),
        tool("why", "w", "--store", url),
        tool("pause", "w", "--store", url),
        tool("list", "--store", url.replace("postgresql", "postgersql")),
    ]
    said = "".join(out + err for _, out, err in told)
    assert "postgres:***@" in said
    assert "s3cret" not in said


def test_looking_makes_no_schema(postgres: Server, postgres_url: str, tool: Tool) -> None:
    status, _, err = tool("list", "--store", f"{postgres_url}?schema=nope")
    assert (status, "error[store-missing]" in err) == (4, True)
    found = postgres.execute("SELECT count(*) FROM pg_namespace WHERE nspname='nope'", postgres_url)
    assert found == "0"


def test_two_slashes_make_no_file(tool: Tool, tmp_path: Path) -> None:
    for command in (("list",), ("start", "waiting.yaml")):
        status, _, err = tool(*command, "--store", "sqlite://x")
        assert (status, "error[store-url]" in err) == (2, True)
        assert "write sqlite:///x" in err
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("cancel", "--where", "status=bogus"), "`bogus` is no status of a run"),
        (("terminate", "--where", "status="), "`` is no status of a run"),
        (("cancel", "--where", "definiton=waiting"), "did you mean `definition`?"),
        (("export", "out.zst", "--status", "bogus"), "`bogus` is no status of a run"),
    ],
)
def test_a_mistyped_filter_is_refused(command: tuple[str, ...], said: str, tool: Tool) -> None:
    tool("start", "waiting.yaml", "--id", "w")
    status, _, err = tool(*command)
    assert (status, "error[usage]" in err) == (2, True)
    assert said in err
    assert tool("batches")[1] == ""
    assert not Path("out.zst").exists()


def test_an_attribute_may_be_called_almost_like_a_field(tool: Tool) -> None:
    tool("start", "waiting.yaml", "--id", "w", "--attr", "region=eu")
    for where, found in (("region=eu", 1), ("attributes.definiton=x", 0), ("status=open", 1)):
        status, _, err = tool("pause", "--where", where)
        assert (status, f"{found} runs are found" in err) == (0, True), err


async def test_a_mistyped_filter_is_refused_by_the_library() -> None:
    async with penstock.open("memory:", execute=False) as engine:
        cases: list[tuple[dict[str, Any], str]] = [
            ({"status": "bogus"}, "'bogus' is no status of a run"),
            ({"status": "open"}, "'open' is no status of a run"),
            ({"definiton": "order"}, "runs are not found by `definiton`"),
        ]
        for wanted, said in cases:
            for call in (engine.list(**wanted), engine.batch("cancel", **wanted)):
                with pytest.raises(penstock.Rejected) as caught:
                    await call
                assert caught.value.code == "filter-invalid"
                assert said in str(caught.value)
                assert caught.value.hint


@pytest.mark.parametrize(
    ("command", "status", "said"),
    [
        (("paused", "waiting", "--on", "--off"), 2, "--on or --off, not both"),
        (("paused", "nope"), 3, "no definition `nope`"),
        (("reset", "w", "--to", "1", "--confirm", "zzz"), 3, "hint: penstock reset w --to 1"),
        (("import", "nope.zst"), 2, "nope.zst is no file"),
        (("import", "waiting.yml"), 2, "did you mean `waiting.yaml`?"),
        (
            ("restore", "--backup", "nope.db", "--store", "sqlite:///new.db"),
            2,
            "nope.db is no file",
        ),
        (("archive", "waiting.yaml"), 3, "waiting.yaml is a file, not a folder"),
        (("attributes", "w", "region"), 2, "hint: region=eu"),
        (("queues", "mail", "--limit", "x"), 2, "hint: --limit 5"),
        (("queues", "mail", "--longest-wait", "x"), 2, "hint: --longest-wait 5m"),
        (("serve", "--app", "nope.py", "--port", "8787"), 2, "HTTP comes with a later release"),
        (("graph", "bad.yaml"), 3, "nothing can be drawn"),
        (("schedule", "delete", "again"), 3, "there are: kept"),
        (("schedule", "create", "kept", "waiting", "--every", "2d"), 3, "penstock schedule delete"),
        (("schedule", "create", "new", "nope", "--every", "2d"), 3, "`penstock start FILE`"),
        (("schedule", "create", "new", "waiting"), 2, "--cron, --every or --at"),
        (("schedule", "backfill", "kept", "foo", "2026-01-01"), 3, "FROM is no time: `foo`"),
        (("schedule", "backfill", "kept", "2026-01-01", "bar"), 3, "TO is no time: `bar`"),
        (("start", "paid.yaml", "-i", "card=4242"), 3, """hint: as a text: -i card='"4242"'"""),
    ],
)
def test_it_says_what_to_write(
    command: tuple[str, ...], status: int, said: str, tool: Tool, tmp_path: Path
) -> None:
    (tmp_path / "paid.yaml").write_text(PAID)
    (tmp_path / "bad.yaml").write_text("id: bad\ntasks: {a: {type: nonsense}}\n")
    tool("start", "waiting.yaml", "--id", "w")
    for id in ("again", "kept"):
        tool("schedule", "create", id, "waiting", "--every", "1d")
    tool("schedule", "delete", "again")
    told = tool(*command)
    assert told[0] == status, told
    assert said in told[2]


def test_a_definition_that_is_let_go_on(tool: Tool) -> None:
    tool("start", "waiting.yaml", "--id", "w")
    assert tool("paused", "waiting", "--on")[1].startswith("DEFINITION")
    assert "waiting goes on" in tool("paused", "waiting", "--off")[2]
    assert "waiting is not paused" in tool("paused", "waiting")[2]


def test_the_lists_are_not_cut(tool: Tool) -> None:
    assert "..." not in tool("--help")[1].partition("\nRun:")[2]
    for line in tool("explain")[1].splitlines():
        assert "](" not in line
        assert len(line.split(maxsplit=1)) == 2, line


async def test_a_traceback_shows_code_and_hint() -> None:
    async with penstock.open("memory:", execute=False) as engine:
        with pytest.raises(penstock.Rejected) as caught:
            await engine.list(status="opne")
    caught.value.add_note("a note of yours")
    shown = "".join(traceback.format_exception(caught.value))
    assert "[filter-invalid] `penstock explain filter-invalid` says more" in shown
    assert "hint: " in shown
    assert "a note of yours" in shown
    again = pickle.loads(pickle.dumps(penstock.NotFound("no", hint="look")))
    assert "hint: look" in again.__notes__
