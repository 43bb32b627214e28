"""Volcano's form of a configuration: what becomes of each part, and what is refused by name."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from agent_scheduler.config.load import load_text, to_dict
from agent_scheduler.config.profiles import build_profiles
from agent_scheduler.engine.framework.plugin import Profile
from tests.support import command_line

PREDICATES = [
    "NodeUnschedulable",
    "NodeAffinity",
    "NodePorts",
    "TaintToleration",
    "InterPodAffinity",
    "NodeVolumeLimits",
    "VolumeZone",
    "PodTopologySpread",
    "VolumeBinding",
    "DynamicResources",
]


def conf(*plugins: Any, actions: str = "allocate", **more: Any) -> str:
    """A file with these plugins; a name, or a name and its arguments."""
    named = [
        {"name": plugin} if isinstance(plugin, str) else {"name": plugin[0], "arguments": plugin[1]}
        for plugin in plugins
    ]
    return yaml.safe_dump({"actions": actions, "tiers": [{"plugins": named}], **more}, sort_keys=False)


def the_profile(text: str) -> Profile:
    (profile,) = build_profiles(load_text(text)).values()
    return profile


def filters(text: str) -> set[str]:
    return {plugin.name for plugin in the_profile(text).filters}


def weights(text: str) -> dict[str, int]:
    return {score.plugin.name: score.weight for score in the_profile(text).scores}


def strategy(text: str) -> dict[str, Any] | None:
    """The scoring strategy that a file means, and its weight."""
    (profile,) = to_dict(load_text(text))["profiles"]
    for config in profile["pluginConfig"]:
        if config["name"] == "NodeResourcesFit":
            told = config["args"]["scoringStrategy"]
            resources = {each["name"]: each["weight"] for each in told["resources"]}
            return {"type": told["type"], "weight": weights(text)["NodeResourcesFit"], **resources}
    assert "NodeResourcesFit" not in weights(text)
    return None


def warnings(text: str) -> list[str]:
    return [each.partition(": ")[2] for each in command_line.warnings(text, header="")]


def refusal(text: str) -> str:
    return command_line.refusal(text, header="")


def test_the_peers_default_is_kube_schedulers_filters_and_scores() -> None:
    text = conf("predicates", "nodeorder")
    always = {"GPUShare", "NodeName", "NodeResourcesFit", "VolumeRestrictions"}
    assert filters(text) == {*PREDICATES, *always}
    ones = dict.fromkeys(("NodeResourcesBalancedAllocation", "ImageLocality", "NodeResourcesFit"), 1)
    twos = dict.fromkeys(("NodeAffinity", "InterPodAffinity", "PodTopologySpread"), 2)
    assert weights(text) == {**ones, **twos, "TaintToleration": 3}
    assert strategy(text) == {"type": "LeastAllocated", "weight": 1, "cpu": 1, "memory": 1}


def test_the_name_of_the_scheduler_is_the_default_and_can_be_loaded_again_from_what_is_shown() -> None:
    configuration = load_text(conf("predicates", "nodeorder"))
    assert configuration.profiles[0].scheduler_name == "agent-scheduler"
    assert load_text(yaml.safe_dump(to_dict(configuration))) == configuration


def test_settings_of_ours_may_stand_beside() -> None:
    header = "apiVersion: agent-scheduler/v1\nkind: SchedulerConfiguration\nworkerCount: 2\n"
    assert load_text(header + conf("predicates")).worker_count == 2
    assert load_text(conf("predicates", workerCount=3)).worker_count == 3


@pytest.mark.parametrize(
    ("key", "plugin"),
    [
        ("NodeAffinityEnable", "NodeAffinity"),
        ("NodePortsEnable", "NodePorts"),
        ("TaintTolerationEnable", "TaintToleration"),
        ("PodAffinityEnable", "InterPodAffinity"),
        ("NodeVolumeLimitsEnable", "NodeVolumeLimits"),
        ("VolumeZoneEnable", "VolumeZone"),
        ("PodTopologySpreadEnable", "PodTopologySpread"),
        ("VolumeBindingEnable", "VolumeBinding"),
    ],
)
def test_a_predicate_can_be_switched_off_without_its_score(key: str, plugin: str) -> None:
    on = conf("predicates", "nodeorder")
    for value in (False, "false"):
        off = conf(("predicates", {f"predicate.{key}": value}), "nodeorder")
        assert filters(on) - filters(off) == {plugin}
        assert weights(off) == weights(on)
    assert filters(conf(("predicates", {f"predicate.{key}": True}))) == filters(on)


def test_without_predicates_only_the_room_of_a_node_counts() -> None:
    switched_off = conf() + "- plugins: [{name: predicates, enablePredicate: false}]\n"
    for text in (conf("nodeorder"), switched_off):
        assert not filters(text) & set(PREDICATES)
        assert {"NodeResourcesFit", "NodeName"} <= filters(text)
        assert "predicates is missing or off" in " ".join(warnings(text))
        pre_enqueue = [plugin.name for plugin in the_profile(text).pre_enqueue]
        assert pre_enqueue == ["SchedulingGates", "GangScheduling"]


def test_without_nodeorder_and_binpack_no_node_is_better_than_another() -> None:
    assert weights(conf("predicates")) == {}
    text = "actions: allocate\ntiers: [{plugins: [{name: nodeorder, enableNodeOrder: false}]}]\n"
    assert weights(text) == {}


def test_a_weight_of_zero_takes_a_score_out() -> None:
    text = conf(("nodeorder", {"tainttoleration.weight": 0, "nodeaffinity.weight": "7"}))
    assert "TaintToleration" not in weights(text)
    assert weights(text)["NodeAffinity"] == 7


EVEN = {"cpu": 1, "memory": 1}
SPECIAL = """binpack: {binpack.memory: 0, binpack.resources: "nvidia.com/gpu, example.com/foo",
    binpack.resources.nvidia.com/gpu: 2}"""
FULLNESS = {
    "nodeorder: {leastrequested.weight: 3}": ("LeastAllocated", 3, EVEN),
    "nodeorder: {leastrequested.weight: 0, mostrequested.weight: 2}": ("MostAllocated", 2, EVEN),
    "nodeorder: {mostrequested.weight: 5}": ("MostAllocated", 4, EVEN),
    "nodeorder: {mostrequested.weight: 1}": None,
    "nodeorder: {leastrequested.weight: 0}": None,
    "binpack: {}": ("MostAllocated", 1, EVEN),
    "binpack: {binpack.weight: 10, binpack.cpu: 5, binpack.memory: 1}": ("MostAllocated", 10, {**EVEN, "cpu": 5}),
    SPECIAL: ("MostAllocated", 1, {"cpu": 1, "nvidia.com/gpu": 2, "example.com/foo": 1}),
    "binpack: {binpack.weight: 0}": None,
    # 10 x (1/2, 1/2) - 1 x (1/2, 1/2)
    "nodeorder: {}\nbinpack: {binpack.weight: 10}": ("MostAllocated", 9, EVEN),
    # 6 x (5/6, 1/6) - 1 x (1/2, 1/2) = (4.5, 0.5)
    "nodeorder: {}\nbinpack: {binpack.weight: 6, binpack.cpu: 5}": ("MostAllocated", 5, {**EVEN, "cpu": 9}),
    "binpack: {binpack.cpu: 1000, binpack.memory: 1}": ("MostAllocated", 1, {**EVEN, "cpu": 100}),
}


@pytest.mark.parametrize(("said", "expected"), FULLNESS.items())
def test_fullness_becomes_one_strategy(said: str, expected: tuple[str, int, dict[str, int]] | None) -> None:
    plugins = [each if each[1] else each[0] for each in yaml.safe_load(said).items()]
    made = strategy(conf("predicates", *plugins))
    assert made == (expected and {"type": expected[0], "weight": expected[1], **expected[2]})


def test_several_that_count_together_are_told_of() -> None:
    told = warnings(conf("predicates", "nodeorder", ("binpack", {"binpack.weight": 10})))
    said = "counts together with leastrequested.weight as one strategy, MostAllocated with weight 9"
    assert told[-1] == f"tiers[0].plugins[2].arguments.binpack.weight: {said}"
    told = warnings(conf("predicates", "nodeorder", "binpack"))
    assert told[-1].endswith("has no effect: leastrequested.weight and binpack.weight cancel each other")


def test_volumes_have_their_arguments() -> None:
    shape = [{"utilization": 0, "score": 10}, {"utilization": 100, "score": 0}]
    text = conf(("predicates", {"volumebinding.bindTimeoutSeconds": 9, "volumebinding.shape": shape}))
    (profile,) = to_dict(load_text(text))["profiles"]
    told = {config["name"]: config["args"] for config in profile["pluginConfig"]}
    assert told == {"VolumeBinding": {"bindTimeoutSeconds": 9, "shape": shape}}


def test_preemption_is_on_only_if_it_is_an_action() -> None:
    for actions, disabled in (("allocate", [{"name": "*"}]), ("allocate, preempt", [])):
        (profile,) = to_dict(load_text(conf("predicates", actions=actions)))["profiles"]
        assert profile["plugins"]["postFilter"]["disabled"] == disabled


def test_the_candidates_of_allocate_are_ours() -> None:
    more = [{"name": "allocate", "arguments": {"candidateNodeCount": 7, "predicateErrorCacheEnable": True}}]
    text = conf("predicates", configurations=more)
    assert load_text(text).candidate_node_count == 7
    assert warnings(text) == [
        "configurations[0].arguments.predicateErrorCacheEnable: has no effect: results are always cached across pods"
    ]


def test_what_is_about_jobs_alone_is_read_with_a_warning() -> None:
    text = conf(
        *("priority", "conformance", "drf", "overcommit", "pdb"),
        ("predicates", {"predicate.CacheEnable": True, "dynamicresources.filterTimeoutSeconds": 5}),
        actions="enqueue, allocate, backfill",
        configurations=[{"name": "enqueue", "arguments": {"overcommit-factor": 1.2}}],
        metrics={"type": "prometheus"},
    )
    alone = "has no effect: a profile has no jobs and queues; its pods are tried by priority, then age"
    assert [warning.partition(": has no effect")[0] for warning in warnings(text)] == [
        "actions: enqueue has no effect: every pod is tried on arrival",
        "actions: backfill has no effect: pods without requests are tried like all others",
        "tiers[0].plugins[1].name: conformance has no effect: only their priority protects pods of kube-system",
        f"tiers[0].plugins[2].name: drf {alone}",
        f"tiers[0].plugins[3].name: overcommit {alone}",
        "tiers[0].plugins[5].arguments.predicate.CacheEnable",
        "tiers[0].plugins[5].arguments.dynamicresources.filterTimeoutSeconds",
        "configurations[0].name",
        "metrics",
    ]


def test_switches_of_functions_that_a_plugin_does_not_have_are_told_of() -> None:
    switches = "enableJobOrder: true, EnabledClusterOrder: false"
    text = f"actions: allocate\ntiers: [{{plugins: [{{name: predicates, {switches}}}]}}]"
    assert warnings(text) == [
        "tiers[0].plugins[0].enableJobOrder: has no effect: predicates does nothing there",
        "tiers[0].plugins[0].EnabledClusterOrder: has no effect: predicates does nothing there",
    ]


@pytest.mark.parametrize("name", ["gang", "proportion", "capacity", "numaaware", "deviceshare", "extender", "tdm"])
def test_a_plugin_without_which_pods_would_be_placed_otherwise_is_refused_by_name(name: str) -> None:
    assert f": tiers[0].plugins[1].name: {name} is not supported" in refusal(conf("predicates", name))


MISTAKES = {
    conf(actions="reclaim, allocate"): "f.yaml:1: actions: reclaim is not supported: a profile has no jobs",
    conf(actions="alocate"): "f.yaml:1: actions: found 'alocate'; did you mean allocate?",
    conf(actions="enqueue"): "f.yaml:1: actions: found 'enqueue'; allowed: a list with allocate",
    "tiers: []": "actions: found nothing (null); allowed: names separated by commas",
    "actions: [allocate]": "actions: found a list; allowed: names separated by commas",
    conf("predicate"): "tiers[0].plugins[0].name: found 'predicate'; did you mean predicates?",
    conf("nodeorder", "nodeorder"): "tiers[0].plugins[1].name: found 'nodeorder' a second time",
    conf(("nodeorder", {"leastrequested.wieght": 1})): (
        "f.yaml:6: tiers[0].plugins[0].arguments.leastrequested.wieght: unknown key; did you mean "
        "leastrequested.weight?"
    ),
    conf(("nodeorder", {"leastrequested.weight": -1})): (
        "leastrequested.weight: found the number -1; allowed: a whole number from 0 to 1000000"
    ),
    conf(("nodeorder", {"leastrequested.weight": 1.5})): "found the number 1.5; allowed: a whole number",
    conf(("nodeorder", {"leastrequested.weight": True})): "found true; allowed: a whole number",
    conf(("predicates", {"predicate.CacheEnable": "maybe"})): "found 'maybe'; allowed: true, false",
    conf(("predicates", {"predicate.GPUSharingEnable": True})): "GPUSharingEnable: is not supported",
    conf(("predicates", {"volumebinding.bindTimeoutSeconds": -1})): (
        "arguments.volumebinding.bindTimeoutSeconds: found the number -1"
    ),
    conf(("predicates", {"volumebinding.shape": [{"utilization": 0, "score": 11}]})): (
        "arguments.volumebinding.shape[0].score: found the number 11; allowed: a whole number from 0 to 10"
    ),
    conf(("binpack", {"binpack.resources": ["a"]})): "binpack.resources: found a list; allowed: names",
    conf(("binpack", {"binpack.resources.a": 1})): "binpack.resources.a: unknown key",
    conf("nodeorder", ("binpack", {"binpack.weight": 1, "binpack.memory": 0})): (
        "leastrequested.weight and binpack.weight together prefer nodes full of cpu and empty of memory"
    ),
    conf(("binpack", [1])): "arguments: found a list; allowed: an object",
    "actions: allocate\ntiers: [{plugin: []}]": "tiers[0].plugin: unknown key; did you mean plugins?",
    "actions: allocate\ntiers: [{plugins: [{name: predicates, argument: {}}]}]": "argument: unknown key",
    "actions: allocate\ntiers: {}": "tiers: found an object; allowed: a list",
    conf(configurations=[{"name": "alloc"}]): "configurations[0].name: found 'alloc'; did you mean allocate?",
    conf(configurations=[{"name": "allocate", "arguments": {"candidateNodeCount": 0}}]): (
        "configurations[0].arguments.candidateNodeCount: found the number 0; allowed: a whole number from 1"
    ),
    conf(configurations=[{"name": "allocate", "arguments": {"candidateNodeCount": 4}}], candidateNodeCount=3): (
        "found the number 4, but candidateNodeCount says otherwise"
    ),
    conf(configurations=[{"name": "allocate", "arguments": {"candidates": 4}}]): (
        "configurations[0].arguments.candidates: unknown key"
    ),
    conf(profiles=[{"schedulerName": "a"}]): "profiles: is set together with Volcano's actions and tiers",
    conf(workerCounts=3): "workerCounts: unknown key; did you mean workerCount?",
}


@pytest.mark.parametrize(("text", "expected"), MISTAKES.items())
def test_a_mistake_is_told_with_its_place(text: str, expected: str) -> None:
    assert expected in refusal(text)
