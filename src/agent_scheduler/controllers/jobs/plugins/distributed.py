"""`pytorch`, `tensorflow`, `mpi` and `hcclrank`: what these frameworks read to find the other pods of a Job."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from agent_scheduler.objects.job import Job, TaskSpec

from ..states import tasks_of
from .parts import Body, add_env, add_port, all_containers, containers, host, hosts, is_true, number

_PYTORCH_PORT: Final = 23456
_TENSORFLOW_PORT: Final = 2222
_MPI_PORT: Final = 22
_WAIT_SECONDS: Final = 300
_WAIT_IMAGE: Final = "busybox:1.36.1"

#: What waits until the master answers; `sh`, and `nc` or a shell that opens sockets.
_WAIT: Final = """\
echo "Waiting for master node {host}:{port} to be ready..."
TIMEOUT={seconds}
ELAPSED=0
until {{ nc -z {host} {port} || echo > /dev/tcp/{host}/{port}; }} 2>/dev/null; do
  if [ $ELAPSED -ge $TIMEOUT ]; then
    echo "Timeout waiting for master after ${{TIMEOUT}} seconds"
    exit 1
  fi
  echo "Master not ready yet, retrying in 2 seconds... (elapsed: ${{ELAPSED}}s)"
  sleep 2
  ELAPSED=$((ELAPSED + 2))
done
echo "Master node is ready!\""""


def no_objects(job: Job, given: dict[str, str]) -> list[Body]:
    return []


def _task(job: Job, name: str) -> TaskSpec | None:
    return next((task for task in tasks_of(job) if task.name == name), None)


# ---- pytorch


def change_pytorch(job: Job, task: TaskSpec, index: int, pod: Body, given: dict[str, str]) -> None:
    """Nothing where the Job has no such master."""
    master, worker = given.get("master", "master"), given.get("worker", "worker")
    first = _task(job, master)
    if first is None:
        return
    port = number(given.get("port", ""), _PYTORCH_PORT)
    address = host(job, first, 0)
    entries = [{"name": "MASTER_ADDR", "value": address}, {"name": "MASTER_PORT", "value": str(port)}]
    rank = {master: index, worker: index + first.replicas}.get(task.name)
    if rank is not None:
        world = sum(each.replicas for each in tasks_of(job) if each.name in (master, worker))
        entries += [{"name": "WORLD_SIZE", "value": str(world)}, {"name": "RANK", "value": str(rank)}]
    for container in containers(pod):
        add_port(container, "pytorchjob-port", port)
        add_env(container, *entries)
    if task.name == worker and is_true(given.get("wait-master-enabled", "")):
        seconds = number(given.get("wait-master-timeout", ""), _WAIT_SECONDS)
        script = _WAIT.format(host=address, port=port, seconds=seconds)
        waiting = {
            "name": "wait-for-master",
            "image": given.get("wait-master-image") or _WAIT_IMAGE,
            "command": ["sh", "-c", script],
        }
        pod["spec"]["initContainers"] = [*(pod["spec"].get("initContainers") or ()), waiting]


# ---- tensorflow


def change_tensorflow(job: Job, task: TaskSpec, index: int, pod: Body, given: dict[str, str]) -> None:
    port = number(given.get("port", ""), _TENSORFLOW_PORT)
    names = {role: given.get(role, role) for role in ("ps", "worker", "chief", "evaluator")}
    role_of: dict[str, str] = {}
    for role, name in names.items():
        role_of.setdefault(name, role)
    cluster: dict[str, Any] = {}
    for role, name in names.items():
        found = _task(job, name)
        if found is not None and found.replicas and role_of[name] == role:
            cluster[role] = [f"{each}:{port}" for each in hosts(job, found)]
    if task.name in role_of:
        config = {"cluster": cluster, "task": {"type": role_of[task.name], "index": index}}
        for container in containers(pod):
            add_env(container, {"name": "TF_CONFIG", "value": msgspec.json.encode(config).decode()})


# ---- mpi


def change_mpi(job: Job, task: TaskSpec, index: int, pod: Body, given: dict[str, str]) -> None:
    master, worker = given.get("master", "master"), given.get("worker", "worker")
    port = number(given.get("port", ""), _MPI_PORT)
    workers = _task(job, worker)
    if task.name == master and workers is not None:
        for container in all_containers(pod):
            add_env(container, {"name": "MPI_HOST", "value": ",".join(hosts(job, workers))})
    if task.name in (master, worker):
        for container in containers(pod):
            add_port(container, "mpijob-port", port)


# ---- hcclrank


def change_hcclrank(job: Job, task: TaskSpec, index: int, pod: Body, given: dict[str, str]) -> None:
    """Where pods do not say it themselves: the masters first, and then the workers."""
    master, worker = given.get("master", "master"), given.get("worker", "worker")
    first = _task(job, master)
    rank = {master: index, worker: index + (first.replicas if first is not None else 0)}.get(task.name)
    if rank is not None:
        pod["metadata"]["annotations"].setdefault("hccl/rankIndex", str(rank))
