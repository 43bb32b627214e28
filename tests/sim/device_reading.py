"""Reads devices and claims from the API's objects, and decides whether a pod could have its devices on a node.

`tests.decisions.devices.validity` decides whether an allocation is valid; this module tries all possible ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, islice, product
from typing import Any

from embedded_kubernetes.device_driver import EXTENDED_RESOURCE
from embedded_kubernetes.store import Event, Store
from tests.decisions.devices.validity import Cluster, DeviceId, device_of, options_of, problems, results_of, usable

from .api import NODES, Json, is_named, name_of, objects, uid_of

CLAIMS = ("resource.k8s.io", "resourceclaims")
CLASSES = ("resource.k8s.io", "deviceclasses")
SLICES = ("resource.k8s.io", "resourceslices")
#: Maximum number of pods that a claim can be reserved for.
MOST = 256
_MADE, _EXTENDED = "extendedResourceClaimStatus", "extendedResourceName"
#: Maximum number of tried combinations of several claims' allocations.
_TRIED = 2000


@dataclass(frozen=True, slots=True)
class Named:
    """A claim as a pod names it; `name` is None until the claim is created."""

    name: str | None
    #: Whether it must be the pod's own.
    own: bool


def named_by(pod: Json) -> list[Named]:
    statuses = pod.get("status", {}).get("resourceClaimStatuses") or ()
    told = {each["name"]: each.get("resourceClaimName") for each in statuses}
    found = []
    for each in pod["spec"].get("resourceClaims") or ():
        if "resourceClaimName" in each:
            found.append(Named(each["resourceClaimName"], False))
        elif told.get(each["name"], "") is not None:
            found.append(Named(told.get(each["name"]), True))
    made = pod.get("status", {}).get("extendedResourceClaimStatus")
    return [*found, Named(made["resourceClaimName"], True)] if made else found


def extended(pod: Json) -> int:
    """Return the number of devices that the pod requests as an extended resource, which no node offers."""
    resources = (each.get("resources", {}) for each in pod["spec"]["containers"])
    return sum(int(each.get("requests", {}).get(EXTENDED_RESOURCE, 0)) for each in resources)


def without_extended(pod: Json) -> Json:
    """Return the pod as nodes count it once a claim was created for its extended resources."""
    if not extended(pod):
        return pod
    containers = []
    for each in pod["spec"]["containers"]:
        asked = each["resources"]["requests"].items()
        requests = {name: amount for name, amount in asked if name != EXTENDED_RESOURCE}
        containers.append({**each, "resources": {"requests": requests}})
    return {**pod, "spec": {**pod["spec"], "containers": containers}}


def is_made(claim: Json) -> bool:
    """Return whether the claim was created for extended resources."""
    annotations = claim["metadata"].get("annotations") or {}
    return bool(annotations.get("resource.kubernetes.io/extended-resource-claim") == "true")


def owner_of(claim: Json) -> str:
    """Return the UID of the pod for which the claim was created."""
    owners = claim["metadata"].get("ownerReferences") or ()
    return next((each["uid"] for each in owners if each.get("controller")), "")


def allocation_of(claim: Json) -> Json | None:
    found: Json | None = (claim.get("status") or {}).get("allocation")
    return found


def reserved_for(claim: Json) -> set[str]:
    """Return the UIDs of the pods for which the claim is reserved."""
    return {each["uid"] for each in (claim.get("status") or {}).get("reservedFor") or ()}


class Reading:
    """The current objects of the API."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._changes = 0
        self._read: tuple[int, dict[tuple[str, str], list[Json]]] = (-1, {})
        self._answers: dict[tuple[str, str], bool] = {}
        for kind in (CLAIMS, CLASSES, SLICES, NODES):
            store.tables[kind].subscribers.append(self._changed)

    def _changed(self, _event: Event) -> None:
        self._changes += 1

    def _objects(self, kind: tuple[str, str]) -> list[Json]:
        if self._read[0] != self._changes:
            self._read = self._changes, {}
            self._answers = {}
        found = self._read[1].get(kind)
        if found is None:
            found = self._read[1][kind] = objects(self._store, kind)
        return found

    def claims(self) -> list[Json]:
        return self._objects(CLAIMS)

    def claim(self, name: str) -> Json | None:
        return next((each for each in self.claims() if name_of(each) == name), None)

    def cluster(self, *, without: frozenset[str] = frozenset()) -> Cluster:
        """Return the current cluster without the allocations of claims with these UIDs."""
        allocated = [each for each in self.claims() if allocation_of(each) and uid_of(each) not in without]
        nodes, classes, slices = (self._objects(kind) for kind in (NODES, CLASSES, SLICES))
        return Cluster(nodes, classes, slices, allocated)

    def claims_of(self, pod: Json) -> list[Json] | None:
        """Return the claims of the pod's spec, each once.

        None if one is missing, is being deleted, or should be the pod's own and is not.
        """
        found: dict[str, Json] = {}
        for named in named_by({"spec": pod["spec"], "status": {**pod["status"], _MADE: None}}):
            claim = self.claim(named.name) if named.name else None
            if claim is None or "deletionTimestamp" in claim["metadata"]:
                return None
            owners = claim["metadata"].get("ownerReferences") or ()
            if named.own and all(each["uid"] != uid_of(pod) for each in owners):
                return None
            found[uid_of(claim)] = claim
        return list(found.values())

    def is_gated(self, pod: Json) -> bool:
        """Return whether the pod need not be tried, because its claims do not exist."""
        return self.claims_of(pod) is None

    def could_have(self, pod: Json, node: Json) -> bool:
        """Return whether all claims of the pod can be used on the node, or could be allocated there.

        Claims that only this pod or no pod uses may be deallocated first.
        """
        if not pod["spec"].get("resourceClaims") and not extended(pod):
            return True
        self._objects(CLAIMS)
        key = uid_of(pod), name_of(node)
        known = self._answers.get(key)
        if known is None:
            known = self._answers[key] = self._could_have(pod, node)
        return known

    def _could_have(self, pod: Json, node: Json) -> bool:
        claims, uid = self.claims_of(pod), uid_of(pod)
        if claims is None:
            return False
        # The claim for its extended resources is created again.
        freed = {uid_of(each) for each in self.claims() if is_made(each) and owner_of(each) == uid}
        wanted = []
        if number := extended(pod):
            meant = [each for each in self._objects(CLASSES) if _EXTENDED in each["spec"]]
            if not meant:
                return False
            option = {"deviceClassName": name_of(meant[0]), "count": number}
            wanted.append({"spec": {"devices": {"requests": [{"name": "r", "exactly": option}]}}})
        for claim in claims:
            allocation, reserved = allocation_of(claim), reserved_for(claim)
            if allocation is None:
                wanted.append(claim)
            elif usable(allocation, node):
                if len(reserved | {uid}) > MOST:
                    return False
            elif reserved <= {uid}:
                wanted.append(claim)
                freed.add(uid_of(claim))
            else:
                return False
        cluster = self.cluster(without=frozenset(freed))
        return next(ways(cluster, name_of(node), wanted), None) is not None


