"""Releasing a lease is a courtesy of its holder: what belongs to another by then is left alone."""

from __future__ import annotations

import asyncio

from tests.support.scripted import Action, Request, Reset

from .test_lease import Leases, leading


def releases(request: Request) -> bool:
    return request.method == "PUT" and request.json["spec"]["holderIdentity"] == ""


async def test_a_lease_that_another_took_just_before_its_release_stays_theirs() -> None:
    leases = Leases()

    def usurped(request: Request) -> Action | None:
        if releases(request) and leases.spec["holderIdentity"] == "me":
            leases.write({"holderIdentity": "usurper", "leaseDurationSeconds": 15})
        return None

    leases.fault = usurped
    async with leading(leases):
        pass
    assert leases.spec["holderIdentity"] == "usurper"
    assert leases.holders[-1] == "usurper"


async def test_a_release_that_met_our_own_late_renewal_is_made_again() -> None:
    leases = Leases()
    renewed: list[bool] = []

    def late(request: Request) -> Action | None:
        if releases(request) and not renewed:
            renewed.append(True)
            leases.write(leases.spec)
        return None

    leases.fault = late
    async with leading(leases):
        pass
    assert leases.spec["holderIdentity"] == ""


async def test_a_lease_that_ran_out_before_its_release_is_not_written_any_more() -> None:
    leases = Leases()
    asked: list[str] = []
    async with leading(leases) as led:
        leases.fault = lambda _request: Reset()
        assert await asyncio.wait_for(led.task, 5) is False
        leases.fault = lambda request: asked.append(request.method)
    assert asked == []
    assert leases.spec["holderIdentity"] == "me"
