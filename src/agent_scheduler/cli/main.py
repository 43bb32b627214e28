"""The command line: one program, a command for each thing it can be.

A command's module is imported, and its flags are made, only when that command is the one that was asked for: the
modules of all commands take many times as long as what most of them do.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from agent_scheduler import __version__

#: By name: the module with `add_arguments` and `main`, and what the list of commands says of it.
_COMMANDS = {
    "run": ("agent_scheduler.config.flags", "schedule the pods of a cluster"),
    "explain": ("agent_scheduler.cli.explain", "say why a pod waits, or where it went"),
    "top": ("agent_scheduler.cli.top", "watch a scheduler at work"),
    "nodes": ("agent_scheduler.cli.nodes", "show what every node offers, and what of it is taken"),
    "check": (
        "agent_scheduler.cli.check",
        "have a scheduler compare what it knows with the cluster",
    ),
    "controllers": (
        "agent_scheduler.cli.controllers",
        "run controllers, such as the one that divides nodes into shards",
    ),
    "webhook": (
        "agent_scheduler.cli.webhook",
        "serve admission: gates of pods, defaults and checks of queues and pod groups",
    ),
    "shards": (
        "agent_scheduler.cli.shards",
        "show which nodes are in which shard, or what would move",
    ),
    "queues": ("agent_scheduler.cli.queues", "show the tree of queues, and what is allocated in each"),
    "job": ("agent_scheduler.cli.jobs", "run, show, suspend, resume and delete jobs of Volcano's kind"),
    "completion": (
        "agent_scheduler.cli.completion",
        "print a script that completes commands and flags in a shell",
    ),
    "bench": ("bench.command", "measure how well policies fill a cluster"),
    "cluster": ("embedded_kubernetes.cluster", "serve an embedded Kubernetes API with simulated nodes"),
    "demo": (
        "bench.demo.command",
        "run cluster, scheduler and a workload, and show what happens",
    ),
}
#: Commands of other distributions, by name. Where the distribution is not installed, the list of commands and the
#: command itself say what to install. Each is also the name of an extra of agent-scheduler.
_FOREIGN = {
    "bench": "agent-scheduler-bench",
    "cluster": "embedded-kubernetes",
    "demo": "agent-scheduler-bench",
}


class _Command(argparse.ArgumentParser):
    """The parser of one command, which gets its arguments when it first parses."""

    #: The key in `_COMMANDS`.
    name = ""
    _filled = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if not _is_installed(self.name):
            # Whatever flags it was given: its parser is not known here.
            found = argparse.Namespace() if namespace is None else namespace
            found.main = partial(_not_installed, self.name)
            return found, []
        if not self._filled:
            self._filled = True
            _fill(self, self.name)
        return super().parse_known_args(args, namespace)


def whole_parser() -> argparse.ArgumentParser:
    """With the arguments of every command, which takes long to load."""
    return _parser(filled=True)


def _parser(*, filled: bool = False) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="agent-scheduler",
        description="A Kubernetes scheduler for AI-agent workloads: bursts of small pods, bound at once.",
    )
    _add_version(parser)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=_Command)
    for name, (_, text) in _COMMANDS.items():
        if not _is_installed(name):
            text += f" (pip install {_FOREIGN[name]})"
        command = commands.add_parser(name, help=text, allow_abbrev=False)
        command.name = name
        if filled and _is_installed(name):
            _fill(command, name)
    return parser


def _add_version(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--version", action="version", version=f"agent-scheduler {__version__}")


def _fill(command: argparse.ArgumentParser, name: str) -> None:
    """Gives a command its arguments, and what carries it out as the default of `main`."""
    with _uncollected():
        module = import_module(_COMMANDS[name][0])
    if name == "run":
        module.add_run_arguments(command)
        _add_version(command)
        command.set_defaults(main=_run)
        return
    module.add_arguments(command)
    command.set_defaults(main=module.main)


def _is_installed(command: str) -> bool:
    """Whether the distribution that the command is part of is installed. Imports nothing."""
    if command not in _FOREIGN:
        return True
    found = find_spec(_COMMANDS[command][0].partition(".")[0])
    # A folder of the same name in the working directory is a namespace package, which has no origin.
    return found is not None and found.origin is not None


def _not_installed(command: str, _args: argparse.Namespace) -> int:
    print(
        f"agent-scheduler {command}: this command is part of {_FOREIGN[command]}, which is not installed; "
        f"install it with: pip install 'agent-scheduler[{command}]'",
        file=sys.stderr,
    )
    return 1


@contextmanager
def _uncollected() -> Iterator[None]:
    """For imports: no garbage is collected meanwhile, nor later looked for in what there is then. What is imported
    stays, so that a collection would find nothing; those that come meanwhile are a tenth of the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was:
            gc.enable()


def _run(args: argparse.Namespace) -> int:
    with _uncollected():
        import asyncio

        import uvloop

        from agent_scheduler.config.load import Source, write
        from agent_scheduler.kube.credentials import KubeConfigError
        from agent_scheduler.process.runtime import Runtime
        from agent_scheduler.telemetry.logs import get_logger, setup
        from apimachinery.errors import ConfigurationError

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
    except (ConfigurationError, KubeConfigError) as error:
        print(f"agent-scheduler run: {error}", file=sys.stderr)
        return 2


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code."""
    args = _parser().parse_args(argv)
    code: int = args.main(args)
    return code
