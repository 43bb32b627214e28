"""Workload kinds: Deployments, ReplicaSets, StatefulSets, DaemonSets, Jobs, CronJobs and related kinds.

They are stored, defaulted and validated as in kube-apiserver. The package `workloads` has their controllers, except
for ReplicationControllers. podFailurePolicy and successPolicy, which no controller implements, are not validated.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from .. import cron
from ..errors import Cause
from ..resource import Object
from .causes import check_int_or_percent, check_one_of, forbidden, immutable, invalid, required
from .eviction import matches
from .kind import Logic
from .metadata import check_annotations, check_labels
from .pod_defaults import default_pod_spec
from .pod_spec import check_pod_spec
from .rules import RULES
from .selectors import check_label_selector

Spec = dict[str, Any]
#: Restart policies of pods that run to completion.
_RESTART = ("OnFailure", "Never")


def _default(obj: Object, strategy: str = "", rolling: dict[str, Any] | None = None) -> None:
    """Set the defaults of a pod template, and of a rolling update in the field `strategy`."""
    spec = obj["spec"]
    default_pod_spec(spec["template"]["spec"])
    if rolling is not None and spec[strategy]["type"] == "RollingUpdate":
        spec[strategy]["rollingUpdate"] = {**rolling, **(spec[strategy].get("rollingUpdate") or {})}


def _default_replication_controller(obj: Object) -> None:
    spec = obj["spec"]
    if spec.get("template") is not None:
        default_pod_spec(spec["template"]["spec"])
        labels = spec["template"]["metadata"].get("labels")
        if labels:
            if not spec.get("selector"):
                spec["selector"] = dict(labels)
            if not obj["metadata"].get("labels"):
                obj["metadata"]["labels"] = dict(labels)


def check_template(
    template: dict[str, Any], path: str, *, restart: tuple[str, ...] = ("Always",), deadline: bool = True
) -> Iterator[Cause]:
    """Check a pod template. `restart` are the allowed restart policies; `deadline` allows activeDeadlineSeconds."""
    metadata, spec = template.get("metadata") or {}, template.get("spec") or {}
    # As in kube-apiserver, the paths omit `metadata`.
    yield from check_labels(metadata.get("labels") or {}, f"{path}.labels")
    yield from check_annotations(metadata.get("annotations") or {}, f"{path}.annotations")
    yield from check_pod_spec(spec, f"{path}.spec", is_pod=False)
    if spec.get("ephemeralContainers"):
        detail = "ephemeral containers not allowed in pod template"
        yield forbidden(f"{path}.spec.ephemeralContainers", detail)
    policy = spec.get("restartPolicy")
    if restart == _RESTART and policy == "Always":
        # The policy may be the default, so report it as missing.
        yield required(f"{path}.spec.restartPolicy", 'valid values: "OnFailure", "Never"')
    elif restart and policy not in restart:
        yield from check_one_of(f"{path}.spec.restartPolicy", policy, restart)
    if not deadline and spec.get("activeDeadlineSeconds") is not None:
        yield forbidden(f"{path}.spec.activeDeadlineSeconds", "is not supported here")


def _check_selector(spec: Spec, owner: str) -> Iterator[Cause]:
    selector = spec.get("selector")
    if selector is None:
        if owner != "daemonset":
            yield required("spec.selector")
        return
    yield from check_label_selector(selector, "spec.selector")
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        yield invalid("spec.selector", selector, f"empty selector is invalid for {owner}")


def check_match(spec: Spec) -> Iterator[Cause]:
    """Check that the selector matches the template's labels. A missing selector matches nothing."""
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
    if matches(spec.get("selector"), labels or {}):
        return
    yield invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")


def _check_pods(spec: Spec, owner: str) -> Iterator[Cause]:
    yield from _check_selector(spec, owner)
    yield from check_match(spec)
    yield from _check_own_template(spec)


def _check_own_template(spec: Spec) -> Iterator[Cause]:
    return check_template(spec.get("template") or {}, "spec.template", deadline=False)


def _check_strategy(spec: Spec, field: str, allowed: tuple[str, ...]) -> Iterator[Cause]:
    strategy = spec.get(field) or {}
    yield from check_one_of(f"spec.{field}.type", strategy.get("type"), allowed)
    rolling = strategy.get("rollingUpdate")
    if rolling is not None:
        if strategy.get("type") != "RollingUpdate":
            detail = f"may not be specified when strategy `type` is '{strategy.get('type')}'"
            yield forbidden(f"spec.{field}.rollingUpdate", detail)
        for name in ("maxUnavailable", "maxSurge"):
            if (value := rolling.get(name)) is not None:
                yield from check_int_or_percent(value, f"spec.{field}.rollingUpdate.{name}")
        if rolling.get("maxUnavailable") in (0, "0%") and rolling.get("maxSurge") in (0, "0%"):
            detail = "may not be 0 when `maxSurge` is 0"
            yield invalid(f"spec.{field}.rollingUpdate.maxUnavailable", rolling["maxUnavailable"], detail)


def _check_deployment(spec: Spec) -> Iterator[Cause]:
    yield from _check_pods(spec, "deployment")
    yield from _check_strategy(spec, "strategy", ("Recreate", "RollingUpdate"))
    deadline, ready = spec.get("progressDeadlineSeconds"), spec.get("minReadySeconds") or 0
    if deadline is not None and deadline <= ready:
        yield invalid("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds")


