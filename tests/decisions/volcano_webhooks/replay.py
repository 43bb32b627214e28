"""A recorded question put to our reviews, and what they answer in the form of the recording."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from typing import Any

import yaml

from agent_scheduler.admission import jobs, podgroups, pods, queues
from agent_scheduler.admission.review import Reviewer, read_review, review, write_review
from agent_scheduler.config.resource_groups import read_resource_groups
from tests.decisions.volcano_webhooks.recording import Case, Obj, State

GATES = "SchedulingGatesQueueAdmission"


def replay(case: Case, state: State) -> Obj:
    body = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {**case.request, "uid": case.id},
    }
    request = read_review(json.dumps(body).encode())
    answered = write_review(request, review(reviewers(state, state.servers[case.server])[case.path], request))
    response = json.loads(answered)["response"]
    assert response["uid"] == case.id
    assert ("patch" in response) == (response.get("patchType") == "JSONPatch")
    return {
        "allowed": response["allowed"],
        "message": response.get("status", {}).get("message", ""),
        "patch": json.loads(base64.b64decode(response.get("patch", ""))) if "patch" in response else [],
    }


def reviewers(state: State, server: Mapping[str, Any]) -> Mapping[str, Reviewer]:
    """As a webhook with Volcano's flags has them."""
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
    return {
        "/pods/mutate": lambda request: pods.mutate(request, pod_rules),
        "/queues/mutate": queues.mutate,
        "/queues/validate": lambda request: queues.validate(request, state.queues, queue_rules),
        "/podgroups/mutate": lambda request: podgroups.mutate(request, state.namespaces),
        "/podgroups/validate": lambda request: podgroups.validate(request, state.queues),
    }


def is_equal(answer: Obj, response: Obj) -> bool:
    """Several errors of one message are a set, and so are names of queues. No patch is as good as an empty one."""
    return (
        answer["allowed"] == response["allowed"]
        and problems(answer["message"]) == problems(response.get("message") or "")
        and answer["patch"] == (response.get("patch") or [])
    )


def problems(message: str) -> list[str]:
    listed = message[1:-1] if message.startswith("[") else message
    told, below, names = listed.partition(" child queues: ")
    if below:
        return [told, *sorted(names.split(", "))]
    return sorted(re.split(r", (?=requestBody\.)", listed)) if message else []
