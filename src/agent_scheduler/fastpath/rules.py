"""The current settings and profiles, with the profiles adapted to this cluster and shard."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from agent_scheduler.binding.preemption import PreemptionGate
from agent_scheduler.binding.queue_gate import QueueGate
from agent_scheduler.engine.decide.decide import ClassViews
from agent_scheduler.engine.decide.snapshot import Snapshot
from agent_scheduler.engine.dra.catalogue import Devices
from agent_scheduler.engine.framework.plugin import CleanupReservations, PreEnqueue, Profile
from agent_scheduler.engine.gangs.native import NativeGroups
from agent_scheduler.engine.ledger import Ledger
from agent_scheduler.engine.shards.claims import Membership, ShardingMode

from .gang_waits import GangWaits, noting
from .settings import FastPathSettings
from .shard import within
from .worker import Views


class Rules:
    """Owns what a new configuration replaces. `settings` and `profiles`, by name, change together."""

    def __init__(
        self, settings: FastPathSettings, ledger: Ledger, devices: Devices, groups: NativeGroups, gang_waits: GangWaits
    ) -> None:
        self._ledger = ledger
        self._devices = devices
        self._groups = groups
        #: Keeps pods out of the queue while others are evicted for them.
        self.gate = PreemptionGate()
        self._gang_waits = gang_waits
        #: The usable nodes, if nodes are shared.
        self.membership = Membership()
        self.settings = settings
        self.profiles: Mapping[str, Profile] = self.seeing(settings.profiles)
        self.beside: Mapping[str, Profile] = self.seeing(settings.beside)
        self._cleanups = self._cleanups_of()

    def profile(self, name: str) -> Profile:
        """Return a profile of any scheduler of this process."""
        return self.profiles.get(name) or self.beside[name]

    def adopt(self, settings: FastPathSettings, profiles: Mapping[str, Profile], beside: Mapping[str, Profile]) -> None:
        """Switch to other settings. `profiles` and `beside` are the results of `seeing` for those of `settings`."""
        self.settings, self.profiles, self.beside = settings, profiles, beside
        self._cleanups = self._cleanups_of()

    def cleanups(self, scheduler_name: str) -> Sequence[CleanupReservations]:
        """Return the plugins to inform about the end of a reservation; none for a removed profile."""
        return self._cleanups.get(scheduler_name, ())

    def _cleanups_of(self) -> Mapping[str, Sequence[CleanupReservations]]:
        return {name: each.cleanups() for name, each in (*self.profiles.items(), *self.beside.items())}

    def seeing(self, profiles: Iterable[Profile]) -> dict[str, Profile]:
        """Return the profiles by name, bound to this cluster, and in mode `hard` to the nodes of the shard."""
        seen = (self._ledger, self._devices, self._groups)
        seeing = {each.scheduler_name: each.seeing(*seen) for each in profiles}
        return within(self.membership, seeing) if self.settings.sharding is ShardingMode.HARD else seeing

    def pre_enqueue(
        self, profiles: Mapping[str, Profile], queue_gate: QueueGate | None
    ) -> dict[str, tuple[PreEnqueue | PreemptionGate | QueueGate, ...]]:
        """Return the plugins that keep pods out of the queue, by profile.

        `queue_gate` is None while there are no queues of capacity. It comes last, so that a pod with another reason to
        wait does not report its queue.
        """
        return {
            name: (
                *(profile.pre_enqueue if profile.as_kube else noting(profile.pre_enqueue, self._gang_waits)),
                *((self.gate,) if profile.preemption is not None else ()),
                *((queue_gate,) if queue_gate is not None else ()),
            )
            for name, profile in profiles.items()
        }

    def views(self, profiles: Mapping[str, Profile], snapshot: Snapshot) -> Views:
        """Return the views, with those of the shard first if other nodes are the second choice."""
        chosen = [profiles]
        if self.settings.sharding is ShardingMode.SOFT:
            chosen.insert(0, within(self.membership, profiles))
        return tuple({name: ClassViews(profile, snapshot) for name, profile in each.items()} for each in chosen)
