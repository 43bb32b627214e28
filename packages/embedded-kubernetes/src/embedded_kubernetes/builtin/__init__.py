"""The built-in kinds, each as a `Resource` made of data (`data/kinds.json`) and the logic in this package.

A module has the defaults of its kinds beyond the data, their validation, and their immutable fields. All of it is
pure functions on plain JSON objects.

Kinds of kube-apiserver that are missing: APIServices (there is no aggregation), Ingresses, IPAddresses, ServiceCIDRs,
CertificateSigningRequests and ComponentStatuses. The subresource `proxy` of pods is missing; exec, attach, log and
portforward always fail, because simulated pods run nothing.
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
    # Logic for one version of a kind takes precedence over logic for all of them.
    resource(kind, _LOGIC.get((f"{kind.group}/{kind.version}", kind.kind)) or _LOGIC.get((kind.group, kind.kind)))
    for kind in declared()
)

BUILTIN: tuple[Resource, ...] = tuple(kind for kind in _DECLARED if "alpha" not in kind.version)
#: Kinds that kube-apiserver serves only if their version is enabled by `--runtime-config`.
ALPHA: tuple[Resource, ...] = tuple(kind for kind in _DECLARED if "alpha" in kind.version)
#: Their group versions, such as `scheduling.k8s.io/v1alpha2`.
OFF_BY_DEFAULT: frozenset[str] = frozenset(f"{kind.group}/{kind.version}" for kind in ALPHA)

__all__ = ["ALPHA", "BUILTIN", "OFF_BY_DEFAULT"]
