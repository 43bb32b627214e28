"""A certificate from files, which are replaced while the webhook runs."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from agent_scheduler.config.schema import Serving
from tests.support.embedded import until
from tests.support.reviews import pod
from tests.support.webhooks import asking, webhooks
from tests.unit.webhook.test_authority import made

pytestmark = pytest.mark.real_time


def put(folder: Path, *, key_of_another: bool = False) -> ssl.SSLContext:
    """A certificate for localhost in `folder`; whoever asks with the context trusts it."""
    from datetime import UTC, datetime

    now = datetime.now(UTC)
    held, other = made(now, ("localhost",)), made(now, ("localhost",))
    (folder / "tls.crt").write_bytes(held.certificate)
    (folder / "tls.key").write_bytes(other.key if key_of_another else held.key)
    return ssl.create_default_context(cadata=held.bundle.decode())


async def test_files_that_are_replaced_take_effect_and_those_that_do_not_fit_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_scheduler.serving.given_certificates.PERIOD", 0.02)
    serving = Serving(
        bind_address="127.0.0.1",
        port=0,
        tls_cert_file=str(tmp_path / "tls.crt"),
        tls_private_key_file=str(tmp_path / "tls.key"),
    )
    first = put(tmp_path)
    async with webhooks() as world:
        process = world.start(serving=serving)
        await until(lambda: process.port)
        async with asking(process, first) as api_server:
            assert (await api_server.review("/pods/mutate", pod()))["allowed"]
        before = process.certificate._digest
        put(tmp_path, key_of_another=True)
        for _ in range(5):
            async with asking(process, first) as api_server:
                assert (await api_server.get("/livez"))[0] == 200
        assert process.certificate._digest == before
        second = put(tmp_path)
        await until(lambda: process.certificate._digest != before)
        async with asking(process, second) as api_server:
            assert (await api_server.get("/livez"))[0] == 200
        # Nobody's configurations are written: who gives the certificate says who is to trust it.
        assert await world.secret() == {}
