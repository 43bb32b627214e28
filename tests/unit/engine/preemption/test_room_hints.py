"""Who sleeps on when a pod ends would be refused again: NodeResourcesFit's hint against decisions and preemptions."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from agent_scheduler.engine.decide.decide import CandidateNodes, ClassViews, decide
from agent_scheduler.engine.dra.catalogue import Devices
from agent_scheduler.engine.events import events as ev
from agent_scheduler.engine.framework.args import DefaultPreemptionArgs
from agent_scheduler.engine.gangs.native import NativeGroups
from agent_scheduler.engine.plugins.default_preemption import DefaultPreemption
from agent_scheduler.engine.preemption.evaluator import Evaluator
from agent_scheduler.engine.profiles.profiles import ProfileSpec, build_profile
from agent_scheduler.engine.queueing.queue import SchedulingQueue
from agent_scheduler.engine.state.ledger import Ledger
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.engine.state.recount import contradictions
from tests.unit.engine.world import node, pod_json, read_pod

from .test_evaluator import Cluster

ZONE = "topology.kubernetes.io/zone"


class Scene:
    """A cluster and a queue that wakes by it."""

    def __init__(self, *nodes: Any) -> None:
        self.world = Cluster(*nodes)
        profile = build_profile(ProfileSpec(scheduler_name="agent-scheduler", base="default-scheduler"))
        self.profile = profile.seeing(self.ledger, Devices(), NativeGroups())
        self.views = ClassViews(self.profile, self.world.snapshot)
        self.now = 0.0
        self.queue: SchedulingQueue[PodInfo] = SchedulingQueue(
            clock=lambda: self.now, hint_maps={"agent-scheduler": self.profile.hint_map()}
        )

    @property
    def ledger(self) -> Ledger:
        return self.world.ledger

    def refusing(self, pod: PodInfo) -> frozenset[str]:
        """The plugins that refuse it; empty for one that has a node, or could have others evicted for one."""
        world = self.world
        world.snapshot.refresh()
        columns = world.snapshot.columns
        view = self.views.of(world.snapshot.handle.class_of(pod))
        if isinstance(decide(view, columns, candidates=1), CandidateNodes):
            return frozenset()
        refused = view.refused(columns)
        selection = Evaluator(self.ledger, columns, world.pdbs, world.nominations)
        found = selection.preempt(
            pod,
            view,
            refused,
            wanted=DefaultPreemption(DefaultPreemptionArgs()).wanted,
            offset=lambda nodes: 0,
        )
        return refused.plugins if found.candidate is None else frozenset()

    def wait(self, pod: PodInfo, refusing: frozenset[str]) -> None:
        self.queue.add(pod)
        entry = self.queue.pop()
        assert entry is not None
        self.queue.add_unschedulable(entry, unschedulable_plugins=refusing)

    def end(self, pod: PodInfo) -> int:
        """How many of those who wait are woken."""
        self.ledger.remove_pod(pod.uid)
        return self.queue.move_all(ev.ASSIGNED_POD_DELETE, pod)


def _near(kind: str, app: str) -> dict[str, Any]:
    term = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": app}}}
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def _drawn(scene: Scene, rng: random.Random, name: str, on: str = "") -> PodInfo:
    more: dict[str, Any] = {}
    match rng.randrange(8):
        case 0:
            more = _near("podAntiAffinity", rng.choice("xy"))
        case 1:
            more = _near("podAffinity", rng.choice("xy"))
        case 2:
            more = {
                "topologySpreadConstraints": [
                    {
                        "maxSkew": 1,
                        "topologyKey": ZONE,
                        "whenUnsatisfiable": "DoNotSchedule",
                        "labelSelector": {"matchLabels": {"app": "x"}},
                    }
                ]
            }
        case 3:
            more = {"preemptionPolicy": "Never"}
    requests = {"cpu": rng.choice(["500m", "1", "1500m", "2", "3", "9"])}
    if rng.random() < 0.2:
        requests["example.com/gpu"] = "1"
    body = pod_json(name, requests=requests, priority=rng.choice((0, 0, 0, 1, 2)), **more)
    if rng.random() < 0.2:
        body["spec"]["containers"][0]["ports"] = [{"containerPort": 1, "hostPort": 80, "protocol": "TCP"}]
    if on:
        body["spec"]["nodeName"] = on
    body["metadata"] |= {"uid": name, "labels": {"app": rng.choice("xyz")}}
    return read_pod(body, scene.world.classes)


def test_who_is_not_woken_when_a_pod_ends_would_be_refused_again() -> None:
    outcomes: Counter[str] = Counter()
    for seed in range(400):
        rng = random.Random(seed)
        names = [f"n{number}" for number in range(rng.randint(1, 5))]
        scene = Scene(
            *(
                node(
                    name,
                    cpu=str(rng.randint(1, 4)),
                    pods=str(rng.randint(2, 5)),
                    labels={ZONE: rng.choice("ab")},
                    extended={"example.com/gpu": "2"} if rng.random() < 0.5 else {},
                )
                for name in names
            )
        )
        running = [
            _drawn(scene, rng, f"r{number}", rng.choice(names)) for number in range(rng.randint(2, 14))
        ]
        for pod in running:
            scene.ledger.set_pod(pod, pod.node_name)
        waiting = {}
        for number in range(8):
            pod = _drawn(scene, rng, f"w{number}")
            # The other plugins' hints were never true to more than what their plugins refused.
            if "NodeResourcesFit" in (refusing := scene.refusing(pod)):
                scene.wait(pod, refusing)
                waiting[pod.uid] = pod
        rng.shuffle(running)
        for gone in running[:3]:
            scene.end(gone)
            assert not contradictions(scene.ledger)
            for uid, pod in list(waiting.items()):
                refused_again = bool(scene.refusing(pod))
                if scene.queue.where(uid) != "unschedulable":
                    del waiting[uid]
                    outcomes["woken in vain" if refused_again else "woken"] += 1
                else:
                    assert refused_again, f"seed {seed}: {uid} sleeps through the end of {gone.name}"
                    outcomes["slept"] += 1
    assert min(outcomes[each] for each in ("woken", "woken in vain", "slept")) > 100, outcomes
    assert outcomes["slept"] > outcomes["woken in vain"], outcomes


def _waiting(scene: Scene, name: str, cpu: str, **more: Any) -> PodInfo:
    pod = read_pod(pod_json(name, requests={"cpu": cpu}, **more), scene.world.classes)
    refusing = scene.refusing(pod)
    assert refusing == {"NodeResourcesFit"}
    scene.wait(pod, refusing)
    return pod


def test_the_end_of_a_pod_wakes_whom_the_room_on_its_node_is_enough_for() -> None:
    scene = Scene(node("a", cpu="4"), node("b", cpu="2"))
    here, there, stays = (
        scene.world.run(name, on, cpu=cpu)
        for name, on, cpu in (("x", "a", "2"), ("y", "b", "2"), ("z", "a", "2"))
    )
    small, medium = (_waiting(scene, name, cpu) for name, cpu in (("s", "2"), ("m", "3")))
    _waiting(scene, "large", "5")
    assert scene.end(here) == 1 and scene.queue.where(small.uid) == "backoff"
    assert scene.end(there) == 0
    assert scene.end(stays) == 1 and scene.queue.where(medium.uid) == "backoff"


def test_who_may_preempt_hears_of_ends_elsewhere_unless_no_node_is_large_enough() -> None:
    scene = Scene(node("a", cpu="4"), node("b", cpu="2"))
    scene.world.run("low", "a", cpu="1", priority=0)
    scene.world.run("high", "a", cpu="3", priority=9)
    ended = scene.world.run("ended", "b", cpu="1", priority=9)
    patient, too_large = (_waiting(scene, name, cpu, priority=5) for name, cpu in (("p", "3"), ("l", "5")))
    never = _waiting(scene, "never", "3", priority=5, preemptionPolicy="Never")
    assert scene.end(ended) == 1
    assert scene.queue.where(patient.uid) == "backoff"
    assert {scene.queue.where(pod.uid) for pod in (too_large, never)} == {"unschedulable"}
    # A node that is large enough has come since, on which there is nobody to evict yet.
    scene.ledger.set_node(node("c", cpu="8"))
    scene.world.run("above", "c", cpu="8", priority=9)
    assert scene.end(scene.world.run("another", "b", cpu="1", priority=9)) == 1
    assert scene.queue.where(too_large.uid) == "backoff"


def test_a_pod_that_was_on_no_node_gives_room_back_that_anybody_may_use() -> None:
    scene = Scene(node("a", cpu="2"))
    scene.world.run("x", "a", cpu="2")
    assumed = read_pod(pod_json("assumed", requests={"cpu": "1"}), scene.world.classes)
    _waiting(scene, "w", "5")
    assert scene.queue.move_all(ev.ASSIGNED_POD_DELETE, assumed) == 1
