"""By which rules a pod is judged, read plainly: a profile without a filter lets through what that one refuses."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from agent_scheduler.config.schema import Configuration
from tests.decisions.plain import Refusal
from tests.decisions.plain import World as Cluster
from tests.decisions.plain.filters import FILTERS

Json = dict[str, Any]

#: Filters that a configuration of ours may do without.
OPTIONAL = ("NodeAffinity", "NodeUnschedulable", "TaintToleration")


@dataclass(frozen=True, slots=True)
class Rules:
    """A configuration as worlds judge by it. `names`: whose pods are ours; `off`: filters that are disabled."""

    names: frozenset[str] = frozenset({"agent-scheduler"})
    off: frozenset[str] = frozenset()
    preempts: bool = True

    def applied_to_pod(self, pod: Json) -> Json:
        """`pod` without what nobody reads."""
        if "NodeAffinity" not in self.off:
            return pod
        spec = {key: value for key, value in pod["spec"].items() if key != "nodeSelector"}
        if "affinity" in spec:
            spec["affinity"] = {
                key: value for key, value in spec["affinity"].items() if key != "nodeAffinity"
            }
        return {**pod, "spec": spec}

    def applied_to_node(self, node: Json) -> Json:
        """`node` without what nobody reads."""
        unread = {
            field
            for name, field in (("TaintToleration", "taints"), ("NodeUnschedulable", "unschedulable"))
            if name in self.off
        }
        if not unread:
            return node
        return {**node, "spec": {key: value for key, value in node["spec"].items() if key not in unread}}


def rules_of(configuration: Configuration) -> Rules:
    """Its profiles are all alike, but for their names."""
    names = frozenset(profile.scheduler_name for profile in configuration.profiles)
    plugins = configuration.profiles[0].plugins
    disabled = {each.name for each in (*plugins.filter.disabled, *plugins.post_filter.disabled)}
    return Rules(names, frozenset(disabled.intersection(OPTIONAL)), "DefaultPreemption" not in disabled)


def readable(obj: Json) -> Json:
    """With the parts that plain readings take for granted."""
    return {**obj, "spec": obj.get("spec") or {}, "status": obj.get("status") or {}}


def is_ready(node: Json) -> bool:
    conditions = {each["type"]: each["status"] for each in node["status"].get("conditions") or ()}
    return conditions.get("Ready", "True") == "True"


def cluster_of(nodes: Iterable[Json], placed: Iterable[Json]) -> Cluster:
    """Each of `placed` has its nodeName."""
    return Cluster(tuple(nodes), tuple(placed))


def refusal(pod: Json, node: Json, cluster: Cluster, rules: Rules) -> Refusal | None:
    """Why `pod` may not go to `node`, one of the cluster's; None if it may. Nothing is said of volumes and devices."""
    for name, refuse in FILTERS.items():
        if name.partition("'")[0] in rules.off:
            continue
        if (found := refuse(pod, node, cluster)) is not None:
            return found
    return None
