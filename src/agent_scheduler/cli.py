"""The command line: one program, a command for each thing it can be."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from importlib.metadata import version


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="agent-scheduler",
        description="A Kubernetes scheduler for AI-agent workloads: bursts of small pods, bound at once.",
    )
    _add_version(parser)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    from agent_scheduler.config import add_run_arguments

    run = commands.add_parser("run", help="schedule the pods of a cluster", allow_abbrev=False)
    add_run_arguments(run)
    _add_version(run)
    run.set_defaults(main=_run)
    from agent_scheduler.explaining import command as explaining

    explain = commands.add_parser("explain", help="say why a pod waits, or where it went", allow_abbrev=False)
    explaining.add_arguments(explain)
    explain.set_defaults(main=explaining.main)
    from agent_scheduler.explaining import checking

    check = commands.add_parser(
        "check", help="have a scheduler compare what it knows with the cluster", allow_abbrev=False
    )
    checking.add_arguments(check)
    check.set_defaults(main=checking.main)
    from agent_scheduler.controlling import command as controlling

    controllers = commands.add_parser(
        "controllers",
        help="run controllers, such as the one that divides nodes into shards",
        allow_abbrev=False,
    )
    controlling.add_arguments(controllers)
    controllers.set_defaults(main=controlling.main)
    from agent_scheduler.shardmap import command as shardmap

    shards = commands.add_parser(
        "shards", help="show which nodes are in which shard, or what would move", allow_abbrev=False
    )
    shardmap.add_arguments(shards)
    shards.set_defaults(main=shardmap.main)
    _add_optional(commands, "cluster", "serve an embedded Kubernetes API with simulated nodes")
    _add_optional(commands, "demo", "run cluster, scheduler and a workload, and show what happens")
    return parser


def _add_version(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--version", action="version", version=f"agent-scheduler {version('agent-scheduler')}"
    )


def _add_optional(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, text: str
) -> None:
    """A command whose libraries are an extra: without them it is listed, and says what to install when used."""
    command = commands.add_parser(name, help=text, allow_abbrev=False)
    try:
        if name == "cluster":
            from agent_scheduler.apiserver import cluster as module
        else:
            from agent_scheduler.demo import command as module  # type: ignore[no-redef]
    except ModuleNotFoundError as error:
        missing = error.name or str(error)
        if missing.startswith("agent_scheduler"):
            raise
        command.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
        command.set_defaults(main=lambda args: _missing(name, missing))
        return
    module.add_arguments(command)
    command.set_defaults(main=module.main)


def _missing(command: str, module: str) -> int:
    print(
        f"agent-scheduler {command}: the library {module} is not installed; "
        f"install agent-scheduler[{command}] to use this command",
        file=sys.stderr,
    )
    return 1


def _run(args: argparse.Namespace) -> int:
    import uvloop

    from agent_scheduler.config import ConfigurationError, Source, write
    from agent_scheduler.kube.credentials import KubeConfigError
    from agent_scheduler.runtime import Runtime
    from agent_scheduler.serving.http import ServingError
    from agent_scheduler.telemetry.logs import get_logger, setup

    source = Source(args)
    warnings: list[str] = []
    try:
        configuration = source.load(warn=warnings.append)
        if args.write_config_to is not None:
            write(configuration, args.write_config_to)
            return 0
    except ConfigurationError as error:
        print(f"agent-scheduler run: {error}", file=sys.stderr)
        return 2
    setup(level=configuration.logging.level, log_format=configuration.logging.format)
    for warning in warnings:
        get_logger("config").warning("without effect", setting=warning)

    async def run() -> int:
        return await Runtime(configuration, source=source).run()

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(run())
    except (KubeConfigError, ServingError) as error:
        print(f"agent-scheduler run: {error}", file=sys.stderr)
        return 2


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code."""
    args = _parser().parse_args(argv)
    code: int = args.main(args)
    return code
