"""Creates, updates and deletes a Job's other objects: those of plugins, and volume claims.

They have labels by which they are watched, so that other clients' changes are reverted. An object with one of their
names that belongs to another owner, or to none, is left unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from agent_scheduler.controllers.reconciling import CreationReceiver, KeyQueue
from agent_scheduler.objects.job import Job
from agent_scheduler.objects.job_pod import JOB_NAME
from agent_scheduler.objects.wire import Metadata
from apimachinery.wire import Wire
from kube_client.answers import Verb, asked_at
from kube_client.driver import Send, send_once
from kube_client.errors import FailureClass
from kube_client.informers import Kind
from kube_client.merging import replacement
from kube_client.patch import is_about_another_pod, patch_once
from kube_client.retry import Timing
from kube_client.transport import Transport, segment

from .identity import is_known, job_key, key_of
from .plugins.registry import objects_of
from .plugins.ssh import FILES, KeyPair, with_keys
from .volumes import claim_for, claim_name
from .writes import JobWriter, Wanted


def new_pair() -> KeyPair:
    """Create an Ed25519 pair, which is as strong as RSA of 3072 bits and fast to create.

    Raises ModuleNotFoundError without `cryptography`.
    """
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ed25519

    key = ed25519.Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return KeyPair(private.decode(), public.decode() + "\n")


_encode = msgspec.json.Encoder().encode


class _OwnedKind(NamedTuple):
    """The path of a kind, and the parts of its objects that the controller owns, or the named fields of these.

    Fields that the API server adds or does not allow to change are excluded.
    """

    version: str
    plural: str
    own: Mapping[str, tuple[str, ...]]


_CLAIM: Final = "PersistentVolumeClaim"
_PLACES: Final = {
    "ConfigMap": _OwnedKind("api/v1", "configmaps", {"data": (), "binaryData": ()}),
    "Secret": _OwnedKind("api/v1", "secrets", {"data": ()}),
    "Service": _OwnedKind("api/v1", "services", {"spec": ("selector", "ports", "publishNotReadyAddresses")}),
    "NetworkPolicy": _OwnedKind("apis/networking.k8s.io/v1", "networkpolicies", {"spec": ()}),
    _CLAIM: _OwnedKind("api/v1", "persistentvolumeclaims", {}),
}


class Belonging(Wire, frozen=True):
    """An object of any of these kinds."""

    metadata: Metadata = Metadata()
    spec: dict[str, Any] | None = None
    data: dict[str, str] | None = None
    binary_data: dict[str, str] | None = None


_read = msgspec.json.Decoder(Belonging).decode
#: Kind and name.
_Name = tuple[str, str]


class Belongings:
    """Owner of these objects as last observed or created, by the key of the Job in their label."""

    def __init__(self, writes: JobWriter, *, transport: Transport, timing: Timing) -> None:
        self._writes = writes
        self._transport = transport
        self._timing = timing
        self._put: KeyQueue = lambda _key, _seconds=None, /: None
        self._learn: CreationReceiver = lambda _kind, _made, /: True
        self._known: dict[str, dict[_Name, Belonging]] = {}
        #: UID of an object -> its key.
        self._keys: dict[str, str] = {}
        #: UIDs of Jobs, by key: those whose objects, including unlabeled ones, were deleted; and those whose claims
        #: that other clients create exist.
        self._gone: dict[str, str] = {}
        self._claimed: dict[str, str] = {}

    def kinds(self, put: KeyQueue, learn: CreationReceiver, *, ssh: bool) -> list[Kind]:
        """Return the kinds to watch; Secrets only if the plugin ssh is enabled."""
        self._put, self._learn = put, learn
        return [
            Kind(
                _watched(kind),
                f"/{place.version}/{place.plural}",
                _read,
                partial(self._set, kind),
                partial(self._delete, kind),
                query={"labelSelector": JOB_NAME},
            )
            for kind, place in _PLACES.items()
            if ssh or kind != "Secret"
        ]

    # ---- what there is

    def _set(self, kind: str, found: Belonging) -> None:
        key = _job_of(found.metadata)
        before = self._keys.get(found.metadata.uid, key)
        known = self._known.get(key, {}).get((kind, found.metadata.name))
        if known is not None and is_known(found.metadata, known.metadata):
            return
        if before != key:
            # Its label has changed.
            self._drop(kind, found, before)
            self._put(before)
        self._enter(kind, found, key)
        self._put(key)

    def _enter(self, kind: str, found: Belonging, key: str) -> None:
        self._known.setdefault(key, {})[kind, found.metadata.name] = found
        self._keys[found.metadata.uid] = key

    def _delete(self, kind: str, gone: Belonging) -> None:
        key = self._keys.get(gone.metadata.uid)
        if key is not None:
            self._drop(kind, gone, key)
            self._put(key)

    def _drop(self, kind: str, gone: Belonging, key: str) -> None:
        self._keys.pop(gone.metadata.uid, None)
        of_job = self._known.get(key, {})
        known = of_job.get((kind, gone.metadata.name))
        if known is not None and known.metadata.uid == gone.metadata.uid:
            del of_job[kind, gone.metadata.name]
            if not of_job:
                del self._known[key]

    def forget(self, key: str) -> None:
        self._gone.pop(key, None)
        self._claimed.pop(key, None)

    # ---- what there should be

    async def keep(self, job: Job, wanted: Wanted) -> bool:
        """Ensure that all objects of the Job's plugins exist and are as desired."""
        self._gone.pop(key_of(job), None)
        for body in objects_of(job):
            if not await self._keep(job, body, wanted):
                return False
        return True

    async def remove(self, job: Job, wanted: Wanted) -> bool:
        """Delete the objects of the Job's plugins."""
        for body in objects_of(job):
            kind, name = body["kind"], body["metadata"]["name"]
            found = self._known.get(key_of(job), {}).get((kind, name))
            if found is None and self._gone.get(key_of(job)) != job.metadata.uid:
                found = await self._find(kind, job.metadata.namespace, name)
                if found is None:
                    return False
            is_own = found is not None and _controller(found.metadata) == job.metadata.uid
            if found is not None and is_own and not await self._remove(job, kind, found, wanted):
                return False
        self._gone[key_of(job)] = job.metadata.uid
        return True

    async def claim(self, job: Job, wanted: Wanted) -> str | None:
        """Create the claims that the Job specifies. Returns an error message, "" on success; None if unknown now."""
        for index in range(len(job.spec.volumes or ())):
            body = claim_for(job, index)
            if body is not None:
                if not await self._keep(job, body, wanted):
                    return None
                continue
            if self._claimed.get(key_of(job)) == job.metadata.uid:
                continue
            name = claim_name(job, index)
            found = await self._find(_CLAIM, job.metadata.namespace, name)
            if found is None:
                return None
            if not found.metadata.uid:
                return f"pvc {name} is not found, the job will be in the Pending state until the PVC is created"
        self._claimed[key_of(job)] = job.metadata.uid
        return ""

    async def _keep(self, job: Job, body: dict[str, Any], wanted: Wanted) -> bool:
        kind, name = body["kind"], body["metadata"]["name"]
        body["metadata"]["labels"] = {JOB_NAME: job.metadata.name}
        what, path = f"{kind} {job.metadata.namespace}/{name}", _path(kind, job.metadata.namespace)
        found = self._known.get(key_of(job), {}).get((kind, name))
        if found is None:
            first = with_keys(body, new_pair()) if kind == "Secret" else body
            made = await self._writes.create(path, name, first, wanted)
            if not made.found:
                return self._writes.failed(what, made.failure)
            found = _read(made.found)
            if JOB_NAME in (found.metadata.labels or {}) and self._learn(_watched(kind), found):
                self._enter(kind, found, _job_of(found.metadata))
        if not _is_own(job, found.metadata):
            self._writes.complain(what, "an object of this name exists and does not belong to this Job")
            return False
        if found.metadata.deletion_timestamp is not None:
            # It is recreated once it is deleted.
            return True
        patch = _correction(kind, found, body)
        if patch is None:
            return True
        at = f"{path}/{segment(name)}"
        patched = await patch_once(self._transport, at, _encode(patch), wanted=wanted, timing=self._timing)
        # The watch delivers the result.
        self._drop(kind, found, key_of(job))
        if patched.failure is not None and is_about_another_pod(patched.failure):
            return False
        return patched.failure is None or self._writes.failed(what, patched.failure)

    async def _remove(self, job: Job, kind: str, found: Belonging, wanted: Wanted) -> bool:
        if found.metadata.deletion_timestamp is not None:
            return True
        path = f"{_path(kind, job.metadata.namespace)}/{segment(found.metadata.name)}"
        if not await self._writes.delete(path, found.metadata, wanted):
            return False
        self._drop(kind, found, key_of(job))
        return True

    async def _find(self, kind: str, namespace: str, name: str) -> Belonging | None:
        """Return the object, one without a UID if it does not exist, or None on failure."""
        path = f"{_path(kind, namespace)}/{segment(name)}"
        failure, response = await send_once(self._transport, Send("GET", path, asked_at(path, Verb.GET)))
        if response is not None:
            return _read(response.body)
        if failure is not None and failure.kind is FailureClass.NOT_FOUND:
            return Belonging()
        self._writes.failed(f"{kind} {namespace}/{name}", failure)
        return None


