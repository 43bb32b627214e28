"""Judges preemptions: which pod was evicted for which, by the API's own objects.

S14 a pod preempts others only where kube-scheduler would: it fits nowhere, it may preempt, and these victims, all of
lower priority, are the best choice of all nodes; no further pod is evicted while those that are leaving suffice S15 an
eviction deletes only a chosen victim, by its UID, and is sent only while the preempting pod still waits for that node
S16 no pod of ours takes capacity for which pods were evicted on behalf of another

A scheduler does not report to the API for which pod it evicts, so its choice is recorded where it is made: `Claim`.
What it had observed by then, however late its watches, is taken from it as versions only; their content is the API's,
and is judged by the plain readings of `tests.decisions` and `tests.unit.engine`, never by the engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import orjson

from agent_scheduler.engine.ledger import Placement
from agent_scheduler.engine.preemption.dry_run import Candidate
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.fastpath.scheduler import FastPath
from embedded_kubernetes.store import Event, Record
from kube_client.eviction import Evicted
from tests.decisions.plain import World as Cluster
from tests.decisions.plain import decide

from .api import FINAL, NODES, PODS, Json, name_of, node_of, uid_of
from .device_reading import without_extended
from .judge import History, Judge, hear_after, hear_before, is_first
from .kinds import Process, World
from .rules import as_placed, beside, cluster_of, readable, refusal, with_devices


@dataclass(eq=False, slots=True)
class Claim:
    """One choice of victims.

    `deleted` are those whose deletion was committed, `known` those of whose deletion the process was notified for this
    pod, `failed` those that stay as far as it was notified for this pod, and `left` those that have gone.
    """

    by: str
    process: str
    uid: str
    name: str
    priority: int
    node: str
    victims: dict[str, str]
    #: The store's version when the choice was made, and the settings in effect.
    rv: int
    settings: object
    deleted: set[str] = field(default_factory=set)
    known: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    left: set[str] = field(default_factory=set)
    #: The version of the node on which the choice was based.
    node_rv: int = 0
    #: When a pod of higher priority was first assigned to the same node; 0.0 if none was.
    displaced: float = 0.0
    over: bool = False
    node_uid: str = ""

    @property
    def is_leaving(self) -> bool:
        """Return whether some victim was deleted and still exists."""
        return self.deleted != self.left


class Seen:
    """The cluster as one process had observed it at a moment, in the API's own objects."""

    def __init__(self, evictions: Evictions, process: Process, fast_path: FastPath) -> None:
        ledger = fast_path.ledger
        self._evictions = evictions
        self._fast_path = fast_path
        self.rules = process.rules()
        self.nodes = list(map(evictions.known, filter(None, map(ledger.node, ledger.rows))))
        #: In the scheduler's order: of pods with equal criteria the first one is chosen.
        self.placed = {name: [self._on(each) for each in ledger.pods_on(name)] for name in ledger.rows}

    def _on(self, placement: Placement) -> Json:
        pod = self.pod(placement.uid)
        assert pod is not None, "the ledger has no pod that was not seen"
        there = {**pod, "spec": {**pod["spec"], "nodeName": placement.node_name}}
        if placement.gpus and not node_of(pod):
            # The annotation of a pod that is not bound does not matter.
            return with_devices(there, placement.gpus)
        return as_placed(there, placement.gpus)

    def pod(self, uid: str) -> Json | None:
        info = self._fast_path.cluster.pods.get(uid)
        return None if info is None else self._evictions.known(info)

    def node(self, name: str) -> Json | None:
        return next((node for node in self.nodes if name_of(node) == name), None)

    @cached_property
    def cluster(self) -> Cluster:
        """Return the cluster with all pods that have a node; the judge of devices handles their extended resources."""
        placed = (without_extended(pod) for pods in self.placed.values() for pod in pods)
        return cluster_of(self.nodes, placed)

    def fits(self, pod: Json, node: Json, *, without: Iterable[str] = (), and_: Sequence[Json] = ()) -> bool:
        """Return whether the pod fits on the node, without the pods of `without` and with those of `and_` on it."""
        cluster, gone = self.cluster, set(without)
        if gone or and_:
            name = name_of(node)
            more = [{**each, "spec": {**each["spec"], "nodeName": name}} for each in and_]
            stay = [each for each in cluster.pods if uid_of(each) not in gone]
            there = [each for each in stay if each["spec"]["nodeName"] == name] if and_ else []
            more = beside(more, node, there)
            cluster = cluster_of(cluster.nodes, [*stay, *map(without_extended, more)])
        return refusal(without_extended(pod), node, cluster, self.rules) is None


