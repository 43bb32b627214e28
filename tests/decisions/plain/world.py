"""The input of a rule, the nodes and the placed pods of the API, and its refusals.

Objects are the dicts of the JSON; nothing is compiled, cached or shared between rules, because the engine's compiled
rules are compared with these.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

Obj = Mapping[str, Any]


class Refusal(NamedTuple):
    """The reason of a node's refusal; unresolvable if the removal of pods from that node could not help."""

    reasons: tuple[str, ...]
    unresolvable: bool


@dataclass(frozen=True)
class World:
    """A cluster at one moment. `namespaces` has the labels of namespaces, for selectors of namespaces."""

    nodes: tuple[Obj, ...]
    pods: tuple[Obj, ...]
    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @cached_property
    def _by_node(self) -> dict[str, list[Obj]]:
        found: dict[str, list[Obj]] = {name(node): [] for node in self.nodes}
        for pod in self.pods:
            found.setdefault(pod["spec"]["nodeName"], []).append(pod)
        return found

    @cached_property
    def _nodes(self) -> dict[str, Obj]:
        return {name(node): node for node in self.nodes}

    def on(self, node: Obj) -> list[Obj]:
        """Return the pods placed on `node`."""
        return self._by_node[name(node)]

    def placed(self) -> Iterable[tuple[Obj, Obj]]:
        """Yield each placed pod with its node; pods of deleted nodes are left out."""
        return ((pod, self._nodes[at]) for pod in self.pods if (at := pod["spec"]["nodeName"]) in self._nodes)

    def without(self, gone: Iterable[Obj]) -> World:
        """Return the same world after the removal of these very pods."""
        removed = {id(pod) for pod in gone}
        return replace(self, pods=tuple(pod for pod in self.pods if id(pod) not in removed))


def name(obj: Obj) -> str:
    return str(obj["metadata"]["name"])


def namespace(obj: Obj) -> str:
    return str(obj["metadata"].get("namespace") or "default")


def labels(obj: Obj) -> Mapping[str, str]:
    return obj["metadata"].get("labels") or {}


def taints(node: Obj) -> list[Obj]:
    return list((node.get("spec") or {}).get("taints") or [])


def by_largest(raw: dict[str, int], *, reverse: bool = False) -> dict[str, int]:
    """Return DefaultNormalizeScore of `plugins/helper`: the largest raw score becomes 100, the others in proportion.

    Scores are rounded down. Reversed, the result is subtracted from 100; if all are 0, all become 100.
    """
    largest = max(raw.values())
    if largest == 0:
        return dict.fromkeys(raw, 100) if reverse else raw
    scaled = {node: score * 100 // largest for node, score in raw.items()}
    return {node: 100 - score for node, score in scaled.items()} if reverse else scaled
