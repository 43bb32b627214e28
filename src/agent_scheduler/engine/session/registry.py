"""The available actions and plugins, by their names in a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ..framework.plugin import Reads
from .actions.allocate import allocate
from .actions.backfill import backfill
from .actions.enqueue import enqueue
from .actions.preempt import preempt
from .actions.reclaim import reclaim
from .conf import PluginOption
from .hooks import Hooks
from .plugins.capacity import capacity
from .plugins.conformance import conformance
from .plugins.drf import drf
from .plugins.gang import gang
from .plugins.overcommit import overcommit
from .plugins.pdb import pdb
from .plugins.priority import priority
from .plugins.proportion import proportion
from .plugins.resourcequota import resourcequota
from .plugins.sla import sla
from .session import Session, SessionRegistry


def _of_nodes(session: Session, option: PluginOption) -> Hooks:
    """Return no hooks, for a plugin that filters or scores nodes: it is part of the session's profile (`profile`)."""
    return Hooks()


REGISTRY: Final = SessionRegistry(
    actions=MappingProxyType(
        {"enqueue": enqueue, "allocate": allocate, "backfill": backfill, "preempt": preempt, "reclaim": reclaim}
    ),
    plugins=MappingProxyType(
        {
            "binpack": _of_nodes,
            "capacity": capacity,
            "conformance": conformance,
            "drf": drf,
            "gang": gang,
            "nodeorder": _of_nodes,
            "overcommit": overcommit,
            "pdb": pdb,
            "predicates": _of_nodes,
            "priority": priority,
            "proportion": proportion,
            "resourcequota": resourcequota,
            "sla": sla,
        }
    ),
)

#: Plugin -> the parts of the view that are built only if it is configured.
READS: Final[Mapping[str, frozenset[Reads]]] = MappingProxyType({"resourcequota": frozenset((Reads.QUOTAS,))})
