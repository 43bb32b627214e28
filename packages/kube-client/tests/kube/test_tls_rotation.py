"""Certificates, keys, authorities and tokens that are replaced while connections stand."""

from __future__ import annotations

import asyncio
import os
import ssl
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog
from cryptography.hazmat.primitives import serialization

from kube_client.http1 import Http1Transport
from kube_client.testing.authority import Authority, server_tls
from kube_client.testing.scripted import (
    Action,
    Answer,
    FakeTime,
    Request,
    Script,
    ScriptedServer,
    Stream,
    eventually,
    serving,
)
from kube_client.tls import Tls, load_certificate
from kube_client.transport import Endpoint, NotSent, OutcomeUnknown

from .raw_server import OK, get, post, wired
from .raw_server import client as client_of

pytestmark = pytest.mark.real_time

UNAUTHORIZED = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"


def naming_it(gate: asyncio.Event | None = None) -> Script:
    """Answers with the name in the client's certificate, once the event is set, if there is one."""

    async def script(request: Request) -> Action:
        if gate is not None:
            await gate.wait()
        watched = request.path == "/watch"
        return Stream([b"1\n"], end="hang") if watched else Answer(200, (request.peer or "anonymous").encode())

    return script


@asynccontextmanager
async def naming(authority: Authority) -> AsyncIterator[ScriptedServer]:
    """A server that asks for the client's certificate, and answers with the name in it."""
    tls = server_tls(authority, clients=True)
    tls.verify_mode = ssl.CERT_OPTIONAL
    async with serving(naming_it(), tls=tls) as server:
        yield server


class Client:
    """A transport whose certificates are files, and whose credentials are asked for at each request."""

    def __init__(self, url: str, tls: Tls, time: FakeTime) -> None:
        self.time = time
        self.transport = Http1Transport(Endpoint(url, tls.context, refused=tls.refused, unverified=tls.refused))

    async def later(self, seconds: float, path: str = "/") -> str:
        self.time.now += seconds
        self.transport._given_until = 0.0
        return (await get(self.transport, path)).decode()


@asynccontextmanager
async def client(server: ScriptedServer, authority: Authority) -> AsyncIterator[Client]:
    time = FakeTime()
    tls = Tls(authority=authority.file, clock=lambda: time.now)
    tls.identify(*authority.issue("old", stem="me"))
    made = Client(server.url, tls, time)
    try:
        yield made
    finally:
        await made.transport.close()


async def test_a_replaced_client_certificate_is_presented_and_idle_connections_of_the_old_one_are_closed(
    authority: Authority,
) -> None:
    async with naming(authority) as server, client(server, authority) as made:
        assert await asyncio.gather(*(made.later(0) for _ in range(3))) == ["old"] * 3
        assert server.open == 3
        authority.issue("new", stem="me")
        assert await made.later(59) == "old"
        assert await made.later(2) == "new"
        await eventually(lambda: server.open == 1)
        assert [await made.later(0) for _ in range(5)] == ["new"] * 5


async def test_a_busy_connection_of_the_old_certificate_is_not_used_again_and_a_watch_is_begun_anew(
    authority: Authority,
) -> None:
    async with naming(authority) as server, client(server, authority) as made:
        async with made.transport.stream("/watch", read_timeout=30) as batches:
            assert await anext(batches) == [b"1"]
            gate = asyncio.Event()
            server.script = naming_it(gate)
            busy = asyncio.create_task(get(made.transport))
            await eventually(lambda: server.open == 2)
            authority.issue("new", stem="me")
            fresh = asyncio.create_task(made.later(61))
            with pytest.raises(OutcomeUnknown, match="certificates were replaced"):
                await anext(batches)
            gate.set()
            assert (await busy, await fresh) == (b"old", "new")
        assert [await made.later(0) for _ in range(5)] == ["new"] * 5
        await eventually(lambda: server.open == 1)


async def test_a_watch_that_still_waits_for_its_answer_is_begun_anew_too(authority: Authority) -> None:
    async with naming(authority) as server, client(server, authority) as made:
        gate = asyncio.Event()
        server.script = naming_it(gate)

        async def watch() -> None:
            async with made.transport.stream("/watch", read_timeout=30):
                raise AssertionError("answered")

        watching = asyncio.create_task(watch())
        await eventually(lambda: any(each.streaming for each in made.transport._pool._open))
        authority.issue("new", stem="me")
        fresh = asyncio.create_task(made.later(61))
        with pytest.raises(OutcomeUnknown, match="certificates were replaced"):
            await watching
        gate.set()
        assert await fresh == "new"


async def test_a_new_certificate_beside_the_old_key_is_not_used_and_told_of_once(authority: Authority) -> None:
    async with naming(authority) as server, client(server, authority) as made:
        assert await made.later(0) == "old"
        old_key = (authority.folder / "me.key").read_bytes()
        authority.issue("new", stem="me")
        new_key = (authority.folder / "me.key").read_bytes()
        (authority.folder / "me.key").write_bytes(old_key)
        with structlog.testing.capture_logs() as logs:
            # Connections that are opened meanwhile must not be anonymous.
            for _ in range(3):
                while (warm := made.transport._pool.take()) is not None:
                    warm.abort()
                    made.transport._pool.release(warm)
                assert await made.later(61) == "old"
        assert [log["event"] for log in logs] == ["certificates unusable"]
        (authority.folder / "me.key").write_bytes(new_key)
        assert await made.later(6) == "new"


