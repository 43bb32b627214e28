"""The built-in kinds: one `Resource` each, in rooms by subject.

A room says what a kind's defaults are, what makes an object of it invalid, and what an update may not change.
Everything here is a pure function over plain JSON objects.
"""

from __future__ import annotations

from ..resource import Resource
from .access import ACCESS
from .config import CONFIG
from .coordination import COORDINATION
from .crds import DEFINITIONS
from .dra import DRA
from .events import EVENTS
from .namespaces import NAMESPACES
from .nodes import NODES
from .pods import PODS
from .policy import POLICY
from .services import SERVICES
from .storage import STORAGE
from .workloads import WORKLOADS

BUILTIN: tuple[Resource, ...] = (
    NAMESPACES,
    NODES,
    PODS,
    *EVENTS,
    *COORDINATION,
    *POLICY,
    *CONFIG,
    *SERVICES,
    *STORAGE,
    *DRA,
    *WORKLOADS,
    *ACCESS,
    *DEFINITIONS,
)

__all__ = ["BUILTIN"]
