"""The state of a namespace as the recorder of Volcano's controllers stored it, reduced to what is compared."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

#: Kind -> (API path, plural, whether it is namespaced).
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
    *("containers", "hostname", "initContainers", "nodeName", "priorityClassName", "restartPolicy"),
    *("schedulerName", "subdomain", "volumes"),
)
#: Fields that the API server adds to a service.
_SERVERS: Final = ("clusterIPs", "internalTrafficPolicy", "ipFamilies", "ipFamilyPolicy", "sessionAffinity")
#: Names of claims and volumes: here they follow from the Job and their number, in Volcano they are random.
_CLAIM: Final = re.compile(r"-pvc-[0-9a-f]{10}(\d\d)")
_VOLUME: Final = re.compile(r"vol-\d+")

Ask = Callable[[str, str], Awaitable[Any]]


def path_of(kind: str, namespace: str, name: str = "") -> str:
    path, plural, namespaced = KINDS[kind]
    within = f"/namespaces/{namespace}" if namespaced else ""
    return f"{path}{within}/{plural}" + (f"/{name}" if name else "")


async def take(ask: Ask, namespace: str, uids: dict[str, str], owners: dict[str, str]) -> dict[str, Any]:
    """Return the current state, and update `uids` and `owners`.

    `uids`: those of the pods of the previous step, by name; `owners`: placeholders by the UIDs of all objects so far.
    """

    async def items(kind: str) -> list[Any]:
        return (await ask("GET", path_of(kind, namespace)))["items"]  # type: ignore[no-any-return]

    async def named(kind: str, read: Callable[[Any], Any]) -> dict[str, Any]:
        return _named(await items(kind), read)

    def is_ours(name: str) -> bool:
        return name.startswith(f"{namespace}-")

    jobs, pods, groups = await items("Job"), await items("Pod"), await items("PodGroup")
    # If a Job was created again, the groups of both have one name; the state has that of the first.
    groups.sort(key=lambda each: str(each["metadata"]["uid"]), reverse=True)
    state: dict[str, Any] = {
        "jobs": _named(jobs, _job),
        "pods": _named(pods, lambda each: _pod(each, uids)),
        "podgroups": _named(groups, _group),
        "commands": sorted(await named("Command", str)),
        "services": await named("Service", _owned_with_spec),
        "networkpolicies": await named("NetworkPolicy", _owned_with_spec),
        "configmaps": await named("ConfigMap", lambda each: {**_owned(each), "data": each.get("data") or {}}),
        "secrets": await named("Secret", _secret),
        "pvcs": await named("PersistentVolumeClaim", _owned),
        "queues": {name: each for name, each in (await named("Queue", _queue)).items() if is_ours(name)},
        "events": sorted(
            [f"{each['regarding']['kind']}/{each['regarding']['name']}", *(each["type"], each["reason"], each["note"])]
            for each in (await ask("GET", "/apis/events.k8s.io/v1/events"))["items"]
            if each["regarding"].get("namespace") == namespace or is_ours(each["regarding"]["name"])
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
    """Return a recorded state in the same form."""

    def named(kind: str, read: Callable[[Any], Any] = lambda each: each) -> dict[str, Any]:
        return {name: read(each) for name, each in state.get(kind, {}).items()}

    def owned(each: dict[str, Any]) -> dict[str, Any]:
        return {"ownerReferences": each.get("ownerReferences") or []}

    return {
        **{kind: named(kind) for kind in ("jobs", "services", "networkpolicies", "configmaps")},
        "pods": named("pods", lambda each: {**each, "metadata": _metadata(each), "spec": _pod_spec(each["spec"])}),
        "podgroups": named("podgroups", _timeless),
        "commands": sorted(state.get("commands", [])),
        "secrets": named(
            "secrets", lambda each: {**owned(each), **{key: each[key] for key in ("keys", "config") if key in each}}
        ),
        "pvcs": named("pvcs", owned),
        "queues": named("queues", _queue),
        "events": sorted([list(each) for each in state.get("events", [])]),
    }


def _named(items: Iterable[dict[str, Any]], read: Callable[[Any], Any]) -> dict[str, Any]:
    return {each["metadata"]["name"]: read(each) for each in items}


def _job(each: dict[str, Any]) -> dict[str, Any]:
    spec, status, metadata = each["spec"], dict(each.get("status") or {}), each["metadata"]
    status.pop("runningDuration", None)
    if "state" in status:
        status["state"] = _without_time(status["state"])
    if "conditions" in status:
        status["conditions"] = [condition["status"] for condition in status["conditions"]]
    of_task = ("name", "replicas", "minAvailable", "maxRetry")
    return {
        "deleting": "deletionTimestamp" in metadata,
        **{key: metadata[key] for key in ("finalizers", "annotations") if metadata.get(key)},
        "spec": {
            "minAvailable": spec.get("minAvailable"),
            "queue": spec.get("queue"),
            **{key: spec[key] for key in ("priorityClassName", "volumes") if spec.get(key)},
            "tasks": [{key: task.get(key) for key in of_task} for task in spec["tasks"]],
        },
        "status": status,
    }


def _pod(each: dict[str, Any], uids: dict[str, str]) -> dict[str, Any]:
    metadata = each["metadata"]
    before = uids.get(metadata["name"])
    return {
        "deleting": "deletionTimestamp" in metadata,
        "incarnation": "new" if before is None else "same" if before == metadata["uid"] else "replaced",
        "metadata": _metadata(each),
        "phase": (each.get("status") or {}).get("phase"),
        "spec": _pod_spec(each["spec"]),
    }


def _metadata(each: dict[str, Any]) -> dict[str, Any]:
    said = {key: each["metadata"].get(key) or {} for key in ("annotations", "labels")}
    return {**said, "ownerReferences": _owners(each)}


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
    for kind, key in (("env", "name"), ("volumeMounts", "mountPath")):
        if kind in found:
            found[kind] = _by(found[kind], key)
    return found


def _by(items: Iterable[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    return sorted(items, key=lambda each: str(each[key]))


def _group(each: dict[str, Any]) -> dict[str, Any]:
    return {
        "metadata": _metadata(each),
        "spec": {key: value for key, value in each["spec"].items() if value not in (0, "")},
        "status": _timeless(each)["status"],
    }


def _timeless(group: dict[str, Any]) -> dict[str, Any]:
    """Return a group without the times of its conditions."""
    status = dict(group.get("status") or {})
    if "conditions" in status:
        status["conditions"] = [_without_time(each) for each in status["conditions"]]
    return {**group, "status": status}


def _without_time(of: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in of.items() if key != "lastTransitionTime"}


def _queue(each: dict[str, Any]) -> dict[str, Any]:
    """Return a queue without the counts of its groups, which Volcano has only in metrics."""
    return {
        "annotations": (each.get("metadata") or each).get("annotations") or {},
        "spec": each["spec"],
        "state": (each.get("status") or {}).get("state"),
    }


def _owned(each: dict[str, Any]) -> dict[str, Any]:
    return {"ownerReferences": _owners(each)}


def _secret(each: dict[str, Any]) -> dict[str, Any]:
    """Return a Secret's keys, and the file `config`: the other values are random."""
    data = each.get("data") or {}
    found = {**_owned(each), "keys": sorted(data)}
    if "config" in data:
        found["config"] = base64.b64decode(data["config"]).decode()
    return found


def _owned_with_spec(each: dict[str, Any]) -> dict[str, Any]:
    spec = {key: value for key, value in each["spec"].items() if key not in _SERVERS}
    if spec.get("clusterIP", "None") != "None":
        spec["clusterIP"] = "<ip>"
    return {**_owned(each), "spec": spec}


def _owners(each: dict[str, Any]) -> list[dict[str, Any]]:
    owners = each["metadata"].get("ownerReferences") or []
    return [{key: value for key, value in owner.items() if key != "apiVersion"} for owner in owners]
