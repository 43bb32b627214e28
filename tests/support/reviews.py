"""Admission requests as an API server sends them, and the resulting objects."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from agent_scheduler.admission.review import AdmissionRequest, AdmissionResponse
from agent_scheduler.objects.batch import Queue
from embedded_kubernetes.patch import json_patch
from tests.support import objects

GATE = "scheduling.volcano.sh/queue-allocation-gate"


def request(
    made: Any, *, old: Any = None, operation: str = "CREATE", name: str = "it", namespace: str = "default"
) -> AdmissionRequest:
    return AdmissionRequest(
        uid="u",
        operation=operation,
        name=name,
        namespace=namespace,
        object=msgspec.Raw(json.dumps(made).encode()),
        old_object=msgspec.Raw(json.dumps(old).encode()),
    )


def patched(made: Any, answer: AdmissionResponse) -> Any:
    assert answer.allowed
    return json_patch(made, msgspec.json.decode(msgspec.json.encode(answer.patch)))


def pod(*gates: str, scheduler: str = "volcano", annotation: str | None = "true", **spec: Any) -> Any:
    annotations = {} if annotation is None else {GATE: annotation}
    return objects.pod("it", gates=gates, scheduler=scheduler, annotations=annotations, **spec)


def queue(name: str = "it", *, state: str = "Open", **spec: Any) -> Any:
    given = {"weight": 1, "reclaimable": True, "parent": "root", **spec}
    return objects.queue(name, status={"state": state}, **given)


def known(*queues: Any) -> dict[str, Queue]:
    """Return queues in the form that reviews use."""
    return {each["metadata"]["name"]: msgspec.convert(each, Queue) for each in queues}
