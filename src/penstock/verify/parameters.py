"""Parameters: what activities are called with fits their annotations (SPEC 3.6, 2.6).

Names first (one that no parameter has, one that nothing gives), then types: a constant is checked, a value by the schema
of where it comes from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from msgspec import UNSET

from penstock.core.plan import Input, Node, ScopePlan
from penstock.dsl.finding import Path, did_you_mean
from penstock.verify.inference import kind_of
from penstock.verify.knowledge import Knowledge
from penstock.verify.samples import accepts, resolve, sample
from penstock.verify.scopes import place
from penstock.verify.sets import resolve as task_of
from penstock.verify.verification import Proof, Signature, Subject, signature_of_added

RULE = "3.6"
HTTP = Signature(
    {"method": {"type": "string"}, "url": {"type": "string"}, "headers": {"type": "object"}},
    open_ended=True,
)
_KINDS = ("null", "boolean", "integer", "number", "string", "array", "object")


def check_parameters(subject: Subject, knowledge: Knowledge) -> bool:
    """Whether all fits, or nothing is known of it."""
    sound = True
    for scope in subject.plan.scopes.values():
        for node in scope.nodes.values():
            signature = signature_of(subject, node)
            if signature is not None:
                sound = _Call(subject, knowledge, scope, node, signature).check() and sound
    return sound


def signature_of(subject: Subject, node: Node) -> Signature | None:
    if node.added is not None:
        return signature_of_added(node.added)
    if node.type == "http":
        return HTTP
    if node.type != "activity" or subject.activities is None:
        return None
    return subject.activities.get(node.config.get("activity", ""))


def takes_null(subject: Subject, node: Node, name: str) -> bool:
    """The parameter of its activity is known to take null."""
    signature = signature_of(subject, node)
    if signature is None or name not in signature.parameters:
        return False
    schema = signature.parameters[name]
    return schema is not True and accepts(schema, None)


class _Call:
    def __init__(
        self,
        subject: Subject,
        knowledge: Knowledge,
        scope: ScopePlan,
        node: Node,
        signature: Signature,
    ) -> None:
        self._subject, self._knowledge = subject, knowledge
        self._scope, self._node, self._signature = scope, node, signature
        self._at = place(scope, node.id)
        self._sound = True

    def check(self) -> bool:
        if not self._known():
            return True
        for given in self._node.inputs:
            where = (*self._at, "inputs", given.name)
            if given.name in self._signature.parameters:
                self._fits(given, where)
            elif not self._signature.open_ended:
                hint = did_you_mean(given.name, self._signature.parameters) or "take it out"
                message = f"{self._called} has no parameter `{given.name}`"
                self._say("unused-input", where, message, hint, key=True)
        self._given()
        return self._sound

    @property
    def _called(self) -> str:
        node = self._node
        if node.added is not None:
            return f"the type `{node.type}`"
        return "http" if node.type == "http" else f"activity `{node.config['activity']}`"

    def _known(self) -> bool:
        signature = self._signature
        return bool(signature.parameters) or not signature.open_ended

    def _given(self) -> None:
        """What it needs and nothing gives: no input, no key of the run's data, nothing in the run's input."""
        subject = self._subject
        names = {given.name for given in self._node.inputs}
        schema = subject.definition.input_schema
        fields: Mapping[str, Any] = {}
        more: Any = True
        if schema is not None:
            rules = resolve(schema, schema)
            if isinstance(rules, Mapping):
                known = cast("Mapping[str, Any]", rules)
                fields, more = (
                    known.get("properties") or {},
                    known.get("additionalProperties", True),
                )
        for name in sorted(self._signature.required - names):
            if name in subject.definition.data or name in fields or self._set_somewhere(name):
                continue
            message = f"{self._called} needs `{name}`, and nothing gives it"
            hint = f"give `{self._node.id}` an input `{name}`"
            if schema is not None and more is False:
                self._say("input-missing", self._at, message, hint, key=True)
            else:
                text = f"{message} but perhaps the input of the run or global data"
                subject.doubt(RULE, "input-missing", self._at, text, hint, key=True)
                self._sound = False

    def _set_somewhere(self, name: str) -> bool:
        for scope in self._subject.plan.scopes.values():
            for node in scope.nodes.values():
                if node.type == "transform" and name in node.formulas:
                    return True
                if any(n == name for d in (*node.on_complete, *node.on_error) for n, _ in d.set):
                    return True
        return False

    def _fits(self, given: Input, where: Path) -> None:
        wanted = self._signature.parameters[given.name]
        if wanted is True or wanted is None:
            return
        name = f"`{given.name}` of {self._called}"
        if given.value is not UNSET:
            if not accepts(wanted, given.value):
                message = f"{name} takes {told(wanted)}, and not this value"
                self._say("input-unfit", where, message, "give a value of that type")
            return
        if given.template is not None or given.secret is not None:
            schema: Any = {"type": "string"}
            if given.template is not None and _single(self._node, given.name):
                return
        else:
            schema = self._source(given)
        have, can = _kinds(schema), _kinds(wanted)
        if have is None or can is None or not have.isdisjoint(can):
            return
        message = f"{name} takes {told(wanted)}, and is given {told(schema)}"
        self._say(
            "input-unfit",
            where,
            message,
            "convert it in a `template` or a `transform`, or read another field",
        )

    def _source(self, given: Input) -> Any:
        """The schema of what it reads; None: not known."""
        path = () if given.path is None else given.path.plain
        if path is None or given.source is None:
            return None
        if given.source == "input":
            root = self._subject.definition.input_schema
        elif given.source in ("index", "iteration"):
            root = {"type": "integer"}
        else:
            found = task_of(self._subject.plan, self._scope, given.source)
            root = None if found is None else self._knowledge.output_schema(found[1])
        schema = root
        for part in path:
            rules = resolve(schema, root)
            if not isinstance(rules, Mapping):
                return None
            known = cast("Mapping[str, Any]", rules)
            properties = cast("Mapping[str, Any]", known.get("properties") or {})
            schema = known.get("items") if isinstance(part, int) else properties.get(part)
        return None if schema is None else resolve(schema, root)

    def _say(self, code: str, where: Path, message: str, hint: str, *, key: bool = False) -> None:
        """The call itself is wrong, whatever happens: no run is needed to show it."""
        self._sound = False
        self._subject.notes.add(code, where, message, hint, key=key)
        self._subject.proofs.append(Proof(RULE, "refuted", message))


def _single(node: Node, name: str) -> bool:
    """A template that is one expression gives its value, not a text."""
    text = node.task.inputs[name].template or ""
    return text.startswith("${") and text.endswith("}") and text.count("${") == 1


def _kinds(schema: Any) -> frozenset[str] | None:
    """JSON types that a schema accepts; None: not known."""
    found = resolve(schema, schema)
    if not isinstance(found, Mapping):
        return None
    rules = cast("Mapping[str, Any]", found)
    if "const" in rules:
        return frozenset({kind_of(rules["const"])})
    if isinstance(rules.get("enum"), list):
        return frozenset(kind_of(each) for each in rules["enum"])
    for word in ("anyOf", "oneOf"):
        if isinstance(rules.get(word), list):
            parts = [_kinds(each) for each in rules[word]]
            if any(part is None for part in parts):
                return None
            return frozenset(kind for part in parts if part is not None for kind in part)
    name = rules.get("type")
    names = {name} if isinstance(name, str) else set(cast("list[str]", name or []))
    if not names:
        return None
    if "number" in names or "integer" in names:
        names |= {"integer", "number"}
    return frozenset(names)


def told(schema: Any) -> str:
    """A schema in a word or two."""
    rules = resolve(schema, schema)
    if isinstance(rules, Mapping):
        known = cast("Mapping[str, Any]", rules)
        name = known.get("type")
        if isinstance(name, str):
            return f"{'an' if name[0] in 'aeiou' else 'a'} {name}" if name != "null" else "null"
        kinds = _kinds(schema)
        if kinds is not None:
            return " or ".join(kind for kind in _KINDS if kind in kinds)
    return f"something like {sample(schema)!r}"
