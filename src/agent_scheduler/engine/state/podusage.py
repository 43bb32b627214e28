"""Computes the usage of pods in a ResourceQuota: their requests and limits, by the names that quotas use.

The rule is that of Kubernetes' pod evaluator (`pkg/quota/v1/evaluator/core`). Volcano additionally counts each extended
resource by its plain name, and writes the result into a PodGroup's `minResources`. Amounts stay exact, since they are
written to objects again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from agent_scheduler.objects.workload import Requirements, TemplateContainer, TemplateSpec
from apimachinery.quantity import Quantity, QuantityError, canonical, parse
from apimachinery.wire import Resources

from .extended import is_extended
from .requests import pod_level_resource

Usage = dict[str, Quantity]

_ONE: Final = parse("1")
_NATIVE: Final = ("cpu", "memory", "ephemeral-storage")


def quota_usage(spec: TemplateSpec) -> Usage:
    """Return the usage of one pod. Raises QuantityError for an invalid amount, which the API server never stores."""
    requests = _total(spec, lambda each: each.requests)
    limits = _total(spec, lambda each: each.limits)
    for name, overhead in _read(spec.overhead).items():
        _add(requests, name, overhead)
        if name in limits:
            _add(limits, name, overhead)
    usage = {"pods": _ONE, "count/pods": _ONE}
    for name, amount in requests.items():
        if has_two_names(name):
            usage[name] = usage[f"requests.{name}"] = amount
    for name in _NATIVE:
        if name in limits:
            usage[f"limits.{name}"] = limits[name]
    return usage


def has_two_names(resource: str) -> bool:
    """Return whether a request counts both by its name and with the prefix `requests.`."""
    return resource in _NATIVE or resource.startswith("hugepages-") or is_extended(resource)


def times(usage: Mapping[str, Quantity], number: int) -> dict[str, str]:
    """Return the usage of `number` equal pods as quantities; empty for zero pods."""
    if number <= 0:
        return {}
    return {name: canonical(each._replace(nano=each.nano * number)) for name, each in usage.items()}


def _total(spec: TemplateSpec, part: Callable[[Requirements], Resources | None]) -> Usage:
    """Return the total of a pod.

    It is the sum of containers and sidecars or the maximum of the init steps, whichever is larger. The pod's own
    resources replace it for the resources that they name.
    """
    total: Usage = {}
    for each in spec.containers or ():
        _add_all(total, _read(part(each.resources)))
    for name, amount in _most_at_start(spec.init_containers or (), total, part).items():
        if name not in total or amount.nano > total[name].nano:
            total[name] = amount
    if spec.resources is not None:
        total |= {name: each for name, each in _read(part(spec.resources)).items() if pod_level_resource(name)}
    return total


def _most_at_start(
    containers: Iterable[TemplateContainer], total: Usage, part: Callable[[Requirements], Resources | None]
) -> Usage:
    """Return the maximum of the init steps, each with the sidecars that run by then; add the sidecars to `total`."""
    sidecars: Usage = {}
    peak: Usage = {}
    for each in containers:
        amounts = _read(part(each.resources))
        if each.restart_policy == "Always":
            _add_all(total, amounts)
            _add_all(sidecars, amounts)
            step = sidecars
        else:
            step = dict(sidecars)
            _add_all(step, amounts)
        for name, amount in step.items():
            if name not in peak or amount.nano > peak[name].nano:
                peak[name] = amount
    return peak


def _read(resources: Resources | None) -> Usage:
    found = {}
    for name, text in (resources or {}).items():
        if not isinstance(text, str | int | float):
            raise QuantityError(repr(text), "form")
        found[name] = parse(str(text))
    return found


def _add_all(total: Usage, more: Usage) -> None:
    for name, amount in more.items():
        _add(total, name, amount)


def _add(total: Usage, name: str, amount: Quantity) -> None:
    """Add an amount to a total; the sum keeps the format of the total, unless that is zero."""
    before = total.get(name)
    if before is None or before.nano == 0:
        total[name] = amount
    else:
        total[name] = before._replace(nano=before.nano + amount.nano)
