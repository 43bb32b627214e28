"""The steps for a pod's claims once its node is chosen: reserve, write to the API server, and check for completion.

    reserve ──> due ──> written, a write at a time ──> check_bindings: WAIT ... DONE, then the bind
       └── unreserve, at any time: unwritten assumptions are undone; written ones stay for the next attempt

`reserve` reads the current `Catalogue`, not that of the decision, and takes all or nothing. A write is a JSON merge
patch with the UID and resourceVersion of the known object, so it is rejected if the object was changed in between; the
volume controller and the provisioner do the rest, and the bound claim is the sign that they have finished.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

import msgspec

from ..state.nodeinfo import NodeInfo
from ..state.nodeselection import reaches
from ..state.podvolumes import ClaimKey, PodVolumes
from ..state.records import version_number
from .binding import BIND_CONFLICT, NODE_CONFLICT, PV_NOT_EXIST, VolumePlan, plan
from .catalogue import Catalogue
from .claims import Unresolvable
from .matching import find_matching_volumes
from .provisioning import can_provision
from .records import BOUND_BY_CONTROLLER, SELECTED_NODE, ClaimInfo, VolumeInfo

VOLUMES: Final = "persistentvolumes"
CLAIMS: Final = "persistentvolumeclaims"

_encode = msgspec.json.Encoder().encode


class BindingInfo(NamedTuple):
    """A static volume for a claim."""

    volume: str
    claim: ClaimKey
    claim_uid: str


class DynamicProvision(NamedTuple):
    """A claim whose volume is to be provisioned for the node."""

    claim: ClaimKey
    claim_uid: str


class ReservedVolumes(NamedTuple):
    """The reservations of `holder` (a pod's UID) at its node."""

    holder: str
    node_name: str
    static_bindings: tuple[BindingInfo, ...]
    dynamic_provisions: tuple[DynamicProvision, ...]

    @property
    def all_bound(self) -> bool:
        """Whether the pod can be bound immediately."""
        return not (self.static_bindings or self.dynamic_provisions)


class ObjectPatch(NamedTuple):
    """A JSON merge patch of one object: `resource` is the API's plural, `namespace` empty for volumes."""

    resource: str
    namespace: str
    name: str
    body: bytes


class Progress(enum.Enum):
    DONE = enum.auto()
    WAIT = enum.auto()


class ReservationFailed(NamedTuple):
    """The attempt has failed; `reason` is for people."""

    reason: str


def reserve(volumes: PodVolumes, catalogue: Catalogue, node: NodeInfo, holder: str) -> ReservedVolumes | Unresolvable:
    """Take the node's volumes for the pod's claims. On a refusal nothing is taken.

    Repeats all checks of the filter for the node, because the ledger's versions of rows do not cover volumes.
    """
    found = plan(volumes, catalogue)
    if isinstance(found, Unresolvable):
        return found
    for volume in found.bound if found is not None else ():
        if volume is None:
            return Unresolvable(PV_NOT_EXIST)
        if not reaches(catalogue.reach(volume, node.name), node):
            return Unresolvable(NODE_CONFLICT)
    if found is None or found.all_bound:
        return ReservedVolumes(holder, node.name, (), ())
    reservation = _take(found, catalogue, node, holder)
    if isinstance(reservation, Unresolvable):
        unreserve(catalogue, holder)
    return reservation


def unreserve(catalogue: Catalogue, holder: str) -> list[VolumeInfo | ClaimInfo]:
    """Release unwritten assumptions. Return the objects that are free again; empty at a second call."""
    return catalogue.release(holder)


def _take(found: VolumePlan, catalogue: Catalogue, node: NodeInfo, holder: str) -> ReservedVolumes | Unresolvable:
    """Take volumes. Stops at the first claim without one; earlier ones stay taken."""
    chosen = find_matching_volumes(found.claims_to_bind, node)
    bindings, provisions = [], []
    for claim in (*(claim for claim, _ in found.selected), *(each.claim for each in found.claims_to_bind)):
        volume = chosen.get(claim.key)
        if volume is not None:
            taken = catalogue.take(volume, claim, holder)
            bindings.append(BindingInfo(volume.name, claim.key, claim.uid))
        else:
            taken = can_provision(claim, catalogue, node) and catalogue.select(claim, node.name, holder)
            provisions.append(DynamicProvision(claim.key, claim.uid))
        if not taken:
            return Unresolvable(BIND_CONFLICT)
    return ReservedVolumes(holder, node.name, tuple(bindings), tuple(provisions))


# ---- writes


def due(reservation: ReservedVolumes, catalogue: Catalogue) -> tuple[ObjectPatch, ...]:
    """Return the writes that are still to be made, without those that another pod with the same claim has made."""
    writes = []
    for binding in reservation.static_bindings:
        volume = catalogue.volumes.get(binding.volume)
        claim = catalogue.claims.get(binding.claim)
        assumed = catalogue.taken.get(binding.volume) is not None
        if volume and claim and assumed and not catalogue.taken.is_written(binding.volume):
            writes.append(_bind_volume(volume, claim))
    for provision in reservation.dynamic_provisions:
        claim = catalogue.claims.get(provision.claim)
        assumed = catalogue.selected.get(provision.claim) is not None
        if claim and assumed and not catalogue.selected.is_written(provision.claim):
            writes.append(_select_node(claim, reservation.node_name))
    return tuple(writes)


def written(write: ObjectPatch, catalogue: Catalogue, resource_version: str) -> None:
    """Record that the API server has accepted a write; the object has this version now."""
    version = version_number(resource_version)
    if write.resource == VOLUMES:
        catalogue.taken.written(write.name, version)
    else:
        catalogue.selected.written((write.namespace, write.name), version)


def _bind_volume(volume: VolumeInfo, claim: ClaimInfo) -> ObjectPatch:
    metadata: dict[str, object] = {"uid": volume.uid, "resourceVersion": volume.resource_version}
    if volume.claim_ref is None and not volume.by_controller:
        # Informs the volume controller that neither names the other in its spec.
        metadata["annotations"] = {BOUND_BY_CONTROLLER: "yes"}
    reference = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": claim.namespace,
        "name": claim.name,
        "uid": claim.uid,
        "resourceVersion": claim.resource_version,
    }
    body = _encode({"metadata": metadata, "spec": {"claimRef": reference}})
    return ObjectPatch(VOLUMES, "", volume.name, body)


