"""Several leases at once: all of them, or nothing may be written."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from kube_client.leases import LeaseLost, Leases

from .test_lease import Leases as LeaseServer
from .test_lease import leading


@dataclass
class Elector:
    """Holds its lease at once, and while the work goes on; `keeps`: until that ends by itself."""

    name: str = ""
    is_leader: bool = True
    leader: str = "me"
    keeps: bool = True
    log: list[str] = field(default_factory=list)

    async def run(self, lead: Callable[[], Awaitable[None]]) -> bool:
        self.log.append(f"{self.name} taken")
        await lead()
        self.log.append(f"{self.name} released")
        return self.keeps


def leases(*electors: Elector) -> Leases:
    return Leases(cast(Any, {f"l{at}": each for at, each in enumerate(electors)}), identity="me")


@pytest.mark.parametrize(
    ("leading", "held"), [((True, True), True), ((True, False), False), ((False, True), False), ((), True)]
)
def test_a_write_is_ours_to_make_while_every_lease_is_held(leading: tuple[bool, ...], held: bool) -> None:
    assert leases(*(Elector(is_leader=each) for each in leading)).held is held


@pytest.mark.parametrize("count", [0, 1, 3])
async def test_leases_are_taken_in_their_order_and_released_in_the_reverse_of_it(count: int) -> None:
    log: list[str] = []

    async def lead() -> None:
        log.append("work")

    await leases(*(Elector(name, log=log) for name in "abc"[:count])).run(lead)
    names = list("abc"[:count])
    released = [f"{each} released" for each in reversed(names)]
    assert log == [*(f"{each} taken" for each in names), "work", *released]


@pytest.mark.parametrize(
    ("holder", "why"), [("me", "was not renewed in time"), ("other", "is held by other"), ("", "is held by nobody")]
)
async def test_which_lease_was_lost_and_to_whom_is_an_error(holder: str, why: str) -> None:
    async def lead() -> None: ...

    with pytest.raises(LeaseLost, match=f"^lease l1 {why}$"):
        await leases(Elector(), Elector(keeps=False, leader=holder), Elector()).run(lead)


def test_the_leader_is_who_holds_the_first_lease_that_we_do_not() -> None:
    others = [Elector(is_leader=False, leader=name) for name in ("first", "second")]
    assert leases(Elector(), *others).leader == "first"
    assert leases(Elector()).leader == leases().leader == ""


@pytest.mark.parametrize(("late", "fails"), [(34.9, False), (35.1, True)])
async def test_who_holds_a_lease_that_ended_long_ago_is_to_be_restarted(late: float, fails: bool) -> None:
    """15 seconds of the lease, and 20 more, as kube-scheduler's watchdog has it."""
    async with leading(LeaseServer()) as led:
        held = Leases({"one": led.elector}, identity="me")
        assert held.problem() is None
        led.time.now = led.elector._renewed_at + late
        problem = held.problem()
        assert problem == ("failed election to renew leadership on lease one" if fails else None)
        await asyncio.sleep(0)


async def test_who_waits_for_a_lease_is_well() -> None:
    assert leases().problem() is None
