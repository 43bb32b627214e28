"""Objects that are nested too deeply to be decoded, against the scheduler and the controllers."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from kube_client.testing.virtual import virtual_time
from kube_client.transport import Transport
from tests.support import objects
from tests.support.device_cluster import CLAIMS, Devices, devices
from tests.support.embedded import MERGE, until
from tests.support.jobs import GROUPS, JOBS, REST, jobs_run
from tests.support.objects import task
from tests.support.running import scheduling

#: Around the limit of recursion, a hostile one, and kube-apiserver's limit.
LEVELS = [900, 970, 985, 1_500, 9_900]


def nested(levels: int) -> bytes:
    return b'{"a":' * levels + b"1" + b"}" * levels


async def send(
    transport: Transport, method: str, path: str, body: Any, levels: int, content_type: str = "application/json"
) -> None:
    """Send an object with a nested value instead of the string `deep`."""
    data = json.dumps(body).encode().replace(b'"deep"', nested(levels))
    answer = await transport.request(method, path, body=data, content_type=content_type, timeout=10)
    assert 200 <= answer.status < 300, answer.body[:500]


async def deep_claim(found: Devices, name: str, levels: int) -> None:
    spec = found.request()
    spec["devices"]["config"] = [{"opaque": {"driver": "gpu.example.com", "parameters": "deep"}}]
    await send(found.cluster.transport, "POST", CLAIMS, {"metadata": {"name": name}, "spec": spec}, levels)


@pytest.mark.parametrize("levels", LEVELS)
async def test_a_deep_claim_holds_up_its_own_pod_only(levels: int) -> None:
    async with devices("n1", per_node=6) as found:
        await deep_claim(found, "before", levels)
        await found.add_pod("deep-before", claim="before")
        async with scheduling(found.cluster.transport) as running:
            await found.add_claim("good")
            await found.add_pod("good", claim="good")
            await until(lambda: found.cluster.is_bound("good"))
            await deep_claim(found, "while", levels)
            await found.add_pod("deep-while", claim="while")
            await found.add_claim("later")
            await found.add_pod("later", claim="later")
            await until(lambda: found.cluster.is_bound("later"))
            assert running.reports.failures == []
            if levels > 1_000:
                assert running.reports.counts["ResourceClaim malformed"] == 2
                said = await until(lambda: found.cluster.condition("deep-while"))
                assert "nested too deeply" in said["message"]


async def test_the_devices_of_a_deep_claim_are_given_to_nobody_else() -> None:
    async with devices("n1", per_node=1) as found:
        await found.add_claim("first")
        await found.add_pod("first", claim="first")
        async with scheduling(found.cluster.transport):
            await until(lambda: found.cluster.is_bound("first"))
        allocation = (await found.claims())["first"]["status"]["allocation"]
        (result,) = allocation["devices"]["results"]
        data = {key: result[key] for key in ("driver", "pool", "device")}
        status = {"status": {"devices": [{**data, "data": "deep"}]}}
        await send(found.cluster.transport, "PATCH", f"{CLAIMS}/first/status", status, 1_500, MERGE)
        async with scheduling(found.cluster.transport):
            await found.add_claim("second")
            await found.add_pod("second", claim="second")
            await until(lambda: found.cluster.condition("second"))
            assert not await found.cluster.is_bound("second")


@pytest.mark.parametrize("levels", LEVELS)
def test_a_deep_job_waits_alone_until_it_can_be_read(levels: int) -> None:
    @virtual_time
    async def run() -> None:
        async with jobs_run() as it:

            async def deep(name: str) -> None:
                body = objects.job(name, task("a", 1), minimum=1, queue="default")
                body["spec"]["tasks"][0]["template"]["metadata"] = {"unknown": "deep"}
                await send(it.transport, "POST", JOBS, body, levels)

            async def let_all_in() -> set[str]:
                await asyncio.sleep(REST)
                for group in await it.items(GROUPS):
                    path = f"{GROUPS}/{group['metadata']['name']}"
                    await it.patch(path, {"status": {"phase": "Inqueue"}})
                await asyncio.sleep(REST)
                return set(await it.pods())

            await it.kill(it.processes[-1])
            await deep("before")
            process = it.start()
            await deep("while")
            await it.add_job(task("a", 1))
            found = await let_all_in()
            assert "j-a-0" in found
            assert ("before-a-0" in found) == ("while-a-0" in found)
            if levels > 1_000:
                assert found == {"j-a-0"}
            for name in ("before", "while"):
                tasks = {"spec": {"tasks": [task("a", 1)]}}
                await send(it.transport, "PATCH", f"{JOBS}/{name}", tasks, 0, MERGE)
            assert await let_all_in() == {"j-a-0", "before-a-0", "while-a-0"}
            assert process is it.processes[-1]

    run()


def test_a_running_job_that_becomes_too_deep_keeps_its_pods_across_a_restart() -> None:
    @virtual_time
    async def run() -> None:
        async with jobs_run() as it:
            await it.let_in(task("a", 2))
            await it.pods_are("Running", "j-a-0", "j-a-1")
            before = {name: pod["metadata"]["uid"] for name, pod in (await it.pods()).items()}
            assert len(before) == 2
            deep = task("a", 2)
            deep["template"]["metadata"] = {"unknown": "deep"}
            await send(it.transport, "PATCH", f"{JOBS}/j", {"spec": {"tasks": [deep]}}, 1_500, MERGE)
            await asyncio.sleep(REST)
            await it.kill(it.processes[-1])
            it.start()
            await asyncio.sleep(10 * REST)
            assert {name: pod["metadata"]["uid"] for name, pod in (await it.pods()).items()} == before
            assert len(await it.items(GROUPS)) == 1

    run()
