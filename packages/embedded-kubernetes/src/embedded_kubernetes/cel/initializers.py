"""Object initializers of mutations, `Object.spec{replicas: 1}` and `JSONPatch{op: "add"}`, as maps with a type key.

cel-expr-python constructs only types that are declared as protocol buffers, whereas the types of a mutation
accept any field. An initializer is therefore rewritten before compilation into a map with the extra key
`TYPE`. All other text is kept unchanged.
"""

from __future__ import annotations

import re
from base64 import b64encode
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

#: The key that holds the type's name in a map that was an initializer. A private-use character keeps it apart
#: from the keys of clients.
TYPE = "\ue000type"

_ROOTS = ("Object", "JSONPatch")
#: The tokens: strings in all CEL forms and comments, names with their selections, space, and any other
#: character.
TOKEN = re.compile(
    r"(?P<skip>(?:[rR]?[bB]?|[bB][rR])(?:\"\"\".*?(?<!\\)\"\"\"|'''.*?(?<!\\)'''"
    r"|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*')|//[^\n]*)"
    r"|(?P<name>`[^`]*`|[A-Za-z_][A-Za-z0-9_]*(?:\s*\.\s*[A-Za-z_][A-Za-z0-9_]*)*)"
    r"|(?P<space>\s+)|(?P<other>.)",
    re.DOTALL,
)
#: Escapes for field names that CEL's syntax does not allow.
_ESCAPES = (("__underscores__", "__"), ("__dot__", "."), ("__dash__", "-"), ("__slash__", "/"))


def has_initializers(text: str) -> bool:
    return any(re.search(rf"\b{root}\s*[.{{]", text) for root in _ROOTS)


class Maps(NamedTuple):
    """A rewritten expression. `places` pairs its offsets with offsets of the original text, in ascending order."""

    text: str
    places: list[tuple[int, int]]

    def written(self, offset: int) -> int:
        """Return the offset in the original text for an offset in this text."""
        index = bisect_right(self.places, (offset, len(self.text) * 2)) - 1
        here, there = self.places[max(index, 0)]
        return there + offset - here


def written(offset: int, maps: Sequence[Maps]) -> int:
    """Return the offset in the original text for an offset in the last of a chain of rewrites."""
    for each in reversed(maps):
        offset = each.written(offset)
    return offset


def as_maps(text: str) -> Maps:
    """Return the expression with maps in place of initializers. Invalid CEL stays invalid."""
    return joined(_parts(text, lambda name: f'dyn({{"{TYPE}": "{name}", '))


def as_calls(text: str) -> tuple[Maps, frozenset[str]]:
    """Return the expression with function calls in place of initializers, and the functions' names.

    Each function is named after its type. Only the checker uses this form.
    """
    names: set[str] = set()

    def opening(name: str) -> str:
        names.add(name)
        return f"{name}({{"

    return joined(_parts(text, opening)), frozenset(names)


def joined(found: Iterator[tuple[str, int]]) -> Maps:
    """Concatenate the parts of a rewritten text, each with the offset of the original text that it replaces."""
    parts: list[str] = []
    places: list[tuple[int, int]] = []
    size = 0
    for part, at in found:
        places.append((size, at))
        parts.append(part)
        size += len(part)
    return Maps("".join(parts), places)


def _parts(text: str, opening: Callable[[str], str]) -> Iterator[tuple[str, int]]:
    """Yield the parts of the rewritten text, each with the offset of the original text that it replaces.

    `open_` has an entry for each open bracket: whether it belongs to an initializer and whether a field name
    comes next.
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
    """Return the value as JSON without type keys: times and durations become strings, bytes become base64."""
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
    """Return an error line for each type name that does not match its field's path; empty if all match."""
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
                # A plain map has no type name.
                yield from _misplaced(held, path if found is None else f"{path}.{key}")
