"""The writes of Reserve and PreBind plugins."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from agent_scheduler.cluster.state import SharedState

from .background import Background
from .calls import Calls
from .pod_claims import PodClaims
from .runtime import Runtime
from .volume_writer import VolumeWriter


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

    async def patch(
        self, path: str, body: bytes, *, wanted: Callable[[], bool], strategic: bool = False
    ) -> str:
        patched = await self._patch(path, body, wanted=wanted, strategic=strategic)
        return "" if patched.failure is None else str(patched.failure)
