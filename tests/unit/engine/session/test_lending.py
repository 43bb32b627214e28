"""Room that is lent beyond shares: to whom, what is kept from them, and whom others are evicted for."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest

from agent_scheduler.engine.queues.entries import Standing
from agent_scheduler.engine.session.conf import PluginOption, SessionConf
from agent_scheduler.objects.batch import PREEMPTABLE, QUEUE_ALLOCATION_GATE
from tests.support.engine import queue_of
from tests.unit.engine.session.scene import Part, Scene, bound, claimed, conf, evicted, has, runs, sized, told, waits

NEVER: dict[str, Any] = {"preemptionPolicy": "Never"}
STAYS: dict[str, Any] = {"annotations": {PREEMPTABLE: "false"}}
GATED: dict[str, Any] = {"schedulingGates": [{"name": QUEUE_ALLOCATION_GATE}]}
OPTS_IN: dict[str, Any] = {"annotations": {QUEUE_ALLOCATION_GATE: "true"}}
KEPT = "0/2 nodes are unavailable: 1 Insufficient cpu, 1 node(s) kept for pods within the share of their queue."


def how(actions: str = "enqueue allocate", *plugins: str) -> SessionConf:
    named = ("priority", "gang", "predicates", *(plugins or ("proportion",)), "nodeorder")
    return conf(*map(PluginOption, named), actions=actions, work_conserving=True)


def scene(*parts: Part, cpus: tuple[int, ...] = (6, 4), **of_a: Any) -> Scene:
    made = sized(*cpus)
    made.queues += [queue_of("a", "root", **of_a), queue_of("b", "root")]
    made.more["priorities"] = {"low": 1, "high": 2}
    return made.holding(*parts)


def whose(names: object) -> set[str]:
    return {str(name).rpartition("-")[0] for name in names}  # type: ignore[attr-defined]


#: The share of a and b is 5 each. b has 6 of the 10 cpus; a waits by right for 5 on one node, which none has now.
HELD = runs("held", *["n0"] * 3, *["n1"] * 3, queue="b")
LARGE = {"cpu": "5"}


@pytest.mark.parametrize(
    ("part", "actions", "of_b", "expected"),
    [
        (waits("large", 1, queue="a", **LARGE), "enqueue allocate", {}, False),
        (waits("large", 1, queue="a", cpu="7"), "enqueue allocate", {}, True),
        (waits("other", 1, queue="a", cpu="1"), "enqueue allocate", {}, True),
        (waits("large", 1, queue="a", **LARGE), "enqueue allocate reclaim", {}, True),
        (waits("large", 1, queue="a", **LARGE), "enqueue allocate reclaim", STAYS, False),
        (has("large", {**LARGE, **NEVER}, queue="a"), "enqueue allocate reclaim", {}, False),
        (has("large", {**LARGE, **GATED, **OPTS_IN}, queue="a"), "enqueue allocate", {}, False),
        # Nobody removes the gate of a pod that does not opt in.
        (has("large", {**LARGE, **GATED}, queue="a"), "enqueue allocate", {}, True),
        (has("large", {"cpu": "2"}, {"cpu": "2", **GATED}, queue="a", minMember=2), "allocate", {}, True),
    ],
)
def test_nodes_are_kept_for_jobs_within_their_queues_share_that_cannot_take_them_back(
    part: Part, actions: str, of_b: dict[str, Any], expected: bool
) -> None:
    made = scene(HELD, part, has("more", {"cpu": "2", **of_b}, queue="b"))
    session, _ = made.run(how(actions))
    assert ("more" in whose(bound(session))) is expected


def test_a_member_whose_bind_is_refused_is_not_tried_again_in_the_session_that_lends_it_room() -> None:
    made = scene(HELD, waits("large", 1, queue="a", cpu="7"), has("more", {}, {}, queue="b"))
    made.cluster.refused.add("more-0")
    for _ in islice(made.session(how()).run(), 1000):
        pass
    assert [names for _, names, _ in made.cluster.commits] == [["more-0"], ["more-1"]]


GPU = "nvidia.com/gpu"
#: From pods with a label, on its node.
AWAY = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "kubernetes.io/hostname"}
        ]
    }
}


@pytest.mark.parametrize(
    ("of_a", "of_b", "expected"),
    [
        ({"cpu": "1"}, {"cpu": "2"}, True),
        ({"cpu": "3"}, {"cpu": "2"}, True),
        ({"cpu": "4"}, {"cpu": "2"}, False),
        ({"cpu": "1"}, {"cpu": "5"}, False),
        ({"cpu": "1"}, {"cpu": "1", GPU: "1"}, False),
        ({"cpu": "1", "affinity": AWAY}, {"cpu": "2"}, False),
    ],
)
def test_what_somebody_within_the_share_needs_of_a_node_is_kept_and_the_rest_is_lent(
    of_a: dict[str, Any], of_b: dict[str, Any], expected: bool
) -> None:
    """Of 10 cpus and 4 GPUs each queue has a right to half. b has 5 and 3 of them; pods of a wait for 2 GPUs each."""
    made = sized(10, extended={GPU: "4"})
    made.queues += [queue_of("a", "root"), queue_of("b", "root")]
    held = [{"requests": {"cpu": "1", **({GPU: "1"} if each < 3 else {})}, "node": "n0"} for each in range(5)]
    terms = {"affinity": of_a["affinity"]} if "affinity" in of_a else {}
    made.holding(
        has("held", *held, queue="b", phase="Running"),
        has("large", *[{"requests": {"cpu": of_a["cpu"], GPU: "2"}, **terms}] * 5, queue="a"),
        has("more", {"requests": of_b}, queue="b"),
    )
    session, _ = made.run(how())
    assert ("more" in whose(bound(session))) is expected


def test_who_is_kept_from_nodes_is_told_so() -> None:
    made = scene(HELD, waits("large", 1, queue="a", **LARGE), waits("more", queue="b", cpu="2"), cpus=(6, 4))
    _, result = made.run(how())
    assert told(result)["more-0"] == ("Unschedulable", KEPT)


@pytest.mark.parametrize(("of_a", "first"), [({}, "older"), ({"priority": 1}, "of-a"), ({"weight": 3}, "older")])
def test_of_queues_that_are_alike_the_one_with_the_oldest_job_is_lent_room_first(
    of_a: dict[str, Any], first: str
) -> None:
    made = scene(waits("older", 8, queue="b"), waits("of-a", 9, queue="a"), cpus=(10,), **of_a)
    assert whose(bound(made.run(how())[0])) == {first}


@pytest.mark.parametrize("number", [1, 2])
def test_for_a_pod_that_waits_for_others_to_leave_its_queue_nobody_else_is_evicted(number: int) -> None:
    made = scene(runs("low", *["n0"] * 3, priorityClassName="low", queue="a"), cpus=(8,), capability=3000)
    made.members[made.groups[0].key].pop()
    made.member("low", node="n0", deleting=True)
    made.gang("high", number, priorityClassName="high", queue="a")
    session, _ = made.run(how("enqueue allocate preempt", "capacity"), book=made.book(bound=True))
    assert (len(evicted(session)), len(claimed(session)), bound(session)) == (number - 1, number, {})


@pytest.mark.parametrize("actions", ["preempt allocate", "reclaim allocate", "allocate preempt"])
def test_nobody_is_evicted_for_a_pod_that_another_node_has_room_for_and_it_is_bound(actions: str) -> None:
    low = runs("low", "n0", priorityClassName="low", queue="a" if "preempt" in actions else "b")
    made = scene(low, waits("high", priorityClassName="high", queue="a"), cpus=(1, 1))
    session, _ = made.run(how(actions))
    assert (evicted(session), bound(session)) == ([], {"high-0": "n1"})


@pytest.mark.parametrize(("wanted", "conserving", "gone"), [(5, True, 6), (6, True, 0), (5, False, 0)])
def test_a_gang_that_was_lent_room_goes_whole_for_a_job_within_its_queues_share_alone(
    wanted: int, conserving: bool, gone: int
) -> None:
    made = scene(runs("lent", *["n0"] * 6, queue="a", minMember=6), waits("g", wanted, queue="b"), cpus=(10,))
    (plugins,) = how().tiers
    tiers = (plugins[:2], plugins[2:])
    rules = SessionConf(actions=("allocate", "reclaim"), tiers=tiers, work_conserving=conserving)
    session, _ = made.run(rules)
    assert len(evicted(session)) == gone


@pytest.mark.parametrize("of_older", [{**GATED, **OPTS_IN}, {}])
def test_room_is_lent_to_the_member_for_which_room_in_its_queue_is_kept(of_older: dict[str, Any]) -> None:
    """Its queue has room for it alone, which the older one would wait for for ever, behind its gate or without one."""
    made = scene(waits("other", 1, cpu="9", queue="a"), cpus=(4,))
    made.queues[-1] = queue_of("b", "root", capability={"cpu": 3000})
    made.group("g", queue="b", phase="Inqueue")
    made.member("g", cpu="3", **of_older)
    let_in = made.member("g", cpu="3")
    book = made.book()
    book.set(let_in.uid, "b", {"cpu": 3000}, Standing.RESERVED)
    session, _ = made.run(how(), book=book)
    assert bound(session) == {"g-1": "n0"}


def test_a_member_without_its_gang_has_no_claim() -> None:
    gated = {"schedulingGates": [{"name": "example.com/wait"}]}
    made = scene(has("g", {}, gated, queue="a", minMember=2))
    assert claimed(made.run(how("enqueue allocate preempt"))[0]) == {}


@pytest.mark.parametrize(("priority", "first"), [("low", "claims"), ("high", "other")])
def test_who_was_evicted_does_not_come_before_the_pod_that_it_was_evicted_for(priority: str, first: str) -> None:
    made = scene(cpus=(1,))
    made.gang("other", 1, queue="a", priorityClassName=priority)
    made.group("claims", queue="b" if priority == "low" else "a", priorityClassName="low")
    made.member("claims", status={"nominatedNodeName": "n0"})
    assert whose(bound(made.run(how("enqueue allocate", "drf"))[0])) == {first}
