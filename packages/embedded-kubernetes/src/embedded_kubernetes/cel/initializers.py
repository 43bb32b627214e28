"""Object initializers of mutations, `Object.spec{replicas: 1}` and `JSONPatch{op: "add"}`, as maps that say their type.

The library builds only types that were declared to it as protocol buffers; the types of a mutation have any field.
So an initializer is written anew as a map with one more key, `TYPE`, before it is compiled. What is no initializer is
left as it stands, letter by letter.
"""

from __future__ import annotations

import re
from base64 import b64encode
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

#: The key of a map that was an initializer, with the type's name. No JSON that clients send has a reason to have it.
TYPE = "\ue000type"

_ROOTS = ("Object", "JSONPatch")
#: Strings in all of CEL's forms, comments, names with what they are selected from, and everything else.
TOKEN = re.compile(
    r"(?P<skip>(?:[rR]?[bB]?|[bB][rR])(?:\"\"\".*?(?<!\\)\"\"\"|'''.*?(?<!\\)'''"
    r"|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*')|//[^\n]*)"
    r"|(?P<name>`[^`]*`|[A-Za-z_][A-Za-z0-9_]*(?:\s*\.\s*[A-Za-z_][A-Za-z0-9_]*)*)"
    r"|(?P<space>\s+)|(?P<other>.)",
    re.DOTALL,
)
#: How names that CEL cannot spell are written.
_ESCAPES = (("__underscores__", "__"), ("__dot__", "."), ("__dash__", "-"), ("__slash__", "/"))


def has_initializers(text: str) -> bool:
    return any(re.search(rf"\b{root}\s*[.{{]", text) for root in _ROOTS)


class Maps(NamedTuple):
    """An expression that was written anew. `places` pairs offsets in it with those of what was written there, in
    order."""

    text: str
    places: list[tuple[int, int]]

    def written(self, offset: int) -> int:
        """Where in the expression that was written something in this one is."""
        index = bisect_right(self.places, (offset, len(self.text) * 2)) - 1
        here, there = self.places[max(index, 0)]
        return there + offset - here


def written(offset: int, maps: Sequence[Maps]) -> int:
    """Where in the expression that was written something in the last of these is, each of which was made of the one
    before."""
    for each in reversed(maps):
        offset = each.written(offset)
    return offset


def as_maps(text: str) -> Maps:
    """A text that is no CEL may become any other that is none."""
    return joined(_parts(text, lambda name: f'dyn({{"{TYPE}": "{name}", '))


def as_calls(text: str) -> tuple[Maps, frozenset[str]]:
    """The expression with calls of functions for initializers, named as their types, and these names. Only for being
    checked."""
    names: set[str] = set()

    def opening(name: str) -> str:
        names.add(name)
        return f"{name}({{"

    return joined(_parts(text, opening)), frozenset(names)


def joined(found: Iterator[tuple[str, int]]) -> Maps:
    """Of parts of a new text, each with the offset of what it stands for."""
    parts: list[str] = []
    places: list[tuple[int, int]] = []
    size = 0
    for part, at in found:
        places.append((size, at))
        parts.append(part)
        size += len(part)
    return Maps("".join(parts), places)


def _parts(text: str, opening: Callable[[str], str]) -> Iterator[tuple[str, int]]:
    """Parts of the new text, each with the offset of what it stands for.

    Of the brackets that are open is known whether they are an initializer's, and there, whether a field's name is due.
    """
    open_: list[list[bool]] = []
    name, name_at, space = "", 0, ""
    after_dot = False
    for match in TOKEN.finditer(text):
        kind, part, at = match.lastgroup, match[0], match.start()
        if name and kind != "space":
            if part == "{" and not after_dot and re.split(r"[\s.]+", name)[0] in _ROOTS:
                yield opening(_field("".join(name.split()))), name_at
                open_.append([True, True])
                name = space = ""
                continue
            field = part == ":" and open_ and all(open_[-1])
            yield (f'"{_field(name)}"' if field else name), name_at
            yield space, at - len(space)
            name = space = ""
        if kind == "name":
            name, name_at, space = part, at, ""
            continue
        if name:
            space = part
            continue
        if kind == "other":
            if part in "([{":
                open_.append([False, False])
            elif part in ")]}" and open_:
                initializer, _ = open_.pop()
                if initializer:
                    part = "})"
            elif open_ and open_[-1][0] and part in ",:":
                open_[-1][1] = part == ","
        after_dot = part == "."
        yield part, at
    yield name, name_at
    yield space, len(text) - len(space)


def _field(name: str) -> str:
    for escaped, plain in _ESCAPES:
        name = name.replace(escaped, plain)
    return re.sub(r"^__(\w+)__$", r"\1", name)


def plain(value: Any) -> Any:
    """A value without the names of types, as JSON: times and durations are texts, and so are bytes, in base64."""
    if isinstance(value, dict):
        return {key: plain(held) for key, held in value.items() if key != TYPE}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return f"{value.total_seconds():g}s" if isinstance(value, timedelta) else value


def misplaced(value: Any, path: str = "Object") -> str:
    """All that is wrong with the names of types in a value at a field's path; empty if each is its own field's."""
    return "\n".join(_misplaced(value, path))


def _misplaced(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from _misplaced(item, path)
    elif isinstance(value, dict):
        found = value.get(TYPE)
        if found not in (None, path):
            yield (
                f'unexpected type name "{found}", expected "{path}", which matches field name path from root Object '
                "type"
            )
        for key, held in value.items():
            if key != TYPE:
                # Maps have no names.
                yield from _misplaced(held, path if found is None else f"{path}.{key}")
