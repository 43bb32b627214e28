"""The requests of the job controller; each call returns when the outcome is known.

Writes are put into `JobsCluster` immediately, because the next decision needs them before the watch delivers them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from agent_scheduler.objects.batch import STAGE_GATE, PodGroup, pod_group_path, pod_groups
from agent_scheduler.objects.job import Job, JobStatus, job_path
from agent_scheduler.objects.job_pod import OUT_OF_SYNC, JobPod, read_job_pod
from agent_scheduler.objects.wire import Metadata
from agent_scheduler.telemetry.logs import LimitedLog, get_logger
from kube_client.answers import Verb, asked_at
from kube_client.create import CreateResult, create_each, create_once, delete_once, is_gone
from kube_client.driver import Send, send_once
from kube_client.errors import Failure, FailureClass
from kube_client.patch import called_off, is_about_another_pod, patch_once
from kube_client.retry import Timing
from kube_client.transport import Transport, segment

from .cluster import JobsCluster
from .status import status_patch

_encode = msgspec.json.Encoder().encode
_decode_job = msgspec.json.Decoder(Job).decode
_decode_group = msgspec.json.Decoder(PodGroup).decode

#: Concurrent requests about pods of one Job.
_AT_ONCE: Final = 8
_BEGIN: Final = {"name": STAGE_GATE, "$patch": "delete"}
_MARK: Final = {"annotations": {OUT_OF_SYNC: "true"}}

Wanted = Callable[[], bool]
T = TypeVar("T")


class JobWriter:
    """Each call returns whether its result is achieved; failures are logged."""

    def __init__(self, cluster: JobsCluster, *, transport: Transport, timing: Timing) -> None:
        self._cluster = cluster
        self._transport = transport
        self._timing = timing
        self._log = get_logger("job-controller")
        self._limited_log = LimitedLog(self._log, clock=timing.clock)

    # ---- the Job

    async def status(self, job: Job, after: JobStatus, wanted: Wanted) -> bool:
        """Write `after` to the status of this version of the Job, since it may not apply to another version or UID.

        Returns True also if the Job is gone.
        """
        patch = status_patch(job.status, after)
        if patch is None:
            return True
        metadata = job.metadata
        which = {"uid": metadata.uid, "resourceVersion": metadata.resource_version}
        body = _encode({"metadata": which, "status": patch})
        path = f"{job_path(segment(metadata.namespace), segment(metadata.name))}/status"
        patched = await patch_once(self._transport, path, body, wanted=wanted, timing=self._timing)
        if patched.failure is not None:
            if patched.failure.kind is FailureClass.CONFLICT:
                # The watch will deliver the change.
                return False
            gone = is_about_another_pod(patched.failure)
            return gone or self.failed(f"Job {metadata.namespace}/{metadata.name}", patched.failure)
        if patched.found:
            self._cluster.learn_job(_decode_job(patched.found))
            return True
        version = patched.resource_version or metadata.resource_version
        now = msgspec.structs.replace(metadata, resource_version=version)
        self._cluster.learn_job(msgspec.structs.replace(job, metadata=now, status=after))
        return True

    async def delete_job(self, job: Job, wanted: Wanted) -> bool:
        """Delete the Job after all that it owns."""
        metadata = job.metadata
        path = job_path(segment(metadata.namespace), segment(metadata.name))
        body = _encode({"preconditions": {"uid": metadata.uid}, "propagationPolicy": "Foreground"})
        send = Send("DELETE", path, asked_at(path, Verb.DELETE, metadata.uid), body)
        failure = (await send_once(self._transport, send, refuse=called_off(wanted))).failure
        return failure is None or is_gone(failure) or self.failed(path, failure)

    # ---- pods

    async def make_pods(
        self, namespace: str, bodies: Iterable[tuple[str, Mapping[str, Any]]], wanted: Wanted
    ) -> dict[int, CreateResult]:
        """Create the pods, given by name and body. Returns the creations that failed, by their place in `bodies`."""
        failed: dict[int, CreateResult] = {}

        def ended(index: int, made: CreateResult) -> None:
            if made.failure is None:
                self._cluster.learn_pod(read_job_pod(made.found))
            else:
                failed[index] = made

        await create_each(
            self._transport,
            f"/api/v1/namespaces/{segment(namespace)}/pods",
            ((segment(name), _encode(body)) for name, body in bodies),
            most=_AT_ONCE,
            wanted=wanted,
            ended=ended,
            timing=self._timing,
        )
        return failed

    async def correct_pod(self, pod: JobPod, patch: dict[str, Any], wanted: Wanted) -> bool:
        """Restore the labels, annotations and owner that assign the pod to its Job."""
        path = _pod_path(pod)
        patched = await patch_once(self._transport, path, _encode(patch), wanted=wanted, timing=self._timing)
        failure = patched.failure
        return failure is None or is_about_another_pod(failure) or self.failed(path, failure)

    async def mark_pods(self, pods: Iterable[JobPod], wanted: Wanted) -> bool:
        """Mark pods as deleted by the controller, so that a later process does not take that for an eviction."""

        async def mark(pod: JobPod) -> bool:
            if pod.is_marked:
                return True
            return await self._mark(_pod_path(pod), pod.metadata, wanted)

        return all(await self.each(pods, mark))

    async def begin_pods(self, pods: Iterable[JobPod], wanted: Wanted) -> bool:
        """Remove the stage gate of pods whose turn has come."""

        async def begin(pod: JobPod) -> bool:
            path, metadata = _pod_path(pod), pod.metadata
            body = _encode({"metadata": {"uid": metadata.uid}, "spec": {"schedulingGates": [_BEGIN]}})
            patched = await patch_once(self._transport, path, body, wanted=wanted, timing=self._timing, strategic=True)
            failure = patched.failure
            return failure is None or is_about_another_pod(failure) or self.failed(path, failure)

        return all(await self.each(pods, begin))

    async def delete_pods(self, pods: Iterable[JobPod], wanted: Wanted) -> bool:
        async def delete(pod: JobPod) -> bool:
            if not await self.delete(_pod_path(pod), pod.metadata, wanted):
                return False
            self._cluster.pod_leaves(pod)
            return True

        return all(await self.each(pods, delete))

    # ---- the group

    async def make_group(self, body: dict[str, Any], wanted: Wanted) -> bool:
        metadata = body["metadata"]
        made = await self.create(pod_groups(segment(metadata["namespace"])), metadata["name"], body, wanted)
        if not made.found:
            return self.failed(f"PodGroup {metadata['namespace']}/{metadata['name']}", made.failure)
        self._cluster.learn_group(_decode_group(made.found))
        return True

    async def renew_group(self, group: PodGroup, patch: dict[str, Any], wanted: Wanted) -> bool:
        path = _group_path(group)
        patched = await patch_once(self._transport, path, _encode(patch), wanted=wanted, timing=self._timing)
        return patched.failure is None or self.failed(path, patched.failure)

    async def mark_group(self, group: PodGroup, wanted: Wanted) -> bool:
        return await self._mark(_group_path(group), group.metadata, wanted)

    async def delete_group(self, group: PodGroup, wanted: Wanted) -> bool:
        if not await self.delete(_group_path(group), group.metadata, wanted):
            return False
        self._cluster.group_leaves(group)
        return True

    # ---- all of them

    async def create(self, collection: str, name: str, body: dict[str, Any], wanted: Wanted) -> CreateResult:
        return await create_once(
            self._transport, collection, segment(name), _encode(body), wanted=wanted, timing=self._timing
        )

    async def delete(self, path: str, metadata: Metadata, wanted: Wanted) -> bool:
        failure = await delete_once(self._transport, path, metadata.uid, wanted=wanted, timing=self._timing)
        return failure is None or self.failed(path, failure)

    async def _mark(self, path: str, metadata: Metadata, wanted: Wanted) -> bool:
        body = _encode({"metadata": {"uid": metadata.uid, **_MARK}})
        patched = await patch_once(self._transport, path, body, wanted=wanted, timing=self._timing)
        failure = patched.failure
        return failure is None or is_about_another_pod(failure) or self.failed(path, failure)

    async def each(self, items: Iterable[Any], work: Callable[[Any], Awaitable[T]]) -> list[T]:
        """Return the results of `work` for the items, some of them concurrently."""
        items = list(items)
        if len(items) <= 1:
            return [await work(item) for item in items]
        limit = asyncio.Semaphore(_AT_ONCE)

        async def one(item: Any) -> T:
            async with limit:
                return await work(item)

        return list(await asyncio.gather(*(one(item) for item in items)))

    def failed(self, what: str, failure: Failure | None) -> bool:
        """Log the failure. Returns False, so that the key is retried."""
        if failure is not None and failure.kind is not FailureClass.GONE:
            self.complain(what, str(failure))
        return False

    def complain(self, what: str, problem: str) -> None:
        self._limited_log.error("job not reconciled", problem[:60], object=what, problem=problem)


def _pod_path(pod: JobPod) -> str:
    return f"/api/v1/namespaces/{segment(pod.metadata.namespace)}/pods/{segment(pod.metadata.name)}"


def _group_path(group: PodGroup) -> str:
    return pod_group_path(segment(group.metadata.namespace), segment(group.metadata.name))
