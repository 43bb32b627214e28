"""Generates ResourceClaims of pods from templates, and releases claims that pods no longer need.

Replaces pkg/controller/resourceclaim. The names of a pod's generated claims are written to its status in one update
(`generated_claims`). Reservations are removed for pods that are deleted or will not run. A claim without reservations
is deallocated and loses its protection finalizer. A generated claim is deleted when its pod has ended, without
waiting for the pod's deletion. If a pod was bound without a scheduler, its allocated claims are reserved for it.

Cost: one search of the encoded pod if it has no claims. A changed pod or claim is processed once per batch of
changes, in constant time except for the claim's own reservations. A new template wakes exactly the pods that wait for
it.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from math import inf

from . import nesting
from .binding import status_of, with_status
from .controllers import Controller, Index, WorkQueue
from .deletion import delete_record, release
from .errors import ApiError
from .generated_claims import TEMPLATES, ClaimMaker, NoTemplate
from .handlers import Api
from .pod_claims import CLAIMS, Use, names_claims, uses_of
from .recorder import Recorder
from .resource import Object
from .store import Event, Record
from .subresources import PODS

#: Finalizer of an allocated claim.
DELETE_PROTECTION = "resource.kubernetes.io/delete-protection"
#: The limit of reservations of a claim.
MOST_RESERVED = 256

_FINAL = ("Succeeded", "Failed")
_ALLOCATED = b'"allocation":{'
#: Seconds until a pod is retried whose claim was rejected: the first wait, and the limit.
_RETRY_SECONDS, _LONGEST_RETRY = 1.0, 300.0


class ResourceClaims(Controller):
    """The resource claims of one server.

    Invariant, when all queued keys are processed: `_users` has exactly the pods that name a claim; every pod that may
    still run has its generated claims or is in `_awaiting` or `_retries`; no claim is reserved for a pod that will
    not run.
    """

    def __init__(self, api: Api) -> None:
        self._registry = api.registry
        self._store = api.store
        self._pods = api.registry.stored(PODS)
        self._claims = api.registry.stored(CLAIMS)
        self._maker = ClaimMaker(api)
        self._phase = self._pods.table.field_names.index("status.phase")
        self._node = self._pods.table.field_names.index("spec.nodeName")
        self._recorder = Recorder(api.store, "resource_claim")
        #: UIDs of the pods whose specs have claims.
        self._claiming: set[str] = set()
        #: Keys to process, in order of arrival.
        self._noted_pods = WorkQueue[str]()
        self._noted_claims = WorkQueue[str]()
        #: Pods by the claims that they name.
        self._users: Index[str, str] = Index()
        #: Pods by the template that they wait for.
        self._awaiting: Index[str, str] = Index()
        #: Retries of pods whose claims were rejected: (time, key); the keys in it; the last wait of each.
        self._retries: list[tuple[float, str]] = []
        self._retried: set[str] = set()
        self._waits: dict[str, float] = {}
        for record in self._pods.table.scan(""):
            if names_claims(record):
                self._claiming.add(record.uid)
                self._noted_pods.add(record.key)
        self._noted_claims.extend(record.key for record in self._claims.table.scan(""))
        self._pods.table.subscribers.append(self._pod_changed)
        self._claims.table.subscribers.append(self._claim_changed)
        api.registry.stored(TEMPLATES).table.subscribers.append(self._template_changed)

    def _pod_changed(self, event: Event) -> None:
        record, gone = event.record, event.type == "DELETED"
        if event.type == "ADDED" and names_claims(record):
            self._claiming.add(record.uid)
        if record.uid in self._claiming:
            self._noted_pods.add(record.key)
            if gone:
                # When the key is processed, another pod may have the name.
                self._note_claims_of(record, uses_of(record))
                self._claiming.discard(record.uid)
            self.wake()
        elif record.uid in self._store.dependents and (gone or self._is_done(record)):
            # It may have a claim for extended resources.
            self._note_claims_of(record, ())
            self.wake()

    def _note_claims_of(self, pod: Record, uses: tuple[Use, ...]) -> None:
        """Queue the claims of a pod that has ended, including those that are not in its status."""
        self._noted_claims.extend(_keys(pod, uses))
        owned = self._store.dependents.get(pod.uid, ())
        self._noted_claims.extend(key for table, key in owned if table == CLAIMS)

    def _claim_changed(self, event: Event) -> None:
        record, previous = event.record, event.previous
        if event.type == "DELETED":
            self._noted_pods.extend(self._users.keys(record.key))
        else:
            self._noted_claims.add(record.key)
            if _ALLOCATED in record.data and (previous is None or _ALLOCATED not in previous.data):
                # It can now be reserved for pods that are bound.
                pods = self._pods.table.records
                for key in self._users.keys(record.key):
                    if key in pods and pods[key].fields[self._node]:
                        self._noted_pods.add(key)
        self.wake()

    def _template_changed(self, event: Event) -> None:
        if event.type == "ADDED" and (waiting := self._awaiting.keys(event.record.key)):
            self._noted_pods.extend(waiting)
            self.wake()

    def advance(self, *, most: int = 16) -> float | None:
        """See `Controller`. The default of `most` is small, because creating a claim is expensive."""
        now = self._store.clock()
        while self._retries and self._retries[0][0] <= now:
            _, key = heappop(self._retries)
            self._retried.discard(key)
            self._noted_pods.add(key)
        self._noted_pods.work(most, self._see_pod)
        self._noted_claims.work(most, self._see_claim)
        if self._noted_pods or self._noted_claims:
            return -inf
        return self._retries[0][0] if self._retries else None

    # ---- pods

    def _see_pod(self, key: str) -> None:
        record = self._pods.table.records.get(key)
        uses = uses_of(record) if record is not None else ()
        self._users.put(key, _keys(record, uses) if record is not None else ())
        self._awaiting.put(key, ())
        if record is None or self._is_done(record):
            self._waits.pop(key, None)
            if record is not None:
                self._note_claims_of(record, uses)
            return
        if record.deleting:
            return
        try:
            made = self._make_claims(record, uses)
        except NoTemplate as missing:
            self._awaiting.put(key, (f"{record.namespace}/{missing}",))
            return
        except ApiError:
            self._retry(key)
            return
        self._waits.pop(key, None)
        if made:
            uses = self._tell(record, uses, made)
        if record.fields[self._node]:
            for use in uses:
                self._reserve(record, use)

    def _retry(self, key: str) -> None:
        if key not in self._retried:
            wait = min(2 * self._waits.get(key, _RETRY_SECONDS / 2), _LONGEST_RETRY)
            self._waits[key] = wait
            self._retried.add(key)
            heappush(self._retries, (self._store.clock() + wait, key))

    def _is_done(self, pod: Record) -> bool:
        """Return whether none of the pod's containers is running or will run."""
        return pod.fields[self._phase] in _FINAL or (pod.deleting and not pod.fields[self._node])

    def _make_claims(self, pod: Record, uses: tuple[Use, ...]) -> dict[str, str]:
        """Create the pod's missing claims; return the names to add to its status, by entry.

        Raises `NoTemplate`, or `ApiError` if a claim is rejected.
        """
        made: dict[str, str] = {}
        for use in uses:
            if not use.template or use.claim == "" or (use.claim and self._maker.own(pod, use.claim) is not None):
                continue
            try:
                made[use.entry] = self._maker.name_for(pod, use)
            except (NoTemplate, ApiError) as error:
                why = f'template "{error}" not found' if isinstance(error, NoTemplate) else str(error)
                text = f"PodResourceClaim {use.entry}: {why}"
                self._recorder.warn(pod, "FailedResourceClaimCreation", text)
                raise
        return made

    def _tell(self, pod: Record, uses: tuple[Use, ...], made: dict[str, str]) -> tuple[Use, ...]:
        """Write the names of claims into the pod's status; return the pod's uses with them."""
        status = status_of(pod)
        others = [known for known in status.get("resourceClaimStatuses") or () if known["name"] not in made]
        told_now = [{"name": entry, "resourceClaimName": claim} for entry, claim in made.items()]
        status["resourceClaimStatuses"] = [*others, *told_now]
        self._store.put(PODS, with_status(pod, self._store.rv + 1, status), pod)
        resolved = tuple([Use(use.entry, use.template, made.get(use.entry, use.claim)) for use in uses])
        self._users.put(pod.key, _keys(pod, resolved))
        # The write above queued the pod, but there is nothing to process.
        self._noted_pods.pop(pod.key, None)
        return resolved

    def _reserve(self, pod: Record, use: Use) -> None:
        """Reserve a claim for a bound pod for which no scheduler reserved it."""
        claim = self._claims.table.get(pod.namespace, use.claim) if use.claim else None
        if claim is None or claim.deleting or _ALLOCATED not in claim.data:
            return
        if use.template and pod.uid not in claim.owners:
            return
        obj = self._claims.stored.decode(claim.data)
        status = obj["status"]
        reserved = status.get("reservedFor") or ()
        full = len(reserved) >= MOST_RESERVED
        if not status.get("allocation") or full or any(each["uid"] == pod.uid for each in reserved):
            return
        consumer = {"resource": "pods", "name": pod.name, "uid": pod.uid}
        status["reservedFor"] = [*reserved, consumer]
        self._store.replace(CLAIMS, claim, obj)

    # ---- claims

    def _see_claim(self, key: str) -> None:
        record = self._claims.table.records.get(key)
        if record is None:
            return
        claim: Object = nesting.loads(record.data)
        metadata, status = claim["metadata"], claim.get("status") or {}
        reserved = status.get("reservedFor") or []
        if any(each.get("apiGroup") or each["resource"] != "pods" for each in reserved):
            return  # only other controllers know these consumers
        valid = {each["uid"] for each in reserved if self._may_run(record.namespace, each)}
        protected = DELETE_PROTECTION in metadata.get("finalizers", ())
        if len(valid) < len(reserved):
            record = self._withdraw(record, valid, deallocate=protected and not valid)
            if len(reserved) >= MOST_RESERVED:
                self._noted_pods.extend(self._users.keys(key))
            if protected and not valid:
                release(self._registry, self._claims, record, DELETE_PROTECTION)
        elif protected and record.deleting and not valid:
            if status.get("allocation"):
                record = self._withdraw(record, valid, deallocate=True)
            release(self._registry, self._claims, record, DELETE_PROTECTION)
        if not valid:
            self._drop_needless(key, metadata.get("ownerReferences", ()))

    def _may_run(self, namespace: str, named: Object) -> bool:
        pod = self._pods.table.get(namespace, named["name"])
        return pod is not None and pod.uid == named["uid"] and not self._is_done(pod)

    def _withdraw(self, record: Record, valid: set[str], *, deallocate: bool) -> Record:
        """Store the claim with only these pods' reservations, and without its allocation if `deallocate` is set."""
        obj = self._claims.stored.decode(record.data)
        gone = {"reservedFor", "allocation", "devices"} if deallocate else {"reservedFor"}
        status = {name: value for name, value in obj["status"].items() if name not in gone}
        if valid:
            status["reservedFor"] = [each for each in obj["status"]["reservedFor"] if each["uid"] in valid]
        obj["status"] = status
        return self._store.replace(CLAIMS, record, obj)

    def _drop_needless(self, key: str, owners: Iterable[Object]) -> None:
        """Delete a claim of a pod that was replaced or will not run. If the pod is gone, the collector deletes it."""
        record = self._claims.table.records.get(key)
        if record is None or record.deleting:
            return
        owner = _owning_pod(owners)
        pod = self._pods.table.get(record.namespace, owner["name"]) if owner is not None else None
        if owner is not None and pod is not None and not self._may_run(record.namespace, owner):
            delete_record(self._registry, self._claims, record, {})


def _keys(pod: Record, uses: tuple[Use, ...]) -> tuple[str, ...]:
    """Return the keys of the claims whose names are known."""
    return tuple(dict.fromkeys(f"{pod.namespace}/{use.claim}" for use in uses if use.claim))


def _owning_pod(owners: Iterable[Object]) -> Object | None:
    """Return the owner reference to the pod that a claim was generated for."""
    pods = (owner for owner in owners if (owner["apiVersion"], owner["kind"]) == ("v1", "Pod"))
    return next((owner for owner in pods if owner.get("controller")), None)
