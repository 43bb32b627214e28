"""The state that all decisions of a process read and all binds change."""

from __future__ import annotations

from dataclasses import dataclass

from agent_scheduler.engine.decide.snapshot import Snapshot
from agent_scheduler.engine.preemption.nominated import Nominations

from .cluster import Cluster
from .resource_claims import ResourceClaims
from .storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedState:
    """The cluster with its ledger and queue, and what is read and written beside them."""

    cluster: Cluster
    #: The workers' copy of the ledger's columns.
    snapshot: Snapshot
    #: The nominations of the cluster's queue, by `snapshot`.
    nominations: Nominations
    storage: Storage
    claims: ResourceClaims
