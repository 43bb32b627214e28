"""The HTTP server over real HTTP."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from agent_scheduler.config.schema import Serving
from agent_scheduler.kube.transport import NotSent, Response, Transport
from agent_scheduler.serving import given_certificates
from agent_scheduler.serving.authorization import Access, KubeAuthorizer
from agent_scheduler.serving.health import Check
from agent_scheduler.serving.http import HttpServer, server_of
from agent_scheduler.serving.sources import (
    MAX_LIMIT,
    TOKEN_HEADER,
    DebugPage,
    DebugQuery,
    NotReady,
    ServingError,
    Sources,
)
from agent_scheduler.telemetry.metrics import Metrics
from tests.support.embedded import until
from tests.support.scripted import eventually

PODS = [{"key": f"ns{index % 2}/p{index}", "place": "active", "api_token": "t0p"} for index in range(250)]


class World:
    """What the server tells of, changeable by a test."""

    def __init__(self) -> None:
        self.synced = False
        self.alive = True
        self.metrics = Metrics(version="1")
        self.read = 0

    def sources(self) -> Sources:
        return Sources(
            metrics=self.metrics.exposition,
            configuration=lambda: {"workerCount": 2, "password": "hunter2"},
            queue=self.queue,
            cache=self.cache,
            explain=self.explain,
            explain_group=lambda namespace, name: (True, {"podgroup": f"{namespace}/{name}"}),
            live=(Check("loop", lambda: None if self.alive else "blocked"),),
            ready=(Check("sync", lambda: None if self.synced else "pods not listed yet"),),
            places=("active", "backoff"),
        )

    def queue(self, query: DebugQuery) -> DebugPage:
        def pods() -> Iterator[dict[str, str]]:
            for pod in PODS:
                if query.namespace is None or pod["key"].startswith(f"{query.namespace}/"):
                    self.read += 1
                    yield pod

        return DebugPage({"pending": {"active": len(PODS)}, "asked": query.place}, pods())

    def explain(self, namespace: str, name: str) -> tuple[bool, dict[str, Any]]:
        if not self.synced:
            raise NotReady("not listed yet")
        return name != "nobody", {"pod": f"{namespace}/{name}", "place": "active"}

    def cache(self, query: DebugQuery) -> DebugPage:
        raise RuntimeError("the ledger is on fire")


@pytest.fixture
def world() -> World:
    return World()


class Client:
    def __init__(self, session: aiohttp.ClientSession, base: str) -> None:
        self._session = session
        self.base = base

    async def get(self, path: str, *, method: str = "GET", **headers: str) -> tuple[int, str]:
        async with self._session.request(method, self.base + path, headers=headers) as answer:
            self.headers = answer.headers
            return answer.status, await answer.text()

    async def json(self, path: str, **headers: str) -> Any:
        status, text = await self.get(path, **headers)
        assert status == 200, text
        return json.loads(text)


@pytest.fixture
async def client(world: World) -> AsyncIterator[Client]:
    server = HttpServer(world.sources(), address="127.0.0.1", port=0)
    port = await server.start()
    async with aiohttp.ClientSession() as session:
        yield Client(session, f"http://127.0.0.1:{port}")
    await server.stop()


# ---- health


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/healthz/ping", "/livez/loop"])
async def test_a_living_process_says_ok(client: Client, path: str) -> None:
    assert await client.get(path) == (200, "ok")
    assert client.headers["Content-Type"].startswith("text/plain")


async def test_readiness_follows_its_checks(client: Client, world: World) -> None:
    expected = "[+]ping ok\n[+]loop ok\n[-]sync failed: pods not listed yet\nreadyz check failed\n"
    assert await client.get("/readyz") == (500, expected)
    world.synced = True
    assert await client.get("/readyz") == (200, "ok")
    assert await client.get("/readyz?verbose") == (
        200,
        "[+]ping ok\n[+]loop ok\n[+]sync ok\nreadyz check passed\n",
    )


async def test_a_process_that_is_not_ready_lives(client: Client) -> None:
    assert (await client.get("/livez"))[0] == 200


async def test_a_failed_liveness_check_fails_readiness_too(client: Client, world: World) -> None:
    world.alive, world.synced = False, True
    for path in ("/healthz", "/livez", "/readyz", "/livez/loop"):
        assert (await client.get(path))[0] == 500


async def test_a_check_can_be_left_out(client: Client) -> None:
    assert (await client.get("/readyz?exclude=sync"))[0] == 200
    status, text = await client.get("/readyz?verbose&exclude=sync&exclude=none")
    assert status == 200
    assert "[+]sync excluded: ok" in text
    assert "no matches for none" in text


async def test_a_check_that_does_not_exist_is_not_found(client: Client) -> None:
    assert await client.get("/readyz/nothing") == (404, "readyz has no check 'nothing'\n")


# ---- pages


async def test_metrics_are_prometheus_text(client: Client, world: World) -> None:
    world.metrics.profile("a").attempts["scheduled"][0].inc()
    status, text = await client.get("/metrics")
    assert status == 200
    assert client.headers["Content-Type"].startswith("text/plain; version=")
    assert 'scheduler_schedule_attempts_total{result="scheduled",profile="a"} 1.0' in text


async def test_the_configuration_is_shown_without_secrets(client: Client) -> None:
    shown = await client.json("/configz")
    assert shown == {"configuration": {"workerCount": 2, "password": "[redacted]"}}


async def test_a_debug_page_is_cut_and_says_so(client: Client, world: World) -> None:
    page = await client.json("/debug/queue")
    assert (len(page["items"]), page["limit"], page["truncated"]) == (100, 100, True)
    assert page["pending"] == {"active": 250}
    assert page["items"][0]["api_token"] == "[redacted]"
    assert world.read == 101


async def test_a_debug_page_can_be_narrowed(client: Client) -> None:
    page = await client.json(f"/debug/queue?limit={MAX_LIMIT}&namespace=ns1&place=active")
    assert (len(page["items"]), page["truncated"], page["asked"]) == (125, False, "active")
    page = await client.json(f"/debug/queue?limit={len(PODS)}")
    assert (len(page["items"]), page["truncated"]) == (len(PODS), False)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("limit=0", "limit: found '0'; allowed: a whole number from 1 to 1000\n"),
        ("limit=1001", "limit: found '1001'; allowed"),
        ("limit=-1", "limit: found '-1'; allowed"),
        ("limit=%D9%A3", "limit: found '٣'; allowed"),
        ("limit=" + "9" * 5000, "allowed: a whole number from 1 to 1000"),
        ("place=nowhere", "place: found 'nowhere'; allowed: active, backoff\n"),
        ("pod=x", "unknown parameter 'pod'; allowed: limit, namespace, place\n"),
    ],
)
async def test_a_wrong_parameter_is_told(client: Client, query: str, expected: str) -> None:
    status, text = await client.get(f"/debug/queue?{query}")
    assert status == 400
    assert expected in text


async def test_one_pod_is_explained_once_pods_have_been_listed(client: Client, world: World) -> None:
    assert await client.get("/debug/explain?pod=ns/p") == (503, "not listed yet\n")
    world.synced = True
    assert await client.json("/debug/explain?pod=ns/p") == {"pod": "ns/p", "place": "active"}
    status, text = await client.get("/debug/explain?pod=ns/nobody")
    assert (status, json.loads(text)["pod"]) == (404, "ns/nobody")
    assert client.headers["Content-Type"].startswith("application/json")


@pytest.mark.parametrize("query", ["", "?pod=", "?pod=p", "?pod=/p", "?pod=ns/", "?pod=a/b/c"])
async def test_a_pod_is_named_by_its_namespace_and_name(client: Client, world: World, query: str) -> None:
    world.synced = True
    status, text = await client.get(f"/debug/explain{query}")
    assert status == 400
    assert text.endswith("; allowed: NAMESPACE/POD\n")
    assert await client.get("/debug/explain?pod=a/b&limit=3") == (
        400,
        "unknown parameter 'limit'; allowed: pod, podgroup, output\n",
    )


async def test_a_group_is_explained_by_a_parameter_of_its_own(client: Client) -> None:
    assert await client.json("/debug/explain?podgroup=ns/g") == {"podgroup": "ns/g"}
    status, text = await client.get("/debug/explain?podgroup=g")
    assert (status, text) == (400, "podgroup: found 'g'; allowed: NAMESPACE/NAME\n")
    assert await client.get("/debug/explain?podgroup=a/b&pod=a/b") == (
        400,
        "one of pod and podgroup is enough\n",
    )


async def test_a_page_that_fails_says_so_without_a_trace_and_harms_no_other(client: Client) -> None:
    assert await client.get("/debug/cache") == (500, "this page failed; the log says why\n")
    assert (await client.get("/livez"))[0] == 200


async def test_what_is_not_there_is_not_found(client: Client) -> None:
    for path in ("/", "/debug", "/debug/pprof/", "/metrics/", "/readyz/a/b", "/%2e%2e/etc/passwd"):
        assert await client.get(path) == (404, "there is no such page\n")


async def test_a_process_without_a_queue_has_no_pages_of_a_scheduler(world: World) -> None:
    sources = Sources(metrics=world.metrics.exposition, configuration=dict)
    server = HttpServer(sources, address="127.0.0.1", port=0)
    port = await server.start()
    try:
        async with aiohttp.ClientSession() as session:
            client = Client(session, f"http://127.0.0.1:{port}")
            assert await client.json("/configz") == {"configuration": {}}
            for page in ("queue", "cache", "explain"):
                assert await client.get(f"/debug/{page}") == (404, "there is no such page\n")
    finally:
        await server.stop()


async def test_only_reading_is_allowed(client: Client) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        status, text = await client.get("/metrics", method=method)
        assert status == 405
        assert text == f"{method} is not allowed here; allowed: GET,HEAD\n"
    assert (await client.get("/metrics", method="HEAD"))[0] == 200


async def test_no_answer_is_kept_or_guessed_at_by_a_browser(client: Client) -> None:
    for path in ("/livez", "/metrics", "/configz", "/debug/queue", "/nothing"):
        await client.get(path)
        assert client.headers["X-Content-Type-Options"] == "nosniff"
        assert client.headers["Cache-Control"] == "no-store"


# ---- start and stop


async def test_a_port_that_is_taken_is_told(world: World) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        server = HttpServer(world.sources(), address="127.0.0.1", port=port)
        with pytest.raises(
            ServingError, match=f"cannot serve on 127.0.0.1 port {port}: Address already in use$"
        ):
            await server.start()
    await server.stop()


async def test_what_is_asked_before_the_server_answers_is_answered_then(world: World) -> None:
    server = HttpServer(world.sources(), address="127.0.0.1", port=0)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.listen())
    writer.write(b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    await writer.drain()
    await server.serve()
    assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
    writer.close()
    await server.stop()


async def test_a_server_that_never_answered_frees_its_port(world: World) -> None:
    first = HttpServer(world.sources(), address="127.0.0.1", port=0)
    port = first.listen()
    await first.stop()
    second = HttpServer(world.sources(), address="127.0.0.1", port=port)
    assert second.listen() == port
    await second.stop()


async def test_a_stopped_server_frees_its_port(world: World) -> None:
    first = HttpServer(world.sources(), address="127.0.0.1", port=0)
    port = await first.start()
    await first.stop()
    await first.stop()
    second = HttpServer(world.sources(), address="127.0.0.1", port=port)
    assert await second.start() == port
    await second.stop()


def with_tls(world: World, certificate: str, key: str) -> HttpServer:
    """Its transport asks nobody."""
    serving = Serving(port=0, tls_cert_file=certificate, tls_private_key_file=key)
    return server_of(serving, world.sources(), transport(ApiServer()))


async def test_tls_is_spoken_with_a_certificate(world: World, tmp_path: Path) -> None:
    server = with_tls(world, *_certificate(tmp_path))
    port = await server.start()
    async with aiohttp.ClientSession() as session:
        async with session.get(f"https://127.0.0.1:{port}/livez", ssl=False) as answer:
            assert await answer.text() == "ok"
        with pytest.raises(aiohttp.ClientError):
            await session.get(f"http://127.0.0.1:{port}/livez")
    await server.stop()


async def test_a_certificate_that_is_replaced_is_presented_without_a_restart(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(given_certificates, "PERIOD", 0.02)
    server = with_tls(world, *_certificate(tmp_path))
    port = await server.start()

    async def presented() -> str:
        return await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port))

    before = await presented()
    (tmp_path / "tls.pem").write_text("no certificate", encoding="utf-8")
    await asyncio.sleep(0.1)
    assert await presented() == before
    _certificate(tmp_path)

    async def another() -> bool:
        return await presented() != before

    await until(another)
    await server.stop()


def test_a_certificate_that_cannot_be_read_is_told(world: World, tmp_path: Path) -> None:
    with pytest.raises(
        ServingError, match=r"cannot use the certificate .*none\.pem with the key .*none\.key"
    ):
        with_tls(world, str(tmp_path / "none.pem"), str(tmp_path / "none.key"))


def _certificate(folder: Path) -> tuple[str, str]:
    from datetime import UTC, datetime, timedelta

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "scheduler")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    (folder / "tls.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "tls.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return str(folder / "tls.pem"), str(folder / "tls.key")


# ---- who may read


class ApiServer:
    """A Transport that answers reviews as an API server that knows two tokens."""

    def __init__(self) -> None:
        self.posts: list[tuple[str, dict[str, Any]]] = []
        self.broken: Exception | Response | None = None
        #: What an access review says of who may.
        self.verdict: dict[str, Any] = {}
        self.timeouts: set[float] = set()

    async def request(self, method: str, path: str, *, body: bytes, timeout: float) -> Response:  # noqa: ASYNC109
        review = json.loads(body)
        self.posts.append((path, review))
        self.timeouts.add(timeout)
        if isinstance(self.broken, Response):
            return self.broken
        if self.broken is not None:
            raise self.broken
        spec = review["spec"]
        if review["kind"] == "TokenReview":
            assert path == "/apis/authentication.k8s.io/v1/tokenreviews"
            known = {"prometheus": "monitoring", "tenant": "tenant"}.get(spec["token"])
            status: dict[str, Any] = {"authenticated": known is not None}
            if known:
                status["user"] = {"username": known, "uid": "u", "groups": ["g"], "extra": {"a": ["b"]}}
            else:
                status["error"] = "token is unknown"
        else:
            assert path == "/apis/authorization.k8s.io/v1/subjectaccessreviews"
            assert (spec["uid"], spec["groups"]) == ("u", ["g"])
            assert spec["extra"] == {"a": ["b"]}
            attributes = spec["nonResourceAttributes"]
            assert attributes["verb"] == "get"
            status = {
                "allowed": spec["user"] == "monitoring" and attributes["path"] == "/metrics",
                **self.verdict,
            }
        return Response(201, json.dumps({**review, "status": status}).encode(), {})


@pytest.fixture
def api() -> ApiServer:
    return ApiServer()


def transport(api: ApiServer) -> Transport:
    return api  # type: ignore[return-value]


@pytest.fixture
async def guarded(world: World, api: ApiServer) -> AsyncIterator[Client]:
    server = HttpServer(
        world.sources(), address="127.0.0.1", port=0, authorizer=KubeAuthorizer(transport(api))
    )
    port = await server.start()
    async with aiohttp.ClientSession() as session:
        yield Client(session, f"http://127.0.0.1:{port}")
    await server.stop()


async def test_health_needs_no_token(guarded: Client, api: ApiServer) -> None:
    assert (await guarded.get("/livez"))[0] == 200
    assert (await guarded.get("/readyz"))[0] == 500
    assert api.posts == []


@pytest.mark.parametrize(
    "path",
    [
        "/metrics",
        "/configz",
        "/debug/queue",
        "/debug/cache",
        "/debug/explain",
        "/debug/check",
        "/nothing",
        "/livezz",
    ],
)
async def test_everything_else_needs_one(guarded: Client, api: ApiServer, path: str) -> None:
    for headers in ({}, {"Authorization": "Basic cHJvbWV0aGV1cw=="}, {"Authorization": "Bearer "}):
        status, text = await guarded.get(path, **headers)
        assert (status, text) == (401, "a bearer token that the API server accepts is needed\n")
        assert guarded.headers["WWW-Authenticate"] == "Bearer"
    assert api.posts == []
    assert (await guarded.get(path, Authorization="Bearer guessed"))[0] == 401


async def test_who_may_read_metrics_reads_them_and_nothing_else(guarded: Client) -> None:
    token = {"Authorization": "bearer prometheus"}
    assert (await guarded.get("/metrics", **token))[0] == 200
    assert await guarded.get("/configz", **token) == (403, "may not get the non-resource URL /configz\n")
    assert (await guarded.get("/metrics", Authorization="Bearer tenant"))[0] == 403


async def test_a_token_may_come_in_a_header_that_the_api_servers_proxy_passes_on(guarded: Client) -> None:
    assert (await guarded.get("/metrics", **{TOKEN_HEADER: "prometheus"}))[0] == 200
    assert (await guarded.get("/configz", **{TOKEN_HEADER: "prometheus"}))[0] == 403
    assert (await guarded.get("/metrics", **{TOKEN_HEADER: "guessed"}))[0] == 401
    # What is meant for us comes first: a token beside it is not a second try.
    both = {"Authorization": "Bearer guessed", TOKEN_HEADER: "prometheus"}
    assert (await guarded.get("/metrics", **both))[0] == 401


@pytest.mark.parametrize(
    "broken",
    [
        NotSent("no route"),
        Response(500, b"{}", {}),
        Response(403, b"{}", {}),
        Response(201, b"<html>", {}),
    ],
)
async def test_what_cannot_be_asked_is_refused_and_not_remembered(
    guarded: Client, api: ApiServer, broken: Exception | Response
) -> None:
    api.broken = broken
    token = {"Authorization": "Bearer prometheus"}
    assert (await guarded.get("/metrics", **token))[0] == 503
    api.broken = None
    assert (await guarded.get("/metrics", **token))[0] == 200


@pytest.mark.parametrize("body", [b"{}", b'{"status":{"authenticated":true}}', b'{"status":{}}'])
async def test_an_answer_that_does_not_say_yes_is_a_no(api: ApiServer, body: bytes) -> None:
    api.broken = Response(201, body, {})
    assert await KubeAuthorizer(transport(api)).access("prometheus", "/metrics") is Access.UNAUTHENTICATED


async def test_what_one_authorizer_denies_is_refused_whatever_others_allow(api: ApiServer) -> None:
    api.verdict = {"allowed": True, "denied": True}
    assert await KubeAuthorizer(transport(api)).access("prometheus", "/metrics") is Access.FORBIDDEN


async def test_a_yes_is_kept_a_minute_and_a_no_ten_seconds(api: ApiServer) -> None:
    now = 0.0
    authorizer = KubeAuthorizer(transport(api), clock=lambda: now)

    async def posts(token: str) -> int:
        before = len(api.posts)
        await authorizer.access(token, "/metrics")
        return len(api.posts) - before

    assert await posts("prometheus") == 2
    assert await posts("guessed") == 1
    now = 9.9
    assert await posts("guessed") == 0
    now = 10.0
    assert await posts("guessed") == 1
    now = 59.9
    assert await posts("prometheus") == 0
    now = 60.0
    assert await posts("prometheus") == 2


async def test_an_answer_for_one_page_says_nothing_of_another(api: ApiServer) -> None:
    authorizer = KubeAuthorizer(transport(api))
    assert await authorizer.access("prometheus", "/metrics") is Access.ALLOWED
    assert await authorizer.access("prometheus", "/configz") is Access.FORBIDDEN


async def test_guessed_tokens_do_not_fill_the_memory_and_are_not_kept(api: ApiServer) -> None:
    authorizer = KubeAuthorizer(transport(api))
    await authorizer.access("prometheus", "/metrics")
    for number in range(1100):
        await authorizer.access(f"guess-{number}", "/metrics")
    kept = authorizer._no._answers
    assert len(kept) == 1024
    assert not any("guess" in repr(key) for key in kept)
    before = len(api.posts)
    assert await authorizer.access("prometheus", "/metrics") is Access.ALLOWED
    assert len(api.posts) == before, "guesses displace nothing that is known"


class SlowApiServer(ApiServer):
    """Answers no review before it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may = asyncio.Event()
        self.under_way = 0

    async def request(self, method: str, path: str, **options: Any) -> Response:
        self.under_way += 1
        await self.may.wait()
        self.under_way -= 1
        return await super().request(method, path, **options)


