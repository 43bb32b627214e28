"""What a user of kube-scheduler brings: keys that are none here, and profiles as its files have them."""

from __future__ import annotations

from pathlib import Path

import yaml

from agent_scheduler.config.load import load, load_text
from agent_scheduler.config.profiles import build_profiles
from agent_scheduler.engine.profiles.bases import DEFAULT_PLUGINS
from agent_scheduler.engine.profiles.profiles import REGISTRY
from tests.support.command_line import HEADER, refusal, run_arguments, warnings

# ---- keys of a KubeSchedulerConfiguration that are none here


def test_what_only_says_how_kube_scheduler_works_is_read_with_a_warning() -> None:
    told = warnings(
        """
percentageOfNodesToScore: 50
parallelism: 16
delayCacheUntilActive: true
enableProfiling: true
enableContentionProfiling: true
clientConnection: {contentType: application/vnd.kubernetes.protobuf}
profiles: [{percentageOfNodesToScore: 5}]
"""
    )
    assert told == [
        "f.yaml:4: percentageOfNodesToScore: has no effect: every node is checked for every pod",
        "f.yaml:5: parallelism: has no effect: a cycle evaluates all nodes together; see workerCount",
        "f.yaml:6: delayCacheUntilActive: has no effect: a standby keeps its view of the cluster, to take over "
        "immediately",
        "f.yaml:7: enableProfiling: has no effect: no profiling is served",
        "f.yaml:8: enableContentionProfiling: has no effect: no profiling is served",
        "f.yaml:10: profiles[0].percentageOfNodesToScore: has no effect: every node is checked for every pod",
        "f.yaml:9: clientConnection.contentType: has no effect: requests are JSON",
    ]


def test_a_foreign_key_that_asks_for_what_happens_anyway_is_read_in_silence() -> None:
    text = """
percentageOfNodesToScore: 0
parallelism:
extenders: []
delayCacheUntilActive: false
enableProfiling: false
clientConnection: {contentType: application/json, acceptContentTypes: ""}
leaderElection: {resourceLock: leases}
"""
    assert warnings(text) == []


def test_each_warning_is_given_once_though_flags_are_laid_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_text(HEADER + "parallelism: 4\n")
    told: list[str] = []
    load(run_arguments("--config", str(file), "--port", "1"), warn=told.append)
    assert told == [f"{file}:3: parallelism: has no effect: a cycle evaluates all nodes together; see workerCount"]


# ---- profiles as kube-scheduler's files have them


def kube_file(enabled: list[str]) -> str:
    """The part of a file that kube-scheduler writes with --write-config-to, with these plugins."""
    args = {
        "DefaultPreemption": {"minCandidateNodesAbsolute": 100, "minCandidateNodesPercentage": 10},
        "DynamicResources": {"filterTimeout": "10s"},
        "InterPodAffinity": {"hardPodAffinityWeight": 1, "ignorePreferredTermsOfExistingPods": False},
        "NodeAffinity": {},
        "NodeResourcesBalancedAllocation": {"resources": [{"name": "cpu", "weight": 1}]},
        "NodeResourcesFit": {
            "scoringStrategy": {
                "type": "LeastAllocated",
                "resources": [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}],
            }
        },
        "PodTopologySpread": {"defaultingType": "System"},
        "VolumeBinding": {"bindTimeoutSeconds": 600},
    }
    about = {"apiVersion": "kubescheduler.config.k8s.io/v1"}
    config = [{"name": name, "args": {**about, "kind": f"{name}Args", **each}} for name, each in args.items()]
    points = "bind filter permit postBind postFilter preBind preEnqueue preFilter preScore queueSort reserve score"
    weights = [{"name": name, "weight": 3 if name == "TaintToleration" else 0} for name in enabled]
    profile = {
        "base": "default-scheduler",
        "schedulerName": "default-scheduler",
        "pluginConfig": config,
        "plugins": {**{point: {} for point in points.split()}, "multiPoint": {"enabled": weights}},
    }
    return yaml.safe_dump(
        {
            "clientConnection": {"acceptContentTypes": "", "burst": 100, "kubeconfig": "", "qps": 50},
            "delayCacheUntilActive": False,
            "enableProfiling": False,
            "extenders": None,
            "parallelism": 16,
            "percentageOfNodesToScore": 0,
            "profiles": [profile],
        }
    )


def test_a_file_that_kube_scheduler_wrote_is_read() -> None:
    there = [name for name in DEFAULT_PLUGINS if name in REGISTRY]
    told: list[str] = []
    configuration = load_text(HEADER + kube_file(there), warn=told.append)
    profile = build_profiles(configuration)["default-scheduler"]
    plain = build_profiles(load_text(HEADER + "profiles: [{base: default-scheduler}]"))["agent-scheduler"]
    assert [each.name for each in profile.filters] == [each.name for each in plain.filters]
    (said,) = told
    assert "parallelism" in said


def test_a_plugin_of_kube_scheduler_that_is_not_here_is_refused_where_it_is_enabled() -> None:
    told = refusal(kube_file(["SelectorSpread"]))
    assert "plugin SelectorSpread is not available: PodTopologySpread took its place" in told


def test_a_header_of_arguments_that_belongs_to_others_is_refused() -> None:
    for said, problem in (
        ("kind: NodeAffinityArgs", "found 'NodeAffinityArgs'; allowed: NodeResourcesFitArgs"),
        ("apiVersion: v1", "found 'v1'; allowed: agent-scheduler/v1, kubescheduler.config"),
    ):
        text = refusal(f"profiles: [{{pluginConfig: [{{name: NodeResourcesFit, args: {{{said}}}}}]}}]")
        assert f"args.{said.split(':')[0]}: {problem}" in text


def test_arguments_are_laid_over_those_of_the_base() -> None:
    def fit(args: str, base: str = "agent") -> str:
        configuration = load_text(
            HEADER + f"profiles: [{{base: {base}, pluginConfig: [{{name: NodeResourcesFit, args: {args}}}]}}]"
        )
        (profile,) = build_profiles(configuration).values()
        return next(type(s.plugin).__name__ for s in profile.scores if s.plugin.name == "NodeResourcesFit")

    assert fit("{ignoredResources: [example.com/a]}") == "MostAllocated"
    assert fit("{ignoredResources: [example.com/a]}", "default-scheduler") == "LeastAllocated"
    assert fit("{scoringStrategy: {type: LeastAllocated}}") == "LeastAllocated"


def test_a_part_that_is_disabled_without_its_whole_is_told_of() -> None:
    text = "profiles: [{plugins: {preFilter: {disabled: [{name: NodePorts}]}}}]"
    assert warnings(text) == [
        "f.yaml:3: profiles[0].plugins.preFilter.disabled[0].name: has no effect: preFilter is a part of filter; "
        "disable it there"
    ]
    both = "preFilter: {disabled: [{name: NodePorts}]}, filter: {disabled: [{name: NodePorts}]}"
    assert warnings(f"profiles: [{{plugins: {{{both}}}}}]") == []
