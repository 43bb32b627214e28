"""The EndpointSlice controller (pkg/controller/endpointslice): the addresses of a Service's pods, in slices.

Tools read them to wait for a Service; no traffic is routed here. As in a real cluster, a slice has at most 100
endpoints and belongs to its Service. Slices are filled in the order of the pods' names; the real controller moves
endpoints less often. Cost: nothing before the first Service with a selector, and then one lookup per event of a pod.
"""

from __future__ import annotations

from typing import Any

from .controllers import Controller, reference_to
from .deletion import delete_record
from .handlers import Api
from .registry import Served
from .resource import Object, is_true
from .store import Event, Record
from .subresources import NODES, PODS

SERVICES = ("", "services")
SLICES = ("discovery.k8s.io", "endpointslices")
_NAME, _MANAGER = "kubernetes.io/service-name", "endpointslice.kubernetes.io/managed-by"
_OWN = "endpointslice-controller.k8s.io"
_ZONE = "topology.kubernetes.io/zone"
_MOST = 100
#: The least time between two looks at the pods of a Service, in seconds.
_PAUSE = 0.25
_FINAL = ("Succeeded", "Failed")


class EndpointSlices(Controller):
    """Keeps the slices of one server's Services."""

    def __init__(self, api: Api) -> None:
        self._api, registry = api, api.registry
        self._services, self._slices = registry.stored(SERVICES), registry.stored(SLICES)
        self._pods, self._nodes = registry.stored(PODS), registry.stored(NODES)
        #: The selectors of Services by namespace and key.
        self._selectors: dict[str, dict[str, dict[str, str]]] = {}
        #: Changed Services with the time from which they may be processed, and those of their last processing.
        self._changed: dict[str, float] = {}
        self._last: dict[str, float] = {}
        #: Whether it is subscribed to pods, which it is from the first Service with a selector on.
        self._follows = False
        for record in self._services.table.scan(""):
            self._service_changed(Event(record.rv, "ADDED", record, None))
        self._services.table.subscribers.append(self._service_changed)

    def _service_changed(self, event: Event) -> None:
        record = event.record
        held = self._selectors.setdefault(record.namespace, {})
        held.pop(record.key, None)
        if event.type != "DELETED":
            spec = self._services.stored.decode(record.data)["spec"]
            if spec.get("selector") and spec.get("type") != "ExternalName":
                held[record.key] = spec["selector"]
                if not self._follows:
                    self._follows = True
                    self._pods.table.subscribers.append(self._pod_changed)
                    self._slices.table.subscribers.append(self._slice_changed)
                self._note(record.key)
        if event.type == "DELETED":
            self._last.pop(record.key, None)
        if not held:
            del self._selectors[record.namespace]

    def _pod_changed(self, event: Event) -> None:
        services = self._selectors.get(event.record.namespace)
        if services is None:
            return
        versions = [each.labels for each in (event.record, event.previous) if each is not None]
        for key, selector in services.items():
            if any(selector.items() <= labels.items() for labels in versions):
                self._note(key)

    def _slice_changed(self, event: Event) -> None:
        service = event.record.labels.get(_NAME)
        key = f"{event.record.namespace}/{service}"
        if event.record.labels.get(_MANAGER) == _OWN and key in self._selectors.get(event.record.namespace, {}):
            self._note(key)

    def advance(self, *, most: int = 64) -> float | None:
        """See `Controller`."""
        now = self._api.store.clock()
        for key in [key for key, at in self._changed.items() if at <= now][:most]:
            del self._changed[key]
            self._last[key] = now
            self._see(key)
        return min(self._changed.values(), default=None)

    def _note(self, key: str) -> None:
        self._changed.setdefault(key, self._last.get(key, 0.0) + _PAUSE)
        self.wake()

    def _see(self, key: str) -> None:
        record = self._services.table.records.get(key)
        selector = self._selectors.get(key.partition("/")[0], {}).get(key)
        if record is None or selector is None or record.deleting:
            return
        service = self._services.stored.decode(record.data)
        by_ports: dict[tuple[tuple[Any, ...], ...], list[Object]] = {}
        for each in self._pods.table.scan(record.namespace):
            if selector.items() <= each.labels.items():
                pod = self._pods.stored.decode(each.data)
                if endpoint := self._endpoint(service, each, pod):
                    by_ports.setdefault(_ports(service["spec"], pod["spec"]), []).append(endpoint)
        wanted = [
            (ports, part)
            for ports, endpoints in (by_ports or {_ports(service["spec"], {}): []}).items()
            for part in ([endpoints[at : at + _MOST] for at in range(0, len(endpoints), _MOST)] or [[]])
        ]
        self._write(record, service, wanted)

    def _endpoint(self, service: Object, record: Record, pod: Object) -> Object | None:
        status, spec = pod.get("status") or {}, pod["spec"]
        if status.get("phase") in _FINAL or not status.get("podIP"):
            return None
        serving = is_true(status, "Ready")
        unready = bool(service["spec"].get("publishNotReadyAddresses"))
        endpoint: Object = {
            "addresses": [status["podIP"]],
            "conditions": {
                "ready": unready or (serving and not record.deleting),
                "serving": serving,
                "terminating": record.deleting,
            },
            "targetRef": {"kind": "Pod", "namespace": record.namespace, "name": record.name, "uid": record.uid},
        }
        if spec.get("hostname") and spec.get("subdomain") == service["metadata"]["name"]:
            endpoint["hostname"] = spec["hostname"]
        if node := spec.get("nodeName"):
            endpoint["nodeName"] = node
            found = self._nodes.table.records.get(node)
            if found is not None and _ZONE in found.labels:
                endpoint["zone"] = found.labels[_ZONE]
        return endpoint

    def _write(
        self, record: Record, service: Object, wanted: list[tuple[tuple[tuple[Any, ...], ...], list[Object]]]
    ) -> None:
        served = self._slices
        held = [served.table.records[key] for name, key in self._owned(record) if name == SLICES]
        own = sorted((each for each in held if each.labels.get(_MANAGER) == _OWN), key=lambda each: each.rv)
        own = sorted(own, key=lambda each: served.stored.decode(each.data)["metadata"]["creationTimestamp"])
        families = service["spec"].get("ipFamilies") or ["IPv4"]
        labels = {**(service["metadata"].get("labels") or {}), _NAME: record.name, _MANAGER: _OWN}
        if service["spec"].get("clusterIP") == "None":
            labels["service.kubernetes.io/headless"] = ""
        for index, (ports, endpoints) in enumerate(wanted):
            content: Object = {
                "endpoints": endpoints,
                "ports": [{"name": name, "port": port, "protocol": protocol} for name, port, protocol in ports],
            }
            if index < len(own):
                _replace(self._api, served, own[index], content, labels)
                continue
            metadata = {
                "generateName": f"{record.name}-",
                "namespace": record.namespace,
                "labels": labels,
                "ownerReferences": [reference_to(record, "v1", "Service")],
            }
            self._api.create(SLICES, {"metadata": metadata, "addressType": families[0], **content})
        for surplus in own[len(wanted) :]:
            delete_record(self._api.registry, served, surplus, {})

    def _owned(self, record: Record) -> list[tuple[tuple[str, str], str]]:
        return sorted(self._api.store.dependents.get(record.uid, ()))


def _replace(api: Api, served: Served, record: Record, content: Object, labels: dict[str, str]) -> None:
    obj = served.stored.decode(record.data)
    metadata = obj["metadata"]
    if all(obj.get(field) == value for field, value in content.items()) and metadata.get("labels") == labels:
        return
    generation = metadata.get("generation", 1) + 1
    new = {**obj, **content, "metadata": {**metadata, "labels": labels, "generation": generation}}
    api.store.replace(SLICES, record, new)


def _ports(service: Object, pod: Object) -> tuple[tuple[Any, ...], ...]:
    """Return name, number and protocol of each port in a pod. A port whose name no container has is omitted."""
    found = []
    for port in service.get("ports") or ():
        protocol, target = port.get("protocol", "TCP"), port.get("targetPort") or port["port"]
        if isinstance(target, str):
            target = next(
                (
                    each["containerPort"]
                    for container in pod.get("containers") or ()
                    for each in container.get("ports") or ()
                    if each.get("name") == target and each.get("protocol", "TCP") == protocol
                ),
                None,
            )
        if target is not None:
            found.append((port.get("name", ""), target, protocol))
    return tuple(found)
