"""The webhook that adds gates to a world's pods, its autoscaler, and the operator of its shards.

With NodeShards the nodes are divided between a scheduler of the fast path and one with a batch scheduler; the operator
assigns the autoscaler's nodes to shards.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable

from agent_scheduler.process.leading import GATES_LEASE
from embedded_kubernetes.autoscaler import Autoscaler
from embedded_kubernetes.node_groups import NODE_GROUP, NodeGroup, read_rules
from embedded_kubernetes.podgc import PodCollector
from embedded_kubernetes.scale_up import scale_up
from embedded_kubernetes.store import Event

from . import gang_reading as read
from .api import EVENTS, NODES, PODS, PODS_PATH, Json, content, uid_of
from .faults import FaultMaker
from .gang_load import GATE, Gates
from .kinds import Process, World
from .shard_load import FOR_EVER
from .shard_map import Names, ShardMap

#: The webhook's `timeoutSeconds` in config/webhook/mutating.yaml, and the time until a controller retries.
_TIMEOUT, _RETRY = 5.0, 1.0
#: Seconds in which removals of gates are lost, before the lease is.
_LOST_FOR = 0.1


def is_ours(pod: Json) -> bool:
    """Return whether the pod's scheduler removes gates."""
    return read.is_batch(pod) or str(pod["spec"].get("schedulerName", "")).startswith("agent-")


def asks(pod: Json) -> bool:
    """Return whether the pod opts in."""
    return read.annotation(pod, GATE) == "true" and is_ours(pod)


def gates(pod: Json) -> list[str]:
    return [each["name"] for each in pod["spec"].get("schedulingGates") or ()]


def is_held(pod: Json) -> bool:
    """Return whether only the gate of the queue's capacity holds the pod."""
    return asks(pod) and gates(pod) == [GATE] and read.waits(pod)


def is_reserved(pod: Json) -> bool:
    """Return whether the pod was admitted or never held, has no node yet, and reports no released reservation."""
    return asks(pod) and not gates(pod) and read.waits(pod) and not _says_given_back(pod)


def _says_given_back(pod: Json) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any("was given back" in each.get("message", "") for each in conditions)


class GateCluster(FaultMaker):
    """The webhook, autoscaler and operator of a world with gates. Created with the world."""

    def __init__(self, world: World, shape: Gates) -> None:
        super().__init__(world, "gates")
        self._is_off = shape.off
        #: Between these times no process acquires the lease for the removal of gates.
        self._unleased_since = self._unleased_until = 0.0
        self._slow = random.Random(f"{world.seed} webhook_slow")
        self._policy = self._slow.choice(("Ignore", "Fail"))
        self.groups: tuple[NodeGroup, ...] = read_rules(shape.rules)
        self.autoscaler = Autoscaler(world.api, self.groups)
        self.collector = PodCollector(world.api.registry)
        #: Present if no controller assigns nodes to shards.
        self.operator = Operator(world, world.shards) if world.shards and not world.plans else None

    def gave_back(self, pod: Json) -> bool:
        """Return whether the pod has lost its reservation; its message differs if its queue has no room for it now."""
        running = filter(None, (process.fast_path for process in self._world.processes))
        given_back = (each.ledger.usage.gated.given_back for each in running)
        return _says_given_back(pod) or any(uid_of(pod) in each for each in given_back)

    def has_room_reserved(self, pod: Json) -> bool:
        """Return whether capacity is reserved for the pod.

        If gates are disabled, no capacity is reserved for pods that had one, and others may report that they need nodes
        for it.
        """
        return is_reserved(pod) and not self._is_off and not self.gave_back(pod)

    def hides(self, verb: str, path: str) -> bool:
        """Return whether this request is lost: for the lease for removals of gates, or one of the first removals."""
        now = self._now
        if verb == "pod":
            return now < self._unleased_since + _LOST_FOR
        return path.endswith(GATES_LEASE) and now < self._unleased_until

    def create(self, pod: Json) -> None:
        """Create a pod of the load through the webhook, which may respond late."""
        world = self._world
        if not asks(pod) or not self._strikes("webhook_slow", 4.0):
            world.call("POST", PODS_PATH, pod)
            return
        takes = self._slow.choice((0.3, 2.0, 4.9, 5.1, 20.0))
        if takes < _TIMEOUT:
            world.states.reached("gate that comes late")
            self._call_later(takes, "POST", PODS_PATH, pod)
        elif self._policy == "Ignore":
            world.states.reached("pod came without its gate after a timeout")
            self._later(_TIMEOUT, lambda: world.call("POST", PODS_PATH, pod, admitted=True))
        else:
            world.states.reached("pod refused as the webhook was late")
            # As a ReplicaSet would: nothing was created, and the retry calls the webhook again.
            self._later(_TIMEOUT + _RETRY, self.create, pod)

    def admitted(self, pod: Json) -> Json:
        """Return the pod as the webhook admits it."""
        states = self._world.states
        if asks(pod):
            if self._strikes("webhook_down", 3.0):
                states.reached("pod came without its gate")
                return pod
        elif is_ours(pod) and self._strikes("webhook_lies", 5.0):
            states.reached("gate of a pod that asks for none")
        else:
            return pod
        there = [each for each in pod["spec"].get("schedulingGates") or () if each["name"] != GATE]
        return {**pod, "spec": {**pod["spec"], "schedulingGates": [*there, {"name": GATE}]}}

    # -- moments

    def let_past(self, process: Process) -> None:
        """Handle a decision to remove gates before any request is sent."""
        plan, now = self._world.plan, self._now
        if self._strikes("crash", 2.0):
            self._reached("crash between decision and removal of a gate")
            self._soon(process.kill)
        if self._world.shards is not None and self._strikes("lease", 15.0):
            self._reached("turn to remove gates lost while a gate was to go")
            self._unleased_since = now
            self._unleased_until = now + self._rng.choice((12.0, 30.0))
            plan.lasts(self._unleased_until)
        self._change_queue("queue changed as a gate was to go")

    def gate_removed(self, process: Process) -> None:
        """Handle a carried-out removal whose response has not arrived yet."""
        if self._strikes("crash", 2.0):
            self._reached("crash between removal of a gate and answer")
            process.kill("killed between the removal of a gate and the answer")
        self._change_queue("queue changed between removal of a gate and bind")

    def _change_queue(self, state: str) -> None:
        nemesis = self._world.gang_nemesis
        if nemesis is not None and self._strikes("queue_changed", 5.0):
            self._reached(state)
            self._soon(nemesis.queue_changed)

    # -- the autoscaler

    @property
    def is_calm(self) -> bool:
        """Whether no node is being added, or about to be removed."""
        scaler = self.autoscaler
        return not scaler._upcoming and all(
            node.deleted_at == float("inf")
            and (
                scaler._picture.books[name].pods
                or name in scaler._awaited
                or node.group not in scaler._by_name
                or scaler._by_name[node.group].idle >= FOR_EVER
            )
            for name, node in scaler._picture.nodes.items()
        )

    def size(self, group: str) -> int:
        return sum(node.group == group for node in self.autoscaler._picture.nodes.values()) + sum(
            coming.name == group for _, coming in self.autoscaler._upcoming
        )

    def packs(self, pods: Iterable[Json]) -> bool:
        """Return whether the autoscaler knows that these pods wait, and would place all of them on existing nodes."""
        scaler = self.autoscaler
        waiting = scaler._picture.waiting
        uids = {uid_of(pod) for pod in pods}
        if not uids <= waiting.keys():
            return False
        sizes = {group.name: self.size(group.name) for group in self.groups}
        found = scale_up(waiting.values(), scaler._bins(), self.groups, sizes)
        return not any(pod.uid in uids for new in found.new for pod in new.pods)

    def went_back(self) -> None:
        """Close the watches, because the store went back and their history is no longer valid."""
        self.autoscaler.close()


