"""Homes of pods: spread evenly, the same everywhere, and few that move."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from agent_scheduler.engine.podclass import PodClasses
from agent_scheduler.engine.podinfo import PodInfo
from agent_scheduler.engine.shards.homes import SLOTS, Homes
from tests.unit.engine.world import read_pod


def pod(number: int, **spec: Any) -> PodInfo:
    return read_pod(
        {
            "metadata": {"name": f"p{number}", "namespace": "one", "uid": f"uid-{number}"},
            "spec": {"containers": [{"name": "c"}], **spec},
        },
        PodClasses(),
    )


PODS = [pod(number) for number in range(2000)]


def test_pods_are_spread_evenly() -> None:
    homes = Homes().among([0, 3, 7])
    count = Counter(homes.of(each) for each in PODS)
    assert count.keys() == {0, 3, 7}
    assert max(count.values()) < 1.2 * min(count.values())


def test_when_a_process_ends_only_its_own_pods_move_and_when_it_is_back_they_move_to_it_alone() -> None:
    three = Homes().among([0, 1, 2])
    two = three.among([0, 2])
    assert all(two.of(each) == three.of(each) for each in PODS if three.of(each) != 1)
    again = two.among([0, 1, 2])
    assert all(again.of(each) in (1, two.of(each)) for each in PODS)
    assert Counter(again.slots).total() == SLOTS


def test_without_processes_no_pod_has_a_home() -> None:
    assert Homes().of(PODS[0]) is None
    assert Homes().among([0]).among([]).of(PODS[0]) is None


def test_homes_do_not_depend_on_the_process_that_asks() -> None:
    # A hash that is seeded anew by every interpreter would give other numbers.
    homes = Homes().among([0, 1])
    assert [homes.of(each) for each in PODS[:8]] == [0, 0, 0, 0, 1, 1, 1, 1]


def test_pods_with_rules_about_others_have_the_home_of_their_namespace() -> None:
    term = {"labelSelector": {"matchLabels": {"app": "a"}}, "topologyKey": "zone"}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    homes = Homes().among(range(8))
    assert len({homes.of(pod(number, affinity=affinity)) for number in range(20)}) == 1
    assert len({homes.of(pod(number)) for number in range(20)}) > 1


def test_slots_are_all_or_none() -> None:
    with pytest.raises(ValueError, match="1024 slots, not 3"):
        Homes((0, 1, 0))
