"""The certificate that a server presents, replaced while it serves."""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime

import pytest

from agent_scheduler.serving.certificate import ServingCertificate
from tests.unit.webhook.test_authority import made

pytestmark = pytest.mark.real_time


async def presented(certificate: ServingCertificate) -> bytes:
    """What a client is shown by a server with it."""
    server = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0, ssl=certificate.context)
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    port = server.sockets[0].getsockname()[1]
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
    shown: bytes = writer.get_extra_info("ssl_object").getpeercert(True)
    writer.close()
    server.close()
    return ssl.DER_cert_to_PEM_cert(shown).encode()


async def test_connections_are_shown_the_last_certificate_that_came_with_its_key() -> None:
    certificate = ServingCertificate()
    held, other = made(datetime.now(UTC)), made(datetime.now(UTC))
    assert certificate.present(held.certificate, held.key)
    assert not certificate.present(held.certificate, held.key), "it is shown already"
    for pair in ((other.certificate, held.key), (other.certificate, b""), (b"", b"")):
        with pytest.raises(OSError):
            certificate.present(*pair)
        assert await presented(certificate) == held.certificate
    assert certificate.present(other.certificate, other.key)
    assert await presented(certificate) == other.certificate
