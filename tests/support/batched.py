"""The kinds of batch scheduling on an embedded cluster, installed as a user does."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import yaml

from agent_scheduler.objects.batch import QUEUES, pod_groups
from tests.support import objects
from tests.support.embedded import EmbeddedCluster
from tests.support.objects import pod_group as pod_group
from tests.support.objects import queue as queue
from tests.support.places import CONFIG

CRDS = (
    CONFIG / "crd" / "scheduling.volcano.sh_queues.yaml",
    CONFIG / "crd" / "scheduling.volcano.sh_podgroups.yaml",
    CONFIG / "crd" / "batch.volcano.sh_jobs.yaml",
)
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GROUP = "scheduling.volcano.sh/v1beta1"
COMMANDS = "/apis/bus.volcano.sh/v1alpha1/namespaces/default/commands"

#: The version and plural of the workloads whose pods share a group.
OWNERS = {
    "ReplicaSet": ("apps/v1", "replicasets"),
    "StatefulSet": ("apps/v1", "statefulsets"),
    "DaemonSet": ("apps/v1", "daemonsets"),
    "Job": ("batch/v1", "jobs"),
}


async def install(cluster: EmbeddedCluster) -> None:
    """Install Volcano's kinds Queue, PodGroup and Job."""
    for file in CRDS:
        await cluster.add(DEFINITIONS, definition(file))


@functools.cache
def definition(file: Path) -> Any:
    """Return the content of the file, which callers must not modify."""
    return yaml.safe_load(file.read_text())


async def add_queue(cluster: EmbeddedCluster, name: str, **spec: Any) -> Any:
    return await cluster.ask("POST", QUEUES, queue(name, **spec))


async def add_group(cluster: EmbeddedCluster, name: str, *, namespace: str = "default", **more: Any) -> Any:
    return await cluster.ask("POST", pod_groups(namespace), pod_group(name, **more))


def command(action: str, of_queue: str) -> dict[str, Any]:
    """Return the object that `vcctl queue operate` creates."""
    return {
        "apiVersion": "bus.volcano.sh/v1alpha1",
        "kind": "Command",
        "metadata": {"generateName": "order-"},
        "action": action,
        "target": {"apiVersion": GROUP, "kind": "Queue", "name": of_queue, "uid": "u"},
    }


def owner(kind: str, *, annotations: dict[str, str] | None = None) -> tuple[str, dict[str, Any]]:
    """Return the path and body of a workload `own` of this kind, whose controller creates no pods that use volcano."""
    version, plural = OWNERS[kind]
    never = {"restartPolicy": "Never"} if kind == "Job" else {}
    template = {
        "metadata": {"labels": {"app": "w"}},
        "spec": {"containers": [{"name": "c", "image": "i"}], "schedulerName": "nobody", **never},
    }
    spec: dict[str, Any] = {"template": template}
    if kind != "Job":
        spec["selector"] = {"matchLabels": {"app": "w"}}
    if kind in ("ReplicaSet", "StatefulSet"):
        spec["replicas"] = 2
    if kind == "StatefulSet":
        spec["serviceName"] = "own"
    body = {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": "own", "annotations": annotations or {}},
        "spec": spec,
    }
    return f"/apis/{version}/namespaces/default/{plural}", body


def reference(kind: str, uid: str, *, controller: bool = True) -> dict[str, Any]:
    """Return the owner reference of a pod to the workload `own`."""
    version, _ = OWNERS[kind]
    found = {"apiVersion": version, "kind": kind, "name": "own", "uid": uid, "blockOwnerDeletion": True}
    return {**found, "controller": True} if controller else found


def member(name: str, kind: str, uid: str, *, cpu: str = "1") -> dict[str, Any]:
    """Return a pod of the workload `own`, without its labels, so that the workload's controller does not count it."""
    about = {"owners": [reference(kind, uid)], "scheduler": "volcano"}
    return objects.pod(name, cpu=cpu, memory="512Mi", **about)
