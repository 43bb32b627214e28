"""PodTopologySpread: which events wake the pods that it refused."""

from __future__ import annotations

from typing import Any

from agent_scheduler.engine.events.hints import QueueingHint
from agent_scheduler.engine.state.podinfo import PodInfo
from tests.support.engine import World, node, wakes
from tests.support.terms import HOSTNAME, ZONE, spread

from .spread_world import FILTER, waiting

WORLD = World()
OTHER, OWN, NODE = range(3)


def hint(event: int, pod: PodInfo, old: object | None, new: object | None) -> bool:
    registered = FILTER.events_to_register()[event]
    assert registered.hint_fn is not None
    said = registered.hint_fn(pod, old, new) is QueueingHint.QUEUE
    # What the index finds is what the hint says; of the pod itself nothing is looked for.
    assert event == OWN or wakes(FILTER, pod, registered.event, old, new) is said
    return said


def info(*constraints: dict[str, Any], **more: Any) -> PodInfo:
    return waiting(WORLD, *constraints, **more)


def test_a_pod_that_is_counted_or_no_longer_is_wakes_those_that_count_it() -> None:
    pod = info(spread(), spread(app="soft", when="ScheduleAnyway"))
    web, db, soft = (info(app=app) for app in ("web", "db", "soft"))
    far = info(app="web", namespace="other")
    assert hint(OTHER, pod, None, web) and hint(OTHER, pod, web, None)
    assert hint(OTHER, pod, web, db) and hint(OTHER, pod, db, web)
    for old, new in ((None, db), (web, web), (db, None), (None, far), (far, None), (soft, None)):
        assert not hint(OTHER, pod, old, new)


def test_who_was_refused_by_default_is_woken_by_any_pod_of_its_namespace() -> None:
    pod = info()
    assert hint(OTHER, pod, None, info(app="x"))
    assert not hint(OTHER, pod, None, info(app="x", namespace="other"))
    assert hint(NODE, pod, None, node("n"))


def test_a_change_of_the_pod_itself_wakes_it_where_it_matters() -> None:
    tolerates = {"tolerations": [{"operator": "Exists"}]}

    def own(*constraints: dict[str, Any], labels: dict[str, str] | None = None, **change: Any) -> bool:
        """Whether a pod with these constraints is woken by a change of its app, its other labels, or its spec."""
        web = {"app": change.pop("app", "web"), **(labels or {})}
        old = WORLD.pod(uid="own", labels={"app": "web"}, topologySpreadConstraints=list(constraints))
        new = WORLD.pod(uid="own", labels=web, topologySpreadConstraints=list(constraints), **change)
        return hint(OWN, old, old, new)

    assert own(spread(), app="db")
    assert not own(spread(app="x"), app="db")
    assert own(spread(nodeTaintsPolicy="Honor"), **tolerates)
    assert not own(spread(), **tolerates)
    assert own(spread(app="x"), spread(HOSTNAME), app="db")
    assert own(spread(), spread(HOSTNAME, nodeTaintsPolicy="Honor"), **tolerates)
    assert own(spread(matchLabelKeys=["v"]), labels={"v": "2"})
    # Others count now, even where it is none of them itself.
    assert own(spread(app="x", matchLabelKeys=["v"]), labels={"v": "2"})
    pod = info(spread())
    assert not hint(OWN, pod, pod, info(spread(), app="db"))


def test_a_node_wakes_a_pod_where_the_count_by_domains_may_be_another() -> None:
    pod = info(spread(), spread(HOSTNAME))
    taints = [{"key": "k", "value": "", "effect": "NoSchedule"}]
    bare, z1, z2 = node("n"), node("n", labels={ZONE: "z1"}), node("n", labels={ZONE: "z2"})
    tainted = node("n", labels={ZONE: "z1"}, taints=taints)
    faster = node("n", labels={ZONE: "z1", "disk": "ssd"})
    for old, new in ((None, z1), (z1, None), (bare, z1), (z1, bare), (z1, z2)):
        assert hint(NODE, pod, old, new)
    for old, new in ((None, bare), (bare, None), (bare, bare), (z1, z1), (z1, tainted), (z1, faster)):
        assert not hint(NODE, pod, old, new)
    honors = info(spread(nodeTaintsPolicy="Honor"))
    assert hint(NODE, honors, z1, tainted) and hint(NODE, honors, tainted, z1)
    choosy = info(spread(), nodeSelector={"disk": "ssd"})
    assert hint(NODE, choosy, faster, z1) and not hint(NODE, choosy, z1, tainted)
