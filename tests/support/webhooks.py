"""The webhook's process against an embedded cluster, both over HTTP, the webhook's with TLS."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from io import BytesIO
from typing import Any

import aiohttp
import yaml

from agent_scheduler.config.schema import Logging, Serving
from agent_scheduler.process.webhook import WebhookProcess
from agent_scheduler.process.webhook_flags import OwnCertificateSettings, WebhookSettings
from agent_scheduler.webhook.configurations import MUTATING, VALIDATING
from tests.support.batched import install
from tests.support.embedded import EmbeddedCluster, embedded_cluster, until
from tests.support.places import CONFIG

NAME = "agent-scheduler-webhook"
SECRETS = "/api/v1/namespaces/agent-scheduler/secrets"
SECRET = f"{SECRETS}/{NAME}-certificate"
OWN = OwnCertificateSettings(
    namespace="agent-scheduler",
    secret=f"{NAME}-certificate",
    hosts=(f"{NAME}.agent-scheduler.svc", "localhost"),
    mutating=NAME,
    validating=NAME,
)


def manifest(name: str, folder: str = "webhook") -> Any:
    return yaml.safe_load((CONFIG / folder / name).read_text())


def ignored(configuration: Any) -> Any:
    """Make the configuration's webhooks ignore failures, because these tests run without their Service."""
    for each in configuration["webhooks"]:
        each["failurePolicy"] = "Ignore"
    return configuration


class World:
    """Owner of the processes, which end with it."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster = cluster
        self._running: dict[WebhookProcess, asyncio.Task[int]] = {}

    def start(self, **settings: Any) -> WebhookProcess:
        process = self.made(**settings)
        self._running[process] = asyncio.create_task(process.run(signals=False))
        return process

    def made(self, **settings: Any) -> WebhookProcess:
        """Create a process that does not run yet."""
        serving = settings.pop("serving", Serving(bind_address="127.0.0.1", port=0))
        return WebhookProcess(
            WebhookSettings(
                **{
                    "kubeconfig": "",
                    "serving": serving,
                    "logging": Logging(),
                    "schedulers": ("volcano", "agent-scheduler"),
                    "certificate": None if serving.tls_cert_file else OWN,
                    "shutdown_delay": 0.05,
                    **settings,
                }
            ),
            **self.cluster.way(),
        )

    async def ended(self, process: WebhookProcess) -> int:
        return await asyncio.wait_for(self._running.pop(process), 120)

    async def end(self) -> None:
        for process in list(self._running):
            process.stop()
            assert await self.ended(process) == 0

    async def merge(self, path: str, change: Any) -> Any:
        return await self.cluster.merge(path, change)

    # ---- what there is

    async def secret(self) -> Mapping[str, bytes]:
        data = (await self.cluster.ask("GET", SECRET)).get("data") or {}
        return {key: base64.b64decode(text) for key, text in data.items()}

    async def bundles(self) -> list[set[str]]:
        """Return the CA bundles of the webhooks in both configurations."""
        found = [await self.cluster.ask("GET", f"{path}/{NAME}") for path in (MUTATING, VALIDATING)]
        return [{each["clientConfig"].get("caBundle", "") for each in one["webhooks"]} for one in found]

    async def trusted(self) -> ssl.SSLContext:
        """Return the TLS context of an API server with the configurations, once both have the same CA bundle."""

        async def one() -> str:
            (first, *others), second = await self.bundles()
            return first if not others and second == {first} else ""

        bundle = await until(one)
        return ssl.create_default_context(cadata=base64.b64decode(bundle).decode())


class Client:
    """Sends requests to one webhook, as an API server does."""

    def __init__(self, session: aiohttp.ClientSession, base: str) -> None:
        self.session = session
        self._base = base

    async def post(self, path: str, body: bytes, content_type: str = "application/json") -> tuple[int, str]:
        headers = {"Content-Type": content_type}
        async with self.session.post(self._base + path, data=BytesIO(body), headers=headers) as answer:
            self.headers = answer.headers
            return answer.status, await answer.text()

    async def get(self, path: str) -> tuple[int, str]:
        async with self.session.get(self._base + path) as answer:
            return answer.status, await answer.text()

    async def review(self, path: str, made: Any, **request: Any) -> Any:
        """Return the response, with a decoded patch."""
        asked = {"uid": "u1", "operation": "CREATE", "namespace": "default", "object": made, **request}
        status, text = await self.post(path, review(asked))
        assert status == 200, text
        response = json.loads(text)["response"]
        assert response.pop("uid") == "u1"
        if "patch" in response:
            response["patch"] = json.loads(base64.b64decode(response["patch"]))
        return response


def review(request: Mapping[str, Any]) -> bytes:
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


@asynccontextmanager
async def asking(process: WebhookProcess, trusted: ssl.SSLContext) -> AsyncIterator[Client]:
    connector = aiohttp.TCPConnector(ssl=trusted)
    async with aiohttp.ClientSession(connector=connector) as session:
        yield Client(session, f"https://localhost:{process.port}")


@asynccontextmanager
async def webhooks(*, kinds: bool = True, **server: Any) -> AsyncIterator[World]:
    """Start a cluster with the objects of `config/webhook`, without the Deployment; stop processes at the end."""
    async with embedded_cluster(**server) as cluster:
        if kinds:
            await install(cluster)
        await cluster.ask("POST", "/api/v1/namespaces", manifest("namespace.yaml"))
        await cluster.ask("POST", SECRETS, manifest("secret.yaml"))
        for path, file in ((MUTATING, "mutating.yaml"), (VALIDATING, "validating.yaml")):
            await cluster.ask("POST", path, ignored(manifest(file)))
        world = World(cluster)
        try:
            yield world
            await world.end()
        finally:
            for task in world._running.values():
                task.cancel()


@asynccontextmanager
async def asked(**settings: Any) -> AsyncIterator[tuple[WebhookProcess, Client]]:
    """Run a process, and a client that calls it as an API server does."""
    async with webhooks() as world:
        process = world.start(**settings)
        async with asking(process, await world.trusted()) as api_server:
            yield process, api_server
