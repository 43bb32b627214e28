"""resourcequota: a group is let in only if its namespace's quotas have room for its minimum
(`pkg/scheduler/plugins/resourcequota`).

What a quota has used counts the pods that there are. So a group asks for what its minimum needs beyond its own pods,
and of groups that were let in before the same counts as promised: their pods may not have been made yet. A quota is
asked only for pods that it counts by its scopes. Volcano's plugin knows neither.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from agent_scheduler.objects.batch import ResourceQuota
from agent_scheduler.objects.wire import Resources
from apimachinery.quantity import Quantity, canonical

from ...state.podusage import has_two_names
from ...state.quotause import Nanos, Scoped, asks_for_quality, nanos
from ...verdicts import UNSCHEDULABLE
from ..conf import PluginOption
from ..hooks import PERMIT, REJECT, Hooks
from ..model import Job, TaskStatus

if TYPE_CHECKING:
    from ..session import Session

_REQUESTS: Final = "requests."


class _Need(NamedTuple):
    """What pods are to come for. A quota counts it that counts each of `kinds`: of pods that may be of several it is
    not known of which they will be, and what the quota does not let pass the API server refuses."""

    kinds: Collection[Scoped]
    amounts: Nanos

    def is_counted_by(self, quota: ResourceQuota) -> bool:
        return all(kind.is_counted_by(quota.spec) for kind in self.kinds)


class _Namespace:
    """The quotas of one, each with what is promised of it and not used yet."""

    def __init__(self, quotas: Collection[ResourceQuota]) -> None:
        self.promised: list[tuple[ResourceQuota, dict[str, int]]] = [(quota, {}) for quota in quotas]

    def promise(self, needs: Collection[_Need]) -> None:
        for quota, promised in self.promised:
            for resource, amount in _asked_of(quota, needs).items():
                promised[resource] = promised.get(resource, 0) + amount

    def refusal(self, needs: Collection[_Need]) -> str:
        """By the first quota that has not enough left, in words; empty if all have."""
        for quota, promised in self.promised:
            hard, used = nanos(quota.status.hard), nanos(quota.status.used)
            asked = _asked_of(quota, needs)
            short = [
                resource
                for resource, amount in asked.items()
                if resource in hard
                and used.get(resource, 0) + promised.get(resource, 0) + amount > hard[resource]
            ]
            if short:
                return _message(short, asked, promised, quota)
        return ""


def resourcequota(session: Session, option: PluginOption) -> Hooks:
    namespaces = {name: _Namespace(quotas) for name, quotas in session.view.quotas.items()}
    for job in session.jobs.values():
        if job.is_inqueue and job.namespace in namespaces:
            namespaces[job.namespace].promise([*_needs(job)])

    def enqueueable(job: Job) -> int:
        namespace = namespaces.get(job.namespace)
        if namespace is None:
            return PERMIT
        job.quota_refusal = namespace.refusal([*_needs(job)])
        if not job.quota_refusal:
            return PERMIT
        session.record(job, "Normal", UNSCHEDULABLE, job.quota_refusal)
        return REJECT

    def enqueued(job: Job) -> None:
        if (namespace := namespaces.get(job.namespace)) is not None:
            namespace.promise([*_needs(job)])

    return Hooks(job_enqueueable=enqueueable, job_enqueued=enqueued)


def _needs(job: Job) -> Iterator[_Need]:
    """What its minimum asks for beyond its pods. Of these one that has succeeded is done with, and one that has failed
    or is leaving is to be made again."""
    group = job.group
    if group.listed_resources is None:
        return
    there: dict[Scoped, dict[str, int]] = {}
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
    alike = Scoped(best_effort=not asks_for_quality(listed), priority_class=group.priority_class or None)
    total: dict[str, int] = {}
    for amounts in there.values():
        _add(total, amounts)
    yield _Need(tuple(there) or (alike,), _beyond(listed, total))


def _as_quotas_have_it(listed: Resources) -> dict[str, int]:
    """A request has two names there, of which a group may list one."""
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
    told = (f"{name}: {', '.join(f'{each}={of.get(each, 0)}' for each in short)}" for name, of in parts)
    return f"resource quota insufficient, {', '.join(told)}"


def _text(amounts: Nanos) -> dict[str, str]:
    return {
        resource: canonical(Quantity(amount, "BinarySI" if "memory" in resource else "DecimalSI"))
        for resource, amount in amounts.items()
    }
