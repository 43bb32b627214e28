"""What sessions read is there in the process as it ships, with the roles that it is installed with."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tests.support.batched import install
from tests.support.embedded import embedded_cluster, forbids, until
from tests.support.installation import CONFIGURATION, installed, started

QUOTAS = "/api/v1/namespaces/default/resourcequotas"


def _with(plugin: str) -> str:
    """The configuration with this plugin in a tier of its own before Volcano's default tiers."""
    tiers = f"""batch:
  schedulePeriod: 50ms
  tiers:
    - plugins: [{plugin}]
    - plugins: [{{name: priority}}, {{name: gang}}, {{name: conformance}}]
    - plugins: [{{name: overcommit}}, {{name: drf}}, {{name: predicates}}, {{name: proportion}}, {{name: nodeorder}}]"""
    return CONFIGURATION.replace("batch: {schedulePeriod: 50ms}", tiers)


WITH_QUOTAS = _with("{name: resourcequota}")
BY_TIME = _with("{name: sla, arguments: {sla-waiting-time: 1m}}")


async def test_a_group_is_kept_out_by_a_quota_of_its_pods_and_let_in_when_that_changes() -> None:
    async with installed(WITH_QUOTAS) as it:
        await it.add_node("n1", cpu="4")
        await it.add(QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": {"requests.cpu": "2"}}})
        status = {"hard": {"requests.cpu": "2"}, "used": {"requests.cpu": "1"}}
        await it.patch(f"{QUOTAS}/q/status", {"status": status})
        await it.gang("g", 0, minimum=2, minResources={"cpu": "2"})
        await it.rest()
        assert await it.is_in_phase("g", "Pending")
        status["used"]["requests.cpu"] = "0"
        await it.patch(f"{QUOTAS}/q/status", {"status": status})
        await until(lambda: it.is_in_phase("g", "Inqueue"))


async def test_a_group_that_has_waited_for_long_enough_is_let_in_though_nothing_happens() -> None:
    async with installed(BY_TIME) as it:
        await it.add_node("n1", cpu="1")
        await it.gang("g", 0, minimum=1, minResources={"cpu": "9"})
        await it.rest()
        for _ in range(5):
            await asyncio.sleep(10)
            assert await it.is_in_phase("g", "Pending") and await it.is_left_alone()
        await until(lambda: it.is_in_phase("g", "Inqueue"))
        before = await it.rest()
        await asyncio.sleep(600)
        assert it.sessions == before, "nobody is waited for any more"


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (
            "/api/v1/resourcequotas",
            ("plugin resourcequota reads ResourceQuota", "403", "list and watch resourcequotas,"),
        ),
        (
            "/apis/resource.k8s.io/v1/resourceclaims",
            ("plugin DynamicResources", "resourceclaims.resource.k8s.io,"),
        ),
        ("/api/v1/nodes", ("this process reads Node", "list and watch nodes,")),
    ],
)
async def test_a_process_that_may_not_read_what_a_plugin_decides_by_says_so_and_ends(
    path: str, words: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    async with embedded_cluster(components=("default",), disturb=forbids(path)) as cluster:
        await install(cluster)
        async with started(cluster, WITH_QUOTAS) as (_, ending):
            assert await asyncio.wait_for(ending, 20) == 2
    (told,) = (
        line for line in capsys.readouterr().out.splitlines() if "error" in line and "input refused" in line
    )
    assert all(word in told for word in words), told
