"""Members of Kubernetes' own PodGroups that no node would help: what they are told, and when that is over.

kube-scheduler says nothing of a pod that waits before its queue for its group, or for as many members as that needs,
and `Unschedulable` of one whose gang lacks gated members. So does a profile whose base is its own; all others say what
is missing (`engine.verdicts`), whatever they were refused for before: no event of a pod tells that others of its gang
are gone. A gang whose members come within a moment of one another is told nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from agent_scheduler.cluster.cluster import Cluster
from agent_scheduler.engine.framework.plugin import GANG_SCHEDULING, PreEnqueue
from agent_scheduler.engine.gangs.native import NativeGroup, native_key
from agent_scheduler.engine.queueing.places import Place
from agent_scheduler.engine.state.batchinfo import GroupKey
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.engine.verdicts import Verdict, others_gated, too_few, without_group
from agent_scheduler.kube.retry import Timing
from agent_scheduler.objects.batch import QUEUE_ALLOCATION_GATE

#: Seconds between two looks at those that wait, and how many of them are looked at before others have their turn.
_LOOK: Final = 1.0
_PORTION: Final = 256
#: Places in which a pod waits for something to happen.
_RESTING: Final = (Place.GATED, Place.UNSCHEDULABLE, Place.BACKOFF)


class Messenger(Protocol):
    """Tells the API server. Returns at once."""

    def refused(self, pod: PodInfo, reason: str, message: str, *, nominated: str | None = None) -> None: ...
    def group_decided(self, group: NativeGroup, status: str, reason: str, message: str) -> None: ...


def of_gang(cluster: Cluster, key: GroupKey) -> Verdict | None:
    """What members of a gang wait for that no node would help; None if nodes would, or there is nothing to wait for."""
    group = cluster.groups.get(key)
    if group is None:
        return without_group(key.text)
    members = cluster.groups.members(key)
    if len(members) < group.minimum:
        return too_few(len(members), group.minimum)
    gates = [pod.gates for pod in members.values() if pod.gates and not pod.node_name]
    if len(members) - len(gates) >= group.minimum:
        return None
    return others_gated(len(gates), len(members), gates.count((QUEUE_ALLOCATION_GATE,)))


class GangWaits:
    """Owner of the members that wait, and of what each was told last of its gang. `attach` comes before anything is
    watched."""

    def __init__(self, timing: Timing, messenger: Messenger) -> None:
        self._timing = timing
        self._messenger = messenger
        self._cluster: Cluster | None = None
        #: UID -> since when, and what was said.
        self._noted: dict[str, tuple[float, Verdict | None]] = {}
        self._some = asyncio.Event()

    def attach(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def note(self, pod: PodInfo, said: Verdict | None = None) -> None:
        """It may come to wait. `said`: what it was told already."""
        if said is not None or pod.uid not in self._noted:
            self._noted[pod.uid] = self._timing.clock(), said
            self._some.set()

    def lacks(self, pod: PodInfo) -> Verdict | None:
        """What its gang lacks, of a member that is told so, whatever else it waits for."""
        key = native_key(pod) if pod.uid in self._noted else None
        return None if key is None or self._cluster is None else of_gang(self._cluster, key)

    def tried(self, pods: Iterable[PodInfo]) -> None:
        """Their gang is whole, and they are told what comes of it."""
        for pod in pods:
            if pod.uid in self._noted:
                self._noted[pod.uid] = self._noted[pod.uid][0], None

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._some.wait()
            await self._timing.sleep(_LOOK)
            await self._look()
            if not self._noted:
                self._some.clear()

    async def _look(self) -> None:
        cluster, noted = self._cluster, self._noted
        assert cluster is not None, "attached before anything is watched"
        before = self._timing.clock() - _LOOK
        verdicts: dict[GroupKey, Verdict | None] = {}
        for number, (uid, (since, said)) in enumerate(list(noted.items()), start=1):
            if not number % _PORTION:
                await asyncio.sleep(0)
            pod = cluster.pods.get(uid)
            key = None if pod is None else native_key(pod)
            if pod is None or key is None or not cluster.is_ours(pod) or uid in cluster.ledger.placements:
                noted.pop(uid, None)
                continue
            if cluster.queue.where(uid) not in _RESTING or pod.gates:
                continue
            if key not in verdicts:
                verdicts[key] = of_gang(cluster, key)
            verdict = verdicts[key]
            if verdict is None and said is not None:
                noted[uid] = since, None
                cluster.queue.activate([uid])
            elif verdict is not None and verdict != said and since <= before:
                noted[uid] = since, verdict
                self._tell(pod, key, verdict)

    def _tell(self, pod: PodInfo, key: GroupKey, verdict: Verdict) -> None:
        assert self._cluster is not None
        self._messenger.refused(pod, verdict.reason, verdict.message)
        group = self._cluster.groups.get(key)
        if group is not None and group.condition is not None:
            # What it said when it was tried.
            self._messenger.group_decided(group, "False", verdict.reason, verdict.message)


class NotedGangScheduling:
    """The plugin, which notes whom it is asked about."""

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
    """These plugins, of which that of gangs notes whom it is asked about."""
    return [
        NotedGangScheduling(plugin, waits) if plugin.name == GANG_SCHEDULING else plugin for plugin in plugins
    ]
