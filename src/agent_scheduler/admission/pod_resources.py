"""What the containers of a template ask for, and may have at most.

The words are those of Kubernetes' `ValidateResourceRequirements`.
"""

from __future__ import annotations

from collections.abc import Iterator

from agent_scheduler.engine.plugins.node_resources_fit import is_extended
from agent_scheduler.objects.quantity import UNIT, QuantityError, parse
from agent_scheduler.objects.wire import Resources, Wire


class Amounts(Wire, frozen=True):
    """A container's `ResourceRequirements`, without claims."""

    requests: Resources | None = None
    limits: Resources | None = None


def resource_problems(resources: Amounts, field: str) -> Iterator[str]:
    requests, limits = resources.requests or {}, resources.limits or {}
    unreadable = False
    for kind, given in (("requests", requests), ("limits", limits)):
        for name, said in given.items():
            try:
                amount = parse(str(said))
            except QuantityError as error:
                unreadable = True
                yield f'{field}.{kind}[{name}]: Invalid value: "{said}": {error}'
                continue
            if amount.nano < 0:
                yield f'{field}.{kind}[{name}]: Invalid value: "{said}": must be greater than or equal to 0'
    if not unreadable:
        yield from _beside(requests, limits, field)


def _beside(requests: Resources, limits: Resources, field: str) -> Iterator[str]:
    for name, said in requests.items():
        # Of these nobody may have more than it asks for.
        whole = is_extended(name) or name.startswith("hugepages-")
        if name not in limits:
            if whole:
                yield f"{field}.limits: Required value: Limit must be set for non overcommitable resources"
            continue
        amount, limit = parse(str(said)), parse(str(limits[name]))
        if whole and amount.nano != limit.nano:
            yield f'{field}.requests: Invalid value: "{said}": must be equal to {name} limit of {limits[name]}'
        elif amount.nano > limit.nano:
            yield (
                f'{field}.requests: Invalid value: "{said}": must be less than or equal to {name} limit of '
                f"{limits[name]}"
            )


def whole_cpus(resources: Amounts | None) -> bool:
    """Whether it asks for one CPU or more, and not for part of one. Without any requests its limits are asked for."""
    given: Resources = {}
    if resources is not None:
        given = resources.requests or resources.limits or {}
    if "cpu" not in given:
        return False
    try:
        amount = parse(str(given["cpu"]))
    except QuantityError:
        return False
    return amount.nano > 0 and amount.nano % UNIT == 0
