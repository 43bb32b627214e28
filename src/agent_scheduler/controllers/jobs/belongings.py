"""Makes, renews and deletes what belongs to a Job beside its pods and its group: objects of plugins, and claims.

They are not watched. What was made is remembered by what it says, so that it is written once; a process that comes
after this one writes it again, which changes nothing.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from agent_scheduler.kube.answers import Verb, asked_at
from agent_scheduler.kube.driver import Send, send_once
from agent_scheduler.kube.errors import FailureClass
from agent_scheduler.kube.patch import patch_once, says
from agent_scheduler.kube.retry import Timing
from agent_scheduler.kube.transport import Transport, segment
from agent_scheduler.objects.job import Job
from agent_scheduler.objects.merging import replacement
from agent_scheduler.objects.wire import Metadata, Wire

from .plugins.registry import objects_of
from .plugins.ssh import with_keys
from .ssh_keys import new_pair
from .volumes import claim_for, claim_name
from .writes import Wanted, Writes

_encode = msgspec.json.Encoder().encode

#: Where each kind is.
_PLACES: Final = {
    "ConfigMap": ("api/v1", "configmaps"),
    "Secret": ("api/v1", "secrets"),
    "Service": ("api/v1", "services"),
    "NetworkPolicy": ("apis/networking.k8s.io/v1", "networkpolicies"),
    "PersistentVolumeClaim": ("api/v1", "persistentvolumeclaims"),
}


class _Object(Wire, frozen=True):
    metadata: Metadata


class Belongings:
    """Owner of what this process knows to be written, by UID of the Job."""

    def __init__(self, writes: Writes, *, transport: Transport, timing: Timing) -> None:
        self._writes = writes
        self._transport = transport
        self._timing = timing
        #: The objects that were made; empty once they were deleted.
        self._made: dict[str, bytes] = {}
        self._claimed: set[str] = set()

    def forget(self, job: Job) -> None:
        self._made.pop(job.metadata.uid, None)
        self._claimed.discard(job.metadata.uid)

    async def keep(self, job: Job, wanted: Wanted) -> bool:
        """Have all objects of its plugins there, as they should be."""
        bodies = objects_of(job)
        told = _encode(bodies)
        if self._made.get(job.metadata.uid) == told:
            return True
        for body in bodies:
            if not await self._keep(body, wanted):
                return False
        self._made[job.metadata.uid] = told
        return True

    async def remove(self, job: Job, wanted: Wanted) -> bool:
        """Delete them."""
        if self._made.get(job.metadata.uid) == b"":
            return True
        for body in objects_of(job):
            if not await self._remove(job, body, wanted):
                return False
        self._made[job.metadata.uid] = b""
        return True

    async def claim(self, job: Job, wanted: Wanted) -> str | None:
        """Make the claims that the Job describes. What is wrong with one; None if it cannot be said now."""
        if job.metadata.uid in self._claimed:
            return ""
        for index in range(len(job.spec.volumes or ())):
            body = claim_for(job, index)
            if body is not None:
                if not await self._keep(body, wanted):
                    return None
                continue
            name = claim_name(job, index)
            found = await self._find("PersistentVolumeClaim", job.metadata.namespace, name)
            if found is None:
                return None
            if not found.metadata.uid:
                return (
                    f"pvc {name} is not found, the job will be in the Pending state until the PVC is created"
                )
        self._claimed.add(job.metadata.uid)
        return ""

    async def _keep(self, body: dict[str, Any], wanted: Wanted) -> bool:
        metadata, kind = body["metadata"], body["kind"]
        path = _path(kind, metadata["namespace"])
        first = with_keys(body, new_pair()) if kind == "Secret" else body
        made = await self._writes.create(path, metadata["name"], first, wanted)
        what = f"{kind} {metadata['namespace']}/{metadata['name']}"
        if not made.found:
            return self._writes.failed(what, made.failure)
        if made.failure is None or says(made.found, body, strategic=False):
            return True
        owners = made.found.get("metadata", {}).get("ownerReferences") or []
        if not any(each.get("uid") == metadata["ownerReferences"][0]["uid"] for each in owners):
            self._writes.complain(what, "there is one that is not of this Job")
            return False
        if "data" not in body:
            # The API server adds to all others, and what is of the Job never changes.
            return True
        there = made.found.get("data") or {}
        # Keys are made once, and stay as they are.
        should_be = {name: text for name, text in there.items() if name in first["data"]} | body["data"]
        patch = {"metadata": {"uid": made.found["metadata"]["uid"]}, "data": replacement(there, should_be)}
        patched = await patch_once(
            self._transport,
            f"{path}/{segment(metadata['name'])}",
            _encode(patch),
            wanted=wanted,
            timing=self._timing,
        )
        return patched.failure is None or self._writes.failed(what, patched.failure)

    async def _remove(self, job: Job, body: dict[str, Any], wanted: Wanted) -> bool:
        name, kind = body["metadata"]["name"], body["kind"]
        found = await self._find(kind, job.metadata.namespace, name)
        if found is None:
            return False
        owners = found.metadata.owner_references or []
        if not found.metadata.uid or not any(each.uid == job.metadata.uid for each in owners):
            return True
        path = f"{_path(kind, job.metadata.namespace)}/{segment(name)}"
        return await self._writes.delete(path, found.metadata, wanted)

    async def _find(self, kind: str, namespace: str, name: str) -> _Object | None:
        """One without a UID if there is none; None if that is not known."""
        path = f"{_path(kind, namespace)}/{segment(name)}"
        failure, response = await send_once(self._transport, Send("GET", path, asked_at(path, Verb.GET)))
        if response is not None:
            return msgspec.json.decode(response.body, type=_Object)
        if failure is not None and failure.kind is FailureClass.NOT_FOUND:
            return _Object(Metadata())
        self._writes.failed(f"{kind} {namespace}/{name}", failure)
        return None


def _path(kind: str, namespace: str) -> str:
    version, plural = _PLACES[kind]
    return f"/{version}/namespaces/{segment(namespace)}/{plural}"
