"""Recorded decisions of a real kube-scheduler about pods with resource claims."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.decisions import form
from tests.decisions.devices.validity import Cluster, Obj
from tests.decisions.recording import RECORDINGS
from tests.support.needed import need

DEVICES = RECORDINGS / "kube-scheduler-1.36.2-dra.jsonl"
MORE_DEVICES = RECORDINGS / "kube-scheduler-1.36.2-dra-2.jsonl"
RECORDED = (DEVICES, MORE_DEVICES)
VARIABLE = "AGENT_SCHEDULER_DRA_DECISIONS"

#: What an error of the real allocator, as opposed to a refusal, begins with.
ERROR = 'running "DynamicResources" filter plugin: '

#: What recordings call the claim that was made for extended resources.
EXTENDED = "<extended>"
#: What a failure begins with of a pod that had a node and waited for its devices.
WAITED = 'running PreBind plugin "DynamicResources": '
#: What the event about this says before the node's name.
PENDING = "waiting for binding conditions for device on node "

_ANY = form.EachOf()
_METADATA = form.DECISION["pending"]["metadata"]
_NODE_SELECTOR = {
    "nodeSelectorTerms": [
        {
            "matchExpressions": [
                {
                    "key": None,
                    "operator": frozenset({"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"}),
                    "values": [None],
                }
            ],
            "matchFields": [{"key": frozenset({"metadata.name"}), "operator": None, "values": [None]}],
        }
    ]
}
_SELECTORS = [{"cel": {"expression": None}}]
_OPTION = {
    "deviceClassName": None,
    "selectors": _SELECTORS,
    "allocationMode": frozenset({"ExactCount", "All"}),
    "count": None,
    "adminAccess": None,
    "tolerations": [
        {
            "key": None,
            "operator": frozenset({"Equal", "Exists"}),
            **dict.fromkeys(("value", "effect", "tolerationSeconds")),
        }
    ],
    "capacity": {"requests": _ANY},
}
_CLAIM_SPEC = {
    "devices": {
        "requests": [{"name": None, "exactly": _OPTION, "firstAvailable": [{"name": None, **_OPTION}]}],
        "constraints": [{"requests": [None], "matchAttribute": None, "distinctAttribute": None}],
    }
}
_RESULT = dict.fromkeys(
    (
        *("request", "driver", "pool", "device", "adminAccess", "tolerations", "shareID", "consumedCapacity"),
        *("bindingConditions", "bindingFailureConditions"),
    )
)
_REPORT = {
    **dict.fromkeys(("driver", "pool", "device", "shareID")),
    "conditions": [dict.fromkeys(("type", "status", "reason", "message", "lastTransitionTime"))],
}
_CLAIM = {
    "metadata": _METADATA,
    "spec": _CLAIM_SPEC,
    "status": {
        "allocation": {
            "devices": {"results": [_RESULT]},
            "nodeSelector": _NODE_SELECTOR,
            "allocationTimestamp": None,
        },
        "devices": [_REPORT],
    },
}
_PLACE = {**dict.fromkeys(("nodeName", "allNodes")), "nodeSelector": _NODE_SELECTOR}
_COUNTERS = form.EachOf({"value": None})
_POLICY = {
    "default": None,
    "validValues": [None],
    "validRange": dict.fromkeys(("min", "max", "step")),
}
_SLICE = {
    "metadata": _METADATA,
    "spec": {
        "driver": None,
        "pool": dict.fromkeys(("name", "generation", "resourceSliceCount")),
        **_PLACE,
        "perDeviceNodeSelection": None,
        "sharedCounters": [{"name": None, "counters": _COUNTERS}],
        "devices": [
            {
                "name": None,
                "attributes": form.EachOf(dict.fromkeys(("string", "int", "bool", "version"))),
                "capacity": form.EachOf({"value": None, "requestPolicy": _POLICY}),
                "taints": [
                    {
                        **dict.fromkeys(("key", "value", "timeAdded")),
                        "effect": frozenset({"NoSchedule", "NoExecute", "None"}),
                    }
                ],
                "consumesCounters": [{"counterSet": None, "counters": _COUNTERS}],
                **dict.fromkeys(("allowMultipleAllocations", "bindsToNode")),
                "bindingConditions": [None],
                "bindingFailureConditions": [None],
                **_PLACE,
            }
        ],
    },
}
_POD = form.DECISION["pending"]
SHAPE: form.Shape = {
    "id": None,
    "features": [None],
    "nodes": form.DECISION["nodes"],
    "deviceClasses": [
        {"metadata": _METADATA, "spec": {"selectors": _SELECTORS, "extendedResourceName": None}}
    ],
    "slices": [_SLICE],
    "claims": [_CLAIM],
    "allocatedBefore": [_CLAIM],
    "pending": {
        **_POD,
        "spec": {
            **_POD["spec"],
            "resourceClaims": [dict.fromkeys(("name", "resourceClaimName"))],
            "schedulerName": None,
        },
    },
    "binding": {"then": None, "devices": [_REPORT], "nodeSelector": _NODE_SELECTOR},
    #: Arguments of the plugins of the pod's profile.
    "profile": _ANY,
    "result": {
        **dict.fromkeys(("node", "waiting", "message", "reason")),
        #: Those of the claim that was made for extended resources are under `EXTENDED`.
        "allocations": form.EachOf([_RESULT]),
        "requestMappings": [dict.fromkeys(("containerName", "resourceName", "requestName"))],
        #: Reason and message of each.
        "events": [[None]],
    },
    "scores": form.DECISION["scores"],
    "final": form.DECISION["final"],
}


@dataclass(frozen=True)
class DeviceCase:
    """One decision: `node` where the pod went, or `message` where it could go nowhere."""

    id: int
    #: Name of the file.
    recording: str
    cluster: Cluster
    #: Those without an allocation, in the order in which the pod names them.
    claims: tuple[Obj, ...]
    pending: Obj
    #: Also where the pod then waited for devices to be made ready, or was given up because this failed.
    node: str | None
    allocations: dict[str, list[Obj]]
    message: str
    #: Arguments of the plugins of the pod's profile, by their names.
    profile: dict[str, Obj] = field(default_factory=dict)
    #: What the driver reported once the claims were allocated; None where nobody waited for that.
    reports: tuple[Obj, ...] | None = None
    #: Whether the pod still waited for devices when the recording ended.
    is_waiting: bool = False
    #: Why the pod was given up while it waited; empty if it was not.
    failure: str = ""
    mappings: tuple[Obj, ...] = ()
    #: Empty where fewer than two nodes would do, and in recordings that have none.
    scores: dict[str, dict[str, int]] = field(default_factory=dict)
    final: dict[str, int] = field(default_factory=dict)

    @property
    def error(self) -> str:
        """What the real allocator could not do, without the name of the claim; empty if it decided."""
        if not self.message.startswith(ERROR):
            return ""
        text = self.message.removeprefix(ERROR)
        return text.partition(": ")[2] if text.startswith("claim ") else text


def device_cases(*paths: Path) -> list[DeviceCase]:
    """Those of `paths`; by default of the file that the environment names, or else of both recordings. Skips the test
    only where the recordings as a whole are missing: a file that is named has to be there."""
    given = os.environ.get(VARIABLE)
    paths = paths or ((Path(given),) if given else RECORDED)
    if paths == RECORDED:
        need(RECORDINGS.is_dir(), f"there is no recording of kube-scheduler's decisions at {RECORDINGS}")
    return [case for path in paths for case in _cases(path)]


def _cases(path: Path) -> list[DeviceCase]:
    if not path.is_file():
        raise FileNotFoundError(f"there is no recording at {path}")
    found = [
        _case(text, path.name, f"{path}:{number}")
        for number, text in enumerate(path.read_text().splitlines(), 1)
        if text
    ]
    if not found:
        raise form.Unknown(f"{path}: no case")
    return found


def _case(text: str, recording: str, place: str) -> DeviceCase:
    try:
        line: dict[str, Any] = json.loads(text)
    except json.JSONDecodeError as error:
        raise form.Unknown(f"{place}: {error}") from None
    form.check(line, SHAPE, f"{place}: case")
    if missing := {"id", "nodes", "deviceClasses", "slices", "claims", "pending", "result"} - line.keys():
        raise form.Unknown(f"{place}: case: {', '.join(sorted(missing))} missing")
    claims = {claim["metadata"]["name"]: claim for claim in line["claims"]}
    names = [each["resourceClaimName"] for each in line["pending"]["spec"].get("resourceClaims") or ()]
    if unknown := set(names) - claims.keys():
        raise form.Unknown(f"{place}: case.pending.spec.resourceClaims: {sorted(unknown)} are no claims")
    allocated = [claim for claim in line["claims"] if (claim.get("status") or {}).get("allocation")]
    result, message = line["result"], line["result"].get("message") or ""
    failure = message.removeprefix(WAITED) if message.startswith(WAITED) else ""
    node = result.get("node")
    if node is None and (failure or not message):
        node = _waited_on(result.get("events") or (), place)
    return DeviceCase(
        line["id"],
        recording,
        Cluster(
            line["nodes"],
            line["deviceClasses"],
            line["slices"],
            (*(line.get("allocatedBefore") or ()), *allocated),
        ),
        tuple(claims[name] for name in names if claims[name] not in allocated),
        line["pending"],
        node,
        result.get("allocations") or {},
        "" if failure else message,
        profile=line.get("profile") or {},
        reports=tuple((line.get("binding") or {}).get("devices") or ())
        if line.get("binding") and node
        else None,
        is_waiting=bool(result.get("waiting")),
        failure=failure,
        mappings=tuple(result.get("requestMappings") or ()),
        scores=line.get("scores") or {},
        final=line.get("final") or {},
    )


def _waited_on(events: Iterable[list[str]], place: str) -> str:
    for _, note in events:
        if note.startswith(PENDING):
            return note.removeprefix(PENDING)
    raise form.Unknown(f"{place}: case.result: neither a node, nor a message, nor an event that names a node")
