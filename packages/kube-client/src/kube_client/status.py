"""Writes the PodScheduled condition (and nominatedNodeName) of pods without ever delaying a bind.

Conditions of PodGroups are written the same way, by a separate writer.

`report` only queues; workers write later, with a separate budget. A report that changes nothing is not written, so a
pod that stays unschedulable for the same reason costs one write, however often it is tried. A newer report for a pod
replaces one that is waiting.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import msgspec

from apimachinery.times import time_text
from kube_client.answers import RequestInfo, Verb
from kube_client.budget import Budget
from kube_client.dispatch import Dispatcher
from kube_client.driver import Driver, Send, repeated
from kube_client.errors import Failure, FailureClass
from kube_client.logs import LimitedLog, get_logger
from kube_client.pace import Pace
from kube_client.patch import STRATEGIC, is_about_another_pod, is_conflict, version_in
from kube_client.retry import Backoff, Timing
from kube_client.transport import PodIdentifier, PodKey, Transport, pod_path
from kube_client.watch_events import is_older

_log = get_logger(__name__)
#: A version that is older than all others.
_BEFORE_ALL = "0"
#: Seconds after a write in which the watch may still show the previous state.
_WATCH_LAG = 10.0
#: Maximum seconds by which a watch is assumed to be late. If it does not show a write by then, a restore of the store
#: has undone the write.
_SEEN_WITHIN = 30.0

_encode = msgspec.json.Encoder().encode

#: Used instead of a failure: the report is no longer the latest one for its pod and was not sent.
_OUTDATED = Failure(FailureClass.GONE)


@dataclass(frozen=True, slots=True)
class PodCondition:
    """A condition. `status` is "True", "False" or "Unknown"."""

    status: str
    reason: str = ""
    message: str = ""
    type: str = "PodScheduled"
    #: The generation of the pod's spec that was judged; 0 if the API server has no generations.
    observed_generation: int = 0


@dataclass(slots=True)
class _Report:
    """A report. `condition` None writes only the nomination, once, since the conditions are another client's.

    `nominated` None keeps nominatedNodeName and "" removes it. `transition`: lastTransitionTime changes.

    `written_at` is the time of the write on the writer's clock, None before it; `version` is the object's version
    then. `restored_at` is when the report was scheduled for rewriting because the watch showed something else.
    """

    condition: PodCondition | None
    nominated: str | None
    transition: bool
    written_at: float | None = None
    version: str = ""
    restored_at: float = float("-inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusSettings:
    """The limits of a status writer. `backoff` is the delay between attempts, `request_timeout` is in seconds."""

    concurrency: int = 4
    attempts: int = 5
    backoff: Backoff = field(default_factory=lambda: Backoff(initial=0.5, cap=10.0))
    request_timeout: float = 10.0


class StatusKind(NamedTuple):
    """The objects that have the statuses."""

    #: Returns the path of an object.
    path: Callable[[PodIdentifier], str]
    #: The kind in the plural.
    resource: str


#: The statuses of pods.
PODS: Final = StatusKind(pod_path, "pods")


class StatusWriter:
    """Reports conditions to the API server. Run `run()` as a task.

    `count(what)` is called with: written, skipped (no change), replaced (by a newer report before the write), dropped
    (the pod is gone, recreated or forgotten), failed (permanently refused), postponed: after `attempts` failed
    attempts in a row other pods go first, and the report is retried after them for as long as it is current.
    """

    def __init__(
        self,
        kind: StatusKind,
        settings: StatusSettings,
        *,
        transport: Transport,
        budget: Budget,
        timing: Timing,
        count: Callable[[str], None],
        pace: Pace | None,
    ) -> None:
        """Write at `pace`, if given, behind more urgent requests."""
        self._path, self._resource = kind
        self._attempts = settings.attempts
        self._backoff = settings.backoff
        self._timing = timing
        self._driver = Driver(
            transport=transport,
            budget=budget,
            timing=timing,
            backoff=self._backoff,
            request_timeout=settings.request_timeout,
            attempts=settings.attempts,
        )
        self._limited_log = LimitedLog(_log, clock=timing.clock)
        self._now = timing.now
        self._count = count
        self._dispatcher: Dispatcher[PodKey, _Report] = Dispatcher(
            self._write, concurrency=settings.concurrency, pace=pace
        )
        # The last report of each pod, written or waiting. Owned by this class. `forget` removes an entry, so it
        # contains only reported pods that are not scheduled yet. Invariant: a waiting report in the dispatcher is its
        # pod's last one.
        self._last: dict[str, _Report] = {}

    def __len__(self) -> int:
        """Return the number of reports that are not written yet."""
        return len(self._dispatcher)

    def report(
        self, pod: PodKey, condition: PodCondition, *, known: PodCondition | None = None, nominated: str | None = None
    ) -> None:
        """Queue a pod's condition and return immediately.

        `known` is the same condition as last shown by the watch. It saves the write for a pod that had the condition
        before this process started. It also reveals an overwritten condition: by another client, or by an abandoned
        write of ours that was carried out late. `nominated` sets nominatedNodeName, "" removes it, None keeps it.
        """
        last = self._last.get(pod.uid)
        said = None if last is None or self._overwritten(last, known) else last.condition
        before = known if said is None else said
        if condition == before and (nominated is None or (last is not None and last.nominated == nominated)):
            self._count("skipped")
            self.confirm(pod, condition)
            return
        if self._dispatcher.waiting(pod):
            self._count("replaced")
        # As in apimachinery's helpers, lastTransitionTime changes only with the status.
        transition = before is None or before.status != condition.status
        if last is not None and last.written_at is None:
            # Keep what the replaced report would have written besides the condition.
            transition = transition or last.transition
            nominated = last.nominated if nominated is None else nominated
        report = _Report(condition, nominated, transition)
        self._last[pod.uid] = report
        self._dispatcher.put(pod, report)

    def confirm(self, pod: PodIdentifier, known: PodCondition) -> None:
        """Record that the pod has its condition, as the watch shows, unless this process has reported one.

        An earlier process wrote it, possibly before a write that the API server still carries out. `seen` undoes that.
        """
        if pod.uid not in self._last:
            self._last[pod.uid] = _Report(known, None, False, self._timing.clock(), _BEFORE_ALL)

    def _overwritten(self, last: _Report, known: PodCondition | None) -> bool:
        """Return whether the watch shows another condition although it has had time to show the written one."""
        return (
            known is not None
            and last.condition is not None
            and not _says(known, last.condition)
            and last.written_at is not None
            and self._timing.clock() - last.written_at > _WATCH_LAG
        )

    def has_report(self, uid: str) -> bool:
        """Return whether something was reported for the object."""
        return uid in self._last

    def seen(self, pod: PodKey, known: PodCondition | None, version: str) -> None:
        """Handle the watch showing this condition, or none, in the object's `version`.

        If it differs from the condition written before that version, an abandoned write was carried out late or
        another client wrote. The last report is then written again, but at most once in `_WATCH_LAG`, as another
        client may insist.
        """
        last, now = self._last.get(pod.uid), self._timing.clock()
        if last is None or last.written_at is None or not is_older(last.version, version):
            return
        assert last.condition is not None, "a nomination alone is forgotten when it is written"
        if known is not None and _says(known, last.condition):
            return
        at = max(now, last.restored_at + _WATCH_LAG)
        transition = known is None or known.status != last.condition.status
        again = _Report(last.condition, last.nominated, transition, restored_at=at)
        self._last[pod.uid] = again
        self._dispatcher.put_later(pod, again, at - now)

    def nominate(self, pod: PodKey, node_name: str, *, known: PodCondition | None = None) -> None:
        """Set nominatedNodeName, or remove it with ""; the condition stays. `known` is as for `report`."""
        last = self._last.get(pod.uid)
        if last is not None and last.condition is not None:
            self.report(pod, last.condition, known=known, nominated=node_name)
        elif known is not None:
            # Without a condition nothing was ever reported for the pod, including a nomination.
            alone = self._last[pod.uid] = _Report(None, node_name, False)
            self._dispatcher.put(pod, alone)

    def says(self, pod: PodKey, status: str, *, known: PodCondition | None = None) -> bool:
        """Return whether `status` is that of the last report, or of `known` if there is no report."""
        last = self._last.get(pod.uid)
        condition = known if last is None or last.condition is None else last.condition
        return condition is not None and condition.status == status

    def unseen(self, pod: PodIdentifier, version: str) -> PodCondition | None:
        """Return the condition last reported for the pod, if `version`, which the watch shows, may be older than it."""
        last = self._last.get(pod.uid)
        if last is None or last.written_at is None:
            return None if last is None else last.condition
        is_late = is_older(version, last.version) and self._timing.clock() <= last.written_at + _SEEN_WITHIN
        return last.condition if is_late else None

    def forget(self, pod: PodIdentifier) -> None:
        """Drop what is known and waiting for a pod that was bound or is gone.

        Most pods were never reported, and this is called twice for every pod.
        """
        if self._last.pop(pod.uid, None) is not None:
            self._dispatcher.discard(PodKey(pod.namespace, pod.name, pod.uid))

    async def run(self) -> None:
        """Write until cancelled."""
        await self._dispatcher.run()

    async def drain(self, timeout: float) -> int:  # noqa: ASYNC109
        """Wait up to `timeout` seconds until everything is written; return the number of unwritten reports."""
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
        # The UID is immutable, so the patch fails if the pod was recreated under the same name.
        return _encode({"metadata": {"uid": pod.uid}, "status": status})

    async def _write(self, pod: PodKey, report: _Report) -> None:
        path = f"{self._path(pod)}/status"
        asked = RequestInfo(Verb.PATCH, self._resource, pod.name, pod.uid)

        def refuse(_send: Send) -> Failure | None:
            # A pod that was bound while this waited must not be reported as unschedulable.
            return None if self._last.get(pod.uid) is report else _OUTDATED

        # A patch names no version, so a conflict means that the server itself lost too many races for the pod.
        reply = await self._driver.run(
            repeated(Send("PATCH", path, asked, self._patch(pod, report), STRATEGIC), also=is_conflict), refuse=refuse
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
            self._limited_log.warning("status not written", pod=f"{pod.namespace}/{pod.name}", error=str(failure))
            self._give_up("failed", pod, report)
        elif pod.uid not in self._last:
            # Forgotten during the request: there is nothing to retry.
            self._count("dropped")
        else:
            # If dropped, the report would be missing until the pod is tried again, possibly minutes after an outage.
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
    """Return whether `known` is the written condition. A server without generations has not overwritten them."""
    return replace(known, observed_generation=written.observed_generation) == written
