"""Who waits with pods that stand by is told what concerns them."""

from __future__ import annotations

from agent_scheduler.cluster.standing_by import StandingBy
from agent_scheduler.engine.state.podclasses import PodClasses
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.objects.batch import GROUP_NAME, STAGE_GATE
from tests.support.engine import pod_json, read_pod

_CLASSES = PodClasses()


def _pod(name: str, group: str, *, stands_by: bool = False) -> PodInfo:
    gates = {"schedulingGates": [{"name": STAGE_GATE}]} if stands_by else {}
    body = pod_json(name, schedulerName="volcano", **gates)
    body["metadata"]["annotations"] = {GROUP_NAME: group}
    return read_pod(body, _CLASSES)


def test_they_are_alone_once_the_last_of_their_group_has_lost_its_room() -> None:
    those = StandingBy()
    first, second, other = (_pod(name, group) for name, group in (("a", "g"), ("b", "g"), ("c", "h")))
    later, others = _pod("d", "g", stands_by=True), _pod("e", "h", stands_by=True)
    pods = [first, second, other, later, others]
    with those.waiting(later.uid) as changed, those.waiting(others.uid) as elsewhere:
        those.member_lost_room(first, pods, {second.uid, other.uid, later.uid, others.uid})
        assert not changed.is_set()
        those.member_lost_room(second, pods, {other.uid, later.uid, others.uid})
        assert changed.is_set()
        assert those.is_alone(later.uid)
        assert not elsewhere.is_set()
        assert not those.is_alone(others.uid)
    # Whoever waits with it again begins anew.
    with those.waiting(later.uid):
        assert not those.is_alone(later.uid)


def test_they_are_told_of_changes_of_their_pods_and_of_nodes_that_go() -> None:
    those = StandingBy()
    pod = _pod("a", "g", stands_by=True)
    with those.waiting(pod.uid) as changed:
        those.pod_changed("another")
        assert not changed.is_set()
        those.pod_changed(pod.uid)
        assert changed.is_set()
        changed.clear()
        those.node_gone()
        assert changed.is_set()
    those.pod_changed(pod.uid)
