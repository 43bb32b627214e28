"""The policies: scores of a profile, or random choice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from agent_scheduler.engine.framework.args import FragmentationArgs, PluginArgs
from agent_scheduler.engine.framework.plugin import Profile
from agent_scheduler.engine.framework.points import ALL, Enabled, PluginSet
from agent_scheduler.engine.profiles.profiles import REGISTRY, ProfileSpec, build_profile
from apimachinery.codec import decode

from ..harness.manifests import template_of
from ..harness.specs import GPU_MILLI, PodSpec

#: How the published policies measure nodes: by CPU and GPUs alike.
_AS_PUBLISHED: Final = {"resources": [{"name": "cpu"}, {"name": GPU_MILLI}]}
_FIT: Final = "NodeResourcesFit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A policy. `scores`: plugin -> weight; empty for a random node and GPU. `args` as in a configuration file."""

    name: str
    scores: Mapping[str, int] = field(default_factory=dict)
    args: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    #: Whether the expected pods are configured; a policy that uses them otherwise learns them.
    is_told: bool = False

    @property
    def is_random(self) -> bool:
        return not self.scores

    def arguments(self, pods: Sequence[PodSpec]) -> dict[str, dict[str, Any]]:
        """Return plugin -> its arguments as in a file, with the target workload if it is configured."""
        found = {name: dict(args) for name, args in self.args.items()}
        if self.is_told:
            found.setdefault("Fragmentation", {})["targetWorkload"] = target_workload(pods)
        return found

    def profile(self, pods: Sequence[PodSpec]) -> Profile:
        args: dict[str, PluginArgs] = {
            name: decode(each, REGISTRY[name].args, path=("args",)) for name, each in self.arguments(pods).items()
        }
        scores = PluginSet(tuple(Enabled(name, weight) for name, weight in self.scores.items()), (ALL,))
        return build_profile(ProfileSpec(scheduler_name=self.name, plugins={"score": scores}, args=args))


def target_workload(pods: Sequence[PodSpec]) -> list[dict[str, Any]]:
    """Return the kinds of pods, each with its number."""
    kinds = Counter((tuple(pod.requests.items()), tuple(pod.affinity.items())) for pod in pods)
    found = []
    for (requests, affinity), count in kinds.items():
        template = template_of(PodSpec(name="", requests=dict(requests), affinity=dict(affinity)))
        kind: dict[str, Any] = {"requests": dict(template.requests), "weight": count}
        if affinity:
            kind["nodeAffinity"] = template.spec["affinity"]["nodeAffinity"]
        found.append(kind)
    return found


def measured_by(pods: Sequence[PodSpec]) -> FragmentationArgs:
    """Return arguments whose measure is how fragmented a cluster is for these pods."""
    return decode(msgspec.to_builtins({"targetWorkload": target_workload(pods)}), FragmentationArgs, path=("args",))


_FRAGMENTATION: Final = {"Fragmentation": 100, "BestFit": 1}

#: All of them, in the order of the tables.
POLICIES: Final = (
    Policy(name="Random"),
    Policy(name="LeastAllocated", scores={_FIT: 1}, args={_FIT: {"scoringStrategy": {"type": "LeastAllocated"}}}),
    Policy(name="MostAllocated", scores={_FIT: 1}, args={_FIT: {"scoringStrategy": {"type": "MostAllocated"}}}),
    Policy(name="DotProduct", scores={"DotProduct": 1}, args={"DotProduct": _AS_PUBLISHED}),
    Policy(name="GPUPacking", scores={"GPUPacking": 1}),
    Policy(name="BestFit", scores={"BestFit": 1}, args={"BestFit": _AS_PUBLISHED}),
    Policy(name="Fragmentation", scores=_FRAGMENTATION, is_told=True),
    Policy(name="Fragmentation-learnt", scores=_FRAGMENTATION),
)
