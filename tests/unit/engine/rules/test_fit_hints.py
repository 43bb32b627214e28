"""Who sleeps on when a pod ends would be refused again: NodeResourcesFit's hint against decisions and preemptions."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from agent_scheduler.engine.events import events as ev
from agent_scheduler.engine.gangs.native import NativeGroups
from agent_scheduler.engine.queueing.queue import SchedulingQueue
from agent_scheduler.engine.recount import contradictions
from agent_scheduler.engine.state.podinfo import PodInfo
from tests.support.engine import SPREAD, World, node
from tests.support.queues import scheduling_queue
from tests.support.terms import ZONE, beside, pod_term, spread


class Scene(World):
    """A cluster and a queue that wakes by it."""

    def __init__(self, *nodes: Any) -> None:
        super().__init__(*nodes)
        self.profile = SPREAD.seeing(self.ledger, self.devices, NativeGroups())
        self.queue: SchedulingQueue = scheduling_queue({"agent-scheduler": self.profile.hint_map()})

    def refusing(self, pod: PodInfo) -> frozenset[str]:
        """The plugins that refuse it; empty for one that has a node, or could have others evicted for one."""
        if self.feasible(pod) or self.preempt(pod).candidate is not None:
            return frozenset()
        return self.refusal(pod).plugins

    def wait(self, pod: PodInfo, refusing: frozenset[str]) -> None:
        self.queue.add(pod)
        entry = self.queue.pop()
        assert entry is not None
        self.queue.add_unschedulable(entry, unschedulable_plugins=refusing)

    def end(self, pod: PodInfo) -> int:
        """How many of those who wait are woken."""
        self.ledger.remove_pod(pod.uid)
        return self.queue.move_all(ev.ASSIGNED_POD_DELETE, pod)


def _node(rng: random.Random, name: str) -> Any:
    about: Any = {"cpu": str(rng.randint(1, 4)), "pods": str(rng.randint(2, 5)), "labels": {ZONE: rng.choice("ab")}}
    return node(name, extended={"example.com/gpu": "2"} if rng.random() < 0.5 else {}, **about)


def _drawn(scene: Scene, rng: random.Random, name: str, on: str = "") -> PodInfo:
    more: dict[str, Any] = {}
    match rng.randrange(8):
        case 0 | 1 as kind:
            near = pod_term(rng.choice("xy"), ZONE)
            more = {"affinity": beside(("podAntiAffinity", "podAffinity")[kind], near)}
        case 2:
            more = {"topologySpreadConstraints": [spread(app="x")]}
        case 3:
            more = {"preemptionPolicy": "Never"}
    requests = {"cpu": rng.choice(["500m", "1", "1500m", "2", "3", "9"])}
    if rng.random() < 0.2:
        requests["example.com/gpu"] = "1"
    more |= {"priority": rng.choice((0, 0, 0, 1, 2)), "ports": [80] if rng.random() < 0.2 else []}
    labels = {"app": rng.choice("xyz")}
    return scene.pod(name, requests=requests, uid=name, labels=labels, nodeName=on or None, **more)


@pytest.mark.promise("L1")
@pytest.mark.parametrize("first", [0, *(pytest.param(100 * each, marks=pytest.mark.wide) for each in (1, 2, 3))])
def test_who_is_not_woken_when_a_pod_ends_would_be_refused_again(first: int) -> None:
    outcomes: Counter[str] = Counter()
    for seed in range(first, first + 100):
        rng = random.Random(seed)
        names = [f"n{number}" for number in range(rng.randint(1, 5))]
        scene = Scene(*(_node(rng, name) for name in names))
        count = rng.randint(2, 14)
        running = [_drawn(scene, rng, f"r{number}", rng.choice(names)) for number in range(count)]
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
    assert min(outcomes[each] for each in ("woken", "woken in vain", "slept")) > 20, outcomes
    assert outcomes["slept"] > outcomes["woken in vain"], outcomes


def _waiting(scene: Scene, name: str, cpu: str, **more: Any) -> PodInfo:
    pod = scene.pod(name, requests={"cpu": cpu}, **more)
    refusing = scene.refusing(pod)
    assert refusing == {"NodeResourcesFit"}
    scene.wait(pod, refusing)
    return pod


def test_the_end_of_a_pod_wakes_whom_the_room_on_its_node_is_enough_for() -> None:
    scene = Scene(node("a", cpu="4"), node("b", cpu="2"))
    here, there, stays = (
        scene.run(name, on, cpu=cpu) for name, on, cpu in (("x", "a", "2"), ("y", "b", "2"), ("z", "a", "2"))
    )
    small, medium = (_waiting(scene, name, cpu) for name, cpu in (("s", "2"), ("m", "3")))
    _waiting(scene, "large", "5")
    assert scene.end(here) == 1 and scene.queue.where(small.uid) == "backoff"
    assert scene.end(there) == 0
    assert scene.end(stays) == 1 and scene.queue.where(medium.uid) == "backoff"


def test_who_may_preempt_hears_of_ends_elsewhere_unless_no_node_is_large_enough() -> None:
    scene = Scene(node("a", cpu="4"), node("b", cpu="2"))
    scene.run("low", "a", cpu="1", priority=0)
    scene.run("high", "a", cpu="3", priority=9)
    ended = scene.run("ended", "b", cpu="1", priority=9)
    patient, too_large = (_waiting(scene, name, cpu, priority=5) for name, cpu in (("p", "3"), ("l", "5")))
    never = _waiting(scene, "never", "3", priority=5, preemptionPolicy="Never")
    assert scene.end(ended) == 1
    assert scene.queue.where(patient.uid) == "backoff"
    assert {scene.queue.where(pod.uid) for pod in (too_large, never)} == {"unschedulable"}
    # A node that is large enough has come since, on which there is nobody to evict yet.
    scene.ledger.set_node(node("c", cpu="8"))
    scene.run("above", "c", cpu="8", priority=9)
    assert scene.end(scene.run("another", "b", cpu="1", priority=9)) == 1
    assert scene.queue.where(too_large.uid) == "backoff"


def test_a_pod_that_was_on_no_node_gives_room_back_that_anybody_may_use() -> None:
    scene = Scene(node("a", cpu="2"))
    scene.run("x", "a", cpu="2")
    assumed = scene.pod("assumed", requests={"cpu": "1"})
    _waiting(scene, "w", "5")
    assert scene.queue.move_all(ev.ASSIGNED_POD_DELETE, assumed) == 1
