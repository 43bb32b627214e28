"""The Lease that a kubelet keeps for its node, in kube-node-lease."""

from __future__ import annotations

from typing import NamedTuple

import orjson

from .store import Record, Store
from .times import micro_clock_text

LEASES = ("coordination.k8s.io", "leases")
_NAMESPACE = "kube-node-lease"
_SECONDS = 40


class NodeLeases(NamedTuple):
    """The leases of all nodes. A store without their table raises KeyError when one is to be renewed."""

    store: Store

    def renew(self, node: Record, now: str) -> None:
        """Make or renew a node's lease."""
        micros = micro_clock_text(self.store.clock())
        record = self.store.tables[LEASES].get(_NAMESPACE, node.name)
        if record is None:
            reference = {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid}
            metadata = {
                "name": node.name,
                "namespace": _NAMESPACE,
                "uid": self.store.uid(),
                "creationTimestamp": now,
                "ownerReferences": [reference],
            }
            spec = {"holderIdentity": node.name, "leaseDurationSeconds": _SECONDS, "renewTime": micros}
            self.store.insert(LEASES, {"metadata": metadata, "spec": spec})
        else:
            lease = orjson.loads(record.data)
            lease["spec"] = {**lease.get("spec", {}), "holderIdentity": node.name, "renewTime": micros}
            self.store.replace(LEASES, record, lease)

    def drop(self, node: str) -> None:
        """Delete the lease of a node that is gone."""
        record = self.store.tables[LEASES].get(_NAMESPACE, node)
        if record is not None:
            self.store.remove(LEASES, record)
