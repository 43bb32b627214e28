"""Random pods and nodes, with every feature that makes a plugin refuse a node or ends a refusal.

There are few different names, labels and amounts, so that many events affect some pod.
"""

from __future__ import annotations

import random
from typing import Any

from . import objects
from .terms import HOSTNAME, ZONE, beside, expression, preferring, requiring, spread, term

Json = dict[str, Any]

NAMESPACES = ("default", "team-a", "team-b")
TEAMS = tuple("xyz")
APPS = ("web", "db", "job")
ZONES = ("a", "b", "c")
KEYS = (HOSTNAME, ZONE, "rack")
IMAGES = ("small", "large")
CPUS = ("0", "100m", "250m", "500m", "1", "2", "4")


class Drawn:
    """Draws objects; pods refer to `claims` and `device_claims` claims, named from `claim-0`.

    `repelling` is the share of nodes that are cordoned, and of those that have each of the taints.
    """

    def __init__(self, chance: random.Random, *, claims: int, device_claims: int, repelling: float = 0.1) -> None:
        self.chance = chance
        self.claims = [f"claim-{number}" for number in range(claims)]
        self.device_claims = [f"claim-{number}" for number in range(device_claims)]
        self.repelling = repelling

    def likely(self, odds: float) -> bool:
        return self.chance.random() < odds

    def labels(self) -> Json:
        labels = {"app": self.chance.choice(APPS)}
        if self.likely(0.3):
            labels["tier"] = self.chance.choice(("gold", "iron"))
        return labels

    def requests(self) -> Json:
        chance = self.chance
        requests = {"cpu": chance.choice(CPUS), "memory": chance.choice(("0", "1Gi", "4Gi"))}
        if self.likely(0.15):
            requests["example.com/gpu"] = chance.choice(("1", "2", "8"))
        if self.likely(0.3):
            requests[objects.GPU] = chance.choice(("200", "300", "700", "1000", "2000", "4000"))
        return requests

    # ---- what a pod's spec may have beside its requests

    def selected(self, spec: Json) -> None:
        spec["nodeSelector"] = {self.chance.choice(KEYS[1:]): self.chance.choice(ZONES)}

    def _node_term(self) -> Json:
        chance = self.chance
        found: Json = {}
        for _ in range(chance.choice((1, 2))):
            operator = chance.choice(("In", "In", "In", "NotIn", "Exists", "DoesNotExist"))
            values = chance.sample(ZONES, chance.choice((1, 2))) if "In" in operator else ()
            each = expression(chance.choice(KEYS[1:]), *values, operator=operator)
            found.setdefault("matchExpressions", []).append(each)
        if self.likely(0.2):
            found["matchFields"] = [expression("metadata.name", f"n{chance.randrange(6)}")]
        return found

    def required(self, spec: Json) -> None:
        terms = [self._node_term() for _ in range(self.chance.choice((1, 2)))]
        spec.setdefault("affinity", {})["nodeAffinity"] = requiring(*terms)

    def preferred(self, spec: Json) -> None:
        spec.setdefault("affinity", {})["nodeAffinity"] = preferring((10, self._node_term()))

    def ports(self, spec: Json) -> None:
        port: Json = {"containerPort": 80, "hostPort": self.chance.choice((80, 81, 82))}
        spec["containers"][0]["ports"] = [port | ({"hostIP": "10.0.0.1"} if self.likely(0.3) else {})]

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

    def _pod_term(self) -> Json:
        chance = self.chance
        found: Json = {"labelSelector": self._selector(), "topologyKey": chance.choice(KEYS)}
        match chance.randrange(6):
            case 0:
                found["namespaces"] = chance.sample(NAMESPACES, 2)
            case 1:
                found["namespaceSelector"] = {"matchLabels": {"team": chance.choice(TEAMS)}}
            case 2:
                found["namespaceSelector"] = {}
            case 3:
                found["matchLabelKeys"] = ["tier"]
        return found

    def near(self, spec: Json, *, weights: tuple[int, ...] = (0,)) -> None:
        """Add affinities; `weights` are those of preferred terms, 0 for required terms."""
        for kind in ("podAffinity", "podAntiAffinity"):
            if self.likely(0.6):
                terms = [self._pod_term() for _ in range(self.chance.choice((1, 2)))]
                found = beside(kind, *terms, weight=self.chance.choice(weights))
                spec.setdefault("affinity", {}).update(found)

    def spreading(self, spec: Json) -> None:
        chance = self.chance
        spec["topologySpreadConstraints"] = [
            spread(
                chance.choice(KEYS),
                skew=chance.choice((1, 1, 2)),
                when=when,
                labelSelector=chance.choice((self._selector(), {}, None)),
                nodeTaintsPolicy=chance.choice(("Honor", "Ignore")),
            )
            for when in chance.sample(("DoNotSchedule", "ScheduleAnyway"), chance.choice((1, 2)))
        ]

    def tolerating(self, spec: Json) -> None:
        key = self.chance.choice(({"key": "t1"}, {"key": "t2"}, {}))
        spec["tolerations"] = [{**key, "operator": "Exists"}]

    def mounting(self, spec: Json) -> None:
        chance = self.chance
        spec["volumes"] = volumes = [
            {"name": name, "persistentVolumeClaim": {"claimName": name}}
            for name in chance.sample(self.claims, chance.choice((0, 1, 1, 1, 2)))
        ]
        if self.likely(0.3):
            disk = chance.choice(("d1", "d2"))
            volumes.append({"name": "disk", "gcePersistentDisk": {"pdName": disk, "readOnly": False}})
        if self.likely(0.1):
            volumes.append({"name": "own", "ephemeral": {"volumeClaimTemplate": {}}})

    def claiming(self, spec: Json) -> None:
        named = self.chance.sample(self.device_claims, self.chance.choice((1, 1, 2)))
        spec["resourceClaims"] = [{"name": name, "resourceClaimName": name} for name in named]

    # ---- nodes

    def node_fields(self) -> Json:
        """Return arguments of `objects.node`."""
        chance = self.chance
        extended = {"example.com/gpu": chance.choice(("1", "4", "8"))} if self.likely(0.3) else {}
        if self.likely(0.4):
            extended[objects.GPU] = chance.choice(("1000", "2000", "4000", "8000"))
        return {
            "cpu": chance.choice(("1", "2", "4", "4", "8")),
            "memory": chance.choice(("2Gi", "8Gi", "16Gi")),
            "pods": chance.choice(("8", "110")),
            "extended": extended,
            "labels": {key: chance.choice(ZONES) for key in KEYS[1:] if self.likely(0.8)},
            "taints": [
                {"key": key, "effect": chance.choice(("NoSchedule", "PreferNoSchedule"))}
                for key in ("t1", "t2")
                if self.likely(self.repelling)
            ],
            "unschedulable": self.likely(self.repelling),
        }
