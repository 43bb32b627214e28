"""The CronJob controller (pkg/controller/cronjob): creates a Job at each time of a schedule.

A missed time is made up for once, by the latest one, unless `startingDeadlineSeconds` has passed.
"""

from __future__ import annotations

from datetime import UTC, datetime

from .. import cron, nesting
from ..controllers import reference_to
from ..resource import Object
from ..store import Record
from ..times import clock_text, parse
from .controller import Workloads

JOBS = ("batch", "jobs")
_SCHEDULED_AT = "batch.kubernetes.io/cronjob-scheduled-timestamp"
#: The number of missed times from which on a warning is recorded.
_MOST_MISSED = 100


class CronJobs(Workloads):
    name = ("batch", "cronjobs")
    kind = ("batch/v1", "CronJob")
    makes = JOBS
    account = "cronjob-controller"

    def reconcile(self, record: Record, obj: Object) -> None:
        if record.deleting:
            return
        jobs = [(each, nesting.loads(each.data)) for each in self.own(record)]
        status = self._count(record, obj, jobs)
        self._clean(record, obj, jobs)
        current = self.table.records.get(record.key)
        if current is record and not obj["spec"].get("suspend"):
            self._start(record, obj, status)
        self.write_status(record, obj, status)

    def _count(self, record: Record, obj: Object, jobs: list[tuple[Record, Object]]) -> Object:
        """Return the status with the Jobs that are active now, and the time of the last success."""
        status = dict(obj.get("status") or {})
        active = {each["uid"]: each for each in status.pop("active", ())}
        known = {job.uid for job, _ in jobs}
        for job, body in jobs:
            end = _end(body)
            if end is None:
                active.setdefault(job.uid, _reference(job))
            elif active.pop(job.uid, None) is not None:
                self.tell(record, "SawCompletedJob", f"Saw completed job: {job.name}, condition: {end}")
                done = (body.get("status") or {}).get("completionTime")
                if end == "Complete" and done:
                    status["lastSuccessfulTime"] = max(done, status.get("lastSuccessfulTime", ""))
        for uid in [each for each in active if each not in known]:
            gone = active.pop(uid)
            self.tell(record, "MissingJob", f"Active job went missing: {gone['name']}")
        if active:
            status["active"] = list(active.values())
        return status

    def _start(self, record: Record, obj: Object, status: Object) -> None:
        """Create the Job of the latest time that is due, and wake at the next one."""
        spec, now = obj["spec"], datetime.fromtimestamp(self.store.clock(), UTC)
        try:
            schedule, zone = cron.parse(spec["schedule"]), cron.time_zone(spec.get("timeZone"))
        except cron.ScheduleError as error:
            reason = "UnknownTimeZone" if "time zone" in str(error) else "UnparseableSchedule"
            self.tell(record, reason, f"invalid schedule: {spec['schedule']} : {error}", warning=True)
            return
        due = self._due(record, obj, schedule, now.astimezone(zone))
        following = schedule.after(now.astimezone(zone) if due is None or not schedule.period else due)
        if following is not None:
            self.again(record, max(0.001, (following - now).total_seconds()))
        if due is None:
            return
        deadline = spec.get("startingDeadlineSeconds")
        if deadline is not None and (now - due).total_seconds() > deadline:
            text = f"Missed scheduled time to start a job: {due.strftime('%a, %d %b %Y %H:%M:%S %z')}"
            self.tell(record, "MissSchedule", text, warning=True)
            return
        policy, active = spec.get("concurrencyPolicy"), status.get("active") or []
        if policy == "Forbid" and active:
            text = "Not starting job because prior execution is running and concurrency policy is Forbid"
            self.tell(record, "JobAlreadyActive", text)
            return
        if policy == "Replace":
            for each in active:
                job = self.made.get(record.namespace, each["name"])
                if job is not None and self.delete(record, job):
                    self.tell(record, "SuccessfulDelete", f"Deleted job {job.name}")
            status.pop("active", None)
        if self._make(record, spec["jobTemplate"], due):
            status["lastScheduleTime"] = clock_text(due.timestamp())
            job = self.made.get(record.namespace, _job_name(record, due))
            if job is not None:
                status["active"] = [*(status.get("active") or ()), _reference(job)]

    def _due(self, record: Record, obj: Object, schedule: cron.Schedule, now: datetime) -> datetime | None:
        """Return the latest time of the schedule that has not been used."""
        spec = obj["spec"]
        given = (obj.get("status") or {}).get("lastScheduleTime") or obj["metadata"]["creationTimestamp"]
        since = parse(given).astimezone(now.tzinfo)
        deadline = spec.get("startingDeadlineSeconds")
        if deadline is not None:
            since = max(since, datetime.fromtimestamp(now.timestamp() - deadline, now.tzinfo))
        latest, missed = schedule.latest(since, now)
        if missed > _MOST_MISSED:
            text = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew"
            self.tell(record, "TooManyMissedTimes", text, warning=True)
        return latest

    def _make(self, record: Record, template: Object, due: datetime) -> bool:
        given = template.get("metadata") or {}
        metadata: Object = {
            "name": _job_name(record, due),
            "annotations": {**(given.get("annotations") or {}), _SCHEDULED_AT: due.isoformat().replace("+00:00", "Z")},
            "ownerReferences": [reference_to(record, *self.kind)],
        }
        if given.get("labels"):
            metadata["labels"] = given["labels"]
        if not self.create(record, {"metadata": metadata, "spec": template["spec"]}):
            self.tell(record, "FailedCreate", f"Error creating job {metadata['name']}", warning=True)
            return False
        self.tell(record, "SuccessfulCreate", f"Created job {metadata['name']}")
        return True

    def _clean(self, record: Record, obj: Object, jobs: list[tuple[Record, Object]]) -> None:
        """Delete the oldest finished Jobs beyond the limits of the history."""
        spec = obj["spec"]
        for end, limit in (
            ("Complete", spec.get("successfulJobsHistoryLimit")),
            ("Failed", spec.get("failedJobsHistoryLimit")),
        ):
            ended = [job for job, body in sorted(jobs, key=_started) if not job.deleting and _end(body) == end]
            for job in ended[: max(0, len(ended) - limit)] if limit is not None else ():
                if self.delete(record, job):
                    self.tell(record, "SuccessfulDelete", f"Deleted job {job.name}")


def _job_name(record: Record, due: datetime) -> str:
    return f"{record.name}-{int(due.timestamp()) // 60}"


def _started(job: tuple[Record, Object]) -> tuple[str, str]:
    record, body = job
    return (body.get("status") or {}).get("startTime") or body["metadata"]["creationTimestamp"], record.name


def _end(job: Object) -> str | None:
    """Return `Complete` or `Failed` for a finished Job."""
    for each in (job.get("status") or {}).get("conditions") or ():
        if each["type"] in ("Complete", "Failed") and each["status"] == "True":
            return str(each["type"])
    return None


def _reference(job: Record) -> Object:
    return {
        "kind": "Job",
        "namespace": job.namespace,
        "name": job.name,
        "uid": job.uid,
        "apiVersion": "batch/v1",
        "resourceVersion": str(job.rv),
    }
