"""Requests as an API server makes them, and what becomes of the object."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from agent_scheduler.admission.review import Answer, Request
from embedded_kubernetes.patch import json_patch

GATE = "scheduling.volcano.sh/queue-allocation-gate"


def request(
    made: Any, *, old: Any = None, operation: str = "CREATE", name: str = "it", namespace: str = "default"
) -> Request:
    return Request(
        uid="u",
        operation=operation,
        name=name,
        namespace=namespace,
        object=msgspec.Raw(json.dumps(made).encode()),
        old_object=msgspec.Raw(json.dumps(old).encode()),
    )


def patched(made: Any, answer: Answer) -> Any:
    assert answer.allowed
    return json_patch(made, msgspec.json.decode(msgspec.json.encode(answer.patch)))


def pod(*gates: str, scheduler: str = "volcano", annotation: str | None = "true", **spec: Any) -> Any:
    return {
        "metadata": {"name": "it", "annotations": {} if annotation is None else {GATE: annotation}},
        "spec": {
            "schedulerName": scheduler,
            "containers": [{"name": "c"}],
            **({"schedulingGates": [{"name": each} for each in gates]} if gates else {}),
            **spec,
        },
    }


def queue(name: str = "it", *, state: str = "Open", annotations: Any = None, **spec: Any) -> Any:
    return {
        "metadata": {"name": name, **({"annotations": annotations} if annotations else {})},
        "spec": {"weight": 1, "reclaimable": True, "parent": "root", **spec},
        "status": {"state": state},
    }
