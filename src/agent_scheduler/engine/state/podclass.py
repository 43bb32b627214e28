"""Pods that want the same are one class, compiled once and decided together.

A `PodClass` holds everything that the filters and scores of a node read from a pod, in compiled form. Two pods
of one class get the same answer on the same snapshot, which is what lets a worker keep masks and scores from
one pod to the next. A class is recognised by the bytes that the API server sent, without parsing them; and since
whoever comes next most often wants the same as whoever came last, it is compared with that before it is looked up.

Namespace and labels are part of the class only where the spec makes them matter: with terms about other pods, and
with spread constraints. Agents that each carry a label of their own still are one class. Name and UID are, where it has
ephemeral claims: these are made for one pod, and no other can share its class.

A pod that cannot be read is a class too: its `error` names the field, and no worker ever places it.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, Final, NamedTuple
from weakref import ReferenceType, WeakValueDictionary, ref

import msgspec

from agent_scheduler.objects import wire

from .features import required_features
from .fingerprint import NOBODY, Owner, given_by, is_infeasible, speaks_of_pods, spec_fingerprint
from .labelselector import Labels
from .owners import Siblings
from .podclaims import Demand
from .podspec import (
    SpecError,
    check_node_affinity,
    check_tolerations,
    decode_part,
    readable_part,
    with_void_terms,
)
from .podterms import (
    NO_TERMS,
    ExistingTerm,
    PodTerms,
    SpreadConstraint,
    pod_terms,
    spread_constraints,
)
from .podvolumes import PodVolumes, Recogniser, images_of, pod_volumes
from .requests import Amounts, PodAmounts, pod_amounts

#: The counter of pods on a node, treated as one more resource.
PODS = "pods"

#: (host IP, protocol, port); the IP is "0.0.0.0" where the pod names none.
HostPort = tuple[str, str, int]

_ANY_IP = "0.0.0.0"  # noqa: S104 - a value to compare, nothing listens on it

_selector = msgspec.json.Decoder(dict[str, str] | None)
_affinity = msgspec.json.Decoder(wire.Affinity | None)
_tolerations = msgspec.json.Decoder(list[wire.Toleration] | None)
_spread = msgspec.json.Decoder(list[wire.TopologySpreadConstraint] | None)
_ports = msgspec.json.Decoder(list[wire.ContainerPort] | None)

#: What a class may depend on of a spec beside its volumes, as it is written.
_written = attrgetter(
    *("containers", "init_containers", "overhead", "resources", "node_selector", "affinity", "tolerations"),
    *("topology_spread_constraints", "scheduler_name", "host_network", "host_users"),
)

#: Fingerprints kept of each class that lives, and in addition to those.
_FINGERPRINTS_A_CLASS = 8
_FINGERPRINTS_KEPT = 1024


class Images(NamedTuple):
    """As they are written: what containers and init containers run, and what is mounted as volumes."""

    run: tuple[str, ...]
    mounted: tuple[str, ...]


NO_IMAGES: Final = Images((), ())

#: What a class is decided with beside its spec: matching terms of existing pods, siblings, and resource claims.
Context = tuple[tuple[ExistingTerm, ...], Siblings | None, Demand | None]

_NO_STATUS = wire.PodStatus()
_NO_LABELS: Labels = {}


@dataclass(slots=True, weakref_slot=True, kw_only=True, eq=False, repr=False)
class PodClass:
    """What the rules of a node read from a pod. Immutable once built; equal only to itself."""

    #: Amounts in the ledger's units, zeros left out, `PODS` always 1.
    requests: Amounts
    #: (millicores, bytes) that the pod counts as in scores.
    nonzero: tuple[int, int]
    #: As what NodeResourcesFit counts it there until it runs, where that is something else (`pod_amounts`).
    by_containers: Amounts | None = None
    #: What its node has to have declared.
    features: frozenset[str] = frozenset()
    host_ports: tuple[HostPort, ...]
    node_selector: dict[str, str]
    affinity: wire.NodeAffinity | None
    tolerations: tuple[wire.Toleration, ...]
    #: What it says about other pods, and what that means to others once it runs.
    terms: PodTerms = NO_TERMS
    existing: tuple[ExistingTerm, ...] = field(init=False)
    spread: tuple[SpreadConstraint, ...] = ()
    #: Empty where nobody asks (see `PodClasses`).
    images: Images = NO_IMAGES
    #: Empty where nothing in the spec makes them matter.
    namespace: str = ""
    labels: Labels = field(default_factory=dict)
    #: Affinity and anti-affinity terms of existing pods that match this one.
    matching_terms: tuple[ExistingTerm, ...] = ()
    #: Whom it is spread among if it does not say so itself and its profile spreads pods by default.
    siblings: Siblings | None = None
    #: Its claims and disks; None where every node has all that it mounts.
    volumes: PodVolumes | None = None
    #: What its resource claims ask for, as things stand; None where it has none, and for a pod's own class.
    claims: Demand | None = None
    #: Whether more than room may have to be reserved for it on a node.
    reserves: bool = field(init=False)
    #: Whether it asks for resources that are not Kubernetes' own, which devices may stand for.
    extended: bool = field(init=False)
    #: The one node that it may go to; empty for any.
    node_name: str = ""
    #: Why no node may be chosen for it; empty for a sound spec.
    error: str = ""
    #: Equal for classes that differ in no more than `requests`, `nonzero`, `by_containers` and `extended`.
    key_without_requests: Hashable = field(default_factory=object)
    _in_contexts: WeakValueDictionary[Context, PodClass] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.existing = self.terms.existing()
        self.reserves = self.volumes is not None or self.claims is not None
        self.extended = any("/" in resource for resource in self.requests)

    def in_context(
        self,
        matching_terms: tuple[ExistingTerm, ...],
        siblings: Siblings | None = None,
        claims: Demand | None = None,
    ) -> PodClass:
        """This class with these in place of its own. Equal arguments give the same object while anybody holds it."""
        if self.spread:
            siblings = None
        if matching_terms == self.matching_terms and siblings == self.siblings and claims is self.claims:
            return self
        if self._in_contexts is None:
            self._in_contexts = WeakValueDictionary()
        context = (matching_terms, siblings, claims)
        found = self._in_contexts.get(context)
        if found is None:
            found = self._in_contexts[context] = replace(
                self,
                matching_terms=matching_terms,
                siblings=siblings,
                claims=claims,
                key_without_requests=(self.key_without_requests, *context),
            )
        return found


class PodClasses:
    """Compiles specs and shares the result. Owner of the only table from key to class.

    The table is weak: a class lives as long as a pod or a worker's view holds it.
    """

    def __init__(self, *, images_for: Collection[str] = ()) -> None:
        #: Names of the schedulers that ask for images. To all others, pods that differ in them alone are one class.
        self.images_for = frozenset(images_for)
        self._volumes = Recogniser()
        self._by_key: WeakValueDictionary[Hashable, PodClass] = WeakValueDictionary()
        #: Spec fingerprint -> class. Invariant: what `_class` makes of such a spec is that very class.
        self._by_fingerprint: WeakValueDictionary[Hashable, PodClass] = WeakValueDictionary()
        #: What the last one looked like whose class depends on nothing else, and that class.
        self._last: tuple[Any, ...] | None = None
        self._last_class: ReferenceType[PodClass] | None = None

    def __len__(self) -> int:
        return len(self._by_key)

    def of(
        self,
        spec: wire.PodSpec,
        *,
        node_name: str = "",
        status: wire.PodStatus | None = None,
        namespace: str = "",
        name: str = "",
        uid: str = "",
        labels: Labels = _NO_LABELS,
        problem: str = "",
    ) -> PodClass:
        """The class of a pod. Never raises: what is wrong is in `PodClass.error`, and the rest is in the class.

        `spec.nodeName` is left out unless given as `node_name`: for a pod that is bound it says where the pod
        is, not what it wants, and one class a node would share nothing. `status` tells of resizes. `problem` is
        what was wrong with the spec before it came here.
        """
        status = status or _NO_STATUS
        if problem:
            return self._class(spec, status, Owner(namespace, name, uid, labels), node_name, problem)
        return self.recognise(spec, status, namespace, name, uid, labels, node_name)

    def recognise(
        self,
        spec: wire.PodSpec,
        status: wire.PodStatus,
        namespace: str,
        name: str,
        uid: str,
        labels: Labels,
        node_name: str = "",
    ) -> PodClass:
        """As `of`, for what could be read. Asked of each version of each pod."""
        given = given_by(spec, status)
        volumes = self._volumes.matters(bytes(spec.volumes)) if spec.volumes else b""
        # All that a class depends on, and a little more, but for its volumes and, where it speaks of others, its owner.
        looks = (_written(spec), self.images_for, given, node_name)
        if looks == self._last and not volumes and self._last_class is not None:
            last = self._last_class()
            if last is not None:
                return last
        owner = Owner(namespace, name, uid, labels)
        images = self._images(spec, volumes) if self.images_for else None
        fingerprint = spec_fingerprint(spec, given, volumes, owner, node_name, images)
        found = self._by_fingerprint.get(fingerprint)
        if found is None:
            found = self._class(spec, status, owner, node_name, "")
            if len(self._by_fingerprint) > _FINGERPRINTS_A_CLASS * len(self._by_key) + _FINGERPRINTS_KEPT:
                # Pods whose specs differ in bytes and not in meaning must not fill the memory.
                self._by_fingerprint.clear()
            self._by_fingerprint[fingerprint] = found
        if not (volumes or speaks_of_pods(spec)):
            self._last, self._last_class = looks, ref(found)
        return found

    def _class(
        self, spec: wire.PodSpec, status: wire.PodStatus, owner: Owner, node_name: str, problem: str
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
        images = self._images(spec, bytes(spec.volumes))
        volumes = _volumes(spec, owner, problems)
        features = required_features(spec, problems)
        error = problems[0] if problems else ""
        speaks = speaks_of_pods(spec)
        host_ports = tuple(sorted(set(ports)))
        key_without_requests = (
            host_ports,
            features,
            bytes(spec.node_selector),
            bytes(spec.affinity),
            bytes(spec.tolerations),
            images,
            (owner.namespace, tuple(sorted(owner.labels.items())), bytes(spec.topology_spread_constraints))
            if speaks
            else (),
            volumes,
            node_name,
            error,
        )
        contained = asked.by_containers
        key = (
            tuple(sorted(requests.items())),
            asked.nonzero,
            contained and tuple(sorted(contained.items())),
            key_without_requests,
        )
        found = self._by_key.get(key)
        if found is None:
            found = self._by_key[key] = _compile(
                spec,
                requests,
                asked,
                host_ports=host_ports,
                features=features,
                images=images,
                owner=owner if speaks else NOBODY,
                volumes=volumes,
                node_name=node_name,
                error=error,
                key_without_requests=key_without_requests,
            )
        return found

    def _images(self, spec: wire.PodSpec, volumes: bytes) -> Images:
        """`volumes`: those that matter, or all."""
        if spec.scheduler_name not in self.images_for:
            return NO_IMAGES
        containers = (*(spec.init_containers or ()), *(spec.containers or ()))
        run = tuple(container.image or "" for container in containers)
        return Images(run, images_of(volumes) if volumes else ())


def _host_ports(container: wire.Container, place: str, problems: list[str]) -> list[HostPort]:
    ports: list[wire.ContainerPort] | None = readable_part(_ports, container.ports, place, problems)
    return [
        (port.host_ip or _ANY_IP, port.protocol or "TCP", port.host_port)
        for port in ports or ()
        if port.host_port
    ]


def _volumes(spec: wire.PodSpec, owner: Owner, problems: list[str]) -> PodVolumes | None:
    try:
        return pod_volumes(spec.volumes, namespace=owner.namespace, name=owner.name, uid=owner.uid)
    except SpecError as error:
        problems.append(str(error))
        return None


def _compile(
    spec: wire.PodSpec,
    requests: Amounts,
    asked: PodAmounts,
    *,
    host_ports: tuple[HostPort, ...],
    features: frozenset[str],
    images: Images,
    owner: Owner,
    volumes: PodVolumes | None,
    node_name: str,
    error: str,
    key_without_requests: Hashable,
) -> PodClass:
    terms = NO_TERMS
    spread: tuple[SpreadConstraint, ...] = ()
    selector: dict[str, str] = {}
    affinity: wire.NodeAffinity | None = None
    tolerations: tuple[wire.Toleration, ...] = ()
    try:
        selector = decode_part(_selector, spec.node_selector, "spec.nodeSelector") or {}
        whole = decode_part(_affinity, spec.affinity, "spec.affinity")
        affinity = whole.node_affinity if whole else None
        tolerations = tuple(decode_part(_tolerations, spec.tolerations, "spec.tolerations") or ())
        check_tolerations(tolerations)
        check_node_affinity(affinity, "spec.affinity.nodeAffinity", sound_values=False)
        affinity = with_void_terms(affinity)
        terms = pod_terms(whole, owner.namespace, owner.labels)
        constraints = decode_part(_spread, spec.topology_spread_constraints, "spec.topologySpreadConstraints")
        spread = spread_constraints(constraints, owner.labels)
    except SpecError as problem:
        error = error or str(problem)
    return PodClass(
        requests=requests,
        nonzero=asked.nonzero,
        by_containers=asked.by_containers,
        features=features,
        host_ports=host_ports,
        node_selector=selector,
        affinity=affinity,
        tolerations=tolerations,
        terms=terms,
        spread=spread,
        images=images,
        namespace=owner.namespace,
        labels=owner.labels,
        volumes=volumes,
        node_name=node_name,
        error=error,
        key_without_requests=key_without_requests,
    )
