"""Checks whether a namespace may use a queue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from agent_scheduler.engine.queues.shortfall import Shortfall
from agent_scheduler.engine.quotas.access import NamespaceList, closed_to, may_use, namespace_list
from agent_scheduler.objects.batch import ROOT_QUEUE, Queue

#: The labels of namespaces by name. A missing namespace has none.
LabelsByName = Mapping[str, Mapping[str, str]]
NO_LABELS: Final[LabelsByName] = MappingProxyType({})


def not_allowed(queue: str, namespace: str, queues: Mapping[str, Queue], labels: LabelsByName) -> Iterator[str]:
    """Yield the problem of an object of this namespace in a queue that it may not use."""
    if not may_use(_lists(queue, queues), namespace, labels.get(namespace, {})):
        yield str(Shortfall(closed_to(queue, namespace), {}))


def _lists(queue: str, queues: Mapping[str, Queue]) -> Iterator[NamespaceList | None]:
    """Yield the lists of the queue and its ancestors, upwards; each once, since a parent may be a descendant."""
    seen: set[str] = set()
    at = queues.get(queue)
    while at is not None and at.name not in seen:
        seen.add(at.name)
        yield namespace_list(at.metadata.annotations, [])
        at = None if at.name == ROOT_QUEUE else queues.get(at.spec.parent or ROOT_QUEUE)
