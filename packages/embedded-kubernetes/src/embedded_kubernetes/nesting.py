"""JSON as deeply nested as kube-apiserver accepts it, for code that walks objects by recursion.

`loads` returns values nested up to DEEP levels as usual. A value below that is a `Deep`, which holds its compact JSON
and is equal to another one with the same; `dumps` writes it. Only free-form parts of objects can be that deep, such as
the parameters of a device: the server stores and returns them, and nothing reads what is in them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from secrets import token_hex
from typing import Any, Final

import orjson

#: The levels that are decoded. Its double is below the limit of orjson's encoder.
DEEP: Final = 120
#: The limit of Go's decoder, and its error.
MOST_LEVELS: Final = 10_000
TOO_DEEP: Final = "exceeded max depth"
#: The limit of a YAML body. Its parser has quadratic cost in levels.
MOST_YAML_LEVELS: Final = 1_000

_ESCAPE = re.compile(rb"\\.", re.DOTALL)
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[{\]}]', re.DOTALL)
_STRUCTURE: Final = b'"[]{}'
_OTHERS: Final = bytes(set(range(256)) - set(_STRUCTURE))


class Deep:
    """A value below the decoded levels, as compact JSON."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Deep) and self.data == other.data

    def __hash__(self) -> int:
        return hash(self.data)

    def __repr__(self) -> str:
        return "Deep(...)"

    def __deepcopy__(self, memo: object) -> Deep:
        return self


def loads(data: bytes | str) -> Any:
    """Decode JSON. Raises ValueError for invalid JSON and for more than MOST_LEVELS levels."""
    if isinstance(data, str):
        data = data.encode()
    if data.count(b"{") + data.count(b"[") <= DEEP or _is_shallow(data):
        return orjson.loads(data)
    return _layers(data)


def dumps(value: Any, *, option: int | None = None, default: Callable[[Any], Any] | None = None) -> bytes:
    """Encode a value that `loads` may have returned. Options and `default` are orjson's."""
    try:
        return orjson.dumps(value, option=option, default=default)
    except TypeError:
        # There may be a `Deep`, or a type that is no JSON.
        return _dumps_deep(value, option, default)


def _dumps_deep(value: Any, option: int | None, default: Callable[[Any], Any] | None) -> bytes:
    # Not by orjson's fragments, which write beyond its buffer if many brackets follow (3.13.0).
    mark, parts = token_hex(16), list[bytes]()

    def marked(found: Any) -> Any:
        if not isinstance(found, Deep):
            if default is None:
                raise TypeError(f"Type is not JSON serializable: {type(found).__name__}")
            return default(found)
        parts.append(found.data)
        return f"{mark}{len(parts) - 1}"

    text = orjson.dumps(value, option=option, default=marked)
    return re.sub(rb'"%b([0-9]+)"' % mark.encode(), lambda found: parts[int(found[1])], text)


def has_deep(data: bytes) -> bool:
    """Return whether `loads` returns a value with a `Deep` in it for valid JSON."""
    return data.count(b"{") + data.count(b"[") > DEEP and not _is_shallow(data) and bool(_spans(data)[1:])


def _is_shallow(data: bytes) -> bool:
    """Return whether brackets are surely nested at most DEEP levels. False may also be due to brackets in strings.

    An odd number of quotes precedes a bracket in a string, and an even number one of the structure. Removing pairs of
    adjacent quotes keeps that, so two adjacent brackets are both in strings or both of the structure. Each round
    removes at most two levels.
    """
    left = (_ESCAPE.sub(b"", data) if b"\\" in data else data).translate(None, _OTHERS)
    for _ in range(DEEP // 2):
        if not left:
            return True
        left = left.replace(b'""', b"").replace(b"{}", b"").replace(b"[]", b"")
    return not left


def _spans(data: bytes) -> list[tuple[int, int, int]]:
    """Return the parts of a text that are decoded on their own, inner ones first: begin, end, and the layer from 0.

    Layer 0 is the whole. Raises ValueError for more than MOST_LEVELS levels.
    """
    found: list[tuple[int, int, int]] = []
    level, begins = 0, list[int]()
    for token in _TOKEN.finditer(data):
        letter = data[token.start()]
        if letter in b"[{":
            level += 1
            if level > MOST_LEVELS:
                raise ValueError(TOO_DEEP)
            if level > 1 and (level - 1) % DEEP == 0:
                begins.append(token.start())
        elif letter in b"]}":
            if begins and level > 1 and (level - 1) % DEEP == 0:
                found.append((begins.pop(), token.end(), (level - 1) // DEEP))
            level -= 1
    return [*found, (0, len(data), 0)]


def _layers(data: bytes) -> Any:
    """Decode layer by layer, from inside to outside. Raises ValueError."""
    # Stands for a part of the next layer. It is random, so no string of the text is equal to it.
    mark = token_hex(16)
    decoded: list[Any] = []
    #: The parts of each layer that their surrounding part has not taken yet: begin, end, index in `decoded`.
    open_parts: dict[int, list[tuple[int, int, int]]] = {}
    for begin, end, layer in _spans(data):
        pieces, at, inner = [], begin, open_parts.pop(layer + 1, [])
        for start, stop, index in inner:
            pieces += [data[at:start], f'"{mark}{index}"'.encode()]
            at = stop
        value = orjson.loads(b"".join([*pieces, data[at:end]]))
        if inner:
            _put_back(value, mark, decoded)
        if layer:
            open_parts.setdefault(layer, []).append((begin, end, len(decoded)))
            value = Deep(dumps(value))
        decoded.append(value)
    return decoded[-1]


def _put_back(value: Any, mark: str, decoded: list[Any]) -> None:
    """Replace the strings that stand for parts by these."""
    waiting = [value]
    while waiting:
        container = waiting.pop()
        items = container.items() if isinstance(container, dict) else enumerate(container)
        for key, item in list(items):
            if isinstance(item, dict | list):
                waiting.append(item)
            elif isinstance(item, str) and item.startswith(mark):
                container[key] = decoded[int(item.removeprefix(mark))]
