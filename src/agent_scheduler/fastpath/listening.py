"""Passes changes of waiting pods on to those who keep something about them: reports, history, queues and traces."""

from __future__ import annotations

from collections.abc import Callable

from agent_scheduler.binding.history import History
from agent_scheduler.binding.messenger import KubeMessenger
from agent_scheduler.cluster.cluster import KnownPods
from agent_scheduler.engine.gangs.native import NativeGroup
from agent_scheduler.engine.queues.usage import QueueUsage
from agent_scheduler.engine.state.podinfo import PodInfo

#: Receives pods that no longer wait: the UID, and the node, which is empty for a deleted or terminating pod.
Left = Callable[[str, str], object]


class PodChanges:
    """Implements `cluster.cluster.PodListener`; stateless."""

    def __init__(
        self, known: KnownPods, messenger: KubeMessenger, history: History, usage: QueueUsage, left: Left
    ) -> None:
        self._known = known
        self._messenger = messenger
        self._history = history
        self._usage = usage
        self._left = left
        self.seen = messenger.seen
        self.group_seen = messenger.group_seen

    def settled(self, pod: PodInfo, node_name: str) -> None:
        self._messenger.settled(pod)
        self._history.leaves(pod.uid, gone=pod.uid not in self._known.pods)
        if self._usage.room.active or self._usage.gated:
            self._usage.left(pod.uid)
        self._left(pod.uid, node_name)

    def group_gone(self, group: NativeGroup) -> None:
        self._messenger.group_gone(group.key, group.uid)
