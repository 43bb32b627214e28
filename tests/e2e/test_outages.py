"""The API server becomes unreachable or does not answer, and returns: no pod is lost, and none is bound twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from tests.support.relay import Relay

from .conftest import Start
from .plane import ControlPlane
from .processes import Scheduler

REQUESTS = "agent_scheduler_api_requests_total"


@asynccontextmanager
async def relayed(kubeconfig: Path, through: Path) -> AsyncIterator[Relay]:
    """Yield a relay to the control plane of `kubeconfig`; `through` becomes a kubeconfig with its address.

    Paths of files in the kubeconfig become absolute.
    """
    document = yaml.safe_load(await asyncio.to_thread(kubeconfig.read_text))
    contexts = {entry["name"]: entry["context"]["cluster"] for entry in document["contexts"]}
    wanted = contexts[document["current-context"]]
    (cluster,) = (entry["cluster"] for entry in document["clusters"] if entry["name"] == wanted)
    target = urlsplit(cluster["server"])
    default = 443 if target.scheme == "https" else 80
    async with Relay(target.port or default, target.hostname or "") as relay:
        cluster["server"] = target._replace(netloc=f"127.0.0.1:{relay.port}").geturl()
        if target.scheme == "https":
            cluster.setdefault("tls-server-name", target.hostname)
        await asyncio.to_thread(through.write_text, yaml.safe_dump(document))
        yield relay


async def failing(scheduler: Scheduler, count: float) -> None:
    """Wait until the scheduler has noticed that requests fail and has retried; it reports that it is alive."""

    def tried() -> bool:
        alive = scheduler.get("/livez")[0] == 200
        return alive and scheduler.metric(REQUESTS, code="<error>") >= count

    await scheduler.until(tried, "failed requests")


async def test_what_happened_during_an_outage_is_made_up_for(plane: ControlPlane, start: Start, tmp_path: Path) -> None:
    through = tmp_path / "kubeconfig"
    async with relayed(plane.run.schedulers, through) as relay:
        # The API server is not reachable when the scheduler starts.
        relay.refuse()
        scheduler = start(kubeconfig=through)
        await failing(scheduler, 4)
        status, text = scheduler.get("/readyz")
        assert status == 500
        assert "[-]sched-handler-sync failed" in text
        relay.accept()
        await scheduler.ready()
        await plane.add_node("n", cpu="4")
        await plane.add_node("small", cpu="1")
        await plane.add_pod("before", cpu="4")
        await plane.bound("before")
        await plane.add_pod("waits", cpu="4")
        await plane.refused("waits")
        relay.refuse()
        await plane.add_pod("during", cpu="1")
        await plane.add_pod("gone", cpu="1")
        await plane.delete_pod("gone")
        await plane.delete_pod("before")
        await failing(scheduler, scheduler.metric(REQUESTS, code="<error>") + 4)
        relay.accept()
        assert await plane.bound("during", "waits") == {"during": "small", "waits": "n"}
        await plane.add_pod("after", cpu="99")
        await plane.refused("after", message=await plane.fit_error({"Insufficient cpu": 2}))
        plane.assert_never_moved()


async def test_binds_whose_answers_are_lost_are_found_out_about_and_not_repeated(
    plane: ControlPlane, start: Start, tmp_path: Path
) -> None:
    through = tmp_path / "kubeconfig"
    async with relayed(plane.run.schedulers, through) as relay:
        scheduler = start(
            kubeconfig=through, config={"clientConnection": {"qps": 40, "burst": 20}, "bindConcurrency": 8}
        )
        await scheduler.ready()
        await plane.add_node("n", cpu="4")
        # The burst opens connections that the binds after it reuse: no answers, no new connections.
        warm = [f"warm{number}" for number in range(20)]
        await plane.add_pods(warm, cpu="200m")
        await plane.bound(*warm)
        names = [f"p{number}" for number in range(40)]
        await plane.add_pods(names, cpu="200m")
        for name in names:
            await plane.refused(name)
        await plane.add_node("late", cpu="8")
        # The binds after the hold are carried out, and none of their answers arrives.
        await plane.pods.until(lambda: len(plane.placed()) > 20, "one more pod on its node")
        relay.hold_answers()
        before = len(plane.placed())
        await plane.pods.until(lambda: len(plane.placed()) > before, "a bind without an answer")
        relay.reset()
        relay.let_answers_pass()
        await plane.bound(*warm, *names)
        plane.assert_never_moved()
        await scheduler.until(
            lambda: scheduler.metric("agent_scheduler_bind_outcomes_total", outcome="bound") == 60, "60 outcomes"
        )
        for name in names:
            await plane.event(name, "Scheduled")
            assert len(plane.told(name, "Scheduled")) == 1
        # The scheduler's state is complete again: no room is left.
        await plane.add_pod("one-more", cpu="200m")
        await plane.refused("one-more", message=await plane.fit_error({"Insufficient cpu": 2}))
