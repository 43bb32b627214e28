"""The Secret of all replicas, and who is to trust what it holds."""

from __future__ import annotations

import asyncio
import base64
import copy
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from agent_scheduler.webhook.authority import CERTIFICATE_LIFE, CertificateBundle
from agent_scheduler.webhook.configurations import MUTATING, Configurations, configuration_paths
from agent_scheduler.webhook.own_certificates import OwnCertificates
from kube_client.retry import Timing
from kube_client.testing.virtual import timing, virtual_time
from kube_client.transport import Transport
from tests.support.embedded import until
from tests.support.transports import Through
from tests.support.webhooks import NAME, OWN, SECRET, World, ignored, manifest, webhooks


class Clock:
    """The time of day that replicas go by."""

    now = datetime.now(UTC)


class Replica:
    def __init__(self, world: World, clock: Clock, *, transport: Any = None) -> None:
        self.presented: list[CertificateBundle] = []
        self.published: list[bytes] = []
        self.keeper = OwnCertificates(
            transport or world.cluster.transport,
            namespace=OWN.namespace,
            name=OWN.secret,
            hosts=OWN.hosts,
            present=self.presented.append,
            publish=self._publish,
            timing=Timing(now=lambda: clock.now),
        )

    async def _publish(self, bundle: bytes) -> bool:
        self.published.append(bundle)
        return True


class Meanwhile(Through):
    """Has something done before each of the first `times` writes."""

    def __init__(self, inner: Transport, what: Callable[[], Any], *, times: int = 1) -> None:
        super().__init__(inner)
        self.what, self.left = what, times

    async def request(self, method: str, path: str, **more: Any) -> Any:
        if method != "GET" and self.left:
            self.left -= 1
            await self.what()
        return await super().request(method, path, **more)


async def looked(*replicas: Replica) -> Sequence[bool]:
    return await asyncio.gather(*(each.keeper.look() for each in replicas))


async def test_replicas_that_begin_together_have_one_certificate() -> None:
    async with webhooks() as world:
        clock = Clock()
        replicas = [Replica(world, clock) for _ in range(5)]
        assert all(await looked(*replicas))
        assert len({each.presented[-1] for each in replicas}) == 1
        assert len({each.published[-1] for each in replicas}) == 1
        assert (await world.secret())["tls.crt"] == replicas[0].presented[-1].certificate


@pytest.mark.parametrize("there", [True, False])
async def test_who_loses_a_write_takes_what_is_there(there: bool) -> None:
    async with webhooks() as world:
        clock = Clock()
        if not there:
            await world.cluster.ask("DELETE", SECRET)
        winner = Replica(world, clock)
        loser = Replica(world, clock, transport=Meanwhile(world.cluster.transport, winner.keeper.look))
        assert await loser.keeper.look()
        assert loser.presented == winner.presented


async def test_a_certificate_is_renewed_in_time_and_by_one() -> None:
    async with webhooks() as world:
        clock = Clock()
        one, other = Replica(world, clock), Replica(world, clock)
        await looked(one, other)
        clock.now += CERTIFICATE_LIFE * 2 / 3 + timedelta(hours=1)
        await looked(one, other)
        assert one.presented[0] != one.presented[1] == other.presented[1]
        assert one.published[0] == one.published[1]


async def test_without_a_namespace_there_is_no_certificate_and_no_end() -> None:
    async with webhooks() as world:
        await world.cluster.ask("DELETE", "/api/v1/namespaces/agent-scheduler")

        async def gone() -> bool:
            return (await world.cluster.call("GET", SECRET)).status == 404

        await until(gone)
        replica = Replica(world, Clock())
        assert not await replica.keeper.look()
        assert replica.presented == []


async def test_what_is_due_and_cannot_be_written_is_used_as_it_is() -> None:
    async with webhooks() as world:
        clock = Clock()
        replica = Replica(world, clock)
        await replica.keeper.look()
        await world.merge(SECRET, {"immutable": True})
        clock.now += CERTIFICATE_LIFE * 2 / 3 + timedelta(hours=1)
        assert await replica.keeper.look()
        assert replica.presented[0] == replica.presented[1]


