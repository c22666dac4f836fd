"""An engine that starts runs without end, to be stopped in the middle: `stopped_owner.py URL`.

Says `started ID` of each run that it was told is stored, and `refused CODE` of what it was not.
"""

from __future__ import annotations

import asyncio
import os
import sys

import penstock
from penstock import activity

DOCUMENT = """
id: chain
version: '1'
tasks:
  a: {do: work}
  b: {do: work, after: [a]}
  c: {do: work, after: [b]}
"""


@activity
async def work() -> int:
    await asyncio.sleep(0.01)
    return os.getpid()  # so that the history says who did it


async def main(url: str) -> None:
    async with penstock.open(url, activities=[work]) as engine:
        await engine.register(DOCUMENT)
        print("open", flush=True)
        number = 0

        async def again(lane: int) -> None:
            nonlocal number
            while True:
                number += 1
                id = f"{lane}-{number}"
                try:
                    await engine.start("chain", {}, id=id)
                    print("started", id, flush=True)
                except penstock.PenstockError as error:
                    print("refused", error.code, flush=True)
                await asyncio.sleep(0.03)

        await asyncio.gather(*(again(lane) for lane in range(10)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
