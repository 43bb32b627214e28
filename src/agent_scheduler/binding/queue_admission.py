"""Removes the queue-capacity gate from pods for which their queue has room.

gated pod observed, or room in a queue ──> GatedPods: fitting pods, whole gangs ──> reserved in the quota book
                                                                                      └─> PATCH that removes the gate
  the ungated pod is delivered ──> it is scheduled as any other, and stays reserved until it has a node

The response to the PATCH delivers the pod, as it is the newest version; the watch's event about it is then no change.
After a failed first attempt the watch does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final, Protocol

import msgspec

from agent_scheduler.cluster.cluster import Cluster
from agent_scheduler.engine.framework.plugin import CleanupReservations
from agent_scheduler.engine.queues.standings import QuotaState
from agent_scheduler.engine.quotas.vector import shown
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.objects.batch import QUEUE_ALLOCATION_GATE
from kube_client.answers import RequestInfo, Verb
from kube_client.dispatch import Dispatcher, Ended
from kube_client.driver import AlreadySent
from kube_client.patch import patch_once, start_patch
from kube_client.retry import Backoff
from kube_client.transport import pod_path

from .runtime import Runtime

_encode: Final = msgspec.json.Encoder().encode
#: The number of checks within the time for which a pod may hold its room without a node.
_LOOKS: Final = 10
#: The delay of a removal after a refusal. `patch_once` has made the immediate retries already.
_AFTER_REFUSAL: Final = Backoff(initial=1.0, cap=60.0)


def explain(cluster: Cluster, pod: PodInfo) -> dict[str, Any]:
    """Return `queue_gate` for a pod that is gated or admitted and waits: for what, and behind which pods."""
    gated = cluster.ledger.usage.gated
    held = gated.explain(pod)
    if held is not None:
        return {"queue_gate": {"standing": "held", **held._asdict()}}
    if cluster.ledger.usage.state_of(pod) is QuotaState.LET_IN:
        return {"queue_gate": {"standing": "reserved", "queue": cluster.ledger.usage.queue_of(pod)}}
    return {}


def _removal(uid: str) -> bytes:
    """Return a patch without a version: removing the gate twice is harmless, and the UID protects a namesake."""
    gate = {"name": QUEUE_ALLOCATION_GATE, "$patch": "delete"}
    return _encode({"metadata": {"uid": uid}, "spec": {"schedulingGates": [gate]}})


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionSettings:
    """The settings of the removal of gates."""

    #: Concurrent removals.
    workers: int
    #: Seconds for which a pod may hold its reserved room without a node; 0 means unlimited.
    patience: float


class Election(Protocol):
    """Admits one of several processes at a time; see `kube_client.lease.LeaderElector`."""

    async def run(self, lead: Callable[[], Awaitable[None]]) -> bool: ...


class AlwaysElected:
    """Admits this process at all times."""

    async def run(self, lead: Callable[[], Awaitable[None]]) -> bool:
        await lead()
        return True


ALWAYS: Final = AlwaysElected()


class Never:
    """Never admits this process: another one removes the gates."""

    async def run(self, lead: Callable[[], Awaitable[None]]) -> bool:
        await asyncio.get_running_loop().create_future()
        return False


class QueueAdmission:
    """Owner of the removals under way.

    Invariant, while this process has the turn: for each admitted pod that still has the gate, a removal is sent, waits
    or is delayed.
    """

    def __init__(
        self,
        settings: AdmissionSettings,
        runtime: Runtime,
        cluster: Cluster,
        *,
        cleanups: Callable[[str], Sequence[CleanupReservations]],
        written: Callable[[Sequence[bytes]], None],
        turn: Election,
    ) -> None:
        """Create the admission, which removes gates during `turn`.

        `cleanups` returns a scheduler's plugins to notify when a reservation ends. `written` receives pods as the API
        server sent them in response to removals.
        """
        self._written = written
        #: Pods for `written` that were received in this turn of the event loop.
        self._received: list[bytes] = []
        self._turn = turn
        self._cluster = cluster
        self._gated = cluster.ledger.usage.gated
        events = cluster.ledger.usage.events
        events.gates_due.connect(self._call)
        events.admitted.connect(self._put)
        events.held.connect(runtime.messenger.held)
        events.reservation_ended.connect(self._clean_up)
        self._cleanups = cleanups
        self._patience = settings.patience
        self._transport = runtime.transport
        self._observer = runtime.observer
        self._timing = runtime.timing
        self._due = asyncio.Event()
        self._removals: Dispatcher[str, PodInfo] = Dispatcher(
            self._remove,
            concurrency=settings.workers,
            start=self._remove_at_once,
            backoff=_AFTER_REFUSAL,
            timing=runtime.timing,
        )

    def _call(self) -> None:
        self._due.set()

    def _put(self, pods: Sequence[PodInfo]) -> None:
        now = self._timing.now()
        for pod in pods:
            if pod.created:
                self._observer.let_past((now - datetime.fromisoformat(pod.created)).total_seconds())
            self._removals.put(pod.uid, pod)

    def _clean_up(self, pod: PodInfo) -> None:
        for plugin in self._cleanups(pod.scheduler_name):
            try:
                plugin.cleanup_reservations(pod)
            except Exception as error:
                # The caller has more work to do after this.
                self._observer.plugin_raised(plugin.name, "cleanup_reservations", error)

    async def run(self) -> None:
        """Remove gates until cancelled. All caches must be filled: pods of unknown queues are held needlessly."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._removals.run())
            if self._patience:
                tasks.create_task(self._give_back())
            while True:
                await self._turn.run(self._admit)

    async def _admit(self) -> None:
        """Admit pods until cancelled, which happens when the process's turn ends."""
        gated = self._gated
        try:
            gated.start()
            while True:
                gated.admit()
                self._due.clear()
                await self._due.wait()
                # The other changes of this portion of the watch belong to the same decision.
                await asyncio.sleep(0)
        finally:
            for uid in gated.reserved:
                self._removals.discard(uid)
            gated.stop()

    def _is_due(self, uid: str) -> bool:
        """Return whether the pod was admitted and has its gate.

        When this process's turn ends, no pod is due: another process may have given the room to other pods.
        """
        pod = self._cluster.pods.get(uid)
        return uid in self._gated.reserved and pod is not None and QUEUE_ALLOCATION_GATE in pod.gates

    def _remove_at_once(self, uid: str, pod: PodInfo, ended: Ended) -> bool:
        """Send the removal without a task. Every gated pod passes here, and one request is usually enough."""

        def answered(found: AlreadySent | bytes) -> None:
            if isinstance(found, AlreadySent):
                ended(partial(self._remove, uid, pod, found))
                return
            self._removed(uid)
            self._received.append(found)
            if len(self._received) == 1:
                asyncio.get_running_loop().call_soon(self._deliver)
            ended(None)

        return self._is_due(uid) and start_patch(
            self._transport,
            pod_path(pod),
            _removal(uid),
            asked=RequestInfo(Verb.PATCH, "pods", pod.name, uid),
            strategic=True,
            ended=answered,
            timing=self._timing,
        )

    async def _remove(self, uid: str, pod: PodInfo, already_sent: AlreadySent | None = None) -> bool:
        """Send the removal. Returns whether it need not be retried."""
        patched = await patch_once(
            self._transport,
            pod_path(pod),
            _removal(uid),
            wanted=partial(self._is_due, uid),
            strategic=True,
            already_sent=already_sent,
            timing=self._timing,
        )
        if patched.failure is None:
            self._removed(uid)
        elif self._is_due(uid):
            self._observer.gate_not_removed(pod.key, str(patched.failure))
            return False
        return True

    def _deliver(self) -> None:
        received, self._received = self._received, []
        self._written(received)

    def _removed(self, uid: str) -> None:
        self._observer.gate_removed()

    async def _give_back(self) -> None:
        """Release the room of ungated pods that have had no node for too long."""
        gated, usage = self._gated, self._cluster.ledger.usage
        placements = self._cluster.ledger.placements
        since: dict[str, float] = {}
        while True:
            now = self._timing.clock()
            since = {
                uid: since.get(uid, now)
                for uid, pod in gated.reserved.items()
                if not pod.closed_gates and uid not in placements
            }
            for uid in [uid for uid, at in since.items() if now >= at + self._patience]:
                pod = gated.reserved[uid]
                room = ", ".join(f"{text} of {name}" for name, text in shown(usage.vector(pod)).items())
                gated.give_back(
                    uid,
                    f"its room in queue {usage.queue_of(pod)} ({room}) was given back, as it had no node after "
                    f"{self._patience:g} s",
                )
                self._cluster.activate(pod)
            await self._timing.sleep(self._patience / _LOOKS)
