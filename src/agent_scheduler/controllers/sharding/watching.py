"""The watched kinds of the sharding controller, and their conversion for the planner."""

from __future__ import annotations

import msgspec

from agent_scheduler.engine.shards.node_columns import node_facts
from agent_scheduler.engine.shards.planning import Planner
from agent_scheduler.engine.state.nodeinfo import NodeInfo, node_info
from agent_scheduler.engine.state.podclasses import PodClasses
from agent_scheduler.engine.state.podinfo import PodInfo, PodReader
from agent_scheduler.objects import wire
from agent_scheduler.objects.config_map import ConfigMap
from agent_scheduler.objects.shard import NodeShard

NODES = "/api/v1/nodes"
PODS = "/api/v1/pods"
#: Selects the pods that use a node's capacity, including the kubelet's mirrors of static pods.
ON_NODES = {"fieldSelector": "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"}

read_shard = msgspec.json.Decoder(NodeShard).decode
read_config_map = msgspec.json.Decoder(ConfigMap).decode
_decode_node = msgspec.json.Decoder(wire.Node).decode


def read_node(raw: bytes | memoryview | msgspec.Raw) -> NodeInfo:
    return node_info(_decode_node(raw))


def pod_reader() -> PodReader:
    return PodReader(PodClasses())


def set_node(planner: Planner, node: NodeInfo) -> bool:
    """Pass a node to the planner. Returns whether that can affect a plan, which most updates (heartbeats) cannot."""
    return planner.set_node(node_facts(node))


def set_pod(planner: Planner, pod: PodInfo) -> bool:
    """Pass a pod to the planner. Returns whether that can affect a plan, which most updates (of conditions) cannot."""
    if pod.finished or not pod.node_name:
        # `ON_NODES` excludes these, but a server may not apply the selector.
        return planner.delete_pod(pod.uid)
    return planner.set_pod(pod.uid, pod.node_name, pod.requests)
