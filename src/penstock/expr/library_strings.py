"""The strings extension. Positions count code points, from 0."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.expr.formatting import format_text
from penstock.expr.registry import function
from penstock.expr.values import Fault, Frame, kind_of, spend


def _pay(frame: Frame, characters: int) -> None:
    spend(frame, characters // 10)


def _check_index(index: int, size: int) -> None:
    if not 0 <= index <= size:
        raise Fault(f"index out of range: {index}")


@function("(string).charAt(int) -> string")
def char_at(frame: Frame, text: str, index: int) -> str:
    _check_index(index, len(text))
    return text[index : index + 1]


@function("(string).indexOf(string) -> int")
def index_of(frame: Frame, text: str, part: str) -> int:
    _pay(frame, len(text))
    return text.find(part)


@function("(string).indexOf(string, int) -> int")
def index_of_from(frame: Frame, text: str, part: str, start: int) -> int:
    _pay(frame, len(text))
    _check_index(start, len(text))
    return text.find(part, start)


@function("(string).lastIndexOf(string) -> int")
def last_index_of(frame: Frame, text: str, part: str) -> int:
    _pay(frame, len(text))
    return text.rfind(part)


@function("(string).lastIndexOf(string, int) -> int")
def last_index_of_before(frame: Frame, text: str, part: str, start: int) -> int:
    _pay(frame, len(text))
    _check_index(start, len(text))
    return text.rfind(part, 0, start + len(part))


@function("(string).lowerAscii() -> string")
def lower_ascii(frame: Frame, text: str) -> str:
    _pay(frame, len(text))
    return text.lower() if text.isascii() else text.translate(_LOWER)


@function("(string).upperAscii() -> string")
def upper_ascii(frame: Frame, text: str) -> str:
    _pay(frame, len(text))
    return text.upper() if text.isascii() else text.translate(_UPPER)


_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_UPPER = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}


@function("(string).replace(string, string) -> string")
def replace(frame: Frame, text: str, old: str, new: str) -> str:
    return replace_some(frame, text, old, new, -1)


@function("(string).replace(string, string, int) -> string")
def replace_some(frame: Frame, text: str, old: str, new: str, limit: int) -> str:
    _pay(frame, len(text))
    count = text.count(old) if old else len(text) + 1
    if limit >= 0:
        count = min(count, limit)
    # Paid for before it is built: this is how a short text grows long.
    _pay(frame, count * max(0, len(new) - len(old)))
    return text.replace(old, new, count)


@function("(string).split(string) -> list(string)")
def split(frame: Frame, text: str, separator: str) -> list[str]:
    return split_some(frame, text, separator, -1)


@function("(string).split(string, int) -> list(string)")
def split_some(frame: Frame, text: str, separator: str, limit: int) -> list[str]:
    _pay(frame, len(text))
    if limit == 0:
        return []
    if limit == 1:
        return [text]
    if separator:
        spend(frame, text.count(separator) if limit < 0 else min(limit, len(text)))
        return text.split(separator, limit - 1 if limit > 0 else -1)
    count = len(text) if limit < 0 else min(limit, len(text))
    spend(frame, count)
    if count == 0:
        return []
    return [*text[: count - 1], text[count - 1 :]] if count < len(text) else list(text)


@function("(string).substring(int) -> string")
def substring(frame: Frame, text: str, start: int) -> str:
    _pay(frame, len(text))
    _check_index(start, len(text))
    return text[start:]


@function("(string).substring(int, int) -> string")
def substring_to(frame: Frame, text: str, start: int, end: int) -> str:
    _pay(frame, len(text))
    _check_index(start, len(text))
    _check_index(end, len(text))
    if start > end:
        raise Fault(f"substring() from {start} to {end}: the end comes first")
    return text[start:end]


# Unicode's White_Space, which is not quite what str.strip() takes.
_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"


@function("(string).trim() -> string")
def trim(frame: Frame, text: str) -> str:
    _pay(frame, len(text))
    return text.strip(_SPACE)


@function("(string).reverse() -> string")
def reverse(frame: Frame, text: str) -> str:
    _pay(frame, len(text))
    return text[::-1]


@function("(list(string)).join() -> string")
def join(frame: Frame, items: Sequence[Any]) -> str:
    return join_with(frame, items, "")


@function("(list(string)).join(string) -> string")
def join_with(frame: Frame, items: Sequence[Any], separator: str) -> str:
    spend(frame, len(items))
    characters = 0
    for item in items:
        if not isinstance(item, str):
            raise Fault(f"join() needs a list of strings, not of {kind_of(item)}")
        characters += len(item) + len(separator)
    _pay(frame, characters)
    return separator.join(items)


_QUOTED = {
    "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v",
    "\\": "\\\\", '"': '\\"',
}  # fmt: skip


@function("strings.quote(string) -> string")
def quote(frame: Frame, text: str) -> str:
    _pay(frame, 2 * len(text))
    return '"' + "".join(_QUOTED.get(character, character) for character in text) + '"'


@function("(string).format(list(A)) -> string")
def format_list(frame: Frame, template: str, args: Sequence[Any]) -> str:
    return format_text(frame, template, args)
