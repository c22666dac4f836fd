"""What a run asks and reads: outcomes of expressions, values behind references, inputs of tasks (SPEC 2.6).

The outcome of an expression is written into the event that asked for it, and read back on every later replay. A
value that is not in memory is asked for by raising `Need`; `core/values.py` has the views that expressions see.
Methods of Flow, and what they need.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from msgspec import UNSET, Raw

from penstock.core.plan import Input, Node
from penstock.core.values import Fault, Need, PathMissing, Variables, decode, encode, find
from penstock.errors import PayloadTooLarge, PenstockError
from penstock.expr.paths import MISSING
from penstock.model.failure import Failure
from penstock.model.payload import PAYLOAD_BYTES_MAX
from penstock.model.run import COMPLETED, REF_SHIFT, Ref, Scope, TaskState

if TYPE_CHECKING:
    from penstock.core.flow import Flow


def ask(
    flow: Flow,
    compute: Callable[[Any], Any],
    path: str,
    what: str,
    extra: Mapping[str, Any] | None = None,
) -> Any:
    """The outcome of an expression in a scope: computed and recorded once, read back ever after."""
    index = flow.cursor
    flow.cursor = index + 1
    if flow.replaying:
        if index in flow.faults:
            raise Fault(flow.faults[index])
        return decode(flow.outcomes[index])
    try:
        value = compute(Variables(flow, path, extra))
        if value is True or value is False:
            raw = b"true" if value else b"false"
        else:
            raw = encode(value)
            flow.asked_bytes += len(raw)
            if flow.asked_bytes > PAYLOAD_BYTES_MAX:
                flow.asked_bytes -= len(raw)
                raise PayloadTooLarge(
                    f"what expressions give in one step takes more than {PAYLOAD_BYTES_MAX:,} bytes as JSON",
                    hint="pass a large value on as it is, by `from`, or keep it elsewhere",
                )
    except PenstockError as error:
        failure = Failure(code=error.code, message=f"{what}: {error.message}")
    except (TypeError, ValueError, OverflowError, ArithmeticError, LookupError) as error:
        failure = Failure(code="expression-failed", message=f"{what}: {error}")
    else:
        flow.outcomes.append(Raw(raw))
        return value
    flow.outcomes.append(Raw(b"null"))
    flow.faults[index] = failure
    raise Fault(failure)


def asked(flow: Flow) -> tuple[int, bytes]:
    """Reference and JSON of the outcome asked last."""
    return flow.seq << REF_SHIFT | flow.cursor, bytes(flow.outcomes[flow.cursor - 1])


def asked_count(flow: Flow) -> int:
    return flow.cursor


def asked_at(flow: Flow, place: int) -> tuple[int, bytes]:
    """Reference and JSON of the outcome asked at that place, counted from 0 in this event."""
    return flow.seq << REF_SHIFT | place + 1, bytes(flow.outcomes[place])


def last_outcome(flow: Flow) -> bytes:
    return bytes(flow.outcomes[flow.cursor - 1])


def hold_live(flow: Flow, ref: Ref, raw: bytes) -> None:
    """Hold a value that was just recorded, which nothing can load before it is stored; a replay leaves that to
    Need."""
    if not flow.replaying and ref != 0:
        _hold_leaves(flow, ref, decode(raw))
        flow.held += len(raw)


def _hold_leaves(flow: Flow, ref: Ref, value: Any) -> None:
    if isinstance(ref, int):
        if ref:
            flow.values[ref] = value
    elif isinstance(ref, list):
        for inner, part in zip(cast("list[Ref]", ref), value, strict=True):
            _hold_leaves(flow, inner, part)
    else:
        for name, inner in cast("dict[str, Ref]", ref).items():
            _hold_leaves(flow, inner, value[name])


def hold(flow: Flow, ref: int, value: Any, size: int) -> None:
    """Keep a value in memory for the turns to come; it can always be loaded again."""
    flow.values[ref] = value
    flow.held += size


def resolve(flow: Flow, ref: Ref) -> Any:
    """The value behind a reference, or Need."""
    if isinstance(ref, int):
        if ref == 0:
            return None
        try:
            return flow.values[ref]
        except KeyError:
            raise Need({ref}) from None
    missing: set[int] = set()
    result = _resolve(flow, ref, missing)
    if missing:
        raise Need(missing)
    return result


def _resolve(flow: Flow, ref: Ref, missing: set[int]) -> Any:
    if isinstance(ref, dict):
        return {k: _resolve(flow, v, missing) for k, v in cast("dict[str, Ref]", ref).items()}
    if isinstance(ref, list):
        return [_resolve(flow, v, missing) for v in cast("list[Ref]", ref)]
    if ref == 0:
        return None
    if ref not in flow.values:
        missing.add(ref)
        return None
    return flow.values[ref]


def output(flow: Flow, state: TaskState) -> Any:
    if state.output is not None:
        return decode(state.output)
    return flow.resolve(state.ref)


def run_input(flow: Flow) -> Any:
    if flow.run.input is not None:
        return decode(flow.run.input)
    return flow.resolve(1 << REF_SHIFT)


def item(flow: Flow, scope: Scope) -> Any:
    """The item that a scope of a map works on."""
    ref = scope.item
    if isinstance(ref, list):
        return flow.resolve(ref[0])[ref[1]]
    return flow.resolve(ref)


def fix_inputs(flow: Flow, path: str, scope: Scope, node: Node, state: TaskState) -> None:
    """Check that every input is there, and record those that could change before the attempt is over."""
    moving: list[Input] = []
    for given in node.inputs:
        read = given.source is not None and (given.path or not _settled(flow, scope, given.source))
        if given.template is not None or read:
            moving.append(given)
    if moving:
        flow.ask(
            lambda variables: flow.gather(path, moving, variables),
            path,
            f"inputs of `{node.id}`",
        )
        state.arguments = bytes(flow.outcomes[flow.cursor - 1])


def arguments(flow: Flow, key: str) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    return flow.arguments_of(*flow.locate(key))


def arguments_of(
    flow: Flow, path: str, scope: Scope, node: Node, state: TaskState
) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """What an attempt is called with, the caller's own, and which parameters are secrets; may raise Need."""
    fixed: dict[str, Any] = {} if state.arguments is None else decode(state.arguments)
    values: dict[str, Any] = {}
    secrets: list[tuple[str, str]] = []
    for given in node.inputs:
        name = given.name
        if given.secret is not None:
            secrets.append((name, given.secret))
        elif name in fixed:
            values[name] = fixed[name]
        elif given.value is not UNSET:
            values[name] = own(given.value)
        else:
            before = scope.tasks.get(given.source or "")
            if before is not None and before.output is not None:
                values[name] = decode(before.output)
            elif given.source == "input" and flow.run.input is not None:
                values[name] = decode(flow.run.input)
            else:
                values[name] = own(_source(flow, path, given.source or ""))
    if fixed:
        for name, value in fixed.items():
            values.setdefault(name, value)
    return values, secrets