def _select_node(claim: ClaimInfo, node_name: str) -> ObjectPatch:
    metadata = {"uid": claim.uid, "resourceVersion": claim.resource_version, "annotations": {SELECTED_NODE: node_name}}
    return ObjectPatch(CLAIMS, claim.namespace, claim.name, _encode({"metadata": metadata}))


# ---- waiting


def check_bindings(
    reservation: ReservedVolumes, catalogue: Catalogue, node: NodeInfo | None, *, pod_exists: bool = True
) -> Progress | ReservationFailed:
    """Return the progress of binding the pod's claims, once all due writes are made.

    Reads the state from the watch, not assumptions: a write that the watch has yet to report means WAIT.
    """
    if node is None:
        name = reservation.node_name
        return ReservationFailed(f'failed to get node "{name}": node "{name}" not found')
    if not pod_exists:
        return ReservationFailed("pod does not exist any more")
    for binding in reservation.static_bindings:
        found = _bound(binding, catalogue, node)
        if found is not Progress.DONE:
            return found
    for provision in reservation.dynamic_provisions:
        found = _provisioned(provision, catalogue, node)
        if found is not Progress.DONE:
            return found
    return Progress.DONE


def _bound(binding: BindingInfo, catalogue: Catalogue, node: NodeInfo) -> Progress | ReservationFailed:
    volume = catalogue.volumes.get(binding.volume)
    if volume is None:
        return ReservationFailed(f'failed to check binding: could not find v1.PersistentVolume "{binding.volume}"')
    claim = _same_claim(binding, catalogue)
    if claim is None:
        return ReservationFailed(f"failed to check binding: {_no_claim(binding.claim)}")
    if catalogue.taken.get(volume.name) is not None:
        return Progress.WAIT
    if not reaches(catalogue.reach(volume, node.name), node):
        return _unreachable(volume, node)
    ref = volume.claim_ref
    if ref is None or not ref.uid:
        return ReservationFailed(f'ClaimRef got reset for pv "{volume.name}"')
    if ref.uid != claim.uid:
        return ReservationFailed(f'pv "{volume.name}" was bound to another claim')
    return _settled(claim, catalogue, node)


def _provisioned(provision: DynamicProvision, catalogue: Catalogue, node: NodeInfo) -> Progress | ReservationFailed:
    claim = _same_claim(provision, catalogue)
    if claim is None:
        return ReservationFailed(f"failed to check provisioning pvc: {_no_claim(provision.claim)}")
    if catalogue.selected.get(claim.key) is not None:
        return Progress.WAIT
    if claim.selected_node != node.name:
        # A provisioner that fails removes the annotation, so that another node can be chosen.
        return ReservationFailed(f'provisioning failed for PVC "{claim.name}"')
    return _settled(claim, catalogue, node)


def _settled(claim: ClaimInfo, catalogue: Catalogue, node: NodeInfo) -> Progress | ReservationFailed:
    """Return whether the volume controller has finished with the claim, and its volume is reachable."""
    if not claim.volume_name:
        return Progress.WAIT
    volume = catalogue.volumes.get(claim.volume_name)
    if volume is None:
        # The watch of claims may be ahead of that of volumes.
        return Progress.WAIT
    if not reaches(catalogue.reach(volume, node.name), node):
        return _unreachable(volume, node)
    return Progress.DONE if claim.bound else Progress.WAIT


def _same_claim(part: BindingInfo | DynamicProvision, catalogue: Catalogue) -> ClaimInfo | None:
    claim = catalogue.claims.get(part.claim)
    return claim if claim is not None and claim.uid == part.claim_uid else None


def _no_claim(key: ClaimKey) -> str:
    return f'could not find v1.PersistentVolumeClaim "{key[0]}/{key[1]}"'


def _unreachable(volume: VolumeInfo, node: NodeInfo) -> ReservationFailed:
    return ReservationFailed(
        f'pv "{volume.name}" node affinity doesn\'t match node "{node.name}": no matching NodeSelectorTerms'
    )
