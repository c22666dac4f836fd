"""`@workflow` and the registry behind it: the functions that a process can run (SPEC 2.8)."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any

import msgspec
from msgspec.structs import astuple

from penstock.core.functions import FunctionPlan
from penstock.errors import Rejected, shown
from penstock.model.definition import Timeouts
from penstock.model.run import Run
from penstock.sdk.loop import Stage
from penstock.sdk.marks import ATTRIBUTE, Declared, check, invalid
from penstock.sdk.replay import Replay
from penstock.sdk.results import Result
from penstock.sdk.values import Unreadable, decoder_of_hint, hints_of, unreadable


class Workflow:
    """A workflow function as registered."""

    def __init__(self, function: Callable[..., Awaitable[Any]]) -> None:
        check(function)
        declared = getattr(function, ATTRIBUTE, None) or Declared()
        self.function = function
        self.name: str = declared.name or function.__name__
        timeout = declared.timeout
        self.plan = FunctionPlan(self.name, None if timeout is None else Timeouts(run=timeout))
        parameters = list(inspect.signature(function).parameters.values())[1:]
        self._parameters = parameters
        plain = all(each.kind == each.POSITIONAL_OR_KEYWORD for each in parameters)
        self._names = tuple(each.name for each in parameters) if plain else None
        hints = hints_of(function)
        wrong = unreadable(hints)
        if wrong is not None:
            raise invalid(f"workflow `{self.name}`: {wrong.message}", hint=wrong.hint)
        self._readers = {
            each.name: decoder_of_hint(hints[each.name])
            for each in parameters
            if each.name in hints
        }
        self._shape = self._shaped(hints)
        self._outline = self._shaped({name: _outlined(each) for name, each in hints.items()})
        """The same without what can be anything, which need not be read to be checked."""
        self.read_result = decoder_of_hint(hints.get("return", Any))
        self._result = Result(function)
        self.plan.check = self.check_input
        self.plan.declared = declared.signals
        self.signals = {name: decoder_of_hint(kind) for name, kind in declared.types.items()}
        """Readers of the payloads of which it was said what they are."""
        if self.signals:
            self.plan.fits = self.check_signal

    def input_of(self, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """What it is started with, by the names of its parameters."""
        names = self._names
        if names is not None and not named and len(args) == len(names):
            if len(names) == 1:
                return {names[0]: args[0]}
            return dict(zip(names, args, strict=True))
        try:
            bound = inspect.signature(self.function).bind(None, *args, **named)
        except TypeError as error:
            raise Rejected(
                "arguments-invalid",
                f"workflow `{self.name}`: {error}; it takes {self._shown()}",
            ) from None
        first, *given = bound.arguments.items()
        del first
        made: dict[str, Any] = {}
        for name, value in given:
            kind = next(each.kind for each in self._parameters if each.name == name)
            if kind == inspect.Parameter.VAR_KEYWORD:
                made.update(value)
            else:
                made[name] = list(value) if kind == inspect.Parameter.VAR_POSITIONAL else value
        return made

    def described(self) -> bytes:
        """What the store keeps of it."""
        timeouts = self.plan.definition.timeouts
        timeout = {} if timeouts is None else {"timeout": timeouts.run}
        return msgspec.json.encode({**timeout, "takes": self._shown()[:2000]})

    def check_input(self, input: bytes) -> None:
        """Rejected, if it cannot be called with that."""
        if self._outline is not None:
            try:
                self._outline.decode(input)
            except msgspec.ValidationError:
                pass  # said in words below
            else:
                return
        self._bound(input)

    def check_signal(self, name: str, payload: bytes) -> None:
        """Rejected, if it is not what `@workflow(signals={…})` says of it."""
        read = self.signals.get(name)
        if read is None:
            return
        try:
            read(payload)
        except Unreadable as error:
            raise Rejected(
                "signal-invalid",
                f"the payload of signal `{name}` of workflow `{self.name}` {error.message.removeprefix('a value ')}",
                hint="send what `@workflow(signals={…})` says of it",
            ) from None

    def result_problem(self, value: Any, encoded: bytes) -> str | None:
        """Why what it returned is not what it is annotated with, as of an activity."""
        expected = self._result
        if not expected.checks or type(value) is expected.exact:
            return None
        return expected.problem(encoded)

    def _shown(self) -> str:
        """Its parameters as they were written."""
        written = (
            str(each).replace(repr(each.annotation), each.annotation, 1) if type(each.annotation) is str else str(each)
            for each in self._parameters
        )  # fmt: skip
        return f"({', '.join(written)})"

    def called(self, context: Any, input: bytes) -> Awaitable[Any]:
        """The function, called with what it was started with; what it waits for is for the caller to await."""
        if self._shape is not None:
            try:
                given = self._shape.decode(input)
            except msgspec.ValidationError:
                pass  # said in words below
            else:
                return self.function(context, *astuple(given))
        positional, named = self._bound(input)
        return self.function(context, *positional, **named)

    def _bound(self, input: bytes) -> tuple[list[Any], dict[str, Any]]:
        """The slow way: whatever the input and the parameters are, or what does not fit."""
        given: Any = msgspec.json.decode(input)
        if not self._parameters:
            return [], {}
        if isinstance(given, dict):
            fields = msgspec.json.decode(input, type=dict[str, msgspec.Raw])
        elif given is None and all(p.default is not p.empty for p in self._parameters):
            fields = {}
        else:
            fields = {self._parameters[0].name: msgspec.Raw(input)}
        named: dict[str, Any] = {}
        rest: list[Any] = []
        known = {each.name: each for each in self._parameters}
        extra = next((p for p in self._parameters if p.kind == p.VAR_KEYWORD), None)
        for name, raw in fields.items():
            parameter = known.get(name)
            if parameter is None and extra is None:
                raise Rejected(
                    "arguments-invalid",
                    f"workflow `{self.name}` has no parameter `{name}`; it takes {self._shown()}",
                )
            read = self._reader(name)
            if parameter is not None and parameter.kind == parameter.VAR_POSITIONAL:
                rest = [
                    read(bytes(one)) for one in msgspec.json.decode(raw, type=list[msgspec.Raw])
                ]
            else:
                named[name] = read(bytes(raw))
        self._check_complete(named)
        positional: list[Any] = []
        for each in self._parameters:
            if each.kind == each.VAR_POSITIONAL:
                positional.extend(rest)
                break
            if each.name in named and (each.kind == each.POSITIONAL_ONLY or rest):
                positional.append(named.pop(each.name))
        return positional, named

    def _reader(self, name: str) -> Callable[[bytes], Any]:
        read = self._readers.get(name, msgspec.json.decode)

        def named(raw: bytes) -> Any:
            try:
                return read(raw)
            except Unreadable as error:
                raise Rejected(
                    "arguments-invalid",
                    f"workflow `{self.name}`: `{name}` {error.message.removeprefix('a value ')}; it takes {self._shown()}",
                ) from None

        return named

    def _check_complete(self, named: dict[str, Any]) -> None:
        for each in self._parameters:
            optional = each.default is not each.empty or each.kind in (
                each.VAR_KEYWORD, each.VAR_POSITIONAL,
            )  # fmt: skip
            if not optional and each.name not in named:
                raise Rejected(
                    "arguments-invalid",
                    f"workflow `{self.name}` was started without `{each.name}`; it takes {self._shown()}",
                )

    def _shaped(self, hints: dict[str, Any]) -> msgspec.json.Decoder[Any] | None:
        """Its parameters as one struct, where they are plain: read by one call."""
        if self._names is None or not self._names:
            return None
        fields: list[Any] = []
        for each in self._parameters:
            hint = hints.get(each.name, Any)
            if each.default is each.empty:
                fields.append((each.name, hint))
            elif each.default is None or isinstance(each.default, str | int | float | bool):
                fields.append((each.name, hint, each.default))
            else:
                return None
        try:
            made = msgspec.defstruct(
                "Input", fields, kw_only=True, forbid_unknown_fields=True, array_like=False
            )
            return msgspec.json.Decoder(made)
        except Exception:  # a type of which msgspec knows nothing
            return None


class _Object(msgspec.Struct):
    """Any object of JSON."""


def _outlined(hint: Any) -> Any:
    if hint is Any:
        return msgspec.Raw
    return _Object if hint is dict or hint == dict[str, Any] else hint


class Functions:
    """The workflow functions that a process can run, by name (`ports/programs.py`)."""

    def __init__(self, functions: Iterable[Any] = (), *, guard: bool = False) -> None:
        """With `guard` each is watched for what would make it nondeterministic: for tests, as it is slow."""
        from penstock.sdk.context import Context  # late: it imports this

        self._guard, self._contexts, self._stage = guard, Context, Stage()
        self._known: dict[str, Workflow] = {}
        if not isinstance(functions, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise invalid(
                f"`workflows` is a list of functions, not {shown(functions)}",
                hint="workflows=[order]",
            )
        for each in functions:
            made = workflow_of(each)
            before = self._known.get(made.name)
            if before is not None and before.function is not each:
                raise invalid(
                    f"two workflows are named `{made.name}`",
                    hint="@workflow(name=…) gives one of them another",
                )
            self._known[made.name] = made

    def __bool__(self) -> bool:
        return bool(self._known)

    def get(self, name: str) -> Workflow | None:
        return self._known.get(name)

    def __iter__(self) -> Iterator[Workflow]:
        return iter(self._known.values())

    def plan(self, name: str) -> FunctionPlan | None:
        found = self._known.get(name)
        return None if found is None else found.plan

    def described(self) -> dict[str, bytes]:
        return {each.name: each.described() for each in self._known.values()}

    def begin(self, run: Run) -> Replay | None:
        found = self._known.get(run.definition)
        if found is None:
            return None
        if not self._guard:
            return Replay(found, run, self._contexts, None, self._stage)
        from penstock.sdk.guard import Guard

        return Replay(found, run, self._contexts, Guard(found.function))

    def together(self) -> Stage:
        return self._stage


@lru_cache(maxsize=4096)
def workflow_of(function: Any) -> Workflow:
    """What is known of a function that `@workflow` has marked."""
    return Workflow(function)