#: Seconds until the operator corrects nodes that no shard or two desire, and nodes that no longer exist.
_TIDIED = (5.0, 15.0)


class Operator(FaultMaker):
    """The operator of the shards: assigns each new node to the shard of the pod for which the autoscaler added it.

    Subscribes to the store.
    """

    def __init__(self, world: World, shards: ShardMap) -> None:
        super().__init__(world, "operator")
        self._shards = shards
        #: Node group -> the shards for which nodes of it are being added, by the size that the group will have.
        self._awaited: dict[str, dict[str, str]] = {}
        self._tidies = False
        #: Number of changes of what a shard desires.
        self.writes = 0
        world.store.tables[NODES].subscribers.append(self._node)
        world.store.tables[EVENTS].subscribers.append(self._event)
        shards.subscribers.append(lambda _event: self._tidy_soon())

    def _event(self, event: Event) -> None:
        told = content(event.record)
        if event.type != "ADDED" or told.get("reason") != "TriggeredScaleUp":
            return
        about = told["involvedObject"]
        record = self._world.store.tables[PODS].get(about["namespace"], about["name"])
        if record is None:
            return
        group = told["message"].partition("[{")[2].partition(" ")[0]
        # The first of the pods for which one node is added decides.
        self._awaited.setdefault(group, {}).setdefault(told["message"], self._shards.of_pod(content(record)))

    def _node(self, event: Event) -> None:
        self._tidy_soon()
        labels = content(event.record)["metadata"].get("labels") or {}
        awaited = self._awaited.get(labels.get(NODE_GROUP, ""))
        if event.type == "ADDED" and awaited:
            name, owner = event.record.name, awaited.pop(next(iter(awaited)))
            self._later(self._rng.choice((0.0, 0.0, 0.5, 3.0)), self._give, name, owner)

    def _give(self, node: str, owner: str) -> None:
        shard = self._shards.get(owner)
        if shard is not None and not any(node in each.desired for each in self._shards.all()):
            self._desire(owner, shard.desired | {node})

    def _tidy_soon(self) -> None:
        if not self._tidies:
            self._tidies = True
            self._later(self._rng.uniform(*_TIDIED), self._tidy)

    def _tidy(self) -> None:
        """Assign each existing node to one shard: the one that uses it, or desires it, or has fewer nodes."""
        self._tidies = False
        there = {record.name for record in self._world.store.tables[NODES].scan("")}
        shards = list(self._shards.all())
        if not shards:
            return
        wanted: dict[str, set[str]] = {each.name: set() for each in shards}
        sizes = Counter({each.name: len(each.desired & there) for each in shards})
        for node in sorted(there):
            desiring = [each for each in shards if node in each.desired]
            using = [each for each in desiring if node in each.in_use]
            owner = (using or desiring or sorted(shards, key=lambda each: sizes[each.name]))[0].name
            if not desiring:
                sizes[owner] += 1
            wanted[owner].add(node)
        for each in shards:
            if (nodes := Names(wanted[each.name])) != each.desired:
                self._desire(each.name, nodes)

    def _desire(self, name: str, nodes: Names) -> None:
        self.writes += 1
        self._shards.desire(name, nodes)
