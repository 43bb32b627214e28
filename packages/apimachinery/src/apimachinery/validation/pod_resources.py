"""Checks requests and limits of the containers of a template.

The words are those of Kubernetes' `ValidateResourceRequirements`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from apimachinery.quantity import UNIT, Quantity, QuantityError, canonical, parse
from apimachinery.wire import Resources, Wire

from . import names
from .field_problems import duplicate, forbidden, invalid, not_found, required

_STANDARD: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
_HUGE: Final = "hugepages-"
_COUNTS: Final = frozenset(
    {
        *("pods", "services", "replicationcontrollers", "resourcequotas", "secrets", "configmaps"),
        *("persistentvolumeclaims", "services.nodeports", "services.loadbalancers"),
    }
)
#: Known names without a domain, including those that are invalid in containers.
_KNOWN: Final = _STANDARD.union(
    _COUNTS,
    ("storage", "requests.storage"),
    (f"{kind}.{name}" for kind in ("requests", "limits") for name in _STANDARD),
)


class _ClaimRef(Wire, frozen=True):
    name: str = ""
    request: str = ""


class Amounts(Wire, frozen=True):
    """The `ResourceRequirements` of a container or a pod."""

    requests: Resources | None = None
    limits: Resources | None = None
    claims: tuple[_ClaimRef, ...] = ()


def resource_problems(resources: Amounts, field: str, claims: frozenset[str] = frozenset()) -> Iterator[str]:
    """Check requirements. `claims` are the names of the pod's resource claims."""
    limits, requests = resources.limits or {}, resources.requests or {}
    unreadable = False
    for kind, given in (("limits", limits), ("requests", requests)):
        for name, said in given.items():
            try:
                nano = parse(str(said)).nano
            except QuantityError as error:
                unreadable = True
                yield f'{field}.{kind}[{name}]: Invalid value: "{said}": {error}'
            else:
                yield from _of_amount(name, said, nano, f"{field}.{kind}[{name}]")
    if not unreadable:
        yield from _beside(requests, limits, field)
    together = requests.keys() | limits.keys()
    if any(name.startswith(_HUGE) for name in together) and not together & {"cpu", "memory"}:
        yield forbidden(field, "HugePages require cpu or memory")
    seen: set[_ClaimRef] = set()
    for index, claim in enumerate(resources.claims):
        at = f"{field}.claims[{index}]"
        if not claim.name:
            yield required(at)
            continue
        if claim in seen:
            yield duplicate(at, claim.name)
        seen.add(claim)
        if claim.name not in claims:
            yield not_found(at, claim.name)


def _of_amount(name: str, said: str | int | float, nano: int, at: str) -> Iterator[str]:
    text = canonical(parse(str(said)))
    yield from _of_name(name, at)
    if nano < 0:
        yield invalid(at, text, "must be greater than or equal to 0")
    if (name in _COUNTS or names.is_extended_resource(name)) and nano % UNIT:
        yield invalid(at, text, "must be an integer")
    if name.startswith(_HUGE) and not _is_multiple(nano, name.removeprefix(_HUGE)):
        yield invalid(at, text, f"{text} is not positive integer multiple of {name}")


def _of_name(name: str, at: str) -> Iterator[str]:
    """Check the name of a resource for containers."""
    if problems := names.qualified(name):
        for problem in problems:
            yield invalid(at, name, problem)
    elif "/" not in name and name not in _KNOWN and not name.startswith((_HUGE, f"requests.{_HUGE}")):
        yield invalid(at, name, "must be a standard resource type or fully qualified")
    if "/" not in name:
        if name not in _STANDARD and not name.startswith(_HUGE):
            yield invalid(at, name, "must be a standard resource for containers")
    elif not _is_native(name) and name.startswith("requests."):
        yield invalid(at, name, "doesn't follow extended resource name standard")


def _is_native(name: str) -> bool:
    return "/" not in name or "kubernetes.io/" in name


def _is_multiple(nano: int, page: str) -> bool:
    try:
        size = parse(page).nano
    except QuantityError:
        return False
    return size > 0 and nano % size == 0


def _beside(requests: Resources, limits: Resources, field: str) -> Iterator[str]:
    for name, said in requests.items():
        # For these resources the limit must equal the request.
        whole = not _is_native(name) or name.startswith(_HUGE)
        if name not in limits:
            if whole:
                yield required(f"{field}.limits", "Limit must be set for non overcommitable resources")
            continue
        amount, limit = parse(str(said)), parse(str(limits[name]))
        if whole and amount.nano != limit.nano:
            yield invalid(
                f"{field}.requests", canonical(amount), f"must be equal to {name} limit of {canonical(limit)}"
            )
        elif amount.nano > limit.nano:
            detail = f"must be less than or equal to {name} limit of {canonical(limit)}"
            yield invalid(f"{field}.requests", canonical(amount), detail)


def pod_resource_problems(
    resources: Amounts, containers: Sequence[Amounts], together: Mapping[str, int], field: str
) -> Iterator[str]:
    """Check that a pod's own resources suffice for its containers (KEP-2837).

    `together` are the simultaneous requests of the containers.
    """
    requests, limits = resources.requests or {}, resources.limits or {}
    if resources.claims:
        yield forbidden(f"{field}.claims", "claims cannot be set for Resources at pod-level")
    if not requests and not limits:
        return
    yield from resource_problems(Amounts(requests=requests, limits=limits), field)
    for name in ("cpu", "memory"):
        given = str(requests.get(name, "0"))
        if together.get(name, 0) > nano_of(given):
            least = canonical(Quantity(together[name], "DecimalSI"))
            detail = f"must be greater than or equal to aggregate container requests of {least}"
            yield invalid(f"{field}.requests[{name}]", given, detail)
    for index, container in enumerate(containers):
        for name, limit in (container.limits or {}).items():
            if name in limits and nano_of(limit) > nano_of(limits[name]):
                at = f"{field}.containers[{index}][{name}].limits"
                yield invalid(at, str(limit), f"must be less than or equal to pod limits of {limits[name]}")


def nano_of(said: str | int | float) -> int:
    """Return the amount in nano units; 0 for invalid text, which is reported elsewhere."""
    try:
        return parse(str(said)).nano
    except QuantityError:
        return 0


def whole_cpus(resources: Amounts) -> bool:
    """Return whether whole CPUs are requested, at least one. Without requests the limits count."""
    given = resources.requests or resources.limits or {}
    nano = nano_of(given.get("cpu", 0))
    return nano > 0 and nano % UNIT == 0
