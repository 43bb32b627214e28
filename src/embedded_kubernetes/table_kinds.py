"""Rows of all built-in kinds but pods, as kube-apiserver's internal printers have them.

Workloads and RBAC are in `table_workloads`, networking in `table_network`. Each function gives the cells after
the name.
"""

from __future__ import annotations

from typing import Any

from .printing import (
    AGE,
    CREATED_AT,
    NONE,
    UNKNOWN,
    Column,
    Printer,
    age,
    created,
    joined,
    labels,
    printer,
)
from .resource import Object
from .table_network import NETWORK
from .table_pods import PODS
from .table_workloads import WORKLOADS

_ROLE_PREFIX = "node-role.kubernetes.io/"


def _node(node: Object, now: str) -> list[Any]:
    status = node.get("status") or {}
    ready = [one for one in status.get("conditions") or () if one.get("type") == "Ready"]
    words = ["Ready" if one.get("status") == "True" else "NotReady" for one in ready] or ["Unknown"]
    if (node.get("spec") or {}).get("unschedulable"):
        words.append("SchedulingDisabled")
    roles = {
        key.removeprefix(_ROLE_PREFIX)
        for key in node["metadata"].get("labels") or {}
        if key.startswith(_ROLE_PREFIX) and key != _ROLE_PREFIX
    }
    named = (node["metadata"].get("labels") or {}).get("kubernetes.io/role")
    if named:
        roles.add(named)
    info = status.get("nodeInfo") or {}
    return [
        ",".join(words),
        joined(sorted(roles)),
        created(node, now),
        info.get("kubeletVersion") or "",
        _address(status, "InternalIP"),
        _address(status, "ExternalIP"),
        info.get("osImage") or UNKNOWN,
        info.get("kernelVersion") or UNKNOWN,
        info.get("containerRuntimeVersion") or UNKNOWN,
    ]


def _address(status: Object, kind: str) -> str:
    for address in status.get("addresses") or ():
        if address.get("type") == kind:
            return address.get("address") or NONE
    return NONE


def _namespace(namespace: Object, now: str) -> list[Any]:
    return [(namespace.get("status") or {}).get("phase", ""), created(namespace, now)]


def _event(event: Object, now: str) -> tuple[list[Any], list[Object]]:
    # The two APIs name the same fields differently.
    about = event.get("involvedObject") or event.get("regarding") or {}
    source = event.get("source") or event.get("deprecatedSource") or {}
    first = event.get("firstTimestamp") or event.get("deprecatedFirstTimestamp") or event.get("eventTime")
    last = event.get("lastTimestamp") or event.get("deprecatedLastTimestamp") or first
    count = event.get("count") or event.get("deprecatedCount") or 1
    if event.get("series"):
        last, count = event["series"].get("lastObservedTime"), event["series"].get("count", 0)
    kind = str(about.get("kind", "")).lower()
    component = source.get("component") or event.get("reportingComponent") or event.get("reportingController")
    host = source.get("host") or event.get("reportingInstance")
    cells = [
        age(last, now),
        event.get("type", ""),
        event.get("reason", ""),
        f"{kind}/{about['name']}" if about.get("name") else kind,
        about.get("fieldPath", ""),
        f"{component or ''}, {host}" if host else component or "",
        str(event.get("message") or event.get("note") or "").strip(),
        age(first, now),
        count,
        event["metadata"]["name"],
    ]
    return cells, []


_EVENT = Printer(
    (
        Column("Last Seen", "string", "@core.v1.Event.lastTimestamp"),
        Column("Type", "string", "@core.v1.Event.type"),
        Column("Reason", "string", "@core.v1.Event.reason"),
        Column("Object", "string", "@core.v1.Event.involvedObject"),
        Column("Subobject", "string", "@core.v1.ObjectReference.fieldPath", 1),
        Column("Source", "string", "@core.v1.Event.source", 1),
        Column("Message", "string", "@core.v1.Event.message"),
        Column("First Seen", "string", "@core.v1.Event.firstTimestamp", 1),
        Column("Count", "string", "@core.v1.Event.count", 1),
        Column("Name", "string", "@meta.v1.ObjectMeta.name", 1),
    ),
    _event,
)


