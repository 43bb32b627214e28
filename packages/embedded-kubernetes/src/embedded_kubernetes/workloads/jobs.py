"""The Job controller (pkg/controller/job): runs pods until enough have succeeded or too many have failed.

Not implemented: podFailurePolicy, successPolicy and backoffLimitPerIndex.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..conditions import find, with_condition
from ..controllers import reference_to
from ..handlers import Api
from ..resource import Object
from ..store import Event, Record
from ..times import clock_text, parse
from .controller import Workloads
from .pods import FINAL, Pod, from_template, read, surplus

TRACKING = "batch.kubernetes.io/job-tracking"
INDEX = "batch.kubernetes.io/job-completion-index"
#: Seconds from a failure to the creation of the next pod; doubled by each failure, up to the limit (KEP-1329,
#: `DefaultJobPodFailureBackOff` and `MaxJobPodFailureBackOff`).
_BACKOFF, _LONGEST = 10.0, 600.0
_ENV = {"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{INDEX}']"}}}


class Jobs(Workloads):
    name = ("batch", "jobs")
    kind = ("batch/v1", "Job")
    account = "job-controller"

    def __init__(self, api: Api) -> None:
        #: Deleted Jobs whose pods may still have the finalizer, by key.
        self._gone: dict[str, Record] = {}
        super().__init__(api)

    def _object_changed(self, event: Event) -> None:
        super()._object_changed(event)
        if event.type == "DELETED":
            self._gone[event.record.key] = event.record
            self._changed.add(event.record.key)
            self.wake()

    def _see(self, key: str) -> None:
        if (gone := self._gone.pop(key, None)) is not None:
            for pod in filter(_is_tracked, map(read, self.own(gone))):
                self._let_go(gone, pod)
        super()._see(key)

    def reconcile(self, record: Record, obj: Object) -> None:
        status: Object = obj.get("status") or {}
        conditions = status.get("conditions") or []
        pods = self.pods(record)
        if record.deleting or _is_finished(conditions):
            if not record.deleting:
                self._expire(record, obj, conditions)
            for pod in filter(_is_tracked, pods):
                self._let_go(record, pod)
            return
        spec, now = obj["spec"], self.store.clock()
        ended = [pod for pod in pods if _is_tracked(pod) and _has_ended(pod)]
        active = [pod for pod in pods if pod.is_active]
        status = self._count(obj, status, pods, ended)
        suspended = bool(spec.get("suspend"))
        was_suspended = (find(conditions, "Suspended") or {}).get("status") == "True"
        if not suspended and not status.get("startTime"):
            status["startTime"] = clock_text(now)
        failure, done = self._failure(obj, status, active), self._is_done(obj, status, active)
        if failure or done:
            self._finish(record, obj, status, active, ended, failure)
            return
        if suspended != was_suspended:
            reason = "JobSuspended" if suspended else "JobResumed"
            text = f"Job {'suspended' if suspended else 'resumed'}"
            conditions = with_condition(
                conditions, "Suspended", str(suspended), reason, text, now, lastProbeTime=clock_text(now)
            )
            status["conditions"] = conditions
            self.tell(record, reason.removeprefix("Job"), text)
            if suspended:
                status.pop("startTime", None)
            else:
                status["startTime"] = clock_text(now)
        # The status must include a pod before its finalizer is removed; otherwise the pod would never be
        # counted.
        self.write_status(record, obj, status)
        for pod in ended:
            self._let_go(record, pod)
        current = self.table.records.get(record.key)
        if current is not None:
            self._manage(current, obj, status, active, suspended=suspended)

    # -- numbers

    def _count(self, obj: Object, status: Object, pods: list[Pod], ended: Iterable[Pod]) -> Object:
        succeeded = [pod for pod in ended if pod.phase == "Succeeded"]
        failed = [pod for pod in ended if pod.phase != "Succeeded"]
        active = [pod for pod in pods if pod.is_active]
        found = dict(status)
        if obj["spec"].get("completionMode") == "Indexed":
            done = _indexes(status.get("completedIndexes", "")) | {_index(pod) for pod in succeeded}
            done = {each for each in done if 0 <= each < obj["spec"].get("completions", 0)}
            _put(found, "completedIndexes", _ranges(done))
            _put(found, "succeeded", len(done))
        else:
            _put(found, "succeeded", status.get("succeeded", 0) + len(succeeded))
        _put(found, "failed", status.get("failed", 0) + len(failed))
        _put(found, "active", len(active))
        found["ready"] = sum(pod.ready_since is not None for pod in active)
        found["terminating"] = sum(pod.deleting and pod.phase not in FINAL for pod in pods)
        found["uncountedTerminatedPods"] = {}
        return found

    def _failure(self, obj: Object, status: Object, active: list[Pod]) -> tuple[str, str] | None:
        spec = obj["spec"]
        limit, deadline = spec.get("backoffLimit", 6), spec.get("activeDeadlineSeconds")
        restarts = sum(pod.restarts for pod in active)
        on_failure = (spec["template"].get("spec") or {}).get("restartPolicy") == "OnFailure"
        if status.get("failed", 0) > limit or (on_failure and restarts and restarts >= limit):
            return "BackoffLimitExceeded", "Job has reached the specified backoff limit"
        if deadline is not None and status.get("startTime") and not spec.get("suspend"):
            left = parse(status["startTime"]).timestamp() + deadline - self.store.clock()
            if left <= 0:
                return "DeadlineExceeded", "Job was active longer than specified deadline"
        return None

    @staticmethod
    def _is_done(obj: Object, status: Object, active: list[Pod]) -> bool:
        completions = obj["spec"].get("completions")
        succeeded = int(status.get("succeeded", 0))
        if completions is None:
            # One success means that the work queue is empty.
            return succeeded > 0 and not active
        return succeeded >= int(completions)

    # -- completion

    def _finish(
        self,
        record: Record,
        obj: Object,
        status: Object,
        active: list[Pod],
        ended: list[Pod],
        failure: tuple[str, str] | None,
    ) -> None:
        """Finish the Job in two steps: first the early condition and the deletion of pods, then the final condition."""
        now, conditions = self.store.clock(), status.get("conditions") or []
        early, final = ("FailureTarget", "Failed") if failure else ("SuccessCriteriaMet", "Complete")
        reason, text = failure or ("CompletionsReached", "Reached expected number of succeeded pods")
        probe = {"lastProbeTime": clock_text(now)}
        status["conditions"] = with_condition(conditions, early, "True", reason, text, now, **probe)
        if active:
            _put(status, "failed", status.get("failed", 0) + (len(active) if failure else 0))
        else:
            status["conditions"] = with_condition(status["conditions"], final, "True", reason, text, now, **probe)
            if not failure:
                status["completionTime"] = clock_text(now)
        _put(status, "active", 0)
        status["ready"] = 0
        self.write_status(record, obj, status)
        for pod in ended:
            self._let_go(record, pod)
        for pod in active:
            self._drop(record, pod)
        if not active:
            self.tell(
                record,
                "Completed" if not failure else reason,
                text if failure else "Job completed",
                warning=bool(failure),
            )

    def _expire(self, record: Record, obj: Object, conditions: list[Any]) -> None:
        seconds = obj["spec"].get("ttlSecondsAfterFinished")
        if seconds is None:
            return
        ended = max(
            parse(each["lastTransitionTime"]).timestamp()
            for each in conditions
            if each["type"] in ("Complete", "Failed") and each["status"] == "True"
        )
        left = ended + seconds - self.store.clock()
        if left > 0:
            self.again(record, left)
        else:
            self.delete(record, record)

    # -- pods

    def _manage(self, record: Record, obj: Object, status: Object, active: list[Pod], *, suspended: bool) -> None:
        spec, now = obj["spec"], self.store.clock()
        deadline = spec.get("activeDeadlineSeconds")
        if deadline is not None and not suspended and status.get("startTime"):
            self.again(record, max(0.001, parse(status["startTime"]).timestamp() + deadline - now))
        parallel = 0 if suspended else spec.get("parallelism", 1)
        completions, succeeded = spec.get("completions"), int(status.get("succeeded", 0))
        if completions is not None:
            parallel = min(parallel, completions - succeeded)
        elif succeeded:
            parallel = min(parallel, len(active))
        if len(active) > parallel:
            for pod in surplus(active, len(active) - parallel):
                self._drop(record, pod)
                self.tell(record, "SuccessfulDelete", f"Deleted pod: {pod.record.name}")
            return
        missing = parallel - len(active)
        if missing <= 0:
            return
        wait = self._backs_off(record)
        if wait > 0:
            self.again(record, wait)
            return
        self._make(record, obj, status, active, missing)

    def _backs_off(self, record: Record) -> float:
        """Return the seconds until the next pod may be created.

        The backoff depends on the number of failed pods since the last success, among those that still exist.
        """
        pods = self.pods(record)
        last = max((_ended_at(pod) for pod in pods if pod.phase == "Succeeded"), default=0.0)
        row = [end for pod in pods if pod.phase == "Failed" and (end := _ended_at(pod)) > last]
        if not row:
            return 0.0
        wait: float = min(_BACKOFF * 2.0 ** (len(row) - 1), _LONGEST)
        return max(row) + wait - self.store.clock()

    def _make(self, record: Record, obj: Object, status: Object, active: list[Pod], missing: int) -> None:
        spec, owner = obj["spec"], reference_to(record, *self.kind)
        indexes: Sequence[int | None] = [None] * missing
        if spec.get("completionMode") == "Indexed":
            taken = _indexes(status.get("completedIndexes", "")) | {_index(pod) for pod in active}
            indexes = [each for each in range(spec.get("completions", 0)) if each not in taken][:missing]
        for index in indexes:
            prefix = record.name if index is None else f"{record.name}-{index}"
            body = from_template(spec["template"], owner, f"{prefix}-")
            body["metadata"]["finalizers"] = [*body["metadata"].get("finalizers", ()), TRACKING]
            if index is not None:
                _number(body, index, prefix)
            if not self.create(record, body):
                return

    def _let_go(self, record: Record, pod: Pod) -> None:
        """Remove the finalizer of a pod that has been counted."""
        left = [each for each in pod.obj["metadata"].get("finalizers") or () if each != TRACKING]
        self.patch(record, pod.record, {"metadata": {"uid": pod.record.uid, "finalizers": left or None}})

    def _drop(self, record: Record, pod: Pod) -> None:
        """Delete a pod that is not needed, without counting a failure."""
        self._let_go(record, pod)
        self.delete(record, pod.record)


def _number(pod: Object, index: int, hostname: str) -> None:
    """Give the pod and its containers their index."""
    metadata, spec = pod["metadata"], pod["spec"]
    for place in ("labels", "annotations"):
        metadata[place] = {**metadata.get(place, {}), INDEX: str(index)}
    spec.setdefault("hostname", hostname)
    for group in ("initContainers", "containers"):
        if spec.get(group):
            spec[group] = [{**each, "env": [*(each.get("env") or ()), _ENV]} for each in spec[group]]


def _is_finished(conditions: Iterable[Any]) -> bool:
    return any(each["type"] in ("Complete", "Failed") and each["status"] == "True" for each in conditions)


def _is_tracked(pod: Pod) -> bool:
    return TRACKING in (pod.obj["metadata"].get("finalizers") or ())


def _has_ended(pod: Pod) -> bool:
    """Return whether the pod is counted. A deleted one counts as failed, because it may never report its end."""
    return not pod.is_active


def _ended_at(pod: Pod) -> float:
    ends = [
        state["terminated"].get("finishedAt")
        for each in (pod.obj.get("status") or {}).get("containerStatuses") or ()
        if "terminated" in (state := each.get("state") or {})
    ]
    times = [parse(each).timestamp() for each in ends if each]
    return max(times, default=parse(pod.obj["metadata"]["creationTimestamp"]).timestamp())


def _index(pod: Pod) -> int:
    text = (pod.obj["metadata"].get("annotations") or {}).get(INDEX, "")
    return int(text) if text.isdecimal() else -1


def _indexes(text: str) -> set[int]:
    """Parse indexes such as `1,3-5`."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def _ranges(indexes: Iterable[int]) -> str:
    """Format indexes as `1,3-5`."""
    runs: list[list[int]] = []
    for each in sorted(indexes):
        if runs and runs[-1][1] == each - 1:
            runs[-1][1] = each
        else:
            runs.append([each, each])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def _put(status: Object, field: str, value: Any) -> None:
    """Set a field of the status, or remove it if the value is zero or empty."""
    if value:
        status[field] = value
    else:
        status.pop(field, None)
