"""What a plugin of another distribution imports; docs/plugins.md shows one. These names stay."""

from agent_scheduler.engine.columns import Bools, Columns, Ints, Rows
from agent_scheduler.engine.framework import (
    Depends,
    Filter,
    PodRejected,
    PreEnqueue,
    Score,
    default_normalize,
    default_normalize_reversed,
)
from agent_scheduler.engine.handle import Handle
from agent_scheduler.engine.nodeinfo import NodeInfo
from agent_scheduler.engine.plugins.args import ArgsError, PluginArgs
from agent_scheduler.engine.podclass import PodClass
from agent_scheduler.engine.podinfo import PodInfo
from agent_scheduler.engine.queueing.events import ActionType, ClusterEvent, Resource
from agent_scheduler.engine.queueing.hints import ClusterEventWithHint, QueueingHint
from agent_scheduler.engine.queueing.prehints import (
    ALL_PODS,
    ANYWAY,
    AllPods,
    Amount,
    ByKeys,
    Own,
    PodIndex,
    UpTo,
    nobody_or_all,
    own_pod,
)
from agent_scheduler.engine.registration import Registration

__all__ = [
    "ALL_PODS",
    "ANYWAY",
    "ActionType",
    "AllPods",
    "Amount",
    "ArgsError",
    "Bools",
    "ByKeys",
    "ClusterEvent",
    "ClusterEventWithHint",
    "Columns",
    "Depends",
    "Filter",
    "Handle",
    "Ints",
    "NodeInfo",
    "Own",
    "PluginArgs",
    "PodClass",
    "PodIndex",
    "PodInfo",
    "PodRejected",
    "PreEnqueue",
    "QueueingHint",
    "Registration",
    "Resource",
    "Rows",
    "Score",
    "UpTo",
    "default_normalize",
    "default_normalize_reversed",
    "nobody_or_all",
    "own_pod",
]
