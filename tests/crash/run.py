"""`make crash`: kill -9 at every named point and at random, on SQLite and on PostgreSQL; then, on SQLite power loss, on
PostgreSQL the same at random while the server is killed every few seconds and its connections are cut; then all of it
with workflow functions (on PostgreSQL at random only, unless `--only functions` is asked for).

Prints how far it is, what was seen and what never may be.
Exits with 1 if anything was lost, repeated, stuck, poisoned or wrong, or if a point was never reached.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from queue import SimpleQueue
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from crash.harness import Nursery, Story, count_points, tell, tell_random
from crash.trouble import Trouble
from crash.victim import SQLITE_POINTS
from penstock.engine.points import POINTS
from support.postgres import Server, serving

OF_FUNCTIONS = ("next.", "program.", "generation.")
"""Points that the book of functions reaches, and that of definitions does not."""
ELSEWHERE = ("request.", "inside.", "batch.", "resume.", "route.", "outbox.", *OF_FUNCTIONS)
"""Points that have lives of their own: `test_transactions.py`, `test_control.py`, `test_bus.py`."""
RUNS_A_POINT = 40
WORKERS = 2

Life = dict[str, Any]


def plans(
    first: dict[str, int],
    second: dict[str, int],
    dice: random.Random,
    own: Collection[str] = SQLITE_POINTS,
    book: str = "workload",
) -> Iterator[tuple[str, list[Life]]]:
    """For each point: its first occurrence, and a later one if there is; in the life where it is reached."""
    if book == "functions":
        # All that they reach themselves; and lives of a process that has not their code.
        names = {*first, *second, *(name for name in POINTS if name.startswith(OF_FUNCTIONS))}
        for at in ("stored.task_completed:3", "recovery.done:1", "stored.advanced:1"):
            bare: Life = {"kill": at} if "advanced" in at else {"bare": True, "kill": at}
            before = [
                {"kill": "append.after:12"},
                {"bare": True, "kill": "stored.task_completed:2"},
            ]
            yield f"{at} without the code", [*before, bare]
    else:
        # Those of shared transactions have lives of their own: `test_transactions.py`.
        shared = {name for name in POINTS if name.startswith(ELSEWHERE)}
        names = {*POINTS, *own, *first, *second} - shared
    for name in sorted(names):
        before: list[Life] = []
        count = first.get(name, 0)
        recovering = name.startswith("recovery.") or count == 0
        if name.startswith("stop."):
            # A stop on the way, with attempts under way, not at the end when nothing is left to lose.
            for at in ("append.after:8", "stored.task_completed:40"):
                yield f"{name} after {at}", [{"stop": at, "kill": f"{name}:1"}]
            continue
        if name == "dispatch.recorded" or (
            recovering and not name.startswith("recovery.") and not second.get(name)
        ):
            # Only attempts that were lost twice are recorded before they begin.
            twice = [{"kill": "append.after:12"}, {"kill": "dispatch.after:8"}]
            yield f"{name}:1", [*twice, {"kill": f"{name}:1"}]
            continue
        if recovering:
            before, count = [{"kill": "append.after:12"}], second.get(name, 0)
        for number in sorted({1, dice.randint(2, max(2, count // 2))} if count > 1 else {1}):
            yield f"{name}:{number}", [*before, {"kill": f"{name}:{number}"}]


def points(folder: Path, seed: int, server: Server | None, book: str = "workload") -> list[Story]:
    dice = random.Random(seed)
    nurseries: SimpleQueue[Nursery] = SimpleQueue()
    for number in range(WORKERS):
        nurseries.put(Nursery(folder / f"errors-{number}"))
    nursery = nurseries.get()
    first, second = count_points(nursery, folder, runs=RUNS_A_POINT, server=server, book=book)
    nurseries.put(nursery)

    def one(plan: tuple[str, list[Life]]) -> Story:
        name, lives = plan
        nursery = nurseries.get()
        try:
            story = tell(nursery, folder, name, lives, runs=RUNS_A_POINT, server=server, book=book)
        finally:
            nurseries.put(nursery)
        for file in folder.glob(f"{name.replace(':', '_').replace(' ', '_')}.db*"):
            if not story.verdict.complaints:
                file.unlink()
        return story

    wanted = list(plans(first, second, dice, own=() if server else SQLITE_POINTS, book=book))
    stories: list[Story] = []
    with ThreadPoolExecutor(WORKERS) as pool:
        for story in pool.map(one, wanted):
            stories.append(story)
            if len(stories) % 20 == 0:
                complaints = sum(len(s.verdict.complaints) for s in stories)
                print(f"  {len(stories)} of {len(wanted)}, complaints: {complaints}", flush=True)
    for _ in range(WORKERS):
        nurseries.get().__exit__(None, None, None)
    return stories


COLUMNS = (
    "kills",
    "restarts",
    "runs",
    "acknowledged",
    "executions",
    "losses",
    "lost",
    "repeated",
    "stuck",
    "poisoned",
    "wrong",
)


def row(stories: Sequence[Story]) -> str:
    cells: list[int] = [sum(s.kills for s in stories), sum(s.restarts for s in stories)]
    for name in COLUMNS[2:]:
        values = [getattr(s.verdict, name) for s in stories]
        cells.append(sum(v if isinstance(v, int) else len(v) for v in values))
    return "".join(f"{cell:>13,}" for cell in cells)


def at_random(
    folder: Path,
    wish: argparse.Namespace,
    seed: int,
    server: Server | None,
    trouble: Trouble | None = None,
    book: str = "workload",
) -> Story:
    shown = [0]

    def said(story: Story) -> None:
        if story.kills % 20 == 0 and story.kills > shown[-1]:
            shown.append(story.kills)
            more = f"; of the server: {trouble.kills}, cuts: {trouble.cuts}" if trouble else ""
            print(f"  {story.kills} of {wish.kills} kills{more}", flush=True)

    with Nursery(folder / f"errors-random-{seed}") as nursery:
        return tell_random(
            nursery, folder, runs=wish.runs, kills=wish.kills, seed=seed, server=server,
            harm=trouble or nullcontext, said=said, book=book,
        )  # fmt: skip


class Table:
    """What was told, and of which points nobody was killed."""

    def __init__(self) -> None:
        self.told: list[tuple[str, list[Story]]] = []
        self.missed: list[str] = []

    def points(self, store: str, stories: list[Story]) -> None:
        names = {s.name.split(":")[0].split(" ")[0] for s in stories if s.kills and not s.missed}
        later = [m for s in stories for m in s.missed]
        if later:
            # How often a point is reached differs from life to life; its first time is what counts.
            print(f"not reached so often: {', '.join(later)}")
        print(f"points: {len(names)} killed at: {', '.join(sorted(names))}", flush=True)
        self.missed += [m for m in later if m.split(":")[0] not in names]
        self.told.append((f"{store}: {len(names)} named points", stories))

    @property
    def complaints(self) -> list[str]:
        return [
            f"{s.name}: {text}"
            for _, stories in self.told
            for s in stories
            for text in s.verdict.complaints
        ]

    def show(self) -> None:
        width = max((len(title) for title, _ in self.told), default=0)
        print(f"{'':<{width}}" + "".join(f"{name:>13}" for name in COLUMNS))
        for title, stories in self.told:
            print(f"{title:<{width}}" + row(stories))
        for text in self.complaints[:40]:
            print(text)
        if self.missed:
            print(f"not reached: {', '.join(self.missed)}")


def of_functions(
    folder: Path, store: str, wish: argparse.Namespace, seed: int, table: Table
) -> None:
    """The same with workflow functions."""
    folder = folder / "functions"
    folder.mkdir()
    serving_it = serving() if store == "postgres" else nullcontext()
    with serving_it as server:
        if store == "sqlite" or wish.only == "functions":
            print(f"{store}, functions, at every named point", flush=True)
            table.points(f"{store}, functions", points(folder, seed, server, "functions"))
        print(f"{store}, functions, {wish.kills} kills at random", flush=True)
        story = at_random(folder, wish, seed, server, book="functions")
        table.told.append((f"{store}, functions: at random", [story]))


def on_sqlite(folder: Path, wish: argparse.Namespace, seed: int, table: Table) -> None:
    if wish.only in (None, "points"):
        print("SQLite, at every named point", flush=True)
        table.points("sqlite", points(folder, seed, None))
    if wish.only in (None, "random"):
        print(f"SQLite, {wish.kills} kills at random", flush=True)
        table.told.append(("sqlite: at random", [at_random(folder, wish, seed, None)]))
    if wish.only in (None, "power"):
        from crash.power import cuts  # late: it needs apsw

        print(f"SQLite, {wish.cuts} power losses", flush=True)
        story = cuts(folder, count=wish.cuts, seed=seed)
        table.told.append((f"sqlite: power loss, {wish.cuts} cuts", [story]))


def on_postgres(folder: Path, wish: argparse.Namespace, seed: int, table: Table) -> None:
    if wish.only in (None, "points"):
        print("PostgreSQL, at every named point", flush=True)
        with serving() as server:
            table.points("postgres", points(folder, seed, server))
    if wish.only in (None, "random"):
        print(f"PostgreSQL, {wish.kills} kills at random", flush=True)
        with serving() as server:
            table.told.append(("postgres: at random", [at_random(folder, wish, seed, server)]))
    if wish.only in (None, "server"):
        print(f"PostgreSQL, {wish.kills} kills at random, and of the server", flush=True)
        with serving() as server:
            trouble = Trouble(server, seed, seconds=(0.5, 3.0))
            story = at_random(folder, wish, seed + 1, server, trouble)
        title = f"postgres: server, {trouble.kills} kills, {trouble.cuts} cuts"
        table.told.append((title, [story]))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--seed", type=int, default=None, help="default: a new one, which is printed"
    )
    parser.add_argument("--runs", type=int, default=2000, help="at random (default: 2000)")
    parser.add_argument("--kills", type=int, default=100, help="at random (default: 100)")
    parser.add_argument("--cuts", type=int, default=200, help="of power (default: 200)")
    parser.add_argument("--only", choices=("points", "random", "power", "server", "functions"))
    parser.add_argument("--store", choices=("both", "sqlite", "postgres"), default="both")
    parser.add_argument("--keep", action="store_true", help="keep the databases")
    wish = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 30) if wish.seed is None else wish.seed
    folder = Path(tempfile.mkdtemp(prefix="penstock-crash-"))
    print(f"seed {seed}, in {folder}", flush=True)
    began = time.monotonic()
    table = Table()
    for store, work in (("sqlite", on_sqlite), ("postgres", on_postgres)):
        if wish.store in ("both", store):
            (folder / store).mkdir()
            if wish.only != "functions":
                work(folder / store, wish, seed, table)
            if wish.only in (None, "functions"):
                of_functions(folder / store, store, wish, seed, table)
    table.show()
    print(f"{time.monotonic() - began:.0f} s; {len(table.complaints)} complaints")
    if table.complaints or table.missed:
        print(f"kept: {folder}")
        return 1
    if not wish.keep:
        shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
