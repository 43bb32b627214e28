"""A user of Volcano moves: its default configuration file, its Queues and PodGroups, pods with its schedulerName.

All components run as processes, and everything is done and read with kubectl.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.batched import CRDS, pod_group, queue
from tests.support.objects import pod

from .kubectl import Kubectl, cluster
from .processes import Scheduler, Served

#: Volcano's `defaultSchedulerConf`.
DEFAULT = """\
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
- plugins:
  - name: overcommit
  - name: drf
  - name: predicates
  - name: proportion
  - name: nodeorder
"""


class Moved:
    """The cluster with the scheduler in Volcano's place."""

    def __init__(self, kubectl: Kubectl, scheduler: Scheduler) -> None:
        self.kubectl = kubectl
        self.scheduler = scheduler

    async def until(self, what: str, holds: Callable[[], bool]) -> None:
        await self.scheduler.until(holds, what)

    def bound(self, group: str) -> list[str]:
        return [
            each["metadata"]["name"]
            for each in self.kubectl.json("get", "pods")["items"]
            if (each["metadata"].get("annotations") or {}).get("scheduling.k8s.io/group-name") == group
            and each["spec"].get("nodeName")
        ]

    def group(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.kubectl.json("get", "podgroup.v1beta1.scheduling.volcano.sh", name)
        return found

    def phase(self, name: str) -> str:
        return str(self.group(name).get("status", {}).get("phase", ""))


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Moved]:
    folder: Path = tmp_path_factory.mktemp("volcano")
    (folder / "volcano-scheduler.conf").write_text(DEFAULT)
    with cluster(folder, "--nodes=3", "--node-cpu=4", "--node-memory=8Gi") as kubectl:
        for file in CRDS:
            kubectl("apply", "-f", str(file))
        kubeconfig = kubectl.kubeconfig
        started: list[Served] = []
        try:
            started.append(
                Served(
                    "controllers",
                    [
                        *("controllers", "--enable", "podgroup,queue", "--kubeconfig", str(kubeconfig)),
                        *("--leader-elect=false", "--log-level", "debug"),
                    ],
                    folder=folder,
                )
            )
            scheduler = Scheduler(
                "scheduler",
                folder=folder,
                kubeconfig=kubeconfig,
                flags=["--scheduler-conf", str(folder / "volcano-scheduler.conf")],
            )
            started.append(scheduler)
            asyncio.run(scheduler.ready())
            kubectl("wait", "--for=create", "queue/default", "--timeout=200s")
            kubectl("wait", "--for=jsonpath={.status.state}=Open", "queue/default", "--timeout=200s")
            yield Moved(kubectl, scheduler)
            for each in started:
                each.check()
        finally:
            for each in started:
                each.kill()


@pytest.mark.promise("S27")
async def test_a_gang_is_bound_whole_and_shown_as_before(moved: Moved) -> None:
    kubectl = moved.kubectl
    kubectl.apply(queue("team", parent="root", capability={"cpu": 6}))
    kubectl("wait", "--for=jsonpath={.status.state}=Open", "queue/team", "--timeout=200s")
    kubectl.apply(pod_group("train", minMember=3, queue="team"))
    for number in range(2):
        kubectl.apply(pod(f"train-{number}", cpu="1", scheduler="volcano", group="train"))
    await moved.until("refusal", lambda: bool(moved.group("train").get("status", {}).get("conditions")))
    assert moved.bound("train") == [], "two of three are no gang"
    kubectl.apply(pod("train-2", cpu="1", scheduler="volcano", group="train"))
    await moved.until("gang", lambda: len(moved.bound("train")) == 3)
    await moved.until("phase", lambda: moved.phase("train") == "Running")
    await moved.until("count", lambda: moved.group("train")["status"].get("running") == 3)
    names, row = (line.split() for line in kubectl("get", "podgroup-v1beta1", "train").splitlines())
    assert names[:4] == ["NAME", "STATUS", "MINMEMBER", "RUNNINGS"]
    assert row[:4] == ["train", "Running", "3", "3"]
    (condition,) = [
        each for each in moved.group("train")["status"]["conditions"] if each["type"] == "Scheduled"
    ]
    assert (condition["status"], condition["reason"]) == ("True", "tasks in gang are ready to be scheduled")

    def allocated() -> bool:
        status = kubectl.json("get", "queue", "team")["status"]
        return status.get("allocated", {}).get("cpu") in ("3", "3000m") and status.get("running") == 1

    await moved.until("status of the queue", allocated)


@pytest.mark.wide
async def test_a_pod_without_a_group_gets_one_and_is_bound(moved: Moved) -> None:
    kubectl = moved.kubectl
    kubectl.apply(pod("lone", scheduler="volcano"))
    await moved.until("bind", lambda: bool(kubectl.json("get", "pod", "lone")["spec"].get("nodeName")))
    made = kubectl.json("get", "pod", "lone")["metadata"]
    group = made["annotations"]["scheduling.k8s.io/group-name"]
    assert group == f"podgroup-{made['uid']}"
    assert moved.group(group)["spec"]["minMember"] == 1
