"""The generator: hostile objects of each kind, drawn by a seeded generator.

    for each in every(Random(1)):             # each case of each kind once, as large as an API server accepts
        for method, path, data in each.requests: ...
    some(Random(2), scale=0.02)                # one case, small enough for a simulated world

An API server accepts all of them: what its validation rejects has no place here.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

# Each registers its cases.
from . import batch as batch
from . import cluster as cluster
from . import pods as pods
from .cases import cases, merged
from .drawing import Draw, Object, encoded
from .kinds import HOSTILE_KINDS, HostileKind

MERGE: Final = "application/merge-patch+json"
#: The most bytes of an object, with what the API server adds: etcd rejects more.
MOST_BYTES: Final = 1_572_864


@dataclass(frozen=True)
class Hostile:
    """One object: as it is created, and its status if that is written afterwards."""

    kind: HostileKind
    #: The name of its case, and the axes along which it is extreme.
    case: str
    axes: tuple[str, ...]
    body: Object
    status: Object | None = None
    namespace: str = "default"

    @property
    def name(self) -> str:
        found: str = self.body["metadata"]["name"]
        return found

    @property
    def path(self) -> str:
        return f"{self.kind.collection(self.namespace)}/{self.name}"

    @property
    def data(self) -> bytes:
        return encoded(self.body)

    @property
    def requests(self) -> Iterator[tuple[str, str, bytes]]:
        """Yield method, path and body of the requests that create it: POST, and PATCH (`MERGE`) of its status."""
        yield "POST", self.kind.collection(self.namespace), self.data
        if self.status is not None:
            yield "PATCH", f"{self.path}/status", encoded({"status": self.status})

    @property
    def stored(self) -> bytes:
        """Return the object about as a server returns it, with its status."""
        about = {"uid": f"uid-{self.name}", "resourceVersion": "7", "creationTimestamp": "2026-01-01T00:00:00Z"}
        if self.kind.namespaced:
            about["namespace"] = self.namespace
        body = merged(self.body, {"metadata": about})
        return encoded(body if self.status is None else {**body, "status": self.status})

    def __str__(self) -> str:
        return f"{self.kind.resource} {self.case}"


def of_kind(
    resource: str, rng: random.Random, *, scale: float = 1.0, prefix: str = "hostile", nodes: tuple[str, ...] = ("n1",)
) -> Iterator[Hostile]:
    """Yield the objects of each case of a kind, by its name in roles. Names begin with `prefix`."""
    for case in cases(resource):
        yield from _made(resource, case, Draw(rng, scale, f"{prefix}-{case}", nodes=nodes))


def every(rng: random.Random, *, scale: float = 1.0, prefix: str = "hostile") -> Iterator[Hostile]:
    """Yield the objects of each case of each kind."""
    for resource in HOSTILE_KINDS:
        yield from of_kind(resource, rng, scale=scale, prefix=prefix)


def some(
    rng: random.Random,
    *,
    kinds: Collection[str] = tuple(HOSTILE_KINDS),
    scale: float = 1.0,
    prefix: str = "hostile",
    case: str = "",
    nodes: tuple[str, ...] = ("n1",),
    namespace: str = "default",
) -> list[Hostile]:
    """Draw a case of one of the kinds, and return its object, or its objects if they belong together.

    `case`: its name, if it is not drawn.
    """
    resource = rng.choice(sorted(kinds))
    case = case or rng.choice(list(cases(resource)))
    return list(_made(resource, case, Draw(rng, scale, f"{prefix}-{case}", namespace, nodes)))


def _made(resource: str, case: str, draw: Draw) -> Iterator[Hostile]:
    kind = HOSTILE_KINDS[resource]
    axes, make = cases(resource)[case]
    found = make(draw)
    for number, body in enumerate(found if isinstance(found, list) else [found]):
        about: Object = {"apiVersion": kind.version, "kind": kind.kind, "metadata": {"name": _name(draw, number)}}
        whole = merged(about, body)
        status = whole.pop("status", None) if kind.has_status and kind.plural != "nodes" else None
        yield Hostile(kind, case, axes, whole, status, draw.namespace)


def _name(draw: Draw, number: int) -> str:
    return f"{draw.name}-{number}" if number else draw.name
