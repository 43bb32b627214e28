"""The flags of the sharding controller, which are Volcano's, and what they say."""

from __future__ import annotations

import argparse

from agent_scheduler.config.errors import ConfigurationError
from agent_scheduler.config.sharding import DEFAULT_SCHEDULER_CONFIGS, parse_scheduler_configs
from agent_scheduler.objects.durations import parse_duration

from .configuration import ShardingSettings
from .controller import CONFIG_MAP, NAMESPACE, ControllerSettings

SYNC_PERIOD = "60s"


def add_sharding_source(
    parser: argparse.ArgumentParser, *, usual_place: str, usual_lease_namespace: str
) -> None:
    """Where settings of the sharding controller come from, and where its schedulers' leases are. `usual_place` and
    `usual_lease_namespace` say in words where they are if no flag does."""
    parser.add_argument(
        "--sharding-configmap",
        metavar="NAME",
        help=f"ConfigMap with the key sharding.yaml (default: {usual_place})",
    )
    parser.add_argument("--sharding-configmap-namespace", metavar="NAMESPACE", help="its namespace")
    parser.add_argument(
        "--scheduler-configs",
        metavar="CONFIGS",
        help="the shards where there is no ConfigMap, deprecated: "
        f"name:type:min:max:prefer_warmup:minNodes:maxNodes,... (default: {DEFAULT_SCHEDULER_CONFIGS})",
    )
    parser.add_argument(
        "--sharding-lease-namespace",
        metavar="NAMESPACE",
        help=f"where schedulers hold the leases of their shards (default: {usual_lease_namespace})",
    )


def add_sharding_arguments(parser: argparse.ArgumentParser) -> None:
    """All of them."""
    add_sharding_source(
        parser,
        usual_place=f"{CONFIG_MAP} in {NAMESPACE}",
        usual_lease_namespace="the namespace that the process runs in, or kube-system",
    )
    parser.add_argument(
        "--sharding-fence-period",
        metavar="DURATION",
        default="1m",
        help="how long after the end of its scheduler's lease a shard that is to go is kept (default: %(default)s)",
    )
    parser.add_argument(
        "--shard-sync-period",
        metavar="DURATION",
        default=SYNC_PERIOD,
        help="time between two full syncs, where sharding.yaml says nothing else (default: %(default)s)",
    )
    parser.add_argument(
        "--enable-node-event-trigger",
        metavar="true|false",
        nargs="?",
        const="true",
        default="true",
        help="act on changes of nodes and pods at once, where sharding.yaml says nothing else (default: true)",
    )


def sharding_flags(
    args: argparse.Namespace, *, sync_period: float = 60.0, event_trigger: bool = True
) -> tuple[ShardingSettings, tuple[str, ...]]:
    """The settings where there is no ConfigMap, and what to warn of. Raises ConfigurationError."""
    text = args.scheduler_configs
    sharding = parse_scheduler_configs(DEFAULT_SCHEDULER_CONFIGS if text is None else text)
    deprecated = (
        () if text is None else ("--scheduler-configs is deprecated: use a ConfigMap with sharding.yaml",)
    )
    source = "the default shards" if text is None else "--scheduler-configs"
    return (
        ShardingSettings(sharding.plan, sync_period, event_trigger, source),
        (*deprecated, *sharding.warnings),
    )


def sharding_settings(
    args: argparse.Namespace, *, namespace: str
) -> tuple[ControllerSettings, tuple[str, ...]]:
    """All that the flags say, and what to warn of. `namespace`: that of leases, if no flag says it. Raises
    ConfigurationError."""
    flags, warnings = sharding_flags(
        args,
        sync_period=_duration("--shard-sync-period", args.shard_sync_period),
        event_trigger=_truth("--enable-node-event-trigger", args.enable_node_event_trigger),
    )
    settings = ControllerSettings(
        flags=flags,
        namespace=_given("--sharding-configmap-namespace", args.sharding_configmap_namespace, NAMESPACE),
        config_map=_given("--sharding-configmap", args.sharding_configmap, CONFIG_MAP),
        lease_namespace=_name("--sharding-lease-namespace", args.sharding_lease_namespace or namespace),
        fence=_duration("--sharding-fence-period", args.sharding_fence_period),
    )
    return settings, warnings


def _duration(flag: str, text: str) -> float:
    try:
        seconds = parse_duration(text)
    except ValueError:
        seconds = 0.0
    if seconds <= 0:
        raise ConfigurationError(
            f"{flag}: found {text!r}; allowed: a duration above 0, such as 500ms, 15s or 5m"
        )
    return seconds


def _truth(flag: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ConfigurationError(f"{flag}: found {text!r}; allowed: true, false")
    return text.lower() == "true"


def _given(flag: str, text: str | None, usual: str) -> str:
    return usual if text is None else _name(flag, text)


def _name(flag: str, text: str) -> str:
    if not text or text.split() != [text] or "/" in text:
        raise ConfigurationError(f"{flag}: found {text!r}; allowed: an object's name")
    return text