#: In the order of kube-apiserver's message.
_MUTABLE = (
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
)


def _check_stateful_set(obj: Object, old: Object | None) -> Iterator[Cause]:
    spec = obj.get("spec") or {}
    yield from _check_strategy(spec, "updateStrategy", ("OnDelete", "RollingUpdate"))
    yield from _check_pods(spec, "statefulset")
    if old is not None:
        before = old.get("spec") or {}
        fixed = (spec.keys() | before.keys()) - frozenset(_MUTABLE)
        if any(spec.get(key) != before.get(key) for key in fixed):
            fields, last = "', '".join(_MUTABLE[:-1]), _MUTABLE[-1]
            detail = f"updates to statefulset spec for fields other than '{fields}' and '{last}' are forbidden"
            yield forbidden("spec", detail)


def _check_daemon_set(spec: Spec) -> Iterator[Cause]:
    yield from check_match(spec)
    yield from _check_selector(spec, "daemonset")
    yield from _check_own_template(spec)
    yield from _check_strategy(spec, "updateStrategy", ("OnDelete", "RollingUpdate"))


def _check_replication_controller(obj: Object, old: Object | None) -> Iterator[Cause]:
    spec = obj.get("spec") or {}
    selector, template = spec.get("selector") or {}, spec.get("template")
    if not selector:
        yield required("spec.selector")
    if template is None:
        yield required("spec.template")
        return
    labels = (template.get("metadata") or {}).get("labels")
    if selector and any((labels or {}).get(key) != value for key, value in selector.items()):
        yield invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")
    yield from check_template(template, "spec.template", deadline=False)


def _check_pod_template(obj: Object, old: Object | None) -> Iterator[Cause]:
    return check_template(obj.get("template") or {}, "template", restart=())


_MAX_INT32 = 2**31 - 1
_PREFIX = "batch.kubernetes.io/"
#: A Job's name adds 11 characters to the CronJob's, and it must be valid as a host name of at most 63.
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
    """Make the job select its pods by its UID, unless it has a selector (pkg/registry/batch/job)."""
    spec, metadata = job["spec"], job["metadata"]
    labels = spec["template"]["metadata"].get("labels") or {}
    if not spec.get("manualSelector"):
        uid, name = metadata.get("uid", ""), metadata.get("name", "")
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
    # Completions of an indexed job may change together with its parallelism (elastic indexed jobs).
    elastic = spec.get("completionMode") == "Indexed" and spec.get("completions") == spec.get("parallelism")
    if not elastic:
        fixed.append("completions")
    if not before.get("suspend"):
        # A suspended job's scheduling directives are mutable (KEP-2926).
        fixed.append("template")
    return [immutable(f"spec.{field}", spec.get(field)) for field in fixed if spec.get(field) != before.get(field)]


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
    elif schedule:
        try:
            cron.parse(schedule)
        except cron.ScheduleError as error:
            yield invalid("spec.schedule", schedule, str(error))
    if (zone := spec.get("timeZone")) is not None and (old is None or zone != (old.get("spec") or {}).get("timeZone")):
        yield from _check_time_zone(zone)
    job = (spec.get("jobTemplate") or {}).get("spec") or {}
    at = "spec.jobTemplate.spec"
    if job.get("manualSelector"):
        yield invalid(f"{at}.manualSelector", True, "must not be true")
    yield from check_template(job.get("template") or {}, f"{at}.template", restart=_RESTART)


def _check_time_zone(zone: str) -> Iterator[Cause]:
    if not zone:
        yield invalid("spec.timeZone", zone, "timeZone must be nil or non-empty string")
    elif zone.lower() == "local":
        yield invalid(
            "spec.timeZone",
            zone,
            "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones",
        )
    else:
        try:
            cron.time_zone(zone)
        except cron.ScheduleError as error:
            yield invalid("spec.timeZone", zone, str(error))


def _job_fields(job: Object) -> dict[str, str]:
    return {"status.successful": str((job.get("status") or {}).get("succeeded", 0))}


LOGIC = {
    ("apps", "Deployment"): Logic(
        default=partial(_default, strategy="strategy", rolling={"maxUnavailable": "25%", "maxSurge": "25%"})
    ),
    ("apps", "ReplicaSet"): Logic(default=_default),
    ("apps", "StatefulSet"): Logic(
        default=partial(_default, strategy="updateStrategy", rolling={"partition": 0}), check=_check_stateful_set
    ),
    ("apps", "DaemonSet"): Logic(
        default=partial(_default, strategy="updateStrategy", rolling={"maxUnavailable": 1, "maxSurge": 0})
    ),
    ("", "ReplicationController"): Logic(default=_default_replication_controller, check=_check_replication_controller),
    ("", "PodTemplate"): Logic(
        default=lambda obj: default_pod_spec(obj["template"]["spec"]), check=_check_pod_template
    ),
    ("batch", "Job"): Logic(
        default=_default_job,
        check=_check_job,
        on_create=_select_own_pods,
        field_names=("status.successful",),
        fields=_job_fields,
    ),
    ("batch", "CronJob"): Logic(default=_default_cron_job, check=_check_cron_job),
}

RULES |= {
    "deployment": lambda at, spec, was: _check_deployment(spec or {}),
    "replica set": lambda at, spec, was: _check_pods(spec or {}, "deployment"),
    "daemon set": lambda at, spec, was: _check_daemon_set(spec or {}),
}
