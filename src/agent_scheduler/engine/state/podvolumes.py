"""What a pod needs of storage, compiled from the bytes of its `spec.volumes`.

Most pods mount nothing but secrets, config maps and scratch space, which every node has. They are recognised
without decoding, by the names of fields that their bytes do not contain, and have no `PodVolumes` at all. Nor have
pods with inline CSI volumes: no rule asks about those, and no driver counts them.
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

#: Found in the bytes of every spec that has something for us. The API server writes keys plainly. One expression
#: costs half of what a search for each key does.
_telltale: Final = re.compile(
    rb'"(?:persistentVolumeClaim|ephemeral|gcePersistentDisk|awsElasticBlockStore|azureDisk|cinder|portworxVolume'
    rb'|iscsi|rbd|image)"'
).search

#: How the API server names the volume of a token, and how many letters and digits it adds at random.
_TOKEN: Final = b'"kube-api-access-'
_RANDOM: Final = 5
_SPELLINGS_KEPT: Final = 1024

#: (namespace, name) of a claim.
ClaimKey = tuple[str, str]


class ClaimUse(NamedTuple):
    """A claim that the pod mounts. `ephemeral`: it is made for the pod, and has to be controlled by it."""

    key: ClaimKey
    ephemeral: bool


class PodVolumes(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Equal and hashable by content: pods that need the same volumes can share a class."""

    #: Each claim once, in the order of the spec.
    claims: tuple[ClaimUse, ...] = ()
    #: Inline disks that must not be mounted twice on a node.
    disks: tuple[Disk, ...] = ()
    #: Inline volumes of in-tree plugins, which CSI drivers may serve.
    in_tree: tuple[InTree, ...] = ()
    #: (name, UID) of a pod with ephemeral claims, which are its own; empty for others, which can then share a class.
    pod: tuple[str, str] = ("", "")

    @property
    def keys(self) -> frozenset[ClaimKey]:
        return frozenset(claim.key for claim in self.claims)


class Recogniser:
    """Tells the volumes of plain pods by their bytes. Owner of the spellings that it knows.

    Nearly every pod has a token of its service account, in a volume whose name ends at random; but for that, the pods
    of a workload are spelled alike. So a spelling is searched once, and then known without its random part.
    """

    def __init__(self) -> None:
        #: Of those with a token what stands before and behind its random part, and whether it has something for us.
        self._known: dict[tuple[bytes, bytes], bool] = {}
        self._last = (b"", b"", -1, False)

    def matters(self, data: bytes) -> bytes:
        """What these bytes of a `spec.volumes` may have for us, as it is written but for what is random in it; empty
        for nearly all pods."""
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
    """The images that these bytes of a `spec.volumes` mount, each as often as it is there. None of what cannot be read:
    `pod_volumes` says what is wrong with it."""
    if b'"image"' not in data:
        return ()
    try:
        volumes = decode_part(_volumes, Raw(data), "spec.volumes")
    except SpecError:
        return ()
    return tuple(each.image.reference for each in volumes or () if each.image is not None)


def pod_volumes(raw: Raw | bytes, *, namespace: str, name: str, uid: str) -> PodVolumes | None:
    """None for a pod whose volumes are no matter of the node. Raises `SpecError` naming `spec.volumes`."""
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
            # Named as a claim elsewhere in the spec, too, it still has to be the pod's own.
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
