"""The built-in kinds, a `Resource` each: data (`data/kinds.json`), and here the logic of those that have some.

A module says what the defaults of a kind are beyond its data, what makes an object of it invalid, and what an update
may not change. Everything here is a pure function over plain JSON objects.

Kinds of a real server that are not here: APIServices (nothing is aggregated), Ingresses, IPAddresses and ServiceCIDRs,
CertificateSigningRequests, ComponentStatuses. Below pods, proxy is missing, and exec, attach, log and portforward only
say that there is nothing to reach: nothing runs in a simulated pod.
"""

from __future__ import annotations

from ..resource import Resource
from . import (
    access,
    autoscalers,
    config,
    coordination,
    crds,
    dra_claims,
    dra_devices,
    events,
    eviction,
    namespaces,
    nodes,
    pods,
    policies,
    runtime,
    services,
    storage,
    webhooks,
    workloads,
)
from .kind import declared, resource

_MODULES = (
    *(access, autoscalers, config, coordination, crds, dra_claims, dra_devices, events, eviction),
    *(namespaces, nodes, pods, policies, runtime, services, storage, webhooks, workloads),
)
_LOGIC = {kind: logic for module in _MODULES for kind, logic in module.LOGIC.items()}

_DECLARED: tuple[Resource, ...] = tuple(
    # Of a kind in several versions, one has logic that is its own.
    resource(
        kind, _LOGIC.get((f"{kind.group}/{kind.version}", kind.kind)) or _LOGIC.get((kind.group, kind.kind))
    )
    for kind in declared()
)

BUILTIN: tuple[Resource, ...] = tuple(kind for kind in _DECLARED if "alpha" not in kind.version)
#: Kinds that a real server has only where their version is asked for (`--runtime-config`).
ALPHA: tuple[Resource, ...] = tuple(kind for kind in _DECLARED if "alpha" in kind.version)
#: Their groups and versions, as in `scheduling.k8s.io/v1alpha2`.
OFF_BY_DEFAULT: frozenset[str] = frozenset(f"{kind.group}/{kind.version}" for kind in ALPHA)

__all__ = ["ALPHA", "BUILTIN", "OFF_BY_DEFAULT"]
