"""The namespaces that may use a queue, if its object lists them.

Two annotations of a Queue list them, because its CRD, which is Volcano's, has no field for it and removes unknown ones.
A queue without annotations has the list of its closest ancestor with one. Without any list, all namespaces may use it.

A pod or group of another namespace is in a queue of its own that does not exist, `closed_to(queue, namespace)`: it is
counted nowhere, and no scheduler admits it, as for every queue that does not exist.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from apimachinery.labels import LabelSelector, Requirement, ordered
from apimachinery.validation import names

NAMESPACES: Final = "agent-scheduler.io/namespaces"
NAMESPACE_SELECTOR: Final = "agent-scheduler.io/namespace-selector"

#: Names of objects have no spaces, so no queue has such a name.
_CLOSED_TO: Final = " closed to "
_KEY: Final = r"(?:[a-z0-9.-]+/)?[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_VALUE: Final = r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)?"
_EQUAL: Final = re.compile(rf"({_KEY})\s*(==|=|!=)\s*({_VALUE})")
_AMONG: Final = re.compile(rf"({_KEY})\s+(in|notin)\s*\(([^()]*)\)")
_THERE: Final = re.compile(rf"(!?)\s*({_KEY})")


class NamespaceList(NamedTuple):
    """The namespaces of these names, and those whose labels meet all requirements; None for no selector."""

    names: frozenset[str] = frozenset()
    selector: LabelSelector | None = None

    def includes(self, namespace: str, labels: Mapping[str, str]) -> bool:
        return namespace in self.names or (self.selector is not None and self.selector.matches(labels))


def closed_to(queue: str, namespace: str) -> str:
    """Return the name of the queue that pods of a namespace are in if it may not use `queue`."""
    return f"{queue}{_CLOSED_TO}{namespace}"


def parts_of_closed(name: str) -> tuple[str, str] | None:
    """Return queue and namespace of a name that `closed_to` made; None for the name of any other queue."""
    queue, found, namespace = name.partition(_CLOSED_TO)
    return (queue, namespace) if found else None


def namespace_list(annotations: Mapping[str, str] | None, problems: list[str]) -> NamespaceList | None:
    """Read the list of a queue's annotations; None if it has none.

    An invalid part lets no namespace in, and is added to `problems` with its place and the allowed form.
    """
    if annotations is None or (NAMESPACES not in annotations and NAMESPACE_SELECTOR not in annotations):
        return None
    text, selector = annotations.get(NAMESPACES, ""), annotations.get(NAMESPACE_SELECTOR)
    listed = [each.strip() for each in text.split(",")] if text.strip() else []
    wrong = [each for each in listed if names.label(each)]
    if wrong:
        problems.append(
            f"metadata.annotations[{NAMESPACES}]: {wrong[0]!r} is not the name of a namespace; "
            "allowed: names of namespaces, separated by commas"
        )
    compiled = None if selector is None else _selector(selector)
    if selector is not None and compiled is None:
        problems.append(
            f"metadata.annotations[{NAMESPACE_SELECTOR}]: {selector!r} is not a label selector; "
            "allowed: key, !key, key=value, key!=value, key in (a,b), key notin (a,b), separated by commas"
        )
    return NamespaceList(frozenset(each for each in listed if each not in wrong), compiled)


def _selector(text: str) -> LabelSelector | None:
    """Parse a label selector in kubectl's form; None if it is invalid. An empty one matches all labels."""
    found = []
    for each in _parts(text) if text.strip() else ():
        requirement = _requirement(each.strip())
        if requirement is None:
            return None
        found.append(requirement)
    return ordered(found)


def _parts(text: str) -> Iterator[str]:
    """Split at commas that are not in parentheses."""
    part: list[str] = []
    for each in text.split(","):
        part.append(each)
        if "(" not in part[0] or ")" in each:
            yield ",".join(part)
            part = []
    if part:
        yield ",".join(part)


def _requirement(text: str) -> Requirement | None:
    if match := _AMONG.fullmatch(text):
        values = [each.strip() for each in match[3].split(",")]
        valid = all(re.fullmatch(_VALUE, each) for each in values)
        operator = "In" if match[2] == "in" else "NotIn"
        return Requirement(match[1], operator, frozenset(values)) if valid else None
    if match := _EQUAL.fullmatch(text):
        return Requirement(match[1], "NotIn" if match[2] == "!=" else "In", frozenset((match[3],)))
    if match := _THERE.fullmatch(text):
        return Requirement(match[2], "DoesNotExist" if match[1] else "Exists", frozenset())
    return None


def in_force(lists: Iterable[NamespaceList | None]) -> NamespaceList | None:
    """Return the list that applies to a queue, of its own and those of its ancestors upwards."""
    return next((each for each in lists if each is not None), None)


def may_use(lists: Iterable[NamespaceList | None], namespace: str, labels: Mapping[str, str]) -> bool:
    """Return whether the namespace with these labels may use the queue with these lists, as for `in_force`."""
    listed = in_force(lists)
    return listed is None or listed.includes(namespace, labels)
