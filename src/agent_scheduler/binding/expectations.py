"""Tells where a pod is about to be bound whose bind waits for other writes: `status.nominatedNodeName` (KEP-5278).

So autoscalers leave the node alone meanwhile, and whoever tries the pod again begins there. It is told once an attempt,
and what comes of that changes nothing: the bind says the same a little later, and has the API server remove it. The
patch names the version that was seen, so that none which comes late can say it of a pod that is bound.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from agent_scheduler.cluster.cluster import Cluster
from agent_scheduler.engine.state.podinfo import PodInfo
from agent_scheduler.kube.transport import pod_path

from .claim_writer import PatchCall

_encode = msgspec.json.Encoder().encode


class Expectations:
    """Holds nothing."""

    def __init__(self, cluster: Cluster, patch: PatchCall) -> None:
        self._cluster = cluster
        self._patch = patch

    async def tell(self, pod: PodInfo, node_name: str, wanted: Callable[[], bool]) -> None:
        """Nothing is sent where the pod says so already, or has a node."""
        seen = self._cluster.pods.get(pod.uid)
        if seen is None or seen.node_name or seen.nominated_node_name == node_name:
            return
        metadata = {"uid": seen.uid, "resourceVersion": seen.resource_version}
        body = _encode({"metadata": metadata, "status": {"nominatedNodeName": node_name}})
        await self._patch(f"{pod_path(pod)}/status", body, wanted=_once(wanted))


def _once(wanted: Callable[[], bool]) -> Callable[[], bool]:
    asked = False

    def first() -> bool:
        nonlocal asked
        asked, before = True, asked
        return not before and wanted()

    return first
