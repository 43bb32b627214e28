"""Binds claims to volumes and provisions volumes.

Replaces pkg/controller/volume/persistentvolume and every CSI provisioner: any provisioner of a StorageClass except
`kubernetes.io/no-provisioner` has unlimited capacity and provisions immediately.

    a volume without claim ──> Available ──> Bound ──> the claim is deleted: Released, or deleted
    a claim with immediate binding ──> the volume that names it, else the smallest that fits, else a provisioned one
    a claim that waits for its consumer ──> the volume that a scheduler reserved, or, once a node is selected, one
                                            provisioned for that node

Cost: a claim examines volumes of its class that are large enough, until one fits; a free volume wakes the claims of
its class that a volume alone can satisfy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf
from typing import Any, NamedTuple

from sortedcontainers import SortedDict

from apimachinery.quantity import value

from . import nesting
from .builtin.causes import check_driver_name
from .builtin.eviction import matches
from .controllers import Controller, Index, WorkQueue
from .deletion import delete_record
from .handlers import Api
from .resource import Object
from .store import Event, Record, Table
from .subresources import NODES


class _Free(NamedTuple):
    record: Record
    mode: str | None
    access_modes: frozenset[str]


class FreeVolumes:
    """The free volumes of one table. `changed` must be called for each event before any query."""

    def __init__(self, table: Table) -> None:
        #: Volumes that name a claim in claimRef, with the UID in it, by key of the claim.
        self._for: dict[str, dict[str, str]] = {}
        #: Free volumes by class, then by size and name.
        self._free: dict[str, SortedDict[tuple[int, str], _Free]] = {}
        #: The location of each volume: the claim, or class, size and name.
        self._place: dict[str, str | tuple[str, tuple[int, str]]] = {}
        for record in table.scan(""):
            self._add(record)

    def changed(self, event: Event) -> None:
        self._remove(event.record.key)
        if event.type != "DELETED":
            self._add(event.record)

    def naming(self, claim_key: str) -> Mapping[str, str]:
        """Return the volumes that name this claim, with the UID in claimRef; an empty UID matches any claim."""
        return self._for.get(claim_key, {})

    def fitting(self, spec: Object, requested: int) -> Iterator[Record]:
        """Yield the free volumes that fit a claim's spec, smallest first."""
        of_class = self._free.get(spec.get("storageClassName") or "")
        if of_class is None:
            return
        wanted, selector = frozenset(spec["accessModes"]), spec.get("selector")
        for size in of_class.irange(minimum=(requested, "")):
            volume = of_class[size]
            if (
                volume.mode == spec.get("volumeMode")
                and wanted <= volume.access_modes
                and (selector is None or matches(selector, volume.record.labels))
            ):
                yield volume.record

    def _add(self, record: Record) -> None:
        spec: dict[str, Any] = nesting.loads(record.data)["spec"]
        ref = spec.get("claimRef")
        if ref is not None:
            claim = f"{ref.get('namespace')}/{ref.get('name')}"
            self._for.setdefault(claim, {})[record.key] = ref.get("uid") or ""
            self._place[record.key] = claim
        elif not record.deleting:
            class_name = spec.get("storageClassName") or ""
            size = (value(spec["capacity"]["storage"]), record.name)
            volume = _Free(record, spec.get("volumeMode"), frozenset(spec["accessModes"]))
            self._free.setdefault(class_name, SortedDict())[size] = volume
            self._place[record.key] = (class_name, size)

    def _remove(self, key: str) -> None:
        place = self._place.pop(key, None)
        if isinstance(place, str):
            naming = self._for[place]
            del naming[key]
            if not naming:
                del self._for[place]
        elif place is not None:
            class_name, size = place
            of_class = self._free[class_name]
            del of_class[size]
            if not of_class:
                del self._free[class_name]


CLAIMS = ("", "persistentvolumeclaims")
VOLUMES = ("", "persistentvolumes")
CLASSES = ("storage.k8s.io", "storageclasses")

BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
#: The topology of provisioned volumes: the first of these labels that the node has.
_TOPOLOGY = ("topology.kubernetes.io/zone", "kubernetes.io/hostname")

Awaited = tuple[str, str]


