"""Random objects of a cluster, as the watch brings them: pods and nodes that `Drawn` draws, and objects of storage and
of devices that can cure a refusal."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from agent_scheduler.engine.events.events import Resource
from agent_scheduler.engine.state.features import KNOWN
from agent_scheduler.engine.state.namespaces import NamespaceInfo
from agent_scheduler.engine.state.nodeinfo import NodeInfo
from agent_scheduler.engine.state.podclasses import PodClasses
from agent_scheduler.engine.state.podinfo import PodInfo
from tests.support import devices as dra
from tests.support import storage
from tests.support.drawn import KEYS, NAMESPACES, TEAMS, ZONES, Drawn, Json
from tests.support.engine import node, read_pod
from tests.support.objects import metadata, pod

NODES = tuple(f"n{number}" for number in range(6))


class Objects(Drawn):
    """Makes them. Pods are told apart by their resourceVersions, as the API server's are."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance, claims=8, device_claims=4, repelling=0.25)
        self.classes = PodClasses()
        self._number = 0

    def next(self) -> int:
        self._number += 1
        return self._number

    # ---- pods

    def pod(self, *, node_name: str = "") -> Json:
        chance, number = self.chance, self.next()
        priority = chance.choice((0, 0, 1, 10))
        body = pod(f"p{number}", requests=self.requests(), node=node_name, priority=priority)
        spec = body["spec"]
        placed = chance.choice((self.selected, self.required))
        features = (placed, self.ports, self.near, self.spreading, self.mounting)
        for feature in (*features, self._claiming, self._needing):
            if self.likely(0.35):
                feature(spec)
        if self.likely(0.2):
            self.tolerating(spec)
        if not node_name and self.likely(0.05):
            spec["schedulingGates"] = [{"name": "hold"}]
        about = metadata(
            f"p{number}",
            namespace=chance.choice(NAMESPACES),
            uid=f"pod-{number}",
            labels=self.labels(),
            version=self.next(),
        )
        return {"metadata": about, "spec": spec, "status": {}}

    def read(self, body: Json) -> PodInfo:
        return read_pod(body, self.classes)

    def _claiming(self, spec: Json) -> None:
        self.claiming(spec)
        if self.likely(0.4):
            spec["resourceClaims"].append({"name": "made", "resourceClaimTemplateName": "template"})

    def _needing(self, spec: Json) -> None:
        if self.likely(0.6):
            spec |= {"hostNetwork": True, "hostUsers": False}
        if self.likely(0.6):
            rule = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [3]}}
            spec["containers"][0]["restartPolicyRules"] = [rule]

    def changed(self, body: Json, how: str) -> Json:
        """A pod with another version: `how` names what else is different."""
        chance = self.chance
        metadata = {**body["metadata"], "resourceVersion": str(self.next())}
        spec, status = {**body["spec"]}, {**body["status"]}
        match how:
            case "labels":
                metadata["labels"] = self.labels()
            case "resources":
                spec["containers"] = [{**spec["containers"][0], "resources": {"requests": self.requests()}}]
            case "tolerations":
                key = chance.choice(("t1", "t2", "node.kubernetes.io/unschedulable"))
                spec["tolerations"] = [*spec.get("tolerations", ()), {"key": key, "operator": "Exists"}]
            case "gates":
                spec.pop("schedulingGates", None)
            case "claims":
                made = chance.choice(self.device_claims)
                status["resourceClaimStatuses"] = [{"name": "made", "resourceClaimName": made}]
            case "nominated":
                status["nominatedNodeName"] = chance.choice(NODES)
        return {"metadata": metadata, "spec": spec, "status": status}

    # ---- all else

    def node_info(self, name: str) -> NodeInfo:
        return node(name, declared=[each for each in sorted(KNOWN) if self.likely(0.5)], **self.node_fields())

    def namespace(self, name: str) -> NamespaceInfo:
        labels = {"team": self.chance.choice(TEAMS)} if self.likely(0.8) else {}
        return NamespaceInfo(name, labels)

    def devices(self) -> dict[Resource, Callable[[str], Any]]:
        """As `storage`, of what is allocated to pods."""
        chance = self.chance

        def claim(name: str) -> Any:
            status = dra.allocated_to("dev-0") if self.likely(0.4) else {}
            return dra.claim_of(
                name,
                dra.exactly(class_name=chance.choice(("gpu", "nic"))),
                version=self.next(),
                status=status,
                metadata={"namespace": chance.choice(NAMESPACES)},
            )

        def device_class(name: str) -> Any:
            return dra.class_of(
                name,
                *(["false"] if self.likely(0.3) else []),
                version=self.next(),
                **({"extendedResourceName": "example.com/gpu"} if self.likely(0.3) else {}),
            )

        def resource_slice(name: str) -> Any:
            devices = [dra.device(f"dev-{number}") for number in range(chance.choice((0, 1, 3)))]
            where = {"allNodes": True} if self.likely(0.5) else {"nodeName": chance.choice(NODES)}
            return dra.slice_of(name, *devices, version=self.next(), pool={"name": name}, **where)

        return {
            Resource.RESOURCE_CLAIM: claim,
            Resource.DEVICE_CLASS: device_class,
            Resource.RESOURCE_SLICE: resource_slice,
        }

    def storage(self) -> dict[Resource, Callable[[str], Any]]:
        """By kind: what makes an object of a name; names are `kind`'s own."""
        chance = self.chance
        return {
            Resource.PERSISTENT_VOLUME_CLAIM: lambda name: storage.claim(
                name,
                bound=self.likely(0.5),
                volume=chance.choice((None, "v1")),
                meta={"namespace": chance.choice(NAMESPACES)},
            ),
            Resource.PERSISTENT_VOLUME: lambda name: storage.volume(
                name,
                zone=chance.choice((None, *ZONES)),
                claim=chance.choice(
                    (None, storage.ref(chance.choice(self.claims), namespace=chance.choice(NAMESPACES)))
                ),
                meta={"labels": {KEYS[1]: chance.choice(ZONES)}} if self.likely(0.5) else None,
            ),
            Resource.STORAGE_CLASS: lambda name: storage.storage_class(
                name,
                zones=chance.choice((None, ["a"], ["b", "c"])),
                mode=chance.choice(("Immediate", "WaitForFirstConsumer")),
            ),
            Resource.CSI_NODE: lambda name: storage.csi_node(
                name, migrated=chance.choice(("", "kubernetes.io/gce-pd")), ebs=chance.choice((None, 1, 5))
            ),
            Resource.CSI_DRIVER: lambda name: storage.driver(name, tells_capacity=self.likely(0.5)),
            Resource.CSI_STORAGE_CAPACITY: lambda name: storage.capacity(
                name, chance.choice(("1Gi", "5Gi", None)), topology={}
            ),
            Resource.VOLUME_ATTACHMENT: lambda name: storage.attachment(name, chance.choice(NODES), "v1"),
        }


__all__ = ["NAMESPACES", "NODES", "Json", "Objects"]
