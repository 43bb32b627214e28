"""Vectors: amounts of several resources, added and compared by Volcano's rules (`pkg/scheduler/api/resource_info.go`).

A vector maps the names of resources to amounts: cpu in millicores, memory in bytes, pods in pods, other resources in
thousandths of their unit. A `Vector` does not change; `add_to` and `take_from` change a `Total`, which only its owner
may do. Amounts are exact ints; only the shares of proportion, and `UNLIMITED`, are floats.

cpu and memory are dimensions of every vector, and count as 0 if missing. Other resources are dimensions only of vectors
that name them; the functions document what they use otherwise.
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

#: Smaller amounts count as 0, and amounts with a smaller difference as equal. Distinct ints always differ by more.
NOTHING: Final = 0.1


def counted(resource: str) -> bool:
    """Return whether vectors contain the resource.

    They contain neither quotas of objects, requests or limits (`count/pods`, `requests.cpu`), nor names that nodes
    cannot have.
    """
    if resource in (CPU, MEMORY, PODS, "ephemeral-storage"):
        return True
    if resource.startswith(("hugepages-", "attachable-volumes-")):
        return True
    return "/" in resource and not resource.startswith(("count/", "requests."))


def of_resources(resources: Mapping[str, str | int | float] | None) -> Vector:
    """Return the vector of a field of an object (`capability`, `minResources`, `allocatable`).

    Raises `QuantityError` for an invalid quantity.
    """
    if not resources:
        return EMPTY
    return {
        resource: value(quantity) if resource in (MEMORY, PODS) else milli_value(quantity)
        for resource, quantity in resources.items()
        if counted(resource)
    }


def of_requests(requests: Mapping[str, int]) -> Vector:
    """Return the vector of a pod with these `requests` in the ledger's units, and 1 of the resource pods."""
    return {
        **{
            resource: amount if resource in COMMON else amount * 1000
            for resource, amount in requests.items()
            if resource != PODS and counted(resource)
        },
        PODS: 1,
    }


def readable(resources: Mapping[str, str | int | float] | None, place: str, problems: list[str]) -> Vector:
    """Return `of_resources` without invalid quantities, which are added to `problems` as `place[resource]: reason`."""
    found: dict[str, float] = {}
    for resource, quantity in (resources or {}).items():
        try:
            found.update(of_resources({resource: quantity}))
        except QuantityError as error:
            problems.append(f"{place}[{resource}]: {error}")
    return found


def in_ledger_units(resource: str, amount: float) -> int:
    """Convert an amount to the ledger's units, rounded up: millicores for cpu, whole units for all others."""
    return math.ceil(amount if resource in (CPU, MEMORY, PODS) else amount / 1000)


def shown(vector: Vector) -> dict[str, str]:
    """Return the amounts that are not zero as quantities."""
    return {
        resource: text_of(resource, in_ledger_units(resource, amount)) for resource, amount in vector.items() if amount
    }


def add_to(total: Total, more: Vector) -> None:
    for resource, amount in more.items():
        total[resource] = total.get(resource, 0) + amount


def take_from(total: Total, less: Vector) -> None:
    """Subtract from a total; a dimension with nothing left stays, with 0."""
    for resource, amount in less.items():
        total[resource] = total.get(resource, 0) - amount


def plus(left: Vector, right: Vector) -> Total:
    total = dict(left)
    add_to(total, right)
    return total


def minus(left: Vector, right: Vector) -> Total:
    """Return the difference, which may be negative."""
    total = dict(left)
    take_from(total, right)
    return total


def rest(wanted: Vector, held: Vector) -> Total:
    """Return the part of `wanted` that is not in `held`, without resources of which nothing is left."""
    return {
        resource: amount - held.get(resource, 0)
        for resource, amount in wanted.items()
        if amount > held.get(resource, 0)
    }


def names(vector: Vector) -> Iterator[str]:
    """Yield the resources with an amount that is not zero."""
    return (resource for resource, amount in vector.items() if amount >= NOTHING)


def is_empty(vector: Vector) -> bool:
    """Return whether the vector contains nothing except pods."""
    return all(amount < NOTHING or resource == PODS for resource, amount in vector.items())


def _at_most(left: float, right: float) -> bool:
    return left <= right or left - right < NOTHING


def less_equal(left: Vector, right: Vector) -> bool:
    """Return whether `left` is at most `right` in all its dimensions; missing dimensions of `right` are 0."""
    return all(_at_most(amount, right.get(resource, 0)) for resource, amount in left.items()) and all(
        _at_most(0, right.get(resource, 0)) for resource in COMMON if resource not in left
    )


def exceeding(left: Vector, right: Vector) -> Total:
    """Return the part of `left` above `right`; dimensions other than cpu and memory only if they are not 0."""
    over: Total = dict.fromkeys(COMMON, 0)
    for resource, amount in left.items():
        limit = right.get(resource, 0)
        if amount > limit:
            over[resource] = amount - limit
    return over


def at_most(vector: Vector, limit: Vector, *, missing: float) -> Total:
    """Return the minimum of both in each dimension of `vector`.

    `missing`, 0 or `UNLIMITED`, is the limit of other resources than cpu and memory that `limit` does not have.
    """
    return {
        resource: min(amount, limit.get(resource, 0 if resource in COMMON else missing))
        for resource, amount in vector.items()
    }


def at_least(left: Vector, right: Vector) -> Total:
    """Return the maximum of both in all dimensions, without zeros of other resources than cpu and memory."""
    greater: Total = {resource: max(left.get(resource, 0), right.get(resource, 0)) for resource in COMMON}
    for each in (left, right):
        for resource, amount in each.items():
            if amount > greater.get(resource, 0):
                greater[resource] = amount
    return greater


def in_order(resources: Iterable[str]) -> list[str]:
    """Return the resources in order: cpu, memory, then by name."""
    return sorted(resources, key=lambda resource: (resource != CPU, resource != MEMORY, resource))


def insufficient(used: Vector, limit: Vector, wanted: Vector) -> list[str]:
    """Return the `wanted` resources of which `used` is above `limit`, in order.

    Pods are not limited. Missing dimensions of `limit` are 0.
    """
    return in_order(
        resource
        for resource, amount in wanted.items()
        if amount > 0 and resource != PODS and used.get(resource, 0) > limit.get(resource, 0)
    )


def any_within(used: Vector, limit: Vector, wanted: Vector) -> bool:
    """Return whether `used` is within `limit` for any `wanted` resource.

    Pods, and resources with zero in both, are ignored.
    """
    for resource, amount in wanted.items():
        if amount <= 0 or resource == PODS:
            continue
        left, right = used.get(resource, 0), limit.get(resource, 0)
        if (left >= NOTHING or right >= NOTHING) and _at_most(left, right):
            return True
    return False


def any_above(used: Vector, limit: Vector, wanted: Vector) -> bool:
    """Return whether `used` is above `limit` for any `wanted` resource.

    Pods, and resources that `limit` does not set, are ignored.
    """
    for resource, amount in wanted.items():
        if amount <= 0 or resource == PODS or resource not in limit:
            continue
        right = limit[resource]
        if resource in COMMON and right < NOTHING:
            continue
        if used.get(resource, 0) > right:
            return True
    return False