async def test_guessed_tokens_are_asked_about_few_at_a_time_and_turned_away_when_too_many_wait() -> None:
    api, now = SlowApiServer(), 0.0
    authorizer = KubeAuthorizer(transport(api), clock=lambda: now)
    api.may.set()
    assert await authorizer.access("prometheus", "/metrics") is Access.ALLOWED
    api.may.clear()
    now = 61.0
    guesses = [asyncio.create_task(authorizer.access(f"guess-{n}", "/metrics")) for n in range(200)]
    await eventually(lambda: api.under_way == 4)
    turned_away = [task for task in guesses if task.done()]
    assert [task.result() for task in turned_away] == [Access.BUSY] * (200 - 4 - 32)
    # Who was good lately does not queue behind them.
    known = asyncio.create_task(authorizer.access("prometheus", "/metrics"))
    await eventually(lambda: api.under_way == 5)
    api.may.set()
    assert await known is Access.ALLOWED
    answers = await asyncio.gather(*guesses)
    assert answers.count(Access.UNAUTHENTICATED) == 36
    # Who was turned away is not remembered as refused.
    assert await authorizer.access("tenant", "/metrics") is Access.FORBIDDEN


async def test_a_token_that_has_lost_its_right_queues_behind_guesses_like_any_other() -> None:
    api, now = SlowApiServer(), 0.0
    authorizer = KubeAuthorizer(transport(api), clock=lambda: now)
    api.may.set()
    assert await authorizer.access("prometheus", "/metrics") is Access.ALLOWED
    api.verdict, now = {"allowed": False}, 61.0
    assert await authorizer.access("prometheus", "/metrics") is Access.FORBIDDEN
    api.may.clear()
    now = 120.0
    guesses = [asyncio.create_task(authorizer.access(f"guess-{n}", "/metrics")) for n in range(36)]
    await eventually(lambda: api.under_way == 4)
    assert await authorizer.access("prometheus", "/metrics") is Access.BUSY
    api.may.set()
    await asyncio.gather(*guesses)


