"""The pages of docs/architecture name the functions of a path in the order in which a running process enters them."""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import reduce
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType

import pytest

from agent_scheduler.config.load import ConfigurationSource
from agent_scheduler.process.scheduler import SchedulerProcess
from kube_client.http1 import Http1Transport
from kube_client.testing.virtual import timing, virtual_time
from kube_client.transport import Endpoint
from tests.features.fastpath.test_walk import NODES, PODS, Server, node, pod
from tests.support.batched import add_group
from tests.support.embedded import until
from tests.support.installation import Installation, installed
from tests.support.jobs import REST, jobs_run
from tests.support.objects import task
from tests.support.places import DOCS

_CONFIGURATION = """apiVersion: agent-scheduler/v1
kind: SchedulerConfiguration
serving: {port: 0}
leaderElection: {leaderElect: false}
conflictPolicy: %s
"""
_STEP = re.compile(r"^\| \d+ \| `(agent_scheduler\.[\w.]+)` \|", re.MULTILINE)


def steps(page: str) -> list[str]:
    """Return the full names of the functions in the table of a page, in order."""
    found = _STEP.findall((DOCS / "architecture" / f"{page}.md").read_text())
    assert len(found) >= 10, f"{page}.md has no table of functions"
    assert len(set(found)) == len(found), f"{page}.md names a function twice"
    return list(found)


def code_of(name: str) -> CodeType:
    """Return the code of a function or method. Fails if there is none of this name."""
    parts = name.split(".")
    for end in range(len(parts) - 1, 0, -1):
        try:
            module = import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        found = reduce(lambda owner, part: getattr(owner, part, None), parts[end:], module)  # type: ignore[arg-type, return-value]
        code = getattr(found, "__code__", None)
        assert isinstance(code, CodeType), f"there is no function {name}"
        return code
    raise AssertionError(f"there is no module of {name}")


class Entered:
    """The functions of the scheduler's processes in the order in which each was first entered.

    The continuation of a coroutine is an entry too.
    """

    def __init__(self) -> None:
        self._order: dict[CodeType, int] = {}

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Record what is entered in the block."""
        before = sys.getprofile()
        sys.setprofile(self._seen)
        try:
            yield
        finally:
            sys.setprofile(before)

    def _seen(self, frame: FrameType, event: str, _arg: object) -> None:
        if event == "call":
            self._order.setdefault(frame.f_code, len(self._order))

    def check(self, page: str) -> None:
        """Fail unless all functions of a page exist and were first entered in its order."""
        found = [(name, self._order.get(code_of(name))) for name in steps(page)]
        assert [name for name, place in found if place is None] == [], "these were not entered"
        places = [(name, place) for name, place in found if place is not None]
        late = [f"{after} before {before}" for (before, one), (after, two) in pairwise(places) if one > two]
        assert late == [], "these were entered in another order than the page says"


def _write(file: Path, *, policy: str) -> None:
    file.write_text(_CONFIGURATION % policy)


@asynccontextmanager
async def _scheduler(file: Path) -> AsyncIterator[tuple[Server, SchedulerProcess]]:
    """Run a scheduler's process with this configuration file against a server with one node."""
    _write(file, policy="revalidate")
    source = ConfigurationSource(argparse.Namespace(config=str(file)))
    server = Server()
    transport = Http1Transport(Endpoint("http://api.example"), dial=server.dial)
    process = SchedulerProcess(source.load(), source=source, transport=transport, timing=timing())
    ending = asyncio.create_task(process.run(signals=False))
    try:
        await until(lambda: process.fast_path is not None and process.fast_path.is_synced)
        # The watches begin after the lists.
        await asyncio.sleep(1)
        await server.apply(NODES, node("node-1"))
        yield server, process
    finally:
        process.stop()
        await asyncio.wait_for(ending, 60)
        await transport.close()


def test_the_path_of_a_pod_is_that_of_its_page(tmp_path: Path) -> None:
    entered = Entered()

    @virtual_time
    async def run() -> None:
        async with _scheduler(tmp_path / "config.yaml") as (server, process):
            assert process.fast_path is not None
            placements = process.fast_path.ledger.placements
            with entered.recorded():
                await server.apply(PODS, pod("one"))
                bound = pod("one")
                bound["spec"]["nodeName"] = placements["one"].node_name
                await server.apply(PODS, bound)
            assert not placements["one"].assumed

    run()
    entered.check("pod")


def test_the_path_of_a_gang_is_that_of_its_page() -> None:
    entered = Entered()

    @virtual_time
    async def run() -> None:
        async with installed(made=Installation) as world:
            await world.add_node("a", cpu="4")
            await world.rest()
            with entered.recorded():
                await add_group(world, "g", minMember=2, queue="q")
                await until(lambda: world.is_in_phase("g", "Inqueue"))
                await world.rest()
                for name in ("g-0", "g-1"):
                    await world.member(name, "g")
                await until(lambda: world.has_placed("g", 2))
                await until(lambda: world.is_in_phase("g", "Running"))
                await world.rest()

    run()
    entered.check("gang")


def test_the_path_of_a_job_is_that_of_its_page() -> None:
    entered = Entered()

    @virtual_time
    async def run() -> None:
        async with jobs_run() as it:
            pods = ("j-a-0", "j-a-1")
            with entered.recorded():
                await it.let_in(task("a", 2), ttlSecondsAfterFinished=10)
                await it.pods_are("Running", *pods)
                await it.group_is("Running")
                assert await it.phase() == "Running"
                await it.pods_are("Succeeded", *pods)
                assert await it.phase() == "Completed"
                await asyncio.sleep(10 + REST)

    run()
    entered.check("job")


def test_the_path_of_a_reload_is_that_of_its_page(tmp_path: Path) -> None:
    entered = Entered()

    @virtual_time
    async def run() -> None:
        file = tmp_path / "config.yaml"
        async with _scheduler(file) as (_, process):
            assert process.fast_path is not None
            before = process.fast_path.settings.policy
            with entered.recorded():
                _write(file, policy="strict")
                await asyncio.sleep(10)
            assert process.fast_path.settings.policy is not before

    run()
    entered.check("reload")


@pytest.mark.parametrize("name", ["agent_scheduler.fastpath.worker.Worker.circle", "agent_scheduler.none.run"])
def test_a_function_that_does_not_exist_is_found(name: str) -> None:
    with pytest.raises(AssertionError, match="there is no"):
        code_of(name)


def test_a_wrong_order_and_a_function_that_is_not_entered_are_found() -> None:
    entered = Entered()
    with pytest.raises(AssertionError, match="these were not entered"):
        entered.check("pod")
    for place, name in enumerate(reversed(steps("pod"))):
        entered._order[code_of(name)] = place
    with pytest.raises(AssertionError, match="in another order"):
        entered.check("pod")
