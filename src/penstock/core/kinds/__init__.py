"""What each type of task does when it fires, and how the scopes that some of them hold end.

One file a family: `control` (start, end, gateway, transform, publish, cancel), `waits` (timer, signal, event, form), `work`
(activity, http, subworkflow, those of plugins), `loops` (loop and natural loops), `maps`, `mutex`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.core.kinds import control, loops, maps, mutex, waits, work
from penstock.core.kinds.loops import leave_natural, next_pass
from penstock.core.kinds.mutex import break_deadlock, leave_mutex
from penstock.core.kinds.work import begin_added

if TYPE_CHECKING:
    from penstock.core.flow import Flow
    from penstock.core.plan import Node
    from penstock.model.failure import Failure
    from penstock.model.run import Scope, TaskState

    Begin = Callable[[Flow, str, Scope, Node, TaskState], None]
    """(flow, path of the scope, the scope, the node, its state)"""
    End = Callable[[Flow, str, Scope, Scope, Node, TaskState, Failure | None], None]
    """(flow, path of the inner scope, the inner scope, its parent, the owner's node and state, failure)"""

BEGIN: dict[str, Begin] = {
    "start": control.begin_gateway,
    "end": control.begin_end,
    "gateway": control.begin_gateway,
    "transform": control.begin_transform,
    "publish": control.begin_publish,
    "cancel": control.begin_cancel,
    "timer": waits.begin_timer,
    "signal": waits.begin_signal,
    "event": waits.begin_event,
    "form": waits.begin_form,
    "activity": work.begin_activity,
    "http": work.begin_http,
    "subworkflow": work.begin_subworkflow,
    "loop": loops.begin_loop,
    "natural": loops.begin_natural,
    "map": maps.begin_map,
    "mutex": mutex.begin_mutex,
}

END: dict[str, End] = {
    "loop": loops.end_pass,
    "map": maps.end_item,
    "mutex": mutex.end_body,
}

__all__ = [
    "BEGIN",
    "END",
    "begin_added",
    "break_deadlock",
    "leave_mutex",
    "leave_natural",
    "next_pass",
]
