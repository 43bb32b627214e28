"""Members of Kubernetes' own PodGroups that wait for something other than nodes: their conditions.

kube-scheduler does not write a condition for a pod that waits outside its queue for its group or for more members,
and writes `Unschedulable` for one whose gang lacks gated members. So does a profile with kube-scheduler's base. All
others report what is missing (`engine.verdicts`), regardless of earlier conditions, since no event of a pod reports
that other members have gone. A gang whose members arrive within a moment gets no condition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

from agent_scheduler.binding.messenger import KubeMessenger
from agent_scheduler.cluster.cluster import KnownPods
from agent_scheduler.engine.framework.plugin import GANG_SCHEDULING, PreEnqueue
from agent_scheduler.engine.gangs.native import NativeGroups, native_key
from agent_scheduler.engine.ledger import Ledger
from agent_scheduler.engine.queueing.places import Place
from agent_scheduler.engine.queueing.queue import SchedulingQueue
from agent_scheduler.engine.state.batchinfo import GroupKey
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.engine.verdicts import Verdict, others_gated, too_few, without_group
from agent_scheduler.objects.batch import QUEUE_ALLOCATION_GATE
from kube_client.retry import Timing

#: Seconds between two checks of waiting members, and the number of members checked before other tasks run.
_LOOK: Final = 1.0
_PORTION: Final = 256
#: Places in which a pod waits for an event.
_RESTING: Final = (Place.GATED, Place.UNSCHEDULABLE, Place.BACKOFF)


def of_gang(groups: NativeGroups, key: GroupKey) -> Verdict | None:
    """Return what members of a gang wait for other than nodes; None if nodes would help or nothing is missing."""
    group = groups.get(key)
    if group is None:
        return without_group(key.text)
    members = groups.members(key)
    if len(members) < group.minimum:
        return too_few(len(members), group.minimum)
    gates = [pod.gates for pod in members.values() if pod.gates and not pod.node_name]
    if len(members) - len(gates) >= group.minimum:
        return None
    return others_gated(len(gates), len(members), gates.count((QUEUE_ALLOCATION_GATE,)))


class GangWaits:
    """Owns the waiting members and their last conditions about the gang."""

    def __init__(self, known: KnownPods, ledger: Ledger, messenger: KubeMessenger, timing: Timing) -> None:
        self._known = known
        self._ledger = ledger
        self._timing = timing
        self._messenger = messenger
        #: UID -> the start of the wait and the last verdict.
        self._noted: dict[str, tuple[float, Verdict | None]] = {}
        self._some = asyncio.Event()

    def note(self, pod: PodInfo, said: Verdict | None = None) -> None:
        """Note a pod that may start to wait. `said` is a verdict that was already written."""
        if said is not None or pod.uid not in self._noted:
            self._noted[pod.uid] = self._timing.clock(), said
            self._some.set()

    def lacks(self, pod: PodInfo) -> Verdict | None:
        """Return what its gang lacks, for a noted member, regardless of other reasons to wait."""
        key = native_key(pod) if pod.uid in self._noted else None
        return None if key is None else of_gang(self._known.groups, key)

    def tried(self, pods: Iterable[PodInfo]) -> None:
        """Note that the gang of these pods is complete, so that they get the result of its attempt."""
        for pod in pods:
            if pod.uid in self._noted:
                self._noted[pod.uid] = self._noted[pod.uid][0], None

    async def run(self, queue: SchedulingQueue) -> None:
        """Check the noted members, which wait in `queue`, until cancelled."""
        while True:
            await self._some.wait()
            await self._timing.sleep(_LOOK)
            await self._look(queue)
            if not self._noted:
                self._some.clear()

    async def _look(self, queue: SchedulingQueue) -> None:
        known, noted = self._known, self._noted
        before = self._timing.clock() - _LOOK
        verdicts: dict[GroupKey, Verdict | None] = {}
        for number, (uid, (since, said)) in enumerate(list(noted.items()), start=1):
            if not number % _PORTION:
                await asyncio.sleep(0)
            pod = known.pods.get(uid)
            key = None if pod is None else native_key(pod)
            if pod is None or key is None or not known.is_ours(pod) or uid in self._ledger.placements:
                noted.pop(uid, None)
                continue
            if queue.where(uid) not in _RESTING or pod.gates:
                continue
            if key not in verdicts:
                verdicts[key] = of_gang(known.groups, key)
            verdict = verdicts[key]
            if verdict is None and said is not None:
                noted[uid] = since, None
                queue.activate([uid])
            elif verdict is not None and verdict != said and since <= before:
                noted[uid] = since, verdict
                self._tell(pod, key, verdict)

    def _tell(self, pod: PodInfo, key: GroupKey, verdict: Verdict) -> None:
        self._messenger.refused(pod, verdict.reason, verdict.message)
        group = self._known.groups.get(key)
        if group is not None and group.condition is not None:
            # The condition of its last attempt.
            self._messenger.group_decided(group, "False", verdict.reason, verdict.message)


class NotedGangScheduling:
    """The gang plugin, extended to note the pods that it checks."""

    name = GANG_SCHEDULING

    def __init__(self, plugin: PreEnqueue, waits: GangWaits) -> None:
        self._plugin = plugin
        self._waits = waits
        self.concerns = getattr(plugin, "concerns", lambda _pod: True)

    def pre_enqueue(self, pod: PodInfo) -> str | None:
        if native_key(pod) is not None:
            self._waits.note(pod)
        return self._plugin.pre_enqueue(pod)


def noting(plugins: Sequence[PreEnqueue], waits: GangWaits) -> list[PreEnqueue]:
    """Replace the gang plugin among these by one that notes the pods it checks."""
    return [NotedGangScheduling(plugin, waits) if plugin.name == GANG_SCHEDULING else plugin for plugin in plugins]
