"""Regular expressions as those of z3, as far as they are plain.

The common ground of RE2 and of JSON Schema: literals, classes, groups, repetition, alternatives, anchors at the ends.
Anything else is `Untranslatable`, never a guess.
"""

from __future__ import annotations

from typing import Any

from penstock.verify.smt.terms import Smt, Term, z3

LAST = 0x2FFFF
"""The highest character that z3 knows."""
REPEAT_MAX = 200
_DIGIT = [(48, 57)]
_WORD = [(48, 57), (65, 90), (95, 95), (97, 122)]
_SPACE = [(9, 10), (12, 13), (32, 32)]
_CONTROLS = {"n": 10, "t": 9, "r": 13, "f": 12, "v": 11, "a": 7}
Ranges = list[tuple[int, int]]


class Untranslatable(Exception):
    """A pattern that uses more than is known here."""


def pattern_term(smt: Smt, pattern: str, text: Term, *, plain: bool = False) -> Term:
    """Whether the text has a match anywhere; with `plain` also what dialects disagree on is refused."""
    reader = _Reader(smt, pattern, plain)
    return z3.InRe(text, reader.whole())


class _Reader:
    def __init__(self, smt: Smt, pattern: str, plain: bool) -> None:
        self._smt, self._text, self._at, self._plain = smt, pattern, 0, plain
        self._sort = z3.ReSort(z3.StringSort(smt.context))

    def whole(self) -> Term:
        branches: list[Term] = []
        anything = z3.Full(self._sort)
        while True:
            opened = self._take("^")
            parts, closed = self._sequence(top=True)
            ends: list[Term] = (
                ([] if opened else [anything]) + parts + ([] if closed else [anything])
            )
            branches.append(self._joined(ends))
            if not self._take("|"):
                break
        if self._at < len(self._text):
            raise Untranslatable(self._text[self._at :])
        return branches[0] if len(branches) == 1 else z3.Union(branches)

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self, word: str) -> bool:
        if self._text.startswith(word, self._at):
            self._at += len(word)
            return True
        return False

    def _joined(self, parts: list[Term]) -> Term:
        if not parts:
            return z3.Re(z3.StringVal("", self._smt.context))
        return parts[0] if len(parts) == 1 else z3.Concat(parts)

    def _sequence(self, *, top: bool) -> tuple[list[Term], bool]:
        parts: list[Term] = []
        while self._peek() and self._peek() not in "|)":
            if self._peek() == "$" and top:
                self._at += 1
                if self._peek() not in ("", "|"):
                    raise Untranslatable("$")
                return parts, True
            parts.append(self._repeated(self._atom()))
        return parts, False

    def _atom(self) -> Term:
        character = self._peek()
        self._at += 1
        match character:
            case "(":
                return self._group()
            case "[":
                return self._class()
            case ".":
                if self._plain:
                    raise Untranslatable(".")  # which characters end a line is not agreed upon
                return self._set(_others([(10, 10)]))
            case "\\":
                return self._set(self._escape())
            case "^" | "$" | "*" | "+" | "?" | "{" | "}" | "]":
                raise Untranslatable(character)
            case _:
                return self._set([(ord(character), ord(character))])

    def _group(self) -> Term:
        if self._take("?") and not self._take(":"):
            raise Untranslatable("(?")
        branches: list[Term] = []
        while True:
            parts, _ = self._sequence(top=False)
            branches.append(self._joined(parts))
            if not self._take("|"):
                break
        if not self._take(")"):
            raise Untranslatable("(")
        return branches[0] if len(branches) == 1 else z3.Union(branches)

    def _repeated(self, atom: Term) -> Term:
        while True:
            character = self._peek()
            if character == "*":
                atom = z3.Star(atom)
            elif character == "+":
                atom = z3.Plus(atom)
            elif character == "?":
                atom = z3.Option(atom)
            elif character == "{":
                atom = self._counted(atom)
                continue
            else:
                return atom
            self._at += 1
            if self._peek() in ("*", "+"):
                raise Untranslatable("**")
            self._take("?")  # a lazy one matches the same texts

    def _counted(self, atom: Term) -> Term:
        end = self._text.find("}", self._at)
        low, comma, high = self._text[self._at + 1 : end].partition(",")
        if end < 0 or not low.isdecimal() or (high and not high.isdecimal()):
            raise Untranslatable("{")
        least, most = int(low), int(high or low)
        if max(least, most) > REPEAT_MAX or most < least:
            raise Untranslatable("{")
        self._at = end + 1
        self._take("?")
        if comma and not high:
            return z3.Concat(z3.Loop(atom, least, least), z3.Star(atom)) if least else z3.Star(atom)
        if most == 0:
            return self._joined([])
        return z3.Loop(atom, least, most)

    def _class(self) -> Term:
        negated = self._take("^")
        found: Ranges = []
        first = True
        while True:
            character = self._peek()
            if not character:
                raise Untranslatable("[")
            self._at += 1
            if character == "]" and not first:
                break
            if character == "[":
                raise Untranslatable("[")
            first = False
            part = self._escape() if character == "\\" else [(ord(character), ord(character))]
            single = len(part) == 1 and part[0][0] == part[0][1]
            if single and self._peek() == "-" and self._text[self._at + 1 : self._at + 2] != "]":
                self._at += 1
                last = self._peek()
                self._at += 1
                upper = self._escape() if last == "\\" else [(ord(last), ord(last))] if last else []
                if len(upper) != 1 or upper[0][0] != upper[0][1] or upper[0][0] < part[0][0]:
                    raise Untranslatable("-")
                part = [(part[0][0], upper[0][0])]
            found += part
        return self._set(_others(found) if negated else found)

    def _escape(self) -> Ranges:
        character = self._peek()
        self._at += 1
        if character in ("d", "w", "s"):
            if character == "s" and self._plain:
                raise Untranslatable("\\s")
            return {"d": _DIGIT, "w": _WORD, "s": _SPACE}[character]
        if character in ("D", "W", "S"):
            if character == "S" and self._plain:
                raise Untranslatable("\\S")
            return _others({"D": _DIGIT, "W": _WORD, "S": _SPACE}[character])
        if character in _CONTROLS:
            return [(_CONTROLS[character], _CONTROLS[character])]
        if not character or character.isalnum():
            raise Untranslatable("\\" + character)
        return [(ord(character), ord(character))]

    def _set(self, ranges: Ranges) -> Term:
        parts: list[Any] = []
        for low, high in ranges:
            if low > LAST:
                raise Untranslatable(chr(low))
            first, last = chr(low), chr(min(high, LAST))
            one = self._smt.literal(first)
            if low == high:
                parts.append(z3.Re(one))
            else:
                parts.append(z3.Range(one, self._smt.literal(last)))
        if not parts:
            raise Untranslatable("[]")
        return parts[0] if len(parts) == 1 else z3.Union(parts)


def _others(ranges: Ranges) -> Ranges:
    found: Ranges = []
    at = 0
    for low, high in sorted(ranges):
        if low > at:
            found.append((at, low - 1))
        at = max(at, high + 1)
    if at <= LAST:
        found.append((at, LAST))
    return found
