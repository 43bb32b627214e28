"""Admission that needs other objects: the namespace, and the classes of a pod or claim.

Follows the admission plugins NamespaceLifecycle, Priority, ServiceAccount (only the name), LimitRanger (only defaults),
DefaultStorageClass, StorageObjectInUseProtection and RuntimeClass, and the checks of namespaces in the registry of
resource claims. Checks of the object alone are in its `Resource`.
"""

from __future__ import annotations

from ..builtin import causes as causes_of
from ..builtin import coordination, dra_claims, runtime, storage
from ..builtin.pods import keep_priority
from ..errors import ApiError, Cause, forbidden, invalid, not_found
from ..registry import CLASSES, DEFINITIONS, RUNTIME_CLASSES, Registry, Served
from ..resource import Object
from . import limits

PODS = ("", "pods")
CLAIMS = ("", "persistentvolumeclaims")
#: The path of the device requests in each kind that has them.
_ASKS_FOR_DEVICES = {
    ("resource.k8s.io", "resourceclaims"): ("spec",),
    ("resource.k8s.io", "resourceclaimtemplates"): ("spec", "spec"),
}
#: Label of namespaces whose claims may request admin access to devices (KEP-5018), with the value `true`.
ADMIN_ACCESS = "resource.kubernetes.io/admin-access"
#: The protected kinds, with the finalizer that protects an object while it is in use.
_PROTECTED = {CLAIMS: storage.CLAIM_PROTECTION, ("", "persistentvolumes"): storage.VOLUME_PROTECTION}
STORAGE_CLASSES = ("storage.k8s.io", "storageclasses")


def admit_create(registry: Registry, served: Served, obj: Object, namespace: str) -> None:
    """Admit a create; complete a pod from its classes, and a claim from the default storage class.

    `namespace` is the request's; empty for a cluster-scoped object. Raises 404 for a missing namespace; 403
    for a terminating namespace, or a class that is missing or contradicts the pod; 422 for admin access in a
    namespace without its label.
    """
    metadata = obj["metadata"]
    if namespace:
        if registry.namespace(namespace) is None:
            raise not_found("namespaces", "", namespace)
        if namespace in registry.terminating:
            _refuse_terminating(served, namespace, metadata.get("name", ""))
    if served.resource.custom:
        group, plural = served.name
        definition = registry.stored(DEFINITIONS).table.records.get(f"{plural}.{group}")
        if definition is not None and definition.deleting:
            raise ApiError(
                405,
                "MethodNotAllowed",
                "create not allowed while custom resource definition is terminating",
                {"name": metadata.get("name", ""), "group": group, "kind": plural},
            )
    if served.name == PODS:
        coordination.admit_priority(obj, registry.classes.get, lambda: registry.default_class)
        spec = obj["spec"]
        if registry.defaults_accounts and not spec.get("serviceAccountName"):
            spec["serviceAccountName"] = spec["serviceAccount"] = "default"
        if namespace in registry.limits:
            limits.default(registry, obj, namespace)
        if "runtimeClassName" in spec or "overhead" in spec:
            runtime.admit(obj, lambda name: registry.object(RUNTIME_CLASSES, name))
    elif served.name == CLAIMS and storage.wants_default_class(obj):
        classes = registry.stored(STORAGE_CLASSES)
        storage.use_default_class(obj, (classes.stored.decode(record.data) for record in classes.table.scan("")))
    if served.name in _PROTECTED:
        storage.protect(_PROTECTED[served.name], obj)
    elif served.name in _ASKS_FOR_DEVICES:
        _admit_admin_access(registry, served, obj)


def admit_update(served: Served, obj: Object, old: Object, subresource: str) -> None:
    """Complete an update before webhooks see it: an omitted priority keeps its value."""
    if served.name == PODS and not subresource:
        keep_priority(obj, old)


def _admit_admin_access(registry: Registry, served: Served, obj: Object) -> None:
    at = _ASKS_FOR_DEVICES[served.name]
    spec = obj
    for field in at:
        spec = spec.get(field) or {}
    asked = dra_claims.admin_access(spec, ".".join(at))
    if not asked:
        return
    namespace = registry.namespace(obj["metadata"].get("namespace", ""))
    if namespace is not None and namespace.labels.get(ADMIN_ACCESS) == "true":
        return
    why = f"admin access to devices requires the `{ADMIN_ACCESS}: true` label on the containing namespace"
    causes = [causes_of.forbidden(path, why) for path in asked]
    raise invalid(served.resource.kind, served.name[0], obj["metadata"].get("name", ""), causes)


def admit_stored(registry: Registry, served: Served, obj: Object) -> None:
    """Admit an object after validation. Raises 403 for a second default priority class."""
    if served.name != CLASSES or not obj.get("globalDefault"):
        return
    name, default = obj["metadata"]["name"], registry.default_class
    if default is not None and default["metadata"]["name"] != name:
        found = default["metadata"]["name"]
        why = f"PriorityClass {found} is already marked as default. Only one default can exist"
        raise forbidden("priorityclasses", served.name[0], name, why)


def _refuse_terminating(served: Served, namespace: str, name: str) -> None:
    resource = served.resource
    why = f"unable to create new content in namespace {namespace} because it is being terminated"
    refused = forbidden(resource.plural, served.name[0], name, why)
    cause = Cause("NamespaceTerminating", "metadata.namespace", f"namespace {namespace} is being terminated")
    refused.details = {**(refused.details or {}), "causes": [cause.as_object()]}
    raise refused
