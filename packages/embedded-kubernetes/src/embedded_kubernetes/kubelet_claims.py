"""Whether pods may have the devices of their claims: what a kubelet and the drivers on its node check before a start.

A pod starts once each of its claims is there, belongs to it if it was generated, is allocated, is reserved for it, is
meant for this node, and has devices that are ready for it and that no other claim is using. Until then it waits, and
says why in an event: a scheduler that binds too early, or gives a device away twice, is seen. A claim's devices are in
use from its first pod's start to its last pod's end.

Costs: nothing for pods without claims; a change of a claim wakes exactly the pods that wait for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import orjson

from .controllers import Index, WorkQueue
from .node_selection import selects
from .pod_claims import CLAIMS, Use, uses_of
from .recorder import Recorder
from .resource import Object
from .store import Record, Store, Table

REASON = "FailedPrepareDynamicResources"


class Device(NamedTuple):
    """One device of a cluster."""

    driver: str
    pool: str
    name: str


class _Unready(Exception):
    """Why a pod may not start yet."""


class PodClaims:
    """The claims of all nodes' pods. Owned by `Kubelets`, on its thread.

    Invariants: `_held` has exactly the pods that were prepared and not released; a device is in `_used` by the claim
    that the pods which hold it have in common; each pod in `_waits` is woken by whatever it waits for.
    """

    def __init__(self, store: Store) -> None:
        self._recorder = Recorder(store, "kubelet")
        self._table: Table = store.tables[CLAIMS]
        #: Claim's UID -> UIDs of the pods that use it, and its devices; prepared pods -> their claims' UIDs.
        self._holders: dict[str, set[str]] = {}
        self._devices: dict[str, list[Device]] = {}
        self._held: dict[str, tuple[str, ...]] = {}
        #: Device -> UID and name of the claim that uses it.
        self._used: dict[Device, tuple[str, str]] = {}
        #: UIDs of waiting pods, by the keys of their claims.
        self._waits: Index[str, str] = Index()
        #: Waiting pods whose claims changed, to be tried again.
        self.woken = WorkQueue[str]()

    def changed(self, claim: Record) -> bool:
        """Take in that a claim changed or went. True if that wakes a pod."""
        waiting = self._waits.keys(claim.key)
        self.woken.extend(waiting)
        return bool(waiting)

    def prepare(self, pod: Record, node: Record | None) -> bool:
        """Take the devices of a pod's claims into use. False if it has to wait; then it is woken when that may help."""
        uses = uses_of(pod)
        self._wait_no_more(pod.uid)
        taken: dict[Device, str] = {}
        try:
            for use in uses:
                if use.claim != "":
                    self._check(pod, node, use, taken)
        except _Unready as why:
            self._recorder.warn(pod, REASON, f"Failed to prepare dynamic resources: {why}")
            # A claim that was not made yet has a key that none has.
            keys = dict.fromkeys(f"{pod.namespace}/{use.claim or ''}" for use in uses)
            self._waits.put(pod.uid, tuple(keys))
            return False
        self.hold(pod)
        return True

    def hold(self, pod: Record) -> None:
        """Count a pod in as it is, without a check: one that runs."""
        claims = [self._table.get(pod.namespace, use.claim) for use in uses_of(pod) if use.claim]
        there = [claim for claim in claims if claim is not None]
        self._held[pod.uid] = tuple(dict.fromkeys(claim.uid for claim in there))
        for claim in there:
            self._holders.setdefault(claim.uid, set()).add(pod.uid)
            allocation = _status_of(claim).get("allocation")
            if allocation is not None and claim.uid not in self._devices:
                self._devices[claim.uid] = devices = _own_devices(allocation)
                for device in devices:
                    self._used.setdefault(device, (claim.uid, claim.name))

    def release(self, uid: str) -> None:
        """The pod has ended or is gone; whoever waits for a device that this frees is woken."""
        self._wait_no_more(uid)
        for claim in self._held.pop(uid, ()):
            holders = self._holders[claim]
            holders.discard(uid)
            if not holders:
                del self._holders[claim]
                for device in self._devices.pop(claim, ()):
                    if self._used.get(device, ("", ""))[0] == claim:
                        del self._used[device]
                        self.woken.extend(self._waits.by_key)

    def _wait_no_more(self, uid: str) -> None:
        self.woken.pop(uid, None)
        self._waits.put(uid, ())

    def _check(self, pod: Record, node: Record | None, use: Use, taken: dict[Device, str]) -> None:
        """That the pod may have this claim's devices, which are then noted in `taken`. Raises `_Unready`."""
        name = use.claim
        if name is None:
            raise _Unready(f"no ResourceClaim has been made yet for {use.entry}")
        claim = self._table.get(pod.namespace, name)
        if claim is None:
            raise _Unready(f"there is no ResourceClaim {name}")
        if use.template and pod.uid not in claim.owners:
            raise _Unready(f"ResourceClaim {name} was not made for this pod")
        status = _status_of(claim)
        allocation = status.get("allocation")
        if allocation is None:
            raise _Unready(f"ResourceClaim {name} is not allocated")
        if all(each.get("uid") != pod.uid for each in status.get("reservedFor") or ()):
            raise _Unready(f"ResourceClaim {name} is not reserved for this pod")
        if node is not None and not _is_for(allocation, node):
            raise _Unready(f"ResourceClaim {name} is allocated for other nodes")
        for device in _not_ready(status, allocation):
            raise _Unready(f"device {device.name} of pool {device.pool} is not ready for this node")
        for device in _own_devices(allocation):
            uid, user = self._used.get(device, ("", ""))
            other = taken.get(device) or (user if uid != claim.uid else "")
            if other:
                raise _Unready(
                    f"device {device.name} of pool {device.pool} is in use by ResourceClaim {other}"
                )
            taken[device] = name


def _status_of(claim: Record) -> Object:
    return orjson.loads(claim.data).get("status") or {}


def _results(allocation: Object) -> Iterable[Object]:
    return (allocation.get("devices") or {}).get("results") or ()


def _is_for(allocation: Object, node: Record) -> bool:
    selector = allocation.get("nodeSelector")
    return selector is None or any(
        selects(term, node.labels, node.name) for term in selector["nodeSelectorTerms"]
    )


def _not_ready(status: Object, allocation: Object) -> Iterator[Device]:
    """Devices with binding conditions that their driver has not reported to be True: no pod should be here yet."""
    true = {
        (_device(each), condition.get("type"))
        for each in status.get("devices") or ()
        for condition in each.get("conditions") or ()
        if condition.get("status") == "True"
    }
    for each in _results(allocation):
        for condition in each.get("bindingConditions") or ():
            if (_device(each), condition) not in true:
                yield _device(each)


def _own_devices(allocation: Object) -> list[Device]:
    """The devices that are the claim's alone: not those for administration, or shared by their capacity."""
    return [
        _device(each)
        for each in _results(allocation)
        if not each.get("adminAccess") and each.get("shareID") is None
    ]


def _device(named: Object) -> Device:
    """The device that a result of an allocation, or a driver's report, is about."""
    return Device(named["driver"], named["pool"], named["device"])
