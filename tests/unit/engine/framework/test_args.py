"""Arguments of plugins: kube-scheduler's defaults and bounds, each mistake told with its place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from agent_scheduler.config.codec import decode
from agent_scheduler.config.errors import Invalid
from agent_scheduler.engine.framework import args

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
    strategy = decode(
        {"type": "MostAllocated", "resources": [{"name": "x", "weight": 0}]}, args.ScoringStrategy
    )
    assert strategy.weights == {"x": 1}
    assert decode({"resources": []}, args.NodeResourcesBalancedAllocationArgs).names == ("cpu", "memory")


STRATEGY: dict[str, Any] = {"type": "RequestedToCapacityRatio"}
POINT = {"utilization": 0, "score": 0}


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (
            "Fit",
            {
                "scoringStrategy": {
                    **STRATEGY,
                    "resources": [{"name": "nvidia.com/gpu", "weight": 100}],
                    "requestedToCapacityRatio": {"shape": [POINT, {"utilization": 100, "score": 10}]},
                },
                "ignoredResources": ["example.com/foo", "foo"],
                "ignoredResourceGroups": ["example.com"],
            },
        ),
        ("Balanced", {"resources": [{"name": "cpu", "weight": 1}, {"name": "example.com/a"}]}),
        (
            "Affinity",
            {
                "addedAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}
                        ]
                    },
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {
                            "weight": 3,
                            "preference": {"matchExpressions": [{"key": "a", "operator": "Exists"}]},
                        }
                    ],
                }
            },
        ),
        ("Affinity", {"addedAffinity": None}),
        ("Pods", {"hardPodAffinityWeight": 100, "ignorePreferredTermsOfExistingPods": True}),
        ("Pods", {"hardPodAffinityWeight": 0}),
        (
            "Spread",
            {
                "defaultingType": "List",
                "defaultConstraints": [
                    {"maxSkew": 1, "topologyKey": "a.b/zone", "whenUnsatisfiable": "ScheduleAnyway"},
                    {"maxSkew": 1, "topologyKey": "a.b/zone", "whenUnsatisfiable": "DoNotSchedule"},
                ],
            },
        ),
        ("Volumes", {"bindTimeoutSeconds": 0, "shape": [POINT]}),
        ("Preempt", {"minCandidateNodesPercentage": 0}),
        ("Preempt", {"minCandidateNodesAbsolute": 0, "minCandidateNodesPercentage": 100}),
        ("None", {}),
    ],
)
def test_arguments_that_kube_scheduler_takes_are_taken(kind: str, value: dict[str, Any]) -> None:
    made = decode(value, KINDS[kind])
    assert made != KINDS[kind]() or value in ({}, {"addedAffinity": None})


CONSTRAINT = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}


def spread(**change: object) -> dict[str, Any]:
    return {"defaultingType": "List", "defaultConstraints": [{**CONSTRAINT, **change}]}


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (
            "Fit",
            {"scoringStrategy": {"resources": []}},
            "scoringStrategy.type: is missing; allowed: LeastAllocated, MostAllocated, RequestedToCapacityRatio",
        ),
        (
            "Fit",
            {"scoringStrategy": {"type": "LeastAlocated"}},
            "scoringStrategy.type: found 'LeastAlocated'; did you mean LeastAllocated?",
        ),
        ("Fit", {"scoringStrategy": "x"}, "scoringStrategy: found 'x'; allowed: an object with"),
        (
            "Fit",
            {"scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 101}]}},
            "scoringStrategy.resources[0].weight: found the number 101; allowed: a whole number from 0 to 100",
        ),
        (
            "Fit",
            {"scoringStrategy": {"type": "MostAllocated", "resources": [{"name": ""}]}},
            "scoringStrategy.resources[0].name: found ''; allowed: a resource's name",
        ),
        (
            "Fit",
            {"scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "a"}, {"name": "a"}]}},
            "scoringStrategy.resources[1].name: found 'a' a second time",
        ),
        (
            "Fit",
            {"scoringStrategy": STRATEGY},
            "scoringStrategy.requestedToCapacityRatio: is missing; allowed with this type",
        ),
        (
            "Fit",
            {"scoringStrategy": {"type": "MostAllocated", "requestedToCapacityRatio": {"shape": [POINT]}}},
            "scoringStrategy.requestedToCapacityRatio: has no meaning with type MostAllocated",
        ),
        (
            "Fit",
            {"scoringStrategy": {**STRATEGY, "requestedToCapacityRatio": {"shape": []}}},
            "scoringStrategy.requestedToCapacityRatio.shape: found an empty list; allowed: at least one",
        ),
        (
            "Fit",
            {"scoringStrategy": {**STRATEGY, "requestedToCapacityRatio": {"shape": [POINT, POINT]}}},
            "requestedToCapacityRatio.shape[1].utilization: found the number 0; allowed: more than",
        ),
        (
            "Fit",
            {
                "scoringStrategy": {
                    **STRATEGY,
                    "requestedToCapacityRatio": {"shape": [{"utilization": 101, "score": 0}]},
                }
            },
            "shape[0].utilization: found the number 101; allowed: a whole number from 0 to 100",
        ),
        (
            "Fit",
            {
                "scoringStrategy": {
                    **STRATEGY,
                    "requestedToCapacityRatio": {"shape": [{"utilization": 1, "score": 11}]},
                }
            },
            "shape[0].score: found the number 11; allowed: a whole number from 0 to 10",
        ),
        ("Fit", {"ignoredResources": ["a/b/c"]}, "ignoredResources[0]: found 'a/b/c'; allowed: a label key"),
        (
            "Fit",
            {"ignoredResourceGroups": ["a/b"]},
            "ignoredResourceGroups[0]: found 'a/b'; allowed: the part",
        ),
        ("Fit", {"ignoredResource": []}, "ignoredResource: unknown key; did you mean ignoredResources?"),
        (
            "Balanced",
            {"resources": [{"name": "cpu", "weight": 2}]},
            "resources[0].weight: found the number 2; allowed: 1",
        ),
        (
            "Balanced",
            {"resources": [{"name": "cpu"}, {"name": "cpu"}]},
            "resources[1].name: found 'cpu' a second time",
        ),
        (
            "Affinity",
            {
                "addedAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Is"}]}]
                    }
                }
            },
            "nodeSelectorTerms[0].matchExpressions[0].operator: 'Is' is unknown; allowed: In, NotIn",
        ),
        (
            "Affinity",
            {"addedAffinity": {"required": {}}},
            "addedAffinity.required: unknown key; allowed: preferredDuringSchedulingIgnoredDuringExecution",
        ),
        (
            "Pods",
            {"hardPodAffinityWeight": 101},
            "hardPodAffinityWeight: found the number 101; allowed: a whole number from 0 to 100",
        ),
        (
            "Spread",
            {**spread(), "defaultingType": "System"},
            "defaultConstraints: are used with defaultingType: List only",
        ),
        ("Spread", {"defaultConstraints": [CONSTRAINT]}, "defaultConstraints: are used with"),
        ("Spread", {"defaultingType": "Auto"}, "defaultingType: found 'Auto'; allowed: List, System"),
        ("Spread", spread(maxSkew=0), "defaultConstraints[0].maxSkew: found the number 0; allowed"),
        (
            "Spread",
            spread(topologyKey=""),
            "defaultConstraints[0].topologyKey: found ''; allowed: a label key",
        ),
        (
            "Spread",
            spread(whenUnsatisfiable="Never"),
            "whenUnsatisfiable: found 'Never'; allowed: DoNotSchedule",
        ),
        ("Spread", spread(labelSelector={}), "defaultConstraints[0].labelSelector: unknown key"),
        (
            "Spread",
            {"defaultingType": "List", "defaultConstraints": [CONSTRAINT, CONSTRAINT]},
            "defaultConstraints[1]: found 'zone', 'DoNotSchedule' a second time",
        ),
        ("Volumes", {"bindTimeoutSeconds": -1}, "bindTimeoutSeconds: found the number -1; allowed"),
        ("Volumes", {"shape": []}, "shape: found an empty list"),
        (
            "Preempt",
            {"minCandidateNodesPercentage": 101},
            "minCandidateNodesPercentage: found the number 101",
        ),
        ("Preempt", {"minCandidateNodesAbsolute": -1}, "minCandidateNodesAbsolute: found the number -1"),
        (
            "Preempt",
            {"minCandidateNodesAbsolute": 0, "minCandidateNodesPercentage": 0},
            "minCandidateNodesPercentage: found 0, and minCandidateNodesAbsolute is 0, too",
        ),
        ("None", {"a": 1}, "a: unknown key; allowed: none"),
    ],
)
def test_a_mistake_is_told_with_its_place_and_what_is_allowed(
    kind: str, value: dict[str, Any], expected: str
) -> None:
    with pytest.raises(Invalid) as caught:
        decode(value, KINDS[kind])
    assert expected in str(caught.value)
