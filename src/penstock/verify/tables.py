"""Tables: what a table of rules has become (`dsl/derive.py`), and which of it somebody wrote (SPEC 2.5, 3).

The loop that works a table off, its flags and the conditions over them are ours and can't fail: the rules of SPEC 3 look at
`when`, `until` and the tasks alone. That a rule fires says that its `when` holds; that it does not says nothing, as it may
be disarmed.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.core.plan import Edge, Formula, Guard, Plan, environment
from penstock.dsl.derive import RULES, fires
from penstock.expr.compile import Expression, compile_expression
from penstock.verify.wording import order

AGENDA, ARMED, HOLD = f"{RULES}_agenda", f"{RULES}_armed", f"{RULES}_hold"
FLAGS = ("data", ARMED)


def whens(plan: Plan) -> Mapping[str, Expression]:
    """What each rule waits for, by the condition with which it fires; empty if there is no table."""
    scope = plan.scopes.get(RULES)
    if plan.definition.orchestration != "rule" or scope is None or AGENDA not in scope.nodes:
        return {}
    env = environment(plan.definition)
    rules = plan.definition.rules
    texts = [str(rules[place]["when"]) for place in order(rules)]
    return {fires(place): compile_expression(text, env) for place, text in enumerate(texts)}


def ours(plan: Plan, part: Guard | Formula | None) -> bool:
    """It is over flags of the table, which nobody wrote."""
    if part is None or plan.definition.orchestration != "rule":
        return False
    return any(read[:2] == FLAGS for read in part.expression.reads)


def written(plan: Plan, edges: list[Edge]) -> list[Edge]:
    """Those whose condition somebody wrote."""
    return [edge for edge in edges if not ours(plan, edge.guard)]
