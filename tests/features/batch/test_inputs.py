"""What sessions read is there in the process as it ships, with the roles that it is installed with."""

from __future__ import annotations

import asyncio

from tests.support.embedded import until
from tests.support.installation import CONFIGURATION, installed

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
