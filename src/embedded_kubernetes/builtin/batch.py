"""Jobs and CronJobs (batch/v1): stored, defaulted and checked; no controller makes pods of them here.

Policies that only the job controller acts on (podFailurePolicy, successPolicy) are stored as they come.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..errors import Cause
from ..resource import Object
from .causes import immutable, invalid, required
from .kind import Logic
from .pod_defaults import default_pod_spec
from .workloads import check_match, check_template

Spec = dict[str, Any]

_MAX_INT32 = 2**31 - 1
_PREFIX = "batch.kubernetes.io/"
_RESTART = ("OnFailure", "Never")
#: The names that cron knows beside five fields (robfig/cron, which the CronJob controller parses with).
_DESCRIPTORS = frozenset({"@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"})
#: A CronJob's name and eleven characters more must fit into a Job's, whose pods' host names have 63.
_LONGEST_CRON_NAME = 52


def _default_job(job: Object) -> None:
    spec = job["spec"]
    default_pod_spec(spec["template"]["spec"])
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    for field, value in (
        ("parallelism", 1),
        ("backoffLimit", 6 if spec.get("backoffLimitPerIndex") is None else _MAX_INT32),
        ("podReplacementPolicy", "TerminatingOrFailed" if not spec.get("podFailurePolicy") else "Failed"),
    ):
        if spec.get(field) is None:
            spec[field] = value


def _select_own_pods(job: Object) -> None:
    """Unless it brings a selector, a job selects its pods by its own uid (pkg/registry/batch/job)."""
    spec, metadata = job["spec"], job["metadata"]
    labels = spec["template"]["metadata"].get("labels") or {}
    if not spec.get("manualSelector"):
        uid, name = metadata.get("uid", ""), metadata["name"]
        own = {"controller-uid": uid, "job-name": name}
        labels = {**labels, **own, **{f"{_PREFIX}{key}": value for key, value in own.items()}}
        spec["template"]["metadata"]["labels"] = labels
        if spec.get("selector") is None:
            spec["selector"] = {"matchLabels": {f"{_PREFIX}controller-uid": uid}}
    if labels and not metadata.get("labels"):
        metadata["labels"] = dict(labels)


def _check_job(job: Object, old: Object | None) -> Iterator[Cause]:
    spec = job.get("spec") or {}
    if spec.get("selector") is not None:
        yield from check_match(spec)
    if spec.get("completionMode") == "Indexed":
        if spec.get("completions") is None:
            yield required("spec.completions", "when completion mode is Indexed")
    elif spec.get("backoffLimitPerIndex") is not None:
        detail = "requires indexed completion mode"
        yield invalid("spec.backoffLimitPerIndex", spec["backoffLimitPerIndex"], detail)
    yield from check_template(spec.get("template") or {}, "spec.template", restart=_RESTART)
    if old is not None:
        yield from _check_job_update(spec, old.get("spec") or {})


def _check_job_update(spec: Spec, before: Spec) -> list[Cause]:
    fixed: list[str] = []
    # An indexed job may grow and shrink while its parallelism follows (elastic indexed jobs).
    elastic = spec.get("completionMode") == "Indexed" and spec.get("completions") == spec.get("parallelism")
    if not elastic:
        fixed.append("completions")
    if not before.get("suspend"):
        # A suspended job's template may still be told where to run (KEP-2926).
        fixed.append("template")
    return [
        immutable(f"spec.{field}", spec.get(field)) for field in fixed if spec.get(field) != before.get(field)
    ]


def _default_cron_job(cron_job: Object) -> None:
    default_pod_spec(cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"])


def _check_cron_job(cron_job: Object, old: Object | None) -> Iterator[Cause]:
    spec, name = cron_job.get("spec") or {}, cron_job["metadata"].get("name") or ""
    if old is None and len(name) > _LONGEST_CRON_NAME:
        yield invalid("metadata.name", name, "must be no more than 52 characters")
    schedule = spec.get("schedule", "")
    if "TZ" in schedule and (old is None or schedule != (old.get("spec") or {}).get("schedule")):
        detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
        yield invalid("spec.schedule", schedule, detail)
    elif schedule and not _is_schedule(schedule):
        detail = f"expected exactly 5 fields, found {len(schedule.split())}: [{schedule}]"
        yield invalid("spec.schedule", schedule, detail)
    job = (spec.get("jobTemplate") or {}).get("spec") or {}
    at = "spec.jobTemplate.spec"
    if job.get("manualSelector"):
        yield invalid(f"{at}.manualSelector", True, "must not be true")
    yield from check_template(job.get("template") or {}, f"{at}.template", restart=_RESTART)


def _is_schedule(text: str) -> bool:
    """Whether cron could take the text for a schedule; the fields themselves are not looked into."""
    if text.startswith("@"):
        return text in _DESCRIPTORS or text.startswith("@every ")
    return len(text.split()) == 5


def _job_fields(job: Object) -> dict[str, str]:
    return {"status.successful": str((job.get("status") or {}).get("succeeded", 0))}


LOGIC = {
    ("batch", "Job"): Logic(
        default=_default_job,
        check=_check_job,
        on_create=_select_own_pods,
        field_names=("status.successful",),
        fields=_job_fields,
    ),
    ("batch", "CronJob"): Logic(default=_default_cron_job, check=_check_cron_job),
}
