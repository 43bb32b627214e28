"""The story `agent-scheduler demo --story jobs`: a training Job whose workers wait for its master, its report for them.

Each printed line is the state in the API. The story's claims are verified: it fails if a pod is created before those
that it depends on are ready, if workers are bound below their minimum, or if the Job does not end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import orjson
import yaml

from agent_scheduler.objects.batch import QUEUES, TASK_SPEC
from agent_scheduler.objects.job import JOBS, job_path, jobs
from bench.harness.embedded import cluster, scheduler
from bench.harness.install import CONTROLLERS, kubeconfig_of
from bench.harness.manifest_files import manifest_file
from bench.harness.model import Nodes
from bench.harness.processes import ProcessError
from bench.harness.requests import ask, retry
from bench.harness.site import BATCH_KINDS, CRDS, until_served
from kube_client.transport import Transport

from .story import CONFIGURATION, controllers
from .telling import Teller

_PODS: Final = "/api/v1/namespaces/default/pods"
#: Files, as paths for `manifest_file`.
KINDS: Final = (*BATCH_KINDS, "crd/batch.volcano.sh_jobs.yaml", "crd/bus.volcano.sh_commands.yaml")
_ENABLED: Final = "job,podgroup,queue"
#: Seconds within which the binds of a gang follow one another.
_APART: Final = 5.0
_RUN_SECONDS: Final = "agent-scheduler.io/run-seconds"


class Task(NamedTuple):
    """A task as it is printed: its pods, those with a node, and those that run or have succeeded."""

    pods: int = 0
    bound: int = 0
    running: int = 0
    succeeded: int = 0


class Seen(NamedTuple):
    phase: str
    message: str
    #: Task name -> its pods.
    tasks: Mapping[str, Task]


TASKS: Final = ("master", "worker", "report")


def training() -> dict[str, Any]:
    """Return the Job: two of three workers suffice, and the report runs on the remaining capacity."""
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "training"},
        "spec": {
            "schedulerName": "volcano",
            "queue": "default",
            "minAvailable": 3,
            "tasks": [
                _task("master", 1, 1, seconds=9, cpu="1"),
                _task("worker", 3, 2, seconds=5, cpu="1", after="master"),
                _task("report", 2, 0, seconds=2, after="worker"),
            ],
        },
    }


def _task(name: str, replicas: int, minimum: int, *, seconds: int, cpu: str = "", after: str = "") -> dict[str, Any]:
    resources = {"requests": {"cpu": cpu, "memory": "256Mi"}} if cpu else {}
    return {
        "name": name,
        "replicas": replicas,
        "minAvailable": minimum,
        **({"dependsOn": {"name": [after]}} if after else {}),
        "template": {
            "metadata": {"annotations": {_RUN_SECONDS: str(seconds)}},
            "spec": {
                "restartPolicy": "Never",
                "containers": [{"name": "c", "image": "registry.invalid/none:1", "resources": resources}],
            },
        },
    }


async def look(transport: Transport) -> Seen:
    """Return the Job and its pods as the API has them."""
    job = orjson.loads(await ask(transport, "GET", job_path("default", "training")))
    pods = orjson.loads(await ask(transport, "GET", _PODS))["items"]
    state = (job.get("status") or {}).get("state") or {}
    return Seen(state.get("phase", ""), state.get("message", ""), {name: _of(name, pods) for name in TASKS})


def _of(task: str, pods: list[dict[str, Any]]) -> Task:
    mine = [each for each in pods if (each["metadata"].get("annotations") or {}).get(TASK_SPEC) == task]
    phases = [each["status"].get("phase") for each in mine]
    bound = sum(bool(each["spec"].get("nodeName")) for each in mine)
    return Task(len(mine), bound, phases.count("Running"), phases.count("Succeeded"))


def shown(seen: Seen) -> str:
    lines = [f"         job training: {seen.phase or '-'}{f', {seen.message}' if seen.message else ''}"]
    lines.append(f"         {'TASK':7} {'PODS':>5} {'BOUND':>6} {'RUNNING':>8} {'SUCCEEDED':>10}")
    for name, each in seen.tasks.items():
        lines.append(f"         {name:7} {each.pods:5} {each.bound:6} {each.running:8} {each.succeeded:10}")
    return "\n".join(lines)


def contradiction(seen: Seen) -> str:
    """Return how the state contradicts the dependencies; empty if it does not.

    Pods of a task may have ended since others were created.
    """
    master, worker, report = (seen.tasks[name] for name in TASKS)
    if worker.pods and not (master.running or master.succeeded):
        return "workers exist before their master runs"
    if report.pods and worker.running + worker.succeeded < 2:
        return "the report is created before the workers run"
    return ""


class Together:
    """Observes that the workers of the minimum are bound together.

    Their binds are requests of their own, so one may be seen without the other, but not for long.
    """

    def __init__(self) -> None:
        #: When fewer workers than they need were first seen bound; None if that is not so now.
        self._since: float | None = None

    def contradiction(self, seen: Seen, now: float) -> str:
        """Return the contradiction in what was seen at `now`, in seconds; empty if there is none."""
        if not 0 < seen.tasks["worker"].bound < 2:
            self._since = None
            return ""
        self._since = now if self._since is None else self._since
        return "fewer workers are bound than they need" if now > self._since + _APART else ""


async def tell_jobs(teller: Teller[Seen], start: Callable[[], Awaitable[object]]) -> None:
    """Tell the story. `start` starts the scheduler. Raises `ProcessError` if the story fails."""
    together, now = Together(), asyncio.get_running_loop().time

    async def until(what: str, holds: Callable[[Seen], bool]) -> None:
        def stands(seen: Seen) -> bool:
            if problem := contradiction(seen) or together.contradiction(seen, now()):
                raise ProcessError(f"the story fails: {problem}")
            return holds(seen)

        await teller.until(what, stands)

    teller.tell(
        "A Job of three tasks: a master, three workers of which two suffice, and a report that uses the rest. "
        "Workers wait for the master, the report for the workers."
    )
    await until("nothing waits for the master", lambda seen: seen.phase == "Pending")
    teller.tell("The scheduler starts, and admits the Job's group. Only the master has a pod.")
    await start()
    await until("the master does not run", lambda seen: seen.tasks["master"].running == 1)
    teller.tell("The master runs. The workers are created, and bound as a gang: at least two, or none.")
    await until("the workers do not run", lambda seen: seen.tasks["worker"].running == 3)
    teller.tell("The workers run. The report is created, requests nothing, and runs beside them.")
    await until("the report does not run", lambda seen: sum(seen.tasks["report"][2:]) == 2)
    teller.tell("All pods end, and the Job ends.")
    await until("the Job does not end", lambda seen: seen.phase == "Completed")
    teller.tell("Completed: each task ran after those it depends on, and never with fewer pods than its minimum.")


async def _install(transport: Transport) -> None:
    for name in KINDS:
        body = yaml.safe_load(manifest_file(name).read_text(encoding="utf-8"))
        await retry(transport, "POST", CRDS, orjson.dumps(body))
    for collection in (QUEUES, JOBS):
        await until_served(transport, collection)


async def play(say: Callable[[str], object]) -> None:
    """Play the story of jobs, with cluster, controllers and scheduler as separate processes.

    Raises `ProcessError`, and `RequestFailed`.
    """
    secured = ("--authorization-mode", "RBAC", "--no-tls")
    with TemporaryDirectory(prefix="agent-scheduler-demo-") as name:
        folder = Path(name)
        async with (
            cluster(Nodes(count=1, cpu="4", memory="8Gi"), folder=folder, arguments=secured) as (_, transport),
            AsyncExitStack() as stack,
        ):
            await _install(transport)
            admin = folder / "kubeconfig"
            keepers = await kubeconfig_of(transport, admin, CONTROLLERS)
            await stack.enter_async_context(controllers(_ENABLED, keepers, folder))
            file = folder / "scheduler.json"
            file.write_bytes(orjson.dumps(CONFIGURATION))
            mine = await kubeconfig_of(transport, admin)
            flags = ("--config", str(file), "--kubeconfig", str(mine), "--log-level", "warning")

            async def start() -> None:
                await stack.enter_async_context(scheduler(flags, folder=folder))

            await retry(transport, "POST", jobs("default"), orjson.dumps(training()))
            await tell_jobs(Teller(say, lambda: look(transport), shown), start)
