"""What happens to Jobs while they run: their users' changes and commands, and pods that fail or are deleted."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .gang_cluster import MERGE, GangCluster
from .job_load import JOB_VERSION, JOBS

if TYPE_CHECKING:
    from .processes import Process
    from .world import World

Json = dict[str, Any]

_COMMANDS = "/apis/bus.volcano.sh/v1alpha1/namespaces/default/commands"
_ORDERS = ("AbortJob", "ResumeJob", "ResumeJob", "RestartJob", "CompleteJob", "TerminateJob", "Nonsense")


class JobNemesis:
    """Users, and node agents whose pods fail. Its own requests never fail."""

    def __init__(self, world: World, cluster: GangCluster) -> None:
        self._world = world
        self._cluster = cluster
        self._rng = random.Random(f"{world.seed} job nemesis")

    def strike(self) -> None:
        """Asked again and again as long as there are faults."""
        plan, now = self._world.plan, self._world.loop.time()
        for act in (self.job_changed, self.job_commanded, self.pod_failed):
            if plan.strikes(act.__name__, now=now, share=2.0):
                act()

    def written(self, process: Process) -> None:
        """A write of the controller was carried out, and its answer is not there yet."""
        if self._world.plan.strikes("crash", now=self._world.loop.time(), share=0.3):
            self._world.states.reached("crash between a write for a job and answer")
            process.kill("killed between a write for a job and the answer")

    # -- what users do

    def job_changed(self) -> None:
        """It is scaled, or its minimum changes, or it is deleted and may come back."""
        rng = self._rng
        job = self._any_job()
        if job is None:
            return
        path = f"{JOBS}/{job['metadata']['name']}"
        spec = job["spec"]
        change = rng.choice(("scale", "scale", "scale", "minimum", "minimum", "delete", "again"))
        if change in ("delete", "again"):
            self._world.call("DELETE", path)
            if change == "again":
                metadata = {
                    key: job["metadata"][key] for key in ("name", "annotations") if key in job["metadata"]
                }
                body = {"apiVersion": JOB_VERSION, "kind": "Job", "metadata": metadata, "spec": spec}
                self._later(rng.choice((0.0, 0.5, 3.0)), lambda: self._world.call("POST", JOBS, body))
            return
        if change == "scale":
            for task in spec["tasks"]:
                task["replicas"] = rng.randint(max(1, task.get("minAvailable", 0)), 4)
        total = sum(task["replicas"] for task in spec["tasks"])
        patch = {"tasks": spec["tasks"], "minAvailable": rng.randint(1, total)}
        self._world.call("PATCH", path, {"spec": patch}, MERGE)

    def job_commanded(self) -> None:
        job = self._any_job()
        if job is None:
            return
        target = {"apiVersion": JOB_VERSION, "kind": "Job"}
        target |= {key: job["metadata"][key] for key in ("name", "uid")}
        body = {
            "apiVersion": "bus.volcano.sh/v1alpha1",
            "kind": "Command",
            "metadata": {"generateName": "order-"},
            "action": self._rng.choice(_ORDERS),
            "target": target,
        }
        self._world.call("POST", _COMMANDS, body)

    # -- what befalls pods

    def pod_failed(self) -> None:
        """One that runs ends badly, or is reported to have been restarted."""
        running = [pod for pod in self._pods() if (pod.get("status") or {}).get("phase") == "Running"]
        if not running:
            return
        pod = self._rng.choice(running)
        status, path = pod["status"], f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}/status"
        reports = [dict(each) for each in status.get("containerStatuses") or ()]
        if self._rng.random() < 0.3:
            for each in reports:
                each["restartCount"] = each.get("restartCount", 0) + self._rng.choice((1, 3))
            self._world.call("PATCH", path, {"status": {"containerStatuses": reports}}, MERGE)
            return
        for each in reports:
            each["ready"] = False
            each["state"] = {"terminated": {"exitCode": self._rng.choice((1, 137)), "reason": "Error"}}
        body = {"status": {"phase": "Failed", "containerStatuses": reports}}
        self._world.call("PATCH", path, body, MERGE)

    # --

    def _any_job(self) -> Json | None:
        found = self._cluster.jobs()
        return self._rng.choice(found) if found else None

    def _pods(self) -> list[Json]:
        return [pod for pod in self._cluster.pods() if pod["metadata"].get("ownerReferences")]

    def _later(self, seconds: float, act: Callable[[], object]) -> None:
        self._world.plan.lasts(self._world.loop.time() + seconds)
        self._world.loop.call_later(seconds, act)
