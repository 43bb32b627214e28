"""The limit that the API server sets: binds alone, by a client that does nothing else.

Pods that no scheduler takes are bound to the nodes in turn over some keep-alive connections, as fast as the server
answers. What a scheduler reaches on the same cluster is given as a share of it.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence

from agent_scheduler.kube.transport import Transport

from .manifests import encode, pod_maker
from .model import Template
from .requests import create_all, for_each, retry

NOBODY = "agent-scheduler-bench-nobody"
CONNECTIONS = 32
_WARM_UP = 64


async def bare_rate(
    transport: Transport, namespace: str, nodes: Sequence[str], *, pods: int, selector: dict[str, str] | None
) -> float:
    """Binds a second. Raises RequestFailed."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    names = [f"bare-{number:06d}" for number in range(_WARM_UP + pods)]
    maker = pod_maker(Template(requests={}), scheduler_name=NOBODY, selector=selector)
    await create_all(transport, path, map(maker, names))
    turns = itertools.cycle(nodes)
    requests = [(f"{path}/{name}/binding", binding(name, next(turns))) for name in names]

    async def bind(request: tuple[str, bytes]) -> None:
        # Refused as bound already: a repetition of one whose answer was lost.
        await retry(transport, "POST", *request, ignore=409)

    await for_each(requests[:_WARM_UP], bind, parallel=CONNECTIONS)
    began = time.monotonic()
    await for_each(requests[_WARM_UP:], bind, parallel=CONNECTIONS)
    return pods / (time.monotonic() - began)


def binding(name: str, node: str) -> bytes:
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    return encode({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target})
