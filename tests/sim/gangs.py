"""The kinds of gangs and queues in a world's cluster, and the clients that change them.

`GangCluster` opens queues if no controller does. `GangNemesis` changes groups and queues, also within a session.
`JobNemesis` changes Jobs as their users do, and lets pods fail.
"""

from __future__ import annotations

from functools import cache

import yaml

from embedded_kubernetes.requests import Request
from tests.support.places import CONFIG

from . import gang_reading as read
from .api import CRDS_PATH, HOSTILE, PODS, PODS_PATH, Json, name_of, objects, some_of
from .faults import FaultMaker
from .gang_load import API, GROUPS_OF_DEFAULT, JOB_VERSION, JOBS_PATH, NATIVE, NATIVE_OF_DEFAULT, PRIORITIES, Gangs
from .gang_load import group as made_group
from .gang_load import queue as made_queue
from .kinds import Process, World

QUEUES, GROUPS = ("scheduling.volcano.sh", "queues"), ("scheduling.volcano.sh", "podgroups")
NATIVE_GROUPS = ("scheduling.k8s.io", "podgroups")
JOBS = ("batch.volcano.sh", "jobs")
_DEFINITIONS = CONFIG / "crd"
#: CRDs of queues, groups, commands, and of Jobs.
_GANGS = ("scheduling.volcano.sh_queues", "scheduling.volcano.sh_podgroups", "bus.volcano.sh_commands")
_JOBS = ("batch.volcano.sh_jobs",)


@cache
def _definitions(names: tuple[str, ...]) -> list[Json]:
    return [yaml.safe_load((_DEFINITIONS / f"{name}.yaml").read_text()) for name in names]


class GangCluster:
    """The gangs and queues of a world, read from the store. Created with the world."""

    def __init__(self, world: World, shape: Gangs) -> None:
        self._world = world
        self.shape = shape
        for definition in _definitions((*_GANGS, *_JOBS) if world.shape.jobs is not None else _GANGS):
            world.call("POST", CRDS_PATH, definition)

    def install(self) -> None:
        """Create the first queues."""
        for body in self.shape.queues:
            self.make_queue(body)

    def make_queue(self, body: Json) -> None:
        """Create or replace a queue; write its state from `body` if no controller does."""
        made = {key: each for key, each in body.items() if key != "status"}
        self._world.call("POST", f"{API}/queues", made)
        self.set_state(name_of(body), body["status"]["state"])

    def set_state(self, name: str, state: str) -> None:
        self._world.call("PATCH", f"{API}/queues/{name}/status", {"status": {"state": state}})

    def patch_queue(self, name: str, spec: Json) -> None:
        self._world.call("PATCH", f"{API}/queues/{name}", {"spec": spec})

    def patch_group(self, name: str, body: Json) -> None:
        self._world.call("PATCH", f"{GROUPS_OF_DEFAULT}/{name}", body)

    # -- current objects

    def queues(self) -> dict[str, Json]:
        return {name_of(each): each for each in self._objects(QUEUES)}

    def groups(self) -> dict[str, Json]:
        """Return the groups by name; all are in one namespace."""
        return {name_of(each): each for each in self._objects(GROUPS)}

    def native_groups(self) -> dict[str, Json]:
        """Return the Kubernetes PodGroups by name with the prefix `NATIVE`; empty if the API server serves none."""
        return {f"{NATIVE}{name_of(each)}": each for each in self._objects(NATIVE_GROUPS)}

    def pods(self) -> list[Json]:
        return [pod for pod in self._objects(PODS) if pod["metadata"]["namespace"] != HOSTILE]

    def jobs(self) -> list[Json]:
        """Return the Jobs, if the world has any."""
        return self._objects(JOBS)

    def _objects(self, kind: tuple[str, str]) -> list[Json]:
        return objects(self._world.store, kind)