def _settled(flow: Flow, scope: Scope, source: str) -> bool:
    """The source can never change again, so that reading it later gives the same."""
    if source in ("input", "item", "index", "iteration"):
        return True
    state = scope.tasks.get(source)
    return state is not None and state.status == COMPLETED


def _source(flow: Flow, path: str, source: str) -> Any:
    if source == "input":
        return flow.input()
    variables = Variables(flow, path)
    if source in ("item", "index", "iteration", "data", "global"):
        value = variables[source]
        return dict(value) if source in ("data", "global") else value
    found = find(flow, path, source)
    return None if found is None else flow.output(found[1])


def gather(flow: Flow, path: str, inputs: list[Input], variables: Any) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for given in inputs:
        if given.template is not None:
            values[given.name] = given.template(variables)
        elif given.value is not UNSET:
            values[given.name] = given.value
        else:
            value = _source(flow, path, given.source or "")
            if given.path is not None:
                value = given.path.read(value)
            if value is MISSING:
                if given.default is UNSET:
                    raise PathMissing(
                        given.name, given.source or "", given.path.text if given.path else "$"
                    )
                value = given.default
            values[given.name] = value
    return values


def own(value: Any) -> Any:
    """A copy, where the value could be changed by whoever gets it."""
    return decode(encode(value)) if isinstance(value, dict | list) else value
