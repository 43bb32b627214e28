"""The ClusterRoles and ClusterRoleBindings that a server has from the start, as data.

They are those of a real server (its bootstrap policy) but for the roles of single controllers and the Roles in
kube-system and kube-public: nobody here acts by them.

A rule is written as verbs, groups, resources and, where there are any, names, each separated by spaces; `core` is the
group without a name.
"""

from __future__ import annotations

from typing import Any, NamedTuple

_GROUP = "rbac.authorization.k8s.io"
_READ = "get list watch"
_WRITE = "create delete deletecollection patch update"
_ALL = "create delete deletecollection get list patch update watch"


class _Role(NamedTuple):
    name: str
    rules: tuple[tuple[str, ...], ...] = ()
    #: Paths that may be read.
    urls: str = ""
    #: The roles of this name take in its rules.
    aggregates_to: str = ""
    #: Its own rules are those of others.
    aggregates: bool = False


_EVENTS = ("create patch update", "core events.k8s.io", "events")
_TOKEN_REVIEWS = ("create", "authentication.k8s.io", "tokenreviews")
_ACCESS_REVIEWS = ("create", "authorization.k8s.io", "subjectaccessreviews")
_PUBLIC = "/healthz /livez /readyz /version /version/"

_ROLES: tuple[_Role, ...] = (
    _Role("cluster-admin", (("*", "*", "*"),), urls="*"),
    _Role(
        "system:discovery",
        urls="/api /api/* /apis /apis/* /healthz /livez /openapi /openapi/* /readyz /version /version/",
    ),
    _Role("system:public-info-viewer", urls=_PUBLIC),
    # Of the distribution whose answers are this server's oracle: it lets everybody discover the issuer of tokens.
    _Role("system:openshift:public-info-viewer", urls="/.well-known /.well-known/*"),
    _Role(
        "system:service-account-issuer-discovery",
        urls="/.well-known/openid-configuration /.well-known/openid-configuration/ /openid/v1/jwks /openid/v1/jwks/",
    ),
    _Role(
        "system:monitoring",
        urls="/healthz /healthz/* /livez /livez/* /metrics /metrics/slis /readyz /readyz/*",
    ),
    _Role(
        "system:basic-user",
        (
            ("create", "authorization.k8s.io", "selfsubjectaccessreviews selfsubjectrulesreviews"),
            ("create", "authentication.k8s.io", "selfsubjectreviews"),
        ),
    ),
    _Role("system:auth-delegator", (_TOKEN_REVIEWS, _ACCESS_REVIEWS)),
    _Role("admin", aggregates=True),
    _Role("edit", aggregates=True, aggregates_to="admin"),
    _Role("view", aggregates=True, aggregates_to="edit"),
    _Role(
        "system:aggregate-to-admin",
        (
            ("create", "authorization.k8s.io", "localsubjectaccessreviews"),
            (_ALL, _GROUP, "rolebindings roles"),
        ),
        aggregates_to="admin",
    ),
    _Role(
        "system:aggregate-to-edit",
        (
            (_READ, "core", "pods/attach pods/exec pods/portforward pods/proxy secrets services/proxy"),
            ("impersonate", "core", "serviceaccounts"),
            (_WRITE, "core", "pods pods/attach pods/exec pods/portforward pods/proxy"),
            ("create", "core", "pods/eviction"),
            (
                _WRITE,
                "core",
                "configmaps persistentvolumeclaims replicationcontrollers replicationcontrollers/scale secrets "
                "serviceaccounts services services/proxy",
            ),
            ("create", "core", "serviceaccounts/token"),
            (_WRITE, "core events.k8s.io", "events"),
            (
                _WRITE,
                "apps",
                "daemonsets deployments deployments/rollback deployments/scale replicasets replicasets/scale "
                "statefulsets statefulsets/scale",
            ),
            (_WRITE, "autoscaling", "horizontalpodautoscalers"),
            (_WRITE, "batch", "cronjobs jobs"),
            (
                _WRITE,
                "extensions",
                "daemonsets deployments deployments/rollback deployments/scale ingresses networkpolicies replicasets "
                "replicasets/scale replicationcontrollers/scale",
            ),
            (_WRITE, "policy", "poddisruptionbudgets"),
            (_WRITE, "networking.k8s.io", "ingresses networkpolicies"),
            (_ALL, "coordination.k8s.io", "leases"),
            (_WRITE, "resource.k8s.io", "resourceclaims resourceclaimtemplates"),
        ),
        aggregates_to="edit",
    ),
    _Role(
        "system:aggregate-to-view",
        (
            (
                _READ,
                "core",
                "configmaps endpoints persistentvolumeclaims persistentvolumeclaims/status pods "
                "replicationcontrollers replicationcontrollers/scale serviceaccounts services services/status",
            ),
            (
                _READ,
                "core",
                "bindings limitranges namespaces/status pods/log pods/status replicationcontrollers/status "
                "resourcequotas resourcequotas/status",
            ),
            (_READ, "core", "namespaces"),
            (_READ, "core events.k8s.io", "events"),
            (_READ, "discovery.k8s.io", "endpointslices"),
            (
                _READ,
                "apps",
                "controllerrevisions daemonsets daemonsets/status deployments deployments/scale deployments/status "
                "replicasets replicasets/scale replicasets/status statefulsets statefulsets/scale statefulsets/status",
            ),
            (_READ, "autoscaling", "horizontalpodautoscalers horizontalpodautoscalers/status"),
            (_READ, "batch", "cronjobs cronjobs/status jobs jobs/status"),
            (
                _READ,
                "extensions",
                "daemonsets daemonsets/status deployments deployments/scale deployments/status ingresses "
                "ingresses/status networkpolicies replicasets replicasets/scale replicasets/status "
                "replicationcontrollers/scale",
            ),
            (_READ, "policy", "poddisruptionbudgets poddisruptionbudgets/status"),
            (_READ, "networking.k8s.io", "ingresses ingresses/status networkpolicies"),
            (_READ, "resource.k8s.io", "resourceclaims resourceclaims/status resourceclaimtemplates"),
        ),
        aggregates_to="view",
    ),
    _Role(
        "system:kube-controller-manager",
        (
            _EVENTS,
            ("create", "coordination.k8s.io", "leases"),
            ("get update", "coordination.k8s.io", "leases", "kube-controller-manager"),
            ("create", "core", "secrets serviceaccounts"),
            ("delete", "core", "secrets"),
            ("get", "core", "configmaps namespaces secrets serviceaccounts"),
            ("update", "core", "secrets serviceaccounts"),
            _TOKEN_REVIEWS,
            _ACCESS_REVIEWS,
            ("list watch", "*", "*"),
            ("create", "core", "serviceaccounts/token"),
        ),
    ),
    _Role(
        "system:kube-scheduler",
        (
            _EVENTS,
            ("create", "coordination.k8s.io", "leases"),
            ("get list update watch", "coordination.k8s.io", "leases", "kube-scheduler"),
            (_ALL, "coordination.k8s.io", "leasecandidates"),
            (_READ, "core", "nodes"),
            ("delete get list watch", "core", "pods"),
            ("create", "core", "bindings pods/binding"),
            ("patch update", "core", "pods/status"),
            (_READ, "core", "replicationcontrollers services"),
            (_READ, "apps extensions", "replicasets"),
            (_READ, "apps", "statefulsets"),
            (_READ, "policy", "poddisruptionbudgets"),
            (_READ, "core", "persistentvolumeclaims persistentvolumes"),
            _TOKEN_REVIEWS,
            _ACCESS_REVIEWS,
            (_READ, "storage.k8s.io", "csinodes"),
            (_READ, "storage.k8s.io", "volumeattachments"),
            (_READ, "core", "namespaces"),
            (_READ, "storage.k8s.io", "csidrivers"),
            (_READ, "storage.k8s.io", "csistoragecapacities"),
            (_READ, "resource.k8s.io", "deviceclasses"),
            ("get list patch update watch", "resource.k8s.io", "resourceclaims"),
            ("get list patch update watch", "resource.k8s.io", "resourceclaims/status"),
            ("update", "core", "pods/finalizers"),
            (_READ, "resource.k8s.io", "resourceslices"),
            ("create delete", "resource.k8s.io", "resourceclaims"),
            ("patch update", "resource.k8s.io", "resourceclaims/binding"),
        ),
    ),
    _Role(
        "system:volume-scheduler",
        (
            ("get list patch update watch", "core", "persistentvolumes"),
            (_READ, "storage.k8s.io", "storageclasses"),
            ("get list patch update watch", "core", "persistentvolumeclaims"),
        ),
    ),
    _Role(
        "system:persistent-volume-provisioner",
        (
            ("create delete get list watch", "core", "persistentvolumes"),
            ("get list update watch", "core", "persistentvolumeclaims"),
            (_READ, "storage.k8s.io", "storageclasses"),
            ("watch", "core", "events"),
            _EVENTS,
        ),
    ),
    _Role(
        "system:heapster",
        ((_READ, "core", "events namespaces nodes pods"), (_READ, "extensions", "deployments")),
    ),
    _Role("system:kube-aggregator", ((_READ, "core", "endpoints services"),)),
    _Role("system:kube-dns", (("list watch", "core", "endpoints services"),)),
    _Role(
        "system:kubelet-api-admin",
        (
            (_READ, "core", "nodes"),
            ("proxy", "core", "nodes"),
            ("*", "core", "nodes/log nodes/metrics nodes/proxy nodes/stats"),
            ("*", "core", "nodes/configz nodes/healthz nodes/pods"),
        ),
    ),
    _Role(
        "system:node",
        (
            _TOKEN_REVIEWS,
            ("create", "authorization.k8s.io", "localsubjectaccessreviews subjectaccessreviews"),
            (_READ, "core", "services"),
            ("create get list watch", "core", "nodes"),
            ("patch update", "core", "nodes/status"),
            ("patch update", "core", "nodes"),
            ("create patch update", "core", "events"),
            (_READ, "core", "pods"),
            ("create delete", "core", "pods"),
            ("patch update", "core", "pods/status"),
            ("create", "core", "pods/eviction"),
            (_READ, "core", "configmaps secrets"),
            ("get", "core", "persistentvolumeclaims persistentvolumes"),
            ("get", "core", "endpoints"),
            ("create get list watch", "certificates.k8s.io", "certificatesigningrequests"),
            ("create delete get patch update", "coordination.k8s.io", "leases"),
            ("get", "storage.k8s.io", "volumeattachments"),
            ("create", "core", "serviceaccounts/token"),
            ("get patch update", "core", "persistentvolumeclaims/status"),
            (_READ, "storage.k8s.io", "csidrivers"),
            ("create delete get patch update", "storage.k8s.io", "csinodes"),
            (_READ, "node.k8s.io", "runtimeclasses"),
            ("get", "resource.k8s.io", "resourceclaims"),
            ("deletecollection", "resource.k8s.io", "resourceslices"),
            ("get", "core", "serviceaccounts"),
        ),
    ),
    _Role(
        "system:node-bootstrapper",
        (("create get list watch", "certificates.k8s.io", "certificatesigningrequests"),),
    ),
    _Role(
        "system:node-problem-detector",
        (("get", "core", "nodes"), ("patch", "core", "nodes/status"), _EVENTS),
    ),
    _Role(
        "system:node-proxier",
        (
            ("list watch", "core", "endpoints services"),
            (_READ, "core", "nodes"),
            _EVENTS,
            ("list watch", "networking.k8s.io", "servicecidrs"),
            ("list watch", "discovery.k8s.io", "endpointslices"),
        ),
    ),
    *(
        _Role(
            f"system:certificates.k8s.io:certificatesigningrequests:{name}",
            (("create", "certificates.k8s.io", f"certificatesigningrequests/{name}"),),
        )
        for name in ("nodeclient", "selfnodeclient")
    ),
    *(
        _Role(
            f"system:certificates.k8s.io:{name}-approver",
            (("approve", "certificates.k8s.io", "signers", f"kubernetes.io/{name}"),),
        )
        for name in (
            "kube-apiserver-client",
            "kube-apiserver-client-kubelet",
            "kubelet-serving",
            "legacy-unknown",
        )
    ),
)

