"""Pods whose schedulerName is that of no profile here, and that nobody else looks at either: they are told so.

There may be other schedulers, so nothing is said of a pod that has a PodScheduled condition, of one whose schedulerName
any pod has that somebody has bound or refused, and of the name that every cluster's own scheduler has. Pods of a
profile that this process no longer has are told unless somebody says something else of them meanwhile: what they said
before is not true any more.
"""

from __future__ import annotations

from typing import Final, Protocol

from agent_scheduler.cluster.cluster import Cluster
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.engine.verdicts import PROFILE_NOT_FOUND, SCHEDULING_GATED, Verdict, without_profile
from agent_scheduler.kube.retry import Timing

#: Seconds for which a pod waits before it is spoken of, and between two looks.
_PATIENCE: Final = 10.0
_LOOK: Final = 2.0
#: kube-scheduler, which says nothing of pods before their queue.
_EVERYWHERE: Final = "default-scheduler"
#: Reasons that no scheduler of a pod gives.
_OF_NOBODY: Final = (PROFILE_NOT_FOUND, SCHEDULING_GATED)


class Messenger(Protocol):
    """Tells the API server. Returns at once."""

    def stranger(self, pod: PodInfo, verdict: Verdict) -> None: ...
    def settled(self, pod: PodInfo) -> None: ...


class Strangers:
    """Owner of when each of them was seen first, and of who was told."""

    def __init__(self, cluster: Cluster, messenger: Messenger, timing: Timing) -> None:
        self._cluster = cluster
        self._messenger = messenger
        self._timing = timing
        #: Since when, and the condition that it had then.
        self._since: dict[str, tuple[float, object]] = {}
        self._told: dict[str, PodInfo] = {}
        #: Names of schedulers that have bound or refused a pod.
        self._served: set[str] = set()

    async def run(self) -> None:
        """Until cancelled."""
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
    """Whether a scheduler has bound or refused it."""
    return bool(pod.node_name) or (pod.condition is not None and pod.condition[1] not in _OF_NOBODY)
