"""Computes the steps of a Deployment's rollout. Pure; follows pkg/controller/deployment."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from math import ceil, floor
from typing import NamedTuple

import orjson

from .. import nesting
from ..resource import Object
from ..store import Record
from ..times import parse

HASH = "pod-template-hash"
REVISION = "deployment.kubernetes.io/revision"
DESIRED = "deployment.kubernetes.io/desired-replicas"
MOST = "deployment.kubernetes.io/max-replicas"
#: Annotations that ReplicaSets do not inherit: kubectl's own, and revisions.
_NOT_COPIED = frozenset((REVISION, DESIRED, MOST, "kubectl.kubernetes.io/last-applied-configuration"))
#: The alphabet of generated names, without vowels, so that no words occur.
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


class Set(NamedTuple):
    """One ReplicaSet of a Deployment."""

    record: Record
    obj: Object

    @property
    def wanted(self) -> int:
        return int(self.obj["spec"].get("replicas", 0))

    def reports(self, field: str) -> int:
        return int((self.obj.get("status") or {}).get(field, 0))

    @property
    def created(self) -> tuple[float, str]:
        return parse(self.obj["metadata"]["creationTimestamp"]).timestamp(), self.record.name

    @property
    def revision(self) -> int:
        text = (self.obj["metadata"].get("annotations") or {}).get(REVISION, "0")
        return int(text) if text.isdecimal() else 0


def read(record: Record) -> Set:
    return Set(record, nesting.loads(record.data))


def current(deployment: Object, sets: Iterable[Set]) -> Set | None:
    """Return the oldest ReplicaSet with the Deployment's template."""
    wanted = _bare(deployment["spec"]["template"])
    return min(
        (each for each in sets if _bare(each.obj["spec"]["template"]) == wanted),
        key=lambda each: each.created,
        default=None,
    )


def _bare(template: Object) -> Object:
    metadata = template.get("metadata") or {}
    labels = {key: value for key, value in (metadata.get("labels") or {}).items() if key != HASH}
    return {**template, "metadata": {**metadata, "labels": labels}}


def hash_of(template: Object, collisions: int) -> str:
    """Return a short hash of the template."""
    text = nesting.dumps([template, collisions], option=orjson.OPT_SORT_KEYS)
    number = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")
    letters = []
    for _ in range(10):
        number, letter = divmod(number, len(_LETTERS))
        letters.append(_LETTERS[letter])
    return "".join(letters)


def bounds(deployment: Object) -> tuple[int, int]:
    """Return the numbers of pods that may be surplus and that may be unavailable (`ResolveFenceposts`).

    Percentages are rounded up for the first and down for the second. At least one of both is positive.
    """
    spec = deployment["spec"]
    strategy = spec.get("strategy") or {}
    if strategy.get("type") != "RollingUpdate":
        return 0, 0
    rolling, replicas = strategy.get("rollingUpdate") or {}, spec.get("replicas", 1)
    surge = _amount(rolling.get("maxSurge", 0), replicas, up=True)
    unavailable = _amount(rolling.get("maxUnavailable", 0), replicas, up=False)
    if surge == unavailable == 0:
        unavailable = 1
    return surge, min(unavailable, replicas) if replicas else unavailable


def _amount(value: int | str, total: int, *, up: bool) -> int:
    if isinstance(value, int):
        return value
    share = int(value.removesuffix("%")) * total / 100
    return ceil(share) if up else floor(share)


def grown(deployment: Object, new: Set, sets: Sequence[Set]) -> int:
    """Return the new ReplicaSet's replicas (`NewRSNewReplicas`)."""
    replicas = int(deployment["spec"].get("replicas", 1))
    if (deployment["spec"].get("strategy") or {}).get("type") != "RollingUpdate" or new.wanted > replicas:
        return replicas
    room = replicas + bounds(deployment)[0] - sum(each.wanted for each in sets)
    return new.wanted + min(max(room, 0), replicas - new.wanted)


def shrunk(deployment: Object, new: Set, old: Sequence[Set]) -> dict[str, int]:
    """Return the replicas of the old ReplicaSets that have to shrink, by name (`reconcileOldReplicaSets`).

    Unavailable pods are removed first, then others while enough stay available; the oldest ReplicaSet first.
    """
    least = deployment["spec"].get("replicas", 1) - bounds(deployment)[1]
    total = sum(each.wanted for each in (*old, new))
    lacking = new.wanted - new.reports("availableReplicas")
    left = {each.record.name: each.wanted for each in sorted(old, key=lambda each: each.created)}
    by_name = {each.record.name: each for each in old}
    room = total - least - lacking
    if room <= 0:
        return {}
    for name, wanted in left.items():
        sick = max(0, wanted - by_name[name].reports("availableReplicas"))
        less = min(room, sick)
        left[name] -= less
        room -= less
    available = sum(each.reports("availableReplicas") for each in (*old, new))
    room = available - least
    for name in left:
        less = max(0, min(room, left[name]))
        left[name] -= less
        room -= less
    return {name: wanted for name, wanted in left.items() if wanted != by_name[name].wanted}


def annotations_for(deployment: Object, revision: int) -> dict[str, str]:
    """Return the annotations that a ReplicaSet has from its Deployment."""
    replicas = deployment["spec"].get("replicas", 1)
    given = deployment["metadata"].get("annotations") or {}
    return {
        **{key: text for key, text in given.items() if key not in _NOT_COPIED},
        REVISION: str(revision),
        DESIRED: str(replicas),
        MOST: str(replicas + bounds(deployment)[0]),
    }


def is_complete(deployment: Object, status: Object) -> bool:
    """Return whether all pods are new and available, and no old one is left (`DeploymentComplete`)."""
    replicas = deployment["spec"].get("replicas", 1)
    fields = ("updatedReplicas", "replicas", "availableReplicas")
    return all(status.get(field, 0) == replicas for field in fields)