async def test_a_replaced_authority_is_trusted_also_where_a_symlink_was_swapped(tmp_path: Path) -> None:
    """As a projected volume is updated: `ca.crt` leads to `..data/ca.crt`, and `..data` is replaced."""
    one, two = Authority(tmp_path / "one"), Authority(tmp_path / "two")
    (tmp_path / "..data").symlink_to("one")
    (tmp_path / "ca.crt").symlink_to("..data/ca.crt")
    time = FakeTime()
    tls = Tls(authority=tmp_path / "ca.crt", clock=lambda: time.now)
    async with naming(one) as before, naming(two) as after:
        first, second = Client(before.url, tls, time), Client(after.url, tls, time)
        assert await first.later(0) == "anonymous"
        with pytest.raises(NotSent, match="certificate verify failed"):
            await second.later(0)
        (tmp_path / "..data_tmp").symlink_to("two")
        os.replace(tmp_path / "..data_tmp", tmp_path / "..data")
        assert await second.later(61) == "anonymous"
        # What the old authority vouched for is not trusted any more, warm connection or not.
        with pytest.raises(NotSent, match="certificate verify failed"):
            await first.later(0)
        await first.transport.close()
        await second.transport.close()


async def test_an_authority_that_is_spoiled_or_gone_leaves_the_old_one_trusted(authority: Authority) -> None:
    async with naming(authority) as server, client(server, authority) as made:
        assert await made.later(0) == "old"
        authority.file.write_text("nonsense")
        assert await made.later(61) == "old"
        authority.file.unlink()
        assert await made.later(61) == "old"
        assert server.connections == 1


async def test_a_server_whose_authority_is_not_trusted_makes_the_files_looked_at_soon(tmp_path: Path) -> None:
    one, two = Authority(tmp_path / "one"), Authority(tmp_path / "two")
    trusted = tmp_path / "ca.crt"
    trusted.write_bytes(one.pem)
    time = FakeTime()
    reads: list[float] = []

    class Counted(Tls):
        def _look(self) -> None:
            reads.append(time.now)
            super()._look()

    tls = Counted(authority=trusted, clock=lambda: time.now)
    async with naming(two) as server:
        made = Client(server.url, tls, time)
        began = time.now
        for _ in range(12):
            with pytest.raises(NotSent, match="certificate verify failed"):
                await made.transport.request("GET", "/", timeout=5)
            time.now += 1
        # However many handshakes fail.
        assert [read - began for read in reads] == [5, 10]
        trusted.write_bytes(two.pem)
        with pytest.raises(NotSent, match="certificate verify failed"):
            async with made.transport.stream("/watch", read_timeout=5):
                raise AssertionError("answered")
        time.now += 4
        assert await get(made.transport) == b"anonymous"
        await made.transport.close()


async def test_the_connection_that_brought_a_401_is_not_used_again() -> None:
    script = [[OK], [UNAUTHORIZED]], [[UNAUTHORIZED]], [[OK], [UNAUTHORIZED]], [[OK]]
    async with wired(*script) as server, client_of(server) as transport:
        assert [await post(transport) for _ in range(4)] == [200, 401, 401, 200]
        over = asyncio.Event()
        assert transport.start("POST", "/", body=b"", timeout=5, answered=lambda _: over.set())
        await over.wait()
        assert await post(transport) == 200
        assert [number for number, _ in server.requests] == [0, 0, 1, 2, 2, 3]


async def test_connections_that_are_opened_together_do_not_end_together() -> None:
    async with wired([[OK]] * 2) as server, client_of(server, max_age=300) as transport:
        await asyncio.gather(*(post(transport) for _ in range(8)))
        now = asyncio.get_running_loop().time()
        ages = {round(each.retires_at - now) for each in transport._pool._open}
        assert len(ages) > 4
        assert all(205 <= age <= 300 for age in ages)


async def test_a_certificate_that_cannot_be_loaded_leaves_the_one_before_and_its_files_in_use(
    authority: Authority,
) -> None:
    time = FakeTime()
    tls = Tls(authority=authority.file, clock=lambda: time.now)
    tls.identify(*authority.issue("old", stem="me"))
    before = tls.context()
    with pytest.raises(ssl.SSLError):
        tls.identify(b"nonsense", b"nonsense")
    assert tls.context() is before
    time.now += 61
    assert tls.context() is before
    authority.issue("new", stem="me")
    time.now += 61
    assert tls.context() is not before


# -- loading


def context() -> ssl.SSLContext:
    return ssl.create_default_context()


def refuse(*_: object, **__: object) -> Any:
    raise FileNotFoundError("no usable temporary directory")


def test_a_certificate_is_loaded_without_a_folder_that_can_be_written(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = (file.read_bytes() for file in authority.issue("me"))
    monkeypatch.setattr(tempfile, "NamedTemporaryFile", refuse)
    load_certificate(context(), certificate, key)
    monkeypatch.setattr(os, "memfd_create", refuse)
    with pytest.raises(OSError, match=r"no usable temporary directory.*TMPDIR"):
        load_certificate(context(), certificate, key)


def test_a_certificate_is_loaded_from_a_temporary_file_where_memory_has_none(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    certificate, key = (file.read_bytes() for file in authority.issue("me"))
    monkeypatch.setattr(os, "memfd_create", refuse)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = set(tmp_path.iterdir())
    load_certificate(context(), certificate, key)
    assert set(tmp_path.iterdir()) == before


def test_an_encrypted_key_is_an_error_and_nobody_is_asked(authority: Authority) -> None:
    certificate, key = authority.issue("me")
    loaded = serialization.load_pem_private_key(key.read_bytes(), None)
    secret = serialization.BestAvailableEncryption(b"password")
    pem = loaded.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, secret)
    with pytest.raises(ssl.SSLError, match="the key is encrypted"):
        load_certificate(context(), certificate.read_bytes(), pem)
