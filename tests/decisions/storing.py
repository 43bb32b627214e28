"""The engine's storage of a recorded case, and its volumes for a pod's claims on a node."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from agent_scheduler.engine.volumes.catalogue import Catalogue
from agent_scheduler.engine.volumes.records import claim_info, class_info, volume_info
from agent_scheduler.engine.volumes.reservation import ReservedVolumes, reserve
from agent_scheduler.objects import storage as wire
from tests.decisions.engine import Engine
from tests.decisions.plain import Obj
from tests.decisions.recording import Storage


class Given(NamedTuple):
    """Claim -> its volume, and the claims for which one is to be created."""

    bound: dict[str, str]
    provisioning: frozenset[str]


def catalogue(storage: Storage) -> Catalogue:
    found = Catalogue()
    for each in storage.classes:
        found.set_class(class_info(_read(each, wire.StorageClass)))
    for each in storage.volumes:
        found.set_volume(volume_info(_read(each, wire.PersistentVolume)))
    for each in storage.claims:
        found.set_claim(claim_info(_read(each, wire.PersistentVolumeClaim)))
    return found


def _read(body: Obj, kind: type[Any]) -> Any:
    return msgspec.json.decode(msgspec.json.encode(body), type=kind)


def given(engine: Engine, storage: Storage, pending: Obj, node_name: str) -> Given:
    """Return the reservations for the pod's claims, as the binder makes them."""
    node = engine.ledger.node(node_name)
    volumes = engine.waiting(pending).cls.volumes
    assert node is not None and volumes is not None
    found = reserve(volumes, catalogue(storage), node, "pending")
    assert isinstance(found, ReservedVolumes), found
    return Given(
        {binding.claim[1]: binding.volume for binding in found.static_bindings},
        frozenset(provision.claim[1] for provision in found.dynamic_provisions),
    )
