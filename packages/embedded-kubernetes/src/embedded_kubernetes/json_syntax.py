"""Syntax errors of JSON in the wording of Go's decoder, which kube-apiserver passes on to clients.

Follows the scanner of encoding/json: the first invalid character and what was expected.
"""

from __future__ import annotations

import json

from .nesting import MOST_LEVELS, TOO_DEEP

_END = "unexpected end of JSON input"
_SPACE = " \t\r\n"
_ESCAPES = '"\\/bfnrt'
_HEX = "0123456789abcdefABCDEF"
_DIGITS = "0123456789"
_CLOSING = {"{": "}", "[": "]"}


class _Found(Exception):
    """The text ends early or has an invalid character; the message is the error."""


def syntax_error(body: bytes) -> str:
    """Return the error of an invalid JSON text; empty for a valid one."""
    scanner = _Scanner(body.decode("utf-8", "replace"))
    try:
        scanner.value()
        if left := scanner.peek(end=True):
            scanner.refuse(left, "after top-level value")
    except _Found as found:
        return str(found)
    return ""


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def refuse(self, letter: str, where: str) -> None:
        shown = {"'": "\\'", '"': '"'}.get(letter) or json.dumps(letter, ensure_ascii=False)[1:-1]
        raise _Found(f"invalid character '{shown}' {where}")

    def next(self) -> str:
        if self._at >= len(self._text):
            raise _Found(_END)
        self._at += 1
        return self._text[self._at - 1]

    def peek(self, *, end: bool = False) -> str:
        """Return the next character that is not space; empty at the end if `end` allows it."""
        while self._at < len(self._text) and self._text[self._at] in _SPACE:
            self._at += 1
        if self._at < len(self._text):
            return self._text[self._at]
        if end:
            return ""
        raise _Found(_END)

    def value(self) -> None:
        """Read a value. Its containers are a list instead of calls, because there may be many levels."""
        inside: list[str] = []
        while True:
            letter = self.peek()
            if letter in "{[":
                inside.append(letter)
                if len(inside) > MOST_LEVELS:
                    raise _Found(TOO_DEEP)
                self.next()
                if self.peek() != _CLOSING[letter]:
                    self._begin_item(letter)
                    continue
                self.next()
                inside.pop()
            else:
                self._scalar(letter)
            while inside and self._is_last(inside[-1]):
                inside.pop()
            if not inside:
                return
            self._begin_item(inside[-1])

    def _begin_item(self, container: str) -> None:
        """Read what precedes the value of an item: in an object, the key."""
        if container == "[":
            return
        letter = self.peek()
        if letter != '"':
            self.refuse(letter, "looking for beginning of object key string")
        self._string()
        if (letter := self.peek()) != ":":
            self.refuse(letter, "after object key")
        self._at += 1

    def _is_last(self, container: str) -> bool:
        """Read what follows an item; return whether it ends the container."""
        letter = self.peek()
        self._at += 1
        if letter == _CLOSING[container]:
            return True
        if letter != ",":
            self.refuse(letter, "after array element" if container == "[" else "after object key:value pair")
        return False

    def _scalar(self, letter: str) -> None:
        if letter == '"':
            self._string()
        elif letter == "-" or letter in _DIGITS:
            self._number()
        elif letter in "tfn":
            self._literal({"t": "true", "f": "false", "n": "null"}[letter])
        else:
            self.refuse(letter, "looking for beginning of value")

    def _string(self) -> None:
        self.next()
        while (letter := self.next()) != '"':
            if letter < " ":
                self.refuse(letter, "in string literal")
            if letter != "\\":
                continue
            letter = self.next()
            if letter == "u":
                for _ in range(4):
                    if (letter := self.next()) not in _HEX:
                        self.refuse(letter, "in \\u hexadecimal character escape")
            elif letter not in _ESCAPES:
                self.refuse(letter, "in string escape code")

    def _literal(self, word: str) -> None:
        self.next()
        for wanted in word[1:]:
            if (letter := self.next()) != wanted:
                self.refuse(letter, f"in literal {word} (expecting '{wanted}')")

    def _number(self) -> None:
        letter = self.next()
        if letter == "-":
            letter = self.next()
            if letter not in _DIGITS:
                self.refuse(letter, "in numeric literal")
        if letter != "0":
            self._digits()
        if self._here() == ".":
            self._at += 1
            if (letter := self.next()) not in _DIGITS:
                self.refuse(letter, "after decimal point in numeric literal")
            self._digits()
        if self._here() in ("e", "E"):
            self._at += 1
            letter = self.next()
            if letter in "+-":
                letter = self.next()
            if letter not in _DIGITS:
                self.refuse(letter, "in exponent of numeric literal")
            self._digits()

    def _here(self) -> str:
        return self._text[self._at] if self._at < len(self._text) else ""

    def _digits(self) -> None:
        while self._here() and self._here() in _DIGITS:
            self._at += 1
