"""Sends a recorded request to our reviews, and compares the answers in the form of the recording.

Patches in answers about Jobs are compared by the patched object: Volcano writes all tasks again, with the fields that
Go's types leave empty. Problems are compared by Volcano's words, which ours have after the field and before the allowed
values. Volcano joins them and puts the allowed values at the end of all.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import yaml

from agent_scheduler.admission import jobs, podgroups, pods, queues
from agent_scheduler.admission.review import Reviewer, read_review, review, write_review
from agent_scheduler.config.resource_groups import read_resource_groups
from embedded_kubernetes.patch import json_patch
from tests.decisions.volcano_webhooks.recording import Case, Obj, State

GATES = "SchedulingGatesQueueAdmission"


def replay(case: Case, state: State, *, strict: bool = False) -> Obj:
    """Return our answer.

    With `strict`, Jobs are refused whose minimum is not the sum of their tasks', which Volcano accepts.
    """
    kind = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    request = read_review(json.dumps({**kind, "request": {**case.request, "uid": case.id}}).encode())
    asked = reviewers(state, state.servers[case.server], strict=strict)[case.path]
    answered = write_review(request, review(asked, request))
    response = json.loads(answered)["response"]
    assert response["uid"] == case.id
    assert ("patch" in response) == (response.get("patchType") == "JSONPatch")
    return {
        "allowed": response["allowed"],
        "message": response.get("status", {}).get("message", ""),
        "patch": json.loads(base64.b64decode(response.get("patch", ""))) if "patch" in response else [],
    }


def reviewers(state: State, server: Mapping[str, Any], *, strict: bool) -> Mapping[str, Reviewer]:
    """Return the reviews of a webhook with Volcano's flags."""
    pod_rules = pods.PodRules(
        schedulers=frozenset(server["scheduler_names"]),
        gates=server["feature_gates"].get(GATES, False),
        groups=read_resource_groups(yaml.safe_dump(state.admission), source="the recording"),
    )
    queue_rules = queues.QueueRules(
        max_depth=server["max_queue_depth"],
        keep_allocated=server["queue_allocated_pods_check"],
        protect_root=server["root_queue_protection"],
    )
    job_rules = jobs.JobRules(scheduler=server["scheduler_names"][0], strict_min_available=strict)
    return {
        "/pods/mutate": lambda request: pods.mutate(request, pod_rules),
        "/queues/mutate": queues.mutate,
        "/queues/validate": lambda request: queues.validate(request, state.queues, queue_rules),
        "/podgroups/mutate": lambda request: podgroups.mutate(request, state.namespaces),
        "/podgroups/validate": lambda request: podgroups.validate(request, state.queues),
        "/jobs/mutate": lambda request: jobs.mutate(request, job_rules),
        "/jobs/validate": lambda request: jobs.validate(request, state.queues, job_rules),
    }


def is_equal(case: Case, answer: Obj, response: Obj) -> bool:
    """Return whether answers are equal; errors and names of queues are sets, and no patch equals an empty one."""
    if answer["allowed"] != response["allowed"]:
        return False
    if case.path.startswith("/jobs/"):
        return _is_equal_of_jobs(case, answer, response)
    told, patch = response.get("message") or "", response.get("patch") or []
    return problems(answer["message"]) == problems(told) and answer["patch"] == patch


def problems(message: str) -> list[str]:
    listed = message[1:-1] if message.startswith("[") else message
    told, below, names = listed.partition(" child queues: ")
    if below:
        return [told, *sorted(names.split(", "))]
    return sorted(re.split(r", (?=requestBody\.)", listed)) if message else []


# ---- answers about jobs

_FIELD = re.compile(r"^((?:spec|metadata)\S*(?:, spec\S*)*): ")
_ALLOWED = re.compile(r"; allowed: [^;]*")
#: A missing task, or tasks that wait for one another.
_NO_DAG = re.compile(r"(?<=\(DAG\)): [^;]*")
_VALID = re.compile(r",? valid (?:events|actions) are \[.*?\]")
#: Volcano uses the number of the task as that of a pod.
_POD = re.compile(r"(create pod with name \S+-)\d+ ")
#: The separator of problems in Volcano's message.
_BETWEEN = re.compile(
    r"[\s;.*]|\d+ errors? occurred:|spec(?:\.tasks)?\.policies: |"
    r"(?:spec\.tasks?\[\d+\]\.)?(?:template|metadata)\.[\w.\[\]]+: "
)


def _is_equal_of_jobs(case: Case, answer: Obj, response: Obj) -> bool:
    if answer["allowed"]:
        return made(case, answer) == made(case, response)
    missing, more = compared(answer["message"], response["message"])
    return not missing and not more


def made(case: Case, answer: Obj) -> Any:
    """Return the object after the patch."""
    patch = [{**each, "op": "add"} for each in answer.get("patch") or ()]
    return _plain(json_patch(deepcopy(case.object), patch))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {key: _plain(each) for key, each in value.items()}
        empty = {"metadata": {}, "resources": {}, "minPartitions": 0}
        return {key: each for key, each in kept.items() if each not in (None, empty.get(key))}
    return [_plain(each) for each in value] if isinstance(value, list) else value


def compared(ours: str, theirs: str) -> tuple[str, list[str]]:
    """Return the rest of their message that ours lacks, and our problems that theirs lacks."""
    rest = _VALID.sub("", _POD.sub(r"\1N ", theirs.replace("spec.task[", "spec.tasks[")))
    ours = _POD.sub(r"\1N ", ours.replace("spec.task[", "spec.tasks["))
    for extra in (_ALLOWED, _VALID, _NO_DAG):
        ours = extra.sub("", ours)
    more = []
    for problem in ours.split("; "):
        words = _FIELD.sub("", problem)
        said = next((each for each in (problem, words) if each in rest), None)
        if said is None:
            more.append(problem)
        else:
            rest = rest.replace(said, "", 1)
    return _BETWEEN.sub("", rest), more
