"""resourcequota: admits a group only if the ResourceQuotas of its namespace have room for its minimum.

The plugin corresponds to `pkg/scheduler/plugins/resourcequota`. A quota's usage includes existing pods. So a group
needs its minimum without its own pods, and the same part of earlier admitted groups counts as promised, since their
pods may not exist so far. A quota is checked only for pods that its scopes include. Volcano's plugin does neither.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple

from agent_scheduler.objects.batch import ResourceQuota
from apimachinery.quantity import Quantity, canonical
from apimachinery.wire import Resources

from ...state.podusage import has_two_names
from ...state.quotause import Nanos, ScopeFacts, asks_for_quality, nanos
from ...verdicts import UNSCHEDULABLE
from ..conf import PluginOption
from ..hooks import PERMIT, REJECT, Hooks
from ..model import JobInfo, TaskStatus
from ..session import Session

_REQUESTS: Final = "requests."


class _Need(NamedTuple):
    """The usage of pods that do not exist so far.

    A quota counts it if it counts all of `kinds`. If the pods may be of several kinds, their actual kind is unknown;
    the API server rejects the pods that the quota does not allow.
    """

    kinds: Collection[ScopeFacts]
    amounts: Nanos

    def is_counted_by(self, quota: ResourceQuota) -> bool:
        return all(kind.is_counted_by(quota.spec) for kind in self.kinds)


class _Namespace:
    """The quotas of one namespace, each with the amounts that are promised and not used so far."""

    def __init__(self, quotas: Collection[ResourceQuota]) -> None:
        self.promised: list[tuple[ResourceQuota, dict[str, int]]] = [(quota, {}) for quota in quotas]

    def promise(self, needs: Collection[_Need]) -> None:
        for quota, promised in self.promised:
            for resource, amount in _asked_of(quota, needs).items():
                promised[resource] = promised.get(resource, 0) + amount

    def refusal(self, needs: Collection[_Need]) -> str:
        """Return a message about the first quota without enough room; empty if all have room."""
        for quota, promised in self.promised:
            hard, used = nanos(quota.status.hard), nanos(quota.status.used)
            asked = _asked_of(quota, needs)
            short = [
                resource
                for resource, amount in asked.items()
                if resource in hard and used.get(resource, 0) + promised.get(resource, 0) + amount > hard[resource]
            ]
            if short:
                return _message(short, asked, promised, quota)
        return ""


def resourcequota(session: Session, option: PluginOption) -> Hooks:
    """Return the hooks of the plugin resourcequota."""
    namespaces = {name: _Namespace(quotas) for name, quotas in session.view.quotas.items()}
    for job in session.jobs.values():
        if job.is_inqueue and job.namespace in namespaces:
            namespaces[job.namespace].promise([*_needs(job)])

    def enqueueable(job: JobInfo) -> int:
        namespace = namespaces.get(job.namespace)
        if namespace is None:
            return PERMIT
        job.quota_refusal = namespace.refusal([*_needs(job)])
        if not job.quota_refusal:
            return PERMIT
        session.record(job, "Normal", UNSCHEDULABLE, job.quota_refusal)
        return REJECT

    def enqueued(job: JobInfo) -> None:
        if (namespace := namespaces.get(job.namespace)) is not None:
            namespace.promise([*_needs(job)])

    return Hooks(job_enqueueable=enqueueable, job_enqueued=enqueued)


def _needs(job: JobInfo) -> Iterator[_Need]:
    """Yield what the job's minimum needs in addition to its pods.

    Succeeded pods count as existing; failed and terminating ones do not, since they will be created again.
    """
    group = job.group
    if group.listed_resources is None:
        return
    there: dict[ScopeFacts, dict[str, int]] = {}
    for task in job.tasks.values():
        if (use := task.pod.quota) is not None:
            counted = there.setdefault(use.scoped, {})
            if task.status is not TaskStatus.FAILED and not task.pod.deleting:
                _add(counted, use.amounts)
    if group.quota_parts:
        for part in group.quota_parts:
            yield _Need((part.scoped,), _beyond(part.amounts, there.get(part.scoped, {})))
        return
    listed = _as_quotas_have_it(group.listed_resources)
    alike = ScopeFacts(best_effort=not asks_for_quality(listed), priority_class=group.priority_class or None)
    total: dict[str, int] = {}
    for amounts in there.values():
        _add(total, amounts)
    yield _Need(tuple(there) or (alike,), _beyond(listed, total))


def _as_quotas_have_it(listed: Resources) -> dict[str, int]:
    """Return the amounts with both names that quotas have for a request, of which a group may list one."""
    found = nanos(listed)
    for name, amount in list(found.items()):
        if has_two_names(name):
            found.setdefault(f"{_REQUESTS}{name}", amount)
        elif name.startswith(_REQUESTS):
            found.setdefault(name.removeprefix(_REQUESTS), amount)
    return found


def _add(total: dict[str, int], more: Nanos) -> None:
    for resource, amount in more.items():
        total[resource] = total.get(resource, 0) + amount


def _beyond(asked: Nanos, there: Nanos) -> Nanos:
    left = {resource: amount - there.get(resource, 0) for resource, amount in asked.items()}
    return {resource: amount for resource, amount in left.items() if amount > 0}


def _asked_of(quota: ResourceQuota, needs: Collection[_Need]) -> dict[str, int]:
    asked: dict[str, int] = {}
    for need in needs:
        if need.is_counted_by(quota):
            _add(asked, need.amounts)
    return asked


def _message(short: list[str], asked: Nanos, promised: Nanos, quota: ResourceQuota) -> str:
    parts: list[tuple[str, Mapping[str, object]]] = [
        ("requested", _text(asked)),
        ("used", quota.status.used or {}),
        ("limited", quota.status.hard or {}),
    ]
    if any(promised.get(each) for each in short):
        parts.insert(2, ("promised", _text(promised)))
    texts = (f"{name}: {', '.join(f'{each}={of.get(each, 0)}' for each in short)}" for name, of in parts)
    return f"resource quota insufficient, {', '.join(texts)}"


def _text(amounts: Nanos) -> dict[str, str]:
    return {
        resource: canonical(Quantity(amount, "BinarySI" if "memory" in resource else "DecimalSI"))
        for resource, amount in amounts.items()
    }
