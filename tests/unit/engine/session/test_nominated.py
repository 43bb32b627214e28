"""Room that is kept for pods of other schedulers, which a session leaves to them."""

from __future__ import annotations

import pytest

from tests.support.engine import node
from tests.support.terms import beside, pod_term

from .scene import SCHEDULER, Scene, bound, conf, has, runs, sized, told, waits


def test_a_node_is_left_to_the_pod_that_is_nominated_there() -> None:
    scene = sized(4, 2).holding(waits("g", 2))
    scene.nominate("fast", "n0", cpu="4")
    session, _ = scene.run()
    assert bound(session) == {"g-0": "n1", "g-1": "n1"}
    assert len(scene.cluster.commits) == 1


@pytest.mark.parametrize(("priority", "is_bound"), [(9, False), (10, False), (11, True)])
def test_only_who_is_of_higher_priority_takes_the_room(priority: int, is_bound: bool) -> None:
    scene = sized(4).holding(has("g", {"priority": priority}))
    scene.nominate("fast", "n0", cpu="4", priority=10)
    session, result = scene.run()
    assert bool(bound(session)) is is_bound
    if not is_bound:
        (why,) = session.jobs["default/g"].fit_errors.values()
        assert why.plugins == {"NodeResourcesFit"}
        assert told(result)["g-0"][1] == "0/1 nodes are unavailable: 1 Insufficient cpu."


def test_what_is_beside_the_room_is_free() -> None:
    scene = sized(4).holding(waits("g", 3, minMember=1))
    scene.nominate("fast", "n0", cpu="2")
    assert sorted(bound(scene.run()[0])) == ["g-0", "g-1"]


def test_what_a_pod_that_is_nominated_keeps_away_stays_away() -> None:
    scene = Scene(node("a", cpu="4", labels={"zone": "z"}), node("b", cpu="1"))
    scene.nominate("fast", "a", affinity=beside("podAntiAffinity", pod_term("g")))
    session, _ = scene.holding(has("g", {"labels": {"app": "g"}})).run()
    assert bound(session) == {"g-0": "b"}


def test_room_that_is_to_come_is_shared_with_who_is_nominated() -> None:
    """What leaves makes room for both, and there is no room for the gang before."""
    old = has("old", {"cpu": "2", "node": "n0", "deleting": True}, phase="Running")
    scene = sized(4).holding(old, waits("g", cpu="2"))
    scene.nominate("fast", "n0", cpu="2")
    session, result = scene.run()
    assert not bound(session)
    assert "once resource is released" in told(result)["g-0"][1]


def test_nobody_is_evicted_for_room_that_is_kept_for_another() -> None:
    scene = sized(2).holding(runs("low", "n0", cpu="2"), waits("g", cpu="2", priorityClassName="high"))
    scene.more["priorities"] = {"high": 10}
    scene.nominate("fast", "n0", cpu="2", priority=100)
    scene.run(conf("priority", "gang", "predicates", actions="enqueue allocate preempt"))
    assert not scene.cluster.evictions


def test_claims_of_its_own_pods_are_the_sessions_to_decide() -> None:
    scene = sized(2)
    (pod,) = scene.gang("old", 1, cpu="2")
    scene.nominator.add(pod, "n0")
    assert pod.scheduler_name == SCHEDULER
    session, _ = scene.holding(has("new", {"cpu": "2"}, created="2025-01-01T00:00:00Z")).run()
    assert bound(session) == {"new-0": "n0"}
