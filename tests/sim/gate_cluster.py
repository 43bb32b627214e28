"""What stands around the scheduler where pods have gates: the webhook that puts them on, and an autoscaler.

Gates where NodeShards divide the nodes between a scheduler of the fast path and one with a batch scheduler beside:
whose pods and nodes are whose, and the operator who gives the nodes of the autoscaler to shards.
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

#: Of the webhook (`timeoutSeconds` in config/webhook/mutating.yaml), and what a controller waits before it tries again.
_TIMEOUT, _RETRY = 5.0, 1.0
#: Of the removals of gates that are sent when a turn is about to be lost.
_LOST_FOR = 0.1


def is_ours(pod: Json) -> bool:
    """Whether it asks for a scheduler whose pods may have the gate."""
    return read.is_batch(pod) or str(pod["spec"].get("schedulerName", "")).startswith("agent-")


def asks(pod: Json) -> bool:
    """Whether the pod takes part."""
    return read.annotation(pod, GATE) == "true" and is_ours(pod)


def gates(pod: Json) -> list[str]:
    return [each["name"] for each in pod["spec"].get("schedulingGates") or ()]


def is_held(pod: Json) -> bool:
    """Whether the gate of its queue's capacity, and nothing else, holds it."""
    return asks(pod) and gates(pod) == [GATE] and read.waits(pod)


def is_reserved(pod: Json) -> bool:
    """Whether it was let past, or never held, and has no node yet, and does not say that its room was given back."""
    return asks(pod) and not gates(pod) and read.waits(pod) and not _says_given_back(pod)


def _says_given_back(pod: Json) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any("was given back" in each.get("message", "") for each in conditions)


class GateCluster(FaultMaker):
    """Made with its world."""

    def __init__(self, world: World, shape: Gates) -> None:
        super().__init__(world, "gates")
        self._is_off = shape.off
        #: In between nobody gets the lease of who removes gates.
        self._unleased_since = self._unleased_until = 0.0
        self._slow = random.Random(f"{world.seed} webhook_slow")
        self._policy = self._slow.choice(("Ignore", "Fail"))
        self.groups: tuple[NodeGroup, ...] = read_rules(shape.rules)
        self.autoscaler = Autoscaler(world.api, self.groups)
        self.collector = PodCollector(world.api.registry)
        #: Where no controller gives nodes to shards.
        self.operator = Operator(world, world.shards) if world.shards and not world.plans else None

    def gave_back(self, pod: Json) -> bool:
        """Whether it holds its room no more. It says something else if its queue would not have any now."""
        running = filter(None, (process.fast_path for process in self._world.processes))
        given_back = (each.ledger.usage.gated.given_back for each in running)
        return _says_given_back(pod) or any(uid_of(pod) in each for each in given_back)

    def has_room_reserved(self, pod: Json) -> bool:
        """Where gates are switched off no room is kept for who had one, and others may be told to want nodes for it."""
        return is_reserved(pod) and not self._is_off and not self.gave_back(pod)

    def hides(self, verb: str, path: str) -> bool:
        """Whether requests for the lease of who removes gates come to nothing, and this is one, or the first ones that
        remove some."""
        now = self._now
        if verb == "pod":
            return now < self._unleased_since + _LOST_FOR
        return path.endswith(GATES_LEASE) and now < self._unleased_until

    def create(self, pod: Json) -> None:
        """Of the load: the webhook is asked, and may take its time."""
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
            # As a ReplicaSet would: with nothing created, the next try asks the webhook anew.
            self._later(_TIMEOUT + _RETRY, self.create, pod)

    def admitted(self, pod: Json) -> Json:
        """The pod that is to be created, as the webhook lets it in."""
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
        """It has decided that pods lose their gate, and nothing is sent yet."""
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
        """A removal was carried out, and its answer is not there yet."""
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
        """Whether no node is on its way, or about to be taken away."""
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
        """Whether it knows that these wait, and would have all of them go to nodes that are there."""
        scaler = self.autoscaler
        waiting = scaler._picture.waiting
        uids = {uid_of(pod) for pod in pods}
        if not uids <= waiting.keys():
            return False
        sizes = {group.name: self.size(group.name) for group in self.groups}
        found = scale_up(waiting.values(), scaler._bins(), self.groups, sizes)
        return not any(pod.uid in uids for new in found.new for pod in new.pods)

    def went_back(self) -> None:
        """The store has: the watches are of a history that is none any more."""
        self.autoscaler.close()


#: Seconds until the operator has put right what is desired by nobody or by two, and what is no more.
_TIDIED = (5.0, 15.0)


class Operator(FaultMaker):
    """Subscribes to the store. Gives each new node to the shard of the pod for which the autoscaler made it."""

    def __init__(self, world: World, shards: ShardMap) -> None:
        super().__init__(world, "operator")
        self._shards = shards
        #: Node group -> the shards for which nodes of it are on their way, by the size that the group is to have then.
        self._awaited: dict[str, dict[str, str]] = {}
        self._tidies = False
        #: How often it has changed what a shard desires.
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
        # Of the pods for which one node comes the first one decides.
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
        """Each node that there is to one shard: that which uses it, or desires it, or the one that has fewer."""
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
