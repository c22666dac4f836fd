"""CEL text to a tree (`tree.py`).

Macros are recognised here. Names are not resolved (`typecheck.py` does) and nothing is evaluated.
"""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple, NoReturn

from penstock.errors import ExpressionError
from penstock.expr.tree import (
    Binary,
    Bind,
    Call,
    Comprehension,
    Conditional,
    Entry,
    Has,
    Ident,
    Index,
    Item,
    ListLiteral,
    Literal,
    Logic,
    MapLiteral,
    Node,
    Select,
    Unary,
    children,
)
from penstock.expr.values import INT_MAX, UINT_MAX, Uint

__all__ = [
    "Binary",
    "Bind",
    "Call",
    "Comprehension",
    "Conditional",
    "Entry",
    "Has",
    "Ident",
    "Index",
    "Item",
    "ListLiteral",
    "Literal",
    "Logic",
    "MapLiteral",
    "Node",
    "Select",
    "Unary",
    "children",
    "embedded_end",
    "parse",
]

TEXT_BYTES_MAX = 64 * 1024
NESTING_MAX = 250


def parse(text: str) -> Node:
    """The tree of an expression, or `ExpressionError` with the position of what is wrong."""
    try:
        size = len(text.encode()) if len(text) <= TEXT_BYTES_MAX else len(text)
    except UnicodeEncodeError as error:
        at = error.start
        raise ExpressionError("a lone surrogate is no text", text=text, position=at) from None
    if size > TEXT_BYTES_MAX:
        raise ExpressionError("an expression is at most 64 KiB of text", text=text[:80])
    try:
        tree = _Parser(text).whole()
    except RecursionError:
        raise _too_deep(text, 0) from None
    _check_nesting(text, tree)
    return tree


def _too_deep(text: str, position: int) -> ExpressionError:
    return ExpressionError(
        f"the expression is nested deeper than {NESTING_MAX} levels",
        text=text,
        position=position,
        hint="split it, or name parts of it with cel.bind",
    )


def _check_nesting(text: str, tree: Node) -> None:
    # By a stack of our own: this is what lets every later pass recurse without fear.
    stack: list[tuple[Node, int]] = [(tree, 1)]
    while stack:
        node, depth = stack.pop()
        if depth > NESTING_MAX:
            raise _too_deep(text, node.position)
        if isinstance(node, Binary):
            # A chain of operators is worked off in a loop, so it is no nesting.
            flat = isinstance(node.left, Binary)
            stack.append((node.left, depth if flat else depth + 1))
            stack.append((node.right, depth + 1))
        else:
            stack.extend((child, depth + 1) for child in children(node))


_TOKEN = re.compile(
    r"""
      (?P<space>[ \t\r\n\f]+|//[^\r\n]*)
    | (?P<string>
        [bB]?[rR](?:\"\"\"(?s:.*?)\"\"\"|'''(?s:.*?)'''|"[^"\r\n]*"|'[^'\r\n]*')
      | [bB]?(?:\"\"\"(?s:(?:\\.|[^\\])*?)\"\"\"|'''(?s:(?:\\.|[^\\])*?)'''
               |"(?:\\[^\r\n]|[^"\\\r\n])*"|'(?:\\[^\r\n]|[^'\\\r\n])*')
      )
    | (?P<double>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?)
    | (?P<integer>(?:0[xX][0-9a-fA-F]+|[0-9]+)[uU]?)
    | (?P<name>[_a-zA-Z][_a-zA-Z0-9]*)
    | (?P<quoted>`[a-zA-Z0-9_./ -]+`)
    | (?P<sign>&&|\|\||[=!<>]=|[-+*/%<>!?:.,(){}\[\]])
    """,
    re.VERBOSE,
)
_DIGITS_MAX = 100
_RESERVED = frozenset(
    [
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    ]
)
_CONSTANTS: dict[str, Any] = {"true": True, "false": False, "null": None}
_POWER = {"||": 1, "&&": 2, "*": 5, "/": 5, "%": 5, "+": 4, "-": 4} | dict.fromkeys(
    ("<", "<=", ">", ">=", "==", "!=", "in"), 3
)
_ONE_VARIABLE = {
    ("all", 2): "all",
    ("exists", 2): "exists",
    ("exists_one", 2): "existsOne",
    ("existsOne", 2): "existsOne",
    ("map", 2): "map",
    ("map", 3): "map",
    ("filter", 2): "filter",
    ("sortBy", 2): "sortBy",
    ("optMap", 2): "optMap",
    ("optFlatMap", 2): "optFlatMap",
}
_TWO_VARIABLES = {
    ("all", 3): "all",
    ("exists", 3): "exists",
    ("exists_one", 3): "existsOne",
    ("existsOne", 3): "existsOne",
    ("transformList", 3): "transformList",
    ("transformList", 4): "transformList",
    ("transformMap", 3): "transformMap",
    ("transformMap", 4): "transformMap",
    ("transformMapEntry", 3): "transformMapEntry",
    ("transformMapEntry", 4): "transformMapEntry",
}


