"""`agent-scheduler nodes` as a shell sees it, against an embedded cluster."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.command_line import Command, kubeconfig
from tests.support.embedded import NODES, PODS, embedded_cluster
from tests.support.objects import Object, container, node
from tests.support.objects import pod as make_pod

Capture = pytest.CaptureFixture[str]
Show = Callable[..., Awaitable[tuple[int, str, str]]]


def pod(name: str, on: str, **requests: str) -> Object:
    first = container("i", requests={"cpu": "1500m"})
    return make_pod(name, node=on, requests=requests, initContainers=[first])


@pytest.fixture
async def show(tmp_path: Path, capsys: Capture) -> AsyncIterator[Show]:
    gpus = {"nvidia.com/gpu": "8"}
    async with embedded_cluster() as cluster:
        await cluster.add(NODES, node("a", pods="10", ready=True))
        other = node("b", cpu="2", pods="10", extended=gpus, unschedulable=True, ready=True)
        await cluster.add(NODES, other)
        await cluster.add(PODS, pod("one", "a", cpu="1", memory="1Gi"))
        await cluster.add(PODS, pod("two", "b", cpu="500m", memory="2Gi"))
        await cluster.add(PODS, pod("ended", "b", cpu="2"))
        await cluster.patch(f"{PODS}/ended/status", {"status": {"phase": "Succeeded"}})
        yield Command("nodes", kubeconfig(tmp_path, cluster.server.url), capsys).beside


def cells(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


async def test_pods_take_what_the_scheduler_counts_them_as(show: Show) -> None:
    code, out, err = await show()
    assert (code, err) == (0, "")
    assert cells(out) == [
        ["NAME", "STATUS", "PODS", "CPU", "CPU%", "MEMORY", "MEMORY%"],
        # The init container needs more than those that run after it.
        ["a", "Ready", "1/10", "1.5/4", "38%", "1Gi/8Gi", "12%"],
        ["b", "Ready,SchedulingDisabled", "1/10", "1.5/2", "75%", "2Gi/8Gi", "25%"],
    ]


async def test_a_wider_table_has_all_resources_and_the_fullest_may_come_first(show: Show) -> None:
    _, out, _ = await show("-o wide --sort-by cpu")
    head, first, second = cells(out)
    assert head[-1] == "NVIDIA.COM/GPU"
    assert (first[0], first[-1]) == ("b", "0/8")
    assert (second[0], second[-1]) == ("a", "-")


@pytest.mark.parametrize(("output", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
async def test_programs_get_exact_amounts(show: Show, output: str, read: Any) -> None:
    _, out, _ = await show(f"a -o {output}")
    amounts = {
        "allocatable": {"cpu": 4000, "memory": 8 << 30, "pods": 10},
        "requested": {"cpu": 1500, "memory": 1 << 30, "pods": 1},
    }
    one = {"name": "a", "ready": True, "unschedulable": False, "pods": 1, **amounts}
    assert read(out) == {"nodes": [one]}


async def test_a_name_of_no_node_is_told(show: Show) -> None:
    assert await show("a nope") == (2, "", "agent-scheduler nodes: node nope does not exist; the cluster has 2 nodes\n")
