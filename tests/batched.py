"""The kinds of batch scheduling on an embedded cluster, as a user installs them."""

from __future__ import annotations

from typing import Any

import yaml

from agent_scheduler.objects.batch import QUEUES, pod_groups
from tests.embedded import EmbeddedCluster
from tests.kustomize import CONFIG

CRDS = (
    CONFIG / "crd" / "scheduling.volcano.sh_queues.yaml",
    CONFIG / "crd" / "scheduling.volcano.sh_podgroups.yaml",
)
GROUP = "scheduling.volcano.sh/v1beta1"


async def install(cluster: EmbeddedCluster) -> None:
    """The kinds Queue and PodGroup."""
    for file in CRDS:
        await cluster.ask(
            "POST",
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            yaml.safe_load(file.read_text()),
        )


def queue(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": GROUP, "kind": "Queue", "metadata": {"name": name}, "spec": spec}


def pod_group(name: str, *, status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    found = {"apiVersion": GROUP, "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}
    return found if status is None else {**found, "status": status}


async def add_queue(cluster: EmbeddedCluster, name: str, **spec: Any) -> Any:
    return await cluster.ask("POST", QUEUES, queue(name, **spec))


async def add_group(cluster: EmbeddedCluster, name: str, *, namespace: str = "default", **more: Any) -> Any:
    return await cluster.ask("POST", pod_groups(namespace), pod_group(name, **more))
