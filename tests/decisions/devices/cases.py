"""Recorded decisions of a real kube-scheduler about pods with resource claims."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.decisions.devices.validity import Cluster, Obj
from tests.support.needed import recorded_cases

#: The beginning of errors of the real allocator, as opposed to refusals.
ERROR = 'running "DynamicResources" filter plugin: '

#: The recordings' name of the claim that was created for extended resources.
EXTENDED = "<extended>"
#: The beginning of failures of a pod that had a node and waited for its devices.
WAITED = 'running PreBind plugin "DynamicResources": '
#: The event about this, up to the node's name.
PENDING = "waiting for binding conditions for device on node "


@dataclass(frozen=True)
class DeviceCase:
    """One decision: the pod's `node`, or the `message` of its refusal."""

    id: int
    cluster: Cluster
    #: Claims without an allocation, in the order in which the pod names them.
    claims: tuple[Obj, ...]
    pending: Obj
    #: Also set if the pod then waited for devices to be made ready, or failed to get them.
    node: str | None
    allocations: dict[str, list[Obj]]
    message: str
    #: Arguments of the plugins of the pod's profile, by their names.
    profile: dict[str, Obj] = field(default_factory=dict)
    #: The driver's report once the claims were allocated; None if the pod did not wait for it.
    reports: tuple[Obj, ...] | None = None
    #: Whether the pod still waited for devices when the recording ended.
    is_waiting: bool = False
    #: The reason for which the wait ended; empty if it did not.
    failure: str = ""
    mappings: tuple[Obj, ...] = ()
    #: Empty if fewer than two nodes were feasible, and in recordings without scores.
    scores: dict[str, dict[str, int]] = field(default_factory=dict)
    final: dict[str, int] = field(default_factory=dict)

    @property
    def error(self) -> str:
        """Error of the real allocator, without the name of the claim; empty if it decided."""
        if not self.message.startswith(ERROR):
            return ""
        text = self.message.removeprefix(ERROR)
        return text.partition(": ")[2] if text.startswith("claim ") else text


def device_cases() -> list[DeviceCase]:
    """Return the cases of the file that the environment names, or else of both recordings."""
    names = ("kube-scheduler-1.36.2-dra.jsonl", "kube-scheduler-1.36.2-dra-2.jsonl")
    return [_case(line) for line in recorded_cases("AGENT_SCHEDULER_DRA_DECISIONS", *names)]


def _case(line: dict[str, Any]) -> DeviceCase:
    claims = {claim["metadata"]["name"]: claim for claim in line["claims"]}
    names = [each["resourceClaimName"] for each in line["pending"]["spec"].get("resourceClaims") or ()]
    allocated = [claim for claim in line["claims"] if (claim.get("status") or {}).get("allocation")]
    result, message = line["result"], line["result"].get("message") or ""
    binding = line.get("binding") or {}
    failure = message.removeprefix(WAITED) if message.startswith(WAITED) else ""
    node = result.get("node")
    if node is None and (failure or not message):
        told = (note for _, note in result.get("events") or ())
        node = next(note.removeprefix(PENDING) for note in told if note.startswith(PENDING))
    before = (*(line.get("allocatedBefore") or ()), *allocated)
    return DeviceCase(
        line["id"],
        Cluster(line["nodes"], line["deviceClasses"], line["slices"], before),
        tuple(claims[name] for name in names if claims[name] not in allocated),
        line["pending"],
        node,
        result.get("allocations") or {},
        "" if failure else message,
        profile=line.get("profile") or {},
        reports=tuple(binding.get("devices") or ()) if binding and node else None,
        is_waiting=bool(result.get("waiting")),
        failure=failure,
        mappings=tuple(result.get("requestMappings") or ()),
        scores=line.get("scores") or {},
        final=line.get("final") or {},
    )
