"""Builds handles for tests, which give only the objects that they are about."""

from __future__ import annotations

from typing import Any

from agent_scheduler.engine.dra.catalogue import Devices
from agent_scheduler.engine.framework.handle import Handle
from agent_scheduler.engine.ledger import Ledger
from agent_scheduler.engine.state.namespaces import Namespaces
from agent_scheduler.engine.state.owners import Owners
from agent_scheduler.engine.state.targetworkload import TargetWorkload
from agent_scheduler.engine.volumes.catalogue import Catalogue


def handle_of(ledger: Ledger, **parts: Any) -> Handle:
    """Return a handle on the ledger, with these objects beside it and nothing else."""
    makers = {
        "namespaces": Namespaces,
        "owners": Owners,
        "catalogue": Catalogue,
        "devices": Devices,
        "target_workload": TargetWorkload,
    }
    return Handle(ledger, **{name: parts.get(name) or make() for name, make in makers.items()})
