"""The command line: one program with several commands.

A command's module is imported, and its flags are created, only for the requested command, because the modules of all
commands take many times longer to load than most commands take to run.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from agent_scheduler import DOCUMENTATION, __version__

from .program import program

#: The exit code after Ctrl-C.
INTERRUPTED = 130
#: For each command: the module with `add_arguments` and `main`, and the help text.
_COMMANDS = {
    "run": ("agent_scheduler.config.flags", "schedule the pods of a cluster"),
    "explain": ("agent_scheduler.cli.explain", "explain why a pod is waiting, or where it was scheduled"),
    "top": ("agent_scheduler.cli.top", "show live statistics of a scheduler"),
    "nodes": ("agent_scheduler.cli.nodes", "show the allocatable and the requested resources of every node"),
    "check": ("agent_scheduler.cli.check", "compare the state of a scheduler with the cluster"),
    "controllers": ("agent_scheduler.cli.controllers", "run controllers, such as the sharding controller"),
    "webhook": ("agent_scheduler.cli.webhook", "serve admission webhooks for pods, queues, pod groups and jobs"),
    "shards": ("agent_scheduler.cli.shards", "show the shards and their nodes, or the planned changes"),
    "queues": ("agent_scheduler.cli.queues", "show the tree of queues and their allocated resources"),
    "job": ("agent_scheduler.cli.jobs", "run, show, suspend, resume and delete Volcano jobs"),
    "completion": ("agent_scheduler.cli.completion", "print a shell completion script for commands and flags"),
    "bench": ("bench.command", "measure how well policies fill a cluster"),
    "cluster": ("embedded_kubernetes.cluster", "serve an embedded Kubernetes API with simulated nodes"),
    "demo": ("bench.demo.command", "run an embedded cluster, a scheduler and a workload, and show the result"),
}
#: Commands of other distributions, and their distribution. If it is not installed, the list of commands and the
#: command itself say what to install. Each name is also an extra of agent-scheduler.
_FOREIGN = {"bench": "agent-scheduler-bench", "cluster": "embedded-kubernetes", "demo": "agent-scheduler-bench"}


class _Command(argparse.ArgumentParser):
    """The parser of one command, which gets its arguments on first use."""

    #: The key in `_COMMANDS`.
    name = ""
    _filled = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        missing = "" if self._filled else _fill(self, self.name)
        self._filled = not missing
        if missing:
            # Any flags are accepted, because the command's parser is not available.
            found = argparse.Namespace() if namespace is None else namespace
            found.main = partial(_not_installed, self.name, missing)
            return found, []
        return super().parse_known_args(args, namespace)


def whole_parser() -> argparse.ArgumentParser:
    """Return the parser with the arguments of every command, which is slow to load."""
    return _parser(filled=True)


def parser_of(words: Sequence[str]) -> argparse.ArgumentParser:
    """Return the parser with the arguments of the command that `words` begin with, if there is one."""
    return _parser(only=next((word for word in words if not word.startswith("-")), ""))


def _parser(*, filled: bool = False, only: str = "") -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=program(),
        description="A Kubernetes scheduler for AI-agent workloads: bursts of small pods, bound at once.",
        epilog=f"Documentation of this version: {DOCUMENTATION}",
    )
    _add_version(parser)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=_Command)
    for name, (_, text) in _COMMANDS.items():
        if not _is_installed(name):
            text += f" (pip install {_FOREIGN[name]})"
        command = commands.add_parser(name, help=text, allow_abbrev=False)
        command.name = name
        if filled or name == only:
            _fill(command, name)
    return parser


def _add_version(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--version", action="version", version=f"agent-scheduler {__version__}")


def _fill(command: argparse.ArgumentParser, name: str) -> str:
    """Add a command's arguments, and its main function as the default of `main`.

    Returns the name of what is not installed, and then adds nothing; it is empty if nothing is missing.
    """
    if not _is_installed(name):
        return _FOREIGN[name]
    try:
        with _uncollected():
            module = import_module(_COMMANDS[name][0])
    except ModuleNotFoundError as error:
        if name not in _FOREIGN:
            raise
        return error.name or str(error)
    if name == "run":
        module.add_run_arguments(command)
        _add_version(command)
        command.set_defaults(main=_run)
        return ""
    module.add_arguments(command)
    command.set_defaults(main=module.main)
    return ""


def _is_installed(command: str) -> bool:
    """Return whether the command's distribution is installed. It imports nothing."""
    if command not in _FOREIGN:
        return True
    found = find_spec(_COMMANDS[command][0].partition(".")[0])
    # A folder of the same name in the working directory is a namespace package, which has no origin.
    return found is not None and found.origin is not None


def _not_installed(command: str, missing: str, _args: argparse.Namespace) -> int:
    from agent_scheduler.cli.outputs import complain

    complain(
        command,
        f"this command needs {missing}, which is not installed; "
        f"install it with: pip install 'agent-scheduler[{command}]'",
    )
    return 1


@contextmanager
def _uncollected() -> Iterator[None]:
    """Pause garbage collection during imports, and exclude their objects from it afterwards.

    Imported objects stay, so a collection would find nothing, and would take a tenth of the loading time.
    """
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

        from agent_scheduler.cli.outputs import complain
        from agent_scheduler.config.load import ConfigurationSource, write
        from agent_scheduler.process.scheduler import SchedulerProcess
        from agent_scheduler.telemetry.logs import get_logger, setup
        from apimachinery.errors import ConfigurationError
        from kube_client.credentials import KubeConfigError

    source = ConfigurationSource(args)
    warnings: list[str] = []
    try:
        configuration = source.load(warn=warnings.append)
        if args.write_config_to is not None:
            write(configuration, args.write_config_to)
            return 0
    except ConfigurationError as error:
        complain("run", error)
        return 2
    setup(level=configuration.logging.level, log_format=configuration.logging.format)
    for warning in warnings:
        get_logger("config").warning("without effect", setting=warning)

    async def run() -> int:
        return await SchedulerProcess(configuration, source=source).run()

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(run())
    except (ConfigurationError, KubeConfigError) as error:
        complain("run", error)
        return 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code, which is 130 after Ctrl-C, also while modules load."""
    try:
        args = _parser().parse_args(argv)
        code: int = args.main(args)
    except KeyboardInterrupt:
        return INTERRUPTED
    return code
