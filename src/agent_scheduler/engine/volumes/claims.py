"""A pod's claims grouped by the remaining work, or the reason why no node can help (VolumeBinding's PreFilter).

Such a refusal applies to every node, and no eviction helps: the claims have to change.
"""

from __future__ import annotations

from typing import NamedTuple

from ..state.podvolumes import ClaimUse, PodVolumes
from .catalogue import Catalogue
from .records import WAIT_FOR_CONSUMER, ClaimInfo

UNBOUND_IMMEDIATE = "pod has unbound immediate PersistentVolumeClaims"


class Unresolvable(NamedTuple):
    """The reason why no node is feasible. Preemption cannot help."""

    message: str


class PodVolumeClaims(NamedTuple):
    """Bound claims, and unbound ones of classes with `WaitForFirstConsumer`.

    kube-scheduler's struct of this name also has unbound immediate claims, which are a refusal here.
    """

    bound_claims: tuple[ClaimInfo, ...]
    unbound_claims_delay_binding: tuple[ClaimInfo, ...]


def pod_volume_claims(volumes: PodVolumes, catalogue: Catalogue) -> PodVolumeClaims | Unresolvable:
    for use in volumes.claims:
        problem = _problem(use, volumes, catalogue)
        if problem:
            return Unresolvable(problem)
    bound, waiting = [], []
    immediate = False
    for use in volumes.claims:
        claim = catalogue.claims[use.key]
        if claim.bound:
            bound.append(claim)
            continue
        found = catalogue.classes.get(claim.class_name)
        if found is not None and found.binding_mode is None:
            return Unresolvable(f"VolumeBindingMode not set for StorageClass {_quoted(found.name)}")
        if found is not None and found.binding_mode == WAIT_FOR_CONSUMER and not claim.volume_name:
            waiting.append(claim)
        else:
            # A claim that names its volume is also bound by the volume controller.
            immediate = True
    return Unresolvable(UNBOUND_IMMEDIATE) if immediate else PodVolumeClaims(tuple(bound), tuple(waiting))


def not_found(claim_name: str) -> str:
    """Return the API's message for a claim that does not exist."""
    return f"persistentvolumeclaim {_quoted(claim_name)} not found"


def _problem(use: ClaimUse, volumes: PodVolumes, catalogue: Catalogue) -> str:
    name = use.key[1]
    claim = catalogue.claims.get(use.key)
    if claim is None:
        if use.ephemeral:
            return f"waiting for ephemeral volume controller to create the persistentvolumeclaim {_quoted(name)}"
        return not_found(name)
    if claim.lost:
        return (
            f"persistentvolumeclaim {_quoted(name)} bound to non-existent persistentvolume {_quoted(claim.volume_name)}"
        )
    if claim.deleting:
        return f"persistentvolumeclaim {_quoted(name)} is being deleted"
    if use.ephemeral:
        return not_owned(claim, volumes)
    return ""


def not_owned(claim: ClaimInfo, volumes: PodVolumes) -> str:
    """Return the message for the claim of an ephemeral volume that another pod owns; empty if it is the pod's own."""
    pod_name, pod_uid = volumes.pod
    if claim.controller == pod_uid:
        return ""
    namespace = claim.namespace
    return f"PVC {namespace}/{claim.name} was not created for pod {namespace}/{pod_name} (pod is not owner)"


def _quoted(text: str) -> str:
    """Quote a name like Go's %q."""
    return f'"{text}"'
