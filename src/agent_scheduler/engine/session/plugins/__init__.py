"""What a session's rules are made of; a file each."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from ..conf import PluginOption
from ..hooks import Hooks, Plugin
from .capacity import capacity
from .conformance import conformance
from .drf import drf
from .gang import gang
from .overcommit import overcommit
from .priority import priority
from .proportion import proportion
from .resourcequota import resourcequota
from .sla import sla

if TYPE_CHECKING:
    from ..session import Session


def _of_nodes(session: Session, option: PluginOption) -> Hooks:
    """A plugin that filters or ranks nodes: what it has is in the session's profile (`profile`)."""
    return Hooks()


#: By their names in a configuration.
PLUGINS: Final[Mapping[str, Plugin]] = MappingProxyType(
    {
        "binpack": _of_nodes,
        "capacity": capacity,
        "conformance": conformance,
        "drf": drf,
        "gang": gang,
        "nodeorder": _of_nodes,
        "overcommit": overcommit,
        "predicates": _of_nodes,
        "priority": priority,
        "proportion": proportion,
        "resourcequota": resourcequota,
        "sla": sla,
    }
)
