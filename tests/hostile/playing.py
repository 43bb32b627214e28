"""All processes beside hostile objects, in virtual time: what their longest steps cost, and whether others are served.

The scheduler with fast path and sessions, and all controllers, on a cluster of many nodes with their own roles. Objects
of one case at a time are created, processed and deleted, while others create pods and Jobs.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from time import thread_time
from typing import Any, Final

import structlog

from agent_scheduler.process.controller_flags import JOB, PODGROUP, QUEUE
from embedded_kubernetes.auth.options import ADMIN
from embedded_kubernetes.builtin import ALPHA, BUILTIN
from embedded_kubernetes.handlers import Api
from embedded_kubernetes.requests import Request, Response
from tests.sim.steps import StepMeter
from tests.support.batched import DEFINITIONS, definition
from tests.support.installation import CONFIGURATION
from tests.support.objects import task
from tests.support.places import CONFIG
from tests.support.whole import Whole, whole

from .objects import MERGE, Hostile
from .users import users

NODES: Final = 200
#: Seconds for which hostile objects exist before others create something, and until they are gone.
_BESIDE, _AFTER = 4.0, 2.0
#: All kinds are watched: services and workloads, by which a profile spreads, quotas, and native groups.
_CONFIGURATION: Final = (
    CONFIGURATION.replace("batch: {schedulePeriod: 50ms}", "")
    + """
profiles:
  - {schedulerName: agent-scheduler, base: agent}
  - {schedulerName: default-scheduler, base: default-scheduler}
batch:
  schedulePeriod: 1s
  actions: enqueue, allocate, preempt, reclaim, backfill
  tiers:
    - plugins: [{name: priority}, {name: gang}, {name: conformance}]
    - plugins: [{name: drf}, {name: predicates}, {name: proportion}, {name: nodeorder}, {name: resourcequota}]
"""
)
#: Whether a step belongs to the test, and not to a process.
_IS_TEST: Final[ContextVar[bool]] = ContextVar("is_test", default=False)


class Beside:
    """Creates hostile objects beside others' pods and Jobs."""

    def __init__(self, found: Whole) -> None:
        self._found = found
        self._number = 0
        _IS_TEST.set(True)

    async def goes_on(self, objects: Sequence[Hostile]) -> None:
        """Create the objects, check that others' pods are bound, and delete the objects."""
        objects = [*objects, *(user for each in objects[:3] for user in users(each))]
        for each in objects:
            for method, path, data in each.requests:
                self._send(method, path, data)
        try:
            await asyncio.sleep(_BESIDE)
            await self._serves_others(objects[0])
        finally:
            for each in objects:
                self._send("PATCH", each.path, b'{"metadata":{"finalizers":null}}', strict=False)
                self._send("DELETE", each.path, b'{"gracePeriodSeconds":0}', strict=False)
            await asyncio.sleep(_AFTER)

    async def _serves_others(self, beside: Hostile) -> None:
        """Check that a pod and a Job that are created now are placed, and delete them.

        A guarantee of a queue keeps room from the Jobs of all other queues, so only administrators may create queues.
        """
        self._number += 1
        pod, job = f"good-{self._number}", f"job-{self._number}"
        found = self._found
        await found.add_pod(pod, cpu="10m")
        await found.make_job(job, task("a", 2, cpu="10m"), minimum=2)
        members = () if beside.case == "queue-guarantee" else (f"{job}-a-0", f"{job}-a-1")
        for _ in range(60):
            if await found.is_bound(pod, *members):
                break
            await asyncio.sleep(0.5)
        else:
            placed = await found.placed()
            wait = {name: await found.condition(name) for name in (pod, *members) if name in await found.pods()}
            raise AssertionError(f"beside {beside} others wait: {wait}; placed: {sorted(placed)[-5:]}")
        await found.call("DELETE", f"/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs/{job}")
        await found.call("DELETE", f"/api/v1/namespaces/default/pods/{pod}")

    def _send(self, method: str, path: str, data: bytes, *, strict: bool = True) -> None:
        content_type = MERGE if method == "PATCH" else "application/json"
        asked = Request(method, path, body=data, content_type=content_type, authorization=f"Bearer {ADMIN.name}")
        answer = self._found.api.handle(asked)
        assert isinstance(answer, Response)
        assert not strict or answer.status in (200, 201), answer.body[:500]


@asynccontextmanager
async def beside() -> AsyncIterator[Beside]:
    """Run all processes on a cluster with many nodes and some pods."""
    controllers = JOB, PODGROUP, QUEUE
    async with whole(*controllers, configuration=_CONFIGURATION, builtin=(*BUILTIN, *ALPHA)) as found:
        await found.add(DEFINITIONS, definition(CONFIG / "crd" / "shard.volcano.sh_nodeshards.yaml"))
        for number in range(NODES):
            labels = {"kubernetes.io/hostname": f"n{number}", "zone": f"z{number % 3}"}
            await found.add_node(f"n{number}", cpu="8", labels=labels)
        for number in range(30):
            await found.add_pod(f"p{number}", cpu="10m", labels={"app": "a"})
        await asyncio.sleep(5)
        yield Beside(found)


@contextmanager
def counting_calls() -> Iterator[Callable[[], tuple[int, str]]]:
    """Yield a function that returns the calls of the longest step since its last call, and its last function."""
    meter = StepMeter()

    def longest() -> tuple[int, str]:
        found = meter.longest, meter.last
        meter.reset()
        return found

    with meter.measuring():
        yield longest


@contextmanager
def timing_steps() -> Iterator[Callable[[], float]]:
    """Yield a function that returns the CPU seconds of the longest step since its last call.

    What the API server does counts for nothing.
    """
    longest = served = 0.0
    # A process collects garbage at times of its own.
    gc.collect()
    gc.freeze()
    gc.disable()
    run, handle = asyncio.Handle._run, Api.handle

    def timed_run(self: asyncio.Handle) -> None:
        nonlocal longest, served
        served, began = 0.0, thread_time()
        run(self)
        if not self._context.get(_IS_TEST):  # type: ignore[attr-defined]
            longest = max(longest, thread_time() - began - served)

    def timed_handle(self: Api, request: Request) -> Any:
        nonlocal served
        began = thread_time()
        try:
            return handle(self, request)
        finally:
            served += thread_time() - began

    def since() -> float:
        nonlocal longest
        found, longest = longest, 0.0
        return found

    asyncio.Handle._run, Api.handle = timed_run, timed_handle  # type: ignore[method-assign]
    try:
        yield since
    finally:
        asyncio.Handle._run, Api.handle = run, handle  # type: ignore[method-assign]
        gc.enable()
        gc.unfreeze()


@contextmanager
def hearing() -> Iterator[list[str]]:
    """Yield the log's lines about exceptions that were not expected."""
    heard: list[str] = []

    def hear(_logger: Any, name: str, event: Any) -> Any:
        if event.get("exc_info"):
            heard.append(f"{event['event']}: {event['exc_info']!r}")
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(processors=[hear])
    try:
        yield heard
    finally:
        structlog.configure(**before)


def together(objects: Iterable[Hostile]) -> list[list[Hostile]]:
    """Return the objects of each case."""
    found: dict[str, list[Hostile]] = {}
    for each in objects:
        found.setdefault(each.case, []).append(each)
    return list(found.values())
