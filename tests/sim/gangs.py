"""The kinds of gangs and queues in a world's cluster, and who keeps queues open where no controller does.

What happens to groups and queues while they are scheduled, and at which moments of a session.

What happens to Jobs while they run: their users' changes and commands, and pods that fail or are deleted.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

import orjson
import yaml

from embedded_kubernetes.requests import Request
from embedded_kubernetes.store import Record
from tests.support.places import CONFIG

from . import gang_reading as read
from .api import CRDS_PATH, MERGE, PODS, Json
from .gang_load import (
    API,
    GROUPS_OF_DEFAULT,
    JOB_VERSION,
    JOBS_PATH,
    NATIVE,
    NATIVE_OF_DEFAULT,
    PRIORITIES,
    Gangs,
)
from .gang_load import group as made_group
from .gang_load import queue as made_queue

if TYPE_CHECKING:
    from .processes import Process
    from .world import World

QUEUES, GROUPS = ("scheduling.volcano.sh", "queues"), ("scheduling.volcano.sh", "podgroups")
NATIVE_GROUPS = ("scheduling.k8s.io", "podgroups")
JOBS = ("batch.volcano.sh", "jobs")
_DEFINITIONS = CONFIG / "crd"
#: Of queues, groups, what is asked of these, and of Jobs.
_GANGS = ("scheduling.volcano.sh_queues", "scheduling.volcano.sh_podgroups", "bus.volcano.sh_commands")
_JOBS = ("batch.volcano.sh_jobs",)


@cache
def _definitions(names: tuple[str, ...]) -> list[Json]:
    return [yaml.safe_load((_DEFINITIONS / f"{name}.yaml").read_text()) for name in names]


class GangCluster:
    """Made with its world. What it says is read from the store."""

    def __init__(self, world: World, shape: Gangs) -> None:
        self._world = world
        self.shape = shape
        for definition in _definitions((*_GANGS, *_JOBS) if world.shape.jobs is not None else _GANGS):
            world.call("POST", CRDS_PATH, definition)

    def install(self) -> None:
        """Make the first queues."""
        for body in self.shape.queues:
            self.make_queue(body)

    def make_queue(self, body: Json) -> None:
        """Also where there is one. Its state is what `body` says, where nobody else says it."""
        self._world.call(
            "POST", f"{API}/queues", {key: each for key, each in body.items() if key != "status"}
        )
        self.set_state(body["metadata"]["name"], body["status"]["state"])

    def set_state(self, name: str, state: str) -> None:
        self._world.call("PATCH", f"{API}/queues/{name}/status", {"status": {"state": state}}, MERGE)

    def patch_queue(self, name: str, spec: Json) -> None:
        self._world.call("PATCH", f"{API}/queues/{name}", {"spec": spec}, MERGE)

    def patch_group(self, name: str, body: Json) -> None:
        self._world.call("PATCH", f"{GROUPS_OF_DEFAULT}/{name}", body, MERGE)

    # -- what is there

    def queues(self) -> dict[str, Json]:
        return {record.name: orjson.loads(record.data) for record in self._records(QUEUES)}

    def groups(self) -> dict[str, Json]:
        """By name: all are in one namespace."""
        return {record.name: orjson.loads(record.data) for record in self._records(GROUPS)}

    def native_groups(self) -> dict[str, Json]:
        """By name, with `NATIVE` before it, where the API server has any."""
        return {
            f"{NATIVE}{record.name}": orjson.loads(record.data) for record in self._records(NATIVE_GROUPS)
        }

    def pods(self) -> list[Json]:
        return [orjson.loads(record.data) for record in self._records(PODS)]

    def jobs(self) -> list[Json]:
        """Where there are any."""
        return [orjson.loads(record.data) for record in self._records(JOBS)]

    def _records(self, kind: tuple[str, str]) -> Iterator[Record]:
        table = self._world.store.tables.get(kind)
        return iter([] if table is None else list(table.scan("")))


class GangNemesis:
    """Users and administrators, and crashes at bad moments. Its own requests never fail."""

    def __init__(self, world: World, cluster: GangCluster) -> None:
        self._world = world
        self._cluster = cluster
        self._rng = random.Random(f"{world.seed} gang nemesis")

    def strike(self) -> None:
        """Asked again and again as long as there are faults."""
        plan, now = self._world.plan, self._world.loop.time()
        for act in (self.group_changed, self.queue_changed):
            if plan.strikes(act.__name__, now=now, share=1.5):
                act()
        if plan.strikes("members_deleted", now=now, share=0.5):
            self._delete_some()

    # -- moments

    def session_begins(self, process: Process) -> None:
        """What it goes by changes, and it may die, while it goes on."""
        plan, now, rng = self._world.plan, self._world.loop.time(), self._rng
        if plan.strikes("members_deleted", now=now, share=2.0):
            self._world.states.reached("members deleted in mid-session")
            self._soon(self._delete_some)
        if plan.strikes("queue_changed", now=now, share=1.0):
            self._world.states.reached("queue changed in mid-session")
            self._soon(self.queue_changed)
        if plan.strikes("group_changed", now=now, share=1.0):
            self._soon(self.group_changed)
        if plan.strikes("crash", now=now, share=0.5):
            self._world.states.reached("crash in mid-session")
            self._world.loop.call_later(
                rng.choice((0.0, rng.uniform(0, 0.003), rng.uniform(0, 0.05))), process.kill
            )

    def status_written(self, process: Process) -> None:
        """A status was written, and its answer is not there yet."""
        if self._world.plan.strikes("crash", now=self._world.loop.time(), share=0.3):
            self._world.states.reached("crash between status of a group and answer")
            process.kill("killed between the status of a group and the answer")

    def _soon(self, act: Any) -> None:
        self._world.loop.call_later(self._rng.choice((0.0, 0.0005, 0.003, 0.02)), act)

    # -- members

    def _delete_some(self) -> None:
        """Of one gang, one member or several, whatever is being done with them."""
        by_group: dict[str, list[Json]] = {}
        for pod in self._cluster.pods():
            if read.group_of(pod) and not read.is_leaving(pod):
                by_group.setdefault(read.group_of(pod), []).append(pod)
        if not by_group:
            return
        members = by_group[self._rng.choice(sorted(by_group))]
        for pod in self._rng.sample(members, self._rng.choice((1, 1, len(members)))):
            path = f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}"
            self._world.call("DELETE", path, {"gracePeriodSeconds": self._rng.choice((0, 0, 1))})
            again = self._rng.random() < 0.5
            # That of a Job its controller makes again.
            if again and "ownerReferences" not in pod["metadata"]:
                self._later(self._rng.choice((0.0, 0.5, 3.0)), lambda pod=pod: self._again(pod))

    def _again(self, pod: Json) -> None:
        """As a controller would make it again."""
        metadata = {
            key: pod["metadata"][key] for key in ("name", "labels", "annotations") if key in pod["metadata"]
        }
        spec = {key: value for key, value in pod["spec"].items() if key not in ("nodeName", "priority")}
        self._world.call("POST", "/api/v1/namespaces/default/pods", {"metadata": metadata, "spec": spec})

    # -- groups

    def group_changed(self) -> None:
        groups = {**self._cluster.groups(), **self._cluster.native_groups()}
        if not groups:
            return
        name = self._rng.choice(sorted(groups))
        if read.is_native(name):
            self._native_changed(groups[name])
            return
        group, rng = groups[name], self._rng
        change = rng.choice(("minimum", "minimum", "queue", "class", "delete", "recreate", "phase"))
        # A process without a batch scheduler knows queues by the annotations of pods alone, which stay as they are.
        if change == "minimum" or (change == "queue" and self._world.shards is not None):
            least = max(1, group["spec"].get("minMember", 1) + rng.choice((-1, -1, 1)))
            self._cluster.patch_group(name, {"spec": {"minMember": least}})
        elif change == "queue":
            names = [
                each for each in sorted(self._cluster.queues()) if not each.startswith(("root", "above"))
            ]
            self._cluster.patch_group(name, {"spec": {"queue": rng.choice(names or ["default"])}})
        elif change == "class":
            self._cluster.patch_group(name, {"spec": {"priorityClassName": rng.choice(sorted(PRIORITIES))}})
        elif change == "phase":
            # Somebody else's controller.
            self._cluster.patch_group(name, {"status": {"phase": rng.choice(("Pending", "Inqueue"))}})
        else:
            self._world.call("DELETE", f"{GROUPS_OF_DEFAULT}/{name}")
            if "ownerReferences" in group["metadata"]:
                return
            wait = 0.0 if change == "recreate" else rng.choice((0.5, 4.0))
            body = made_group(name, **{"minimum": 1, **group["spec"]})
            self._later(wait, lambda: self._world.call("POST", GROUPS_OF_DEFAULT, body))

    def _native_changed(self, group: Json) -> None:
        """Its minimum, or it goes, and comes back by and by."""
        name, spec, rng = group["metadata"]["name"], group["spec"], self._rng
        path = f"{NATIVE_OF_DEFAULT}/{name}"
        least = max(1, read.minimum(group).members + rng.choice((-1, -1, 0, 1)))
        changed = {**spec, "schedulingPolicy": {"gang": {"minCount": least}}}
        if rng.random() < 0.4:
            self._world.call("PATCH", path, {"spec": changed}, MERGE)
            return
        self._world.call("DELETE", path)
        body = {"metadata": {"name": name}, "spec": changed}
        self._later(rng.choice((0.0, 0.5, 4.0)), lambda: self._world.call("POST", NATIVE_OF_DEFAULT, body))

    def group_written(self, asked: Request) -> None:
        """Somebody was faster with a PodGroup by a moment."""
        name = asked.path.split("/")[7]
        if name in self._cluster.groups():
            label = {"example.com/change": str(self._rng.randrange(1000))}
            self._cluster.patch_group(name, {"metadata": {"labels": label}})

    # -- queues

    def queue_changed(self) -> None:
        queues = {name: each for name, each in self._cluster.queues().items() if name != "root"}
        if not queues:
            return
        name = self._rng.choice(sorted(queues))
        queue, rng = queues[name], self._rng
        change = rng.choice(("close", "close", "lower", "lower", "raise", "weight", "delete"))
        spec = queue.get("spec") or {}
        if change == "close":
            self._cluster.set_state(name, rng.choice(("Closed", "Closing")))
            self._later(rng.choice((0.01, 0.5, 5.0)), lambda: self._cluster.set_state(name, "Open"))
        elif change == "lower":
            self._cluster.patch_queue(name, {"capability": {"cpu": rng.choice(("1", "2", "500m"))}})
            if rng.random() < 0.8:
                back = {"capability": spec.get("capability")}
                self._later(rng.choice((0.01, 0.5, 5.0)), lambda: self._cluster.patch_queue(name, back))
        elif change == "raise":
            self._cluster.patch_queue(name, {"capability": {"cpu": rng.choice(("4", "8", "64"))}})
        elif change == "weight":
            self._cluster.patch_queue(name, {"weight": rng.randrange(1, 9)})
        else:
            self._world.call("DELETE", f"{API}/queues/{name}")
            body = made_queue(name, **spec)
            self._later(rng.choice((0.0, 0.5, 5.0)), lambda: self._cluster.make_queue(body))

    def _later(self, seconds: float, act: Any) -> None:
        self._world.plan.lasts(self._world.loop.time() + seconds)
        self._world.loop.call_later(seconds, act)


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
        path = f"{JOBS_PATH}/{job['metadata']['name']}"
        spec = job["spec"]
        change = rng.choice(("scale", "scale", "scale", "minimum", "minimum", "delete", "again"))
        if change in ("delete", "again"):
            self._world.call("DELETE", path)
            if change == "again":
                metadata = {
                    key: job["metadata"][key] for key in ("name", "annotations") if key in job["metadata"]
                }
                body = {"apiVersion": JOB_VERSION, "kind": "Job", "metadata": metadata, "spec": spec}
                self._later(rng.choice((0.0, 0.5, 3.0)), lambda: self._world.call("POST", JOBS_PATH, body))
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
