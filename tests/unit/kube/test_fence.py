"""A process that does not lead writes nothing, whatever it is in the middle of."""

from __future__ import annotations

import pytest

from agent_scheduler.kube.fence import FencedTransport
from agent_scheduler.kube.transport import NotSent
from tests.embedded import PODS, embedded_cluster


async def test_writes_pass_while_they_are_allowed_and_reads_always_do() -> None:
    leading = True
    async with embedded_cluster() as cluster:
        fenced = FencedTransport(cluster.transport, lambda: leading)
        pod = b'{"metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i"}]}}'
        assert (await fenced.request("POST", PODS, body=pod, timeout=5)).status == 201
        leading = False
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            with pytest.raises(NotSent, match="does not lead"):
                await fenced.request(method, f"{PODS}/a", body=b"{}", timeout=5)
        assert (await fenced.request("GET", f"{PODS}/a", timeout=5)).status == 200
        async with fenced.stream(f"{PODS}?watch=1", read_timeout=5) as batches:
            async for lines in batches:
                assert b'"name":"a"' in lines[0]
                break
