"""The kinds that have hostile objects: where they are, and a minimal object of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from agent_scheduler.objects.batch import GROUP_NAME
from agent_scheduler.objects.job_pod import JOB_NAME

from .drawing import Draw, Object

GROUP: Final = GROUP_NAME
#: A label of what a Job owns.
OF_JOB: Final = JOB_NAME


@dataclass(frozen=True)
class HostileKind:
    """A kind: the version of its API, its name, and a valid object without anything special."""

    version: str
    kind: str
    plural: str
    minimal: Callable[[Draw], Object]
    namespaced: bool = True
    #: Whether its status is a subresource. Otherwise a status is created with the object.
    has_status: bool = False

    @property
    def resource(self) -> str:
        """The name in roles."""
        group = self.version.rpartition("/")[0]
        return f"{self.plural}.{group}" if group else self.plural

    def collection(self, namespace: str) -> str:
        root = f"/apis/{self.version}" if "/" in self.version else f"/api/{self.version}"
        return f"{root}/namespaces/{namespace}/{self.plural}" if self.namespaced else f"{root}/{self.plural}"


def container(name: str = "c", **more: object) -> Object:
    return {"name": name, "image": "i", "resources": {"requests": {"cpu": "10m"}}, **more}


def pod_spec(**more: object) -> Object:
    return {"schedulerName": "agent-scheduler", "containers": [container()], **more}


def template(**more: object) -> Object:
    return {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [container()], **more}}


def _workload(draw: Draw) -> Object:
    found = template()
    return {"spec": {"replicas": 0, "selector": {"matchLabels": {"app": "a"}}, "template": found}}


def task(name: str = "a", replicas: int = 1, **more: object) -> Object:
    return {"name": name, "replicas": replicas, "template": {"spec": {"containers": [container()]}}, **more}


def _claim_spec() -> Object:
    return {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


def _volume() -> Object:
    return {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/mnt"}}


def _request(name: str = "r") -> Object:
    return {"name": name, "exactly": {"deviceClassName": "gpu.example.com"}}


def _attachment(draw: Draw) -> Object:
    return {"spec": {"attacher": "made.example.com", "nodeName": "n1", "source": {"persistentVolumeName": "v"}}}


def _hook(draw: Draw) -> Object:
    client = {"service": {"namespace": "agent-scheduler", "name": "webhook"}}
    hook = {"name": "a.example.com", "clientConfig": client, "sideEffects": "None", "admissionReviewVersions": ["v1"]}
    return {"webhooks": [hook]}


_SELECTS: Final = {"selector": {"matchLabels": {"app": "a"}}}
_CORE, _APPS, _STORAGE, _DRA = "v1", "apps/v1", "storage.k8s.io/v1", "resource.k8s.io/v1"
_BATCH, _SCHEDULING = "batch.volcano.sh/v1alpha1", "scheduling.volcano.sh/v1beta1"
_HOOKS = "admissionregistration.k8s.io/v1"

_ALL: Final = (
    HostileKind(_CORE, "Pod", "pods", lambda _: {"spec": pod_spec()}, has_status=True),
    HostileKind(
        *(_CORE, "Node", "nodes"),
        lambda _: {"status": {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "0"}}},
        namespaced=False,
        has_status=True,
    ),
    HostileKind(_CORE, "Namespace", "namespaces", lambda _: {}, namespaced=False),
    HostileKind(_CORE, "Service", "services", lambda _: {"spec": {"ports": [{"port": 80}]}}),
    HostileKind(
        *(_CORE, "ReplicationController", "replicationcontrollers"),
        lambda _: {"spec": {"replicas": 0, "selector": {"app": "a"}, "template": template()}},
    ),
    HostileKind(_CORE, "ConfigMap", "configmaps", lambda _: {"data": {"a": "b"}}),
    HostileKind(_CORE, "Secret", "secrets", lambda _: {"data": {"a": "Yg=="}}),
    HostileKind(
        _CORE, "ResourceQuota", "resourcequotas", lambda _: {"spec": {"hard": {"pods": "1000000"}}}, has_status=True
    ),
    HostileKind(
        _CORE, "PersistentVolumeClaim", "persistentvolumeclaims", lambda _: {"spec": _claim_spec()}, has_status=True
    ),
    HostileKind(
        *(_CORE, "PersistentVolume", "persistentvolumes"),
        lambda _: {"spec": _volume()},
        namespaced=False,
        has_status=True,
    ),
    HostileKind(_APPS, "ReplicaSet", "replicasets", _workload),
    HostileKind(_APPS, "StatefulSet", "statefulsets", lambda draw: _served(_workload(draw))),
    HostileKind(_APPS, "DaemonSet", "daemonsets", lambda draw: _without_replicas(_workload(draw))),
    HostileKind("batch/v1", "Job", "jobs", lambda _: {"spec": {"suspend": True, "template": _ends(template())}}),
    HostileKind(
        *("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets"),
        lambda _: {"spec": {**_SELECTS, "minAvailable": 1}},
        has_status=True,
    ),
    HostileKind(*("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies"), lambda _: {"spec": {"podSelector": {}}}),
    HostileKind(
        *("coordination.k8s.io/v1", "Lease", "leases"),
        lambda _: {"spec": {"holderIdentity": "a", "leaseDurationSeconds": 15}},
    ),
    HostileKind(
        *("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses"), lambda _: {"value": 1}, namespaced=False
    ),
    HostileKind(
        *("scheduling.k8s.io/v1alpha2", "PodGroup", "podgroups"),
        lambda _: {"spec": {"schedulingPolicy": {"gang": {"minCount": 1}}}},
        has_status=True,
    ),
    HostileKind(
        *(_STORAGE, "StorageClass", "storageclasses"), lambda _: {"provisioner": "made.example.com"}, namespaced=False
    ),
    HostileKind(_STORAGE, "CSIDriver", "csidrivers", lambda _: {"spec": {}}, namespaced=False),
    HostileKind(
        *(_STORAGE, "CSINode", "csinodes"),
        lambda _: {"spec": {"drivers": [{"name": "made.example.com", "nodeID": "n"}]}},
        namespaced=False,
    ),
    HostileKind(
        *(_STORAGE, "CSIStorageCapacity", "csistoragecapacities"),
        lambda _: {"storageClassName": "made", "capacity": "1Gi"},
    ),
    HostileKind(_STORAGE, "VolumeAttachment", "volumeattachments", _attachment, namespaced=False, has_status=True),
    HostileKind(
        *(_DRA, "ResourceClaim", "resourceclaims"),
        lambda _: {"spec": {"devices": {"requests": [_request()]}}},
        has_status=True,
    ),
    HostileKind(_DRA, "DeviceClass", "deviceclasses", lambda _: {"spec": {}}, namespaced=False),
    HostileKind(
        *(_DRA, "ResourceSlice", "resourceslices"),
        lambda draw: {
            "spec": {
                "driver": f"{draw.name}.example.com",
                "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
                "allNodes": True,
                "devices": [{"name": "d"}],
            }
        },
        namespaced=False,
    ),
    HostileKind(_HOOKS, "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", _hook, namespaced=False),
    HostileKind(_HOOKS, "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", _hook, namespaced=False),
    HostileKind(_BATCH, "Job", "jobs", lambda _: {"spec": {"minAvailable": 1, "tasks": [task()]}}, has_status=True),
    HostileKind(_SCHEDULING, "PodGroup", "podgroups", lambda _: {"spec": {"minMember": 1}}),
    HostileKind(
        *(_SCHEDULING, "Queue", "queues"), lambda _: {"spec": {"weight": 1}}, namespaced=False, has_status=True
    ),
    HostileKind(
        *("bus.volcano.sh/v1alpha1", "Command", "commands"),
        lambda _: {"action": "AbortJob", "target": {"apiVersion": _BATCH, "kind": "Job", "name": "nobody", "uid": "u"}},
    ),
    HostileKind(
        *("shard.volcano.sh/v1alpha1", "NodeShard", "nodeshards"),
        lambda _: {"spec": {"nodesDesired": []}},
        namespaced=False,
        has_status=True,
    ),
)


def _served(workload: Object) -> Object:
    workload["spec"]["serviceName"] = "s"
    return workload


def _without_replicas(workload: Object) -> Object:
    del workload["spec"]["replicas"]
    return workload


def _ends(found: Object) -> Object:
    found["spec"]["restartPolicy"] = "Never"
    return found


#: By the name in roles.
HOSTILE_KINDS: Final = {each.resource: each for each in _ALL}
