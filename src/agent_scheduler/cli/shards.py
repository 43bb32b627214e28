"""The command line of `agent-scheduler shards` and `agent-scheduler shards plan`.

Exit codes: 0, or 2 with one line on standard error for wrong usage or if the cluster cannot be read.
"""

from __future__ import annotations

import argparse
import asyncio
from datetime import UTC, datetime
from pathlib import Path

from agent_scheduler.config.sharding import FILE, load_sharding
from agent_scheduler.controllers.sharding.configuration import ShardingSettings, complete, read
from agent_scheduler.controllers.sharding.controller import CONFIG_MAP, NAMESPACE
from agent_scheduler.controllers.sharding.flags import add_sharding_source, sharding_flags
from apimachinery.errors import ConfigurationError
from kube_client.credentials import KubeConfigError
from kube_client.transport import Transport

from . import shard_plan, shard_view
from . import shard_reading as reading
from .clusters import add_cluster, endpoint_of
from .listing import ReadError, connected
from .outputs import PROGRAMS, add_output, complain, dumped, show

FAILED = 2
#: Namespace and name of the ConfigMap: as in config/controllers, then the default of Volcano and of the controller.
#: Without flags the first existing one is used.
PLACES = (("agent-scheduler", "agent-scheduler-sharding"), (NAMESPACE, CONFIG_MAP))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what",
        nargs="?",
        choices=("plan",),
        help="plan: show what the sharding controller would do, without writing (default: show the shards)",
    )
    add_cluster(parser)
    add_output(parser)
    parser.add_argument("--nodes", action="store_true", help="show a line per node with its shards")
    parser.add_argument(
        "--sharding-config", metavar="FILE", type=Path, help="plan with this sharding.yaml instead of the ConfigMap"
    )
    add_sharding_source(
        parser,
        usual_place=" or ".join(f"{name} in {namespace}" for namespace, name in PLACES),
        usual_lease_namespace="any",
    )


def main(args: argparse.Namespace) -> int:
    plans = args.what == "plan"
    try:
        if plans and (args.nodes or args.output == "wide"):
            return _fail("plan: does not support --nodes and -o wide; allowed: -o table, -o json, -o yaml")
        if not plans and args.sharding_config is not None:
            return _fail("--sharding-config: needs plan")
        given = _of_file(args) if args.sharding_config is not None else None
        endpoint = endpoint_of(args)

        async def read() -> str:
            async with connected(endpoint) as transport:
                return await (_plan(transport, args, given) if plans else _show(transport, args))

        shown = asyncio.run(read())
    except (ConfigurationError, KubeConfigError, ReadError) as error:
        return _fail(str(error))
    show(shown)
    return 0


async def _show(transport: Transport, args: argparse.Namespace) -> str:
    shards = await reading.shards(transport)
    if args.nodes:
        nodes = await reading.nodes(transport)
        if args.output in PROGRAMS:
            return dumped({"nodes": shard_view.plain_nodes(shards, nodes)}, args.output)
        return shard_view.text_of_nodes(shards, nodes)
    holders = await reading.holders(transport, args.sharding_lease_namespace, [shard.name for shard in shards])
    if args.output in PROGRAMS:
        return dumped({"shards": shard_view.plain(shards, holders)}, args.output)
    for name, holder in holders.items():
        if holder.problem:
            complain("shards", f"the holder of {name} is unknown: {holder.problem}")
    if not shards:
        complain("shards", "there are no shards")
    return shard_view.text(shards, holders, now=datetime.now(UTC), wide=args.output == "wide")


async def _plan(transport: Transport, args: argparse.Namespace, given: ShardingSettings | None) -> str:
    settings = given or await _configured(transport, args)
    shards = await reading.shards(transport)
    nodes, pods = await asyncio.gather(reading.nodes(transport), reading.pods(transport))
    seen = shard_plan.outlook(settings, shards=shards, nodes=nodes, pods=pods)
    if args.output in PROGRAMS:
        return dumped(shard_plan.plain(seen), args.output)
    return shard_plan.text(seen)


def _of_file(args: argparse.Namespace) -> ShardingSettings:
    """Read the settings from a file. Raises ConfigurationError."""
    file: Path = args.sharding_config
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"--sharding-config {file}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"--sharding-config {file}: not UTF-8 text: {error.reason}") from None
    flags, _ = sharding_flags(args)
    return complete(load_sharding(text, source=str(file)), flags, source=str(file))


async def _configured(transport: Transport, args: argparse.Namespace) -> ShardingSettings:
    """Return the settings of a controller that would start now. Raises ConfigurationError and ReadError."""
    flags, _ = sharding_flags(args)
    places: tuple[tuple[str, str], ...] = PLACES
    if args.sharding_configmap_namespace or args.sharding_configmap:
        places = ((args.sharding_configmap_namespace or NAMESPACE, args.sharding_configmap or CONFIG_MAP),)
    for namespace, name in places:
        found = await reading.config_map(transport, namespace, name)
        if found is not None:
            break
    else:
        missing = " or ".join("/".join(place) for place in places)
        return flags._replace(source=f"{flags.source}, because there is no ConfigMap {missing}")
    source = f"ConfigMap {namespace}/{name}, {FILE}"
    return complete(read(found, source=source), flags, source=source)


def _fail(problem: str) -> int:
    complain("shards", problem)
    return FAILED
