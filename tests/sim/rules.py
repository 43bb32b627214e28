"""By which rules a pod is judged, read plainly: a profile without a filter lets through what that one refuses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agent_scheduler.config import Configuration
from tests.unit.engine.world import plain_reasons

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
        spec = {key: value for key, value in pod["spec"].items() if key not in ("nodeSelector", "affinity")}
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


def fits(pod: Json, node: Json, placed: Sequence[Json], rules: Rules) -> bool:
    """Whether `pod` may go to `node` beside `placed`."""
    return not plain_reasons(rules.applied_to_pod(pod), rules.applied_to_node(node), list(placed))[0]
