"""The kubelet's preparation of resource claims before a pod starts.

A pod starts when each of its claims exists, is owned by the pod if it was generated, is allocated, is reserved for
the pod, matches this node, and has devices that are ready and that no other claim uses. Until then it waits, with the
reason in an event, so that a scheduler that binds too early or allocates a device twice is noticed. A claim uses its
devices from the start of its first pod to the end of its last.

Cost: none for pods without claims; the change of a claim wakes exactly the pods that wait for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from . import nesting
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
    """The pod cannot start yet; the message is the reason."""


class PodClaims:
    """The claims of the pods of all nodes. Owned by `Kubelets`, on its thread.

    Invariants: `_held` has exactly the pods that were prepared and not released; `_used` maps a device to the claim
    whose pods hold it; each pod in `_waits` is woken by a change of anything that it waits for.
    """

    def __init__(self, store: Store) -> None:
        self._recorder = Recorder(store, "kubelet")
        self._table: Table = store.tables[CLAIMS]
        #: UIDs of pods and devices by UID of the claim they use; UIDs of claims by UID of the prepared pod.
        self._holders: dict[str, set[str]] = {}
        self._devices: dict[str, list[Device]] = {}
        self._held: dict[str, tuple[str, ...]] = {}
        #: UID and name of the claim that uses a device.
        self._used: dict[Device, tuple[str, str]] = {}
        #: UIDs of waiting pods, indexed by the keys of their claims.
        self._waits: Index[str, str] = Index()
        #: Waiting pods to retry.
        self.woken = WorkQueue[str]()

    def changed(self, claim: Record) -> bool:
        """Wake the pods that wait for a claim after its change or deletion; return whether there are any."""
        waiting = self._waits.keys(claim.key)
        self.woken.extend(waiting)
        return bool(waiting)

    def prepare(self, pod: Record, node: Record | None) -> bool:
        """Prepare the pod's claims; return false if it has to wait until it is woken."""
        uses = uses_of(pod)
        self._wait_no_more(pod.uid)
        taken: dict[Device, str] = {}
        try:
            for use in uses:
                if use.claim != "":
                    self._check(pod, node, use, taken)
        except _Unready as why:
            self._recorder.warn(pod, REASON, f"Failed to prepare dynamic resources: {why}")
            # A claim without name has a key that no claim has.
            keys = dict.fromkeys(f"{pod.namespace}/{use.claim or ''}" for use in uses)
            self._waits.put(pod.uid, tuple(keys))
            return False
        self.hold(pod)
        return True

    def hold(self, pod: Record) -> None:
        """Count a running pod's claims without a check."""
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
        """Release the claims of a pod that ended or was deleted; wake pods that wait for freed devices."""
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
        """Check that the pod may use this claim's devices; add them to `taken`. Raises `_Unready`."""
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
                raise _Unready(f"device {device.name} of pool {device.pool} is in use by ResourceClaim {other}")
            taken[device] = name


def _status_of(claim: Record) -> Object:
    return nesting.loads(claim.data).get("status") or {}


def _results(allocation: Object) -> Iterable[Object]:
    return (allocation.get("devices") or {}).get("results") or ()


def _is_for(allocation: Object, node: Record) -> bool:
    selector = allocation.get("nodeSelector")
    return selector is None or any(selects(term, node.labels, node.name) for term in selector["nodeSelectorTerms"])


def _not_ready(status: Object, allocation: Object) -> Iterator[Device]:
    """Yield devices whose binding conditions are not all true; no pod should have been bound yet."""
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
    """Return the devices that the claim uses exclusively: without admin access or shared capacity."""
    return [
        _device(each) for each in _results(allocation) if not each.get("adminAccess") and each.get("shareID") is None
    ]


def _device(named: Object) -> Device:
    """Return the device of an allocation result or a device status."""
    return Device(named["driver"], named["pool"], named["device"])
