"""The stable names for plugins of other distributions; docs/plugins.md has an example."""

from agent_scheduler.engine.events.events import ActionType, ClusterEvent, Resource
from agent_scheduler.engine.events.hints import ClusterEventWithHint, QueueingHint
from agent_scheduler.engine.events.prehints import (
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
from agent_scheduler.engine.framework.args import ArgsError, PluginArgs
from agent_scheduler.engine.framework.handle import Handle
from agent_scheduler.engine.framework.plugin import (
    CleanupReservations,
    Depends,
    Filter,
    PodRejected,
    PreEnqueue,
    Score,
    default_normalize,
    default_normalize_reversed,
)
from agent_scheduler.engine.framework.prebind import (
    Attempt,
    Permit,
    PreBind,
    Rejected,
    Reserve,
    Wait,
    WaitingPod,
    Writes,
)
from agent_scheduler.engine.framework.registration import Registration
from agent_scheduler.engine.state.columns import Bools, Columns, Ints, Rows
from agent_scheduler.engine.state.nodeinfo import NodeInfo
from agent_scheduler.engine.state.podclass import PodClass
from agent_scheduler.engine.state.podinfo import PodInfo

__all__ = [
    "ALL_PODS",
    "ANYWAY",
    "ActionType",
    "AllPods",
    "Amount",
    "ArgsError",
    "Attempt",
    "Bools",
    "ByKeys",
    "CleanupReservations",
    "ClusterEvent",
    "ClusterEventWithHint",
    "Columns",
    "Depends",
    "Filter",
    "Handle",
    "Ints",
    "NodeInfo",
    "Own",
    "Permit",
    "PluginArgs",
    "PodClass",
    "PodIndex",
    "PodInfo",
    "PodRejected",
    "PreBind",
    "PreEnqueue",
    "QueueingHint",
    "Registration",
    "Rejected",
    "Reserve",
    "Resource",
    "Rows",
    "Score",
    "UpTo",
    "Wait",
    "WaitingPod",
    "Writes",
    "default_normalize",
    "default_normalize_reversed",
    "nobody_or_all",
    "own_pod",
]