#: Role, kind of subject, and the names of those who have it.
_BOUND: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("cluster-admin", "Group", ("system:masters",)),
    ("system:discovery", "Group", ("system:authenticated",)),
    ("system:basic-user", "Group", ("system:authenticated",)),
    ("system:public-info-viewer", "Group", ("system:authenticated", "system:unauthenticated")),
    ("system:openshift:public-info-viewer", "Group", ("system:authenticated", "system:unauthenticated")),
    ("system:monitoring", "Group", ("system:monitoring",)),
    ("system:service-account-issuer-discovery", "Group", ("system:serviceaccounts",)),
    ("system:kube-controller-manager", "User", ("system:kube-controller-manager",)),
    ("system:node-proxier", "User", ("system:kube-proxy",)),
    # Bound to nobody: a real server's node authorizer does what it was for.
    ("system:node", "User", ()),
    ("system:kube-scheduler", "User", ("system:kube-scheduler",)),
    ("system:volume-scheduler", "User", ("system:kube-scheduler",)),
)


def cluster_roles() -> list[dict[str, Any]]:
    """The ClusterRoles, ready to be created."""
    return [_made(role) for role in _ROLES]


def cluster_role_bindings() -> list[dict[str, Any]]:
    """The ClusterRoleBindings, ready to be created."""
    return [_bound(*binding) for binding in _BOUND]


