"""Arguments of plugins: kube-scheduler's defaults and bounds, each mistake told with its place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from agent_scheduler.engine.framework import args
from apimachinery.codec import decode
from apimachinery.errors import Invalid
from tests.support.terms import preferring, requiring, term

KINDS: Mapping[str, type[args.PluginArgs]] = {
    "Fit": args.NodeResourcesFitArgs,
    "Balanced": args.NodeResourcesBalancedAllocationArgs,
    "Affinity": args.NodeAffinityArgs,
    "Pods": args.InterPodAffinityArgs,
    "Spread": args.PodTopologySpreadArgs,
    "Volumes": args.VolumeBindingArgs,
    "Preempt": args.DefaultPreemptionArgs,
    "None": args.PluginArgs,
}


def test_what_is_not_given_is_as_in_kube_scheduler() -> None:
    fit = args.NodeResourcesFitArgs()
    assert fit.scoring_strategy.type == "LeastAllocated"
    assert fit.scoring_strategy.weights == {"cpu": 1, "memory": 1}
    assert (fit.ignored_resources, fit.ignored_resource_groups) == ((), ())
    assert args.NodeResourcesBalancedAllocationArgs().names == ("cpu", "memory")
    pods = args.InterPodAffinityArgs()
    assert (pods.hard_pod_affinity_weight, pods.ignore_preferred_terms_of_existing_pods) == (1, False)
    spread = args.PodTopologySpreadArgs()
    assert (spread.defaulting_type, spread.default_constraints) == ("System", ())
    volumes = args.VolumeBindingArgs()
    assert (volumes.bind_timeout_seconds, volumes.shape) == (600, None)
    preempt = args.DefaultPreemptionArgs()
    assert (preempt.min_candidate_nodes_percentage, preempt.min_candidate_nodes_absolute) == (10, 100)


def test_an_empty_list_of_resources_is_the_default_and_a_weight_of_zero_is_one() -> None:
    strategy = decode({"type": "MostAllocated", "resources": []}, args.ScoringStrategy)
    assert strategy.weights == {"cpu": 1, "memory": 1}
    strategy = decode({"type": "MostAllocated", "resources": [{"name": "x", "weight": 0}]}, args.ScoringStrategy)
    assert strategy.weights == {"x": 1}
    assert decode({"resources": []}, args.NodeResourcesBalancedAllocationArgs).names == ("cpu", "memory")


STRATEGY: dict[str, Any] = {"type": "RequestedToCapacityRatio"}
POINT = {"utilization": 0, "score": 0}
CONSTRAINT = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}


def strategy(kind: str = "MostAllocated", **more: Any) -> dict[str, Any]:
    return {"scoringStrategy": {"type": kind, **more}}


def curve(*points: tuple[int, int]) -> dict[str, Any]:
    shape = [{"utilization": at, "score": score} for at, score in points]
    return {"scoringStrategy": {**STRATEGY, "requestedToCapacityRatio": {"shape": shape}}}


def spread(**change: object) -> dict[str, Any]:
    return {"defaultingType": "List", "defaultConstraints": [{**CONSTRAINT, **change}]}


ADDED = {**requiring(term("a", "b")), **preferring((3, {"matchExpressions": [{"key": "a", "operator": "Exists"}]}))}
NO_OPERATOR = requiring({"matchExpressions": [{"key": "a", "operator": "Is"}]})


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (
            "Fit",
            {
                **curve((0, 0), (100, 10)),
                "ignoredResources": ["example.com/foo", "foo"],
                "ignoredResourceGroups": ["example.com"],
            },
        ),
        ("Fit", strategy(resources=[{"name": "nvidia.com/gpu", "weight": 100}])),
        ("Balanced", {"resources": [{"name": "cpu", "weight": 1}, {"name": "example.com/a"}]}),
        ("Affinity", {"addedAffinity": ADDED}),
        ("Affinity", {"addedAffinity": None}),
        ("Pods", {"hardPodAffinityWeight": 100, "ignorePreferredTermsOfExistingPods": True}),
        ("Pods", {"hardPodAffinityWeight": 0}),
        ("Spread", spread(topologyKey="a.b/zone")),
        ("Spread", spread(topologyKey="a.b/zone", whenUnsatisfiable="ScheduleAnyway")),
        ("Volumes", {"bindTimeoutSeconds": 0, "shape": [POINT]}),
        ("Preempt", {"minCandidateNodesPercentage": 0}),
        ("Preempt", {"minCandidateNodesAbsolute": 0, "minCandidateNodesPercentage": 100}),
        ("None", {}),
    ],
)
def test_arguments_that_kube_scheduler_takes_are_taken(kind: str, value: dict[str, Any]) -> None:
    made = decode(value, KINDS[kind])
    assert made != KINDS[kind]() or value in ({}, {"addedAffinity": None})


RATIO = "scoringStrategy.requestedToCapacityRatio"


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (
            "Fit",
            {"scoringStrategy": {"resources": []}},
            "scoringStrategy.type: is missing; allowed: LeastAllocated, MostAllocated, RequestedToCapacityRatio",
        ),
        ("Fit", strategy("LeastAlocated"), "scoringStrategy.type: found 'LeastAlocated'; did you mean LeastAllocated?"),
        ("Fit", {"scoringStrategy": "x"}, "scoringStrategy: found 'x'; allowed: an object with"),
        (
            "Fit",
            strategy(resources=[{"name": "cpu", "weight": 101}]),
            "scoringStrategy.resources[0].weight: found the number 101; allowed: a whole number from 0 to 100",
        ),
        (
            "Fit",
            strategy(resources=[{"name": ""}]),
            "scoringStrategy.resources[0].name: found ''; allowed: a resource's name",
        ),
        (
            "Fit",
            strategy(resources=[{"name": "a"}, {"name": "a"}]),
            "scoringStrategy.resources[1].name: found 'a' a second time",
        ),
        ("Fit", {"scoringStrategy": STRATEGY}, f"{RATIO}: is missing; allowed with this type"),
        (
            "Fit",
            strategy(requestedToCapacityRatio={"shape": [POINT]}),
            f"{RATIO}: has no meaning with type MostAllocated",
        ),
        ("Fit", curve(), f"{RATIO}.shape: found an empty list; allowed: at least one"),
        ("Fit", curve((0, 0), (0, 0)), f"{RATIO}.shape[1].utilization: found the number 0; allowed: more than"),
        ("Fit", curve((101, 0)), "shape[0].utilization: found the number 101; allowed: a whole number from 0 to 100"),
        ("Fit", curve((1, 11)), "shape[0].score: found the number 11; allowed: a whole number from 0 to 10"),
        ("Fit", {"ignoredResources": ["a/b/c"]}, "ignoredResources[0]: found 'a/b/c'; allowed: a label key"),
        ("Fit", {"ignoredResourceGroups": ["a/b"]}, "ignoredResourceGroups[0]: found 'a/b'; allowed: the"),
        ("Fit", {"ignoredResource": []}, "ignoredResource: unknown key; did you mean ignoredResources?"),
        (
            "Balanced",
            {"resources": [{"name": "cpu", "weight": 2}]},
            "resources[0].weight: found the number 2; allowed: 1",
        ),
        ("Balanced", {"resources": [{"name": "cpu"}, {"name": "cpu"}]}, "resources[1].name: found 'cpu' a second time"),
        (
            "Affinity",
            {"addedAffinity": NO_OPERATOR},
            "nodeSelectorTerms[0].matchExpressions[0].operator: 'Is' is unknown; allowed: In, NotIn",
        ),
        (
            "Affinity",
            {"addedAffinity": {"required": {}}},
            "addedAffinity.required: unknown key; allowed: preferredDuringSchedulingIgnoredDuringExecution",
        ),
        ("Pods", {"hardPodAffinityWeight": 101}, "hardPodAffinityWeight: found the number 101; allowed: a"),
        (
            "Spread",
            {**spread(), "defaultingType": "System"},
            "defaultConstraints: are used with defaultingType: List only",
        ),
        ("Spread", {"defaultConstraints": [CONSTRAINT]}, "defaultConstraints: are used with"),
        ("Spread", {"defaultingType": "Auto"}, "defaultingType: found 'Auto'; allowed: List, System"),
        ("Spread", spread(maxSkew=0), "defaultConstraints[0].maxSkew: found the number 0; allowed"),
        ("Spread", spread(topologyKey=""), "defaultConstraints[0].topologyKey: found ''; allowed: a label"),
        ("Spread", spread(whenUnsatisfiable="Never"), "whenUnsatisfiable: found 'Never'; allowed: DoNotSch"),
        ("Spread", spread(labelSelector={}), "defaultConstraints[0].labelSelector: unknown key"),
        (
            "Spread",
            {"defaultingType": "List", "defaultConstraints": [CONSTRAINT, CONSTRAINT]},
            "defaultConstraints[1]: found 'zone', 'DoNotSchedule' a second time",
        ),
        ("Volumes", {"bindTimeoutSeconds": -1}, "bindTimeoutSeconds: found the number -1; allowed"),
        ("Volumes", {"shape": []}, "shape: found an empty list"),
        ("Preempt", {"minCandidateNodesPercentage": 101}, "minCandidateNodesPercentage: found the number 101"),
        ("Preempt", {"minCandidateNodesAbsolute": -1}, "minCandidateNodesAbsolute: found the number -1"),
        (
            "Preempt",
            {"minCandidateNodesAbsolute": 0, "minCandidateNodesPercentage": 0},
            "minCandidateNodesPercentage: found 0, and minCandidateNodesAbsolute is 0, too",
        ),
        ("None", {"a": 1}, "a: unknown key; allowed: none"),
    ],
)
def test_a_mistake_is_told_with_its_place_and_what_is_allowed(kind: str, value: dict[str, Any], expected: str) -> None:
    with pytest.raises(Invalid) as caught:
        decode(value, KINDS[kind])
    assert expected in str(caught.value)
