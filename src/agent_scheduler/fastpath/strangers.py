"""Pods whose schedulerName is that of no profile here, and that nobody else looks at either: they are told so.

There may be other schedulers, so nothing is said of a pod that has a PodScheduled condition, of one whose schedulerName
any pod has that somebody has bound or refused, and of the name that every cluster's own scheduler has. Pods of a
profile that this process no longer has are told unless somebody says something else of them meanwhile: what they said
before is not true any more.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Protocol

from agent_scheduler.cluster.cluster import Cluster
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.engine.verdicts import Verdict, without_profile
from agent_scheduler.kube.retry import Timing

#: Seconds for which a pod waits before it is spoken of, and between two looks.
_PATIENCE: Final = 10.0
_LOOK: Final = 2.0
#: kube-scheduler, which says nothing of pods before their queue.
_EVERYWHERE: Final = "default-scheduler"


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
        late = [pod for uid, pod in strangers.items() if uid not in self._told and self._is_late(pod, now)]
        served = self._served() if any(pod.scheduler_name not in cluster.released for pod in late) else ()
        for pod in late:
            if pod.scheduler_name in cluster.released or pod.scheduler_name not in served:
                self._told[pod.uid] = pod
                self._messenger.stranger(pod, without_profile(pod.scheduler_name, sorted(cluster.profiles)))

    def _is_late(self, pod: PodInfo, now: float) -> bool:
        since, condition = self._since[pod.uid]
        is_unseen = pod.condition is None and pod.scheduler_name != _EVERYWHERE
        looked_at = (
            pod.condition != condition if pod.scheduler_name in self._cluster.released else not is_unseen
        )
        return since + _PATIENCE <= now and not pod.gates and not looked_at

    def _served(self) -> Collection[str]:
        """Names of schedulers that have bound or refused a pod."""
        pods = self._cluster.pods.values()
        return {pod.scheduler_name for pod in pods if pod.node_name or pod.condition is not None}
