"""Extended resources of a pod that devices may stand for (KEP-5004), as its containers ask for them."""

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
            # As above, and it is never placed.
            found.append((resource, 0))
    return tuple(found)
