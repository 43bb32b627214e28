"""The plugins `pytorch`, `tensorflow`, `mpi` and `hcclrank`: variables by which frameworks find a Job's other pods."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from agent_scheduler.objects.job import Job, TaskSpec

from ..states import tasks_of
from .parts import Body, add_env, add_port, all_containers, containers, host, hosts, hosts_of, indices, is_true, number

_PYTORCH_PORT: Final = 23456
_TENSORFLOW_PORT: Final = 2222
_MPI_PORT: Final = 22
#: Roles of TensorFlow; a task with several roles gets the first of these.
_ROLES: Final = ("chief", "worker", "ps", "evaluator")
_RANK: Final = "RANK"
_RANK_INDEX: Final = "hccl/rankIndex"
_WAIT_SECONDS: Final = 300
#: Linux starts no program with a longer variable.
_LONGEST_VARIABLE: Final = 128 * 1024
_WAIT_IMAGE: Final = "busybox:1.36.1"

#: Waits until the master responds; requires `sh`, and `nc` or a shell that opens sockets.
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


def _check_size(variable: str, job: Job, hosts_of: Iterable[tuple[TaskSpec, int]]) -> None:
    """Raise ValidationError if that many hosts of these tasks are too long for a variable, without listing them."""
    size = sum(number * (len(host(job, task, number)) + 1) for task, number in hosts_of)
    if size > _LONGEST_VARIABLE:
        raise msgspec.ValidationError(
            f"variable {variable}: {size} characters of hosts; allowed: {_LONGEST_VARIABLE}, as in Linux"
        )


# ---- pytorch


def change_pytorch(job: Job, task: TaskSpec, index: int, pod: Body, given: dict[str, str]) -> None:
    """Add PyTorch's variables; no-op if the Job has no such master."""
    master, worker = given.get("master", "master"), given.get("worker", "worker")
    first = _task(job, master)
    if first is None:
        return
    port = number(given.get("port", ""), _PYTORCH_PORT)
    address = host(job, first, 0)
    entries = [{"name": "MASTER_ADDR", "value": address}, {"name": "MASTER_PORT", "value": str(port)}]
    world = sum(each.replicas for each in tasks_of(job) if each.name in (master, worker))
    entries += [{"name": "WORLD_SIZE", "value": str(world)}]
    rank = {master: index, worker: index + first.replicas}.get(task.name)
    if rank is not None:
        entries += [{"name": _RANK, "value": str(rank)}]
    for container in containers(pod):
        add_port(container, "pytorchjob-port", port)
    add_env(containers(pod), *entries)
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
    if sum(each.replicas for each in tasks_of(job)) == 1 == len(tasks_of(job)):
        # A single pod is no cluster.
        return
    names = {role: given.get(role, role) for role in _ROLES}
    tasks = {task.name: task for task in tasks_of(job) if task.name in names.values()}
    _check_size("TF_CONFIG", job, ((task, task.replicas) for task in tasks.values()))
    cluster: dict[str, list[str]] = {}
    for role in ("ps", "worker", "chief", "evaluator"):
        found = tasks.get(names[role])
        # A task with two roles gets the first.
        if found is not None and found.replicas and names[role] not in [names[each] for each in cluster]:
            cluster[role] = [f"{name}:{port}" for _, name in hosts_of(job, found, range(found.replicas))]
    kind = next((role for role in _ROLES if names[role] == task.name), task.name)
    config = {"cluster": cluster, "task": {"type": kind, "index": index}}
    add_env(containers(pod), {"name": "TF_CONFIG", "value": msgspec.json.encode(config).decode()})


# ---- mpi


def change_mpi(job: Job, task: TaskSpec, index: int, pod: Body, given: dict[str, str]) -> None:
    master, worker = given.get("master", "master"), given.get("worker", "worker")
    port = number(given.get("port", ""), _MPI_PORT)
    workers = _task(job, worker)
    if task.name == master and workers is None:
        return
    for container in all_containers(pod):
        add_port(container, "mpijob-port", port)
    if task.name == master and workers is not None:
        _check_size("MPI_HOST", job, ((workers, len(indices(workers))),))
        add_env(all_containers(pod), {"name": "MPI_HOST", "value": ",".join(hosts(job, workers))})


# ---- hcclrank


def change_hcclrank(job: Job, task: TaskSpec, index: int, pod: Body, given: dict[str, str]) -> None:
    """Set the rank unless the pod sets it itself or by a variable RANK: masters first, then workers."""
    annotations = pod["metadata"]["annotations"]
    if annotations.get(_RANK_INDEX):
        return
    variables = (each for container in containers(pod) for each in container.get("env") or ())
    if said := next((each.get("value") for each in variables if each.get("name") == _RANK), ""):
        annotations[_RANK_INDEX] = said
        return
    master, worker = given.get("master", "master"), given.get("worker", "worker")
    first = _task(job, master)
    rank = {master: index, worker: index + (first.replicas if first is not None else 0)}.get(task.name)
    if rank is not None:
        annotations[_RANK_INDEX] = str(rank)
