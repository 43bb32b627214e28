"""Faults of the cluster and of processes while the scheduler works: all that are not on the network.

Also judges, while a kind of objects cannot be listed, whether the leader works:

L14 a leader that lost the right to list a kind that is not needed for safety decides pods nevertheless, or releases the
lease: no process holds it for long without deciding
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

from embedded_kubernetes.requests import Request
from kube_client.testing.loop import SimTask

from .api import NODES, PODS, PODS_PATH, content, node_of, some_of
from .faults import FaultMaker
from .kinds import Claim, Process, World

#: Kinds that a role may lose the right to list.
KINDS_WATCHED = (
    *("pods", "nodes", "persistentvolumeclaims", "persistentvolumes", "storageclasses", "csinodes"),
    *("poddisruptionbudgets", "resourceclaims", "resourceslices", "deviceclasses", "namespaces"),
)
#: Seconds between two draws for each kind of fault.
_EVERY = 0.25


class Nemesis(FaultMaker):
    """Acts as other users, other schedulers, node agents and administrators do."""

    #: Faults that affect all processes at once leave them some time in between.
    shares = {  # noqa: RUF012
        **dict.fromkeys(("node_again", "node_changed", "pod_deleted", "pod_changed", "foreign"), 2.0),
        "missed_delete": 2.0,
        "reload": 2.0,
        "unlistable": 0.3,
        "server_restarted": 0.3,
        "rotated": 2.0,
        "rolled_back": 2.0,
    }

    def __init__(self, world: World) -> None:
        super().__init__(world, "nemesis")
        self._foreign = 0

    async def run(self) -> None:
        """Inject faults until they end."""
        world, loop = self._world, self._world.loop
        while loop.time() < world.plan.ends:
            await asyncio.sleep(self._rng.uniform(0, 2 * _EVERY))
            if world.plan.enabled("rolled_back"):
                world.backups.take()
            self.strike()
            for each in world.nemeses:
                each.strike()
            for process in world.processes:
                self._strike_process(process)

    def _strike_process(self, process: Process) -> None:
        share = process.exposure
        # Less often, so that other things happen, too.
        if self._strikes("crash", 0.5 * share):
            self._soon(process.kill)
        if self._strikes("sigterm", 0.5 * share):
            self._soon(process.terminate)
        if self._strikes("stop", share):
            seconds = self._rng.choice((0.5, 3.0, 12.0, 25.0))
            self._world.stop(process, seconds)
        if self._strikes("clock_jump", share):
            process.jump_clock(self._rng.choice((-86400.0, -30.0, 45.0, 86400.0)))

    def _soon(self, act: Any) -> None:
        """Call `act` at some step of the loop, and not at the beginning of a turn of this task."""
        self._world.loop.call_later(self._rng.uniform(0, 0.003), act)

    # -- before a write

    def before_write(self, fate: str, asked: Request) -> None:
        """Create the state that the response to this bind, or to this deletion, will report."""
        _, _, _, _, namespace, _, name, *_ = asked.path.split("/")
        record = self._world.store.tables[PODS].get(namespace, name)
        if record is None:
            return
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        if fate == "gone":
            self._delete(path)
        elif fate == "recreated":
            pod = content(record)
            self._delete(path)
            self._call("POST", path.rpartition("/")[0], _anew(pod))
        elif fate == "deleting":
            self._call("PATCH", path, {"metadata": {"finalizers": ["example.com/wait"]}})
            self._call("DELETE", path)
            self._call_later(2.0, "PATCH", path, {"metadata": {"finalizers": None}})
        elif fate == "gated":
            # The API server rejects added gates: a server of another version might accept them.
            pod = content(record)
            if node_of(pod):
                return
            pod["spec"]["schedulingGates"] = [{"name": "example.com/late"}]
            self._world.store.replace(PODS, record, pod)
            self._call_later(3.0, "PATCH", path, {"spec": {"schedulingGates": None}})
        elif fate == "bound_elsewhere":
            if (node := self._some_node()) is not None:
                self._bind(namespace, name, node.name)
        elif fate == "node_vanished":
            target = json.loads(asked.body)["target"]["name"]
            self._take_away(target, seconds=self._rng.uniform(0.5, 3.0))

    def after_bind(self, process: Process) -> None:
        """Handle a carried-out bind whose response has not arrived yet: a critical moment for a crash."""
        if self._strikes("crash", 0.2):
            self._reached("crash between bind and answer")
            process.kill("killed between bind and answer")

    def lost_a_race(self, pod: Any) -> None:
        """Handle a pod that is about to be retried at once: delete it before or during the attempt, or not."""
        if self._strikes("pod_deleted", 3.0):
            path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
            self._world.loop.call_later(self._rng.choice((0.0, 0.0005)), self._delete, path)

    def after_failure(self, process: Process) -> None:
        """Handle a failed request that will be retried: the process may no longer lead when it continues."""
        if self._strikes("stop"):
            wait = self._rng.uniform(0.003, 0.1)
            self._world.loop.call_later(wait, self._world.stop, process, 25.0)

    def after_claim(self, process: Process, claim: Claim) -> None:
        """Handle a choice of victims before any eviction is sent."""
        if self._strikes("crash", 2.0):
            self._reached("crash between choice and eviction")
            self._soon(process.kill)
        if self._strikes("preemptor", 15.0):
            when = self._rng.choice((0.0, self._rng.uniform(0, 0.02), self._rng.uniform(0, 2.0)))
            self._later(when, lambda: self._change_preemptor(claim))

    def after_victim(self, claim: Claim) -> None:
        """Handle a victim that has gone."""
        if self._strikes("room_taken", 8.0):
            self._later(self._rng.choice((0.0, 0.001, 0.01)), lambda: self._take_room(claim.node))

    def _change_preemptor(self, claim: Claim) -> None:
        path = f"{PODS_PATH}/{claim.name}"
        change = self._rng.choice(("delete", "finish", "label", "tolerate"))
        if change == "delete":
            self._delete(path)
        elif change == "finish":
            self._call("PATCH", f"{path}/status", {"status": {"phase": "Failed"}})
        elif change == "label":
            self._call("PATCH", path, {"metadata": {"labels": {"example.com/change": "y"}}})
        else:
            tolerations = [{"key": "example.com/bad", "operator": "Exists"}]
            self._call("PATCH", path, {"spec": {"tolerations": tolerations}})

    # -- changes of the cluster

    def node_again(self) -> None:
        if (node := self._some_node()) is not None:
            self._take_away(node.name, seconds=self._rng.choice((0.0, 0.01, 0.5, 4.0)))

    def _take_away(self, name: str, *, seconds: float) -> None:
        record = self._world.store.tables[NODES].records.get(name)
        if record is None:
            return
        node = content(record)
        self._delete(f"/api/v1/nodes/{name}")
        about = "POST", "/api/v1/nodes", _anew(node)
        if seconds:
            self._call_later(seconds, *about)
        else:
            self._call(*about)

    def node_changed(self) -> None:
        if (record := self._some_node()) is None:
            return
        path, node = f"/api/v1/nodes/{record.name}", content(record)
        change = self._rng.choice(("shrink", "taint", "cordon", "label"))
        if change == "shrink":
            whole = node["status"]["allocatable"]
            less = {**whole, "cpu": "1", "pods": "3"}
            self._call("PATCH", f"{path}/status", {"status": {"allocatable": less}})
            back: tuple[str, Any] = (f"{path}/status", {"status": {"allocatable": whole}})
        elif change == "taint":
            effect = self._rng.choice(("NoSchedule", "PreferNoSchedule", "NoExecute"))
            self._call("PATCH", path, {"spec": {"taints": [{"key": "example.com/bad", "effect": effect}]}})
            back = (path, {"spec": {"taints": node["spec"].get("taints")}})
        elif change == "cordon":
            self._call("PATCH", path, {"spec": {"unschedulable": True}})
            back = (path, {"spec": {"unschedulable": None}})
        else:
            self._call("PATCH", path, {"metadata": {"labels": {"example.com/x": "y"}}})
            back = (path, {"metadata": {"labels": {"example.com/x": None}}})
        self._call_later(self._rng.uniform(0.1, 5.0), "PATCH", back[0], back[1])

    def _some_node(self) -> Any:
        nodes = list(self._world.store.tables[NODES].scan(""))
        return self._rng.choice(nodes) if nodes else None

    def _some_pod(self) -> Any:
        pods = [each for each in self._world.store.tables[PODS].scan("default") if not each.deleting]
        return self._rng.choice(pods) if pods else None

    def pod_deleted(self) -> None:
        if (record := self._some_pod()) is not None:
            self._delete(f"{PODS_PATH}/{record.name}", grace=self._rng.choice((0, 0, 1, 30)))

    def pod_changed(self) -> None:
        if (record := self._some_pod()) is None:
            return
        path, pod = f"{PODS_PATH}/{record.name}", content(record)
        change = self._rng.choice(("label", "tolerate", "ungate"))
        if change == "tolerate":
            known = pod["spec"].get("tolerations") or []
            more = [*known, {"key": f"example.com/{self._rng.randrange(3)}", "operator": "Exists"}]
            self._call("PATCH", path, {"spec": {"tolerations": more}})
        elif change == "ungate" and pod["spec"].get("schedulingGates"):
            self._call("PATCH", path, {"spec": {"schedulingGates": None}})
        else:
            labels = {"example.com/change": str(self._rng.randrange(1000))}
            self._call("PATCH", path, {"metadata": {"labels": labels}})

    def foreign(self) -> None:
        """Bind another scheduler's pod to a node, whether it fits or not."""
        if (node := self._some_node()) is not None:
            self._take_room(node.name)

    def _take_room(self, node: str) -> None:
        self._foreign += 1
        name = f"foreign-{self._foreign}"
        requests = {"cpu": f"{self._rng.choice((100, 500, 1500))}m"}
        container = {"name": "c", "image": "i", "resources": {"requests": requests}}
        spec = {"schedulerName": "other", "containers": [container]}
        self._call("POST", PODS_PATH, {"metadata": {"name": name}, "spec": spec})
        self._bind("default", name, node)

    def reload(self) -> None:
        """Change the configuration file, sometimes to a content that must be rejected."""
        file, processes = self._world.file, self._world.processes
        if self._rng.random() < 0.3:
            file.spoil(self._rng)
            self._later(5.0, file.restore)
        else:
            file.change(self._rng)
        self._world.trace("", f"the configuration file changes: {file.text!r}")
        # The file is read every two seconds, and a change counts when it was read twice.
        self._later(10.0, lambda: None)
        if self._rng.random() < 0.5:
            for process in processes:
                process.reload()

    def missed_delete(self) -> None:
        """Delete objects while no watch runs, and compact the history before the watches return."""
        self._world.drop_streams()
        for _ in range(self._rng.randrange(1, 4)):
            self.pod_deleted()
        self._world.store.compact(self._world.store.rv)

    def unlistable(self) -> None:
        """Remove a rule from a role: for a while lists of a kind are rejected, and its watches end and restart."""
        kind = self._rng.choice(KINDS_WATCHED)
        until = self._now + self._rng.choice((2.0, 20.0, 60.0))
        self._world.unlistable[kind] = until
        self._world.trace("", f"{kind} cannot be listed until {until:.3f}")
        if self._world.shards is None and self._world.shape.replicas > 1:
            self._world.keep(watch_takeovers(self._world, kind, until), f"{kind} cannot be listed")
        # Failed lists are retried after at most this time.
        self._world.plan.lasts(until + 30.0)
        if self._rng.random() < 0.5:
            self._world.drop_streams()

    def server_restarted(self) -> None:
        """Restart the API server: it returns with the same objects and versions, but without events from before."""
        world = self._world
        world.server_back = world.loop.time() + self._rng.choice((0.05, 1.0, 6.0))
        world.plan.lasts(world.server_back)
        world.trace("", f"the API server restarts, and is back at {world.server_back:.3f}")
        if self._rng.random() < 0.7:
            world.store.compact(world.store.rv)
        world.drop_streams()

    def rolled_back(self) -> None:
        """Restore the API server's store from a backup after a short outage."""
        world = self._world
        world.server_back = max(world.server_back, world.loop.time() + self._rng.choice((0.05, 1.0, 6.0)))
        if not world.backups.restore():
            world.plan.fired["rolled_back"] -= 1
            world.server_back = 0.0

    def rotated(self) -> None:
        """Withdraw a credential or an authority, also for connections that were opened with it."""
        if self._world.certificates is not None:
            self._world.certificates.rotate()

    # -- requests

    def _bind(self, namespace: str, pod: str, node: str) -> None:
        body = {"metadata": {"name": pod}, "target": {"kind": "Node", "name": node}}
        self._call("POST", f"/api/v1/namespaces/{namespace}/pods/{pod}/binding", body)

    def _delete(self, path: str, *, grace: int = 0) -> None:
        self._call("DELETE", path, {"gracePeriodSeconds": grace})


