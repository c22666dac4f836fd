"""Every example runs on the real engine, with activities that answer as their tasks need (SPEC 17)."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import activity
from penstock.cli.main import main
from penstock.testing.harness import Harness, harness

EXAMPLES = Path(__file__).parents[2] / "examples"


class World:
    """Activities by name, and what they were asked to do."""

    def __init__(self, **answers: Any) -> None:
        self.calls: list[str] = []
        self.activities = [self._made(name, answer) for name, answer in answers.items()]

    def _made(self, name: str, answer: Any) -> Any:
        @activity(name=name)
        async def made(*alone: Any, **given: Any) -> Any:
            self.calls.append(name)
            if isinstance(answer, Exception):
                raise answer
            return answer(*alone, **given) if callable(answer) else answer

        return made


async def begun(engine: Harness, example: str, input: Any) -> penstock.Run:
    await engine.register(EXAMPLES / f"{example}.yaml")
    run = await engine.start(example, input)
    await engine.settle()
    return run


def orders(**changes: Any) -> World:
    answers: dict[str, Any] = {
        "reserve_stock": {"reserved": True}, "release_stock": None, "charge_card": {"payment": "p-1"},
        "refund_card": None, "ship_parcel": "shipped", "decline_order": "declined",
    }  # fmt: skip
    return World(**{**answers, **changes})


ORDER = {"sku": "book", "card": "4242", "cents": 1999}


async def test_an_order_is_approved_and_shipped() -> None:
    world = orders()
    async with harness(activities=world.activities) as engine:
        run = await begun(engine, "order", ORDER)
        await run.signal("approve", True)
        assert await engine.finish(run) == {"shipped": True, "payment": "p-1"}
    assert world.calls == ["reserve_stock", "charge_card", "ship_parcel"]


async def test_an_order_that_nobody_answers_is_declined() -> None:
    world = orders()
    async with harness(activities=world.activities) as engine:
        run = await begun(engine, "order", ORDER)
        assert await engine.finish(run) == {"shipped": False, "payment": "p-1"}
    assert world.calls[-1] == "decline_order"


async def test_an_order_that_cannot_be_shipped_is_undone_last_first() -> None:
    world = orders(ship_parcel=RuntimeError("no carrier"))
    async with harness(activities=world.activities) as engine:
        run = await begun(engine, "order", ORDER)
        await run.signal("approve", True)
        with pytest.raises(penstock.RunFailed, match="no carrier"):
            await engine.finish(run)
    assert world.calls[-2:] == ["refund_card", "release_stock"]


async def test_an_approval_goes_round_until_it_is_approved() -> None:
    world = World(draft_document="draft", revise_document="better", notify_author=None)
    async with harness(activities=world.activities) as engine:
        run = await begun(engine, "approval", {"topic": "pumps"})
        for number in (1, 2):
            await run.submit(f"review[{number}]/review", {"decision": "revise"}, by="ada")
            await engine.settle()
        await run.submit("review[3]/review", {"decision": "approve"}, by="ada")
        await engine.finish(run)
        published = [item.event for item in await run.history() if item.type == "published"]
    assert json.loads(bytes(published[0].payload)) == {"topic": "pumps", "reviews": 3}
    assert world.calls == ["draft_document", "revise_document", "revise_document"]


async def test_a_pipeline_goes_on_past_a_bad_file() -> None:
    def parse(content: str) -> Any:
        if content == "b.csv":
            raise penstock.Fail("not a table")
        return {"rows": [content]}

    world = World(
        list_files=["a.csv", "b.csv", "c.csv"], download_file=lambda bucket, name: name, parse_file=parse,
        store_rows=lambda rows, part: part, write_report=lambda count: f"{count} files", refresh_search_index=None,
    )  # fmt: skip
    async with harness(activities=world.activities) as engine:
        run = await begun(engine, "pipeline", {"bucket": "b"})
        assert await engine.finish(run) == {"count": 3, "report": "3 files"}


@pytest.fixture
def fraud_server() -> Iterator[str]:
    class Score(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            assert self.headers["Authorization"] == "token"
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(b'{"score": 0.1}')

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Score)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/score"
    server.shutdown()
    server.server_close()
    thread.join()


async def test_a_settlement_asks_a_real_server_and_moves_money_under_a_lock(
    fraud_server: str, tmp_path: Path
) -> None:
    world = World(
        check_balance={"sufficient": True}, debit_account=None, credit_account=None, credit_merchant=None,
        debit_merchant=None, refuse_payment=None,
    )  # fmt: skip
    text = (
        (EXAMPLES / "settlement.yaml")
        .read_text()
        .replace("https://fraud.example/score", fraud_server)
    )
    async with penstock.open(
        f"sqlite:///{tmp_path}/a.db", activities=world.activities, secrets={"FRAUD_TOKEN": "token"}
    ) as engine:
        await engine.register(text)
        run = await engine.start("settlement", {"payment": "p", "account": "a", "cents": 1000})
        await run.result()
        assert (await run.show()).data == {"fee": 15}
        assert "token" not in "".join(str(item.event) for item in await run.history())
    assert world.calls == ["check_balance", "debit_account", "credit_merchant"]


async def test_a_ticket_ends_when_the_customer_is_silent() -> None:
    world = World(
        triage_ticket={"team": "pumps"}, send_mail=None, send_survey="sent", escalate_ticket=None
    )
    async with harness(activities=world.activities) as engine:
        run = await begun(engine, "ticket", {"customer": "c", "subject": "leak"})
        await run.submit("talk[1]/answer", {"text": "try this"}, by="bob")
        await engine.settle()
        await run.signal("reply", {"text": "no", "solved": False})
        await engine.settle()
        await run.submit("talk[2]/answer", {"text": "try that"}, by="bob")
        await engine.finish(run)
    assert world.calls == ["triage_ticket", "send_mail", "send_mail", "send_survey"]


@pytest.mark.parametrize("example", ["approval", "pipeline", "settlement", "ticket"])
def test_the_office_has_all_that_an_example_does(example: str) -> None:
    """As the first lines of the example say: its activities are there and take what they are given."""
    said = main(["verify", str(EXAMPLES / f"{example}.yaml"), "--app", str(EXAMPLES / "office.py")])
    assert not said


async def test_a_report_comes_every_evening_and_at_the_end_of_the_month() -> None:
    async with harness() as engine:
        await engine.register(EXAMPLES / "nightly.yaml")
        await engine.skip(days=30.5)

        rows = await engine.list(limit=100)
        assert len([row for row in rows if row.id.startswith("nightly.evening/")]) == 21
        month = [row.id for row in rows if row.id.startswith("nightly.month/")]
        assert month == ["nightly.month/2026-01-31T19:00:00Z"]
        title = f"The month report of {month[0]}"
        assert await (await engine.get(month[0])).result() == {"title": title}


async def test_an_order_built_by_operators() -> None:
    from runpy import run_path

    made = run_path(str(EXAMPLES / "algebra.py"))
    big = {"sku": "book", "cents": 999_900, "parcels": 2}
    async with harness(activities=made["ACTIVITIES"]) as engine:
        await engine.register(made["order"])
        assert (await engine.register(made["order"].document)).version == "1"
        small = await engine.start("order", {"sku": "book", "cents": 100, "parcels": 1})
        assert await engine.finish(small) == {"ship_now": "shipped"}
        approved = await engine.start("order", big)
        await approved.signal("approve", True)
        assert await engine.finish(approved) == {"ship": "shipped"}
        assert await engine.finish(await engine.start("order", big)) == {"decline": "declined"}
        with pytest.raises(penstock.Rejected, match="no id"):
            await engine.register(made["approved"])


@pytest.fixture
def ways() -> dict[str, Any]:
    from runpy import run_path

    return run_path(str(EXAMPLES / "ways.py"))


async def both_ways(engine: Harness, name: str, input: Any) -> tuple[Any, Any]:
    """The result as it is written, and rewritten as control flow."""
    from penstock.dsl.load import load_file

    first = await begun(engine, name, input)
    control = penstock.rewrite(load_file(EXAMPLES / f"{name}.yaml"), "control")
    await engine.register({**control, "id": f"{name}-links"})
    return await engine.finish(first), await engine.finish(
        await engine.start(f"{name}-links", input)
    )


async def test_data_flow(ways: dict[str, Any]) -> None:
    async with harness(activities=ways["ACTIVITIES"]) as engine:
        said = "Bern: 11.5 on average, 14.0 at most"
        assert await both_ways(engine, "dataflow", {"city": "Bern"}) == (said, said)


async def test_event_flow(ways: dict[str, Any]) -> None:
    async with harness(activities=ways["ACTIVITIES"]) as engine:
        state = {"state": "shipped"}
        assert await both_ways(engine, "eventflow", {"order": "o-1"}) == (state, state)
        run = await engine.start("eventflow", {"order": "o-2"})
        await engine.finish(run)
        assert (await engine.types(run)).count("event_received") == 3


@pytest.mark.parametrize(
    ("amount", "decision"), [(100, "accepted"), (700, "accepted"), (900, "declined")]
)
async def test_rules(ways: dict[str, Any], amount: int, decision: str) -> None:
    async with harness(activities=ways["ACTIVITIES"]) as engine:
        expected = {"decision": decision, "score": amount // 10}
        assert await both_ways(engine, "rules", {"amount": amount}) == (expected, expected)


async def test_runs_move_to_the_next_version() -> None:
    from runpy import run_path

    moved = run_path(str(EXAMPLES / "versions" / "move.py"))
    async with harness(activities=moved["ACTIVITIES"]) as engine:
        # In key order: `weigh` comes before `wrap`, which was `pack`.
        ended = {"log": ["weighed", "packed"], "to": "the door"}
        assert await moved["move"](engine) == [ended, ended]
        events = [item.type for item in await (await engine.get("parcel-2")).history()]
        assert events.count("run_migrated") == 1
