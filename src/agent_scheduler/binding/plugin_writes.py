"""The writes of Reserve and PreBind plugins.

Those for volume claims stay after a failed attempt, and the next attempt continues from them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from agent_scheduler.cluster.changes import wait_for_change
from agent_scheduler.cluster.state import SharedState
from agent_scheduler.engine.framework.prebind import Attempt
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.engine.volumes.reservation import (
    ObjectPatch,
    Progress,
    ReservationFailed,
    check_bindings,
    due,
    written,
)
from kube_client.patch import Patched
from kube_client.transport import segment

from .background import Background
from .calls import Calls
from .claim_writer import PatchCall
from .pod_claims import PodClaims
from .runtime import Runtime


class VolumeWriter:
    """Implements `Volumes` of `engine.framework.prebind`."""

    def __init__(self, state: SharedState, patch: PatchCall, *, clock: Callable[[], float]) -> None:
        self._cluster = state.cluster
        self._storage = state.storage
        self._patch = patch
        self._clock = clock

    def give_back(self, uid: str) -> None:
        self._storage.give_back(uid)

    async def bind(self, attempt: Attempt, timeout: float) -> str:  # noqa: ASYNC109 - `bindTimeoutSeconds`
        """Bind the claims, and wait up to `timeout` seconds for the volume controller and the provisioner.

        Returns an error message; empty once all claims are bound.
        """
        pod, reservation = attempt.pod, attempt.reservation
        catalogue = self._cluster.catalogue
        ends = self._clock() + timeout
        claims = [each.claim for each in reservation.static_bindings]
        claims += [each.claim for each in reservation.dynamic_provisions]
        with self._storage.changes.of(claims) as changed:
            while writes := due(reservation, catalogue):
                patched = await self._write(writes[0], pod, ends)
                if patched.failure is not None:
                    return self._over(pod, ends) or str(patched.failure)
                written(writes[0], catalogue, patched.resource_version)
            while True:
                changed.clear()
                node = self._cluster.ledger.node(reservation.node_name)
                found = check_bindings(reservation, catalogue, node, pod_exists=self._cluster.waits(pod.uid))
                if found is Progress.DONE:
                    return ""
                if isinstance(found, ReservationFailed):
                    return f"binding volumes: {found.reason}"
                if problem := self._over(pod, ends):
                    return problem
                await wait_for_change(changed, within=ends - self._clock())

    async def _write(self, write: ObjectPatch, pod: PodInfo, ends: float) -> Patched:
        namespace = f"namespaces/{segment(write.namespace)}/" if write.namespace else ""
        path = f"/api/v1/{namespace}{write.resource}/{segment(write.name)}"
        return await self._patch(path, write.body, wanted=lambda: not self._over(pod, ends))

    def _over(self, pod: PodInfo, ends: float) -> str:
        """Return why the pod needs no further step, or ""."""
        if not self._cluster.waits(pod.uid):
            return "binding volumes: pod does not exist any more"
        if self._cluster.pods[pod.uid].cls is not pod.cls:
            return "binding volumes: the pod has changed since its node was chosen"
        return "binding volumes: context deadline exceeded" if self._clock() >= ends else ""


class PluginWrites:
    """Implements `Writes` of `engine.framework.prebind`."""

    def __init__(
        self,
        runtime: Runtime,
        state: SharedState,
        *,
        calls: Calls,
        background: Background,
        caught_up: Callable[[str], Awaitable[None]],
    ) -> None:
        """Create the writers; `caught_up` is as for `ClaimWriter`."""
        self._patch = calls.patch
        self.volumes = VolumeWriter(state, calls.patch, clock=runtime.timing.clock)
        self.claims = PodClaims(runtime, state, calls=calls, background=background, caught_up=caught_up)

    async def patch(self, path: str, body: bytes, *, wanted: Callable[[], bool], strategic: bool = False) -> str:
        patched = await self._patch(path, body, wanted=wanted, strategic=strategic)
        return "" if patched.failure is None else str(patched.failure)
