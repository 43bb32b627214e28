"""Rewrites calls that Kubernetes' CEL has and cel-expr-python lacks into calls that the library has.

Loops over two variables, as in cel-go's `ext.TwoVarComprehensions`, become loops over one. Functions that
return an optional value, which a user-defined function cannot, return a list of at most one item, and the
rewritten call selects the first. Helper functions, defined in `lists`, have names that begin with `OWN`. All
other text is kept unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from .initializers import TOKEN, Maps, joined

#: The prefix of helper functions. Expressions of users cannot begin names with it.
OWN = "__"
#: The variable of generated loops.
_PAIR = "__pair"

#: A part of the rewritten text: a range of the original text, or new text.
_Part = tuple[int, int] | str


def _nested(loop: str, one: _Part, other: _Part, body: _Part, end: str = "") -> list[_Part]:
    """Return `body` with both variables bound by nested loops over lists of one item."""
    return [f"[{_PAIR}[0]].{loop}(", one, f", [{_PAIR}[1]].{loop}(", other, ", ", body, f"){end}){end}"]


def _quantified(loop: str) -> Callable[..., list[_Part]]:
    return lambda one, other, body: [f"{OWN}pairs().{loop}({_PAIR}, ", *_nested(loop, one, other, body), ")"]


def _loop(one: _Part, other: _Part, *bodies: _Part) -> list[_Part]:
    """Return the start of a loop over pairs, filtered by the conditions; the caller appends the mapped value."""
    *conditions, _ = bodies
    parts: list[_Part] = [f"{OWN}pairs()"]
    for condition in conditions:
        parts += [f".filter({_PAIR}, ", *_nested("exists", one, other, condition), ")"]
    return [*parts, f".map({_PAIR}, "]


def _to_list(one: _Part, other: _Part, *bodies: _Part) -> list[_Part]:
    return [*_loop(one, other, *bodies), *_nested("map", one, other, bodies[-1], "[0]"), ")"]


def _to_map(one: _Part, other: _Part, *bodies: _Part) -> list[_Part]:
    value = _nested("map", one, other, bodies[-1], "[0]")
    return [*_loop(one, other, *bodies), f"{OWN}list([{_PAIR}[0], ", *value, f"])).{OWN}mapped()"]


def _to_entries(one: _Part, other: _Part, *bodies: _Part) -> list[_Part]:
    return [*_to_list(one, other, *bodies), f".{OWN}merged()"]


def _sorted_by(one: _Part, key: _Part) -> list[_Part]:
    return ["map(", one, f", {OWN}list([", one, ", ", key, f"])).{OWN}sortedBy()"]


def _boxed(name: str) -> Callable[..., list[_Part]]:
    """Return a call with its arguments in one list, because helpers accept arguments of any type only in a list."""
    return lambda *arguments: [f"{OWN}{name}([", *_listed(arguments), "])"]


def _renamed(name: str) -> Callable[..., list[_Part]]:
    return lambda *arguments: [f"{OWN}{name}(", *_listed(arguments), ")"]


def _listed(arguments: Sequence[_Part]) -> list[_Part]:
    parts: list[_Part] = []
    for index, argument in enumerate(arguments):
        parts += [", ", argument] if index else [argument]
    return parts


def _optional(name: str) -> Callable[..., list[_Part]]:
    return lambda argument: [f"{name}(", argument, ")[?0]"]


class _Macro(NamedTuple):
    """A rewrite of a method. The first `variables` arguments have to be identifiers."""

    variables: int
    does: Callable[..., list[_Part]]


#: The rewrites, keyed by method name and number of arguments.
_MACROS = {
    **{(name, 3): _Macro(2, _quantified(name)) for name in ("all", "exists", "exists_one")},
    # The library has this macro only by its older name.
    ("existsOne", 2): _Macro(1, lambda name, body: ["exists_one(", name, ", ", body, ")"]),
    ("existsOne", 3): _Macro(2, _quantified("exists_one")),
    **{("transformList", count): _Macro(2, _to_list) for count in (3, 4)},
    **{("transformMap", count): _Macro(2, _to_map) for count in (3, 4)},
    **{("transformMapEntry", count): _Macro(2, _to_entries) for count in (3, 4)},
    ("sortBy", 2): _Macro(1, _sorted_by),
    # The library's own `reverse` is for strings; Kubernetes' is for lists.
    ("reverse", 0): _Macro(0, lambda: [f"{OWN}reverse()"]),
    ("validate", 1): _Macro(0, _optional("validate")),
    ("named", 1): _Macro(0, _optional("named")),
}
#: Methods that lists and strings share have one helper here, because the library reports invalid indexes in
#: strings differently from cel-go.
_PLACES = {(name, count) for name in ("indexOf", "lastIndexOf", "substring") for count in (1, 2)}
_EVALUATED = {**_MACROS, **{(name, n): _Macro(0, _boxed(name)) for name, n in (*_PLACES, ("charAt", 1))}}
#: The checker gets loops instead of helpers, because a loop preserves the list's type and a helper cannot
#: declare it.
_CHECKED = {
    **_MACROS,
    **{(name, n): _Macro(0, _renamed(name)) for name, n in _PLACES if name != "substring"},
    ("distinct", 0): _Macro(0, lambda: [f"filter({_PAIR}, true)"]),
    ("flatten", 0): _Macro(0, lambda: [f"map({_PAIR}, {_PAIR}[0])"]),
    ("slice", 2): _Macro(0, lambda *places: ["filter(", f"{_PAIR}, {OWN}slice", "(", *_listed(places), "))"]),
    ("sortBy", 2): _Macro(1, lambda name, key: ["filter(", name, ", [", key, "] == [])"]),
}
_ANY = re.compile(rf"\.\s*\?|\b(?:has|{'|'.join(sorted({name for name, _ in (*_EVALUATED, *_CHECKED)}))})\s*\(").search


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


def expanded(text: str, *, checks: bool = False) -> Maps:
    """Return the expression rewritten for evaluation, or for the checker. Invalid CEL stays invalid."""
    if not _ANY(text):
        return Maps(text, [(0, 0)])
    tokens = [_Token(match.lastgroup or "", match[0], match.start()) for match in TOKEN.finditer(text)]
    expansion = _Checked(tokens, len(text)) if checks else _Evaluated(tokens, len(text))
    return joined(expansion.parts(0, len(tokens)))


class _Expansion:
    macros: Mapping[tuple[str, int], _Macro]

    def __init__(self, tokens: Sequence[_Token], size: int) -> None:
        self._tokens = tokens
        self._size = size
        #: The index of each closing bracket's token, keyed by that of the opening bracket.
        self._closing: dict[int, int] = {}
        open_: list[int] = []
        for index, token in enumerate(tokens):
            if token.kind == "other" and token.text in "([{":
                open_.append(index)
            elif token.kind == "other" and token.text in ")]}" and open_:
                self._closing[open_.pop()] = index

    def _at(self, index: int) -> int:
        return self._tokens[index].at if index < len(self._tokens) else self._size

    def parts(self, start: int, end: int) -> Iterator[tuple[str, int]]:
        """Yield the rewritten text between two tokens, each part with the offset of the text that it replaces."""
        index = start
        while index < end:
            token = self._tokens[index]
            call = self._call(index, end) if token.kind == "name" else None
            if call is None:
                yield token.text, token.at
                index += 1
                continue
            before, parts, opening, index = call
            yield token.text[:before], token.at
            first, *others = parts
            # cel-go reports an error of a call at its opening bracket.
            name, bracket, rest = str(first).partition("(")
            yield name, token.at + before
            place = self._at(opening)
            for part in (bracket + rest, *others):
                if isinstance(part, str):
                    yield part, place
                else:
                    yield from self.parts(*part)
                    place = self._at(part[1])

    def _call(self, index: int, end: int) -> tuple[int, list[_Part], int, int] | None:
        """Return the rewrite of the call at a token, or None if the call is not rewritten.

        The result has the offset of the method's name in its token, the parts of the new call, the token of
        the opening bracket, and the token after the call.
        """
        token = self._tokens[index]
        opening = self._after_space(index + 1)
        closing = self._closing.get(opening)
        before = self._before_space(index - 1)
        name = re.split(r"[\s.]+", token.text)[-1]
        is_method = "." in token.text or self._text(before) == "."
        if closing is None or closing >= end or self._tokens[opening].text != "(" or not is_method:
            return None
        if name == "named" and "".join(token.text.split()) != "format.named":
            return None
        arguments = self._arguments(opening + 1, closing)
        macro = self.macros.get((name, len(arguments)))
        if macro is None or not all(map(self._is_name, arguments[: macro.variables])):
            return None
        return len(token.text) - len(name), macro.does(*arguments), opening, closing + 1

    def _text(self, index: int) -> str:
        return self._tokens[index].text if 0 <= index < len(self._tokens) else ""

    def _after_space(self, index: int) -> int:
        while index < len(self._tokens) and self._tokens[index].kind == "space":
            index += 1
        return index

    def _before_space(self, index: int) -> int:
        while index >= 0 and self._tokens[index].kind == "space":
            index -= 1
        return index

    def _arguments(self, start: int, end: int) -> list[tuple[int, int]]:
        found, index, first = [], start, start
        while index < end:
            if self._tokens[index].text == "," and self._tokens[index].kind == "other":
                found.append((first, index))
                first = index + 1
            index = self._closing.get(index, index) + 1
        return [*found, (first, end)] if self._after_space(first) < end or found else found

    def _is_name(self, argument: tuple[int, int]) -> bool:
        words = [token for token in self._tokens[slice(*argument)] if token.kind != "space"]
        return len(words) == 1 and words[0].kind == "name" and "." not in words[0].text


class _Checked(_Expansion):
    macros = _CHECKED


class _Evaluated(_Expansion):
    """The rewrite for evaluation, which also guards selections on values without fields.

    On kube-apiserver neither `has(oldObject.x)` nor `oldObject.?x` fails where `oldObject` is null. The
    library accepts them only on maps.
    """

    macros = _EVALUATED

    def _call(self, index: int, end: int) -> tuple[int, list[_Part], int, int] | None:
        token = self._tokens[index]
        before = self._before_space(index - 1)
        if self._text(before) == "?":
            before = self._before_space(before - 1)
        if self._text(before) == ".":
            return super()._call(index, end)
        following = self._after_space(index + 1)
        if self._text(following) == "." and self._text(self._after_space(following + 1)) == "?":
            name = token.text
            return 0, [f"({_has_fields(name)} ? {name} : {{}})"], index, index + 1
        closing = self._closing.get(following)
        if token.text != "has" or closing is None:
            return super()._call(index, end)
        words = [each for each in self._tokens[following + 1 : closing] if each.kind != "space"]
        if len(words) != 1 or words[0].kind != "name" or "." not in words[0].text:
            return None
        name = words[0].text
        return 0, [f"({_has_fields(name.rpartition('.')[0])} && has({name}))"], following, closing + 1


def _has_fields(name: str) -> str:
    """Return a test of whether a field may be selected. Lists pass, because selecting from a list has to fail."""
    return f"(type({name}) == map || type({name}) == list)"
