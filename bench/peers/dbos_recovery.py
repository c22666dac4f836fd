"""DBOS: 500 workflows inside step 2, `kill -9`, a new process: seconds until all are complete."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

from dbos import DBOS, SetWorkflowID

from lives import LIFE, recovery
from measure import Answer, options
from peers.dbos_app import Progress, launch, sequence_with_nap
from workload import OPEN_RUNS, check, order


async def first() -> None:
    for number in range(OPEN_RUNS):
        with SetWorkflowID(f"run-{number}"):
            await DBOS.start_workflow_async(sequence_with_nap, order(number))
    await Progress.all_napping.wait()
    print("ready", flush=True)
    await asyncio.sleep(60)


def second() -> None:
    done: set[str] = set()
    while len(done) < OPEN_RUNS:
        time.sleep(0.1)
        rows = DBOS.list_workflows(status="SUCCESS", load_input=False, load_output=False)
        done = {row.workflow_id for row in rows}
    print("done", flush=True)
    for number in range(OPEN_RUNS):
        check(number, DBOS.retrieve_workflow(f"run-{number}").get_result())
    print("checked", flush=True)


def main() -> None:
    life = os.environ.get(LIFE)
    if life is None:
        given = options(__doc__)
        answer = Answer()
        answer.row("recovery", recovery([__file__, str(given.folder)]), "s")
        answer.emit()
        return
    launch(Path(sys.argv[1]))
    if life == "first":
        asyncio.run(first())
    else:
        second()


if __name__ == "__main__":
    main()
