"""Binds that one request does not settle: failed ones, those of unknown outcome, and those missing from the watch.

docs/bind-outcomes.md has the table of outcomes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from agent_scheduler.cluster.cluster import Cluster
from agent_scheduler.engine.events.events import ASSIGNED_POD_DELETE
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.telemetry.observers import MetricsObserver
from kube_client.bind import DEFAULT_POLICY, BindOutcome, BindResult, UnknownOutcome
from kube_client.driver import AlreadySent
from kube_client.retry import Timing

from .outcomes import TOLD_BY_THE_WATCH

#: Seconds between queries about a bind of unknown outcome, and between checks of the watch's state of it.
_ASK_AGAIN: Final = 5.0
#: Seconds within which the watch delivers a bind; otherwise it is sent again.
_SHOWN_WITHIN: Final = 30.0
#: The minimum of seconds between two checks for such binds.
_CHECKED_EVERY: Final = 1.0


class OpenBinds:
    """Queries the API server until the outcome of a bind is known; stateless."""

    def __init__(
        self,
        cluster: Cluster,
        bind: Callable[..., Awaitable[BindResult]],
        observer: MetricsObserver,
        timing: Timing,
        *,
        answered: Callable[[float], None],
    ) -> None:
        """Use `Binds.bind`; `answered` receives the seconds of each bind that succeeded at the first request."""
        self._cluster = cluster
        self.bind = bind
        self._observer = observer
        self._clock = timing.clock
        self._sleep = timing.sleep
        self._answered = answered

    async def bind_while_it_helps(self, pod: PodInfo, node_name: str, already_sent: AlreadySent | None) -> BindResult:
        """Send the bind until it has an outcome, or UNKNOWN if only waiting can settle it.

        `already_sent` is its first request, which failed.
        """
        answer = await self._try(pod, node_name, already_sent=already_sent)
        while self.is_open(pod, answer) and not (answer.unknown and answer.unknown.then):
            # No server responded, so another pod's bind would not succeed either. A second bind to the same node is
            # harmless: the server accepts one bind per pod, and the UID excludes a namesake.
            await self._sleep(_ASK_AGAIN)
            answer = await self._try(pod, node_name, unknown=answer.unknown)
        return answer

    async def settled(self, pod: PodInfo, node_name: str, answer: BindResult) -> BindResult:
        """Return the outcome of a bind that only waiting can settle, or UNKNOWN once the watch has delivered it."""
        while self.is_open(pod, answer):
            await self._sleep(_ASK_AGAIN)
            if answer.unknown is None or self._clock() >= answer.unknown.settles:
                answer = await self._try(pod, node_name, unknown=answer.unknown)
        return answer

    async def _try(
        self,
        pod: PodInfo,
        node_name: str,
        *,
        already_sent: AlreadySent | None = None,
        unknown: UnknownOutcome | None = None,
    ) -> BindResult:
        began = self._clock() if already_sent is None else already_sent.at
        try:
            answer = await self.bind(pod, node_name, already_sent=already_sent, unknown=unknown)
        except Exception as error:
            # The request may have been sent before the error.
            self._observer.bind_failed(pod, node_name, f"{type(error).__name__}: {error}")
            settles = self._clock() + DEFAULT_POLICY.settles
            answer = BindResult(BindOutcome.UNKNOWN, unknown=UnknownOutcome(settles))
        took = self._clock() - began
        if already_sent is None and answer.outcome is BindOutcome.BOUND and answer.attempts == 1:
            self._answered(took)
        self._observer.bound(answer.outcome, took, pod, node_name)
        return answer

    def is_open(self, pod: PodInfo, answer: BindResult) -> bool:
        """Return whether neither the answer nor the watch has settled the bind.

        In the watch, a node or the end of the pod settles it. A deletion that has only begun does not: the capacity
        stays taken for as long as a finalizer holds the pod.
        """
        seen = self._cluster.pods.get(pod.uid)
        return answer.outcome is BindOutcome.UNKNOWN and seen is not None and not seen.node_name


class UnseenBinds:
    """Owner of the binds that were carried out, until the watch had time to deliver them.

    A store that went back to an earlier state never delivers a later bind, and nothing else reveals that. Sending the
    bind again is harmless: its capacity is reserved, and the server accepts one bind per pod.
    """

    def __init__(self, cluster: Cluster, open_binds: OpenBinds, timing: Timing) -> None:
        self._cluster = cluster
        self._open = open_binds
        self._clock, self._sleep = timing.clock, timing.sleep
        #: Time of the answer, pod and node of each, in that order. The binder appends to it without a call.
        self.answered: deque[tuple[float, PodInfo, str]] = deque()

    async def run(self) -> None:
        """Check binds until cancelled."""
        while True:
            await self._sleep(self._until_due())
            before = self._clock() - _SHOWN_WITHIN
            while self.answered and self.answered[0][0] <= before:
                _, pod, node_name = self.answered.popleft()
                if self._is_unseen(pod):
                    await self._send_again(pod, node_name)

    def _until_due(self) -> float:
        """Return the seconds until the oldest answer is due. Binds that are due soon after it are checked with it."""
        if not self.answered:
            return _SHOWN_WITHIN
        return max(self.answered[0][0] + _SHOWN_WITHIN - self._clock(), _CHECKED_EVERY)

    def _is_unseen(self, pod: PodInfo) -> bool:
        seen = self._cluster.pods.get(pod.uid)
        return seen is not None and not seen.node_name and pod.uid in self._cluster.ledger.placements

    async def _send_again(self, pod: PodInfo, node_name: str) -> None:
        answer = await self._open.bind_while_it_helps(pod, node_name, None)
        if not self._is_unseen(pod):
            return
        if answer.outcome in TOLD_BY_THE_WATCH:
            self._wait_again(pod.uid)
        else:
            self.answered.append((self._clock(), pod, node_name))

    def _wait_again(self, uid: str) -> None:
        """Requeue the pod: its bind is undone, although the watch has not delivered that."""
        cluster, pod = self._cluster, self._cluster.pods[uid]
        cluster.ledger.remove_pod(uid)
        cluster.events.move_all(ASSIGNED_POD_DELETE, pod)
        cluster.set_pod(pod)
