"""The rules by which a pod is judged: a profile without a filter accepts what that filter rejects.

Also computes GPUs of nodes and pods from the API's objects: hypothetical placements, and how many pods fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agent_scheduler.config.schema import Configuration
from tests.decisions.plain import Refusal
from tests.decisions.plain import World as Cluster
from tests.decisions.plain.filters import FILTERS
from tests.decisions.plain.gpu_share import ANNOTATION, WHOLE, asked, choice, devices, given, left

from .api import Json, name_of

#: Filters that a configuration of a world may disable.
OPTIONAL = ("NodeAffinity", "NodeUnschedulable", "TaintToleration")


@dataclass(frozen=True, slots=True)
class Rules:
    """A configuration as judges use it. `names`: schedulerNames of our pods; `off`: disabled filters."""

    names: frozenset[str] = frozenset({"agent-scheduler"})
    off: frozenset[str] = frozenset()
    preempts: bool = True

    def applied_to_pod(self, pod: Json) -> Json:
        """Return `pod` without the fields that only disabled filters read."""
        if "NodeAffinity" not in self.off:
            return pod
        spec = {key: value for key, value in pod["spec"].items() if key != "nodeSelector"}
        if "affinity" in spec:
            spec["affinity"] = dict(spec["affinity"])
            spec["affinity"].pop("nodeAffinity", None)
        return {**pod, "spec": spec}

    def applied_to_node(self, node: Json) -> Json:
        """Return `node` without the fields that only disabled filters read."""
        fields = {"TaintToleration": "taints", "NodeUnschedulable": "unschedulable"}
        unread = {field for name, field in fields.items() if name in self.off}
        if not unread:
            return node
        return {**node, "spec": {key: value for key, value in node["spec"].items() if key not in unread}}


def rules_of(configuration: Configuration) -> Rules:
    """Return the rules of the configuration, whose profiles differ only in their names."""
    names = frozenset(profile.scheduler_name for profile in configuration.profiles)
    plugins = configuration.profiles[0].plugins
    disabled = {each.name for each in (*plugins.filter.disabled, *plugins.post_filter.disabled)}
    return Rules(names, frozenset(disabled.intersection(OPTIONAL)), "DefaultPreemption" not in disabled)


def readable(obj: Json) -> Json:
    """Return the object with the parts that plain readings require."""
    return {**obj, "spec": obj.get("spec") or {}, "status": obj.get("status") or {}}


def is_ready(node: Json) -> bool:
    conditions = {each["type"]: each["status"] for each in node["status"].get("conditions") or ()}
    return conditions.get("Ready", "True") == "True"


def cluster_of(nodes: Iterable[Json], placed: Iterable[Json]) -> Cluster:
    """Return the cluster. Each of `placed` has its nodeName."""
    return Cluster(tuple(nodes), tuple(placed))


def refusal(pod: Json, node: Json, cluster: Cluster, rules: Rules) -> Refusal | None:
    """Return why `node` rejects `pod`; None if it accepts it. Volumes and devices are not considered."""
    for name, refuse in FILTERS.items():
        if name.partition("'")[0] in rules.off:
            continue
        if (found := refuse(pod, node, cluster)) is not None:
            return found
    return None


def with_devices(pod: Json, indices: Sequence[int]) -> Json:
    """Return the pod as if its annotation named these devices."""
    metadata = pod["metadata"]
    annotations = {**(metadata.get("annotations") or {}), ANNOTATION: ",".join(map(str, indices))}
    return {**pod, "metadata": {**metadata, "annotations": annotations}}


def as_placed(pod: Json, chosen: Sequence[int]) -> Json:
    """Return a placed pod with the devices that a process has chosen for it, unless its annotation names some."""
    return with_devices(pod, chosen) if chosen and not given(pod) else pod


def beside(pods: Sequence[Json], node: Json, placed: Sequence[Json]) -> list[Json]:
    """Return `pods` with the devices that each would get on the node, one after another."""
    there, found = list(placed), []
    for pod in pods:
        each = with_devices(pod, choice(left(node, there), asked(pod))) if asked(pod) else pod
        there.append(each)
        found.append(each)
    return found


# ---- gangs


def places_by_gpus(pods: Sequence[Json], node: Json, placed: Sequence[Json]) -> int | None:
    """Return for how many of these pods the node has devices if each requests as much as the largest; None: for all."""
    amount = max(map(asked, pods), default=0)
    if not amount:
        return None
    there = [pod for pod in placed if pod["spec"]["nodeName"] == name_of(node)]
    free = left(node, there)
    # Pods that name no device, or a missing one, use some nevertheless.
    together = (devices(node) * WHOLE - sum(map(asked, there))) // amount
    if amount < WHOLE:
        return min(together, sum(max(0, each) // amount for each in free))
    return min(together, free.count(WHOLE) // (amount // WHOLE))


def are_enough(pods: Sequence[Json], nodes: Sequence[Json]) -> bool:
    """Return whether the nodes offer as many thousandths as these pods request."""
    return sum(map(asked, pods)) <= sum(devices(node) * WHOLE for node in nodes)