async def test_no_reader_waits_for_the_api_server_for_longer_than_a_scrape_does(api: ApiServer) -> None:
    """Prometheus gives up after ten seconds by default, and two reviews are asked for one after the other."""
    await KubeAuthorizer(transport(api)).access("prometheus", "/metrics")
    assert len(api.posts) == 2
    assert max(api.timeouts) * 2 <= 10.0


async def test_requests_that_bring_the_same_token_are_answered_by_one_review() -> None:
    api = SlowApiServer()
    authorizer = KubeAuthorizer(transport(api))
    asking = [asyncio.create_task(authorizer.access("prometheus", "/metrics")) for _ in range(100)]
    await eventually(lambda: api.under_way == 1)
    # The first one gives up; the others still get their answer.
    asking[0].cancel()
    api.may.set()
    answers = await asyncio.gather(*asking, return_exceptions=True)
    assert answers[1:] == [Access.ALLOWED] * 99
    assert len(api.posts) == 2


async def test_who_is_turned_away_is_told_when_to_come_again(world: World) -> None:
    class Busy:
        async def access(self, token: str, path: str) -> Access:
            return Access.BUSY

    server = HttpServer(world.sources(), address="127.0.0.1", port=0, authorizer=Busy())
    port = await server.start()
    async with aiohttp.ClientSession() as session:
        client = Client(session, f"http://127.0.0.1:{port}")
        assert (await client.get("/metrics", Authorization="Bearer a"))[0] == 429
        assert client.headers["Retry-After"] == "1"
    await server.stop()
