"""The flags of the sharding controller, which are Volcano's."""

from __future__ import annotations

import argparse

from agent_scheduler.config.flag_values import duration, object_name, truth
from agent_scheduler.config.sharding import DEFAULT_SCHEDULER_CONFIGS, parse_scheduler_configs

from .configuration import ShardingSettings
from .controller import CONFIG_MAP, NAMESPACE, ControllerSettings

SYNC_PERIOD = "60s"


def add_sharding_source(parser: argparse.ArgumentParser, *, usual_place: str, usual_lease_namespace: str) -> None:
    """Add the flags for the place of its settings and of its schedulers' leases.

    `usual_place` and `usual_lease_namespace` describe the defaults in the help text.
    """
    parser.add_argument(
        "--sharding-configmap", metavar="NAME", help=f"ConfigMap with the key sharding.yaml (default: {usual_place})"
    )
    parser.add_argument("--sharding-configmap-namespace", metavar="NAMESPACE", help="its namespace")
    parser.add_argument(
        "--scheduler-configs",
        metavar="CONFIGS",
        help="the shards if there is no ConfigMap, deprecated: "
        f"name:type:min:max:prefer_warmup:minNodes:maxNodes,... (default: {DEFAULT_SCHEDULER_CONFIGS})",
    )
    parser.add_argument(
        "--sharding-lease-namespace",
        metavar="NAMESPACE",
        help=f"namespace of the leases of schedulers' shards (default: {usual_lease_namespace})",
    )


def add_sharding_arguments(parser: argparse.ArgumentParser) -> None:
    """Add all flags of the sharding controller."""
    add_sharding_source(
        parser,
        usual_place=f"{CONFIG_MAP} in {NAMESPACE}",
        usual_lease_namespace="the namespace that the process runs in, or agent-scheduler",
    )
    parser.add_argument(
        "--sharding-fence-period",
        metavar="DURATION",
        default="1m",
        help="time for which a removed shard is kept after the end of its scheduler's lease (default: %(default)s)",
    )
    parser.add_argument(
        "--shard-sync-period",
        metavar="DURATION",
        default=SYNC_PERIOD,
        help="time between two full syncs, unless sharding.yaml sets it (default: %(default)s)",
    )
    parser.add_argument(
        "--enable-node-event-trigger",
        metavar="true|false",
        nargs="?",
        const="true",
        default="true",
        help="act on changes of nodes and pods immediately, unless sharding.yaml sets it (default: true)",
    )


def sharding_flags(
    args: argparse.Namespace, *, sync_period: float = 60.0, event_trigger: bool = True
) -> tuple[ShardingSettings, tuple[str, ...]]:
    """Return the settings for use without a ConfigMap, and warnings. Raises ConfigurationError."""
    text = args.scheduler_configs
    sharding = parse_scheduler_configs(DEFAULT_SCHEDULER_CONFIGS if text is None else text)
    deprecated = () if text is None else ("--scheduler-configs is deprecated: use a ConfigMap with sharding.yaml",)
    source = "the default shards" if text is None else "--scheduler-configs"
    return (ShardingSettings(sharding.plan, sync_period, event_trigger, source), (*deprecated, *sharding.warnings))


def sharding_settings(args: argparse.Namespace, *, namespace: str) -> tuple[ControllerSettings, tuple[str, ...]]:
    """Return all settings, and warnings. Raises ConfigurationError.

    `namespace` is that of leases if no flag sets it.
    """
    flags, warnings = sharding_flags(
        args,
        sync_period=duration("--shard-sync-period", args.shard_sync_period),
        event_trigger=truth("--enable-node-event-trigger", args.enable_node_event_trigger),
    )
    settings = ControllerSettings(
        flags=flags,
        namespace=_given("--sharding-configmap-namespace", args.sharding_configmap_namespace, NAMESPACE),
        config_map=_given("--sharding-configmap", args.sharding_configmap, CONFIG_MAP),
        lease_namespace=object_name("--sharding-lease-namespace", args.sharding_lease_namespace or namespace),
        fence=duration("--sharding-fence-period", args.sharding_fence_period),
    )
    return settings, warnings


def _given(flag: str, text: str | None, usual: str) -> str:
    return usual if text is None else object_name(flag, text)
