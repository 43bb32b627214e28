"""NodeAffinity with an affinity that a profile enforces on all of its pods."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent_scheduler.config.load import load_text
from agent_scheduler.engine.decide.classview import ClassView
from agent_scheduler.engine.decide.decide import CandidateNodes, decide
from agent_scheduler.engine.decide.refusals import Refusal
from agent_scheduler.engine.decide.snapshot import Snapshot
from agent_scheduler.engine.events.hints import QueueingHint
from agent_scheduler.engine.framework.plugin import PodUnrankable, Profile
from agent_scheduler.engine.plugins.node_affinity import REASON, REASON_ENFORCED, REASON_NAMED, NodeAffinity
from agent_scheduler.engine.state.nodeinfo import NodeInfo
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.fastpath.settings import settings_of
from tests.support.engine import World, node

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


def decided(world: World, pod: PodInfo, added: dict[str, Any] | None) -> CandidateNodes | Refusal:
    view, snapshot = view_of(world, pod, added)
    return decide(view, snapshot.columns, candidates=3)


def scores(world: World, pod: PodInfo, added: dict[str, Any] | None) -> dict[str, int]:
    view, snapshot = view_of(world, pod, added)
    rows = view.feasible_rows(snapshot.columns)
    found = view.plugin_scores(snapshot.columns, rows)["NodeAffinity"].tolist()
    names = [each.name for row in rows.tolist() if (each := snapshot.columns.nodes[row]) is not None]
    return dict(zip(names, found, strict=True))


def names(decision: CandidateNodes | Refusal) -> list[str]:
    assert isinstance(decision, CandidateNodes), decision
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


def compared(operator: str, value: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": "gen", "operator": operator, "values": [value]}]}


def generations() -> World:
    return World(*(node(f"n{gen}", labels={"gen": str(gen), "disk": "ssd"}) for gen in (1, 5, 9)))


@pytest.mark.parametrize("value", ["x", "1.5", "", "99999999999999999999", "-1"])
@pytest.mark.parametrize("operator", ["Gt", "Lt"])
def test_a_comparison_with_what_is_no_integer_or_no_label_voids_its_term_and_no_other(
    operator: str, value: str
) -> None:
    world = generations()
    void = compared(operator, value)
    void["matchExpressions"].append({"key": "disk", "operator": "In", "values": ["ssd"]})
    alone = decided(world, world.pod(affinity={"nodeAffinity": requiring(void)}), None)
    assert isinstance(alone, Refusal)
    assert alone.message == f"0/3 nodes are available: 3 {REASON}."
    both = world.pod(affinity={"nodeAffinity": requiring(void, compared("Gt", "4"))})
    assert names(decided(world, both, None)) == ["n5", "n9"]


def test_the_nodes_that_a_void_term_names_are_the_ones_that_are_looked_at() -> None:
    world = generations()
    void = compared("Gt", "x")
    void["matchFields"] = [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]
    decision = decided(world, world.pod(affinity={"nodeAffinity": requiring(void)}), None)
    assert isinstance(decision, Refusal)
    assert decision.message == f"0/3 nodes are available: 1 {REASON}, 2 {REASON_NAMED}."


INTEGER = "for 'Gt', 'Lt' operators, the value must be an integer"


def test_preferences_without_meaning_are_an_error_where_there_is_something_to_rank() -> None:
    world = generations()
    preferred = [
        {"weight": 0, "preference": compared("Gt", "nobody looks")},
        {"weight": 1, "preference": compared("Gt", "x")},
        {"weight": 2, "preference": compared("Lt", "5")},
        {"weight": 3, "preference": compared("Lt", "4y")},
    ]
    pod = world.pod(affinity={"nodeAffinity": {PREFERRED: preferred}})
    with pytest.raises(PodUnrankable) as error:
        decided(world, pod, None)
    at = "matchExpressions[0].values[0]: Invalid value"
    assert str(error.value) == (
        f'running PreScore plugin "NodeAffinity": [[1].{at}: "x": {INTEGER}, [3].{at}: "4y": {INTEGER}]'
    )
    one = world.pod(affinity={"nodeAffinity": {PREFERRED: preferred[:2]}})
    with pytest.raises(PodUnrankable) as error:
        decided(world, one, None)
    assert str(error.value) == f'running PreScore plugin "NodeAffinity": [1].{at}: "x": {INTEGER}'
    single = requiring(compared("Gt", "8"))
    alone = world.pod(affinity={"nodeAffinity": {PREFERRED: preferred, **single}})
    assert names(decided(world, alone, None)) == ["n9"]
    nowhere = requiring(compared("Gt", "9"))
    refused = world.pod(affinity={"nodeAffinity": {PREFERRED: preferred, **nowhere}})
    assert isinstance(decided(world, refused, None), Refusal)


def test_a_pod_that_is_nominated_goes_there_whatever_its_preferences_are() -> None:
    world = generations()
    pod = world.pod(
        affinity={"nodeAffinity": {PREFERRED: [{"weight": 1, "preference": compared("Gt", "x")}]}}
    )
    view, snapshot = view_of(world, pod, None)
    decision = decide(view, snapshot.columns, candidates=1, nominated=world.ledger.rows["n5"])
    assert names(decision) == ["n5"]
    taken = [world.ledger.rows[name] for name in ("n1", "n5")]
    assert names(decide(view, snapshot.columns, candidates=3, taken=taken)) == ["n9"]


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