BUDGETS = ("policy", "poddisruptionbudgets")


class Evictions(Judge):
    """Owner of the claims of all processes."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.claims: list[Claim] = []
        #: The object of a UID and version.
        self.known = History(world, (PODS, NODES, BUDGETS), readable).known
        #: Node -> (version, UID) of each pod that was bound to it.
        self.arrivals: dict[str, list[tuple[int, str]]] = {}
        names = world.store.tables[PODS].field_names
        self._node_field, self._phase_field = names.index("spec.nodeName"), names.index("status.phase")

    def went_back(self) -> None:
        """End all claims, because the store went back: they were based on a history that is no longer valid."""
        for claim in self.claims:
            claim.over = True
        self.arrivals.clear()
        for record in self.world.store.tables[PODS].scan(""):
            if node := record.fields[self._node_field]:
                self.arrivals.setdefault(node, []).append((record.rv, record.uid))

    def open(self) -> list[Claim]:
        """Return the claims whose pod still waits."""
        return [claim for claim in self.claims if not claim.over]

    # -- choices

    def watch(self, process: Process, fast_path: FastPath) -> None:
        """Record each choice of the process. Idempotent."""
        preemption, ledger = fast_path.preemption, fast_path.ledger
        if not is_first(preemption, "evictions"):
            return
        evict_one = preemption._evict_one

        def starts(pod: PodInfo, candidate: Candidate, *, waits: bool, **_: bool) -> None:
            if waits:
                self._claim(process, fast_path, pod, candidate)

        async def evicted(job: Any, victim: Any) -> Evicted:
            outcome = await evict_one(job, victim)
            for claim in self.claims:
                if claim.by == process.identity and claim.uid == job.pod.uid and victim.uid in claim.victims:
                    if outcome in (Evicted.DELETED, Evicted.GONE):
                        claim.known.add(victim.uid)
                    elif outcome is Evicted.FAILED:
                        claim.failed.add(victim.uid)
            return outcome

        def assumed(pod: Any, _row: int) -> None:
            self._judge_room(process, fast_path, pod, ledger.placements[pod.uid].node_name)

        hear_after(ledger, "assume", assumed)
        hear_before(preemption, "start", starts)
        preemption._evict_one = evicted  # type: ignore[method-assign]

    def _claim(self, process: Process, fast_path: FastPath, pod: PodInfo, candidate: Candidate) -> None:
        world = self.world
        victims = {victim.uid: victim.name for victim in candidate.victims}
        by = process.identity, process.name, pod.uid, pod.name, pod.priority
        claim = Claim(*by, candidate.node_name, victims, world.store.rv, fast_path.settings)
        if (info := fast_path.ledger.node(claim.node)) is not None:
            claim.node_uid, claim.node_rv = info.uid, int(info.resource_version)
        world.trace(process.name, f"evicts {sorted(victims.values())} from {claim.node} for {pod.name}")
        if not world.backups.is_unaware(process):
            seen = Seen(self, process, fast_path)
            self._judge(claim, seen, fast_path)
            self._judge_repetition(claim, seen, fast_path)
        for other in self.claims:
            if other.by == claim.by and other.node == claim.node and other.priority < claim.priority:
                other.displaced = other.displaced or world.loop.time()
        self.claims.append(claim)
        claim.over = world.backups.is_unaware(process)
        world.nemesis.after_claim(process, claim)

    def _rivals(self, claim: Claim, fast_path: FastPath) -> dict[str, list[str]]:
        """Return node -> UIDs of the pods nominated there for which the claim's pod must leave capacity."""
        nominator = fast_path.queue.nominator
        placements = fast_path.ledger.placements
        found = {
            node: [
                pod.uid
                for pod in nominator.pods_for(node)
                if pod.priority >= claim.priority and pod.uid != claim.uid and pod.uid not in placements
            ]
            for node in sorted(nominator.nodes())
        }
        return {node: uids for node, uids in found.items() if uids}

    def _judge(self, claim: Claim, seen: Seen, fast_path: FastPath) -> None:
        self._look("S14")
        pod = seen.pod(claim.uid)
        if pod is None:
            self._wrong_claim(claim, "the pod is not there")
            return
        rivals = self._rivals(claim, fast_path)
        if rivals:
            self._judge_among_rivals(claim, pod, seen, rivals)
            return
        placed = tuple(each for pods in seen.placed.values() for each in pods)
        cluster = Cluster(tuple(seen.rules.applied_to_node(node) for node in seen.nodes), placed)
        by_namespace = fast_path._watching.pdbs._by_namespace.values()
        budgets = [self.known(budget) for there in by_namespace for budget in there.pdbs.values()]
        decision = decide(seen.rules.applied_to_pod(pod), cluster, budgets)
        if decision.feasible:
            self._wrong_claim(claim, f"it fits on {', '.join(decision.feasible)}")
        chosen = {(each.node, *sorted(map(uid_of, each.victims))) for each in decision.candidates}
        if not decision.feasible and (claim.node, *sorted(claim.victims)) not in chosen:
            best = [(each.node, [name_of(victim) for victim in each.victims]) for each in decision.candidates]
            self._wrong_claim(claim, f"the best choice is {best or decision.message}")

    def _judge_among_rivals(self, claim: Claim, pod: Json, seen: Seen, rivals: dict[str, list[str]]) -> None:
        """Check less where nominated pods matter: that the evictions were necessary, and that they suffice."""
        if pod["spec"].get("preemptionPolicy") == "Never":
            self._wrong_claim(claim, "it must not preempt")
        there = {node: [each for uid in uids if (each := seen.pod(uid))] for node, uids in rivals.items()}
        for node in seen.nodes:
            name = name_of(node)
            others = there.get(name, [])
            if seen.fits(pod, node) and seen.fits(pod, node, and_=others):
                self._wrong_claim(claim, f"it fits on {name}")
        target, others = seen.node(claim.node), there.get(claim.node, [])
        if target is None:
            self._wrong_claim(claim, "there is no such node")
            return
        priorities = {uid_of(each): each["spec"].get("priority", 0) for each in seen.placed[claim.node]}
        for uid, name in claim.victims.items():
            if priorities.get(uid, claim.priority) >= claim.priority:
                self._wrong_claim(claim, f"{name} is not of lower priority, or not there")
            rest = claim.victims.keys() - {uid}
            if seen.fits(pod, target, without=rest) and seen.fits(pod, target, without=rest, and_=others):
                self._wrong_claim(claim, f"{name} need not go")
        for more in ([], others):
            if not seen.fits(pod, target, without=claim.victims, and_=more):
                self._wrong_claim(claim, "it does not fit there with all of them gone")

    def _judge_repetition(self, claim: Claim, seen: Seen, fast_path: FastPath) -> None:
        pod = seen.pod(claim.uid)
        rivals = self._rivals(claim, fast_path)
        for earlier in self.claims:
            if earlier.by != claim.by or earlier.uid != claim.uid or earlier.displaced or pod is None:
                continue
            if earlier.settings is not claim.settings:
                # With some settings in between, evicting for it may not have been allowed.
                continue
            node = seen.node(earlier.node)
            if node is not None and uid_of(node) != earlier.node_uid:
                # The node that was freed for it is gone, and its nomination with it.
                continue
            known = fast_path.cluster.pods
            leaves = [uid for uid in earlier.victims if uid in earlier.deleted and known.get(uid) is not None]
            if node is None or not leaves or earlier.known != earlier.victims.keys():
                continue
            if not claim.victims.keys() - {uid for each in self.claims for uid in each.deleted}:
                # No further pod is evicted.
                continue
            others = [each for uid in rivals.get(earlier.node, []) if (each := seen.pod(uid))]
            if all(seen.fits(pod, node, without=leaves, and_=more) for more in ([], others)):
                names = [earlier.victims[uid] for uid in leaves]
                self._wrong_claim(claim, f"{names} are leaving {earlier.node} for it already")

    def _judge_room(self, process: Process, fast_path: FastPath, bound: PodInfo, node_name: str) -> None:
        """Check that `bound`, which receives capacity, takes none of another pod's, before others receive some."""
        nominated, placements = fast_path.queue.nominator.nominated, fast_path.ledger.placements
        kept = [
            claim
            for claim in self.open()
            if claim.by == process.identity
            and claim.node == nominated.get(claim.uid, "") == node_name
            and claim.uid != bound.uid
            and claim.priority >= bound.priority
            and claim.uid not in placements
        ]
        if not kept:
            return
        self._look("S16")
        seen = Seen(self, process, fast_path)
        if (node := seen.node(node_name)) is None:
            return
        leaving = {uid for claim in kept for uid in claim.victims}
        for claim in kept:
            pod = seen.pod(claim.uid)
            if pod is None or seen.fits(pod, node, without=leaving):
                continue
            if seen.fits(pod, node, without={*leaving, bound.uid}):
                self._wrong_claim(claim, f"{bound.name} is given its room", "S16")

    # -- requests

    def sending(self, process: Process, path: str, body: bytes) -> None:
        """Check a request of a process that deletes a pod."""
        if self._is_unaware(process):
            return
        self._look("S15")
        name = path.rpartition("/")[2]
        fast_path = process.fast_path
        gangs, record = self.world.gang_safety, self.world.store.tables[PODS].get("default", name)
        # The name may belong to another pod now.
        uid = (orjson.loads(body).get("preconditions") or {}).get("uid", "")
        if gangs is not None and (record is None or gangs.is_victim(process, uid)):
            return
        assert fast_path is not None, "who sends is there"
        mine = [each for each in self.claims if each.by == process.identity and name in each.victims.values()]
        waiting = [claim for claim in mine if fast_path.cluster.waits(claim.uid)]
        if not waiting:
            self._wrong("S15", process, f"deletes {name} for no waiting pod")
        elif all(claim.displaced and claim.displaced < self.world.loop.time() for claim in waiting):
            # A request that was decided at this moment may have waited for a connection meanwhile.
            self._wrong("S15", process, f"deletes {name} for a pod whose place was given away")

    # -- commits

    def pod_changed(self, event: Event, actor: Process | None) -> None:
        if self.world.backups.restoring:
            return
        record, before = event.record, event.previous
        node = record.fields[self._node_field]
        gone = event.type == "DELETED"
        leaves = gone or record.deleting
        ended = leaves or record.fields[self._phase_field] in FINAL
        if node and (before is None or not before.fields[self._node_field]):
            self._arrived(event, node, actor)
        if actor is not None and actor.scheduler and leaves and before is not None and not before.deleting:
            self._evicted(record, actor)
        for claim in self.claims:
            if gone and record.uid in claim.deleted:
                claim.left.add(record.uid)
                if not claim.over:
                    self.world.nemesis.after_victim(claim)
            if claim.uid == record.uid and not claim.over and (ended or node):
                if not node and claim.is_leaving:
                    self._reached("preemptor gone while victims leave")
                claim.over = True

    def _evicted(self, record: Record, actor: Process) -> None:
        claims = [each for each in self.claims if each.process == actor.name and record.uid in each.victims]
        gangs = self.world.gang_safety
        for_gang = gangs is not None and gangs.is_victim(actor, record.uid)
        if not claims and not for_gang and not self._is_unaware(actor):
            self._wrong("S15", actor, f"deleted {record.key}, no victim of its")
        for claim in claims:
            # A process that was notified that this victim stays has given it up; the deletion is for another pod.
            if record.uid not in claim.failed:
                claim.deleted.add(record.uid)
        self._reached("victim evicted")

    def _arrived(self, event: Event, node: str, actor: Process | None) -> None:
        uid = event.record.uid
        self.arrivals.setdefault(node, []).append((event.rv, uid))
        others = (claim for claim in self.open() if claim.node == node and claim.uid != uid)
        if actor is None and any(claim.deleted for claim in others):
            self._reached("room taken by another")

    # -- at the end

    def world_changed(self, claim: Claim) -> bool:
        """Return whether the node has changed since the state on which the claim was based.

        Then the claim need not be useful any longer.
        """
        node = self.world.store.tables[NODES].records.get(claim.node)
        arrivals = self.arrivals.get(claim.node, ())
        others_came = any(rv > claim.rv and uid != claim.uid for rv, uid in arrivals)
        return node is None or node.rv > claim.node_rv or others_came

    def _wrong_claim(self, claim: Claim, what: str, name: str = "S14") -> None:
        victims = sorted(claim.victims.values())
        self._violated(name, f"{claim.by} evicts {victims} from {claim.node} for {claim.name}: {what}")
