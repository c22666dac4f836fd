"""Activities of approval.yaml, ticket.yaml, pipeline.yaml and settlement.yaml, to try them with (their first lines say how).

They work on nothing but what they are given: a real office would write documents, mails and ledgers.
"""

from __future__ import annotations

import asyncio
from typing import TypedDict

from penstock import Fail, activity


class Triage(TypedDict):
    team: str


class Table(TypedDict):
    rows: list[str]


class Balance(TypedDict):
    sufficient: bool


# --- approval.yaml ---------------------------------------------------------------------------------------------------


@activity
async def draft_document(topic: str) -> str:
    await asyncio.sleep(0.2)
    return f"All about {topic}."


@activity
async def revise_document(comment: str) -> str:
    await asyncio.sleep(0.2)
    return f"Revised: {comment or 'as asked'}."


@activity
async def notify_author(message: str) -> None: ...


# --- ticket.yaml -----------------------------------------------------------------------------------------------------


@activity
async def triage_ticket(subject: str) -> Triage:
    return {"team": "billing" if "invoice" in subject else "support"}


@activity
async def send_mail(to: str, text: str) -> None: ...


@activity
async def send_survey(to: str) -> str:
    return "sent"


@activity
async def escalate_ticket() -> None: ...


# --- pipeline.yaml ---------------------------------------------------------------------------------------------------


@activity
async def list_files(bucket: str) -> list[str]:
    return [f"{bucket}/{number:02}.csv" for number in range(20)]


@activity
async def download_file(bucket: str, name: str) -> str:
    await asyncio.sleep(0.2)
    return name


@activity
async def parse_file(content: str) -> Table:
    """One of them is no table: it is collected, and the others go on."""
    if content.endswith("13.csv"):
        raise Fail(f"{content} is not a table", code="not-a-table")
    return {"rows": [content]}


@activity
async def store_rows(rows: list[str], part: int) -> int:
    return part


@activity
async def write_report(count: int) -> str:
    return f"{count} files"


@activity
async def refresh_search_index() -> None: ...


# --- settlement.yaml -------------------------------------------------------------------------------------------------


@activity
async def check_balance(account: str, cents: int) -> Balance:
    return {"sufficient": cents <= 100_000}


@activity
async def debit_account(account: str, cents: int) -> None: ...


@activity
async def credit_account(**undone: object) -> None: ...


@activity
async def credit_merchant(payment: str, fee: int) -> None: ...


@activity
async def debit_merchant(**undone: object) -> None: ...


@activity
async def refuse_payment(payment: str) -> None: ...
