"""Commands that run a process of their own, from the settings to the exit code."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from agent_scheduler.config.schema import Logging
from agent_scheduler.telemetry.logs import get_logger, setup
from apimachinery.errors import ConfigurationError
from kube_client.credentials import KubeConfigError

from .outputs import complain


class ProcessSettings(Protocol):
    @property
    def logging(self) -> Logging: ...
    @property
    def warnings(self) -> tuple[str, ...]:
        """Deprecated or ineffective settings, for the log."""


SettingsT = TypeVar("SettingsT", bound=ProcessSettings)


def run_process(
    command: str, read: Callable[[], SettingsT], run: Callable[[SettingsT], Coroutine[Any, Any, int]]
) -> int:
    """Run a process and return the exit code; 2 if `read` raises ConfigurationError or `run` KubeConfigError."""
    try:
        settings = read()
    except ConfigurationError as error:
        return _fail(command, error)
    setup(level=settings.logging.level, log_format=settings.logging.format)
    for warning in settings.warnings:
        get_logger("config").warning("without effect", setting=warning)

    async def running() -> int:
        return await run(settings)

    import uvloop

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(running())
    except KubeConfigError as error:
        return _fail(command, error)


def _fail(command: str, error: Exception) -> int:
    complain(command, error)
    return 2
