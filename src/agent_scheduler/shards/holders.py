"""Finds out from leases whether the schedulers of other shards live.

A scheduler writes only while it holds the lease of its shard (`kube_client.lease`): it stops `renew_deadline` after its
last renewal, before the lease expires. Its last requests may still be carried out for as long as the API server works
on a request, by default a minute. So it counts as dead when its lease has not changed for the lease duration plus the
fence period; after that nothing of it can arrive.

Times are measured on the local clock from the first observation of a lease's state, as in leader election, so clocks
that differ or jump have no effect. A shard without a lease gives no information, and its scheduler never counts as
dead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import quote

import msgspec

from agent_scheduler.engine.shards.claims import Liveness
from kube_client.answers import Verb, asked_at
from kube_client.driver import Send, send_once
from kube_client.errors import FailureClass
from kube_client.retry import Timing
from kube_client.transport import Transport

_REQUEST_TIMEOUT: Final = 5.0

_decode = msgspec.json.Decoder(dict[str, Any]).decode


def lease_name(shard: str) -> str:
    """Return the name of the Lease that the scheduler of a shard holds."""
    return f"nodeshard-{shard}"


class Holders:
    """Owns the observations of other shards' leases."""

    def __init__(
        self, transport: Transport, *, namespace: str, lease_duration: float, fence: float, timing: Timing
    ) -> None:
        """`namespace` has the leases of all shards. Durations are in seconds.

        `lease_duration` is the minimum assumed duration of a lease, and `fence` is waited in addition. The clock of
        `timing` must continue while the machine is suspended.
        """
        self._transport = transport
        self._namespace = namespace
        self._lease_duration = lease_duration
        #: How long a request may still be carried out after its sender has lost its lease, in seconds.
        self.fence = fence
        self._timing = timing
        #: Shard -> its lease's spec, and when that was first seen.
        self._seen: dict[str, tuple[Mapping[str, Any], float]] = {}

    async def look(self, shards: Iterable[str]) -> dict[str, Liveness]:
        """Read the leases now. If that fails, the scheduler counts as alive, so its claims are respected."""
        names = sorted(set(shards))
        answers = await asyncio.gather(*(self._look(name) for name in names))
        return dict(zip(names, answers, strict=True))

    async def _look(self, shard: str) -> Liveness:
        namespace, name = quote(self._namespace, safe=""), quote(lease_name(shard), safe="")
        path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}"
        get = Send("GET", path, asked_at(path, Verb.GET))
        failure, response = await send_once(self._transport, get, timeout=_REQUEST_TIMEOUT)
        if failure is not None or response is None:
            if failure is None or failure.kind is not FailureClass.NOT_FOUND:
                return Liveness.ALIVE
            self._seen.pop(shard, None)
            return Liveness.UNKNOWN
        try:
            lease = _decode(response.body)
        except (msgspec.MsgspecError, RecursionError):
            return Liveness.ALIVE
        spec = lease.get("spec")
        return self._judge(shard, spec if isinstance(spec, dict) else {})

    def _judge(self, shard: str, spec: Mapping[str, Any]) -> Liveness:
        now = self._timing.clock()
        before = self._seen.get(shard)
        if before is None or before[0] != spec:
            before = self._seen[shard] = (spec, now)
        if not spec.get("holderIdentity"):
            # Released regularly: its holder had stopped writing before.
            good_for = 0.0
        else:
            stated = spec.get("leaseDurationSeconds")
            good_for = max(stated if isinstance(stated, int) else 0, self._lease_duration)
        return Liveness.DEAD if now >= before[1] + good_for + self.fence else Liveness.ALIVE
