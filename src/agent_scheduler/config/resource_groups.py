"""Reads Volcano's resource groups, which add node selectors, affinity, tolerations and a scheduler to pods."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from agent_scheduler.admission.pods import RESOURCE_GROUP, ResourceGroup
from apimachinery.codec import decode
from apimachinery.document import Document
from apimachinery.errors import ConfigurationError, Invalid, Path, found
from apimachinery.values import Name, Section
from apimachinery.yaml_text import InvalidYaml, load


class _GroupMembers(Section, frozen=True, kw_only=True):
    """The members of a group. With the key namespace, `value` has namespaces, otherwise pairs such as `key: value`.

    Without a key the annotation `volcano.sh/resource-group` counts, too.
    """

    key: Literal["annotation", "namespace"] | None = None
    value: tuple[str, ...] = ()


class _Entry(Section, frozen=True, kw_only=True):
    """A group. `affinity` is a pod's affinity as JSON."""

    resource_group: Name
    object: _GroupMembers = _GroupMembers()
    scheduler_name: str = ""
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    affinity: str = ""
    tolerations: tuple[dict[str, Any], ...] = ()


class _File(Section, frozen=True, kw_only=True):
    resource_groups: tuple[_Entry, ...] = ()


def read_resource_groups(text: str, *, source: str) -> tuple[ResourceGroup, ...]:
    """Read the groups. Raises ConfigurationError with the line of `source`."""
    document = Document(text, source=source)
    try:
        file = decode({} if document.data is None else document.data, _File)
        return tuple(_group(entry, ("resourceGroups", index)) for index, entry in enumerate(file.resource_groups))
    except Invalid as error:
        raise ConfigurationError(f"{document.where(error.path)}: {error}") from None


def _group(entry: _Entry, at: Path) -> ResourceGroup:
    members = entry.object
    if members.key and not members.value:
        raise Invalid((*at, "object", "value"), f"is empty; allowed: at least one {members.key}")
    annotations: dict[str, str] = {}
    if members.key != "namespace":
        for index, pair in enumerate(members.value):
            annotations = {**_annotations(pair, (*at, "object", "value", index)), **annotations}
    if not members.key:
        annotations.setdefault(RESOURCE_GROUP, entry.resource_group)
    return ResourceGroup(
        namespaces=frozenset(members.value if members.key == "namespace" else ()),
        annotations=annotations,
        labels=entry.labels,
        affinity=_affinity(entry.affinity, (*at, "affinity")),
        tolerations=entry.tolerations,
        scheduler_name=entry.scheduler_name,
    )


def _annotations(pair: str, at: Path) -> Mapping[str, str]:
    try:
        read = load(pair)
    except InvalidYaml:
        read = None
    if not isinstance(read, dict) or not all(isinstance(each, str) for both in read.items() for each in both):
        raise Invalid(at, f"found {pair!r}; allowed: an annotation, such as 'key: value'")
    return read


def _affinity(text: str, at: Path) -> Mapping[str, Any] | None:
    if not text:
        return None
    try:
        read = json.loads(text)
    except ValueError as error:
        raise Invalid(at, f"not valid JSON: {error}; allowed: the affinity of a pod as JSON") from None
    if not isinstance(read, dict):
        raise Invalid(at, f"found {found(read)}; allowed: the affinity of a pod as JSON")
    return read
