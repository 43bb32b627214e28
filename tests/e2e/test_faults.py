"""A scheduler process and a cluster process with planned faults: no pod is lost or moved, no node is overcommitted.

Each test has a cluster of its own, started with `--faults`. The plans do not affect the test's own requests and
watches, which concern one namespace's pods: the scheduler follows those of all namespaces.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from embedded_kubernetes.fault_plan import KINDS

from .conftest import BUDGETS, make_run, prepare
from .plane import ControlPlane
from .processes import Cluster, Scheduler, cluster
from .test_installed import embedded_alone

pytestmark = embedded_alone

Rule = dict[str, Any]
#: Pods that cannot be bound are retried soon, so that the tests do not wait for backoffs.
_SOON = {"podInitialBackoffSeconds": 0.05, "podMaxBackoffSeconds": 1, "workerCount": 4}


class Faulty:
    """A cluster with faults, and a user of it."""

    def __init__(self, cluster: Cluster, plane: ControlPlane, scheduler: Scheduler) -> None:
        self.cluster = cluster
        self.plane = plane
        self.scheduler = scheduler
        #: How often each fault was fired, at the end.
        self.fired: dict[str, int] = {}

    async def check_and_stop(self) -> None:
        """Check what must be true after all faults."""
        self.plane.assert_never_moved()
        await self.plane.assert_no_node_is_over()
        self.scheduler.check()
        assert await self.scheduler.terminate() == 0
        assert "Traceback" not in self.scheduler.said()
        assert await self.cluster.terminate() == 0
        assert "Traceback" not in self.cluster.said()
        counted = re.findall(r"^fault (\w+): fired (\d+) times$", self.cluster.said(), re.MULTILINE)
        self.fired = {kind: int(count) for kind, count in counted}
        assert self.fired
        assert all(self.fired.values()), f"a fault that never fired has tested nothing: {self.fired}"


@asynccontextmanager
async def faulty(folder: Path, *rules: Rule) -> AsyncIterator[Faulty]:
    """Yield a cluster with a plan of these rules and a scheduler that is ready; check both at the end."""
    served = ("--nodes", "0", "--no-kubelets", "--tls", "--authorization-mode", "RBAC")
    async with cluster(folder, *served, faults=rules) as (process, transport):
        run = make_run(process.kubeconfig, embedded=True)
        plane = ControlPlane(transport, run, f"{run.id}-1")
        await prepare(plane)
        config = {"profiles": [{"schedulerName": plane.scheduler_name}], **_SOON, **BUDGETS}
        scheduler = Scheduler("scheduler", folder=folder, kubeconfig=run.schedulers, config=config)
        try:
            async with plane.pods, plane.events:
                await scheduler.ready()
                yield (it := Faulty(process, plane, scheduler))
                await it.check_and_stop()
        finally:
            scheduler.kill()


def watches(kind: str, fault: Rule, **often: Any) -> Rule:
    """Return a fault of the scheduler's own watches of `pods` or `nodes`."""
    return {"match": {"path": f"/api/v1/{kind}", "verbs": ["watch"]}, **often, "fault": fault}


def lists(kind: str, fault: Rule, **often: Any) -> Rule:
    """Return a fault of the scheduler's lists, which are paged; those of the test are not."""
    match = {"path": f"/api/v1/{kind}", "verbs": ["list"], "query": "*limit=*"}
    return {"match": match, **often, "fault": fault}


def binds(fault: Rule, **often: Any) -> Rule:
    return {"match": {"resource": "pods/binding", "verbs": ["create"]}, **often, "fault": fault}


async def live(plane: ControlPlane) -> None:
    """Make changes in which every kind of event matters: in the end all pods are bound but the two that never fit."""
    for node in ("n0", "n1", "n2"):
        await plane.add_node(node, cpu="2")
    first = [f"a{number}" for number in range(12)]
    await plane.add_pods(first, cpu="500m")
    await plane.bound(*first)
    # All nodes are full: later pods wait for deletions and for a node.
    second = [f"b{number}" for number in range(6)]
    await plane.add_pods(second, cpu="500m")
    await plane.add_pod("hopeless", cpu="99")
    for name in first[:3]:
        await plane.delete_pod(name)
    await plane.pods.until(lambda: len(plane.placed()) >= 12, "the room of the deleted pods taken")
    await plane.add_node("late", cpu="2")
    await plane.bound(*first[3:], *second)
    # A pod that is created again under its name is another pod.
    await plane.delete_pod("a5")
    await plane.add_pod("a5", cpu="500m")
    await plane.bound("a5")
    # No change could help this pod, so its message may date from its first attempt. A new pod is tried on all nodes.
    await plane.refused("hopeless")
    await plane.add_pod("hopeless-too", cpu="99")
    await plane.refused("hopeless-too", message=await plane.fit_error({"Insufficient cpu": 4}))


