"""An API whose pods use devices: templates, claims and pods in the words of tests, and what a scheduler would do."""

from __future__ import annotations

from typing import Any

from embedded_kubernetes.resource_claims import DELETE_PROTECTION, ResourceClaims

from .world import PODS, World

RESOURCE = "/apis/resource.k8s.io/v1"
CLAIMS = f"{RESOURCE}/namespaces/default/resourceclaims"
TEMPLATES = f"{RESOURCE}/namespaces/default/resourceclaimtemplates"
EVENTS = "/api/v1/namespaces/default/events"
MERGE = "application/merge-patch+json"
DEVICES = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}


class ClaimsWorld(World):
    """With the claim controller, unless `controllers` are changed."""

    def __init__(self) -> None:
        super().__init__()
        self.controllers = [ResourceClaims(self.api)]

    def add_template(self, name: str = "t", **metadata: Any) -> None:
        self.ok(
            "POST", TEMPLATES, {"metadata": {"name": name}, "spec": {"metadata": metadata, "spec": DEVICES}}
        )

    def add_claim(self, name: str = "shared", **metadata: Any) -> str:
        uid: str = self.ok("POST", CLAIMS, {"metadata": {"name": name, **metadata}, "spec": DEVICES})[
            "metadata"
        ]["uid"]
        return uid

    def add_pod(self, name: str = "p", *, node: str = "", **claims: str) -> str:
        """`claims`: entry -> `template/NAME` or `claim/NAME`."""
        entries = []
        for entry, source in claims.items():
            kind, _, named = source.partition("/")
            field = "resourceClaimTemplateName" if kind == "template" else "resourceClaimName"
            entries.append({"name": entry, field: named})
        spec: dict[str, Any] = {"resourceClaims": entries}
        if node:
            spec["nodeName"] = node
        uid: str = self.pod(name, spec=spec)["metadata"]["uid"]
        return uid

    def claims(self) -> dict[str, Any]:
        """name -> claim."""
        return {each["metadata"]["name"]: each for each in self.ok("GET", CLAIMS)["items"]}

    def told(self, pod: str = "p") -> dict[str, str]:
        """What the pod's status says of its generated claims: entry -> name."""
        status = self.ok("GET", f"{PODS}/{pod}")["status"]
        return {each["name"]: each["resourceClaimName"] for each in status.get("resourceClaimStatuses", ())}

    def allocate(self, claim: str, *pods: str, device: str = "gpu-0", node: str = "n1") -> None:
        """What a scheduler writes: the finalizer, then the allocation with reservations for these pods."""
        self.change(claim, {"metadata": {"finalizers": [DELETE_PROTECTION]}})
        allocation = {
            "devices": {
                "results": [{"request": "r", "driver": "d.example.com", "pool": node, "device": device}]
            },
            "nodeSelector": {
                "nodeSelectorTerms": [
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
                ]
            },
        }
        self.change(
            f"{claim}/status", {"status": {"allocation": allocation, "reservedFor": self.consumers(*pods)}}
        )

    def reserve(self, claim: str, *pods: str) -> None:
        """Reserve a claim for exactly these pods."""
        self.change(f"{claim}/status", {"status": {"reservedFor": self.consumers(*pods)}})

    def consumers(self, *pods: str) -> list[dict[str, str]]:
        uids = {pod: self.ok("GET", f"{PODS}/{pod}")["metadata"]["uid"] for pod in pods}
        return [{"resource": "pods", "name": pod, "uid": uid} for pod, uid in uids.items()]

    def change(self, claim: str, body: Any) -> None:
        self.ok("PATCH", f"{CLAIMS}/{claim}", body, kind=MERGE)

    def reserved(self, claim: str) -> list[str]:
        """Names of the pods that the claim is reserved for."""
        status = self.claims()[claim].get("status") or {}
        return [each["name"] for each in status.get("reservedFor", ())]

    def is_allocated(self, claim: str) -> bool:
        found = self.claims()[claim]
        allocated = "allocation" in (found.get("status") or {})
        assert allocated == (DELETE_PROTECTION in found["metadata"].get("finalizers", ())), found
        return allocated

    def warnings(self) -> list[tuple[str, str, int]]:
        """Reason, message and count of each event."""
        return [(each["reason"], each["message"], each["count"]) for each in self.ok("GET", EVENTS)["items"]]
