"""Random objects of a cluster, as the watch brings them: pods with every feature that a plugin refuses for, and all
that can cure a refusal. Names and labels are few, so that what happens often concerns somebody."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from agent_scheduler.engine.events.events import Resource
from agent_scheduler.engine.state.features import KNOWN
from agent_scheduler.engine.state.gpus import RESOURCE as GPU
from agent_scheduler.engine.state.namespaces import NamespaceInfo
from agent_scheduler.engine.state.nodeinfo import NodeInfo
from agent_scheduler.engine.state.podclasses import PodClasses
from agent_scheduler.engine.state.podinfo import PodInfo
from tests.support import devices as dra
from tests.support import storage
from tests.support.engine import node, read_pod
from tests.support.objects import metadata, pod
from tests.support.terms import beside, expression, requiring, term

Json = dict[str, Any]

NAMESPACES = ("default", "team-a", "team-b")
APPS = ("web", "db", "job")
ZONES = ("a", "b", "c")
KEYS = ("kubernetes.io/hostname", "topology.kubernetes.io/zone", "rack")
CLAIMS = tuple(f"claim-{number}" for number in range(8))
DEVICE_CLAIMS = tuple(f"claim-{number}" for number in range(4))
NODES = tuple(f"n{number}" for number in range(6))
AMOUNTS = ("0", "100m", "500m", "1", "2", "4")


class Objects:
    """Makes them. Pods are told apart by their resourceVersions, as the API server's are."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
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
        features = (self._placed, self._with_ports, self._near, self._spread)
        for feature in (*features, self._mounting, self._claiming, self._needing):
            if chance.random() < 0.35:
                feature(spec)
        if chance.random() < 0.2:
            spec["tolerations"] = [{"key": chance.choice(("t1", "t2")), "operator": "Exists"}]
        if not node_name and chance.random() < 0.05:
            spec["schedulingGates"] = [{"name": "hold"}]
        namespace, labels = chance.choice(NAMESPACES), self.labels()
        about = metadata(
            f"p{number}", namespace=namespace, uid=f"pod-{number}", labels=labels, version=self.next()
        )
        return {"metadata": about, "spec": spec, "status": {}}

    def read(self, body: Json) -> PodInfo:
        return read_pod(body, self.classes)

    def labels(self) -> Json:
        labels = {"app": self.chance.choice(APPS)}
        if self.chance.random() < 0.3:
            labels["tier"] = self.chance.choice(("gold", "iron"))
        return labels

    def requests(self) -> Json:
        chance = self.chance
        requests = {"cpu": chance.choice(AMOUNTS), "memory": chance.choice(("0", "1Gi", "4Gi"))}
        if chance.random() < 0.25:
            requests["example.com/gpu"] = chance.choice(("1", "2", "8"))
        if chance.random() < 0.25:
            requests[GPU] = chance.choice(("300", "1000", "4000"))
        return requests

    def _requirement(self) -> Json:
        chance = self.chance
        key = chance.choice(KEYS[1:])
        operator = chance.choice(("In", "In", "In", "NotIn", "Exists", "DoesNotExist"))
        values = chance.sample(ZONES, chance.choice((1, 2))) if "In" in operator else ()
        return expression(key, *values, operator=operator)

    def _placed(self, spec: Json) -> None:
        chance = self.chance
        if chance.random() < 0.5:
            spec["nodeSelector"] = {chance.choice(KEYS[1:]): chance.choice(ZONES)}
        else:
            terms: list[Json] = [
                {"matchExpressions": [self._requirement() for _ in range(chance.choice((1, 2)))]}
                for _ in range(chance.choice((1, 2)))
            ]
            if chance.random() < 0.3:
                terms[0]["matchFields"] = [expression("metadata.name", chance.choice(NODES))]
            spec.setdefault("affinity", {})["nodeAffinity"] = requiring(*terms)

    def _with_ports(self, spec: Json) -> None:
        ports = [{"containerPort": 80, "hostPort": self.chance.choice((80, 81, 82))}]
        if self.chance.random() < 0.3:
            ports[0]["hostIP"] = "10.0.0.1"  # type: ignore[assignment]
        spec["containers"][0]["ports"] = ports

    def _selector(self) -> Json:
        chance = self.chance
        match chance.randrange(4):
            case 0:
                return {"matchLabels": {"app": chance.choice(APPS), "tier": "gold"}}
            case 1:
                return {"matchExpressions": [expression("tier", operator="DoesNotExist")]}
            case 2:
                return term("app", "web", "db")
        return {"matchLabels": {"app": chance.choice(APPS)}}

    def _near(self, spec: Json) -> None:
        chance = self.chance

        def drawn() -> Json:
            found: Json = {"labelSelector": self._selector(), "topologyKey": chance.choice(KEYS)}
            match chance.randrange(5):
                case 0:
                    found["namespaces"] = chance.sample(NAMESPACES, 2)
                case 1:
                    found["namespaceSelector"] = {"matchLabels": {"team": chance.choice("xy")}}
                case 2:
                    found["namespaceSelector"] = {}
                case 3:
                    found["matchLabelKeys"] = ["tier"]
            return found

        for kind in ("podAffinity", "podAntiAffinity"):
            if chance.random() < 0.6:
                terms = [drawn() for _ in range(chance.choice((1, 2)))]
                spec.setdefault("affinity", {}).update(beside(kind, *terms))

    def _spread(self, spec: Json) -> None:
        chance = self.chance
        spec["topologySpreadConstraints"] = [
            {
                "maxSkew": 1,
                "topologyKey": chance.choice(KEYS),
                "whenUnsatisfiable": chance.choice(("DoNotSchedule", "ScheduleAnyway")),
                "labelSelector": chance.choice((self._selector(), {}, None)),
                "nodeTaintsPolicy": chance.choice(("Honor", "Ignore")),
            }
            for _ in range(chance.choice((1, 2)))
        ]

    def _mounting(self, spec: Json) -> None:
        chance = self.chance
        volumes: list[Json] = []
        if chance.random() < 0.8:
            volumes += [
                {"name": name, "persistentVolumeClaim": {"claimName": name}}
                for name in chance.sample(CLAIMS, chance.choice((1, 1, 2)))
            ]
        if chance.random() < 0.3:
            disk = chance.choice(("d1", "d2"))
            volumes.append({"name": "disk", "gcePersistentDisk": {"pdName": disk, "readOnly": False}})
        if chance.random() < 0.1:
            volumes.append({"name": "own", "ephemeral": {"volumeClaimTemplate": {}}})
        spec["volumes"] = volumes

    def _claiming(self, spec: Json) -> None:
        chance = self.chance
        entries = [
            {"name": name, "resourceClaimName": name}
            for name in chance.sample(DEVICE_CLAIMS, chance.choice((1, 1, 2)))
        ]
        if chance.random() < 0.4:
            entries.append({"name": "made", "resourceClaimTemplateName": "template"})
        spec["resourceClaims"] = entries

    def _needing(self, spec: Json) -> None:
        chance = self.chance
        if chance.random() < 0.6:
            spec |= {"hostNetwork": True, "hostUsers": False}
        if chance.random() < 0.6:
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
                made = chance.choice(DEVICE_CLAIMS)
                status["resourceClaimStatuses"] = [{"name": "made", "resourceClaimName": made}]
            case "nominated":
                status["nominatedNodeName"] = chance.choice(NODES)
        return {"metadata": metadata, "spec": spec, "status": status}

    # ---- all else

    def node(self, name: str) -> NodeInfo:
        chance = self.chance
        labels = {key: chance.choice(ZONES) for key in KEYS[1:] if chance.random() < 0.7}
        taints = [
            {"key": key, "effect": chance.choice(("NoSchedule", "PreferNoSchedule"))}
            for key in ("t1", "t2")
            if chance.random() < 0.3
        ]
        extended = {"example.com/gpu": chance.choice(("1", "4", "8"))} if chance.random() < 0.3 else {}
        if chance.random() < 0.3:
            extended[GPU] = chance.choice(("1000", "4000", "8000"))
        return node(
            name,
            cpu=chance.choice(AMOUNTS),
            memory=chance.choice(("1Gi", "8Gi")),
            labels=labels,
            taints=taints,
            unschedulable=chance.random() < 0.2,
            extended=extended,
            declared=[each for each in sorted(KNOWN) if chance.random() < 0.5],
        )

    def namespace(self, name: str) -> NamespaceInfo:
        labels = {"team": self.chance.choice("xyz")} if self.chance.random() < 0.8 else {}
        return NamespaceInfo(name, labels)

    def devices(self) -> dict[Resource, Callable[[str], Any]]:
        """As `storage`, of what is allocated to pods."""
        chance = self.chance

        def claim(name: str) -> Any:
            status = dra.allocated_to("dev-0") if chance.random() < 0.4 else {}
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
                *(["false"] if chance.random() < 0.3 else []),
                version=self.next(),
                **({"extendedResourceName": "example.com/gpu"} if chance.random() < 0.3 else {}),
            )

        def resource_slice(name: str) -> Any:
            devices = [dra.device(f"dev-{number}") for number in range(chance.choice((0, 1, 3)))]
            where = {"allNodes": True} if chance.random() < 0.5 else {"nodeName": chance.choice(NODES)}
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
                bound=chance.random() < 0.5,
                volume=chance.choice((None, "v1")),
                meta={"namespace": chance.choice(NAMESPACES)},
            ),
            Resource.PERSISTENT_VOLUME: lambda name: storage.volume(
                name,
                zone=chance.choice((None, *ZONES)),
                claim=chance.choice(
                    (None, storage.ref(chance.choice(CLAIMS), namespace=chance.choice(NAMESPACES)))
                ),
                meta={"labels": {KEYS[1]: chance.choice(ZONES)}} if chance.random() < 0.5 else None,
            ),
            Resource.STORAGE_CLASS: lambda name: storage.storage_class(
                name,
                zones=chance.choice((None, ["a"], ["b", "c"])),
                mode=chance.choice(("Immediate", "WaitForFirstConsumer")),
            ),
            Resource.CSI_NODE: lambda name: storage.csi_node(
                name, migrated=chance.choice(("", "kubernetes.io/gce-pd")), ebs=chance.choice((None, 1, 5))
            ),
            Resource.CSI_DRIVER: lambda name: storage.driver(name, tells_capacity=chance.random() < 0.5),
            Resource.CSI_STORAGE_CAPACITY: lambda name: storage.capacity(
                name, chance.choice(("1Gi", "5Gi", None)), topology={}
            ),
            Resource.VOLUME_ATTACHMENT: lambda name: storage.attachment(name, chance.choice(NODES), "v1"),
        }


__all__ = ["NAMESPACES", "NODES", "Json", "Objects"]
