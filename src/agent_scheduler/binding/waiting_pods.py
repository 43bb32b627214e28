"""Permit: the pods that wait for plugins, assumed on their nodes, before their PreBind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from agent_scheduler.cluster.changes import wait_for_change
from agent_scheduler.engine.decide.refusals import Refusal, fit_error
from agent_scheduler.engine.framework.prebind import Permit, Rejected, Wait
from agent_scheduler.engine.state.nodeinfo import NodeInfo
from agent_scheduler.engine.state.podinfo import PodInfo

#: The longest time in seconds for which a plugin may delay a pod, as kube-scheduler's `maxTimeout`.
LONGEST: Final = 900.0


class PermitWaitingPod:
    """Implements `WaitingPod` of `engine.framework.prebind`."""

    def __init__(self, pod: PodInfo, node_name: str) -> None:
        self.pod = pod
        self.node_name = node_name
        #: Plugin -> its timeout in seconds.
        self.timeouts: dict[str, float] = {}
        self._refusal: Refusal | None = None
        self._changed = asyncio.Event()

    @property
    def pending_plugins(self) -> tuple[str, ...]:
        return tuple(self.timeouts)

    def allow(self, plugin_name: str) -> None:
        self.timeouts.pop(plugin_name, None)
        self._changed.set()

    def reject(self, plugin_name: str, reason: str) -> None:
        if self.timeouts and self._refusal is None:
            self._refusal = Refusal(fit_error(1, {reason: 1}), frozenset((plugin_name,)))
            self._changed.set()

    async def settled(self, clock: Callable[[], float], wanted: Callable[[], bool]) -> Refusal | str:
        """Wait until all plugins have answered. Returns why the pod must not be bound; empty if it may be."""
        began = clock()
        while self.timeouts and self._refusal is None:
            if not wanted():
                return "the pod no longer waits"
            name = min(self.timeouts, key=lambda each: self.timeouts[each])
            timeout = self.timeouts[name]
            left = began + timeout - clock()
            if left <= 0:
                self.reject(name, f"rejected due to timeout after waiting {timeout:g}s at plugin {name}")
                break
            self._changed.clear()
            await wait_for_change(self._changed, within=left)
        return self._refusal or ""


class WaitingPodsMap:
    """Owner of the waiting pods."""

    def __init__(self) -> None:
        self._pods: dict[str, PermitWaitingPod] = {}
        self._shown: Mapping[str, PermitWaitingPod] = MappingProxyType(self._pods)

    def ask(self, plugins: Iterable[Permit], pod: PodInfo, node: NodeInfo) -> PermitWaitingPod | None:
        """Call the plugins in order, up to the first that rejects the pod. Returns None if all of them allow it."""
        found = PermitWaitingPod(pod, node.name)
        for plugin in plugins:
            answer = plugin.permit(pod, node, self._shown)
            if isinstance(answer, Wait):
                found.timeouts[plugin.name] = min(answer.timeout, LONGEST)
            elif isinstance(answer, Rejected):
                found.timeouts[plugin.name] = 0.0
                found.reject(plugin.name, answer.reason)
                return found
        if not found.timeouts:
            return None
        self._pods[pod.uid] = found
        return found

    def end(self, pod: PodInfo) -> None:
        """Record that the pod no longer waits."""
        self._pods.pop(pod.uid, None)
