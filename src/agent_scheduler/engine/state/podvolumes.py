"""Compiles a pod's storage requirements from the bytes of its `spec.volumes`.

Most pods mount only secrets, config maps and scratch space, which every node provides. They are recognized without
decoding, by field names that their bytes do not contain, and have no `PodVolumes`. Pods with inline CSI volumes have
none either: no filter reads these, and no driver counts them.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import msgspec
from msgspec import Raw

from agent_scheduler.objects import storage

from .inline import Disk, disks_of
from .migration import InTree, in_tree_volume
from .podspec import SpecError, decode_part

_volumes = msgspec.json.Decoder(list[storage.PodVolume] | None)

#: Matches the bytes of every spec with volumes that affect scheduling. The API server writes keys without escapes. One
#: expression costs half as much as a search for each key.
_telltale: Final = re.compile(
    rb'"(?:persistentVolumeClaim|ephemeral|gcePersistentDisk|awsElasticBlockStore|azureDisk|cinder|portworxVolume'
    rb'|iscsi|rbd|image)"'
).search

#: The API server's name of a token's volume, and the number of random letters and digits that follow it.
_TOKEN: Final = b'"kube-api-access-'
_RANDOM: Final = 5
_SPELLINGS_KEPT: Final = 1024

#: (namespace, name) of a claim.
ClaimKey = tuple[str, str]


class ClaimUse(NamedTuple):
    """A claim that the pod mounts. An `ephemeral` one is created for the pod and must be controlled by it."""

    key: ClaimKey
    ephemeral: bool


class PodVolumes(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The storage requirements of a pod. Compared by content, so pods that need the same volumes can share a class."""

    #: Each claim once, in the order of the spec.
    claims: tuple[ClaimUse, ...] = ()
    #: Inline disks that must not be mounted twice on a node.
    disks: tuple[Disk, ...] = ()
    #: Inline volumes of in-tree plugins, which CSI drivers may serve.
    in_tree: tuple[InTree, ...] = ()
    #: (name, UID) of a pod with ephemeral claims; empty for others, so that these can share a class.
    pod: tuple[str, str] = ("", "")

    @property
    def keys(self) -> frozenset[ClaimKey]:
        return frozenset(claim.key for claim in self.claims)


class Recogniser:
    """Recognizes volumes that do not affect scheduling by their bytes. Owner of a cache of known spellings.

    Nearly every pod has a service account token in a volume whose name has a random suffix. Except for it, the volumes
    of a workload's pods have equal bytes. So each spelling is searched once and cached without its random part.
    """

    def __init__(self) -> None:
        #: (bytes before, bytes after the random part) -> whether the volumes affect scheduling.
        self._known: dict[tuple[bytes, bytes], bool] = {}
        self._last = (b"", b"", -1, False)

    def matters(self, data: bytes) -> bytes:
        """Return the bytes of a `spec.volumes` without the random part; empty if no volume affects scheduling."""
        head, tail, length, matters = self._last
        if len(data) == length and data.startswith(head) and data.endswith(tail):
            at = len(head)
            if data[at : at + _RANDOM].isalnum():
                return head + tail if matters else b""
        at = data.find(_TOKEN)
        if at < 0:
            return data if _telltale(data) is not None else b""
        at += len(_TOKEN)
        if not data[at : at + _RANDOM].isalnum():
            return data if _telltale(data) is not None else b""
        head, tail = data[:at], data[at + _RANDOM :]
        known = self._known.get((head, tail))
        if known is None:
            if len(self._known) >= _SPELLINGS_KEPT:
                self._known.clear()
            known = self._known[head, tail] = _telltale(data) is not None
        self._last = (head, tail, len(data), known)
        return head + tail if known else b""


def images_of(data: bytes) -> tuple[str, ...]:
    """Return the images that a `spec.volumes` mounts, with repetitions; empty if it is invalid.

    `pod_volumes` reports an invalid one.
    """
    if b'"image"' not in data:
        return ()
    try:
        volumes = decode_part(_volumes, Raw(data), "spec.volumes")
    except SpecError:
        return ()
    return tuple(each.image.reference for each in volumes or () if each.image is not None)


def pod_volumes(raw: Raw | bytes, *, namespace: str, name: str, uid: str) -> PodVolumes | None:
    """Compile `spec.volumes`; None if no volume affects scheduling. Raises `SpecError` that names `spec.volumes`."""
    data = bytes(raw)
    if not data or _telltale(data) is None:
        return None
    claims: dict[ClaimKey, ClaimUse] = {}
    disks: list[Disk] = []
    in_tree: list[InTree] = []
    owned = False
    for volume in decode_part(_volumes, Raw(data), "spec.volumes") or ():
        if volume.persistent_volume_claim is not None:
            key = (namespace, volume.persistent_volume_claim.claim_name)
            claims.setdefault(key, ClaimUse(key, False))
        elif volume.ephemeral is not None:
            owned = True
            key = (namespace, f"{name}-{volume.name}")
            # If another volume names the same claim, it must still be controlled by the pod.
            claims[key] = ClaimUse(key, True)
        else:
            disks.extend(disks_of(volume))
            inline = in_tree_volume(volume)
            if inline is not None:
                in_tree.append(inline)
    if not (claims or disks or in_tree):
        return None
    return PodVolumes(
        claims=tuple(claims.values()),
        disks=tuple(disks),
        in_tree=tuple(in_tree),
        pod=(name, uid) if owned else ("", ""),
    )
