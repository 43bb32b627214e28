"""The claims that all containers of a Job mount. Pure.

A claim without a name gets one that is derived from the Job, so repeated creations use the same name.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import msgspec

from agent_scheduler.objects.job import Job, VolumeSpec

from .pods import check_additions, owner_of

#: About the bytes of a mount besides its name and its path.
_OF_MOUNT: Final = 24

_decode = msgspec.json.Decoder(dict[str, Any] | None).decode


def claim_name(job: Job, index: int) -> str:
    """Return the name of the claim for the volume with this index."""
    volume = (job.spec.volumes or ())[index]
    if volume.volume_claim_name:
        return volume.volume_claim_name
    suffix = hashlib.sha256(job.metadata.uid.encode()).hexdigest()[:10]
    return f"{job.metadata.name}-pvc-{suffix}{index:02d}"


def claim_for(job: Job, index: int) -> dict[str, Any] | None:
    """Return the claim to create for the volume; None if the claim must exist already."""
    volume = (job.spec.volumes or ())[index]
    spec = _claim_spec(volume)
    if volume.volume_claim_name or spec is None:
        return None
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": claim_name(job, index),
            "namespace": job.metadata.namespace,
            "ownerReferences": [owner_of(job)],
        },
        "spec": spec,
    }


def mounted(job: Job, pod: dict[str, Any]) -> dict[str, Any]:
    """Add the Job's volumes to a pod: each claim once, mounted at all its paths.

    Raises msgspec.ValidationError if that makes the pod too large.
    """
    names: dict[str, str] = {}
    spec, sources, mounts = pod["spec"], [], []
    for index, volume in enumerate(job.spec.volumes or ()):
        claim = claim_name(job, index)
        if claim not in names:
            names[claim] = f"{job.metadata.name}-vol-{index}"
            sources.append({"name": names[claim], "persistentVolumeClaim": {"claimName": claim}})
        mounts.append({"name": names[claim], "mountPath": volume.mount_path})
    if mounts:
        containers = spec.get("containers") or ()
        size = sum(_OF_MOUNT + len(each["name"]) + len(each["mountPath"]) for each in mounts)
        check_additions("spec.volumes", size, len(containers))
        spec["volumes"] = [*(spec.get("volumes") or ()), *sources]
        for container in containers:
            container["volumeMounts"] = [*(container.get("volumeMounts") or ()), *mounts]
    return pod


def controlled(job: Job) -> dict[str, str]:
    """Return the entries of the claims in the Job's status."""
    names = [claim_name(job, index) for index in range(len(job.spec.volumes or ()))]
    return {f"volume-pvc-{name}": name for name in names}


def _claim_spec(volume: VolumeSpec) -> dict[str, Any] | None:
    return _decode(volume.volume_claim) or None