class GangNemesis(FaultMaker):
    """Users and administrators, and crashes at critical moments."""

    shares = {"group_changed": 1.5, "queue_changed": 1.5, "members_deleted": 0.5}  # noqa: RUF012

    def __init__(self, world: World, cluster: GangCluster) -> None:
        super().__init__(world, "gang nemesis")
        self._cluster = cluster

    # -- moments

    def session_begins(self, process: Process) -> None:
        """Change objects during a session that begins, or kill its process."""
        rng = self._rng
        if self._strikes("members_deleted", 2.0):
            self._reached("members deleted in mid-session")
            self._soon(self.members_deleted)
        if self._strikes("queue_changed"):
            self._reached("queue changed in mid-session")
            self._soon(self.queue_changed)
        if self._strikes("group_changed"):
            self._soon(self.group_changed)
        if self._strikes("crash", 0.5):
            self._reached("crash in mid-session")
            wait = rng.choice((0.0, rng.uniform(0, 0.003), rng.uniform(0, 0.05)))
            self._world.loop.call_later(wait, process.kill)

    def status_written(self, process: Process) -> None:
        """Handle a written status of a group whose response has not arrived yet."""
        if self._strikes("crash", 0.3):
            self._reached("crash between status of a group and answer")
            process.kill("killed between the status of a group and the answer")

    # -- members

    def members_deleted(self) -> None:
        """Delete one or several members of a gang, in any state."""
        by_group: dict[str, list[Json]] = {}
        for pod in self._cluster.pods():
            if read.group_of(pod) and not read.is_leaving(pod):
                by_group.setdefault(read.group_of(pod), []).append(pod)
        if not by_group:
            return
        members = by_group[self._rng.choice(sorted(by_group))]
        for pod in self._rng.sample(members, self._rng.choice((1, 1, len(members)))):
            path = f"{PODS_PATH}/{name_of(pod)}"
            self._call("DELETE", path, {"gracePeriodSeconds": self._rng.choice((0, 0, 1))})
            again = self._rng.random() < 0.5
            # The controller of a Job creates its pods again.
            if again and "ownerReferences" not in pod["metadata"]:
                self._later(self._rng.choice((0.0, 0.5, 3.0)), lambda pod=pod: self._again(pod))

    def _again(self, pod: Json) -> None:
        """Create the pod again, as a controller would."""
        metadata = some_of(pod["metadata"], "name", "labels", "annotations")
        spec = {key: value for key, value in pod["spec"].items() if key not in ("nodeName", "priority")}
        self._call("POST", PODS_PATH, {"metadata": metadata, "spec": spec})

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
        # A process without a batch scheduler knows queues only by the annotations of pods, which do not change.
        if change == "minimum" or (change == "queue" and self._world.shards is not None):
            least = max(1, group["spec"].get("minMember", 1) + rng.choice((-1, -1, 1)))
            self._cluster.patch_group(name, {"spec": {"minMember": least}})
        elif change == "queue":
            names = sorted(self._cluster.queues())
            names = [each for each in names if not each.startswith(("root", "above"))]
            self._cluster.patch_group(name, {"spec": {"queue": rng.choice(names or ["default"])}})
        elif change == "class":
            self._cluster.patch_group(name, {"spec": {"priorityClassName": rng.choice(sorted(PRIORITIES))}})
        elif change == "phase":
            # As the controller of another component does.
            self._cluster.patch_group(name, {"status": {"phase": rng.choice(("Pending", "Inqueue"))}})
        else:
            self._call("DELETE", f"{GROUPS_OF_DEFAULT}/{name}")
            if "ownerReferences" in group["metadata"]:
                return
            wait = 0.0 if change == "recreate" else rng.choice((0.5, 4.0))
            body = made_group(name, **{"minimum": 1, **group["spec"]})
            self._call_later(wait, "POST", GROUPS_OF_DEFAULT, body)

    def _native_changed(self, group: Json) -> None:
        """Change the group's minimum, or delete it and create it again later."""
        name, spec, rng = name_of(group), group["spec"], self._rng
        path = f"{NATIVE_OF_DEFAULT}/{name}"
        least = max(1, read.minimum(group).members + rng.choice((-1, -1, 0, 1)))
        changed = {**spec, "schedulingPolicy": {"gang": {"minCount": least}}}
        if rng.random() < 0.4:
            self._call("PATCH", path, {"spec": changed})
            return
        self._call("DELETE", path)
        body = {"metadata": {"name": name}, "spec": changed}
        self._call_later(rng.choice((0.0, 0.5, 4.0)), "POST", NATIVE_OF_DEFAULT, body)

    def group_written(self, asked: Request) -> None:
        """Write a PodGroup a moment before the process does."""
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
            self._call("DELETE", f"{API}/queues/{name}")
            body = made_queue(name, **spec)
            self._later(rng.choice((0.0, 0.5, 5.0)), lambda: self._cluster.make_queue(body))


