"""The move of a user of Volcano: its default configuration file, Queues, PodGroups, and pods with its schedulerName.

All components run as processes, and all actions and checks use kubectl.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.batched import CRDS, pod_group, queue
from tests.support.objects import pod

from .kubectl import Kubectl, cluster
from .processes import Scheduler, Served
from .test_installed import SESSIONS


@pytest.fixture
def moved(tmp_path: Path) -> Iterator[tuple[Kubectl, Scheduler]]:
    """Yield the cluster with the scheduler in Volcano's place."""
    configuration = tmp_path / "volcano-scheduler.conf"
    configuration.write_text(SESSIONS)
    with cluster(tmp_path, "--nodes=3", "--node-cpu=4", "--node-memory=8Gi") as kubectl:
        for file in CRDS:
            kubectl("apply", "-f", str(file))
        command = ["controllers", "--enable", "podgroup,queue", "--leader-elect=false", "--kubeconfig"]
        flags = ["--scheduler-conf", str(configuration)]
        started = (
            Served("controllers", [*command, str(kubectl.kubeconfig)], folder=tmp_path),
            scheduler := Scheduler("scheduler", folder=tmp_path, kubeconfig=kubectl.kubeconfig, flags=flags),
        )
        try:
            asyncio.run(scheduler.ready())
            kubectl("wait", "--for=create", "queue/default", "--timeout=200s")
            kubectl("wait", "--for=jsonpath={.status.state}=Open", "queue/default", "--timeout=200s")
            yield kubectl, scheduler
            for each in started:
                each.check()
        finally:
            for each in started:
                each.kill()


@pytest.mark.promise("S27")
async def test_a_gang_is_bound_whole_and_shown_as_before(moved: tuple[Kubectl, Scheduler]) -> None:
    kubectl, scheduler = moved

    def status() -> dict[str, Any]:
        group = kubectl.json("get", "podgroup.v1beta1.scheduling.volcano.sh", "train")
        return group.get("status") or {}

    def bound() -> int:
        pods = kubectl.json("get", "pods")["items"]
        return sum(bool(each["spec"].get("nodeName")) for each in pods)

    kubectl.apply(queue("team", parent="root", capability={"cpu": 6}))
    kubectl("wait", "--for=jsonpath={.status.state}=Open", "queue/team", "--timeout=200s")
    kubectl.apply(pod_group("train", minMember=3, queue="team"))
    for number in range(2):
        kubectl.apply(pod(f"train-{number}", cpu="1", scheduler="volcano", group="train"))
    await scheduler.until(lambda: status().get("conditions"), "refusal")
    assert bound() == 0, "two of three are no gang"
    kubectl.apply(pod("train-2", cpu="1", scheduler="volcano", group="train"))
    await scheduler.until(lambda: bound() == 3, "gang")
    await scheduler.until(lambda: (status().get("phase"), status().get("running")) == ("Running", 3), "phase")
    names, row = (line.split() for line in kubectl("get", "podgroup-v1beta1", "train").splitlines())
    assert names[:4] == ["NAME", "STATUS", "MINMEMBER", "RUNNINGS"]
    assert row[:4] == ["train", "Running", "3", "3"]
    (condition,) = [each for each in status()["conditions"] if each["type"] == "Scheduled"]
    assert (condition["status"], condition["reason"]) == ("True", "tasks in gang are ready to be scheduled")

    def allocated() -> bool:
        status = kubectl.json("get", "queue", "team")["status"]
        return status.get("allocated", {}).get("cpu") in ("3", "3000m") and status.get("running") == 1

    await scheduler.until(allocated, "status of the queue")
