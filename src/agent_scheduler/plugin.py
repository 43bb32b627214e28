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
from agent_scheduler.engine.registration import Registration

__all__ = [
    "ActionType",
    "ArgsError",
    "Bools",
    "ClusterEvent",
    "ClusterEventWithHint",
    "Columns",
    "Depends",
    "Filter",
    "Handle",
    "Ints",
    "NodeInfo",
    "PluginArgs",
    "PodClass",
    "PodInfo",
    "PodRejected",
    "PreEnqueue",
    "QueueingHint",
    "Registration",
    "Resource",
    "Rows",
    "Score",
    "default_normalize",
    "default_normalize_reversed",
]
