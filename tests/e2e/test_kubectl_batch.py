"""What kubectl shows of queues and groups of pods, which is what it shows with Volcano's own kinds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.batched import CRDS, pod_group, queue

from .kubectl import Kubectl, cluster


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    folder: Path = tmp_path_factory.mktemp("kubectl")
    with cluster(folder) as found:
        for file in CRDS:
            found("apply", "-f", str(file))
        found("wait", "--for=condition=Established", *(f"crd/{each}.scheduling.volcano.sh" for each in NAMES))
        yield found


NAMES = ("queues", "podgroups")


def test_queues_and_groups_have_the_columns_of_volcano(kubectl: Kubectl) -> None:
    kubectl.apply(queue("research", parent="root", capability={"cpu": 4}))
    kubectl.apply(
        pod_group("train", minMember=3, queue="research", status={"phase": "Inqueue", "running": 2})
    )
    assert rows(kubectl("get", "q")) == [["NAME", "PARENT"], ["research", "root"]]
    names, row = rows(kubectl("get", "pg"))
    assert (names, row[:4]) == (
        ["NAME", "STATUS", "MINMEMBER", "RUNNINGS", "AGE"],
        ["train", "Inqueue", "3", "2"],
    )
    names, row = rows(kubectl("get", "podgroup-v1beta1", "-o", "wide"))
    assert (names[-1], row[-1]) == ("QUEUE", "research")
    assert "queue.scheduling.volcano.sh/research" in kubectl("get", "queue,podgroup")


def test_explain_tells_what_a_field_is_for(kubectl: Kubectl) -> None:
    assert "before others take it back" in kubectl("explain", "queue.spec.deserved")
    assert "before any of them is bound" in kubectl("explain", "podgroup.spec.minMember")


def rows(table: str) -> list[list[str]]:
    return [line.split() for line in table.splitlines()]
