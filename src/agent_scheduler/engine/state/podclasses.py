"""Compiles specs of pods to classes, each distinct class once.

A class is found by the fingerprint of a spec: all bytes that the class depends on, as written by the API server,
without parsing them. Most pods are equal to the pod before, so they are compared with that one before a fingerprint is
built. The fingerprint has fields that are rare only if they are set, each after its own marker, so that specs with
different meanings have different fingerprints.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from operator import attrgetter
from typing import Any, NamedTuple
from weakref import ReferenceType, WeakValueDictionary, ref

import msgspec
from msgspec import Raw

from agent_scheduler.objects import wire
from apimachinery.labels import Labels

from . import podconstraints
from .features import required_features
from .podclass import NO_IMAGES, PODS, HostPort, Images, PodClass
from .podspec import SpecError, check_node_affinity, check_tolerations, decode_part, readable_part, with_void_terms
from .podterms import pod_terms, spread_constraints
from .podvolumes import PodVolumes, Recogniser, images_of, pod_volumes
from .requests import pod_amounts

_ANY_IP = "0.0.0.0"  # noqa: S104 - a value to compare; no socket is opened

_selector = msgspec.json.Decoder(dict[str, str] | None)
_affinity = msgspec.json.Decoder(wire.Affinity | None)
_tolerations = msgspec.json.Decoder(list[wire.Toleration] | None)
_spread = msgspec.json.Decoder(list[wire.TopologySpreadConstraint] | None)
_ports = msgspec.json.Decoder(list[wire.ContainerPort] | None)

#: The fields of a spec that a class may depend on, except for volumes, as written.
_written = attrgetter(
    *("containers", "init_containers", "overhead", "resources", "node_selector", "affinity", "tolerations"),
    *("topology_spread_constraints", "scheduler_name", "host_network", "host_users"),
)

#: The number of cached fingerprints per living class, and in addition to those.
_FINGERPRINTS_A_CLASS = 8
_FINGERPRINTS_KEPT = 1024

#: Present in the bytes of volumes whose claims are created for the pod.
_EPHEMERAL = b'"ephemeral"'
#: Markers of rare fields in a fingerprint.
_INIT, _GIVEN, _WHOLE, _VOLUMES, _OTHERS = "init containers", "given", "whole", "volumes", "other pods"
_HOST, _RULES = "host", "restart rules"

_NO_STATUS = wire.PodStatus()
_NO_LABELS: Labels = {}


class KubeletAllocation(NamedTuple):
    """The resources that the kubelet has allocated, and whether a requested resize is infeasible.

    `whole` is the allocation of the pod as a whole, if the spec has resources at pod level.
    """

    statuses: list[wire.ContainerStatus] | None
    init_statuses: list[wire.ContainerStatus] | None
    whole: tuple[Raw, Raw] | None
    infeasible: bool


class SpecOwner(NamedTuple):
    """The pod that a spec belongs to."""

    namespace: str
    name: str
    uid: str
    labels: Labels


NOBODY = SpecOwner("", "", "", {})


def is_infeasible(status: wire.PodStatus) -> bool:
    """Return whether the node has reported that it can never grant the requested resize."""
    for each in status.conditions or ():  # noqa: SIM110 - runs for every report of a kubelet; a generator is slower
        if each.type == "PodResizePending" and each.reason == "Infeasible":
            return True
    return False


def given_by(spec: wire.PodSpec, status: wire.PodStatus) -> KubeletAllocation | None:
    """Return the allocated resources of a pod; None if no kubelet has allocated any."""
    whole = (status.resources, status.allocated_resources) if spec.resources and status.resources else None
    if not (status.container_statuses or status.init_container_statuses or whole):
        return None
    return KubeletAllocation(status.container_statuses, status.init_container_statuses, whole, is_infeasible(status))


def speaks_of_pods(spec: wire.PodSpec) -> bool:
    """Return whether the spec may have terms about other pods, or topology spread constraints."""
    if spec.topology_spread_constraints:
        return True
    if not spec.affinity:
        return False
    affinity = bytes(spec.affinity)
    return b'"podAffinity"' in affinity or b'"podAntiAffinity"' in affinity


def spec_fingerprint(
    spec: wire.PodSpec,
    given: KubeletAllocation | None,
    volumes: bytes,
    owner: SpecOwner,
    node_name: str,
    images: Hashable,
) -> tuple[Hashable, ...]:
    """Return the fingerprint of a spec.

    `volumes` are the bytes of the volumes that affect scheduling; `images` is None if no scheduler needs them.
    """
    written: list[Any] = [node_name, spec.overhead, spec.resources, spec.node_selector, spec.affinity, spec.tolerations]
    containers, inits = spec.containers or (), spec.init_containers or ()
    for container in containers:
        written += (container.resources, container.ports)
    if inits:
        written.append(_INIT)
        for container in inits:
            written += (container.restart_policy, container.resources, container.ports)
    if given is not None:
        written += (_GIVEN, given.infeasible, *(container.name for container in (*containers, *inits)))
        if given.whole is not None:
            written += (_WHOLE, *given.whole)
        for status in (*(given.statuses or ()), *(given.init_statuses or ())):
            written += (status.name, status.resources, status.allocated_resources)
    if spec.host_network or spec.host_users is not None:
        written += (_HOST, spec.host_network, spec.host_users)
    rules = [each.restart_policy_rules for each in (*containers, *inits) if each.restart_policy_rules]
    if rules:
        written += (_RULES, *rules)
    if images is not None:
        written.append(images)
    if volumes:
        written += (_VOLUMES, owner.namespace, volumes)
        if _EPHEMERAL in volumes:
            written += (owner.name, owner.uid)
    if speaks_of_pods(spec):
        written += (_OTHERS, spec.topology_spread_constraints, owner.namespace, owner.labels)
    return tuple(map(_kept, written))


def _kept(part: Any) -> Hashable:
    """Return a part as a hashable value that does not reference the buffer of the whole spec."""
    if type(part) is Raw:
        return bytes(part)
    return frozenset(part.items()) if type(part) is dict else part


class PodClasses:
    """Compiles specs and shares the results. Owner of the only table of classes.

    The table is weak: a class exists while a pod or a worker's view references it.
    """

    def __init__(self, *, images_for: Collection[str] = ()) -> None:
        #: The names of schedulers that need images. For all others, pods that differ only in images share a class.
        self.images_for = frozenset(images_for)
        #: The names of schedulers that check quotas. Pods of all others have no `QuotaUse`.
        self.quotas_for: frozenset[str] = frozenset()
        self._volumes = Recogniser()
        self._by_key: WeakValueDictionary[Hashable, PodClass] = WeakValueDictionary()
        #: Fingerprint -> class. Invariant: `_class` returns this class for such a spec.
        self._by_fingerprint: WeakValueDictionary[Hashable, PodClass] = WeakValueDictionary()
        #: The fields of the last pod whose class depends on nothing else, and its class.
        self._last: tuple[Any, ...] | None = None
        self._last_class: ReferenceType[PodClass] | None = None

    def __len__(self) -> int:
        return len(self._by_key)

    def of(
        self,
        spec: wire.PodSpec,
        status: wire.PodStatus = _NO_STATUS,
        namespace: str = "",
        name: str = "",
        uid: str = "",
        labels: Labels = _NO_LABELS,
        node_name: str = "",
        problem: str = "",
    ) -> PodClass:
        """Return the class of a pod. Never raises: the first problem is in `PodClass.error`; valid fields are compiled.

        `spec.nodeName` is ignored unless it is passed as `node_name`: in a bound pod it is not a requirement, and there
        would be one class per node. `status` is needed for resizes. `problem` is a problem with the spec that was found
        before. This runs for each version of each pod; arguments are positional because keywords cost more.
        """
        if problem:
            return self._class(spec, status, SpecOwner(namespace, name, uid, labels), node_name, problem)
        given = given_by(spec, status)
        volumes = self._volumes.matters(bytes(spec.volumes)) if spec.volumes else b""
        # These are a superset of the fields that a class depends on, except for volumes and, if the spec has terms
        # about other pods, the owner.
        looks = (_written(spec), self.images_for, given, node_name)
        if looks == self._last and not volumes and self._last_class is not None:
            last = self._last_class()
            if last is not None:
                return last
        owner = SpecOwner(namespace, name, uid, labels)
        images = self._images(spec, volumes) if self.images_for else None
        fingerprint = spec_fingerprint(spec, given, volumes, owner, node_name, images)
        found = self._by_fingerprint.get(fingerprint)
        if found is None:
            found = self._class(spec, status, owner, node_name, "")
            if len(self._by_fingerprint) > _FINGERPRINTS_A_CLASS * len(self._by_key) + _FINGERPRINTS_KEPT:
                # Otherwise pods whose specs have different bytes with the same meaning would use up the memory.
                self._by_fingerprint.clear()
            self._by_fingerprint[fingerprint] = found
        if not (volumes or speaks_of_pods(spec)):
            self._last, self._last_class = looks, ref(found)
        return found

    def _class(
        self, spec: wire.PodSpec, status: wire.PodStatus, owner: SpecOwner, node_name: str, problem: str
    ) -> PodClass:
        ports: list[HostPort] = []
        problems = [problem] if problem else []
        asked = pod_amounts(spec, status, is_infeasible(status), problems)
        for index, container in enumerate(spec.containers or ()):
            ports += _host_ports(container, f"spec.containers[{index}].ports", problems)
        for index, container in enumerate(spec.init_containers or ()):
            if container.restart_policy == "Always":
                ports += _host_ports(container, f"spec.initContainers[{index}].ports", problems)
        requests = {resource: amount for resource, amount in asked.requests.items() if amount}
        requests[PODS] = 1
        contained = asked.by_containers
        number = len(requests) - 1
        if number > podconstraints.MOST:
            # The pod is invalid. If it runs, its extended resources do not count.
            requests = _native(requests)
            contained = None if contained is None else _native(contained)
        speaks = speaks_of_pods(spec)
        # These are fields of the class and also parts of its key.
        own: dict[str, Any] = {
            "host_ports": tuple(sorted(set(ports))),
            "images": self._images(spec, bytes(spec.volumes)),
            "volumes": _volumes(spec, owner, problems),
            "features": required_features(spec, problems),
            "node_name": node_name,
            "error": problems[0] if problems else "",
        }
        key_without_requests = (
            *own.values(),
            bytes(spec.node_selector),
            bytes(spec.affinity),
            bytes(spec.tolerations),
            (owner.namespace, tuple(sorted(owner.labels.items())), bytes(spec.topology_spread_constraints))
            if speaks
            else (),
        )
        volumes: PodVolumes | None = own["volumes"]
        counts = {
            "spec.containers": number,
            "spec.volumes": 0 if volumes is None else len(volumes.claims) + len(volumes.disks),
        }
        key = (
            tuple(sorted(requests.items())),
            asked.nonzero,
            None if contained is None else tuple(sorted(contained.items())),
            key_without_requests,
        )
        found = self._by_key.get(key)
        if found is None:
            found = self._by_key[key] = PodClass(
                requests=requests,
                nonzero=asked.nonzero,
                by_containers=contained,
                key_without_requests=key_without_requests,
                **own | _compiled(spec, owner if speaks else NOBODY, own["error"], counts),
            )
        return found

    def _images(self, spec: wire.PodSpec, volumes: bytes) -> Images:
        """Return the images of a pod. `volumes` are the bytes of all volumes or of those that affect scheduling."""
        if spec.scheduler_name not in self.images_for:
            return NO_IMAGES
        containers = (*(spec.init_containers or ()), *(spec.containers or ()))
        run = tuple(container.image or "" for container in containers)
        return Images(run, images_of(volumes) if volumes else ())


def _native(amounts: Mapping[str, int]) -> dict[str, int]:
    """Return the amounts of the resources that are no extended ones."""
    return {resource: amount for resource, amount in amounts.items() if "/" not in resource}


def _host_ports(container: wire.Container, place: str, problems: list[str]) -> list[HostPort]:
    ports: list[wire.ContainerPort] | None = readable_part(_ports, container.ports, place, problems)
    return [(port.host_ip or _ANY_IP, port.protocol or "TCP", port.host_port) for port in ports or () if port.host_port]


def _volumes(spec: wire.PodSpec, owner: SpecOwner, problems: list[str]) -> PodVolumes | None:
    try:
        return pod_volumes(spec.volumes, namespace=owner.namespace, name=owner.name, uid=owner.uid)
    except SpecError as error:
        problems.append(str(error))
        return None


def _compiled(spec: wire.PodSpec, owner: SpecOwner, error: str, counts: Mapping[str, int]) -> dict[str, Any]:
    """Return the fields of a class that are parsed from `spec`, up to the first invalid one.

    `counts` are the constraints in other fields, by field. The field `error` is the first problem, or `error` if
    that is not empty.
    """
    fields: dict[str, Any] = {
        "node_selector": {},
        "affinity": None,
        "tolerations": (),
        "namespace": owner.namespace,
        "labels": owner.labels,
    }
    try:
        selector = decode_part(_selector, spec.node_selector, "spec.nodeSelector") or {}
        whole = decode_part(_affinity, spec.affinity, "spec.affinity")
        tolerations = tuple(decode_part(_tolerations, spec.tolerations, "spec.tolerations") or ())
        spread = decode_part(_spread, spec.topology_spread_constraints, "spec.topologySpreadConstraints") or ()
        fields["constraints"] = podconstraints.check_number(
            {
                **counts,
                "spec.nodeSelector": len(selector),
                "spec.affinity": podconstraints.of_affinity(whole),
                "spec.tolerations": len(tolerations),
                "spec.topologySpreadConstraints": podconstraints.of_spread(spread),
            }
        )
        affinity = fields["affinity"] = whole.node_affinity if whole else None
        fields["node_selector"], fields["tolerations"] = selector, tolerations
        check_tolerations(fields["tolerations"])
        check_node_affinity(affinity, "spec.affinity.nodeAffinity", sound_values=False)
        fields["affinity"] = with_void_terms(affinity)
        fields["terms"] = pod_terms(whole, owner.namespace, owner.labels)
        fields["spread"] = spread_constraints(spread, owner.labels)
    except SpecError as problem:
        fields["error"] = error or str(problem)
    return fields
