"""Binds that one request does not settle: those that failed, those of which it is not known whether they were carried
out, and those that the watch does not show. The table of what an outcome means is in docs/bind-outcomes.md."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from agent_scheduler.cluster.cluster import Cluster
from agent_scheduler.engine.events.events import ASSIGNED_POD_DELETE
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.kube.bind import DEFAULT_POLICY, BindOutcome, BindResult, UnknownOutcome
from agent_scheduler.kube.driver import AlreadySent
from agent_scheduler.kube.retry import Timing

from .outcomes import TOLD_BY_THE_WATCH
from .result import BinderObserver

#: Seconds until a bind of unknown outcome is asked about again, and between two looks at what the watch says of it.
_ASK_AGAIN: Final = 5.0
#: Seconds in which the watch shows a bind, or else it is sent again.
_SHOWN_WITHIN: Final = 30.0


class BindCalls(Protocol):
    """Requests that bind."""

    async def bind(
        self,
        pod: PodInfo,
        node_name: str,
        *,
        already_sent: AlreadySent | None = None,
        unknown: UnknownOutcome | None = None,
    ) -> BindResult:
        """Send one bind and find out what became of it; never raises for what network or server do.

        `already_sent`: a bind for this pod and node that has been sent and failed. `unknown`: what an earlier call for
        them left open. The answer must cover that bind, too.
        """

    def send_bind(
        self, pod: PodInfo, node_name: str, ended: Callable[[BindResult | AlreadySent], None]
    ) -> bool:
        """Send one bind at once, if it can be, and tell `ended` later how it went. False: nothing was sent."""


class OpenBinds:
    """Asks until it is known what became of a bind. Holds nothing of its own."""

    def __init__(
        self,
        cluster: Cluster,
        bind: Callable[..., Awaitable[BindResult]],
        observer: BinderObserver,
        timing: Timing,
        *,
        answered: Callable[[float], None],
    ) -> None:
        """`bind` as of `BindCalls`. `answered` is called with the seconds that a bind took which succeeded at once."""
        self._cluster = cluster
        self.bind = bind
        self._observer = observer
        self._clock = timing.clock
        self._sleep = timing.sleep
        self._answered = answered

    async def bind_while_it_helps(
        self, pod: PodInfo, node_name: str, already_sent: AlreadySent | None
    ) -> BindResult:
        """The answer to the bind, UNKNOWN only if there is nothing left to do for it but to wait. `already_sent`: how
        its first request has failed."""
        answer = await self._try(pod, node_name, already_sent=already_sent)
        while self.is_open(pod, answer) and not (answer.unknown and answer.unknown.then):
            # No answer came from anywhere, so another pod's bind would fare no better. Binding to the same node once
            # more cannot do harm: the server accepts one bind a pod, and the UID keeps a namesake out.
            await self._sleep(_ASK_AGAIN)
            answer = await self._try(pod, node_name, unknown=answer.unknown)
        return answer

    async def settled(self, pod: PodInfo, node_name: str, answer: BindResult) -> BindResult:
        """The outcome of a bind that only time can clear up, or UNKNOWN once the watch has told of it."""
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
            # Whatever broke, the request may have gone out.
            self._observer.bind_failed(pod, node_name, f"{type(error).__name__}: {error}")
            settles = self._clock() + DEFAULT_POLICY.settles
            answer = BindResult(BindOutcome.UNKNOWN, unknown=UnknownOutcome(settles))
        took = self._clock() - began
        if already_sent is None and answer.outcome is BindOutcome.BOUND and answer.attempts == 1:
            self._answered(took)
        self._observer.bound(answer.outcome, took, pod, node_name)
        return answer

    def is_open(self, pod: PodInfo, answer: BindResult) -> bool:
        """Whether neither the answer nor the watch has told what became of a bind. The watch does by a node, or by
        the end of the pod. That it is being deleted tells nothing: its capacity would stay taken for as long as a
        finalizer holds it."""
        seen = self._cluster.pods.get(pod.uid)
        return answer.outcome is BindOutcome.UNKNOWN and seen is not None and not seen.node_name


class UnseenBinds:
    """Owner of the binds that were carried out, until the watch has had time to show them.

    A store that went back to before a bind never shows it, and who has seen nothing of that time but the answer cannot
    know. Sent again it cannot do harm: the room is kept, and the server accepts one bind a pod.
    """

    def __init__(self, cluster: Cluster, open_binds: OpenBinds, timing: Timing) -> None:
        self._cluster = cluster
        self._open = open_binds
        self._clock, self._sleep = timing.clock, timing.sleep
        #: When each was answered, its pod and node, in that order. Whoever has an answer adds it, without a call.
        self.answered: deque[tuple[float, PodInfo, str]] = deque()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._sleep(_SHOWN_WITHIN)
            before = self._clock() - _SHOWN_WITHIN
            while self.answered and self.answered[0][0] <= before:
                _, pod, node_name = self.answered.popleft()
                if self._is_unseen(pod):
                    await self._send_again(pod, node_name)

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
        """The bind is undone, though the watch has not shown it."""
        cluster, pod = self._cluster, self._cluster.pods[uid]
        cluster.ledger.remove_pod(uid)
        cluster.events.move_all(ASSIGNED_POD_DELETE, pod)
        cluster.set_pod(pod)


async def raising(error: Exception) -> None:
    """For what was raised in a call that nobody awaits: as a task, it ends the group that it is in."""
    raise error
