"""`make crash`: kill -9 at every named point and at random, on SQLite and on PostgreSQL; then, on SQLite power loss, on
PostgreSQL the same at random while the server is killed every few seconds and its connections are cut. On both, kills at
every named point and at random also with workflow functions (`--only functions`: these alone).

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
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from queue import SimpleQueue

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from crash.harness import Nursery, Story, count_points, tell, tell_random
from crash.plans import Life, plans
from crash.trouble import Trouble
from crash.victim import SQLITE_POINTS
from support.postgres import Server, serving

RUNS_A_POINT = 42
"""Two of each kind of definition."""
WORKERS = 2


def points(
    folder: Path, seed: int, server: Server | None, book: str = "workload", at: str = ""
) -> list[Story]:
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

    own = () if server else SQLITE_POINTS
    planned = plans(first, second, dice, own=own, book=book)
    wanted = [plan for plan in planned if plan[0].startswith(at)]
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


def summed(name: str) -> Callable[[Sequence[Story]], int]:
    def cell(stories: Sequence[Story]) -> int:
        values = [getattr(s.verdict, name) for s in stories]
        return sum(v if isinstance(v, int) else len(v) for v in values)

    return cell


def counted(*types: str) -> Callable[[Sequence[Story]], int]:
    def cell(stories: Sequence[Story]) -> int:
        return sum(s.verdict.events[each] for s in stories for each in types)

    return cell


Columns = dict[str, Callable[[Sequence[Story]], int]]

DONE: Columns = {
    "databases": len,
    "kills": lambda stories: sum(s.kills for s in stories),
    "restarts": lambda stories: sum(s.restarts for s in stories),
    "runs": summed("runs"),
    "acknowledged": summed("acknowledged"),
    "executions": summed("executions"),
    "interrupted": summed("losses"),
    **{name: summed(name) for name in ("lost", "repeated", "stuck", "poisoned", "wrong")},
}

SEEN: Columns = {
    "tasks done": counted("task_completed"),
    "retried": counted("task_retried", "undo_retried"),
    "timers": counted("timer_fired"),
    "signals": counted("signal_received", "event_received"),
    "updates": counted("update_answered"),
    "children": counted("child_started"),
    "undone": counted("undo_completed"),
    "cancelled": counted("run_cancelled"),
    "timed out": counted("run_timed_out"),
    "went on new": counted("run_continued"),
    "caught up": counted("advanced"),
}


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


def _wanted(story: Story) -> str:
    """The point, whichever time; where the lives before it matter, all of its name."""
    return story.name if " " in story.name else story.name.split(":")[0]


LEGEND = """\
acknowledged: commands that were answered        lost: of those, or of what the last life did, not there afterwards
executions: activities that began                repeated: begun again though the result was recorded, or under one number
interrupted: attempts that a kill cut off        stuck: runs or attempts that do not go on
                                                 poisoned: tasks given up as deadly; wrong: results, histories, order of undo
what was done, and on the right what must be 0"""


class Table:
    """What was told, and of which points nobody was killed."""

    def __init__(self) -> None:
        self.told: list[tuple[str, list[Story]]] = []
        self.missed: list[str] = []

    def points(self, store: str, stories: list[Story]) -> None:
        hit = {_wanted(s) for s in stories if s.hit}
        missed = {_wanted(s) for s in stories} - hit
        later = [m for s in stories for m in s.missed]
        if later:
            # How often a point is reached differs from life to life; its first time is what counts.
            print(f"not reached so often: {', '.join(later)}")
        names = {name.split(":")[0].split(" ")[0] for name in hit}
        print(f"points: {len(names)} killed at: {', '.join(sorted(names))}", flush=True)
        self.missed += sorted(missed)
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
        print("\n" + LEGEND)
        self._print(DONE)
        print(
            "\nwhat is in the histories of these runs (caught up: functions whose code was not there)"
        )
        self._print(SEEN)
        for text in self.complaints[:40]:
            print(text)
        if self.missed:
            print(f"not reached: {', '.join(self.missed)}")

    def _print(self, columns: Columns) -> None:
        width = max((len(title) for title, _ in self.told), default=0)
        print(f"{'':<{width}}" + "".join(f"{name:>13}" for name in columns))
        for title, stories in self.told:
            print(
                f"{title:<{width}}" + "".join(f"{cell(stories):>13,}" for cell in columns.values())
            )


def of_ending(
    folder: Path,
    store: str,
    wish: argparse.Namespace,
    seed: int,
    server: Server | None,
    table: Table,
) -> None:
    """Where tasks that were given up are done all the same."""
    folder = folder / "ending"
    folder.mkdir()
    print(f"{store}, given up and done all the same", flush=True)
    table.points(f"{store}, given up", points(folder, seed, server, "ending", wish.at))


def of_functions(
    folder: Path, store: str, wish: argparse.Namespace, seed: int, table: Table
) -> None:
    """The same with workflow functions."""
    folder = folder / "functions"
    folder.mkdir()
    serving_it = serving() if store == "postgres" else nullcontext()
    with serving_it as server:
        print(f"{store}, functions, at every named point", flush=True)
        table.points(f"{store}, functions", points(folder, seed, server, "functions", wish.at))
        print(f"{store}, functions, {wish.kills} kills at random", flush=True)
        story = at_random(folder, wish, seed, server, book="functions")
        table.told.append((f"{store}, functions: at random", [story]))


def on_sqlite(folder: Path, wish: argparse.Namespace, seed: int, table: Table) -> None:
    if wish.only in (None, "points"):
        print("SQLite, at every named point", flush=True)
        table.points("sqlite", points(folder, seed, None, at=wish.at))
        of_ending(folder, "sqlite", wish, seed, None, table)
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
            table.points("postgres", points(folder, seed, server, at=wish.at))
            of_ending(folder, "postgres", wish, seed, server, table)
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
    parser.add_argument("--at", default="", help="only named points that begin so")
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