#: Plans by subject.
WATCHES: dict[str, list[Rule]] = {
    "that end at any byte, are too old, or are refused": [
        watches("pods", {"close": {"bytes": 1, "spread": 6000}}, first=3),
        watches("pods", {"reset": {"bytes": 1, "spread": 6000}}, first=3),
        watches("pods", {"expire": {"events": 2, "spread": 3}}, first=2),
        watches("pods", {"error": {"status": 410}}, first=2),
        watches("nodes", {"close": {"events": 0}}, first=3),
        watches("nodes", {"error": {"status": 429, "retryAfter": 1}}, first=1),
        watches("nodes", {"drop": {}}, first=1),
        watches("nodes", {"expire": {"events": 1}}, first=1),
        lists("nodes", {"error": {"status": 503}}, after=1, first=1),
    ],
    "with unknown or broken content": [
        watches("pods", {"garble": {"events": 1}}, first=1),
        watches("pods", {"truncate": {"events": 2}}, first=1),
        watches("pods", {"unknownType": {"events": 3}}, first=1),
        watches("pods", {"unknownFields": {"bytes": 1_500_000}}, first=1),
        watches("nodes", {"truncate": {"events": 1}}, first=1),
        watches("nodes", {"unknownFields": {}}),
    ],
    "with old and with repeated events": [
        watches("pods", {"duplicate": {"every": 1}}, first=1),
        watches("nodes", {"replay": {"events": 1, "last": 3}}, first=1),
    ],
    "that begin at old versions, like the lists before them": [
        watches("pods", {"expire": {"events": 12}}, first=1),
        lists("pods", {"stale": {"versions": 8}}, after=1, first=2),
        watches("pods", {"stale": {"versions": 10}}, first=2),
        watches("nodes", {"expire": {"events": 2}}, first=1),
        lists("nodes", {"stale": {"versions": 8}}, after=1, first=2),
    ],
    "that lose deletions": [watches("pods", {"loseDelete": {}}, first=4)],
    "that send nothing more and do not end": [
        watches("pods", {"stall": {"bytes": 5000, "lasts": "2s"}}, first=1),
        watches("nodes", {"stall": {"events": 2, "lasts": "2s"}}, first=1),
    ],
    "of which one kind's is late, so that nodes come after their pods": [
        watches("nodes", {"hold": {"back": "1s"}}),
        watches("pods", {"hold": {"back": "20ms"}}),
    ],
}

first, *others = WATCHES


@pytest.mark.parametrize("what", [first, *(pytest.param(each, marks=pytest.mark.wide) for each in others)])
@pytest.mark.promise("S1", "S2", "L1", "L2")
async def test_watches(what: str, tmp_path: Path) -> None:
    async with faulty(tmp_path, *WATCHES[what]) as it:
        await live(it.plane)


def test_every_fault_of_watches_is_in_a_plan() -> None:
    used = {next(iter(rule["fault"])) for rules in WATCHES.values() for rule in rules}
    assert used >= set(KINDS[KINDS.index("stale") :])


#: Answers to a bind, with and without carrying it out.
REFUSALS: list[Rule] = [
    *({"conflict": {"of": of}} for of in ("assigned", "uid", "deleting", "gated", "modified")),
    *({"error": {"status": status}} for status in (403, 404, 422, 500, 503)),
    {"error": {"status": 429, "retryAfter": 1}},
    {"drop": {}},
]
UNKNOWN: list[Rule] = [
    {"lose": {}},
    {"lose": {"after": "300ms"}},
    {"error": {"status": 500, "commit": True}},
    {"error": {"status": 504, "commit": True}},
    {"delay": {"before": "500ms", "after": "500ms"}},
]


@pytest.mark.parametrize(
    "faults",
    [pytest.param(REFUSALS, marks=pytest.mark.wide), UNKNOWN],
    ids=["refused before the commit", "carried out without an answer"],
)
@pytest.mark.promise("S1", "S2", "L1")
async def test_binds(faults: list[Rule], tmp_path: Path) -> None:
    # One after the other, so that each fault occurs twice, whether in a first attempt or in a later one.
    async with faulty(tmp_path, *(binds(fault, first=2) for fault in faults)) as it:
        await live(it.plane)
        told = [*(f"a{number}" for number in range(3, 12) if number != 5), *(f"b{number}" for number in range(6))]
        for name in told:
            await it.plane.event(name, "Scheduled")
            assert len(it.plane.told(name, "Scheduled")) == 1
    assert sum(it.fired.values()) == 2 * len(faults)


@pytest.mark.wide
async def test_binds_that_are_never_answered_keep_their_room_until_it_is_known(tmp_path: Path) -> None:
    hanging = [binds({"hang": hang}, first=1) for hang in ({"commit": True}, {}, {"lasts": "1s"})]
    async with faulty(tmp_path, *hanging) as it:
        plane = it.plane
        await plane.add_node("n", cpu="2")
        names = [f"p{number}" for number in range(4)]
        await plane.add_pods(names, cpu="500m")
        # The other pods do not wait for those without an answer, whose room is not given away.
        await plane.pods.until(lambda: len(plane.placed()) >= 2, "the binds that are answered")
        await plane.add_pod("one-more", cpu="500m")
        await plane.refused("one-more", message=await plane.fit_error({"Insufficient cpu": 1}))
        await plane.bound(*names)
        assert "one-more" not in plane.placed()
