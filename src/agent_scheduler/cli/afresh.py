"""A pod explained without a scheduler: the cluster is listed, and the decision made anew, here; nothing is written.

What only a running scheduler knows is left out: its attempts so far, backoffs, and what it assumes of binds under way.
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
from agent_scheduler.fastpath.scheduler import FastPath
from agent_scheduler.fastpath.settings import settings_of
from agent_scheduler.kube.auth import load_endpoint
from agent_scheduler.kube.credentials import KubeConfigError
from agent_scheduler.kube.http1 import Http1Transport
from agent_scheduler.kube.retry import REAL
from agent_scheduler.kube.waiting import InputsRefused
from agent_scheduler.telemetry.logs import setup
from agent_scheduler.telemetry.metrics import Metrics
from agent_scheduler.telemetry.observers import FastPathObserver

from .reach import Unreachable

#: Seconds in which everything has to be listed.
PATIENCE: Final = 60.0
_NOTE: Final = "decided afresh by this command; what a scheduler has tried is not known here"


async def explain(
    namespace: str, name: str, configuration: Configuration, kubeconfig: Path | None
) -> Mapping[str, Any]:
    """The page about a pod, as /debug/explain answers. Raises Unreachable."""
    setup(level="error", log_format="console")
    try:
        endpoint = load_endpoint(kubeconfig=kubeconfig)
    except KubeConfigError as error:
        raise Unreachable(str(error)) from error
    transport = Http1Transport(endpoint)
    observer = FastPathObserver(
        Metrics(version=__version__), clock=REAL.clock, policy=configuration.conflict_policy
    )
    settings = settings_of(configuration, identity="agent-scheduler explain")
    fast_path = FastPath(settings, transport=transport, observer=observer)
    watching = asyncio.create_task(fast_path.watch())
    try:
        async with asyncio.timeout(PATIENCE):
            await fast_path.synced()
    except InputsRefused as error:
        raise Unreachable(f"{endpoint.base_url}: {error}") from None
    except TimeoutError:
        missing = ", ".join(fast_path.missing)
        raise Unreachable(
            f"{endpoint.base_url} did not list {missing} within {PATIENCE:g} s; you need the rights of a scheduler: "
            "get, list and watch them"
        ) from None
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
        await transport.close()
    return {**fast_path.explainer.pod(namespace, name), "note": _NOTE}


def configuration_of(file: Path | None) -> Configuration:
    """Raises ConfigurationError, and OSError for a file that cannot be read."""
    if file is None:
        return load_text("{apiVersion: agent-scheduler/v1, kind: SchedulerConfiguration}")
    return load_text(file.read_text(encoding="utf-8"), source=str(file))