class VolumeBinding(Controller):
    """The claims and volumes of one server."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._registry = api.registry
        self._claims = api.registry.stored(CLAIMS)
        self._volumes = api.registry.stored(VOLUMES)
        #: Keys to process, in order of arrival.
        self._noted_claims = WorkQueue[str]()
        self._noted_volumes = WorkQueue[str]()
        #: Claims without volume, by what they wait for (`_awaited`).
        self._pending: Index[str, Awaited] = Index()
        self._free = FreeVolumes(self._volumes.table)
        self._noted_volumes.extend(record.key for record in self._volumes.table.scan(""))
        self._noted_claims.extend(record.key for record in self._claims.table.scan(""))
        self._claims.table.subscribers.append(self._claim_changed)
        self._volumes.table.subscribers.append(self._volume_changed)
        api.registry.stored(CLASSES).table.subscribers.append(self._class_changed)

    def _claim_changed(self, event: Event) -> None:
        self._noted_claims.add(event.record.key)
        self.wake()

    def _volume_changed(self, event: Event) -> None:
        self._free.changed(event)
        self._noted_volumes.add(event.record.key)
        self.wake()

    def _class_changed(self, event: Event) -> None:
        self._noted_claims.extend(self._pending.keys(("class", event.record.name)))
        self.wake()

    def advance(self, *, most: int = 64) -> float | None:
        """See `Controller`. Volumes are processed before the claims that may use them."""
        self._noted_volumes.work(most, self._see_volume)
        if not self._noted_volumes:
            self._noted_claims.work(most, self._see_claim)
        return -inf if self._noted_volumes or self._noted_claims else None

    # ---- volumes

    def _see_volume(self, key: str) -> None:
        record = self._volumes.table.records.get(key)
        if record is None:
            return
        volume = self._decoded(VOLUMES, record)
        ref = volume["spec"].get("claimRef")
        phase = (volume.get("status") or {}).get("phase")
        if ref is None:
            self._enter(record, volume, "Available")
            class_name = volume["spec"].get("storageClassName") or ""
            self._noted_claims.extend(self._pending.keys(("volume", record.name)))
            if not self._waits(class_name):
                self._noted_claims.extend(self._pending.keys(("class", class_name)))
            return
        claim = self._claims.table.records.get(f"{ref.get('namespace')}/{ref.get('name')}")
        if claim is not None and ref.get("uid") in (None, "", claim.uid):
            if phase == "Bound":
                return
            if self._has_another(claim, key):
                self._let_go(record, volume)
            else:
                self._noted_claims.add(claim.key)
        elif not ref.get("uid"):
            self._enter(record, volume, "Available")
        elif not record.deleting:
            if volume["spec"].get("persistentVolumeReclaimPolicy") == "Delete":
                delete_record(self._registry, self._volumes, record, {})
            else:
                self._enter(record, volume, "Released")

    def _has_another(self, claim: Record, volume: str) -> bool:
        name: str = self._decoded(CLAIMS, claim)["spec"].get("volumeName") or volume
        return name != volume

    def _let_go(self, record: Record, volume: Object) -> None:
        """Release a volume that was reserved for a claim that got another one, unless a user set claimRef."""
        annotations = volume["metadata"].get("annotations") or {}
        if annotations.pop(BOUND_BY_CONTROLLER, None) is not None:
            del volume["spec"]["claimRef"]
            self._registry.store.replace(VOLUMES, record, volume)

    def _enter(self, record: Record, volume: Object, phase: str) -> None:
        if (volume.get("status") or {}).get("phase") != phase:
            volume["status"] = {"phase": phase, "lastPhaseTransitionTime": self._registry.now()}
            self._registry.store.replace(VOLUMES, record, volume)

    # ---- claims

    def _see_claim(self, key: str) -> None:
        record = self._claims.table.records.get(key)
        if record is None:
            self._pending.put(key, ())
            self._noted_volumes.extend(self._free.naming(key))
            return
        claim = self._decoded(CLAIMS, record)
        if BIND_COMPLETED in (claim["metadata"].get("annotations") or {}):
            if self._pending.put(key, ()):
                # Other volumes may have been reserved for it, too.
                self._noted_volumes.extend(self._free.naming(key))
            self._check_bound(record, claim)
            return
        self._pending.put(key, (_awaited(claim),))
        if record.deleting:
            return
        name = claim["spec"].get("volumeName")
        volume = self._volumes.table.records.get(name) if name else self._meant_for(record)
        if volume is None and not name:
            volume = self._other(claim)
        if volume is not None and self._may_have(volume, record):
            self._bind(record, claim, volume)

    def _waits(self, class_name: str) -> bool:
        """Return whether claims of the class wait for their consumer, so that a free volume does not satisfy them."""
        found = self._registry.object(CLASSES, class_name)
        return found is not None and found.get("volumeBindingMode") == "WaitForFirstConsumer"

    def _check_bound(self, record: Record, claim: Object) -> None:
        lost = claim["spec"].get("volumeName") not in self._volumes.table.records
        if lost and (claim.get("status") or {}).get("phase") != "Lost":
            claim["status"] = {"phase": "Lost"}
            self._registry.store.replace(CLAIMS, record, claim)

    def _meant_for(self, claim: Record) -> Record | None:
        """Return the volume that names the claim."""
        for name, uid in self._free.naming(claim.key).items():
            record = self._volumes.table.records[name]
            if uid in ("", claim.uid) and not record.deleting:
                return record
        return None

    def _may_have(self, volume: Record, claim: Record) -> bool:
        ref = nesting.loads(volume.data)["spec"].get("claimRef")
        return ref is None or (
            (ref.get("namespace"), ref.get("name")) == (claim.namespace, claim.name)
            and ref.get("uid") in (None, "", claim.uid)
        )

    def _other(self, claim: Object) -> Record | None:
        """Return a free or provisioned volume; None if the claim has to wait."""
        class_name = claim["spec"].get("storageClassName") or ""
        found = self._registry.object(CLASSES, class_name)
        node = (claim["metadata"].get("annotations") or {}).get(SELECTED_NODE)
        waits = self._waits(class_name)
        if waits and not node:
            return None
        spec = claim["spec"]
        free = None if waits else next(self._free.fitting(spec, _requested(spec)), None)
        if free is not None or found is None or found["provisioner"] == NO_PROVISIONER:
            return free
        return self._made(claim, found, node)

    def _made(self, claim: Object, storage_class: Object, node: str | None) -> Record | None:
        metadata, spec = claim["metadata"], claim["spec"]
        name = f"pvc-{metadata['uid']}"
        made: dict[str, Any] = {
            "capacity": {"storage": spec["resources"]["requests"]["storage"]},
            "accessModes": spec["accessModes"],
            "volumeMode": spec.get("volumeMode", "Filesystem"),
            "storageClassName": spec["storageClassName"],
            "persistentVolumeReclaimPolicy": storage_class.get("reclaimPolicy", "Delete"),
            "claimRef": _reference(claim),
        }
        if check_driver_name(storage_class["provisioner"], ""):
            # The provisioner's name is not that of a CSI driver.
            made["hostPath"] = {"path": f"/var/simulated/{name}"}
        else:
            made["csi"] = {"driver": storage_class["provisioner"], "volumeHandle": name}
        labels = (self._registry.object(NODES, node) or {}).get("metadata", {}).get("labels", {}) if node else {}
        key = next((key for key in _TOPOLOGY if key in labels), None)
        if key is not None:
            term = {"matchExpressions": [{"key": key, "operator": "In", "values": [labels[key]]}]}
            made["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
        annotations = {PROVISIONED_BY: storage_class["provisioner"]}
        self._api.create(VOLUMES, {"metadata": {"name": name, "annotations": annotations}, "spec": made})
        return self._volumes.table.records.get(name)

    def _bind(self, claim_record: Record, claim: Object, volume_record: Record) -> None:
        volume = self._decoded(VOLUMES, volume_record)
        ref = volume["spec"].get("claimRef")
        if ref is None:
            volume["metadata"].setdefault("annotations", {})[BOUND_BY_CONTROLLER] = "yes"
        volume["spec"]["claimRef"] = {**(ref or {}), **_reference(claim)}
        volume["status"] = {"phase": "Bound", "lastPhaseTransitionTime": self._registry.now()}
        self._registry.store.replace(VOLUMES, volume_record, volume)
        annotations = claim["metadata"].setdefault("annotations", {})
        annotations[BIND_COMPLETED] = "yes"
        if not claim["spec"].get("volumeName"):
            annotations[BOUND_BY_CONTROLLER] = "yes"
        claim["spec"]["volumeName"] = volume_record.name
        claim["status"] = {
            "phase": "Bound",
            "accessModes": volume["spec"]["accessModes"],
            "capacity": volume["spec"]["capacity"],
        }
        self._registry.store.replace(CLAIMS, claim_record, claim)

    def _decoded(self, name: tuple[str, str], record: Record) -> Object:
        return self._registry.stored(name).stored.decode(record.data)


def _awaited(claim: Object) -> Awaited:
    """Return what the claim waits for: the volume that it names, or any volume of its class."""
    name = claim["spec"].get("volumeName")
    return ("volume", name) if name else ("class", claim["spec"].get("storageClassName") or "")


def _reference(claim: Object) -> Object:
    metadata = claim["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": metadata["namespace"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "resourceVersion": metadata["resourceVersion"],
    }


def _requested(spec: Object) -> int:
    return value(((spec.get("resources") or {}).get("requests") or {}).get("storage", 0))
