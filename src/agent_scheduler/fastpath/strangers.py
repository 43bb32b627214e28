"""Reports pods whose schedulerName is that of no profile, if no other scheduler handles them.

Other schedulers may exist, so nothing is reported for pods with a PodScheduled condition, for a schedulerName whose
pods have been bound or rejected, and for kube-scheduler's default name. Pods of removed profiles are reported unless
their condition changes meanwhile, since their old condition is no longer true.
"""

from __future__ import annotations

from typing import Final

from agent_scheduler.binding.messenger import KubeMessenger
from agent_scheduler.cluster.cluster import Cluster
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.engine.verdicts import PROFILE_NOT_FOUND, SCHEDULING_GATED, without_profile
from kube_client.retry import Timing

#: Seconds for which a pod waits before it is reported, and between two checks.
_PATIENCE: Final = 10.0
_LOOK: Final = 2.0
#: kube-scheduler, which reports nothing about pods outside its queue.
_EVERYWHERE: Final = "default-scheduler"
#: Reasons that no scheduler of a pod writes.
_OF_NOBODY: Final = (PROFILE_NOT_FOUND, SCHEDULING_GATED)


class Strangers:
    """Owns when each of them was seen first, and which were reported."""

    def __init__(self, cluster: Cluster, messenger: KubeMessenger, timing: Timing) -> None:
        self._cluster = cluster
        self._messenger = messenger
        self._timing = timing
        #: UID -> when it was seen first, and its condition then.
        self._since: dict[str, tuple[float, object]] = {}
        self._told: dict[str, PodInfo] = {}
        #: Names of schedulers that have bound or rejected a pod.
        self._served: set[str] = set()

    async def run(self) -> None:
        """Check until cancelled."""
        while True:
            await self._timing.sleep(_LOOK)
            self._look()

    def _look(self) -> None:
        cluster, now = self._cluster, self._timing.clock()
        strangers = cluster.strangers
        for uid in self._told.keys() - strangers.keys():
            self._messenger.settled(self._told.pop(uid))
        self._since = {uid: self._since.get(uid, (now, pod.condition)) for uid, pod in strangers.items()}
        late = [
            pod
            for uid, pod in strangers.items()
            if uid not in self._told and self._since[uid][0] + _PATIENCE <= now and not pod.gates
        ]
        if any(pod.scheduler_name not in self._served for pod in late):
            self._served |= {pod.scheduler_name for pod in cluster.pods.values() if _is_looked_at(pod)}
        for pod in late:
            if self._is_nobodys(pod):
                self._told[pod.uid] = pod
                self._messenger.stranger(pod, without_profile(pod.scheduler_name, sorted(cluster.profiles)))

    def _is_nobodys(self, pod: PodInfo) -> bool:
        if pod.scheduler_name in self._cluster.released:
            return pod.condition == self._since[pod.uid][1]
        return not (pod.condition or pod.scheduler_name in self._served or pod.scheduler_name == _EVERYWHERE)


def _is_looked_at(pod: PodInfo) -> bool:
    """Return whether a scheduler has bound or rejected it."""
    return bool(pod.node_name) or (pod.condition is not None and pod.condition[1] not in _OF_NOBODY)