# ---- all possible allocations of claims


def ways(cluster: Cluster, node_name: str, claims: Sequence[Json]) -> Iterator[tuple[Json, ...]]:
    """Yield the ways to allocate all of `claims` on a node."""
    known = {name_of(each) for each in cluster.classes}
    options = [option for claim in claims for each in _requests(claim) for option in options_of(each).values()]
    if any(option["deviceClassName"] not in known for option in options):
        return

    def good(claim: Json) -> list[Json]:
        found = _of_claim(cluster, node_name, claim)
        return [way for way in found if not problems(cluster, node_name, [claim], [way])]

    for found in islice(product(*map(good, claims)), _TRIED):
        if not problems(cluster, node_name, claims, found):
            yield found


def _requests(claim: Json) -> list[Json]:
    return claim["spec"]["devices"].get("requests") or []


def _of_claim(cluster: Cluster, node_name: str, claim: Json) -> Iterator[Json]:
    """Yield possible allocations of one claim, some of them invalid."""
    node = cluster.node(node_name)
    here = cluster.devices(node)
    results = [result for result in cluster.had() if not result.get("adminAccess")]
    taken = {device_of(result) for result in results if "shareID" not in result}
    specs = [each["spec"] for each in cluster.slices]
    parts = []
    for request in _requests(claim):
        found = []
        for name, option in options_of(request).items():
            selected = [key for key, each in here.items() if cluster.selects(option, key[0], each)]
            if option.get("allocationMode") == "All":
                chosen: Iterator[tuple[DeviceId, ...]] = iter([tuple(selected)])
            else:
                free = [key for key in selected if key not in taken or option.get("adminAccess")]
                chosen = combinations(free, option.get("count", 1))
            found += [[_result(name, key, here[key], option) for key in keys] for keys in chosen]
        parts.append(found)
    for several in product(*parts):
        results = [result for one in several for result in one]
        own = {device_of(result)[0] for result in results}
        local = any(not each.get("allNodes") for each in specs if each["driver"] in own)
        term = {"matchFields": [is_named(node_name)]}
        place = {"nodeSelector": {"nodeSelectorTerms": [term]}} if local else {}
        yield {"devices": {"results": results}, **place}


def _result(name: str, key: DeviceId, device: Any, option: Json) -> Json:
    result: Json = dict(zip(("driver", "pool", "device"), key, strict=True), request=name)
    if option.get("adminAccess"):
        result["adminAccess"] = True
    if option.get("tolerations"):
        result["tolerations"] = option["tolerations"]
    if device.get("allowMultipleAllocations"):
        result["shareID"] = "00000000-0000-4000-8000-000000000000"
        asked = (option.get("capacity") or {}).get("requests") or {}
        whole = {name: each["value"] for name, each in (device.get("capacity") or {}).items()}
        result["consumedCapacity"] = {name: asked.get(name, size) for name, size in whole.items()}
    return result


def awaited(allocation: Json | None) -> list[Json]:
    """Return the results that must be made ready."""
    return [each for each in results_of(allocation) if each.get("bindingConditions")]


def unready(claim: Json, *, only_failed: bool = False) -> list[str]:
    """Return devices of the claim's allocation that are not ready, or that the driver has reported as failed."""
    said = {
        device_of(each): {one["type"] for one in each.get("conditions") or () if one["status"] == "True"}
        for each in claim.get("status", {}).get("devices") or ()
    }
    found = []
    for result in awaited(allocation_of(claim)):
        true = said.get(device_of(result), set())
        failed = bool(true & set(result.get("bindingFailureConditions") or ()))
        if failed or (not only_failed and not true.issuperset(result["bindingConditions"])):
            found.append("/".join(device_of(result)))
    return found
