"""The built-in kinds: one `Resource` each, in rooms by subject.

A room says what a kind's defaults are, what makes an object of it invalid, and what an update may not change.
Everything here is a pure function over plain JSON objects.

Kinds of a real server that are not here: APIServices and webhooks (nothing is aggregated or called), HorizontalPod-
Autoscalers, Ingresses, IPAddresses and ServiceCIDRs, CertificateSigningRequests, ComponentStatuses, admission
policies. Below pods, proxy is missing, and exec, attach, log and portforward only say that there is nothing to
reach: nothing runs in a simulated pod.
"""

from __future__ import annotations

from ..resource import Resource
from .access import ACCESS
from .batch import BATCH
from .config import CONFIG
from .coordination import COORDINATION
from .crds import DEFINITIONS
from .dra import DRA
from .events import EVENTS
from .flowcontrol import FLOW_CONTROL
from .namespaces import NAMESPACES
from .networking import NETWORKING
from .nodes import NODES
from .pods import PODS
from .policy import POLICY
from .runtime import RUNTIME
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
    *BATCH,
    *NETWORKING,
    *RUNTIME,
    *FLOW_CONTROL,
    *ACCESS,
    *DEFINITIONS,
)

__all__ = ["BUILTIN"]