def _correction(kind: str, found: Belonging, body: dict[str, Any]) -> dict[str, Any] | None:
    """Return the merge patch that makes an object as desired; None if it is."""
    there, own = msgspec.to_builtins(found), _PLACES[kind].own
    if kind == "Secret":
        # Keys are created once and kept.
        keys = {name: text for name, text in (found.data or {}).items() if name in FILES and text}
        is_whole = keys.keys() | body["data"].keys() == set(FILES)
        body = {**body, "data": keys | body["data"]} if is_whole else with_keys(body, new_pair())
    patch = {}
    for part, names in own.items():
        known, wished = (
            {key: each[key] for key in each if not names or key in names}
            for each in (there.get(part) or {}, body.get(part) or {})
        )
        if known != wished:
            patch[part] = replacement(known, wished)
    metadata, (owner,) = found.metadata, body["metadata"]["ownerReferences"]
    about: dict[str, Any] = {}
    if not body["metadata"]["labels"].items() <= (metadata.labels or {}).items():
        about["labels"] = body["metadata"]["labels"]
    if _controller(metadata) != owner["uid"]:
        others = there["metadata"].get("ownerReferences") or []
        about["ownerReferences"] = [*(each for each in others if each["uid"] != owner["uid"]), owner]
    return {"metadata": {"uid": metadata.uid, **about}, **patch} if about or patch else None


def _controller(metadata: Metadata) -> str:
    """Return the UID of the controller; empty if there is none."""
    return next((each.uid for each in metadata.owner_references or () if each.controller), "")


def _is_own(job: Job, metadata: Metadata) -> bool:
    """Return whether the Job controls it, or it has no controller but the Job's label or reference."""
    of_nobody = (metadata.labels or {}).get(JOB_NAME) == job.metadata.name
    referred = any(each.uid == job.metadata.uid for each in metadata.owner_references or ())
    return (_controller(metadata) or job.metadata.uid) == job.metadata.uid and (of_nobody or referred)


def _job_of(metadata: Metadata) -> str:
    """Return the key of the Job in the object's label."""
    return job_key(metadata.namespace, (metadata.labels or {}).get(JOB_NAME, ""))


def _watched(kind: str) -> str:
    """Return the name of the watch for objects of Jobs."""
    return f"{kind}.{JOB_NAME}"


def _path(kind: str, namespace: str) -> str:
    place = _PLACES[kind]
    return f"/{place.version}/namespaces/{segment(namespace)}/{place.plural}"
