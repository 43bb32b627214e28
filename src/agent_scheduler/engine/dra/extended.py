"""Extended resources that devices stand for (KEP-5004): a pod that asks for one gets devices of a class, on nodes
that do not offer the resource themselves.

For such a node the pod has one claim more, which is made when it is bound. What it asks for follows from the pod's
containers alone, as the kubelet has to find it: a request for each container and resource.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from agent_scheduler.objects import wire
from agent_scheduler.objects.quantity import QuantityError, value

from ..nodeinfo import NodeInfo
from ..requests import requested
from .catalogue import Devices
from .claimspec import ClaimSpec, Option, Request
from .records import CLASS_RESOURCE

#: What the claim is called before it has a name.
CLAIM = "<extended-resources>"


class ContainerNeed(NamedTuple):
    name: str
    #: Whether it ends before the others run: an init container that is no sidecar.
    short_lived: bool
    #: Whole numbers, by resource; of all resources, for requests are named by their place among them.
    requests: tuple[tuple[str, int], ...]


class ExtendedNeeds:
    """Of a pod: its init containers, then its containers. Equal contents are the same object, which many pods share."""

    __slots__ = ("__weakref__", "containers", "resources")

    containers: tuple[ContainerNeed, ...]
    #: Those of their resources that devices may stand for.
    resources: frozenset[str]

    def __new__(cls, containers: tuple[ContainerNeed, ...]) -> ExtendedNeeds:
        found = _interned.get(containers)
        if found is None:
            found = super().__new__(cls)
            found.containers = containers
            found.resources = frozenset(
                resource
                for container in containers
                for resource, number in container.requests
                if number and is_extended(resource)
            )
            _interned[containers] = found
        return found


_interned: WeakValueDictionary[tuple[ContainerNeed, ...], ExtendedNeeds] = WeakValueDictionary()


class Mapped(NamedTuple):
    """An entry of the pod's `status.extendedResourceClaimStatus.requestMappings`."""

    container: str
    resource: str
    request: str


def is_extended(resource: str) -> bool:
    """Whether devices may stand for it (`IsDRAExtendedResourceName`)."""
    if resource.startswith(CLASS_RESOURCE):
        return True
    domain, slash, _ = resource.partition("/")
    native = domain == "kubernetes.io" or domain.endswith(".kubernetes.io")
    return bool(slash) and not native and not resource.startswith("requests.")


def needs_of(spec: wire.PodSpec) -> ExtendedNeeds | None:
    """None for a pod that asks for no resource that devices may stand for, as nearly all do."""
    inits, containers = spec.init_containers or (), spec.containers or ()
    found = ExtendedNeeds(
        tuple(
            ContainerNeed(
                container.name, index < len(inits) and container.restart_policy != "Always", _whole(container)
            )
            for index, container in enumerate((*inits, *containers))
        )
    )
    return found if found.resources else None


def _whole(container: wire.Container) -> tuple[tuple[str, int], ...]:
    # What is wrong with them, the pod's class says.
    requests = requested(container.resources, "", []) or {}
    found = []
    for resource, quantity in sorted(requests.items()):
        try:
            found.append((resource, value(quantity)))
        except QuantityError:
            # As above, and nobody places it.
            found.append((resource, 0))
    return tuple(found)


def met_by_devices(resources: Iterable[str], devices: Devices, node: NodeInfo) -> frozenset[str]:
    """Which of these the node lacks and devices stand for."""
    return frozenset(
        resource
        for resource in resources
        if is_extended(resource)
        and not node.allocatable.get(resource)
        and devices.class_of_resource(resource) is not None
    )


def claim_for(
    needs: ExtendedNeeds, devices: Devices, node: NodeInfo
) -> tuple[dict[str, Any], list[dict[str, str]]] | None:
    """The spec of the claim that is to be made for a pod on this node, and the `requestMappings` of its status. None
    where the node offers all by itself."""
    resources = met_by_devices(needs.resources, devices, node)
    if not resources:
        return None
    spec, mapped = requests_for(needs, resources, devices)
    requests = [
        {
            "name": request.name,
            "exactly": {
                "deviceClassName": request.options[0].class_name,
                "allocationMode": "ExactCount",
                "count": request.options[0].number,
            },
        }
        for request in spec.requests
    ]
    mappings = [
        {"containerName": each.container, "resourceName": each.resource, "requestName": each.request}
        for each in mapped
    ]
    return {"devices": {"requests": requests}}, mappings


def requests_for(
    needs: ExtendedNeeds, resources: Collection[str], devices: Devices
) -> tuple[ClaimSpec, tuple[Mapped, ...]]:
    """What the claim for these resources asks for, and which container is to have what of it."""
    options: dict[str, Option] = {}
    mapped: list[Mapped] = []
    for resource in sorted(resources):
        found = devices.class_of_resource(resource)
        if found is not None:
            _add(needs, resource, found.name, options, mapped)
    requests = tuple(Request(name, (options[name],), False) for name in sorted(options))
    return ClaimSpec(requests), tuple(mapped)


def _add(
    needs: ExtendedNeeds,
    resource: str,
    class_name: str,
    options: dict[str, Option],
    mapped: list[Mapped],
) -> None:
    lasting: dict[int, Option] = {}
    brief: dict[int, Option] = {}
    briefly_mapped: list[Mapped] = []
    for index, container in enumerate(needs.containers):
        number = dict(container.requests).get(resource, 0)
        if number and not container.short_lived:
            lasting[index] = _option(index, container, resource, class_name, number)
            mapped.append(Mapped(container.name, resource, lasting[index].name))
    for index, container in enumerate(needs.containers):
        number = dict(container.requests).get(resource, 0)
        if not number or not container.short_lived:
            continue
        # What containers get that start later is there already.
        for later, option in lasting.items():
            if later >= index and number > 0:
                briefly_mapped.append(Mapped(container.name, resource, option.name))
                number -= option.number
        if number > 0:
            brief[index] = _option(index, container, resource, class_name, number)
            briefly_mapped.append(Mapped(container.name, resource, brief[index].name))
    if brief:
        # One after another, they can have the same devices.
        most = max(brief.values(), key=lambda option: option.number)
        options[most.name] = most
        names: Mapping[str, str] = {option.name: most.name for option in brief.values()}
        briefly_mapped = [
            each._replace(request=names.get(each.request, each.request)) for each in briefly_mapped
        ]
    for option in lasting.values():
        options[option.name] = option
    mapped += briefly_mapped


def _option(index: int, container: ContainerNeed, resource: str, class_name: str, number: int) -> Option:
    place = sorted(name for name, _ in container.requests).index(resource)
    name = f"container-{index}-request-{place}"
    return Option(
        name=name,
        result_name=name,
        class_name=class_name,
        selectors=(),
        takes_all=False,
        number=number,
        admin=False,
        tolerations=(),
        written_tolerations=(),
        capacity=(),
    )