_COMMANDS = "/apis/bus.volcano.sh/v1alpha1/namespaces/default/commands"
_ORDERS = ("AbortJob", "ResumeJob", "ResumeJob", "RestartJob", "CompleteJob", "TerminateJob", "Nonsense")


class JobNemesis(FaultMaker):
    """Users, and node agents whose pods fail."""

    shares = {"job_changed": 2.0, "job_commanded": 2.0, "pod_failed": 2.0}  # noqa: RUF012

    def __init__(self, world: World, cluster: GangCluster) -> None:
        super().__init__(world, "job nemesis")
        self._cluster = cluster

    def written(self, process: Process) -> None:
        """Handle a carried-out write of the controller whose response has not arrived yet."""
        if self._strikes("crash", 0.3):
            self._reached("crash between a write for a job and answer")
            process.kill("killed between a write for a job and the answer")

    # -- actions of users

    def job_changed(self) -> None:
        """Scale a Job, change its minimum, or delete it and possibly create it again."""
        rng = self._rng
        job = self._any_job()
        if job is None:
            return
        path = f"{JOBS_PATH}/{name_of(job)}"
        spec = job["spec"]
        change = rng.choice(("scale", "scale", "scale", "minimum", "minimum", "delete", "again"))
        if change in ("delete", "again"):
            self._call("DELETE", path)
            if change == "again":
                metadata = some_of(job["metadata"], "name", "annotations")
                body = {"apiVersion": JOB_VERSION, "kind": "Job", "metadata": metadata, "spec": spec}
                self._call_later(rng.choice((0.0, 0.5, 3.0)), "POST", JOBS_PATH, body)
            return
        if change == "scale":
            for task in spec["tasks"]:
                task["replicas"] = rng.randint(max(1, task.get("minAvailable", 0)), 4)
        total = sum(task["replicas"] for task in spec["tasks"])
        patch = {"tasks": spec["tasks"], "minAvailable": rng.randint(1, total)}
        self._call("PATCH", path, {"spec": patch})

    def job_commanded(self) -> None:
        job = self._any_job()
        if job is None:
            return
        target = {"apiVersion": JOB_VERSION, "kind": "Job"}
        target |= some_of(job["metadata"], "name", "uid")
        kind = {"apiVersion": "bus.volcano.sh/v1alpha1", "kind": "Command"}
        order = {"action": self._rng.choice(_ORDERS), "target": target}
        self._call("POST", _COMMANDS, {**kind, "metadata": {"generateName": "order-"}, **order})

    # -- failures of pods

    def pod_failed(self) -> None:
        """Let a running pod fail, or report it as restarted."""
        owned = [pod for pod in self._cluster.pods() if pod["metadata"].get("ownerReferences")]
        running = [pod for pod in owned if read.phase(pod) == "Running"]
        if not running:
            return
        pod = self._rng.choice(running)
        status, path = pod["status"], f"{PODS_PATH}/{name_of(pod)}/status"
        reports = [dict(each) for each in status.get("containerStatuses") or ()]
        if self._rng.random() < 0.3:
            for each in reports:
                each["restartCount"] = each.get("restartCount", 0) + self._rng.choice((1, 3))
            self._call("PATCH", path, {"status": {"containerStatuses": reports}})
            return
        for each in reports:
            each["ready"] = False
            each["state"] = {"terminated": {"exitCode": self._rng.choice((1, 137)), "reason": "Error"}}
        body = {"status": {"phase": "Failed", "containerStatuses": reports}}
        self._call("PATCH", path, body)

    # --

    def _any_job(self) -> Json | None:
        found = self._cluster.jobs()
        return self._rng.choice(found) if found else None
