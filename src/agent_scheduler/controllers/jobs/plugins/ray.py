"""The plugin `ray`: sets the commands that start a Ray cluster, and creates a service for its head."""

from __future__ import annotations

from typing import Final

from agent_scheduler.objects.batch import TASK_SPEC
from agent_scheduler.objects.job import Job, TaskSpec
from agent_scheduler.objects.job_pod import JOB_NAME, JOB_NAMESPACE

from ..pods import owner_of
from ..states import tasks_of
from .parts import Body, add_port, containers, host, number

_PORT: Final = 6379
_DASHBOARD_PORT: Final = 8265
_CLIENT_PORT: Final = 10001


def change(job: Job, task: TaskSpec, index: int, pod: Body, given: dict[str, str]) -> None:
    head, worker = given.get("head", "head"), given.get("worker", "worker")
    first = next((each for each in tasks_of(job) if each.name == head), None)
    if first is None:
        return
    for container in containers(pod):
        if task.name == head and container.get("name") == given.get("headContainer", "head"):
            ports = _ports(given)
            container["command"] = [
                "sh",
                "-c",
                "ray start --head --block --dashboard-host=0.0.0.0"
                f" --port={ports['gcs']} --dashboard-port={ports['dashboard']}"
                f" --ray-client-server-port={ports['client-server']}",
            ]
            for name, port in ports.items():
                add_port(container, name, port)
        elif task.name == worker and container.get("name") == given.get("workerContainer", "worker"):
            address = f"{host(job, first, 0)}:{_ports(given)['gcs']}"
            container["command"] = ["sh", "-c", f"ray start --block --address={address}"]


def objects(job: Job, given: dict[str, str]) -> list[Body]:
    selector = {
        JOB_NAME: job.metadata.name,
        JOB_NAMESPACE: job.metadata.namespace,
        TASK_SPEC: given.get("head", "head"),
    }
    ports = [
        {"name": name, "port": port, "protocol": "TCP", "targetPort": name} for name, port in _ports(given).items()
    ]
    metadata = {
        "name": f"{job.metadata.name}-head-svc",
        "namespace": job.metadata.namespace,
        "ownerReferences": [owner_of(job)],
    }
    return [
        {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"selector": selector, "ports": ports}}
    ]


def _ports(given: dict[str, str]) -> dict[str, int]:
    return {
        "gcs": number(given.get("port", ""), _PORT),
        "dashboard": number(given.get("dashboardPort", ""), _DASHBOARD_PORT),
        "client-server": number(given.get("clientPort", ""), _CLIENT_PORT),
    }