def _lease(lease: Object, now: str) -> list[Any]:
    return [(lease.get("spec") or {}).get("holderIdentity") or "", created(lease, now)]


def _priority_class(obj: Object, now: str) -> list[Any]:
    return [
        obj.get("value", 0),
        bool(obj.get("globalDefault")),
        created(obj, now),
        obj.get("preemptionPolicy") or "",
    ]


def _budget(budget: Object, now: str) -> list[Any]:
    spec = budget.get("spec") or {}
    return [
        str(spec.get("minAvailable", "N/A")),
        str(spec.get("maxUnavailable", "N/A")),
        (budget.get("status") or {}).get("disruptionsAllowed", 0),
        created(budget, now),
    ]


def _config_map(obj: Object, now: str) -> list[Any]:
    return [len(obj.get("data") or ()) + len(obj.get("binaryData") or ()), created(obj, now)]


def _secret(secret: Object, now: str) -> list[Any]:
    return [secret.get("type", ""), len(secret.get("data") or ()), created(secret, now)]


def _service_account(account: Object, now: str) -> list[Any]:
    return [len(account.get("secrets") or ()), created(account, now)]


def _service(service: Object, now: str) -> list[Any]:
    spec = service.get("spec") or {}
    ports = [
        f"{port.get('port')}"
        + (f":{port['nodePort']}" if port.get("nodePort") else "")
        + f"/{port.get('protocol')}"
        for port in spec.get("ports") or ()
    ]
    external = list(spec.get("externalIPs") or ())
    if spec.get("type") == "LoadBalancer":
        ingress = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
        external = [one.get("ip") or one.get("hostname") or "" for one in ingress] + external or ["<pending>"]
    elif spec.get("type") == "ExternalName":
        external = [spec.get("externalName") or ""]
    return [
        spec.get("type", ""),
        spec.get("clusterIP") or NONE,
        joined(external),
        joined(ports),
        created(service, now),
        labels(spec.get("selector")),
    ]


def _endpoints(obj: Object, now: str) -> list[Any]:
    shown = [
        f"{address.get('ip')}:{port.get('port')}"
        for subset in obj.get("subsets") or ()
        for port in subset.get("ports") or ()
        for address in subset.get("addresses") or ()
    ]
    more = f" + {len(shown) - 3} more..." if len(shown) > 3 else ""
    return [joined(shown[:3]) + more, created(obj, now)]


_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def _modes(modes: list[str] | None) -> str:
    return ",".join(short for mode, short in _MODES.items() if mode in (modes or ()))


def _volume(volume: Object, now: str) -> list[Any]:
    spec, status = volume.get("spec") or {}, volume.get("status") or {}
    claim = spec.get("claimRef")
    deleting = "deletionTimestamp" in volume["metadata"]
    return [
        (spec.get("capacity") or {}).get("storage", "0"),
        _modes(spec.get("accessModes")),
        spec.get("persistentVolumeReclaimPolicy", ""),
        "Terminating" if deleting else status.get("phase", ""),
        f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else "",
        spec.get("storageClassName", ""),
        spec.get("volumeAttributesClassName") or "<unset>",
        status.get("reason", ""),
        created(volume, now),
        spec.get("volumeMode") or "<unset>",
    ]


def _claim(claim: Object, now: str) -> list[Any]:
    spec, status = claim.get("spec") or {}, claim.get("status") or {}
    bound = bool(spec.get("volumeName"))
    deleting = "deletionTimestamp" in claim["metadata"]
    return [
        "Terminating" if deleting else status.get("phase", ""),
        spec.get("volumeName", ""),
        (status.get("capacity") or {}).get("storage", "0") if bound else "",
        _modes(status.get("accessModes")) if bound else "",
        spec.get("storageClassName", ""),
        spec.get("volumeAttributesClassName") or "<unset>",
        created(claim, now),
        spec.get("volumeMode") or "<unset>",
    ]


