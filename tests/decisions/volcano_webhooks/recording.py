"""Volcano's recorded admission webhooks: the requests and the answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from agent_scheduler.objects.batch import Queue
from tests.support.needed import recorded, recorded_cases

Obj = dict[str, Any]

#: The paths of our reviews; the others are of kinds that are missing here.
PATHS = (
    *("/pods/mutate", "/queues/mutate", "/queues/validate", "/podgroups/mutate", "/podgroups/validate"),
    *("/jobs/mutate", "/jobs/validate"),
)


class Case(msgspec.Struct, frozen=True):
    id: str
    path: str
    server: str
    request: Obj
    response: Obj
    #: Other answers to the same request: the order of a Go map varies.
    other_responses: list[Obj] | None = None
    #: The answer of an API server with Volcano's definitions and no webhook to the same object, if it was requested.
    crd_dry_run: Obj | None = None

    @property
    def responses(self) -> list[Obj]:
        return [self.response, *(self.other_responses or ())]

    @property
    def object(self) -> Obj:
        """Return the object; empty if one is deleted."""
        found: Obj = self.request.get("object") or {}
        return found

    def __str__(self) -> str:
        return f"{self.id} {self.path} {self.request['operation']} {self.request.get('name', '')}"


@dataclass(frozen=True)
class State:
    """The objects that Volcano's webhooks had, and their flags, by the name of the server."""

    queues: Mapping[str, Queue]
    namespaces: Mapping[str, Mapping[str, str]]
    admission: Obj
    servers: Mapping[str, Obj]


def read_cases() -> list[Case]:
    """Return the recorded cases of our paths."""
    names = [f"volcano-jobs/webhooks{part}.jsonl.gz" for part in ("", "-2")]
    found = recorded_cases("AGENT_SCHEDULER_VOLCANO_WEBHOOKS", *names)
    return msgspec.convert([raw for raw in found if raw["path"] in PATHS], list[Case])


def read_state() -> State:
    raw = json.loads("".join(recorded("volcano-jobs/webhook-state.json")))
    queues = {each["metadata"]["name"]: msgspec.convert(each, Queue) for each in raw["queues"]}
    metadata = [each["metadata"] for each in raw["namespaces"]]
    namespaces = {each["name"]: each.get("annotations") or {} for each in metadata}
    return State(queues, namespaces, admission=raw["admission_conf"], servers=raw["servers"])
