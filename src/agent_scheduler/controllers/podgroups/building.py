"""The PodGroup for a pod that uses the batch scheduler and names none. Pure.

It is the one that Volcano's controller creates (`pkg/controllers/podgroup`): one group for all pods of a workload,
which owns it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from agent_scheduler.engine.state.podusage import quota_usage, times
from agent_scheduler.objects.batch import (
    API_VERSION,
    GROUP_MIN_MEMBER,
    GROUP_NAME,
    GROUP_OF_PODS,
    PREEMPTABLE,
    QUEUE_NAME,
    VOLCANO_GROUP_NAME,
    PodGroup,
    PodGroupSpec,
)
from agent_scheduler.objects.wire import OwnerReference
from agent_scheduler.objects.workload import MemberPod
from kube_client.merging import replacement

#: The form of UIDs.
_UID: Final = re.compile(r"[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}")

#: A group gets the annotations of its workload with this prefix, and those below of its pod; of `_BUDGETS` only the
#: first that is set.
_VOLCANO: Final = "volcano.sh/"
_COOLDOWN_TIME: Final = "volcano.sh/cooldown-time"
_OF_PODS: Final = (PREEMPTABLE, _COOLDOWN_TIME, "volcano.sh/revocable-zone")
_BUDGETS: Final = ("volcano.sh/jdb-min-available", "volcano.sh/jdb-max-unavailable")
_LABELS: Final = (PREEMPTABLE, _COOLDOWN_TIME)

_TOPOLOGY_MODE: Final = "volcano.sh/network-topology-mode"
_TOPOLOGY_TIER: Final = "volcano.sh/network-topology-highest-tier"

_MOST: Final = 2**31 - 1


def controller_of(pod: MemberPod) -> OwnerReference | None:
    return next((each for each in pod.metadata.owner_references or () if each.controller), None)


def group_name(pod: MemberPod) -> str:
    """Return the name of the group for the pod's workload, or for the pod if it has none."""
    owner = controller_of(pod)
    return GROUP_OF_PODS + (owner.uid if owner is not None else pod.metadata.uid)


def named_group(pod: MemberPod) -> str:
    """Return the group that the pod names; empty if none."""
    annotations = pod.metadata.annotations or {}
    return annotations.get(GROUP_NAME) or annotations.get(VOLCANO_GROUP_NAME, "")


def may_be_made(pod: MemberPod) -> bool:
    """Return whether the pod's group is created here: it names none, or one with the name of such a group.

    The named group may belong to a previous workload of the pod, as after a restore, or to one that orphaned its pods.
    """
    named = named_group(pod)
    return named in ("", group_name(pod)) or (
        named.startswith(GROUP_OF_PODS) and _UID.fullmatch(named.removeprefix(GROUP_OF_PODS)) is not None
    )


def group_for(pod: MemberPod, *, of_owners: Mapping[str, str], of_namespace: Mapping[str, str]) -> dict[str, Any]:
    """Return the group to create, with the annotations of the pod's owners and of its namespace.

    Raises QuantityError for an invalid request, which the API server never stores.
    """
    annotations = pod.metadata.annotations or {}
    minimum = minimum_of(of_owners)
    spec: dict[str, Any] = {"minMember": minimum, "minResources": times(quota_usage(pod.spec), minimum)}
    if pod.spec.priority_class_name:
        spec["priorityClassName"] = pod.spec.priority_class_name
    # Without either, the API server applies its default, the queue `default`.
    if queue := annotations.get(QUEUE_NAME) or of_namespace.get(QUEUE_NAME):
        spec["queue"] = queue
    if (topology := _topology(annotations)) is not None:
        spec["networkTopology"] = topology
    labels = pod.metadata.labels or {}
    return {
        "apiVersion": API_VERSION,
        "kind": "PodGroup",
        "metadata": {
            "name": group_name(pod),
            "namespace": pod.metadata.namespace,
            "annotations": {
                **{key: value for key, value in of_owners.items() if key.startswith(_VOLCANO)},
                **{key: annotations[key] for key in _OF_PODS if key in annotations},
                **{key: annotations[key] for key in [k for k in _BUDGETS if k in annotations][:1]},
            },
            "labels": {key: labels[key] for key in _LABELS if key in labels},
            "ownerReferences": _owners(pod),
        },
        "spec": spec,
        "status": {"phase": "Pending"},
    }


def renewal(known: PodGroup, body: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the merge patch that changes a group to `body` (`group_for`); None if it is equal.

    Fields that `group_for` never sets are kept, as are other owners, and the queue if `body` has none.
    """
    metadata, spec = body["metadata"], body["spec"]
    wish = msgspec.convert(spec, PodGroupSpec)
    renewed = msgspec.structs.replace(
        known.spec,
        min_member=wish.min_member,
        min_resources=wish.min_resources,
        priority_class_name=wish.priority_class_name,
        network_topology=wish.network_topology,
        queue=wish.queue or known.spec.queue,
    )
    said = all(
        (getattr(known.metadata, part) or {}).get(key) == value
        for part in ("annotations", "labels")
        for key, value in metadata[part].items()
    )
    there_too = known.metadata.owner_references or []
    uids = {each.uid for each in there_too}
    owners = [each for each in metadata["ownerReferences"] if each["uid"] not in uids]
    if renewed == known.spec and said and not owners:
        return None
    # An object has at most one controller, and one from before a restore does not exist.
    is_controlled = any(each.get("controller") for each in owners)
    others = [msgspec.to_builtins(each) for each in there_too if not (is_controlled and each.controller)]
    there = msgspec.to_builtins(known.spec)
    owned = {"minMember": 0, "priorityClassName": None, "networkTopology": None, **spec, "queue": renewed.queue}
    return {
        "metadata": {
            "uid": known.metadata.uid,
            "annotations": metadata["annotations"],
            "labels": metadata["labels"],
            **({"ownerReferences": [*others, *owners]} if owners else {}),
        },
        "spec": replacement({key: there[key] for key in owned if key in there}, owned),
    }


def minimum_of(of_owners: Mapping[str, str]) -> int:
    """Return how many pods must be placed together: 1, unless a workload sets another valid number."""
    text = of_owners.get(GROUP_MIN_MEMBER, "")
    if text.isascii() and text.removeprefix("+").isdecimal() and len(text) <= 11:
        return int(text) if int(text) <= _MOST else 1
    return 1


def _owners(pod: MemberPod) -> list[dict[str, Any]]:
    """Return the pod's owners if they include a controller; else the pod itself as the owner."""
    references = pod.metadata.owner_references or []
    if not any(each.controller for each in references):
        metadata = pod.metadata
        references = [OwnerReference(metadata.uid, "Pod", metadata.name, "v1", True, True)]
    return [msgspec.to_builtins(each) for each in references]


def _topology(annotations: Mapping[str, str]) -> dict[str, Any] | None:
    if _TOPOLOGY_MODE not in annotations and _TOPOLOGY_TIER not in annotations:
        return None
    mode = annotations.get(_TOPOLOGY_MODE, "").lower()
    found: dict[str, Any] = {"mode": mode if mode in ("hard", "soft") else "hard"}
    tier = annotations.get(_TOPOLOGY_TIER, "")
    if tier.isascii() and tier.isdecimal() and len(tier) <= 10:
        found["highestTierAllowed"] = int(tier)
    return found