def _anew(obj: dict[str, Any]) -> dict[str, Any]:
    """Return the object as its owner would create it again."""
    metadata = some_of(obj["metadata"], "name", "namespace", "labels", "ownerReferences")
    spec = {key: value for key, value in obj.get("spec", {}).items() if key not in ("nodeName", "taints")}
    status = some_of(obj.get("status", {}), "allocatable", "capacity")
    return {"metadata": metadata, "spec": spec, "status": status}


#: Without a list of these kinds no process can decide, and a leader releases the lease.
VITAL = ("pods", "nodes", "resourceclaims")
#: Seconds of leading after which a process decides: its lists of vital kinds may take 30.
_WORKS_WITHIN = 40.0
#: Seconds until a list times out.
LIST_TIMEOUT = 60.0
_JUDGED_EVERY = 2.0


async def watch_takeovers(world: World, kind: str, until: float) -> None:
    """Judge all processes while `kind` cannot be listed.

    A process need not have released the lease while it waits for the response to a list of a vital kind, however late,
    or if it waited for one less than 40 s ago: a successful list may take any time up to its timeout, and a list that
    was in flight when the process began to lead precedes the one that it needs.
    """
    #: Identity -> since when it has led without interruption.
    since: dict[str, float] = {}
    stopped = {process.name: world.stopped_for(process.name) for process in world.processes}
    while kind not in VITAL and (now := world.loop.time()) < until:
        for process in world.processes:
            if not process.scheduler or not process.elects or not process.leads() or process.is_ending:
                since.pop(process.identity, None)
                continue
            led = now - max(since.setdefault(process.identity, now), process.vital_list_ends)
            if led < _WORKS_WITHIN or world.stopped_for(process.name) != stopped[process.name]:
                continue
            world.safety.look("L14")
            if not _works(world, process):
                why = f"{process.identity} has led for {led:.0f} s and decides nothing"
                world.safety.violated("L14", why)
        await asyncio.sleep(_JUDGED_EVERY)


def workers(world: World) -> Iterator[asyncio.Task[Any]]:
    """Yield the tasks of all processes that decide about pods."""
    for task in asyncio.all_tasks(world.loop):
        if getattr(task.get_coro(), "__qualname__", "") == "WorkerPool.run":
            yield task


def _works(world: World, process: Process) -> bool:
    return any(isinstance(task, SimTask) and task.process == process.name for task in workers(world))
