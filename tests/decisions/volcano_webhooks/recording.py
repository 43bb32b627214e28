"""Volcano's admission webhooks as they were recorded: what they were asked, and what they answered."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from agent_scheduler.objects.batch import Queue
from tests.support.needed import recorded, recorded_cases

Obj = dict[str, Any]

#: Those that are ours; the others are of kinds that are not here.
PATHS = (
    *("/pods/mutate", "/queues/mutate", "/queues/validate", "/podgroups/mutate", "/podgroups/validate"),
    *("/jobs/mutate", "/jobs/validate"),
)


@dataclass(frozen=True)
class Case:
    id: str
    path: str
    server: str
    request: Obj
    #: All that were given to one question: the order of a Go map is another each time.
    responses: tuple[Obj, ...]
    #: What an API server with Volcano's definitions and no webhook said to the same object, where it was asked.
    by_definition: Obj | None = None

    def __str__(self) -> str:
        return f"{self.id} {self.path} {self.request['operation']} {self.request.get('name', '')}"


@dataclass(frozen=True)
class State:
    """What Volcano's webhooks knew, and how they were started, by the name of the server."""

    queues: Mapping[str, Queue]
    namespaces: Mapping[str, Mapping[str, str]]
    admission: Obj
    servers: Mapping[str, Obj]


def read_cases() -> list[Case]:
    """The recorded cases of our paths."""
    found = recorded_cases("AGENT_SCHEDULER_VOLCANO_WEBHOOKS", "volcano-jobs/webhooks.jsonl.gz")
    return [
        Case(
            id=raw["id"],
            path=raw["path"],
            server=raw["server"],
            request=raw["request"],
            responses=(raw["response"], *(raw.get("other_responses") or ())),
            by_definition=raw.get("crd_dry_run"),
        )
        for raw in found
        if raw["path"] in PATHS
    ]


def read_state() -> State:
    raw = json.loads("".join(recorded("volcano-jobs/webhook-state.json")))
    return State(
        queues={each["metadata"]["name"]: msgspec.convert(each, Queue) for each in raw["queues"]},
        namespaces={
            each["metadata"]["name"]: each["metadata"].get("annotations") or {} for each in raw["namespaces"]
        },
        admission=raw["admission_conf"],
        servers=raw["servers"],
    )
