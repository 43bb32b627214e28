"""Defaults and checks of PodGroups that are created: the queue of their namespace, and whether they may use theirs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from agent_scheduler.objects.batch import DEFAULT_QUEUE, QUEUE_NAME, NetworkTopology, PodGroup, Queue

from .queue_access import NO_LABELS, LabelsByName, not_allowed
from .review import (
    ALLOWED,
    CREATE,
    AdmissionRequest,
    AdmissionResponse,
    JsonPatchOperation,
    allowed_with,
    object_of,
    refused,
)

_read = msgspec.json.Decoder(PodGroup).decode

_OPEN: Final = "Open"
#: The warning for a PodGroup or a Job whose members should be near one another in the network.
TOPOLOGY_IGNORED: Final = "networkTopology is ignored: this scheduler places members without regard to the network"
_TWO_TIERS: Final = "must not specify 'highestTierAllowed' and 'highestTierName' in networkTopology simultaneously."


def mutate(request: AdmissionRequest, namespaces: Mapping[str, Mapping[str, str]]) -> AdmissionResponse:
    """Move a group from the queue `default` to its namespace's. `namespaces` are annotations by name.

    The CRD puts groups without a queue into `default`.
    """
    group = object_of(request.object, _read)
    if request.operation != CREATE:
        return refused(f"invalid operation `{request.operation}`, expect operation to be `CREATE`")
    if group.spec.queue != DEFAULT_QUEUE:
        return ALLOWED
    queue = namespaces.get(group.metadata.namespace or request.namespace, {}).get(QUEUE_NAME)
    return allowed_with([JsonPatchOperation("add", "/spec/queue", queue)]) if queue else ALLOWED


def validate(
    request: AdmissionRequest, queues: Mapping[str, Queue], labels: LabelsByName = NO_LABELS
) -> AdmissionResponse:
    """Check the group. `queues` are the existing queues by name, `labels` those of namespaces.

    The response warns about a network topology, which has no effect.
    """
    group = object_of(request.object, _read)
    if request.operation != CREATE:
        return refused(f"unsupported operation {request.operation}")
    namespace = group.metadata.namespace or request.namespace
    problems = [
        *_of_queue(group.spec.queue, queues),
        *not_allowed(group.spec.queue, namespace, queues, labels),
        *_of_topology(group),
    ]
    if problems:
        return refused("; ".join(problems))
    topologies = (group.spec.network_topology, *(each.network_topology for each in group.spec.sub_group_policy or ()))
    has_topology = any(each is not None for each in topologies)
    return AdmissionResponse(True, warnings=(TOPOLOGY_IGNORED,)) if has_topology else ALLOWED


def _of_queue(name: str, queues: Mapping[str, Queue]) -> Iterator[str]:
    if not name:
        return
    queue = queues.get(name)
    if queue is None:
        yield f'unable to find queue: queue.scheduling.volcano.sh "{name}" not found'
    elif queue.status.state != _OPEN:
        yield (
            f"can only submit PodGroup to queue with state `{_OPEN}`, queue `{name}` status is `{queue.status.state}`."
        )


def _of_topology(group: PodGroup) -> Iterator[str]:
    """Check the topology. Only the first of several subgroups with the same problem is reported."""
    problems = [_TWO_TIERS] if _has_two_tiers(group.spec.network_topology) else []
    for policy in group.spec.sub_group_policy or ():
        if _has_two_tiers(policy.network_topology):
            problems.append(f"in subGroupPolicy '{policy.name}': {_TWO_TIERS}")
            break
    if problems:
        yield " ".join(problems)


def _has_two_tiers(topology: NetworkTopology | None) -> bool:
    return topology is not None and topology.highest_tier_allowed is not None and topology.highest_tier_name != ""