class _Token(NamedTuple):
    kind: str
    text: str
    position: int


def _tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ExpressionError(_stray(text, position), text=text, position=position)
        kind = match.lastgroup
        assert kind is not None
        if kind != "space":
            found.append(_Token(kind, match.group(), position))
        position = match.end()
    found.append(_Token("end", "", len(text)))
    return found


def embedded_end(text: str, start: int) -> int:
    """Where an expression that starts inside a larger text meets the `}` that closes it."""
    position, depth = start, 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ExpressionError(_stray(text, position), text=text, position=position)
        sign = match.group() if match.lastgroup == "sign" else ""
        if sign == "}" and depth == 0:
            return position
        depth += (sign == "{") - (sign == "}")
        position = match.end()
    raise ExpressionError("this `${` is not closed by `}`", text=text, position=start - 2)


def _stray(text: str, position: int) -> str:
    character = text[position]
    if character in "\"'":
        return "this string is not closed"
    if character == "=":
        return "`=` is no operator; equality is `==`"
    if character in "&|":
        return f"`{character}` is no operator; did you mean `{character * 2}`?"
    return f"unexpected character {character!r}"


class _Parser:
    """Precedence by two stacks, so that only real nesting recurses."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokens(text)
        self._at = 0
        self._level = 0

    def whole(self) -> Node:
        tree = self._expression()
        token = self._peek()
        if token.kind != "end":
            self._unexpected(token)
        return tree

    def _peek(self) -> _Token:
        return self._tokens[self._at]

    def _take(self, sign: str) -> bool:
        token = self._tokens[self._at]
        if token.kind == "sign" and token.text == sign:
            self._at += 1
            return True
        return False

    def _expect(self, sign: str) -> None:
        if not self._take(sign):
            self._unexpected(self._peek(), f"expected `{sign}`")

    def _fail(self, message: str, position: int, hint: str | None = None) -> NoReturn:
        raise ExpressionError(message, text=self._text, position=position, hint=hint)

    def _unexpected(self, token: _Token, wanted: str = "") -> NoReturn:
        what = "end of the expression" if token.kind == "end" else f"`{token.text}`"
        self._fail(f"unexpected {what}" + (f", {wanted}" if wanted else ""), token.position)

    # A level of nesting takes three Python frames at most: _expression, _operand, _sequence. That keeps
    # NESTING_MAX levels well inside the interpreter's limit, whoever calls.
    def _expression(self, ternary: bool = True) -> Node:
        self._level += 1
        if self._level > NESTING_MAX:
            raise _too_deep(self._text, self._peek().position)
        operands: list[Node] = [self._operand()]
        operators: list[_Token] = []
        while True:
            token = self._peek()
            power = _POWER.get(token.text) if token.kind in ("sign", "name") else None
            while operators and (power is None or _POWER[operators[-1].text] >= power):
                right = operands.pop()
                operands.append(_join(operators.pop(), operands.pop(), right))
            if power is None:
                break
            self._at += 1
            operators.append(token)
            operands.append(self._operand())
        tree = operands[0]
        if ternary and self._take("?"):
            position = self._tokens[self._at - 1].position
            then = self._expression(ternary=False)
            self._expect(":")
            tree = Conditional(position, tree, then, self._expression())
        self._level -= 1
        return tree

    def _operand(self) -> Node:
        """An operand: its prefix signs, its primary, and all that is chained to it."""
        prefixes = self._prefixes()
        token = self._peek()
        self._at += 1
        sign = token.text if token.kind == "sign" else ""
        if token.kind in ("integer", "double"):
            node = self._number_with_sign(token, prefixes)
        elif sign == "(":
            node = self._expression()
            self._expect(")")
        elif sign == "[":
            items = self._sequence("]", optional=True)
            node = ListLiteral(token.position, tuple(Item(v, o) for _, v, o in items))
        elif sign == "{":
            entries = self._sequence("}", optional=True, keyed=True)
            node = MapLiteral(token.position, tuple(Entry(k, v, o) for k, v, o in entries))
        elif token.kind == "name" and self._is_call(token):
            node = self._global_call(token, self._arguments_of(self._sequence(")")))
        else:
            node = self._simple(token)
        while (token := self._peek()).kind == "sign" and token.text in (".", "[", "{"):
            self._at += 1
            if token.text == "[":
                optional = self._take("?")
                key = self._expression()
                self._expect("]")
                node = Index(token.position, node, key, optional)
            elif token.text == "{":
                self._fail("messages cannot be built here; use a map", token.position)
            else:
                field, optional = self._field()
                if optional or field.kind == "quoted" or not self._take("("):
                    node = Select(field.position, node, field.text.strip("`"), optional)
                else:
                    node = self._method(field, node, self._arguments_of(self._sequence(")")))
        for prefix in reversed(prefixes):
            node = Unary(prefix.position, prefix.text, node)
        return node

    def _sequence(
        self, close: str, *, optional: bool = False, keyed: bool = False
    ) -> list[tuple[Node, Node, bool]]:
        """(key, value, marked with `?`) up to the closing sign; a literal may end with a comma.

        Where there are no keys the key is the value.
        """
        found: list[tuple[Node, Node, bool]] = []
        while not self._take(close):
            marked = optional and self._take("?")
            key = value = self._expression()
            if keyed:
                self._expect(":")
                value = self._expression()
            found.append((key, value, marked))
            if not self._take(","):
                self._expect(close)
                break
            if not optional and self._peek().text == close:
                self._unexpected(self._peek())
        return found

    @staticmethod
    def _arguments_of(found: list[tuple[Node, Node, bool]]) -> tuple[Node, ...]:
        return tuple(value for _, value, _ in found)

    def _prefixes(self) -> list[_Token]:
        found: list[_Token] = []
        while (token := self._peek()).kind == "sign" and token.text in ("!", "-"):
            if found and found[-1].text != token.text:
                self._unexpected(token)
            found.append(token)
            self._at += 1
        return found

    def _number_with_sign(self, token: _Token, prefixes: list[_Token]) -> Node:
        # The sign belongs to the number: -9223372036854775808 has no positive twin.
        if prefixes and prefixes[-1].text == "-" and token.text[-1] not in "uU":
            return Literal(prefixes.pop().position, self._number(token, True))
        return Literal(token.position, self._number(token, False))

    def _is_call(self, token: _Token) -> bool:
        return token.text not in _CONSTANTS and token.text != "in" and self._take("(")

    def _simple(self, token: _Token) -> Node:
        match token.kind:
            case "string":
                return Literal(token.position, _string(self._text, token))
            case "name" if token.text in _CONSTANTS:
                return Literal(token.position, _CONSTANTS[token.text])
            case "name" if token.text != "in":
                self._refuse_reserved(token)
                return Ident(token.position, token.text)
            case "sign" if token.text == "." and self._peek().kind == "name":
                name = self._peek()
                self._at += 1
                self._refuse_reserved(name)
                return Ident(token.position, name.text, absolute=True)
            case _:
                self._unexpected(token)

    def _field(self) -> tuple[_Token, bool]:
        optional = self._take("?")
        token = self._peek()
        self._at += 1
        if token.kind == "quoted":
            return token, optional
        if token.kind != "name" or token.text in _CONSTANTS or token.text == "in":
            self._unexpected(token, "expected a field name")
        return token, optional

    def _number(self, token: _Token, negative: bool) -> Any:
        if token.kind == "double":
            value = float(token.text)
            if value == math.inf:
                self._fail("this number is too large for a double", token.position)
            return -value if negative else value
        digits = token.text.rstrip("uU")
        if len(digits) > _DIGITS_MAX:
            self._fail("this number is too large", token.position)
        whole = int(digits, 16) if digits[:2] in ("0x", "0X") else int(digits)
        if len(digits) != len(token.text):
            if whole > UINT_MAX:
                self._fail("a uint has 64 bits; this number is too large", token.position)
            return Uint(whole)
        if whole > INT_MAX + negative:
            self._fail("an int has 64 bits; this number is too large", token.position)
        return -whole if negative else whole

    def _refuse_reserved(self, token: _Token) -> None:
        if token.text in _RESERVED:
            self._fail(f"`{token.text}` is a reserved word", token.position)

    def _global_call(self, token: _Token, args: tuple[Node, ...]) -> Node:
        self._refuse_reserved(token)
        if token.text == "has":
            return self._has(token, args)
        return Call(token.position, token.text, None, args)

    def _has(self, token: _Token, args: tuple[Node, ...]) -> Node:
        if len(args) == 1 and isinstance(args[0], Select):
            return Has(token.position, args[0].operand, args[0].field)
        self._fail("has() takes one field selection, as in has(a.b)", token.position)

    def _method(self, token: _Token, operand: Node, args: tuple[Node, ...]) -> Node:
        """A call on a target, or the macro that it is."""
        shape = (token.text, len(args))
        if shape in _ONE_VARIABLE:
            variable = self._variable(args[0], token.text)
            condition = args[1] if len(args) == 3 else None
            return Comprehension(
                token.position, _ONE_VARIABLE[shape], operand, variable, None, condition, args[-1]
            )
        if shape in _TWO_VARIABLES:
            variable = self._variable(args[0], token.text)
            second = self._variable(args[1], token.text)
            if variable == second:
                self._fail("the two variables need different names", args[1].position)
            condition = args[2] if len(args) == 4 else None
            return Comprehension(
                token.position,
                _TWO_VARIABLES[shape],
                operand,
                variable,
                second,
                condition,
                args[-1],
            )
        if shape == ("bind", 3) and isinstance(operand, Ident) and operand.name == "cel":
            variable = self._variable(args[0], "cel.bind")
            return Bind(token.position, variable, args[1], args[2])
        return Call(token.position, token.text, operand, args)

    def _variable(self, node: Node, macro: str) -> str:
        if isinstance(node, Ident) and not node.absolute:
            return node.name
        self._fail(f"{macro}() needs a plain variable name here", node.position)


def _join(operator: _Token, left: Node, right: Node) -> Node:
    if operator.text not in ("&&", "||"):
        return Binary(operator.position, operator.text, left, right)
    if isinstance(left, Logic) and left.operator == operator.text:
        return Logic(left.position, operator.text, (*left.operands, right))
    return Logic(operator.position, operator.text, (left, right))


_ESCAPE = re.compile(
    r"\\(?:x([0-9a-fA-F]{2})|X([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|(.))",
    re.DOTALL,
)
_SIMPLE_ESCAPES = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", "?": "?", '"': '"', "'": "'", "`": "`",
}  # fmt: skip


def _string(text: str, token: _Token) -> str | bytes:
    start = min(token.text.find(quote) for quote in "\"'" if quote in token.text)
    prefix, quoted = token.text[:start].lower(), token.text[start:]
    width = 3 if quoted[:3] in ('"""', "'''") and len(quoted) >= 6 else 1
    body = quoted[width:-width]
    if "r" in prefix or "\\" not in body:
        return body.encode() if "b" in prefix else body
    as_bytes = "b" in prefix
    out = bytearray()
    parts: list[str] = []
    last = 0
    for match in _ESCAPE.finditer(body):
        position = token.position + start + width + match.start()
        before = body[last : match.start()]
        last = match.end()
        byte = match[1] or match[2]
        code = int(byte, 16) if byte else int(match[5], 8) if match[5] else None
        if match[3] or match[4]:
            code = int(match[3] or match[4], 16)
            if as_bytes:
                raise ExpressionError("\\u is not for bytes", text=text, position=position)
            if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
                raise ExpressionError("no such code point", text=text, position=position)
        if code is None:
            if match[6] not in _SIMPLE_ESCAPES:
                raise ExpressionError(
                    f"unknown escape \\{match[6]}", text=text, position=position,
                    hint="write \\\\ for a backslash, or a raw string r'...'",
                )  # fmt: skip
            code = ord(_SIMPLE_ESCAPES[match[6]])
        if as_bytes:
            out += before.encode()
            out.append(code)
        else:
            parts.append(before)
            parts.append(chr(code))
    if as_bytes:
        return bytes(out + body[last:].encode())
    return "".join(parts) + body[last:]