def _storage_class(obj: Object, now: str) -> tuple[list[Any], list[Object]]:
    name = obj["metadata"]["name"]
    annotations = obj["metadata"].get("annotations") or {}
    if annotations.get("storageclass.kubernetes.io/is-default-class") == "true":
        name += " (default)"
    cells = [
        name,
        obj.get("provisioner", ""),
        obj.get("reclaimPolicy") or "Delete",
        obj.get("volumeBindingMode") or "Immediate",
        bool(obj.get("allowVolumeExpansion")),
        created(obj, now),
    ]
    return cells, []


def _csi_node(node: Object, now: str) -> list[Any]:
    return [len((node.get("spec") or {}).get("drivers") or ()), created(node, now)]


def _csi_driver(driver: Object, now: str) -> list[Any]:
    spec = driver.get("spec") or {}
    return [
        spec.get("attachRequired", True),
        bool(spec.get("podInfoOnMount")),
        bool(spec.get("storageCapacity")),
        joined([one.get("audience", "") for one in spec.get("tokenRequests") or ()], "<unset>"),
        bool(spec.get("requiresRepublish")),
        joined(spec.get("volumeLifecycleModes") or ()),
        created(driver, now),
    ]


def _capacity(obj: Object, now: str) -> list[Any]:
    return [obj.get("storageClassName", ""), obj.get("capacity") or "<unset>"]


def _attachment(obj: Object, now: str) -> list[Any]:
    spec = obj.get("spec") or {}
    return [
        spec.get("attacher", ""),
        (spec.get("source") or {}).get("persistentVolumeName") or "",
        spec.get("nodeName", ""),
        bool((obj.get("status") or {}).get("attached")),
        created(obj, now),
    ]


def _attributes_class(obj: Object, now: str) -> list[Any]:
    return [obj.get("driverName", ""), created(obj, now)]


def _only_age(obj: Object, now: str) -> list[Any]:
    return [created(obj, now)]


def _resource_claim(claim: Object, now: str) -> list[Any]:
    status = claim.get("status") or {}
    words = ["deleted"] if "deletionTimestamp" in claim["metadata"] else []
    if status.get("allocation"):
        words.append("allocated")
        if status.get("reservedFor"):
            words.append("reserved")
    elif not words:
        words.append("pending")
    return [",".join(words), created(claim, now)]


def _slice(obj: Object, now: str) -> list[Any]:
    spec = obj.get("spec") or {}
    return [
        spec.get("nodeName") or "",
        spec.get("driver", ""),
        (spec.get("pool") or {}).get("name", ""),
        created(obj, now),
    ]


def _created_at(obj: Object, now: str) -> list[Any]:
    return [obj["metadata"].get("creationTimestamp", "")]


def _quota(quota: Object, now: str) -> list[Any]:
    status = quota.get("status") or {}
    hard, used = status.get("hard") or {}, status.get("used") or {}
    shown = [(name, f"{name}: {used.get(name, '0')}/{hard[name]}") for name in sorted(hard)]
    return [
        ", ".join(text for name, text in shown if not name.startswith("limits.")),
        ", ".join(text for name, text in shown if name.startswith("limits.")),
        created(quota, now),
    ]


def _text(name: str, field: str, priority: int = 0) -> Column:
    return Column(name, "string", field, priority)


