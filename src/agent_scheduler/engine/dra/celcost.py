"""The maximal cost of a CEL expression, estimated from its syntax before it is ever evaluated.

Kubernetes admits expressions whose worst case is below 1,000,000 units, a unit being about one step of an evaluation
(`CELSelectorExpressionMaxCost`). The same bound applies here to expressions that no such API server has validated:
sizes of strings, lists and maps are tracked through the expression, which covers nested loops and strings that double
from one binding to the next. The input is the library's serialized form, a `cel.expr.CheckedExpr` in the encoding of
protocol buffers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

#: `CELSelectorExpressionMaxCost`.
MAX_COST: Final = 1_000_000
#: Expressions that are nested deeper are refused.
MAX_DEPTH: Final = 200

#: Limits of the API server: entries of a device's attributes and capacity together, and letters of a value.
_ENTRIES: Final = 32
_LETTERS: Final = 128
#: A call of one of our functions leaves the library, which takes longer than its own steps.
_CALL: Final = 20
#: The bound of tracked sizes: any larger value costs more than is allowed.
_HUGE: Final = 1e18

Fields = dict[int, list[bytes | int]]


class TooCostly(ValueError):
    """The text has the cost of an expression and the limit."""


class Size(NamedTuple):
    """The most letters of a value, with all its parts, and the most entries."""

    letters: float
    entries: float
    #: The depth of maps of maps within a device.
    maps: int = 0


_SCALAR: Final = Size(1, 1)
_TEXT: Final = Size(_LETTERS, _LETTERS)

#: The functions that `apimachinery.celtypes` adds to the library.
_OWN: Final = frozenset(
    (
        *("quantity", "isQuantity", "semver", "isSemver", "compareTo", "isGreaterThan", "isLessThan", "sign"),
        *("asInteger", "isInteger", "asApproximateFloat", "add", "sub", "major", "minor", "patch"),
    )
)
#: The functions of the library that return a boolean or a number.
_TRUTHS: Final = frozenset(
    (
        *("_&&_", "_||_", "!_", "@in", "_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_", "startsWith", "endsWith"),
        *("size", "hasValue", "@not_strictly_false", "indexOf", "lastIndexOf"),
    )
)


def check_cost(serialized: bytes) -> None:
    """Check the estimated cost of a serialized expression. Raises `TooCostly`."""
    any_message = fields(serialized)
    checked = fields(_bytes(any_message, 2))
    cost, _ = _Estimate()(fields(_bytes(checked, 4)), {"device": _map(3)}, 0)
    if cost > MAX_COST:
        raise TooCostly(f"estimated cost {cost:.0f} is above the limit of {MAX_COST}")


class _Estimate:
    def __call__(self, expr: Fields, known: Mapping[str, Size], depth: int) -> tuple[float, Size]:
        """Return (cost, size of the result), both at most `_HUGE`."""
        if depth > MAX_DEPTH:
            raise TooCostly(f"nested deeper than {MAX_DEPTH} levels")
        cost, size = self._of(expr, known, depth + 1)
        return min(cost, _HUGE), size._replace(letters=min(size.letters, _HUGE), entries=min(size.entries, _HUGE))

    def _of(self, expr: Fields, known: Mapping[str, Size], depth: int) -> tuple[float, Size]:
        if 3 in expr:
            return 0, _constant(fields(_bytes(expr, 3)))
        if 4 in expr:
            return 1, known.get(_text(fields(_bytes(expr, 4)), 1), _SCALAR)
        if 5 in expr:
            return self._select(fields(_bytes(expr, 5)), known, depth)
        if 6 in expr:
            return self._call(fields(_bytes(expr, 6)), known, depth)
        if 7 in expr:
            return self._together(_messages(fields(_bytes(expr, 7)), 1), known, depth)
        if 8 in expr:
            entries = list(_messages(fields(_bytes(expr, 8)), 2))
            parts = [part for entry in entries for number in (3, 4) for part in _messages(entry, number)]
            cost, size = self._together(iter(parts), known, depth)
            return cost + 30, Size(size.letters, len(entries))
        if 9 in expr:
            return self._comprehension(fields(_bytes(expr, 9)), known, depth)
        return 1, _SCALAR

    def _together(self, parts: Iterator[Fields], known: Mapping[str, Size], depth: int) -> tuple[float, Size]:
        cost, letters, entries = 10.0, 1.0, 0
        for part in parts:
            more, size = self(part, known, depth)
            cost += more
            letters += size.letters
            entries += 1
        return cost, Size(letters, entries)

    def _select(self, select: Fields, known: Mapping[str, Size], depth: int) -> tuple[float, Size]:
        cost, size = self(fields(_bytes(select, 1)), known, depth)
        return cost + 1, _SCALAR if select.get(3) else _part(size)

    def _call(self, call: Fields, known: Mapping[str, Size], depth: int) -> tuple[float, Size]:
        function = _text(call, 2)
        found = [self(part, known, depth) for number in (1, 3) for part in _messages(call, number)]
        cost = 1 + sum(each for each, _ in found)
        sizes = [size for _, size in found] or [_SCALAR]
        letters = sum(size.letters for size in sizes)
        entries = sum(size.entries for size in sizes)
        if function in _OWN:
            return cost + _CALL + letters / 10, Size(max(letters, 64), 64)
        if function in ("contains", "matches", "find", "findAll"):
            # A string is matched against a pattern.
            return cost + sizes[0].letters * max(sizes[-1].letters, 10) / 10, _SCALAR
        if function in _TRUTHS:
            return cost + letters / 10, _SCALAR
        if function in ("_[_]", "_?._", "_[?_]"):
            return cost, _part(sizes[0])
        if function == "_?_:_":
            return cost, Size(max(size.letters for size in sizes), max(size.entries for size in sizes))
        if function in ("replace", "join", "format", "strings.quote", "split"):
            # An insertion may occur at every letter, or between any two.
            grown = sizes[0].letters * max((size.letters for size in sizes[1:]), default=1) * 2 + letters
            return cost + grown / 5, Size(grown, grown)
        # The other functions return nothing longer than their arguments together.
        return cost + letters / 10, Size(letters, entries)

    def _comprehension(self, loop: Fields, known: Mapping[str, Size], depth: int) -> tuple[float, Size]:
        """Estimate a macro that iterates over a list or map; its accumulator grows equally each time."""
        cost, over = self(fields(_bytes(loop, 2)), known, depth)
        more, start = self(fields(_bytes(loop, 4)), known, depth)
        item = _TEXT if over.maps else Size(over.letters, over.letters)
        gathers = _text(loop, 3)
        inside = {**known, _text(loop, 1): item, _text(loop, 8): _part(over), gathers: start}
        # Estimated once: estimating it twice at each level would be exponential in the nesting.
        each, once = self(fields(_bytes(loop, 6)), inside, depth)
        condition, _ = self(fields(_bytes(loop, 5)), inside, depth)
        rounds = over.entries
        grown = Size(
            start.letters + rounds * max(once.letters - start.letters, 0),
            start.entries + rounds * max(once.entries - start.entries, 0),
            start.maps,
        )
        last, result = self(fields(_bytes(loop, 7)), {**inside, gathers: grown}, depth)
        return cost + more + rounds * (1 + each + condition + grown.letters / 10) + last, result


def _map(maps: int) -> Size:
    return Size(_ENTRIES * 2 * _LETTERS, _ENTRIES, maps)


def _part(size: Size) -> Size:
    """Return the size of a part of a value: for a device's maps the next map, or a string; at most all of it."""
    if size.maps:
        return _map(size.maps - 1) if size.maps > 1 else _TEXT
    return Size(size.letters, size.letters)


def _constant(constant: Fields) -> Size:
    for number in (6, 7):
        if number in constant:
            length = len(_bytes(constant, number))
            return Size(length + 1, length + 1)
    return _SCALAR


# ---- protocol buffers


def fields(data: bytes) -> Fields:
    """Return field number -> its values, in order. Raises ValueError for an invalid message."""
    found: Fields = {}
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        value: bytes | int
        if kind == 0:
            value, at = _varint(data, at)
        else:
            if kind == 2:
                length, at = _varint(data, at)
            elif kind in (1, 5):
                length = 8 if kind == 1 else 4
            else:
                raise ValueError(f"wire type {kind} is unknown")
            value = data[at : at + length]
            at += length
        found.setdefault(number, []).append(value)
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _bytes(message: Fields, number: int) -> bytes:
    found = message.get(number, [b""])[-1]
    assert isinstance(found, bytes), "the field is a message or a text"
    return found


def _text(message: Fields, number: int) -> str:
    return _bytes(message, number).decode()


def _messages(message: Fields, number: int) -> Iterator[Fields]:
    for found in message.get(number, ()):
        assert isinstance(found, bytes), "the field is a message"
        yield fields(found)
