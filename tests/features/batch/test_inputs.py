"""What sessions read is there in the process as it ships, with the roles that it is installed with."""

from __future__ import annotations

from tests.support.embedded import until
from tests.support.installation import CONFIGURATION, installed

QUOTAS = "/api/v1/namespaces/default/resourcequotas"
WITH_QUOTAS = CONFIGURATION.replace(
    "batch: {schedulePeriod: 50ms}",
    """batch:
  schedulePeriod: 50ms
  tiers:
    - plugins: [{name: priority}, {name: gang}, {name: resourcequota}]
    - plugins: [{name: predicates}, {name: proportion}, {name: nodeorder}]""",
)


async def test_a_group_is_kept_out_by_a_quota_of_its_pods_and_let_in_when_that_changes() -> None:
    async with installed(WITH_QUOTAS) as it:
        await it.add_node("n1", cpu="4")
        path = (await it.add(QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": {"requests.cpu": "2"}}}))[
            "metadata"
        ]["name"]
        status = {"hard": {"requests.cpu": "2"}, "used": {"requests.cpu": "1"}}
        await it.patch(f"{QUOTAS}/q/status", {"status": status})
        await it.gang("g", 0, minimum=2, minResources={"cpu": "2"})
        await it.rest()
        assert await it.is_in_phase("g", "Pending")
        status["used"]["requests.cpu"] = "0"
        await it.patch(f"{QUOTAS}/q/status", {"status": status})
        await until(lambda: it.is_in_phase("g", "Inqueue"))
