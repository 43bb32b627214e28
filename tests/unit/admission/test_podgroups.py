"""PodGroups: the queue of their namespace, and queues that take none."""

from __future__ import annotations

from typing import Any

import pytest

from agent_scheduler.admission.podgroups import mutate, validate
from tests.support import objects
from tests.support.reviews import known, patched, queue, request

NAMESPACES = {"default": {"scheduling.volcano.sh/queue-name": "research"}, "plain": {}}


def group(queue_name: str = "default", **more: Any) -> Any:
    return objects.pod_group("it", **{"queue": queue_name, **more})


def test_a_group_in_the_default_queue_is_put_into_its_namespaces() -> None:
    made = group()
    assert patched(made, mutate(request(made), NAMESPACES))["spec"]["queue"] == "research"
    named = group(namespace="default")
    assert patched(named, mutate(request(named, namespace=""), NAMESPACES))["spec"]["queue"] == "research"


@pytest.mark.parametrize(("queue_name", "namespace"), [("own", "default"), ("default", "plain"), ("default", "none")])
def test_any_other_stays_where_it_is(queue_name: str, namespace: str) -> None:
    assert mutate(request(group(queue_name), namespace=namespace), NAMESPACES).patch == ()


def test_a_group_is_let_into_an_open_queue_alone() -> None:
    queues = known(queue("open"), queue("shut", state="Closed"))
    assert validate(request(group("open")), queues).allowed
    assert validate(request(group("")), queues).allowed
    assert validate(request(group("shut")), queues).message == (
        "can only submit PodGroup to queue with state `Open`, queue `shut` status is `Closed`."
    )
    assert validate(request(group("none")), queues).message == (
        'unable to find queue: queue.scheduling.volcano.sh "none" not found'
    )


def test_a_group_is_refused_where_its_queue_or_the_closest_above_lists_other_namespaces() -> None:
    listed = {"agent-scheduler.io/namespaces": "team", "agent-scheduler.io/namespace-selector": "tier=gold"}
    queues = known(queue("above", annotations=listed), queue("q", parent="above"))
    made = group("q")
    assert validate(request(made, namespace="default"), queues).message == (
        "namespace default is not among those that may use queue q"
    )
    assert validate(request(made, namespace="team"), queues).allowed
    assert validate(request(made, namespace="default"), queues, {"default": {"tier": "gold"}}).allowed
    round_about = known(queue("a", parent="b"), queue("b", parent="a"))
    assert validate(request(group("a")), round_about).allowed


@pytest.mark.parametrize(
    "spec", [{"networkTopology": {}}, {"subGroupPolicy": [{"name": "a"}, {"name": "b", "networkTopology": {}}]}]
)
def test_a_topology_has_no_effect_and_causes_a_warning(spec: Any) -> None:
    plain, found = (validate(request(group("", **each)), {}) for each in ({}, spec))
    assert (plain.allowed, plain.warnings, found.allowed) == (True, (), True)
    (warning,) = found.warnings
    assert warning.startswith("networkTopology is ignored: ")


@pytest.mark.parametrize("review", [lambda asked: mutate(asked, {}), lambda asked: validate(asked, {})])
def test_groups_are_reviewed_when_they_are_made_alone(review: Any) -> None:
    assert not review(request(group(), operation="UPDATE")).allowed


TIERS = {"highestTierAllowed": 1, "highestTierName": "n"}
BOTH = {"name": "b", "networkTopology": TIERS}


@pytest.mark.parametrize(
    ("spec", "places"),
    [
        ({"networkTopology": TIERS}, [""]),
        ({"networkTopology": {**TIERS, "highestTierAllowed": 0}}, [""]),
        # Of several subgroups the first.
        ({"subGroupPolicy": [{"name": "a"}, BOTH, {**BOTH, "name": "c"}]}, ["in subGroupPolicy 'b': "]),
        ({"networkTopology": TIERS, "subGroupPolicy": [BOTH]}, ["", "in subGroupPolicy 'b': "]),
        ({"networkTopology": {"highestTierAllowed": 1}}, []),
        ({"networkTopology": {"highestTierName": "n"}}, []),
    ],
)
def test_a_topology_names_its_highest_tier_in_one_way(spec: Any, places: list[str]) -> None:
    told = "must not specify 'highestTierAllowed' and 'highestTierName' in networkTopology simultaneously."
    problem = " ".join(place + told for place in places)
    made = {"metadata": {"name": "it"}, "spec": spec}
    assert validate(request(made), {}).message == problem
    made["spec"] = {**spec, "queue": "none"}
    found = validate(request(made), {}).message
    assert found == "; ".join(
        ['unable to find queue: queue.scheduling.volcano.sh "none" not found', problem][: 1 + bool(places)]
    )
