"""How the lists and structs of built-in types merge, in a strategic patch and in server-side apply.

The published OpenAPI models leave the merge keys out; only the Go types of k8s.io/api carry them, as
struct tags (`patchStrategy`, `patchMergeKey`) and markers (`+listType`, `+listMapKey`, `+structType`). The
tables are keyed by model name.
"""

from __future__ import annotations

from typing import NamedTuple


class ListRule(NamedTuple):
    """How a list merges.

    `patch_key` is the strategic merge key; "" merges a list of scalars, None replaces the list.
    `retain` adds the retainKeys strategy. `apply` is the server-side apply topology: atomic, set or map;
    `keys` are the fields that identify an item of a map, and `defaults` the values of those left out.
    """

    patch_key: str | None
    apply: str
    keys: tuple[str, ...] = ()
    retain: bool = False
    defaults: tuple[tuple[str, object], ...] = ()


ATOMIC = ListRule(None, "atomic")


def _by(key: str, *, keys: tuple[str, ...] = (), retain: bool = False) -> ListRule:
    return ListRule(key, "map", keys or (key,), retain)


def _map(*keys: str) -> ListRule:
    """A map to server-side apply that a strategic patch replaces."""
    return ListRule(None, "map", keys)


_TCP = (("protocol", "TCP"),)
_SET = ListRule("", "set")
_NAME = _by("name")
_TYPE = _by("type")

_CONTAINER = {
    "env": _NAME,
    "ports": ListRule("containerPort", "map", ("containerPort", "protocol"), defaults=_TCP),
    "volumeMounts": _by("mountPath"),
    "volumeDevices": _by("devicePath"),
}

#: Lists that are not replaced as a whole. Everything absent is atomic.
LISTS: dict[str, dict[str, ListRule]] = {
    "V1ObjectMeta": {"ownerReferences": _by("uid"), "finalizers": _SET},
    "V1PodSpec": {
        "volumes": _by("name", retain=True),
        "initContainers": _NAME,
        "containers": _NAME,
        "ephemeralContainers": _NAME,
        "imagePullSecrets": _NAME,
        "hostAliases": _by("ip"),
        "topologySpreadConstraints": _by("topologyKey", keys=("topologyKey", "whenUnsatisfiable")),
        "schedulingGates": _NAME,
        "resourceClaims": _by("name", retain=True),
    },
    "V1Container": _CONTAINER,
    "V1EphemeralContainer": _CONTAINER,
    "V1ResourceRequirements": {"claims": _map("name")},
    "V1PodStatus": {
        "conditions": _TYPE,
        "podIPs": _by("ip"),
        "hostIPs": ListRule("ip", "atomic"),
        "resourceClaimStatuses": _by("name", retain=True),
    },
    "V1ContainerStatus": {"volumeMounts": _by("mountPath"), "allocatedResourcesStatus": _NAME},
    "V1ResourceStatus": {"resources": _map("resourceID")},
    "V1NodeSpec": {"podCIDRs": _SET},
    "V1NodeStatus": {"conditions": _TYPE, "addresses": _TYPE},
    "V1NamespaceStatus": {"conditions": _TYPE},
    "V1ServiceSpec": {"ports": ListRule("port", "map", ("port", "protocol"), defaults=_TCP)},
    "V1ServiceStatus": {"conditions": _TYPE},
    "V1ServiceAccount": {"secrets": _NAME},
    "V1PersistentVolumeClaimStatus": {"conditions": _TYPE},
    "V1ReplicationControllerStatus": {"conditions": _TYPE},
    "V1ResourceQuotaStatus": {},
    "V1DeploymentStatus": {"conditions": _TYPE},
    "V1ReplicaSetStatus": {"conditions": _TYPE},
    "V1DaemonSetStatus": {"conditions": _TYPE},
    "V1StatefulSetStatus": {"conditions": _TYPE},
    "V1JobStatus": {"conditions": ListRule("type", "atomic")},
    "V1UncountedTerminatedPods": {"succeeded": ListRule(None, "set"), "failed": ListRule(None, "set")},
    "V1PodDisruptionBudgetStatus": {"conditions": _TYPE},
    "V1CSINodeSpec": {"drivers": _NAME},
    "V1CSIDriverSpec": {"volumeLifecycleModes": ListRule(None, "set")},
    "V1ResourceClaimStatus": {
        "reservedFor": _by("uid"),
        "devices": _map("driver", "device", "pool", "shareID"),
    },
    "V1AllocatedDeviceStatus": {"conditions": _map("type")},
    "V1CustomResourceDefinitionStatus": {"conditions": _map("type")},
    "V1JSONSchemaProps": {"x-kubernetes-validations": ListRule("rule", "map", ("rule",))},
    "V1ValidatingWebhookConfiguration": {"webhooks": _NAME},
    "V1MutatingWebhookConfiguration": {"webhooks": _NAME},
    "V1ValidatingWebhook": {"matchConditions": _NAME},
    "V1MutatingWebhook": {"matchConditions": _NAME},
    "V2HorizontalPodAutoscalerStatus": {"conditions": _TYPE},
    "V1FlowSchemaStatus": {"conditions": _TYPE},
    "V1PriorityLevelConfigurationStatus": {"conditions": _TYPE},
}

#: Structs and maps that server-side apply owns as one value.
ATOMIC_STRUCTS = frozenset(
    {
        "V1LabelSelector",
        "V1NodeSelector",
        "V1NodeSelectorTerm",
        "V1ObjectReference",
        "V1LocalObjectReference",
        "V1SecretReference",
        "V1TypedLocalObjectReference",
        "V1ObjectFieldSelector",
        "V1ResourceFieldSelector",
        "V1ConfigMapKeySelector",
        "V1SecretKeySelector",
        "V1FileKeySelector",
        "V1TopologySelectorTerm",
        "V1ScopeSelector",
        "V1ScopedResourceSelectorRequirement",
        "V1RoleRef",
        "RbacV1Subject",
        "V1CrossVersionObjectReference",
        "V2CrossVersionObjectReference",
        "V1IPBlock",
        "V1ServiceBackendPort",
        "V1NonResourceAttributes",
    }
)
ATOMIC_MAPS = frozenset(
    {
        ("V1PodSpec", "nodeSelector"),
        ("V1ServiceSpec", "selector"),
        ("V1ReplicationControllerSpec", "selector"),
        ("V1Scheduling", "nodeSelector"),
    }
)

#: Struct fields whose strategic strategy is not the ordinary merge.
REPLACED = frozenset({("V1PodDisruptionBudgetSpec", "selector")})
RETAINED = frozenset({("V1DeploymentSpec", "strategy")})
