"""The common part of the processes of schedulers, controllers and webhooks: start, end and exit code."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

from agent_scheduler import __version__
from agent_scheduler.serving.sources import ServingError
from agent_scheduler.telemetry.logs import FilteringBoundLogger, get_logger
from agent_scheduler.telemetry.pauses import GcPolicy, LoopLag
from agent_scheduler.telemetry.process import ProcessMetrics
from agent_scheduler.telemetry.step_file import StepFile
from kube_client.auth import load_endpoint
from kube_client.budget import Budget
from kube_client.errors import StoreWentBack
from kube_client.http1 import Http1Transport
from kube_client.lease import boottime
from kube_client.leases import LeaseLost, Leases
from kube_client.recorder import EventRecorder, EventSettings, Reporter
from kube_client.retry import REAL, Timing
from kube_client.transport import Endpoint, Transport
from kube_client.waiting import InputsRefused


class Process:
    """A process. `run` may be called once."""

    metrics: ProcessMetrics

    def __init__(
        self,
        name: str,
        *,
        kubeconfig: str,
        endpoint: Endpoint | None = None,
        transport: Transport | None = None,
        timing: Timing | None = None,
        identity: str = "",
        abort: Callable[[int], object] = os._exit,
    ) -> None:
        """`name` is that of the logger. Without an `endpoint`, `load_endpoint` uses `kubeconfig`, a path or empty.

        `abort` ends the process immediately, without cleanup.

        With a `transport` there is no endpoint, and requests use the transport. Then the interpreter may run several
        such processes, so the garbage collector is left alone, and `timing` and `identity` are specific to this one.

        Raises KubeConfigError.
        """
        if endpoint is None and transport is None:
            endpoint = load_endpoint(kubeconfig=Path(kubeconfig) if kubeconfig else None)
        self._endpoint = endpoint or Endpoint("", source="given transport")
        self._transport = transport
        self._timing = timing or REAL
        self._lease_timing = timing or Timing(clock=boottime)
        self._identity = identity or f"{socket.gethostname()}_{uuid.uuid4()}"
        self._abort = abort
        self._log = get_logger(name)
        self._stopping = asyncio.Event()
        #: The leases that this process must hold to write.
        self.leases = Leases({}, identity=self._identity)

    def stop(self) -> None:
        """Begin an orderly shutdown; `run` returns when it is complete."""
        self._stopping.set()

    def _overrun(self) -> None:
        self._abort(1)

    def _connect(self, stack: AsyncExitStack, *, connections: int) -> tuple[Transport, GcPolicy | None]:
        """Return the transport, which lives until `stack` ends, and the garbage collector's policy.

        The transport uses at most `connections` for everything except watches. The policy is None if other processes
        share the interpreter.
        """
        transport, gc_policy = self._transport, None
        if transport is None:
            gc_policy = GcPolicy(self.metrics)
            gc_policy.start()
            stack.callback(gc_policy.stop)
            lag = LoopLag(self.metrics.loop_lag_seconds.labels().observe, loop=asyncio.get_running_loop())
            lag.start()
            stack.callback(lag.stop)
            transport = Http1Transport(
                self._endpoint,
                pool_size=connections,
                user_agent=f"agent-scheduler/{__version__}",
                observe=self.metrics.api_request,
            )
        stack.push_async_callback(transport.close)
        return transport, gc_policy

    def _remember_steps(self, stack: AsyncExitStack, directory: str, component: str, *, renew_deadline: float) -> None:
        """Mark the steps of this process in a file of the directory, if given, until `stack` ends."""
        handling, file = self.metrics.handling, None

        def now() -> float:
            return self._timing.now().timestamp()

        if directory:
            path = Path(directory) / f"{component}.steps"
            forgets = partial(self._log.warning, "steps forgotten", file=str(path))
            try:
                file = StepFile(path, now=now, fresh=lambda problem: forgets(problem=problem))
            except OSError as error:
                # Schedulers work without it, as without the setting.
                problem = "another process uses it" if isinstance(error, BlockingIOError) else error.strerror
                self._log.error("steps not remembered", setting="stateDirectory", file=str(path), problem=problem)
        handling.begin(file, now=now, renew_deadline=renew_deadline)

        def end(kind: type[BaseException] | None, *_: object) -> None:
            handling.end(regularly=kind is None)

        stack.push(end)

    def _recorder(
        self, transport: Transport, *, controller: str, count: Callable[[str], None], qps: float = 1.0, burst: int = 10
    ) -> EventRecorder:
        """Create a recorder. The defaults suit events about leases, of which there are at most two."""
        return EventRecorder(
            Reporter(controller, self._identity),
            EventSettings(),
            transport=transport,
            budget=Budget(qps=qps, burst=burst, timing=self._timing),
            timing=self._timing,
            count=count,
            pace=None,
        )


async def run_to_end(
    work: Callable[[], Awaitable[None]],
    *,
    stop: Callable[[], None],
    at_once: Callable[[], object],
    reload: Callable[[], None] | None = None,
    check: Callable[[], Coroutine[Any, Any, None]] | None = None,
    signals: bool,
    log: FilteringBoundLogger,
) -> int:
    """Run a whole process and return the exit code.

    With `signals`, those of `end_on_signals` are handled, SIGHUP calls `reload`, and SIGUSR2 calls `check`, if given.
    """
    if signals:
        end_on_signals(stop, at_once, log)
        loop = asyncio.get_running_loop()
        if reload is not None:
            loop.add_signal_handler(signal.SIGHUP, reload)
        if check is not None:
            # The loop alone does not keep a reference to a task.
            checks: set[asyncio.Task[None]] = set()

            def begin_check() -> None:
                task = loop.create_task(check())
                checks.add(task)
                task.add_done_callback(checks.discard)

            loop.add_signal_handler(signal.SIGUSR2, begin_check)
    try:
        await work()
    except BaseExceptionGroup as group:
        return _ended_by(group, log)
    except Exception as error:
        return _ended_by(ExceptionGroup("", [error]), log)
    return 0


def end_on_signals(stop: Callable[[], None], at_once: Callable[[], object], log: FilteringBoundLogger) -> None:
    """Handle SIGTERM and SIGINT: the first one calls `stop`, the second one `at_once`.

    `at_once` must end the process immediately, without cleanup, as in Kubernetes' own components.
    """
    loop = asyncio.get_running_loop()
    asked = False

    def ask() -> None:
        nonlocal asked
        if asked:
            log.warning("second signal: ending at once")
            at_once()
        asked = True
        stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ask)


def _ended_by(group: BaseExceptionGroup[BaseException], log: FilteringBoundLogger) -> int:
    """Log why the tasks of a process failed, and return its exit code. Other exceptions are raised again."""
    fatal, _ = group.split(Exception)
    if fatal is None:
        raise group
    code = 1
    for leaf in _leaves(fatal):
        if isinstance(leaf, LeaseLost):
            log.error("lease lost", problem=str(leaf))
        elif isinstance(leaf, StoreWentBack):
            log.error("store went back", problem=str(leaf))
        elif isinstance(leaf, InputsRefused):
            log.error("input refused", problem=str(leaf))
            code = 2
        elif isinstance(leaf, ServingError):
            log.error("cannot serve", problem=str(leaf))
            code = 2
        else:
            log.error("stopped by a failure", error=repr(leaf), exc_info=leaf)
    return code


def _leaves(group: BaseExceptionGroup[Exception]) -> list[BaseException]:
    found: list[BaseException] = []
    for error in group.exceptions:
        found.extend(_leaves(error) if isinstance(error, BaseExceptionGroup) else [error])
    return found
