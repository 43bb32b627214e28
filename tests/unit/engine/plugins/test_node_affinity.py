"""NodeAffinity with an affinity that a profile enforces on all of its pods."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent_scheduler.config.load import load_text
from agent_scheduler.engine.decide.decide import CandidateNodes, decide
from agent_scheduler.engine.events import events as ev
from agent_scheduler.engine.framework.plugin import PodUnrankable, Profile
from agent_scheduler.engine.plugins.node_affinity import REASON, REASON_ENFORCED, REASON_NAMED, NodeAffinity
from agent_scheduler.engine.state.nodeinfo import NodeInfo
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.fastpath.settings import settings_of
from tests.support.engine import World, node, wakes
from tests.support.terms import PREFERRED, expression, preferring, requiring, term


def tiers(**weights: int) -> dict[str, Any]:
    """The label `tier` with each of these values, by weight."""
    return preferring(*((weight, term("tier", tier)) for tier, weight in weights.items()))


def profile(added: dict[str, Any] | None, base: str = "default-scheduler") -> Profile:
    """As a configuration file makes it."""
    args = {} if added is None else {"addedAffinity": added}
    document = {
        "apiVersion": "agent-scheduler/v1",
        "kind": "SchedulerConfiguration",
        "profiles": [
            {"schedulerName": "agent-scheduler", "base": base, "pluginConfig": [{"name": "NodeAffinity", "args": args}]}
        ],
    }
    (made,) = settings_of(load_text(json.dumps(document)), identity="test").profiles
    return made


def scores(world: World, pod: PodInfo) -> dict[str, int]:
    view, columns = world.view(pod), world.snapshot.columns
    found = view.plugin_scores(columns, view.feasible_rows(columns))["NodeAffinity"].tolist()
    return dict(zip(world.ledger.rows, found, strict=True))


def pools(added: dict[str, Any] | None = None, **more: Any) -> World:
    """Nodes of two pools, and a profile that adds an affinity."""
    return World(
        node("a", labels={"pool": "agents", "disk": "ssd"}),
        node("b", labels={"pool": "agents", "disk": "hdd"}),
        node("c", labels={"pool": "others", "disk": "ssd"}),
        profile=profile(added, **more),
    )


AGENTS = requiring(term("pool", "agents"))


def test_a_node_has_to_match_what_is_enforced_and_what_the_pod_asks_for() -> None:
    free, world = pools(), pools(AGENTS)
    assert free.chosen(free.pod()) == ["a", "b", "c"]
    assert world.chosen(world.pod()) == ["a", "b"]
    assert world.chosen(world.pod(nodeSelector={"disk": "ssd"})) == ["a"]
    own = {"nodeAffinity": requiring(term("disk", "hdd"))}
    assert world.chosen(world.pod(affinity=own)) == ["b"]


def test_what_is_enforced_is_the_reason_wherever_it_refuses() -> None:
    world = pools(AGENTS)
    decision = world.refusal(world.pod(nodeSelector={"disk": "nvme"}))
    assert decision.message == f"0/3 nodes are available: 1 {REASON_ENFORCED}, 2 {REASON}."
    assert REASON_ENFORCED == "node(s) didn't match scheduler-enforced node affinity"
    assert decision.plugins == {"NodeAffinity"}


def test_an_enforced_selector_without_terms_matches_no_node() -> None:
    world = pools(requiring())
    assert world.message(world.pod()) == f"0/3 nodes are available: 3 {REASON_ENFORCED}."


def test_enforced_preferences_count_beside_those_of_the_pod() -> None:
    nodes = [node(tier, labels={"tier": tier}) for tier in ("gold", "silver", "tin")]
    free, world = (World(*nodes, profile=profile(each)) for each in (None, tiers(gold=30, silver=10)))
    # Normalised to the best, and weighted by 2, as by default.
    assert scores(world, world.pod()) == {"gold": 200, "silver": 66, "tin": 0}
    affinity = {"nodeAffinity": tiers(silver=50)}
    assert scores(free, free.pod(affinity=affinity)) == {"gold": 0, "silver": 200, "tin": 0}
    assert scores(world, world.pod(affinity=affinity)) == {"gold": 100, "silver": 200, "tin": 0}


def test_preferences_that_can_make_no_difference_leave_the_score_out() -> None:
    world = pools(preferring((5, {}), (0, term("pool", "agents"))))
    view, columns = world.view(world.pod()), world.snapshot.columns
    assert "NodeAffinity" not in view.plugin_scores(columns, view.feasible_rows(columns))


def compared(operator: str, value: str) -> dict[str, Any]:
    return term("gen", value, operator=operator)


def generations() -> World:
    nodes = (node(f"n{gen}", labels={"gen": str(gen), "disk": "ssd"}) for gen in (1, 5, 9))
    return World(*nodes, profile=profile(None))


@pytest.mark.parametrize("value", ["x", "1.5", "", "99999999999999999999", "-1"])
@pytest.mark.parametrize("operator", ["Gt", "Lt"])
def test_a_comparison_with_what_is_no_integer_or_no_label_voids_its_term_and_no_other(
    operator: str, value: str
) -> None:
    world = generations()
    void = compared(operator, value)
    void["matchExpressions"].append(expression("disk", "ssd"))
    alone = world.pod(affinity={"nodeAffinity": requiring(void)})
    assert world.message(alone) == f"0/3 nodes are available: 3 {REASON}."
    both = world.pod(affinity={"nodeAffinity": requiring(void, compared("Gt", "4"))})
    assert world.chosen(both) == ["n5", "n9"]


def test_the_nodes_that_a_void_term_names_are_the_ones_that_are_looked_at() -> None:
    world = generations()
    void = compared("Gt", "x")
    void["matchFields"] = [expression("metadata.name", "n1")]
    pod = world.pod(affinity={"nodeAffinity": requiring(void)})
    assert world.message(pod) == f"0/3 nodes are available: 1 {REASON}, 2 {REASON_NAMED}."


INTEGER = "for 'Gt', 'Lt' operators, the value must be an integer"


def test_preferences_without_meaning_are_an_error_where_there_is_something_to_rank() -> None:
    world = generations()
    preferred = preferring(
        (0, compared("Gt", "nobody looks")),
        (1, compared("Gt", "x")),
        (2, compared("Lt", "5")),
        (3, compared("Lt", "4y")),
    )
    pod = world.pod(affinity={"nodeAffinity": preferred})
    with pytest.raises(PodUnrankable) as error:
        world.decide(pod)
    at = "matchExpressions[0].values[0]: Invalid value"
    assert str(error.value) == (
        f'running PreScore plugin "NodeAffinity": [[1].{at}: "x": {INTEGER}, [3].{at}: "4y": {INTEGER}]'
    )
    one = world.pod(affinity={"nodeAffinity": {PREFERRED: preferred[PREFERRED][:2]}})
    with pytest.raises(PodUnrankable) as error:
        world.decide(one)
    assert str(error.value) == f'running PreScore plugin "NodeAffinity": [1].{at}: "x": {INTEGER}'
    single = requiring(compared("Gt", "8"))
    alone = world.pod(affinity={"nodeAffinity": {**preferred, **single}})
    assert world.chosen(alone) == ["n9"]
    nowhere = requiring(compared("Gt", "9"))
    refused = world.pod(affinity={"nodeAffinity": {**preferred, **nowhere}})
    assert not world.feasible(refused)


def test_a_pod_that_is_nominated_goes_there_whatever_its_preferences_are() -> None:
    world = generations()
    pod = world.pod(affinity={"nodeAffinity": preferring((1, compared("Gt", "x")))})
    view, columns = world.view(pod), world.snapshot.columns
    assert world.chosen(pod, candidates=1, nominated=world.ledger.rows["n5"]) == ["n5"]
    taken = [world.ledger.rows[name] for name in ("n1", "n5")]
    decision = decide(view, columns, candidates=3, taken=taken)
    assert isinstance(decision, CandidateNodes)
    assert [each.node_name for each in decision.candidates] == ["n9"]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (None, {"pool": "agents", "disk": "ssd"}, True),
        (None, {"pool": "others", "disk": "ssd"}, False),
        (None, {"pool": "agents"}, False),
        # The pod's own part matched all the time; what was enforced did not.
        ({"pool": "others", "disk": "ssd"}, {"pool": "agents", "disk": "ssd"}, True),
        ({"pool": "agents", "disk": "ssd"}, {"pool": "agents", "disk": "ssd", "x": "y"}, False),
    ],
)
def test_a_pod_is_woken_when_a_node_comes_to_match_both(
    old: dict[str, str] | None, new: dict[str, str], expected: bool
) -> None:
    (plugin,) = (each for each in profile(AGENTS).filters if isinstance(each, NodeAffinity))
    terms = requiring(term("zone", "z", "y", "x"), {"matchExpressions": [expression("disk", "ssd")]})
    pods = [World().pod(nodeSelector={"disk": "ssd"}), World().pod(affinity={"nodeAffinity": terms})]

    def labelled(labels: dict[str, str] | None) -> NodeInfo | None:
        return None if labels is None else node("n", labels=labels)

    event = ev.NODE_ADD if old is None else ev.NODE_UPDATE_LABEL
    for pod in pods:
        assert wakes(plugin, pod, event, labelled(old), labelled(new)) is expected


def test_the_base_of_agents_takes_it_too() -> None:
    world = pools(AGENTS, base="agent")
    assert world.chosen(world.pod()) == ["a", "b"]
