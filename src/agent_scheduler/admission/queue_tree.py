"""Checks the position of a queue in the tree, and its room there.

A queue without a parent is below `root`. The amounts of root are not compared, because it has the whole cluster. A
parent without `deserved` or `guarantee` has none for its children; without `capability`, that of the closest ancestor
with one applies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from agent_scheduler.engine.quotas.vector import (
    COMMON,
    CPU,
    MEMORY,
    Total,
    Vector,
    add_to,
    in_order,
    names,
    of_resources,
)
from agent_scheduler.objects.batch import ROOT_QUEUE, Queue
from apimachinery.quantity import UNIT, Quantity, canonical, value


def allocated_pods(queue: Queue) -> int:
    return value((queue.status.allocated or {}).get("pods", 0))


class QueueTreeRules:
    """Checks that return the problem, or an empty text. `queues` are the existing queues by name."""

    def __init__(self, queues: Mapping[str, Queue]) -> None:
        self.queues = queues
        self._below: dict[str, list[str]] = {}
        for name in sorted(queues):
            self._below.setdefault(queues[name].spec.parent, []).append(name)

    def below(self, name: str) -> list[str]:
        """Return the names of the queues with this parent."""
        return self._below.get(name, [])

    # ---- the place

    def place(self, queue: Queue, *, max_depth: int) -> str:
        """Check whether the queue may have its parent.

        Volcano allows moving a queue below itself, and then loops endlessly; here that is rejected.
        """
        name, parent = queue.name, queue.spec.parent
        if parent in ("", ROOT_QUEUE):
            return ""
        if parent == name:
            return f"queue {name} cannot use itself as parent"
        if problem := self._depth(queue, max_depth):
            return problem
        if not self.below(parent) and (pods := allocated_pods(self.queues[parent])):
            return f"queue {parent} cannot be the parent queue of queue {name} because it has allocated Pods: {pods}"
        above = {each.name for each in self._above(queue)}
        if name in above or name == ROOT_QUEUE:
            return f"queue {name} cannot have the queue {parent} as parent, which is below it"
        return ""

    def _depth(self, queue: Queue, most: int) -> str:
        depth, parent = 1, queue.spec.parent
        while parent not in ("", ROOT_QUEUE):
            depth += 1
            if depth > most:
                return f"queue {queue.name} exceeds the maximum allowed depth of {most}"
            if parent not in self.queues:
                return (
                    f"failed to get parent queue {parent} of queue {queue.name}: "
                    f'queue.scheduling.volcano.sh "{parent}" not found'
                )
            parent = self.queues[parent].spec.parent
        return ""

    def _above(self, queue: Queue) -> Iterator[Queue]:
        """Yield its ancestors without root, each once."""
        seen: set[str] = set()
        parent = queue.spec.parent
        while parent not in ("", ROOT_QUEUE) and parent not in seen and parent in self.queues:
            seen.add(parent)
            yield self.queues[parent]
            parent = self.queues[parent].spec.parent

    # ---- the room

    def fit(self, queue: Queue) -> str:
        """Check that the amounts of the queue are within those of its ancestors, and its descendants' within them.

        Raises QuantityError.
        """
        parent = queue.spec.parent
        if parent not in ("", ROOT_QUEUE):
            if parent not in self.queues:
                return f'parent queue {parent} not found: queue.scheduling.volcano.sh "{parent}" not found'
            siblings = [self.queues[name] for name in self.below(parent) if name != queue.name]
            problem = self._within_above(queue) or _sum_problem("parent queue", self.queues[parent], [*siblings, queue])
            if problem:
                return problem
        below = [self.queues[name] for name in self.below(queue.name)]
        if not below:
            return ""
        return self._above_those_below(queue, below) or _sum_problem("queue", queue, below)

    def _within_above(self, queue: Queue) -> str:
        capability = of_resources(queue.spec.capability)
        for resource in in_order(names(capability)):
            limit = next(
                (
                    most
                    for each in self._above(queue)
                    if (most := of_resources(each.spec.capability).get(resource, 0)) > 0
                ),
                None,
            )
            if limit is not None and capability[resource] > limit:
                return (
                    f"queue {queue.name} capability[{resource}]={_shown(resource, capability[resource])} exceeds "
                    f"its ancestor's capability={_shown(resource, limit)}"
                )
        return ""

    def _above_those_below(self, queue: Queue, below: Iterable[Queue]) -> str:
        capability = of_resources(queue.spec.capability)
        for resource in in_order(names(capability)):
            most = max((self._most_in(each, resource, {queue.name}) for each in below), default=0)
            if capability[resource] < most:
                return (
                    f"queue {queue.name} capability[{resource}]={_shown(resource, capability[resource])} is smaller "
                    f"than its descendants' max capability={_shown(resource, most)}"
                )
        return ""

    def _most_in(self, queue: Queue, resource: str, seen: set[str]) -> float:
        """Return the capability of the queue, or else the largest below it. `seen` stops at cycles, which may exist."""
        own = of_resources(queue.spec.capability).get(resource, 0)
        if own > 0 or queue.name in seen:
            return own
        seen = {*seen, queue.name}
        return max((self._most_in(self.queues[name], resource, seen) for name in self.below(queue.name)), default=0)


def _sum_problem(title: str, parent: Queue, children: Iterable[Queue]) -> str:
    limits = _guaranteed(parent), of_resources(parent.spec.deserved)
    sums: tuple[Total, Total] = {}, {}
    for child in children:
        amounts = _guaranteed(child), of_resources(child.spec.deserved)
        for what, total, limit, more in zip(("guarantee", "deserved"), sums, limits, amounts, strict=True):
            add_to(total, more)
            if any(amount > limit.get(resource, 0) for resource, amount in total.items()):
                return (
                    f"{title} {parent.name} validation failed: sum of children's {what} ({_listed(total)}) exceeds "
                    f"parent's {what} limit ({_listed(limit)})"
                )
    return ""


def _guaranteed(queue: Queue) -> Vector:
    return of_resources(queue.spec.guarantee.resource if queue.spec.guarantee is not None else None)


def _listed(vector: Vector) -> str:
    """Format a vector: cpu in millicores, memory in bytes, other resources in thousandths."""
    return ", ".join(f"{resource} {vector.get(resource, 0):.2f}" for resource in in_order({*COMMON, *vector.keys()}))


def _shown(resource: str, amount: float) -> str:
    """Format an amount of a vector, with cpu and memory as quantities."""
    if resource == CPU:
        return canonical(Quantity(int(amount) * (UNIT // 1000), "DecimalSI"))
    if resource == MEMORY:
        return canonical(Quantity(int(amount) * UNIT, "BinarySI"))
    return f"{amount:.2f}"
