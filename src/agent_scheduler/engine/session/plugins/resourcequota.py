"""resourcequota: a group is let in only if its namespace's quotas have room for its minimum
(`pkg/scheduler/plugins/resourcequota`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from agent_scheduler.objects.batch import ResourceQuotaStatus
from agent_scheduler.objects.quantity import QuantityError, parse
from agent_scheduler.objects.wire import Resources

from ...verdicts import UNSCHEDULABLE
from ..conf import PluginOption
from ..hooks import PERMIT, REJECT, Hooks
from ..model import Job

if TYPE_CHECKING:
    from ..session import Session

#: Resource -> billionths of a unit.
Nanos = dict[str, int]


def resourcequota(session: Session, option: PluginOption) -> Hooks:
    #: Namespace -> minimums of the groups that were let in since the quotas were counted.
    admitted: dict[str, Nanos] = {}

    def enqueueable(job: Job) -> int:
        listed = job.group.listed_resources
        if listed is None:
            return PERMIT
        wanted = _nanos(listed)
        pending = admitted.setdefault(job.namespace, {})
        for quota in session.view.quotas.get(job.namespace, ()):
            short = _short(quota, wanted, pending)
            if short:
                job.quota_refusal = _message(short, listed, quota)
                session.record(job, "Normal", UNSCHEDULABLE, job.quota_refusal)
                return REJECT
        for resource, amount in wanted.items():
            pending[resource] = pending.get(resource, 0) + amount
        return PERMIT

    return Hooks(job_enqueueable=enqueueable)


def _short(quota: ResourceQuotaStatus, wanted: Nanos, pending: Nanos) -> list[str]:
    """What there would be more of than the quota allows."""
    hard, used = _nanos(quota.hard), _nanos(quota.used)
    return [
        resource
        for resource, amount in wanted.items()
        if resource in hard and used.get(resource, 0) + pending.get(resource, 0) + amount > hard[resource]
    ]


def _nanos(resources: Resources | None) -> Nanos:
    """What cannot be read is left out: the API server has no such quota."""
    found = {}
    for resource, quantity in (resources or {}).items():
        try:
            found[resource] = parse(str(quantity)).nano
        except QuantityError:
            continue
    return found


def _message(short: list[str], listed: Resources, quota: ResourceQuotaStatus) -> str:
    parts: tuple[tuple[str, Mapping[str, object]], ...] = (
        ("requested", listed),
        ("used", quota.used or {}),
        ("limited", quota.hard or {}),
    )
    told = (f"{name}: {', '.join(f'{each}={of.get(each, 0)}' for each in short)}" for name, of in parts)
    return f"resource quota insufficient, {', '.join(told)}"