def _bound(role: str, kind: str, names: tuple[str, ...]) -> dict[str, Any]:
    made: dict[str, Any] = {
        "metadata": _metadata(role),
        "roleRef": {"apiGroup": _GROUP, "kind": "ClusterRole", "name": role},
    }
    if names:
        made["subjects"] = [{"kind": kind, "apiGroup": _GROUP, "name": name} for name in names]
    return made


def _metadata(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
    }


def _made(role: _Role) -> dict[str, Any]:
    made: dict[str, Any] = {"metadata": _metadata(role.name)}
    if role.aggregates_to:
        made["metadata"]["labels"][f"{_GROUP}/aggregate-to-{role.aggregates_to}"] = "true"
    if role.aggregates:
        selector = {"matchLabels": {f"{_GROUP}/aggregate-to-{role.name}": "true"}}
        made["aggregationRule"] = {"clusterRoleSelectors": [selector]}
        made["rules"] = None
        return made
    made["rules"] = [_rule(rule) for rule in role.rules]
    if role.urls:
        verb = "*" if role.urls == "*" else "get"
        made["rules"].append({"verbs": [verb], "nonResourceURLs": role.urls.split()})
    return made


def _rule(rule: tuple[str, ...]) -> dict[str, Any]:
    verbs, groups, resources, *names = (part.split() for part in rule)
    made: dict[str, Any] = {
        "verbs": verbs,
        "apiGroups": ["" if group == "core" else group for group in groups],
        "resources": resources,
    }
    if names:
        made["resourceNames"] = names[0]
    return made
