"""What a line of a recording may say, so that one that says more is refused and not replayed without it.

A field that is not here might bear on the decision, and no replay would know of it. Fields that no rule reads, but
that the API server adds to what it is given, may be there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


class Unknown(Exception):
    """Names the place, and what is known there."""


class EachOf:
    """Shape of an object whose keys are names of their own, such as labels."""

    def __init__(self, shape: Any = None) -> None:
        self.shape = shape


#: A shape is None for any value, a set for one of these values, a list for a list, a dict for an object with these
#: fields, and `EachOf` for one with any.
Shape = Any
_ANY = EachOf()

_OPERATORS = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})
_EFFECTS = frozenset({"NoSchedule", "PreferNoSchedule", "NoExecute"})
_POLICIES = frozenset({"Honor", "Ignore"})

_METADATA = {
    **dict.fromkeys(
        ("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp")
    ),
    **dict.fromkeys(("generation", "managedFields", "deletionGracePeriodSeconds")),
    "labels": _ANY,
    "annotations": _ANY,
}
_LABEL_SELECTOR = {
    "matchLabels": _ANY,
    "matchExpressions": [{"key": None, "operator": _OPERATORS, "values": [None]}],
}
_NODE_REQUIREMENT = {"key": None, "operator": _OPERATORS | {"Gt", "Lt"}, "values": [None]}
_NODE_FIELD = {
    "key": frozenset({"metadata.name"}),
    "operator": frozenset({"In", "NotIn"}),
    "values": [None],
}
_NODE_TERM = {"matchExpressions": [_NODE_REQUIREMENT], "matchFields": [_NODE_FIELD]}
_POD_TERM = {
    "topologyKey": None,
    "labelSelector": _LABEL_SELECTOR,
    "namespaces": [None],
    "namespaceSelector": _LABEL_SELECTOR,
    "matchLabelKeys": [None],
    "mismatchLabelKeys": [None],
}
_REQUIRED, _PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)
_PODS = {_REQUIRED: [_POD_TERM], _PREFERRED: [{"weight": None, "podAffinityTerm": _POD_TERM}]}
_RESOURCES = {"requests": _ANY, "limits": _ANY}
_CONTAINER = {
    "name": None,
    "image": None,
    "resources": _RESOURCES,
    "ports": [dict.fromkeys(("name", "containerPort", "hostPort", "hostIP", "protocol"))],
    **dict.fromkeys(("command", "args", "env", "imagePullPolicy", "restartPolicy", "terminationMessagePath")),
    "terminationMessagePolicy": None,
}
_POD_SPEC = {
    "nodeName": None,
    "containers": [_CONTAINER],
    "initContainers": [_CONTAINER],
    "nodeSelector": _ANY,
    "affinity": {
        "nodeAffinity": {
            _REQUIRED: {"nodeSelectorTerms": [_NODE_TERM]},
            _PREFERRED: [{"weight": None, "preference": _NODE_TERM}],
        },
        "podAffinity": _PODS,
        "podAntiAffinity": _PODS,
    },
    "tolerations": [
        {
            "key": None,
            "operator": frozenset({"Equal", "Exists", "Lt", "Gt"}),
            "value": None,
            "effect": _EFFECTS | {""},
            "tolerationSeconds": None,
        }
    ],
    "topologySpreadConstraints": [
        {
            "topologyKey": None,
            "maxSkew": None,
            "minDomains": None,
            "whenUnsatisfiable": frozenset({"DoNotSchedule", "ScheduleAnyway"}),
            "labelSelector": _LABEL_SELECTOR,
            "matchLabelKeys": [None],
            "nodeAffinityPolicy": _POLICIES,
            "nodeTaintsPolicy": _POLICIES,
        }
    ],
    "overhead": _ANY,
    "resources": _RESOURCES,
    **dict.fromkeys(("priority", "priorityClassName", "preemptionPolicy")),
    **dict.fromkeys(("restartPolicy", "terminationGracePeriodSeconds", "activeDeadlineSeconds", "dnsPolicy")),
    **dict.fromkeys(("securityContext", "enableServiceLinks", "serviceAccount", "serviceAccountName")),
    "automountServiceAccountToken": None,
    "schedulerName": frozenset({"default-scheduler"}),
}
_POD = {
    **dict.fromkeys(("apiVersion", "kind", "startTime")),
    "metadata": _METADATA,
    "spec": _POD_SPEC,
    "status": dict.fromkeys(("phase", "qosClass", "startTime")),
}
_NODE = {
    **dict.fromkeys(("apiVersion", "kind")),
    "metadata": _METADATA,
    "spec": {
        **dict.fromkeys(("unschedulable", "podCIDR", "podCIDRs", "providerID")),
        "taints": [{"key": None, "value": None, "effect": _EFFECTS, "timeAdded": None}],
    },
    "status": {
        "allocatable": _ANY,
        "capacity": _ANY,
        "images": [{"names": [None], "sizeBytes": None}],
        **dict.fromkeys(("conditions", "addresses", "nodeInfo", "daemonEndpoints")),
    },
}
_BUDGET = {
    **dict.fromkeys(("apiVersion", "kind", "disruptionsAllowed")),
    "metadata": _METADATA,
    "spec": {"selector": _LABEL_SELECTOR, **dict.fromkeys(("minAvailable", "maxUnavailable"))},
}
_CASE = {"id": None, "features": [None], "nodes": [_NODE], "pods": [_POD], "pending": _POD}

#: What the first recording leaves out: its lines begin with one of these kinds.
KINDS_2 = frozenset(
    {
        *("pod-level", "affinity-numbers", "affinity-keys", "spread-policies", "deleted-node", "resize"),
        *("resize-pod-level", "image-volumes", "declared-features", "mixed", "vac", "rwop"),
    }
)
_CONTAINER_2 = {
    **_CONTAINER,
    "restartPolicyRules": [{"action": None, "exitCodes": dict.fromkeys(("operator", "values"))}],
}
_CONTAINER_STATUS = {
    **dict.fromkeys(("name", "image", "imageID", "ready", "started", "restartCount", "state", "lastState")),
    "resources": _RESOURCES,
    "allocatedResources": _ANY,
}
_POD_2 = {
    **_POD,
    "spec": {
        **_POD_SPEC,
        "containers": [_CONTAINER_2],
        "initContainers": [_CONTAINER_2],
        "volumes": [
            {
                "name": None,
                "image": dict.fromkeys(("reference", "pullPolicy")),
                "persistentVolumeClaim": dict.fromkeys(("claimName", "readOnly")),
            }
        ],
        **dict.fromkeys(("hostNetwork", "hostUsers")),
    },
    "status": {
        **_POD["status"],
        "conditions": [dict.fromkeys(("type", "status", "reason", "message"))],
        "containerStatuses": [_CONTAINER_STATUS],
        "initContainerStatuses": [_CONTAINER_STATUS],
        "resources": _RESOURCES,
        "allocatedResources": _ANY,
    },
}
_NODE_2 = {**_NODE, "status": {**_NODE["status"], "declaredFeatures": [None]}}
_OF_VOLUMES = dict.fromkeys(("accessModes", "storageClassName", "volumeMode", "volumeAttributesClassName"))
_CLAIM = {
    **dict.fromkeys(("apiVersion", "kind")),
    "metadata": _METADATA,
    "spec": {**_OF_VOLUMES, "resources": _RESOURCES, "volumeName": None, "selector": _LABEL_SELECTOR},
    "status": {"phase": frozenset({"Pending", "Bound", "Lost"}), "accessModes": [None], "capacity": _ANY},
}
_VOLUME = {
    **dict.fromkeys(("apiVersion", "kind")),
    "metadata": _METADATA,
    "spec": {
        **_OF_VOLUMES,
        "capacity": _ANY,
        "persistentVolumeReclaimPolicy": None,
        "csi": dict.fromkeys(("driver", "volumeHandle")),
        "claimRef": dict.fromkeys(("apiVersion", "kind", "name", "namespace", "uid")),
        "nodeAffinity": {"required": {"nodeSelectorTerms": [_NODE_TERM]}},
    },
    "status": {"phase": frozenset({"Pending", "Available", "Bound", "Released", "Failed"})},
}
_STORAGE_CLASS = {
    **dict.fromkeys(("apiVersion", "kind", "provisioner", "volumeBindingMode", "reclaimPolicy")),
    "metadata": _METADATA,
}
_CASE_2 = {**_CASE, "nodes": [_NODE_2], "pods": [_POD_2], "pending": _POD_2}

PLUGINS = (
    *("TaintToleration", "NodeAffinity", "NodeResourcesFit", "PodTopologySpread", "InterPodAffinity"),
    *("DynamicResources", "NodeResourcesBalancedAllocation", "ImageLocality"),
)
DECISION: dict[str, Any] = {
    **_CASE,
    "result": dict.fromkeys(("node", "message", "reason")),
    "scores": EachOf(dict.fromkeys(PLUGINS)),
    "final": _ANY,
}
DECISION_2: Shape = {
    **DECISION,
    **_CASE_2,
    "storageClasses": [_STORAGE_CLASS],
    "pvcs": [_CLAIM],
    "pvs": [_VOLUME],
    "result": {**DECISION["result"], "boundVolumes": _ANY, "provisioning": [None]},
}


def of_decision(line: Mapping[str, Any]) -> Shape:
    """The shape that a line's first feature asks for."""
    kind, *_ = (line.get("features") or [""]) if isinstance(line.get("features"), list) else [""]
    return DECISION_2 if kind in KINDS_2 else DECISION


