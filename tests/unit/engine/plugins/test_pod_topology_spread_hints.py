"""PodTopologySpread: which events wake the pods that it refused."""

from __future__ import annotations

from typing import Any

from agent_scheduler.engine.events.hints import QueueingHint
from agent_scheduler.engine.state.podclasses import PodClasses
from agent_scheduler.engine.state.podinfo import PodInfo
from tests.support.engine import node, read_pod

from .spread_world import (
    FILTER,
    HOSTNAME,
    ZONE,
    constraint,
    pod_with,
)


def hint(event: int, pod: PodInfo, old: object | None, new: object | None) -> bool:
    registered = FILTER.events_to_register()[event]
    assert registered.hint_fn is not None
    return registered.hint_fn(pod, old, new) is QueueingHint.QUEUE


OTHER, OWN, NODE = range(3)


def info(body: dict[str, Any], **metadata: Any) -> PodInfo:
    body["metadata"] |= metadata
    return read_pod(body, PodClasses())


def test_a_pod_that_is_counted_or_no_longer_is_wakes_those_that_count_it() -> None:
    waiting = info(pod_with(constraint(), constraint(app="soft", whenUnsatisfiable="ScheduleAnyway")))
    web, db, soft = (info(pod_with(app=app)) for app in ("web", "db", "soft"))
    far = info(pod_with(app="web"), namespace="other")
    assert hint(OTHER, waiting, None, web) and hint(OTHER, waiting, web, None)
    assert hint(OTHER, waiting, web, db) and hint(OTHER, waiting, db, web)
    for old, new in ((None, db), (web, web), (db, None), (None, far), (far, None), (soft, None)):
        assert not hint(OTHER, waiting, old, new)


def test_who_was_refused_by_default_is_woken_by_any_pod_of_its_namespace() -> None:
    waiting = info(pod_with())
    assert hint(OTHER, waiting, None, info(pod_with(app="x")))
    assert not hint(OTHER, waiting, None, info(pod_with(app="x"), namespace="other"))
    assert hint(NODE, waiting, None, node("n"))


def test_a_change_of_the_pod_itself_wakes_it_where_it_matters() -> None:
    by_version = constraint(matchLabelKeys=["v"])
    honors = constraint(nodeTaintsPolicy="Honor")
    tolerates = {"tolerations": [{"operator": "Exists"}]}

    def own(old: dict[str, Any], new: dict[str, Any]) -> bool:
        before = info(old, uid="own")
        return hint(OWN, before, before, info(new, uid="own"))

    assert own(pod_with(constraint()), pod_with(constraint(), app="db"))
    assert not own(pod_with(constraint(app="x")), pod_with(constraint(app="x"), app="db"))
    assert own(pod_with(honors), pod_with(honors, **tolerates))
    assert not own(pod_with(constraint()), pod_with(constraint(), **tolerates))
    labelled = pod_with(by_version)
    labelled["metadata"]["labels"]["v"] = "2"
    assert own(pod_with(by_version), labelled)
    # Others count now, even where it is none of them itself.
    others = constraint(app="x", matchLabelKeys=["v"])
    labelled = pod_with(others)
    labelled["metadata"]["labels"]["v"] = "2"
    assert own(pod_with(others), labelled)
    waiting = info(pod_with(constraint()))
    assert not hint(OWN, waiting, waiting, info(pod_with(constraint(), app="db")))


def test_a_node_wakes_a_pod_where_the_count_by_domains_may_be_another() -> None:
    waiting = info(pod_with(constraint(), constraint(HOSTNAME)))
    taints = [{"key": "k", "value": "", "effect": "NoSchedule"}]
    bare, z1, z2 = node("n"), node("n", labels={ZONE: "z1"}), node("n", labels={ZONE: "z2"})
    tainted = node("n", labels={ZONE: "z1"}, taints=taints)
    faster = node("n", labels={ZONE: "z1", "disk": "ssd"})
    for old, new in ((None, z1), (z1, None), (bare, z1), (z1, bare), (z1, z2)):
        assert hint(NODE, waiting, old, new)
    for old, new in ((None, bare), (bare, None), (bare, bare), (z1, z1), (z1, tainted), (z1, faster)):
        assert not hint(NODE, waiting, old, new)
    honors = info(pod_with(constraint(nodeTaintsPolicy="Honor")))
    assert hint(NODE, honors, z1, tainted) and hint(NODE, honors, tainted, z1)
    choosy = info(pod_with(constraint(), nodeSelector={"disk": "ssd"}))
    assert hint(NODE, choosy, faster, z1) and not hint(NODE, choosy, z1, tainted)
