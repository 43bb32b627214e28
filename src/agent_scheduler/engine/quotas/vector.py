"""Amounts of several resources, added and compared by Volcano's rules (`pkg/scheduler/api/resource_info.go`).

A vector maps a resource's name to its amount: cpu in millicores, memory in bytes, pods in pods, any other resource in
thousandths of its unit. Whoever holds a vector may rely on it not changing; `add_to` and `take_from` are for the totals
of their owner. Amounts are ints and exact; only what proportion divides by weights is a float, and `UNLIMITED`.

cpu and memory are dimensions of every vector, 0 where they are missing. Any other resource is a dimension only of the
vectors that name it, and each function says what it takes for the ones that do not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from apimachinery.quantity import QuantityError, milli_value, text_of, value

Vector = Mapping[str, float]
#: A vector that its owner changes.
Total = dict[str, float]

CPU: Final = "cpu"
MEMORY: Final = "memory"
PODS: Final = "pods"
#: The dimensions of every vector.
COMMON: Final = (CPU, MEMORY)

UNLIMITED: Final = math.inf
EMPTY: Final[Vector] = MappingProxyType({})

#: Less than this is nothing, and amounts that differ by less are equal. Whole amounts are never that close.
NOTHING: Final = 0.1


def counted(resource: str) -> bool:
    """Whether a list of resources makes a dimension of it: no quota of objects, requests or limits (`count/pods`,
    `requests.cpu`), nor a name that nodes do not have."""
    if resource in (CPU, MEMORY, PODS, "ephemeral-storage"):
        return True
    if resource.startswith(("hugepages-", "attachable-volumes-")):
        return True
    return "/" in resource and not resource.startswith(("count/", "requests."))


def of_resources(resources: Mapping[str, str | int | float] | None) -> Vector:
    """The vector of a list of resources as objects have them (`capability`, `minResources`, `allocatable`).

    Raises `QuantityError`.
    """
    if not resources:
        return EMPTY
    return {
        resource: value(quantity) if resource in (MEMORY, PODS) else milli_value(quantity)
        for resource, quantity in resources.items()
        if counted(resource)
    }


def of_requests(requests: Mapping[str, int]) -> Vector:
    """The vector of a pod that asks for `requests`, in the ledger's units; every pod is one of pods."""
    return {
        **{
            resource: amount if resource in COMMON else amount * 1000
            for resource, amount in requests.items()
            if resource != PODS and counted(resource)
        },
        PODS: 1,
    }


def readable(resources: Mapping[str, str | int | float] | None, place: str, problems: list[str]) -> Vector:
    """As `of_resources`, without what cannot be read, which is added to `problems` as `place[resource]: why`."""
    found: dict[str, float] = {}
    for resource, quantity in (resources or {}).items():
        try:
            found.update(of_resources({resource: quantity}))
        except QuantityError as error:
            problems.append(f"{place}[{resource}]: {error}")
    return found


def in_ledger_units(resource: str, amount: float) -> int:
    """The amount of a vector in the ledger's units, rounded up: millicores for cpu, whole units for all else."""
    return math.ceil(amount if resource in (CPU, MEMORY, PODS) else amount / 1000)


def shown(vector: Vector) -> dict[str, str]:
    """Each amount as people write it, but for those of nothing."""
    return {
        resource: text_of(resource, in_ledger_units(resource, amount))
        for resource, amount in vector.items()
        if amount
    }


def add_to(total: Total, more: Vector) -> None:
    for resource, amount in more.items():
        total[resource] = total.get(resource, 0) + amount


def take_from(total: Total, less: Vector) -> None:
    """The dimension stays, with 0, where nothing is left."""
    for resource, amount in less.items():
        total[resource] = total.get(resource, 0) - amount


def plus(left: Vector, right: Vector) -> Total:
    total = dict(left)
    add_to(total, right)
    return total


def minus(left: Vector, right: Vector) -> Total:
    """May go below 0."""
    total = dict(left)
    take_from(total, right)
    return total


def rest(wanted: Vector, held: Vector) -> Total:
    """What of `wanted` is not in `held`; resources of which nothing is left are left out."""
    return {
        resource: amount - held.get(resource, 0)
        for resource, amount in wanted.items()
        if amount > held.get(resource, 0)
    }


def names(vector: Vector) -> Iterator[str]:
    """The resources of which there is any."""
    return (resource for resource, amount in vector.items() if amount >= NOTHING)


def is_empty(vector: Vector) -> bool:
    """Whether there is nothing but pods in it."""
    return all(amount < NOTHING or resource == PODS for resource, amount in vector.items())


def _at_most(left: float, right: float) -> bool:
    return left <= right or left - right < NOTHING


def less_equal(left: Vector, right: Vector) -> bool:
    """In each dimension of `left`, cpu and memory; what `right` misses is 0."""
    return all(_at_most(amount, right.get(resource, 0)) for resource, amount in left.items()) and all(
        _at_most(0, right.get(resource, 0)) for resource in COMMON if resource not in left
    )


def exceeding(left: Vector, right: Vector) -> Total:
    """What is in `left` above `right`; a dimension other than cpu and memory only where there is something."""
    over: Total = dict.fromkeys(COMMON, 0)
    for resource, amount in left.items():
        limit = right.get(resource, 0)
        if amount > limit:
            over[resource] = amount - limit
    return over


def at_most(vector: Vector, limit: Vector, *, missing: float) -> Total:
    """The lesser of both in each dimension of `vector`. `missing`: what counts for a dimension other than cpu and
    memory that `limit` does not have, 0 or `UNLIMITED`."""
    return {
        resource: min(amount, limit.get(resource, 0 if resource in COMMON else missing))
        for resource, amount in vector.items()
    }


def at_least(left: Vector, right: Vector) -> Total:
    """The greater of both in each dimension of either, without dimensions other than cpu and memory that are 0."""
    greater: Total = {resource: max(left.get(resource, 0), right.get(resource, 0)) for resource in COMMON}
    for each in (left, right):
        for resource, amount in each.items():
            if amount > greater.get(resource, 0):
                greater[resource] = amount
    return greater


def in_order(resources: Iterable[str]) -> list[str]:
    """cpu, memory, then by name."""
    return sorted(resources, key=lambda resource: (resource != CPU, resource != MEMORY, resource))


def insufficient(used: Vector, limit: Vector, wanted: Vector) -> list[str]:
    """Of what is `wanted`, the resources of which `used` is above `limit`, in order.

    Pods are not limited by queues. What `limit` misses is 0.
    """
    return in_order(
        resource
        for resource, amount in wanted.items()
        if amount > 0 and resource != PODS and used.get(resource, 0) > limit.get(resource, 0)
    )


def any_within(used: Vector, limit: Vector, wanted: Vector) -> bool:
    """Whether of anything that is `wanted` `used` is at most `limit`, pods and what neither has left aside."""
    for resource, amount in wanted.items():
        if amount <= 0 or resource == PODS:
            continue
        left, right = used.get(resource, 0), limit.get(resource, 0)
        if (left >= NOTHING or right >= NOTHING) and _at_most(left, right):
            return True
    return False


def any_above(used: Vector, limit: Vector, wanted: Vector) -> bool:
    """Whether of anything that is `wanted` `used` is above `limit`, but for pods and what `limit` says nothing of."""
    for resource, amount in wanted.items():
        if amount <= 0 or resource == PODS or resource not in limit:
            continue
        right = limit[resource]
        if resource in COMMON and right < NOTHING:
            continue
        if used.get(resource, 0) > right:
            return True
    return False
