"""Explains a pod without a running scheduler: lists the cluster and makes the decision here. Nothing is written.

The state of running schedulers is missing: previous attempts, backoffs, and assumed pods whose binds are in progress.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from agent_scheduler import __version__
from agent_scheduler.config.load import load_text
from agent_scheduler.config.schema import Configuration
from agent_scheduler.fastpath.scheduler import FastPath, Receivers
from agent_scheduler.fastpath.settings import settings_of
from agent_scheduler.telemetry.logs import setup
from agent_scheduler.telemetry.metrics import Metrics
from agent_scheduler.telemetry.observers import MetricsObserver
from kube_client.retry import REAL
from kube_client.transport import Endpoint

from .listing import connected
from .reach import Unreachable

#: Seconds in which everything must be listed.
PATIENCE: Final = 60.0
#: Seconds between looks for a failed list, and for which the lists of other kinds may fail afterwards.
_LOOK: Final = 0.1
_NOTE: Final = "decided by this command; the attempts of running schedulers are unknown here"


async def explain(namespace: str, name: str, configuration: Configuration, endpoint: Endpoint) -> Mapping[str, Any]:
    """Return the page about a pod, as /debug/explain does. Raises Unreachable."""
    setup(level="error", log_format="console")
    async with connected(endpoint) as transport:
        observer = MetricsObserver(Metrics(version=__version__), clock=REAL.clock, policy=configuration.conflict_policy)
        settings = settings_of(configuration, identity="agent-scheduler explain")
        fast_path = FastPath(settings, transport=transport, receivers=Receivers(observer))
        watching = asyncio.create_task(fast_path.watch())
        try:
            async with asyncio.timeout(PATIENCE):
                await _synced(fast_path, endpoint.base_url)
        except TimeoutError:
            missing = ", ".join(fast_path.missing)
            raise Unreachable(f"{endpoint.base_url} did not list {missing} within {PATIENCE:g} s") from None
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching
    return {**fast_path.explainer.pod(namespace, name), "note": _NOTE}


async def _synced(fast_path: FastPath, server: str) -> None:
    """Return once everything is listed. Raises Unreachable if lists keep failing, which a scheduler would retry."""
    syncing = asyncio.create_task(fast_path.synced())
    try:
        while not (await asyncio.wait({syncing}, timeout=_LOOK))[0]:
            if fast_path.problem:
                await asyncio.sleep(_LOOK)
                if problem := fast_path.problem:
                    raise Unreachable(f"{server}: {problem}")
        await syncing
    finally:
        syncing.cancel()


def configuration_of(file: Path | None) -> Configuration:
    """Load the configuration file. Raises ConfigurationError, and OSError for an unreadable file."""
    if file is None:
        return load_text("{apiVersion: agent-scheduler/v1, kind: SchedulerConfiguration}")
    return load_text(file.read_text(encoding="utf-8"), source=str(file))
