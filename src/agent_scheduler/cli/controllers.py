"""The command line of `agent-scheduler controllers`."""

from __future__ import annotations

import argparse
import asyncio
import sys

from agent_scheduler.config.errors import ConfigurationError
from agent_scheduler.kube.credentials import KubeConfigError
from agent_scheduler.process.controller_flags import add_arguments, settings_of
from agent_scheduler.process.controllers import ControllersProcess
from agent_scheduler.telemetry.logs import get_logger, setup

__all__ = ["add_arguments", "main"]


def main(args: argparse.Namespace) -> int:
    try:
        settings = settings_of(args)
    except ConfigurationError as error:
        return _fail(error)
    setup(level=settings.logging.level, log_format=settings.logging.format)
    for warning in settings.warnings:
        get_logger("config").warning("without effect", setting=warning)

    async def run() -> int:
        return await ControllersProcess(settings).run()

    import uvloop

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(run())
    except KubeConfigError as error:
        return _fail(error)


def _fail(error: Exception) -> int:
    print(f"agent-scheduler controllers: {error}", file=sys.stderr)
    return 2
