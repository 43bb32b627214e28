"""The watches of the fast path: nodes, pods and what they use, and the inputs of its profiles' plugins."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from agent_scheduler.binding.runtime import Runtime
from agent_scheduler.cluster import kinds as cluster_kinds
from agent_scheduler.cluster.groups import NATIVE_POD_GROUP, POD_GROUP, Groups, counted_queues, native_groups
from agent_scheduler.cluster.state import SharedState
from agent_scheduler.engine.events.events import Resource
from agent_scheduler.engine.framework.plugin import Profile, Reads
from agent_scheduler.engine.plugins.dynamic_resources import take_timeouts
from agent_scheduler.engine.preemption.pdbs import PDBs
from agent_scheduler.engine.state.podclasses import PodClasses
from agent_scheduler.engine.state.siblings import OwnerKind
from kube_client.informers import Informers, Kind

from .rules import Rules

_VOLUMES: Final = ("VolumeBinding", "VolumeZone", "VolumeRestrictions", "NodeVolumeLimits")
#: Kind -> the plugins that need it, of which some may be configured. Other kinds are always needed.
READERS: Final[Mapping[str, Collection[str]]] = MappingProxyType(
    {
        "Namespace": ("InterPodAffinity",),
        "PodDisruptionBudget": ("DefaultPreemption", "pdb"),
        Resource.STORAGE_CLASS.value: _VOLUMES,
        Resource.PERSISTENT_VOLUME.value: _VOLUMES,
        Resource.PERSISTENT_VOLUME_CLAIM.value: _VOLUMES,
        Resource.CSI_NODE.value: ("VolumeBinding", "NodeVolumeLimits"),
        Resource.CSI_DRIVER.value: ("VolumeBinding", "NodeVolumeLimits"),
        Resource.CSI_STORAGE_CAPACITY.value: ("VolumeBinding",),
        Resource.VOLUME_ATTACHMENT.value: ("NodeVolumeLimits",),
        **{
            each.value: ("DynamicResources",)
            for each in (Resource.DEVICE_CLASS, Resource.RESOURCE_SLICE, Resource.RESOURCE_CLAIM)
        },
        **{each.value: ("PodTopologySpread",) for each in OwnerKind},
        NATIVE_POD_GROUP: ("GangScheduling", "gang"),
        POD_GROUP: ("gang",),
        "Queue": ("proportion", "capacity"),
        "PriorityClass": ("priority",),
        "ResourceQuota": ("resourcequota",),
    }
)


class Watching:
    """Owns the informers, the pod classes of their decoders, and the disruption budgets."""

    def __init__(self, runtime: Runtime, state: SharedState, rules: Rules, groups: Groups | None) -> None:
        """Create the informers; `groups` and their inputs are watched, too, if there is a batch scheduler."""
        self._cluster = state.cluster
        self._rules = rules
        self._groups = groups
        self._classes = PodClasses()
        self.pdbs = PDBs()
        configured = {**rules.beside, **rules.profiles}.values()
        kinds = [
            *cluster_kinds.kinds(state.cluster, self._classes, self.pdbs, groups),
            *state.storage.kinds(),
            *state.claims.kinds(),
            counted_queues(state.cluster, groups),
            *(groups.kinds() if groups is not None else ()),
            *self._read_by(configured),
        ]
        self.informers = Informers(
            with_readers(kinds, configured),
            transport=runtime.transport,
            times=rules.settings.watch_times,
            timing=runtime.timing,
            observer=runtime.observer,
            burst=state.cluster.events.burst,
        )
        self.read_for(rules.profiles)

    def read_for(self, profiles: Mapping[str, Profile]) -> None:
        """Provide the inputs of these profiles' plugins, now or soon."""
        profiles = {**self._rules.beside, **profiles}

        def reading(what: Reads) -> frozenset[str]:
            return frozenset(name for name, profile in profiles.items() if what in profile.reads)

        images, before = reading(Reads.IMAGES), self._classes.images_for
        self._classes.images_for = images
        quotas, quotas_before = reading(Reads.QUOTAS), self._classes.quotas_for
        self._classes.quotas_for = quotas
        if (images, quotas) != (before, quotas_before):
            self.informers.read_again("Pod")
        if bool(images) != bool(before):
            self.informers.read_again("Node")
        take_timeouts(profiles, self._cluster.devices)
        self._take_workload(bool(reading(Reads.TARGET_WORKLOAD)))
        self._cluster.owners.schedulers = reading(Reads.OWNERS)
        self.informers.also(with_readers(self._read_by(profiles.values()), profiles.values()))

    def _read_by(self, profiles: Collection[Profile]) -> list[Kind]:
        """Return the kinds that are watched because a plugin of these profiles needs them."""
        reads = frozenset[Reads]().union(*(profile.reads for profile in profiles))
        found = cluster_kinds.owners(self._cluster) if Reads.OWNERS in reads else []
        if self._groups is not None or any(profile.gangs for profile in profiles):
            found.append(native_groups(self._cluster, self._groups))
        if self._groups is not None and Reads.QUOTAS in reads:
            found.append(self._groups.quota_kind())
        return found

    def _take_workload(self, wanted: bool) -> None:
        workload = self._cluster.target_workload
        if wanted and not workload.wanted:
            workload.begin(pod.cls for pod in self._cluster.pods.values())
        workload.wanted = wanted


def with_readers(kinds: Iterable[Kind], profiles: Collection[Profile]) -> list[Kind]:
    """Return the kinds with those of their readers that these profiles have."""
    names = frozenset[str]().union(*(profile.plugin_names for profile in profiles))
    return [
        replace(kind, readers=tuple(each for each in READERS.get(kind.name, ()) if each in names)) for kind in kinds
    ]
