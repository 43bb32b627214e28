"""The names that expressions of webhooks and policies may use, and how unknown names are reported.

cel-expr-python has one set of variables, all of any type. This module checks which of them an expression has,
which fields typed variables have, and which variables a policy declares. Errors have the wording and
positions of cel-go's checker.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from .initializers import TOKEN

#: The fields of `request`. None stands for a value with unknown fields.
_KIND: Mapping[str, Any] = {"group": None, "version": None, "kind": None}
_RESOURCE: Mapping[str, Any] = {"group": None, "version": None, "resource": None}
_REQUEST: Mapping[str, Any] = {
    "kind": _KIND,
    "resource": _RESOURCE,
    "subResource": None,
    "requestKind": _KIND,
    "requestResource": _RESOURCE,
    "requestSubResource": None,
    "name": None,
    "namespace": None,
    "operation": None,
    "userInfo": {"username": None, "uid": None, "groups": None, "extra": None},
    "dryRun": None,
    "options": None,
}
_NAMESPACE: Mapping[str, Any] = {
    "metadata": dict.fromkeys(
        (
            *("name", "generateName", "namespace", "labels", "annotations", "UID", "creationTimestamp"),
            *("deletionGracePeriodSeconds", "deletionTimestamp", "generation", "resourceVersion", "finalizers"),
        )
    ),
    "spec": {"finalizers": None},
    "status": {"conditions": None, "phase": None},
}
_TESTED = re.compile(r"\bhas\(\s*variables\s*\.\s*(\w+)\s*\)")
_KNOWN = ("object", "oldObject", "request", "namespaceObject", "authorizer", "params", "variables")


class Names(NamedTuple):
    """The variables of an expression besides `object`, `oldObject`, `request` and `namespaceObject`.

    `variables` are a policy's variables with their type signatures; None if the expression has no `variables`
    map. `patches` adds the types of mutations.
    """

    authorizer: bool = True
    params: bool = False
    variables: Mapping[str, str] | None = None
    patches: bool = False

    def has(self, name: str) -> bool:
        if name == "variables":
            return self.variables is not None
        return (name != "params" or self.params) and (name != "authorizer" or self.authorizer)


class Mention(NamedTuple):
    """A variable with its selections, which begins at offset `start`.

    `places` are the offsets of the dots. `called` is true if the last name is a method.
    """

    start: int
    path: tuple[str, ...]
    places: tuple[int, ...]
    called: bool


def mentions(text: str) -> Iterator[Mention]:
    """Yield every variable of an expression in order, including a macro's own variables."""
    after_dot = False
    for match in TOKEN.finditer(text):
        if match.lastgroup == "name" and not after_dot:
            path = tuple(re.split(r"\s*\.\s*", match[0]))
            places = tuple(match.start() + dot.start() for dot in re.finditer(r"\.", match[0]))
            called = text[match.end() :].lstrip().startswith("(")
            yield Mention(match.start(), path, places, called)
        if match.lastgroup != "space":
            after_dot = match[0] == "."


def problems(text: str, names: Names) -> str:
    """Return an error for each name that a compiled expression may not use; empty if there are none."""
    found: list[str] = []
    for mention in mentions(text):
        root = mention.path[0]
        if root not in _KNOWN:
            continue
        if not names.has(root):
            found.append(problem_text(text, mention.start, f"undeclared reference to '{root}' (in container '')"))
            continue
        fields: Any = None
        if root == "request":
            fields = _REQUEST
        elif root == "namespaceObject":
            fields = _NAMESPACE
        elif root == "variables":
            fields = dict.fromkeys(names.variables or {})
        selected = mention.path[1:-1] if mention.called else mention.path[1:]
        for name, place in zip(selected, mention.places, strict=False):
            if fields is None:
                break
            if name not in fields:
                found.append(problem_text(text, place, f"undefined field '{name}'"))
                break
            fields = fields[name]
    return "\n".join(found)


def inlined(text: str, variables: Mapping[str, str]) -> str:
    """Return the expression with the source of each of `variables` in place of its references.

    Every variable must have a value.
    """
    text = _TESTED.sub(lambda match: "true" if match[1] in variables else match[0], text)
    parts, end = [], 0
    for mention in mentions(text):
        if mention.path[0] == "variables" and len(mention.path) > 1 and mention.path[1] in variables:
            name = mention.path[1]
            parts += [text[end : mention.start], f"({variables[name]})"]
            end = text.index(name, mention.places[0]) + len(name)
    return "".join([*parts, text[end:]])


def problem_text(text: str, place: int, problem: str) -> str:
    """Return a problem at an offset of an expression in cel-go's format."""
    line = text.count("\n", 0, place)
    column = place - (text.rfind("\n", 0, place) + 1)
    source = text.split("\n")[line]
    return f"ERROR: <input>:{line + 1}:{column + 1}: {problem}\n | {source}\n | {'.' * column}^"


def missing_field(text: str, values: Mapping[str, Any]) -> tuple[str, Any]:
    """Return the first field selected from a value without fields, and that value; an empty name if all exist."""
    for mention in mentions(text):
        if mention.path[0] not in values:
            continue
        value = values[mention.path[0]]
        for name in mention.path[1:-1] if mention.called else mention.path[1:]:
            if not isinstance(value, dict):
                return name, value
            if name not in value:
                break
            value = value[name]
    return "", None
