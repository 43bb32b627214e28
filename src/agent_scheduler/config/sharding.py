"""The configuration of the sharding controller: Volcano's `sharding.yaml`, and the older form of its flags.

What cannot be used is refused whole, with one message that says where it stands, what was found and what is allowed.
"""

from __future__ import annotations

from agent_scheduler.config.schema import Section
from agent_scheduler.engine.shards.settings import PlanSettings

#: The key of the ConfigMap.
FILE = "sharding.yaml"

#: Of `--scheduler-configs`, as Volcano has it.
DEFAULT_SCHEDULER_CONFIGS = "volcano:volcano:0.0:0.6:false:2:100,agent-scheduler:agent:0.7:1.0:true:2:100"


class Sharding(Section, frozen=True, kw_only=True):
    """The whole. None: the file says nothing of it, and the controller's flag holds."""

    plan: PlanSettings
    #: Seconds between two full syncs.
    sync_period: float | None = None
    #: Whether a change of a node or a pod makes a plan at once; otherwise only the period does.
    node_event_trigger: bool | None = None
    #: What was read and has no effect, or is deprecated, each with its place: for the log.
    warnings: tuple[str, ...] = ()


def load_sharding(text: str, *, source: str) -> Sharding:
    """What the text of `sharding.yaml` says. `source` names it in errors: `configmap volcano-system/x, sharding.yaml`.

    Raises ConfigurationError with one complete message, for an empty text and an empty list of shards, too.
    """
    raise NotImplementedError


def parse_scheduler_configs(text: str) -> Sharding:
    """What the flag `--scheduler-configs` says: `name:type:min:max:prefer_warmup:minNodes:maxNodes,...`, where min and
    max are the range of CPU utilisation.

    Raises ConfigurationError, which names the flag and the part.
    """
    raise NotImplementedError
