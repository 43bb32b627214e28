"""Recorded decisions of a real kube-scheduler about pods with resource claims."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.decisions import form
from tests.decisions.devices.validity import Cluster, Obj
from tests.decisions.recording import RECORDINGS
from tests.needed import need

DEVICES = RECORDINGS / "kube-scheduler-1.36.2-dra.jsonl"
VARIABLE = "AGENT_SCHEDULER_DRA_DECISIONS"

#: What an error of the real allocator, as opposed to a refusal, begins with.
ERROR = 'running "DynamicResources" filter plugin: '

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
    ("request", "driver", "pool", "device", "adminAccess", "tolerations", "shareID", "consumedCapacity")
)
_CLAIM = {
    "metadata": _METADATA,
    "spec": _CLAIM_SPEC,
    "status": {"allocation": {"devices": {"results": [_RESULT]}, "nodeSelector": _NODE_SELECTOR}},
}
_PLACE = {**dict.fromkeys(("nodeName", "allNodes")), "nodeSelector": _NODE_SELECTOR}
_COUNTERS = form.EachOf({"value": None})
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
                "capacity": form.EachOf({"value": None}),
                "taints": [
                    {
                        **dict.fromkeys(("key", "value", "timeAdded")),
                        "effect": frozenset({"NoSchedule", "NoExecute", "None"}),
                    }
                ],
                "consumesCounters": [{"counterSet": None, "counters": _COUNTERS}],
                "allowMultipleAllocations": None,
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
    "deviceClasses": [{"metadata": _METADATA, "spec": {"selectors": _SELECTORS}}],
    "slices": [_SLICE],
    "claims": [_CLAIM],
    "allocatedBefore": [_CLAIM],
    "pending": {
        **_POD,
        "spec": {**_POD["spec"], "resourceClaims": [dict.fromkeys(("name", "resourceClaimName"))]},
    },
    "result": {
        **dict.fromkeys(("node", "message", "reason")),
        "allocations": form.EachOf([_RESULT]),
    },
}


@dataclass(frozen=True)
class DeviceCase:
    """One decision: `node` where the pod went, or `message` where it could not go."""

    id: int
    cluster: Cluster
    #: In the order in which the pod names them.
    claims: tuple[Obj, ...]
    pending: Obj
    node: str | None
    allocations: dict[str, list[Obj]]
    message: str

    @property
    def error(self) -> str:
        """What the real allocator could not do, without the name of the claim; empty if it decided."""
        if not self.message.startswith(ERROR):
            return ""
        text = self.message.removeprefix(ERROR)
        return text.partition(": ")[2] if text.startswith("claim ") else text


def device_cases(path: Path | None = None) -> list[DeviceCase]:
    """Skips the test only where the recordings as a whole are missing: a file that is named has to be there."""
    given = os.environ.get(VARIABLE)
    path = path or (Path(given) if given else DEVICES)
    if not path.is_file():
        if path == DEVICES:
            need(False, f"there is no recording of kube-scheduler's decisions at {path}")
        raise FileNotFoundError(f"there is no recording at {path}")
    found = [
        _case(text, f"{path}:{number}")
        for number, text in enumerate(path.read_text().splitlines(), 1)
        if text
    ]
    if not found:
        raise form.Unknown(f"{path}: no case")
    return found


def _case(text: str, place: str) -> DeviceCase:
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
    if any("status" in claim for claim in line["claims"]):
        raise form.Unknown(f"{place}: case.claims: one has an allocation, which belongs to allocatedBefore")
    result = line["result"]
    return DeviceCase(
        line["id"],
        Cluster(line["nodes"], line["deviceClasses"], line["slices"], line.get("allocatedBefore") or ()),
        tuple(claims[name] for name in names),
        line["pending"],
        result.get("node"),
        result.get("allocations") or {},
        result.get("message") or "",
    )
