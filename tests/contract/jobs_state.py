"""The state of a namespace as the recorder of Volcano's controllers took it, and what of it is compared."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

#: Where each kind is: (API path, plural, namespaced).
KINDS: Final = {
    "Job": ("/apis/batch.volcano.sh/v1alpha1", "jobs", True),
    "Pod": ("/api/v1", "pods", True),
    "Service": ("/api/v1", "services", True),
    "ConfigMap": ("/api/v1", "configmaps", True),
    "Secret": ("/api/v1", "secrets", True),
    "PersistentVolumeClaim": ("/api/v1", "persistentvolumeclaims", True),
    "ResourceQuota": ("/api/v1", "resourcequotas", True),
    "NetworkPolicy": ("/apis/networking.k8s.io/v1", "networkpolicies", True),
    "PodGroup": ("/apis/scheduling.volcano.sh/v1beta1", "podgroups", True),
    "Command": ("/apis/bus.volcano.sh/v1alpha1", "commands", True),
    "ReplicaSet": ("/apis/apps/v1", "replicasets", True),
    "StatefulSet": ("/apis/apps/v1", "statefulsets", True),
    "Queue": ("/apis/scheduling.volcano.sh/v1beta1", "queues", False),
}
_POD_SPEC: Final = (
    "containers",
    "hostname",
    "initContainers",
    "nodeName",
    "priorityClassName",
    "restartPolicy",
    "schedulerName",
    "subdomain",
    "volumes",
)

#: What the API server adds to a service.
_SERVERS: Final = ("clusterIPs", "internalTrafficPolicy", "ipFamilies", "ipFamilyPolicy", "sessionAffinity")
#: Names of claims and volumes: here they follow from the Job and their number, and in Volcano they are random.
_CLAIM: Final = re.compile(r"-pvc-[0-9a-f]{10}(\d\d)")
_VOLUME: Final = re.compile(r"vol-\d+")

Ask = Callable[[str, str], Awaitable[Any]]


def path_of(kind: str, namespace: str, name: str = "") -> str:
    path, plural, namespaced = KINDS[kind]
    within = f"/namespaces/{namespace}" if namespaced else ""
    return f"{path}{within}/{plural}" + (f"/{name}" if name else "")


async def take(ask: Ask, namespace: str, uids: dict[str, str], owners: dict[str, str]) -> dict[str, Any]:
    """What is there. `uids`: those of the pods of the step before, by name; `owners`: placeholders by the UIDs of all
    that there was. They are brought up to date."""

    async def items(kind: str) -> list[Any]:
        return (await ask("GET", path_of(kind, namespace)))["items"]  # type: ignore[no-any-return]

    jobs, pods, groups = await items("Job"), await items("Pod"), await items("PodGroup")
    # Where a Job was made again, the groups of both have one name; that of the first is shown.
    groups.sort(key=lambda each: str(each["metadata"]["uid"]), reverse=True)
    state: dict[str, Any] = {
        "jobs": {each["metadata"]["name"]: _job(each) for each in jobs},
        "pods": {each["metadata"]["name"]: _pod(each, uids) for each in pods},
        "podgroups": {each["metadata"]["name"]: _group(each) for each in groups},
        "commands": sorted(each["metadata"]["name"] for each in await items("Command")),
        "services": {each["metadata"]["name"]: _owned(each, spec=True) for each in await items("Service")},
        "networkpolicies": {
            each["metadata"]["name"]: _owned(each, spec=True) for each in await items("NetworkPolicy")
        },
        "configmaps": {
            each["metadata"]["name"]: {**_owned(each), "data": each.get("data") or {}}
            for each in await items("ConfigMap")
        },
        "secrets": {
            each["metadata"]["name"]: {**_owned(each), "keys": sorted(each.get("data") or {})}
            for each in await items("Secret")
        },
        "pvcs": {each["metadata"]["name"]: _owned(each) for each in await items("PersistentVolumeClaim")},
        "queues": {
            each["metadata"]["name"]: _queue(each)
            for each in await items("Queue")
            if each["metadata"]["name"].startswith(f"{namespace}-")
        },
        "events": sorted(
            [
                f"{each['regarding']['kind']}/{each['regarding']['name']}",
                *(each["type"], each["reason"], each["note"]),
            ]
            for each in (await ask("GET", "/apis/events.k8s.io/v1/events"))["items"]
            if each["regarding"].get("namespace") == namespace
            or each["regarding"]["name"].startswith(f"{namespace}-")
        ),
    }
    uids.clear()
    uids.update({each["metadata"]["name"]: each["metadata"]["uid"] for each in pods})
    text = json.dumps(state)
    for kind, found in (("Job", jobs), ("Pod", pods)):
        owners.update({each["metadata"]["uid"]: f"<uid:{kind}/{each['metadata']['name']}>" for each in found})
    for uid, placeholder in owners.items():
        text = text.replace(uid, placeholder)
    text = _CLAIM.sub(lambda match: f"-pvc-<rand{int(match[1]) + 1}>", text)
    return json.loads(_VOLUME.sub("<rand>", text.replace(namespace, "<ns>")))  # type: ignore[no-any-return]


def recorded_state(state: dict[str, Any]) -> dict[str, Any]:
    """The same of a recorded state."""
    return {
        "jobs": state.get("jobs", {}),
        "pods": {
            name: {
                **each,
                "metadata": {
                    "annotations": each["metadata"].get("annotations") or {},
                    "labels": each["metadata"].get("labels") or {},
                    "ownerReferences": each["metadata"].get("ownerReferences") or [],
                },
                "spec": _pod_spec(each["spec"]),
            }
            for name, each in state.get("pods", {}).items()
        },
        "podgroups": {name: _timeless(each) for name, each in state.get("podgroups", {}).items()},
        "commands": sorted(state.get("commands", [])),
        "services": state.get("services", {}),
        "networkpolicies": state.get("networkpolicies", {}),
        "configmaps": state.get("configmaps", {}),
        "secrets": {
            name: {
                "ownerReferences": each.get("ownerReferences") or [],
                "keys": sorted(each.get("data") or each.get("keys") or {}),
            }
            for name, each in state.get("secrets", {}).items()
        },
        "pvcs": {
            name: {"ownerReferences": each.get("ownerReferences") or []}
            for name, each in state.get("pvcs", {}).items()
        },
        "queues": {name: _queue(each) for name, each in state.get("queues", {}).items()},
        "events": sorted([list(each) for each in state.get("events", [])]),
    }


def _job(each: dict[str, Any]) -> dict[str, Any]:
    spec, status = each["spec"], dict(each.get("status") or {})
    status.pop("runningDuration", None)
    if "state" in status:
        status["state"] = {
            key: value for key, value in status["state"].items() if key != "lastTransitionTime"
        }
    if "conditions" in status:
        status["conditions"] = [condition["status"] for condition in status["conditions"]]
    return {
        "deleting": "deletionTimestamp" in each["metadata"],
        **({"finalizers": each["metadata"]["finalizers"]} if each["metadata"].get("finalizers") else {}),
        "spec": {
            "minAvailable": spec.get("minAvailable"),
            "queue": spec.get("queue"),
            **{key: spec[key] for key in ("priorityClassName", "volumes") if spec.get(key)},
            "tasks": [
                {key: task.get(key) for key in ("name", "replicas", "minAvailable", "maxRetry")}
                for task in spec["tasks"]
            ],
        },
        **({"annotations": each["metadata"]["annotations"]} if each["metadata"].get("annotations") else {}),
        "status": status,
    }


def _pod(each: dict[str, Any], uids: dict[str, str]) -> dict[str, Any]:
    metadata = each["metadata"]
    before = uids.get(metadata["name"])
    return {
        "deleting": "deletionTimestamp" in metadata,
        "incarnation": "new" if before is None else "same" if before == metadata["uid"] else "replaced",
        "metadata": {
            "annotations": metadata.get("annotations") or {},
            "labels": metadata.get("labels") or {},
            "ownerReferences": _owners(each),
        },
        "phase": (each.get("status") or {}).get("phase"),
        "spec": _pod_spec(each["spec"]),
    }


def _pod_spec(spec: dict[str, Any]) -> dict[str, Any]:
    found = {key: spec[key] for key in _POD_SPEC if spec.get(key)}
    for kind in ("containers", "initContainers"):
        if kind in found:
            found[kind] = [_container(each) for each in found[kind]]
    if "volumes" in found:
        found["volumes"] = _by(found["volumes"], "name")
    return found


def _container(each: dict[str, Any]) -> dict[str, Any]:
    keys = ("command", "env", "image", "name", "ports", "resources", "volumeMounts")
    found = {key: each[key] for key in keys if each.get(key)}
    if "env" in found:
        found["env"] = _by(found["env"], "name")
    if "volumeMounts" in found:
        found["volumeMounts"] = _by(found["volumeMounts"], "mountPath")
    return found


def _by(items: Iterable[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    return sorted(items, key=lambda each: str(each[key]))


def _group(each: dict[str, Any]) -> dict[str, Any]:
    metadata = each["metadata"]
    return {
        "metadata": {
            "annotations": metadata.get("annotations") or {},
            "labels": metadata.get("labels") or {},
            "ownerReferences": _owners(each),
        },
        "spec": {key: value for key, value in each["spec"].items() if value not in (0, "")},
        "status": _timeless(each)["status"],
    }


def _timeless(group: dict[str, Any]) -> dict[str, Any]:
    """A group without the times of its conditions."""
    status = dict(group.get("status") or {})
    if "conditions" in status:
        status["conditions"] = [
            {key: value for key, value in each.items() if key != "lastTransitionTime"}
            for each in status["conditions"]
        ]
    return {**group, "status": status}


def _queue(each: dict[str, Any]) -> dict[str, Any]:
    """Without the numbers of its groups, which Volcano has in metrics alone."""
    return {
        "annotations": (each.get("metadata") or each).get("annotations") or {},
        "spec": each["spec"],
        "state": (each.get("status") or {}).get("state"),
    }


def _owned(each: dict[str, Any], *, spec: bool = False) -> dict[str, Any]:
    found: dict[str, Any] = {"ownerReferences": _owners(each)}
    if spec:
        found["spec"] = {key: value for key, value in each["spec"].items() if key not in _SERVERS}
        if found["spec"].get("clusterIP", "None") != "None":
            found["spec"]["clusterIP"] = "<ip>"
    return found


def _owners(each: dict[str, Any]) -> list[dict[str, Any]]:
    owners = each["metadata"].get("ownerReferences") or []
    return [{key: value for key, value in owner.items() if key != "apiVersion"} for owner in owners]
