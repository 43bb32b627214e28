"""Extended resources that devices provide (KEP-5004).

A pod that requests one gets devices of a class, on nodes that do not offer the resource themselves. For such a node the
pod has one more claim, which is created when it is bound. Its requests follow from the pod's containers alone, because
the kubelet has to find them: a request for each container and resource.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from ..state.claimspec import ClaimSpec, DeviceRequestInfo, Option
from ..state.extended import ContainerNeed, ExtendedNeeds, is_extended
from ..state.nodeinfo import NodeInfo
from .catalogue import Devices

#: The name of the claim before it is created.
CLAIM = "<extended-resources>"


class RequestMapping(NamedTuple):
    """An entry of the pod's `status.extendedResourceClaimStatus.requestMappings`."""

    container: str
    resource: str
    request: str


def met_by_devices(resources: Iterable[str], devices: Devices, node: NodeInfo) -> frozenset[str]:
    """Return the resources that the node lacks and devices provide."""
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
    """Return the spec of the claim to create for a pod on this node, and the `requestMappings` of its status.

    None if the node offers all resources itself.
    """
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
        {"containerName": each.container, "resourceName": each.resource, "requestName": each.request} for each in mapped
    ]
    return {"devices": {"requests": requests}}, mappings


def requests_for(
    needs: ExtendedNeeds, resources: Collection[str], devices: Devices
) -> tuple[ClaimSpec, tuple[RequestMapping, ...]]:
    """Return the requests of the claim for these resources, and the devices of each container."""
    options: dict[str, Option] = {}
    mapped: list[RequestMapping] = []
    for resource in sorted(resources):
        found = devices.class_of_resource(resource)
        if found is not None:
            _add(needs, resource, found.name, options, mapped)
    requests = tuple(DeviceRequestInfo(name, (options[name],), False) for name in sorted(options))
    return ClaimSpec(requests), tuple(mapped)


def _add(
    needs: ExtendedNeeds, resource: str, class_name: str, options: dict[str, Option], mapped: list[RequestMapping]
) -> None:
    lasting: dict[int, Option] = {}
    brief: dict[int, Option] = {}
    briefly_mapped: list[RequestMapping] = []
    for index, container in enumerate(needs.containers):
        number = dict(container.requests).get(resource, 0)
        if number and not container.short_lived:
            lasting[index] = _option(index, container, resource, class_name, number)
            mapped.append(RequestMapping(container.name, resource, lasting[index].name))
    for index, container in enumerate(needs.containers):
        number = dict(container.requests).get(resource, 0)
        if not number or not container.short_lived:
            continue
        # The devices of containers that start later are already available.
        for later, option in lasting.items():
            if later >= index and number > 0:
                briefly_mapped.append(RequestMapping(container.name, resource, option.name))
                number -= option.number
        if number > 0:
            brief[index] = _option(index, container, resource, class_name, number)
            briefly_mapped.append(RequestMapping(container.name, resource, brief[index].name))
    if brief:
        # They run one after another, so they can use the same devices.
        most = max(brief.values(), key=lambda option: option.number)
        options[most.name] = most
        names: Mapping[str, str] = {option.name: most.name for option in brief.values()}
        briefly_mapped = [each._replace(request=names.get(each.request, each.request)) for each in briefly_mapped]
    for option in lasting.values():
        options[option.name] = option
    mapped += briefly_mapped


def _option(index: int, container: ContainerNeed, resource: str, class_name: str, number: int) -> Option:
    place = sorted(name for name, _ in container.requests).index(resource)
    name = f"container-{index}-request-{place}"
    return Option(name=name, result_name=name, class_name=class_name, selectors=(), number=number)