async def test_a_secret_that_others_write_all_the_time_is_left_to_the_next_look() -> None:
    async with webhooks() as world:
        writes: list[int] = []

        async def written() -> None:
            writes.append(len(writes))
            await world.merge(SECRET, {"metadata": {"labels": {"n": str(len(writes))}}})

        replica = Replica(world, Clock(), transport=Meanwhile(world.cluster.transport, written, times=99))
        assert not await replica.keeper.look()
        assert (len(writes), replica.presented, replica.published) == (5, [], [])


async def test_a_certificate_that_cannot_be_presented_is_one_line_and_looked_for_again() -> None:
    def refuse(_held: CertificateBundle) -> None:
        raise OSError("no such key")

    async with webhooks() as world:
        replica = Replica(world, Clock())
        replica.keeper._present = refuse
        with capture_logs() as lines:
            assert not await replica.keeper.look()
            assert not await replica.keeper.look()
        told = [(each["secret"], each["problem"]) for each in lines if each["log_level"] == "error"]
        assert told == [(f"{OWN.namespace}/{OWN.secret}", "cannot present the certificate: no such key")]
        assert len(replica.published) == 2, "who is to trust it does so in the end"


@virtual_time
async def test_a_look_follows_after_a_minute_or_after_seconds_if_there_is_something_left_to_do() -> None:
    looked: list[float] = []
    loop = asyncio.get_running_loop()
    began = loop.time()

    async def look() -> bool:
        looked.append(loop.time() - began)
        return len(looked) != 2

    more: Any = {"transport": None, "present": None, "publish": None, "timing": timing()}
    keeper = OwnCertificates(namespace="n", name="c", hosts=("h",), **more)
    keeper.look = look  # type: ignore[method-assign]
    with suppress(TimeoutError):
        async with asyncio.timeout(100):
            await keeper.run()
    assert looked == [0, 60, 65]


# ---- the configurations

PEM = base64.b64encode(b"PEM").decode()


def configurations(world: World, **names: str) -> Configurations:
    paths = configuration_paths(**{"mutating": NAME, "validating": NAME, **names})
    return Configurations(world.cluster.transport, paths=paths, timing=Timing())


async def test_all_webhooks_of_both_configurations_trust_the_authority_and_nothing_else_changes() -> None:
    async with webhooks() as world:
        before = await world.cluster.ask("GET", f"{MUTATING}/{NAME}")
        await configurations(world).publish(b"PEM")
        assert await world.bundles() == [{PEM}, {PEM}]
        found = await world.cluster.ask("GET", f"{MUTATING}/{NAME}")
        without = copy.deepcopy(found["webhooks"])
        for each in without:
            del each["clientConfig"]["caBundle"]
        assert without == before["webhooks"]


async def test_a_configuration_that_is_not_there_or_not_wanted_keeps_no_other_from_being_written() -> None:
    async with webhooks() as world:
        partly = configurations(world, mutating="none")
        with capture_logs() as lines:
            for _ in range(2):
                assert await partly.publish(b"PEM"), "that it is made is told of"
        told = [each["configuration"] for each in lines if each["event"] == "authority not written"]
        assert told == [f"{MUTATING}/none"], "one line"
        await configurations(world, mutating="").publish(b"PEM")
        assert await world.bundles() == [{""}, {PEM}]


async def test_what_somebody_changes_meanwhile_is_not_overwritten() -> None:
    async with webhooks() as world:

        async def changed() -> None:
            webhooks_of = ignored(manifest("mutating.yaml"))["webhooks"]
            webhooks_of[0]["timeoutSeconds"] = 7
            await world.merge(f"{MUTATING}/{NAME}", {"webhooks": webhooks_of})

        paths = configuration_paths(mutating=NAME, validating="")
        transport = Meanwhile(world.cluster.transport, changed)
        keeper = Configurations(transport, paths=paths, timing=Timing())
        for expected in ("", PEM):
            assert await keeper.publish(b"PEM") == bool(expected)
            assert (await world.bundles())[0] == {expected}
        found = await world.cluster.ask("GET", f"{MUTATING}/{NAME}")
        assert found["webhooks"][0]["timeoutSeconds"] == 7
