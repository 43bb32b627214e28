"""Selects the controllers that run beside the API server, by the names in kube-controller-manager.

The list has the form of `kube-controller-manager --controllers`: `*` for all, `name` for one, `-name` to exclude one.
If one controller here implements two of kube-controller-manager's, either name selects it.
"""

from __future__ import annotations

from collections.abc import Callable

from .accounts import RootCertificates, ServiceAccounts
from .auth.aggregation import Aggregation
from .controllers import Controller
from .disruption import Budgets
from .endpoint_slices import EndpointSlices
from .handlers import Api
from .podgc import PodCollector
from .protection import Protection
from .quotas import Quotas
from .resource_claims import ResourceClaims
from .taint_eviction import TaintEviction
from .volume_binding import VolumeBinding
from .workloads.cron_jobs import CronJobs
from .workloads.daemon_sets import DaemonSets
from .workloads.deployments import Deployments
from .workloads.jobs import Jobs
from .workloads.replica_sets import ReplicaSets
from .workloads.stateful_sets import StatefulSets

#: The names with the constructors of their controllers.
_KNOWN: tuple[tuple[tuple[str, ...], Callable[[Api], Controller]], ...] = (
    (("disruption-controller",), lambda api: Budgets(api.registry)),
    (
        ("persistentvolumeclaim-protection-controller", "persistentvolume-protection-controller"),
        lambda api: Protection(api.registry),
    ),
    (("serviceaccount-controller",), ServiceAccounts),
    (("root-ca-certificate-publisher-controller",), RootCertificates),
    (("persistentvolume-binder-controller",), VolumeBinding),
    (("resourceclaim-controller",), ResourceClaims),
    (("pod-garbage-collector-controller",), lambda api: PodCollector(api.registry)),
    (("clusterrole-aggregation-controller",), lambda api: Aggregation(api.registry)),
    (("deployment-controller",), Deployments),
    (("replicaset-controller",), ReplicaSets),
    (("job-controller",), Jobs),
    (("endpointslice-controller",), EndpointSlices),
    (("statefulset-controller",), StatefulSets),
    (("daemonset-controller",), DaemonSets),
    (("cronjob-controller",), CronJobs),
    (("resourcequota-controller",), lambda api: Quotas(api.registry)),
    (("taint-eviction-controller",), lambda api: TaintEviction(api.registry)),
)
#: Useless without kubelets: only a kubelet reports that a pod stopped, so no pod may be removed for a missing node.
_WITH_KUBELETS = "pod-garbage-collector-controller"

NAMES = tuple(name for names, _ in _KNOWN for name in names)


def chosen(text: str) -> frozenset[str]:
    """Return the names that a list selects. Raises ValueError for an unknown name."""
    given = [part.strip() for part in text.split(",") if part.strip()]
    unknown = [part for part in given if part != "*" and part.removeprefix("-") not in NAMES]
    if unknown:
        raise ValueError(f"there is no controller {unknown[0]}; there are: {', '.join(NAMES)}")
    return frozenset(name for name in NAMES if name in given or ("*" in given and f"-{name}" not in given))


def start(api: Api, names: frozenset[str], *, kubelets: bool) -> list[Controller]:
    """Start the controllers with these names on one server."""
    return [
        make(api)
        for known, make in _KNOWN
        if any(name in names and (kubelets or name != _WITH_KUBELETS) for name in known)
    ]
