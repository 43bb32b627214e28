"""Whether the schedulers of other shards live, by the leases that they hold.

A scheduler writes only while it holds the lease of its shard (`kube.lease`): it stops `renew_deadline` after its last
renewal, which is before the lease has run out. What it sent until then may still be carried out for as long as the API
server works at a request, a minute by default. So it is taken for dead when its lease has not changed for its duration
and the fence period after that; from then on nothing of it can come any more.

Times are counted on our own clock, from when a change of the lease was first seen, as in leader election: clocks that
differ or jump change nothing. A shard without a lease says nothing of its scheduler, which is never taken for dead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import quote

import msgspec

from agent_scheduler.engine.shards.claims import Liveness
from agent_scheduler.kube.answers import Verb, asked_at
from agent_scheduler.kube.driver import Send, send_once
from agent_scheduler.kube.errors import FailureClass
from agent_scheduler.kube.retry import Timing
from agent_scheduler.kube.transport import Transport

_REQUEST_TIMEOUT: Final = 5.0

_decode = msgspec.json.Decoder(dict[str, Any]).decode


def lease_name(shard: str) -> str:
    """The name of the Lease that the scheduler of a shard holds."""
    return f"nodeshard-{shard}"


class Holders:
    """Owner of what was seen of other shards' leases."""

    def __init__(
        self, transport: Transport, *, namespace: str, lease_duration: float, fence: float, timing: Timing
    ) -> None:
        """`namespace` has the leases of all shards. `lease_duration`: the least that a lease is taken to be good for;
        `fence`: what is waited beyond. Seconds. The clock of `timing` has to go on while the machine sleeps."""
        self._transport = transport
        self._namespace = namespace
        self._lease_duration = lease_duration
        self._fence = fence
        self._timing = timing
        #: Shard -> its lease's spec, and when it was first seen like that.
        self._seen: dict[str, tuple[Mapping[str, Any], float]] = {}

    async def look(self, shards: Iterable[str]) -> dict[str, Liveness]:
        """Read their leases, now. Where that fails, the scheduler counts as living: its claims stand."""
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
        except msgspec.MsgspecError:
            return Liveness.ALIVE
        spec = lease.get("spec")
        return self._judge(shard, spec if isinstance(spec, dict) else {})

    def _judge(self, shard: str, spec: Mapping[str, Any]) -> Liveness:
        now = self._timing.clock()
        before = self._seen.get(shard)
        if before is None or before[0] != spec:
            before = self._seen[shard] = (spec, now)
        if not spec.get("holderIdentity"):
            # Released in good order: its holder had stopped writing before that.
            good_for = 0.0
        else:
            stated = spec.get("leaseDurationSeconds")
            good_for = max(stated if isinstance(stated, int) else 0, self._lease_duration)
        return Liveness.DEAD if now >= before[1] + good_for + self._fence else Liveness.ALIVE
