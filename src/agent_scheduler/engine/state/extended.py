"""Reads the extended resources of a pod that DRA devices may provide (KEP-5004), by container."""

from __future__ import annotations

from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from agent_scheduler.objects import wire
from apimachinery.quantity import QuantityError, value

from .requests import requested

#: A resource of this name is the devices of the class that it ends with.
CLASS_RESOURCE: Final = "deviceclass.resource.kubernetes.io/"


class ContainerNeed(NamedTuple):
    name: str
    #: Whether the container ends before others run: an init container that is not a sidecar.
    short_lived: bool
    #: (resource, whole number) for all resources, since requests are named by their index among them.
    requests: tuple[tuple[str, int], ...]


class ExtendedNeeds:
    """The needs of a pod: its init containers, then its containers. Pods with equal needs share one object."""

    __slots__ = ("__weakref__", "containers", "resources")

    containers: tuple[ContainerNeed, ...]
    #: The requested resources that devices may provide.
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


def is_extended(resource: str) -> bool:
    """Return whether devices may provide the resource (`IsDRAExtendedResourceName`)."""
    if resource.startswith(CLASS_RESOURCE):
        return True
    domain, slash, _ = resource.partition("/")
    native = domain == "kubernetes.io" or domain.endswith(".kubernetes.io")
    return bool(slash) and not native and not resource.startswith("requests.")


def needs_of(spec: wire.PodSpec) -> ExtendedNeeds | None:
    """Return the needs of a pod; None if it requests no resource that devices may provide, as most pods do."""
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
    # The pod's class reports problems, so the list is discarded.
    requests = requested(container.resources, "", []) or {}
    found = []
    for resource, quantity in sorted(requests.items()):
        try:
            found.append((resource, value(quantity)))
        except QuantityError:
            # The class reports this too, so the pod is never placed.
            found.append((resource, 0))
    return tuple(found)