PRINTERS: dict[tuple[str, str], Printer] = {
    ("", "Pod"): PODS,
    ("", "Node"): printer(
        (
            _text("Status", "The status of the node"),
            _text("Roles", "The roles of the node"),
            AGE,
            _text("Version", "@core.v1.NodeSystemInfo.kubeletVersion"),
            _text("Internal-IP", "@core.v1.NodeStatus.addresses", 1),
            _text("External-IP", "@core.v1.NodeStatus.addresses", 1),
            _text("OS-Image", "@core.v1.NodeSystemInfo.osImage", 1),
            _text("Kernel-Version", "@core.v1.NodeSystemInfo.kernelVersion", 1),
            _text("Container-Runtime", "@core.v1.NodeSystemInfo.containerRuntimeVersion", 1),
        ),
        _node,
    ),
    ("", "Namespace"): printer((_text("Status", "The status of the namespace"), AGE), _namespace),
    ("", "Event"): _EVENT,
    ("events.k8s.io", "Event"): _EVENT,
    ("", "ConfigMap"): printer((_text("Data", "@core.v1.ConfigMap.data"), AGE), _config_map),
    ("", "Secret"): printer(
        (_text("Type", "@core.v1.Secret.type"), _text("Data", "@core.v1.Secret.data"), AGE), _secret
    ),
    ("", "ServiceAccount"): printer(
        (_text("Secrets", "@core.v1.ServiceAccount.secrets"), AGE), _service_account
    ),
    ("", "Service"): printer(
        (
            _text("Type", "@core.v1.ServiceSpec.type"),
            _text("Cluster-IP", "@core.v1.ServiceSpec.clusterIP"),
            _text("External-IP", "@core.v1.ServiceSpec.externalIPs"),
            _text("Port(s)", "@core.v1.ServiceSpec.ports"),
            AGE,
            _text("Selector", "@core.v1.ServiceSpec.selector", 1),
        ),
        _service,
    ),
    ("", "Endpoints"): printer((_text("Endpoints", "@core.v1.Endpoints.subsets"), AGE), _endpoints),
    ("", "LimitRange"): printer((CREATED_AT,), _created_at),
    ("", "ResourceQuota"): printer(
        (
            _text(
                "Request",
                "Request represents a minimum amount of cpu/memory that a container may consume.",
            ),
            _text(
                "Limit",
                "Limits control the maximum amount of cpu/memory that a container may use independent of "
                "contention on the node.",
            ),
            AGE,
        ),
        _quota,
    ),
    ("", "PersistentVolume"): printer(
        (
            _text("Capacity", "@core.v1.PersistentVolumeSpec.capacity"),
            _text("Access Modes", "@core.v1.PersistentVolumeSpec.accessModes"),
            _text("Reclaim Policy", "@core.v1.PersistentVolumeSpec.persistentVolumeReclaimPolicy"),
            _text("Status", "@core.v1.PersistentVolumeStatus.phase"),
            _text("Claim", "@core.v1.PersistentVolumeSpec.claimRef"),
            _text("StorageClass", "StorageClass of the pv"),
            _text("VolumeAttributesClass", "VolumeAttributeClass of the pv"),
            _text("Reason", "@core.v1.PersistentVolumeStatus.reason"),
            AGE,
            _text("VolumeMode", "@core.v1.PersistentVolumeSpec.volumeMode", 1),
        ),
        _volume,
    ),
    ("", "PersistentVolumeClaim"): printer(
        (
            _text("Status", "@core.v1.PersistentVolumeClaimStatus.phase"),
            _text("Volume", "@core.v1.PersistentVolumeClaimSpec.volumeName"),
            _text("Capacity", "@core.v1.PersistentVolumeClaimStatus.capacity"),
            _text("Access Modes", "@core.v1.PersistentVolumeClaimStatus.accessModes"),
            _text("StorageClass", "StorageClass of the pvc"),
            _text("VolumeAttributesClass", "VolumeAttributesClass of the pvc"),
            AGE,
            _text("VolumeMode", "@core.v1.PersistentVolumeClaimSpec.volumeMode", 1),
        ),
        _claim,
    ),
    ("coordination.k8s.io", "Lease"): printer(
        (_text("Holder", "@coordination.v1.LeaseSpec.holderIdentity"), AGE), _lease
    ),
    ("scheduling.k8s.io", "PriorityClass"): printer(
        (
            Column("Value", "integer", "@scheduling.v1.PriorityClass.value"),
            Column("Global-Default", "boolean", "@scheduling.v1.PriorityClass.globalDefault"),
            AGE,
            _text("PreemptionPolicy", "@scheduling.v1.PriorityClass.preemptionPolicy"),
        ),
        _priority_class,
    ),
    ("policy", "PodDisruptionBudget"): printer(
        (
            _text("Min Available", "@policy.v1.PodDisruptionBudgetSpec.minAvailable"),
            _text("Max Unavailable", "@policy.v1.PodDisruptionBudgetSpec.maxUnavailable"),
            Column(
                "Allowed Disruptions",
                "integer",
                "Calculated number of pods that may be disrupted at this time.",
            ),
            AGE,
        ),
        _budget,
    ),
    ("storage.k8s.io", "StorageClass"): Printer(
        (
            Column("Name", "string", "@meta.v1.ObjectMeta.name", format="name"),
            _text("Provisioner", "@storage.v1.StorageClass.provisioner"),
            _text("ReclaimPolicy", "@storage.v1.StorageClass.reclaimPolicy"),
            _text("VolumeBindingMode", "@storage.v1.StorageClass.volumeBindingMode"),
            _text("AllowVolumeExpansion", "@storage.v1.StorageClass.allowVolumeExpansion"),
            AGE,
        ),
        _storage_class,
    ),
    ("storage.k8s.io", "CSINode"): printer(
        (Column("Drivers", "integer", "@storage.v1.CSINodeSpec.drivers"), AGE), _csi_node
    ),
    ("storage.k8s.io", "CSIDriver"): printer(
        (
            Column("AttachRequired", "boolean", "@storage.v1.CSIDriverSpec.attachRequired"),
            Column("PodInfoOnMount", "boolean", "@storage.v1.CSIDriverSpec.podInfoOnMount"),
            Column("StorageCapacity", "boolean", "@storage.v1.CSIDriverSpec.storageCapacity"),
            _text("TokenRequests", "@storage.v1.CSIDriverSpec.tokenRequests"),
            Column("RequiresRepublish", "boolean", "@storage.v1.CSIDriverSpec.requiresRepublish"),
            _text("Modes", "@storage.v1.CSIDriverSpec.volumeLifecycleModes"),
            AGE,
        ),
        _csi_driver,
    ),
    ("storage.k8s.io", "CSIStorageCapacity"): printer(
        (
            _text("StorageClassName", "@storage.v1.CSIStorageCapacity.storageClassName"),
            _text("Capacity", "@storage.v1.CSIStorageCapacity.capacity"),
        ),
        _capacity,
    ),
    ("storage.k8s.io", "VolumeAttachment"): printer(
        (
            _text("Attacher", "@storage.v1.VolumeAttachmentSpec.attacher"),
            _text("PV", "@storage.v1.VolumeAttachmentSource.persistentVolumeName"),
            _text("Node", "@storage.v1.VolumeAttachmentSpec.nodeName"),
            Column("Attached", "boolean", "@storage.v1.VolumeAttachmentStatus.attached"),
            AGE,
        ),
        _attachment,
    ),
    ("storage.k8s.io", "VolumeAttributesClass"): printer(
        (_text("DriverName", "@storage.v1.VolumeAttributesClass.driverName"), AGE), _attributes_class
    ),
    ("resource.k8s.io", "DeviceClass"): printer((AGE,), _only_age),
    ("resource.k8s.io", "ResourceClaim"): printer(
        (_text("State", "A summary of the current state (allocated, pending, reserved, etc.)."), AGE),
        _resource_claim,
    ),
    ("resource.k8s.io", "ResourceClaimTemplate"): printer((AGE,), _only_age),
    ("resource.k8s.io", "ResourceSlice"): printer(
        (
            _text("Node", "@resource.v1.ResourceSliceSpec.nodeName"),
            _text("Driver", "@resource.v1.ResourceSliceSpec.driver"),
            _text("Pool", "@resource.v1.ResourcePool.name"),
            AGE,
        ),
        _slice,
    ),
    **NETWORK,
    **WORKLOADS,
}