PREEMPTION: Shape = {
    **_CASE,
    "pdbs": [_BUDGET],
    "result": dict.fromkeys(("node", "nominatedNode", "victims", "message", "reason")),
}


def check(value: object, shape: Shape, place: str) -> None:
    """Raises `Unknown` at the first thing in `value` that `shape` does not know."""
    for problem in _problems(value, shape, place):
        raise Unknown(problem)


def _problems(value: object, shape: Shape, place: str) -> Iterator[str]:
    if shape is None or value is None:
        return
    if isinstance(shape, frozenset):
        if value not in shape:
            yield f"{place}: {value!r} is unknown; known: {', '.join(sorted(shape))}"
    elif isinstance(shape, list):
        if not isinstance(value, list):
            yield f"{place}: a list is expected"
            return
        for index, each in enumerate(value):
            yield from _problems(each, shape[0], f"{place}[{index}]")
    elif not isinstance(value, Mapping):
        yield f"{place}: an object is expected"
    else:
        for key, each in value.items():
            if isinstance(shape, EachOf):
                yield from _problems(each, shape.shape, f"{place}.{key}")
            elif key in shape:
                yield from _problems(each, shape[key], f"{place}.{key}")
            else:
                yield f"{place}.{key}: unknown; known: {', '.join(sorted(shape))}"
