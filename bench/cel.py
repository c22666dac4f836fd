"""How long does an expression take, beside cel-expr-python?

Both evaluate on plain dicts. The oracle converts the context at each call, as it must when the context is
new each time; ours reads what it needs. A ratio below 1 says that ours is faster.
"""

from __future__ import annotations

import timeit
from typing import Any

from cel_expr_python import cel

from penstock.expr.compile import compile_expression
from penstock.expr.parse import parse
from penstock.expr.typecheck import Environment, check
from penstock.expr.types import DYN

EXTENSIONS = """
name: bench
extensions:
  - name: math
  - name: optional
  - name: strings
"""
SECONDS_EACH = 0.1


def context(tasks: int) -> dict[str, Any]:
    """A run's variables with so many finished tasks."""
    return {
        "input": {
            "country": "DE",
            "name": "Ada",
            "items": [{"n": n, "ok": True} for n in range(100)],
        },
        "tasks": {
            f"t{n}": {"status": "COMPLETED", "output": {"total": 90 + n, "x": n}}
            for n in range(tasks)
        },
    }


CASES = [
    ("a condition", 'tasks.t5.output.total > 90 && input.country == "DE"', 10),
    ("three clauses", "tasks.t1.status == 'COMPLETED' && tasks.t2.output.x >= 2 && input.name != ''", 10),
    ("one number", "tasks.t5.output.x > 3", 10),
    ("1,000 tasks", "tasks.t5.output.x > 3", 1_000),
    ("one of", "input.country in ['DE', 'AT', 'CH']", 10),
    ("text", "input.name.startsWith('A') && size(input.name) < 10", 10),
    ("missing, absorbed", "tasks.gone.output.x > 3 || input.country == 'DE'", 10),
    ("all of 100", "input.items.all(i, i.n < 1000)", 10),
    ("map of 100", "input.items.map(i, i.n * 2)", 10),
    ("filter of 100", "input.items.filter(i, i.ok && i.n > 50).size()", 10),
    ("regular expression", "input.name.matches('^A.a$')", 10),
    ("time", "timestamp('2024-01-01T00:00:00Z') + duration('1h') > timestamp(0)", 10),
]  # fmt: skip


def microseconds(call: Any) -> float:
    """The fastest of a few rounds: what is slower is the machine's doing."""
    timer = timeit.Timer(call)
    count, took = timer.autorange()
    count = max(1, int(count * SECONDS_EACH / took))
    return min(timer.repeat(5, count)) / count * 1e6


def main() -> None:
    oracle = cel.NewEnv(
        config=cel.NewEnvConfigFromYaml(EXTENSIONS),
        variables={"input": cel.Type.DYN, "tasks": cel.Type.DYN},
    )
    print(f"{'':20}{'ours µs':>10}{'theirs µs':>11}{'ratio':>9}")
    for name, text, tasks in CASES:
        variables = context(tasks)
        ours, theirs = compile_expression(text), oracle.compile(text)
        expected = theirs.eval(data=variables).plain_value()
        assert ours.evaluate(variables) == expected, (text, expected)
        mine = microseconds(lambda run=ours.evaluate, on=variables: run(on))
        other = microseconds(lambda run=theirs.eval, on=variables: run(data=on))
        print(f"{name:20}{mine:10.2f}{other:11.2f}{mine / other:9.3f}")

    text = CASES[0][1]
    env = Environment({"input": DYN, "tasks": DYN})
    mine = microseconds(lambda: compile_expression(text, env))
    parsing = microseconds(lambda: parse(text))
    tree = parse(text)
    checking = microseconds(lambda: check(text, tree, env))
    other = microseconds(lambda: oracle.compile(text))
    print(f"{'compile':20}{mine:10.2f}{other:11.2f}{mine / other:9.3f}")
    print(f"  of which parse {parsing:.1f}, check {checking:.1f}")


if __name__ == "__main__":
    main()
