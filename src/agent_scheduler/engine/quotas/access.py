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

NAMESPACES: Final = "agent-scheduler.io/namespaces"
NAMESPACE_SELECTOR: Final = "agent-scheduler.io/namespace-selector"

#: Names of objects have no spaces, so no queue has such a name.
_CLOSED_TO: Final = " closed to "
_KEY: Final = r"(?:[a-z0-9.-]+/)?[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_VALUE: Final = r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)?"
_EQUAL: Final = re.compile(rf"({_KEY})\s*(==|=|!=)\s*({_VALUE})")
_AMONG: Final = re.compile(rf"({_KEY})\s+(in|notin)\s*\(([^()]*)\)")
_THERE: Final = re.compile(rf"(!?)\s*({_KEY})")
_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")


class LabelRequirement(NamedTuple):
    """A label is among `values`, or is not; with `values` None, it exists, or does not."""

    key: str
    values: frozenset[str] | None
    holds: bool = True

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        found = value is not None and (self.values is None or value in self.values)
        return found == self.holds


class NamespaceList(NamedTuple):
    """The namespaces of these names, and those whose labels meet all requirements; None for no selector."""

    names: frozenset[str] = frozenset()
    selector: tuple[LabelRequirement, ...] | None = None

    def includes(self, namespace: str, labels: Mapping[str, str]) -> bool:
        return namespace in self.names or (
            self.selector is not None and all(each.matches(labels) for each in self.selector)
        )


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
    names, selector = annotations.get(NAMESPACES, ""), annotations.get(NAMESPACE_SELECTOR)
    listed = [each.strip() for each in names.split(",")] if names.strip() else []
    wrong = [each for each in listed if _NAME.fullmatch(each) is None]
    if wrong:
        problems.append(
            f"metadata.annotations[{NAMESPACES}]: {wrong[0]!r} is not the name of a namespace; "
            "allowed: names of namespaces, separated by commas"
        )
    requirements = None if selector is None else _requirements(selector)
    if selector is not None and requirements is None:
        problems.append(
            f"metadata.annotations[{NAMESPACE_SELECTOR}]: {selector!r} is not a label selector; "
            "allowed: key, !key, key=value, key!=value, key in (a,b), key notin (a,b), separated by commas"
        )
    return NamespaceList(frozenset(each for each in listed if each not in wrong), requirements)


def _requirements(text: str) -> tuple[LabelRequirement, ...] | None:
    """Parse a label selector in kubectl's form; None if it is invalid. An empty one matches all labels."""
    found = []
    for each in _parts(text) if text.strip() else ():
        requirement = _requirement(each.strip())
        if requirement is None:
            return None
        found.append(requirement)
    return tuple(found)


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


def _requirement(text: str) -> LabelRequirement | None:
    if match := _AMONG.fullmatch(text):
        values = [each.strip() for each in match[3].split(",")]
        valid = all(re.fullmatch(_VALUE, each) for each in values)
        return LabelRequirement(match[1], frozenset(values), match[2] == "in") if valid else None
    if match := _EQUAL.fullmatch(text):
        return LabelRequirement(match[1], frozenset((match[3],)), match[2] != "!=")
    if match := _THERE.fullmatch(text):
        return LabelRequirement(match[2], None, not match[1])
    return None


def in_force(lists: Iterable[NamespaceList | None]) -> NamespaceList | None:
    """Return the list that applies to a queue, of its own and those of its ancestors upwards."""
    return next((each for each in lists if each is not None), None)
