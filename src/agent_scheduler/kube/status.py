"""Writes the PodScheduled condition (and nominatedNodeName) of pods, without ever standing in the way of a bind.

Conditions of PodGroups are written the same way, by a writer of their own.

`report` only takes note; workers write later, under a budget of their own. What would change nothing is not written:
a pod that stays unschedulable for the same reason costs one write, however often it is tried. While a write waits, a
newer report for the pod replaces it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import msgspec

from agent_scheduler.kube.answers import Asked, Verb
from agent_scheduler.kube.budget import Budget
from agent_scheduler.kube.dispatch import Dispatcher
from agent_scheduler.kube.driver import Driver, Send, repeated
from agent_scheduler.kube.errors import Failure, FailureClass
from agent_scheduler.kube.pace import Pace
from agent_scheduler.kube.patch import STRATEGIC, is_about_another_pod, is_conflict, version_in
from agent_scheduler.kube.repeated import Repeated
from agent_scheduler.kube.retry import REAL, Backoff, Timing
from agent_scheduler.kube.transport import Named, PodKey, Transport, pod_path
from agent_scheduler.kube.watch_events import is_older
from agent_scheduler.telemetry.logs import get_logger
from apimachinery.times import time_text

_log = get_logger(__name__)
#: A version that is older than all others.
_BEFORE_ALL = "0"
#: Seconds after a write in which the watch may still show what was before.
_WATCH_LAG = 10.0

_encode = msgspec.json.Encoder().encode

#: In the place of a failure: the report is no longer the last word on its pod, and was not sent.
_OUTDATED = Failure(FailureClass.GONE)


@dataclass(frozen=True, slots=True)
class PodCondition:
    """One condition. `status` is "True", "False" or "Unknown"."""

    status: str
    reason: str = ""
    message: str = ""
    type: str = "PodScheduled"
    #: Of the pod's spec when this was found; 0 where the API server counts none.
    observed_generation: int = 0


@dataclass(slots=True)
class _Report:
    """`condition` None says nothing but the nomination, once: what others say of a pod is theirs. `nominated` None
    leaves nominatedNodeName alone; "" removes it. `transition`: lastTransitionTime moves.

    `written_at`: when it was, on the writer's clock; None as long as it is not. `version`: of the object then.
    `restored_at`: when it was to be written again, as something else was seen in its place.
    """

    condition: PodCondition | None
    nominated: str | None
    transition: bool
    written_at: float | None = None
    version: str = ""
    restored_at: float = float("-inf")


class StatusWriter:
    """Reports of conditions to the API server. Run `run()` as a task of its own.

    `count(what)` is called with: written, skipped (nothing new), replaced (by a newer report, before it was written),
    dropped (the pod is gone, is another one, or was forgotten meanwhile), failed (refused for good), postponed: after
    `attempts` attempts in a row others get their turn, and it is tried again after them, for as long as it is true.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        budget: Budget,
        path: Callable[[Named], str] = pod_path,
        resource: str = "pods",
        concurrency: int = 4,
        attempts: int = 5,
        backoff: Backoff | None = None,
        request_timeout: float = 10.0,
        timing: Timing = REAL,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        count: Callable[[str], None] = lambda _what: None,
        pace: Pace | None = None,
    ) -> None:
        """`path`: where an object is, of which `resource` is the kind in the plural."""
        self._path = path
        self._resource = resource
        self._attempts = attempts
        self._backoff = backoff or Backoff(initial=0.5, cap=10.0)
        self._timing = timing
        self._driver = Driver(
            transport=transport,
            budget=budget,
            timing=timing,
            backoff=self._backoff,
            request_timeout=request_timeout,
            attempts=attempts,
        )
        self._refusals = Repeated(_log, "status_not_written", clock=timing.clock)
        self._now = now
        self._count = count
        self._dispatcher: Dispatcher[PodKey, _Report] = Dispatcher(
            self._write, concurrency=concurrency, pace=pace
        )
        # What each pod was last reported as, or is about to be. Owner: this class; `forget` ends an entry, so it
        # holds no more than the pods that were reported and still wait to be scheduled. Invariant: what waits in the
        # dispatcher is a pod's last report.
        self._last: dict[str, _Report] = {}
        #: What waits before it is written again; None while this does not run.
        self._tasks: asyncio.TaskGroup | None = None

    def __len__(self) -> int:
        """Reports that are not yet written."""
        return len(self._dispatcher)

    def report(
        self,
        pod: PodKey,
        condition: PodCondition,
        *,
        known: PodCondition | None = None,
        nominated: str | None = None,
    ) -> None:
        """Takes note of a pod's condition; returns at once.

        `known` is the same condition as the watch last showed it, which saves the write for a pod that already had
        it before we started, and shows one that was overwritten: by somebody else, or by a write of ours that had
        been given up and was carried out late. `nominated` sets nominatedNodeName, "" removes it, None leaves it alone.
        """
        last = self._last.get(pod.uid)
        said = None if last is None or self._overwritten(last, known) else last.condition
        before = known if said is None else said
        if condition == before and (nominated is None or (last is not None and last.nominated == nominated)):
            self._count("skipped")
            if last is None:
                # As an earlier process has written it, maybe before a write that is still to be carried out.
                self._last[pod.uid] = _Report(condition, None, False, self._timing.clock(), _BEFORE_ALL)
            return
        if self._dispatcher.waiting(pod):
            self._count("replaced")
        # As apimachinery's helpers do: lastTransitionTime moves only when the status does.
        transition = before is None or before.status != condition.status
        if last is not None and last.written_at is None:
            # What it would have said besides must not be lost with it.
            transition = transition or last.transition
            nominated = last.nominated if nominated is None else nominated
        report = _Report(condition, nominated, transition)
        self._last[pod.uid] = report
        self._dispatcher.put(pod, report)

    def _overwritten(self, last: _Report, known: PodCondition | None) -> bool:
        """Whether the watch shows something else than was written, and has had the time to show that."""
        return (
            known is not None
            and last.condition is not None
            and not _says(known, last.condition)
            and last.written_at is not None
            and self._timing.clock() - last.written_at > _WATCH_LAG
        )

    def seen(self, pod: PodKey, known: PodCondition | None, version: str) -> None:
        """The watch shows this condition, or none, in the object's `version`. Where that is not what was written before
        it, a write that had been given up was carried out late, or somebody else's: the last word is written again, but
        no sooner than some seconds after the time before, as others may insist."""
        last, now = self._last.get(pod.uid), self._timing.clock()
        if last is None or last.written_at is None or not is_older(last.version, version):
            return
        assert last.condition is not None, "a nomination alone is forgotten when it is written"
        at = max(now, last.restored_at + _WATCH_LAG)
        if (known is not None and _says(known, last.condition)) or (at > now and self._tasks is None):
            return
        transition = known is None or known.status != last.condition.status
        again = _Report(last.condition, last.nominated, transition, restored_at=at)
        self._last[pod.uid] = again
        if at > now and self._tasks is not None:
            self._tasks.create_task(self._later(at - now, pod, again))
        else:
            self._dispatcher.put(pod, again)

    async def _later(self, seconds: float, pod: PodKey, report: _Report) -> None:
        await self._timing.sleep(seconds)
        if self._last.get(pod.uid) is report:
            self._dispatcher.put(pod, report)

    def nominate(self, pod: PodKey, node_name: str, *, known: PodCondition | None = None) -> None:
        """Sets nominatedNodeName, "" removes it, and says nothing else of the pod. `known` as for `report`."""
        last = self._last.get(pod.uid)
        if last is not None and last.condition is not None:
            self.report(pod, last.condition, known=known, nominated=node_name)
        elif known is not None:
            # Without one nothing was ever said of the pod, a nomination neither.
            alone = self._last[pod.uid] = _Report(None, node_name, False)
            self._dispatcher.put(pod, alone)

    def says(self, pod: PodKey, status: str, *, known: PodCondition | None = None) -> bool:
        """Whether that is the status of what was last reported of it, or, if nothing was, of `known`."""
        last = self._last.get(pod.uid)
        condition = known if last is None or last.condition is None else last.condition
        return condition is not None and condition.status == status

    def forget(self, pod: Named) -> None:
        """The pod was bound or is gone: nothing more is to be said about it, and what waits is dropped.

        Of most pods nothing was ever said, and every pod comes by here twice.
        """
        if self._last.pop(pod.uid, None) is not None:
            self._dispatcher.discard(PodKey(pod.namespace, pod.name, pod.uid))

    async def run(self) -> None:
        """Writes until cancelled."""
        async with asyncio.TaskGroup() as self._tasks:
            try:
                await self._dispatcher.run()
            finally:
                self._tasks = None

    async def drain(self, timeout: float) -> int:  # noqa: ASYNC109
        """Waits until all is written, at most `timeout` seconds; gives the number of reports that were not."""
        return await self._dispatcher.drain(timeout)

    def _patch(self, pod: PodKey, report: _Report) -> bytes:
        said, status = report.condition, dict[str, Any]()
        if said is not None:
            condition: dict[str, Any] = {
                "type": said.type,
                "status": said.status,
                "reason": said.reason,
                "message": said.message,
            }
            if self._resource == "pods":
                condition["lastProbeTime"] = None
            if said.observed_generation:
                condition["observedGeneration"] = said.observed_generation
            if report.transition:
                condition["lastTransitionTime"] = time_text(self._now())
            status["conditions"] = [condition]
        if report.nominated is not None:
            status["nominatedNodeName"] = report.nominated or None
        # The UID is immutable, so naming it makes the patch fail on a pod that was made again under the same name.
        return _encode({"metadata": {"uid": pod.uid}, "status": status})

    async def _write(self, pod: PodKey, report: _Report) -> None:
        path = f"{self._path(pod)}/status"
        asked = Asked(Verb.PATCH, self._resource, pod.name, pod.uid)

        def refuse(_send: Send) -> Failure | None:
            # What is true of a pod that was bound while this waited is not for us to deny.
            return None if self._last.get(pod.uid) is report else _OUTDATED

        # A patch names no version, so a conflict is the server's own: it lost too many races for the pod.
        reply = await self._driver.run(
            repeated(Send("PATCH", path, asked, self._patch(pod, report), STRATEGIC), also=is_conflict),
            refuse=refuse,
        )
        failure = reply.failure
        if failure is None:
            self._count("written")
            report.version = "" if reply.response is None else version_in(reply.response)
            report.written_at = self._timing.clock()
            if report.condition is None and self._last.get(pod.uid) is report:
                del self._last[pod.uid]
        elif failure is _OUTDATED:
            self._count("replaced" if self._dispatcher.waiting(pod) else "dropped")
        elif is_about_another_pod(failure):
            self._give_up("dropped", pod, report)
        elif not failure.retryable and not is_conflict(failure):
            self._refusals.warn(pod=f"{pod.namespace}/{pod.name}", error=str(failure))
            self._give_up("failed", pod, report)
        elif pod.uid not in self._last:
            # Forgotten while the server was asked: there is nothing left to try again for.
            self._count("dropped")
        else:
            # Given up, it would be missing until the pod is tried again, which may be minutes after an outage.
            self._count("postponed")
            if not self._dispatcher.waiting(pod):
                self._dispatcher.put(pod, report)
            delay = self._backoff.delay(self._attempts, self._timing.rng, at_least=failure.retry_after)
            await self._timing.sleep(delay)

    def _give_up(self, what: str, pod: PodKey, report: _Report) -> None:
        self._count(what)
        if self._last.get(pod.uid) is report:
            del self._last[pod.uid]


def _says(known: PodCondition, written: PodCondition) -> bool:
    """Whether it is what was written. An API server that keeps no generations has not overwritten them."""
    return replace(known, observed_generation=written.observed_generation) == written
