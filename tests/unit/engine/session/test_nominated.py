"""Room that is kept for pods of other schedulers, which a session leaves to them."""

from __future__ import annotations

import pytest

from tests.support.engine import node

from .scene import SCHEDULER, Scene, bound, conf, told


def test_a_node_is_left_to_the_pod_that_is_nominated_there() -> None:
    scene = Scene(node("a", cpu="4"), node("b", cpu="2"))
    scene.nominate("fast", "a", cpu="4")
    scene.gang("g", 2)
    session, _ = scene.run()
    assert bound(session) == {"g-0": "b", "g-1": "b"}
    assert len(scene.cluster.commits) == 1


@pytest.mark.parametrize(("priority", "is_bound"), [(9, False), (10, False), (11, True)])
def test_only_who_is_of_higher_priority_takes_the_room(priority: int, is_bound: bool) -> None:
    scene = Scene(node("a", cpu="4"))
    scene.nominate("fast", "a", cpu="4", priority=10)
    scene.group("g")
    scene.member("g", priority=priority)
    session, result = scene.run()
    assert bool(bound(session)) is is_bound
    if not is_bound:
        (job,) = session.jobs.values()
        (why,) = job.fit_errors.values()
        assert why.plugins == {"NodeResourcesFit"}
        assert told(result)["g-0"][1] == "0/1 nodes are unavailable: 1 Insufficient cpu."


def test_what_is_beside_the_room_is_free() -> None:
    scene = Scene(node("a", cpu="4"))
    scene.nominate("fast", "a", cpu="2")
    scene.gang("g", 3, minMember=1)
    session, _ = scene.run()
    assert sorted(bound(session)) == ["g-0", "g-1"]


def test_what_a_pod_that_is_nominated_keeps_away_stays_away() -> None:
    scene = Scene(node("a", cpu="4", labels={"zone": "z"}), node("b", cpu="1"))
    apart = {"labelSelector": {"matchLabels": {"app": "g"}}, "topologyKey": "zone"}
    scene.nominate(
        "fast", "a", affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    )
    scene.group("g")
    scene.member("g", labels={"app": "g"})
    session, _ = scene.run()
    assert bound(session) == {"g-0": "b"}


def test_room_that_is_to_come_is_shared_with_who_is_nominated() -> None:
    """What leaves makes room for both, and there is no room for the gang before."""
    scene = Scene(node("a", cpu="4"))
    scene.group("old", phase="Running")
    scene.member("old", cpu="2", node="a", deleting=True)
    scene.nominate("fast", "a", cpu="2")
    scene.gang("g", 1, cpu="2")
    session, result = scene.run()
    assert not bound(session)
    assert "once resource is released" in told(result)["g-0"][1]


def test_nobody_is_evicted_for_room_that_is_kept_for_another() -> None:
    scene = Scene(node("a", cpu="2"))
    scene.more["priorities"] = {"high": 10}
    scene.group("low", phase="Running")
    scene.member("low", cpu="2", node="a")
    scene.nominate("fast", "a", cpu="2", priority=100)
    scene.gang("g", 1, cpu="2", priorityClassName="high")
    scene.run(conf("priority", "gang", "predicates", actions="enqueue allocate preempt"))
    assert not scene.cluster.evictions


def test_claims_of_its_own_pods_are_the_sessions_to_decide() -> None:
    scene = Scene(node("a", cpu="2"))
    (pod,) = scene.gang("old", 1, cpu="2")
    scene.nominator.add(pod, "a")
    assert pod.scheduler_name == SCHEDULER
    scene.group("new", created="2025-01-01T00:00:00Z")
    scene.member("new", cpu="2")
    session, _ = scene.run()
    assert bound(session) == {"new-0": "a"}
