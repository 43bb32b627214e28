"""NodeAffinity with an affinity that a profile enforces on all of its pods."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent_scheduler.config import load_text
from agent_scheduler.engine.classview import ClassView
from agent_scheduler.engine.decide import Placement, decide
from agent_scheduler.engine.framework import Profile
from agent_scheduler.engine.nodeinfo import NodeInfo
from agent_scheduler.engine.plugins.node_affinity import REASON, REASON_ENFORCED, NodeAffinity
from agent_scheduler.engine.podinfo import PodInfo
from agent_scheduler.engine.queueing.hints import QueueingHint
from agent_scheduler.engine.refusals import Refusal
from agent_scheduler.engine.snapshot import Snapshot
from agent_scheduler.fastpath.settings import settings_of

from .world import World, node

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def term(key: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}


def requiring(*terms: dict[str, Any]) -> dict[str, Any]:
    return {REQUIRED: {"nodeSelectorTerms": list(terms)}}


def preferring(**weights: int) -> dict[str, Any]:
    """The label `tier` with each of these values, by weight."""
    return {
        PREFERRED: [{"weight": weight, "preference": term("tier", tier)} for tier, weight in weights.items()]
    }


def profile(added: dict[str, Any] | None, base: str = "default-scheduler") -> Profile:
    """As a configuration file makes it."""
    args = {} if added is None else {"addedAffinity": added}
    document = {
        "apiVersion": "agent-scheduler/v1",
        "kind": "SchedulerConfiguration",
        "profiles": [
            {
                "schedulerName": "agent-scheduler",
                "base": base,
                "pluginConfig": [{"name": "NodeAffinity", "args": args}],
            }
        ],
    }
    (made,) = settings_of(load_text(json.dumps(document)), identity="test").profiles
    return made


def view_of(world: World, pod: PodInfo, added: dict[str, Any] | None) -> tuple[ClassView, Snapshot]:
    snapshot = Snapshot(world.ledger)
    view = ClassView(profile(added), pod.cls, snapshot)
    view.refresh(snapshot)
    return view, snapshot


def decided(world: World, pod: PodInfo, added: dict[str, Any] | None) -> Placement | Refusal:
    view, snapshot = view_of(world, pod, added)
    return decide(view, snapshot.columns, candidates=3)


def scores(world: World, pod: PodInfo, added: dict[str, Any] | None) -> dict[str, int]:
    view, snapshot = view_of(world, pod, added)
    rows = view.feasible_rows(snapshot.columns)
    found = view.plugin_scores(snapshot.columns, rows)["NodeAffinity"].tolist()
    names = [each.name for row in rows.tolist() if (each := snapshot.columns.nodes[row]) is not None]
    return dict(zip(names, found, strict=True))


def names(decision: Placement | Refusal) -> list[str]:
    assert isinstance(decision, Placement), decision
    return sorted(candidate.node_name for candidate in decision.candidates)


def pools() -> World:
    return World(
        node("a", labels={"pool": "agents", "disk": "ssd"}),
        node("b", labels={"pool": "agents", "disk": "hdd"}),
        node("c", labels={"pool": "others", "disk": "ssd"}),
    )


def test_a_node_has_to_match_what_is_enforced_and_what_the_pod_asks_for() -> None:
    world, added = pools(), requiring(term("pool", "agents"))
    assert names(decided(world, world.pod(), None)) == ["a", "b", "c"]
    assert names(decided(world, world.pod(), added)) == ["a", "b"]
    assert names(decided(world, world.pod(nodeSelector={"disk": "ssd"}), added)) == ["a"]
    own = {"nodeAffinity": requiring(term("disk", "hdd"))}
    assert names(decided(world, world.pod(affinity=own), added)) == ["b"]


def test_what_is_enforced_is_the_reason_wherever_it_refuses() -> None:
    world = pools()
    decision = decided(world, world.pod(nodeSelector={"disk": "nvme"}), requiring(term("pool", "agents")))
    assert isinstance(decision, Refusal)
    assert decision.message == f"0/3 nodes are available: 1 {REASON_ENFORCED}, 2 {REASON}."
    assert REASON_ENFORCED == "node(s) didn't match scheduler-enforced node affinity"
    assert decision.plugins == {"NodeAffinity"}


def test_an_enforced_selector_without_terms_matches_no_node() -> None:
    world = pools()
    decision = decided(world, world.pod(), requiring())
    assert isinstance(decision, Refusal)
    assert decision.message == f"0/3 nodes are available: 3 {REASON_ENFORCED}."


def test_enforced_preferences_count_beside_those_of_the_pod() -> None:
    world = World(*(node(tier, labels={"tier": tier}) for tier in ("gold", "silver", "tin")))
    added = preferring(gold=30, silver=10)
    # Normalised to the best, and weighted by 2, as by default.
    assert scores(world, world.pod(), added) == {"gold": 200, "silver": 66, "tin": 0}
    pod = world.pod(affinity={"nodeAffinity": preferring(silver=50)})
    assert scores(world, pod, None) == {"gold": 0, "silver": 200, "tin": 0}
    assert scores(world, pod, added) == {"gold": 100, "silver": 200, "tin": 0}


def test_preferences_that_can_make_no_difference_leave_the_score_out() -> None:
    world = pools()
    empty = {
        PREFERRED: [{"weight": 5, "preference": {}}, {"weight": 0, "preference": term("pool", "agents")}]
    }
    view, snapshot = view_of(world, world.pod(), empty)
    rows = view.feasible_rows(snapshot.columns)
    assert "NodeAffinity" not in view.plugin_scores(snapshot.columns, rows)


@pytest.mark.parametrize(
    ("old", "new", "hint"),
    [
        (None, {"pool": "agents", "disk": "ssd"}, QueueingHint.QUEUE),
        (None, {"pool": "others", "disk": "ssd"}, QueueingHint.SKIP),
        (None, {"pool": "agents"}, QueueingHint.SKIP),
        # The pod's own part matched all the time; what was enforced did not.
        ({"pool": "others", "disk": "ssd"}, {"pool": "agents", "disk": "ssd"}, QueueingHint.QUEUE),
        ({"pool": "agents", "disk": "ssd"}, {"pool": "agents", "disk": "ssd", "x": "y"}, QueueingHint.SKIP),
    ],
)
def test_a_pod_is_woken_when_a_node_comes_to_match_both(
    old: dict[str, str] | None, new: dict[str, str], hint: QueueingHint
) -> None:
    (plugin,) = (
        each for each in profile(requiring(term("pool", "agents"))).filters if isinstance(each, NodeAffinity)
    )
    (registered,) = plugin.events_to_register()
    assert registered.hint_fn is not None
    pod = World().pod(nodeSelector={"disk": "ssd"})

    def labelled(labels: dict[str, str] | None) -> NodeInfo | None:
        return None if labels is None else node("n", labels=labels)

    assert registered.hint_fn(pod, labelled(old), labelled(new)) is hint


def test_the_base_of_agents_takes_it_too() -> None:
    world = pools()
    snapshot = Snapshot(world.ledger)
    made = profile(requiring(term("pool", "agents")), base="agent")
    view = ClassView(made, world.pod().cls, snapshot)
    view.refresh(snapshot)
    assert names(decide(view, snapshot.columns, candidates=3)) == ["a", "b"]
