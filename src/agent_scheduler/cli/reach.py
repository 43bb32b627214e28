"""The way to a page of the scheduler: straight to a URL, or through the API server to the leader's pod.

Straight: without credentials first, with those of the kubeconfig only if the page asks for a token and the URL is
https (a token that was made for the API server is not sent in the clear, nor to a page that does not ask). Through the
API server: the Lease names the leader, its pod says on which port and with which scheme it serves, and the pod's proxy
subresource leads there. The API server does not pass on who asks, so a token for the page itself has to be given.
A leader that runs outside the cluster has no pod: on this very host it is asked straight at the usual port.

Whatever goes wrong becomes one `Unreachable` with a complete message.
"""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

from agent_scheduler.config.schema import Serving
from agent_scheduler.kube.auth import load_endpoint
from agent_scheduler.kube.credentials import KubeConfigError
from agent_scheduler.kube.http1 import Http1Transport
from agent_scheduler.kube.transport import Endpoint, Response, Transport, TransportError
from agent_scheduler.serving.sources import TOKEN_HEADER

#: Before a group's name on the command line.
GROUP_PREFIX = "podgroup/"
#: Seconds for each request.
PATIENCE = 15.0
#: And for the page, where that is a self-check: the scheduler lists the cluster for it.
CHECK_PATIENCE = 150.0
#: Longer answers that are not ours are cut in messages.
_QUOTED = 300

Connect = Callable[[Endpoint], Transport]


class Page(NamedTuple):
    """`keys`: what an answer has that is the page. `patience` in seconds."""

    path: str
    keys: frozenset[str]
    patience: float = PATIENCE


EXPLAIN = Page("/debug/explain", frozenset({"pod", "place"}))
EXPLAIN_GROUP = Page("/debug/explain", frozenset({"podgroup", "place"}))
FIGURES = Page("/debug/figures", frozenset({"time", "attempts", "pending"}))
WAITING = Page("/debug/queue", frozenset({"pending", "items"}))
CHECK = Page("/debug/check", frozenset({"differences", "checked"}), CHECK_PATIENCE)


class Unreachable(Exception):
    """No scheduler answered. The message says what was tried, and what may help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """What the command line says about where the scheduler is."""

    server: str = ""
    token: str = ""
    certificate_authority: Path | None = None
    kubeconfig: Path | None = None
    namespace: str = "agent-scheduler"
    lease: str = "agent-scheduler"
    #: This host's name, as a scheduler on it names itself in a lease.
    host: str = field(default_factory=socket.gethostname)
    #: Where a scheduler on this host is asked.
    local: str = f"http://127.0.0.1:{Serving().port}"


async def ask(pod: str, ways: Ways, *, connect: Connect = Http1Transport) -> dict[str, Any]:
    """The page about `pod` (namespace/name), or with `podgroup/` before it about a group; `place` is unknown for one
    that the scheduler does not know.

    Raises Unreachable.
    """
    kind, page = ("podgroup", EXPLAIN_GROUP) if pod.startswith(GROUP_PREFIX) else ("pod", EXPLAIN)
    path = f"{page.path}?{urlencode({kind: pod.removeprefix(GROUP_PREFIX)}, safe='/')}"
    return await ask_page(page._replace(path=path), ways, connect=connect)


async def ask_page(page: Page, ways: Ways, *, connect: Connect = Http1Transport) -> dict[str, Any]:
    """What a page says. Raises Unreachable."""
    try:
        if ways.server:
            return await _straight(page, ways, connect)
        return await _through_the_api_server(page, ways, connect)
    except (TransportError, KubeConfigError) as error:
        raise Unreachable(str(error)) from error


# ---- straight


async def _straight(page: Page, ways: Ways, connect: Connect) -> dict[str, Any]:
    base = ways.server.rstrip("/")
    given = {"Authorization": f"Bearer {ways.token}"} if ways.token else {}
    answer = await _get(_endpoint(base, given, ways.certificate_authority), page, connect)
    if answer.status == 401 and not given:
        answer = await _get(
            _endpoint(base, await _own_token(base, ways), ways.certificate_authority), page, connect
        )
    return _page(answer, base, page)


async def _own_token(base: str, ways: Ways) -> dict[str, str]:
    """Authorization by the kubeconfig's current context. Raises Unreachable where that must not be, or is not, sent."""
    if urlsplit(base).scheme != "https":
        raise Unreachable(
            f"{base} asks for a token, and none is sent over http unless it is given with --token"
        )
    endpoint = load_endpoint(kubeconfig=ways.kubeconfig)
    found = (await endpoint.headers()).get("Authorization", "")
    if not found.lower().startswith("bearer "):
        raise Unreachable(f"{base} asks for a token, and {endpoint.source} has none; give one with --token")
    return {"Authorization": found}


def _endpoint(base: str, headers: dict[str, str], authority: Path | None) -> Endpoint:
    async def given() -> dict[str, str]:
        return headers

    tls = None
    if base.startswith("https:"):
        try:
            tls = ssl.create_default_context(cafile=authority)
        except (OSError, ssl.SSLError) as error:
            raise Unreachable(f"--certificate-authority {authority}: {error}") from error
    return Endpoint(base, ssl_context=tls, headers=given)


async def _get(endpoint: Endpoint, page: Page, connect: Connect) -> Response:
    try:
        transport = connect(endpoint)
    except ValueError as error:
        raise Unreachable(f"--server: {error}") from error
    try:
        return await transport.request("GET", page.path, timeout=page.patience)
    except TransportError as error:
        raise Unreachable(f"no scheduler answers at {endpoint.base_url}: {error}") from error
    finally:
        await transport.close()


# ---- through the API server


async def _through_the_api_server(page: Page, ways: Ways, connect: Connect) -> dict[str, Any]:
    endpoint = load_endpoint(kubeconfig=ways.kubeconfig)
    if ways.token:
        endpoint = _with_page_token(endpoint, ways.token)
    transport = connect(endpoint)
    try:
        holder = await _holder(transport, ways)
        where = f"/api/v1/namespaces/{quote(ways.namespace, safe='')}/pods/{quote(holder, safe='')}"
        named = f"pod {ways.namespace}/{holder}, which lease {ways.lease} names as the leader,"
        pod = await _object(transport, where, named)
        if pod is not None:
            return await _at(transport, pod, page, ways.namespace)
    finally:
        await transport.close()
    if holder == ways.host:
        return await _straight(page, replace(ways, server=ways.local), connect)
    raise Unreachable(
        f"lease {ways.namespace}/{ways.lease} is held by {holder}, which is no pod of that namespace: a scheduler "
        f"outside the cluster is named with --server, which is {ways.local} on its own host unless configured otherwise"
    )


def _with_page_token(endpoint: Endpoint, token: str) -> Endpoint:
    """`endpoint`, with a token that the API server passes on to whom it proxies."""

    async def headers() -> dict[str, str]:
        return {**await endpoint.headers(), TOKEN_HEADER: token}

    return replace(endpoint, headers=headers)


async def _holder(transport: Transport, ways: Ways) -> str:
    """The host name of the leader, which in a pod is the pod's name."""
    where = f"namespaces/{quote(ways.namespace, safe='')}/leases/{quote(ways.lease, safe='')}"
    named = f"lease {ways.namespace}/{ways.lease}"
    lease = await _object(transport, f"/apis/coordination.k8s.io/v1/{where}", named)
    if lease is None:
        raise Unreachable(
            f"{named} does not exist; name the scheduler with --server, or --namespace and --lease"
        )
    holder = (lease.get("spec") or {}).get("holderIdentity") or ""
    if not holder:
        raise Unreachable(f"{named} is held by nobody: no scheduler leads")
    # Behind the host's name stands a UUID, which tells two processes of one host apart.
    return str(holder.rpartition("_")[0] or holder)


async def _at(transport: Transport, pod: dict[str, Any], page: Page, namespace: str) -> dict[str, Any]:
    name = pod["metadata"]["name"]
    scheme, port = _served(pod)
    # The API server takes http where no scheme is named.
    target = f"https:{name}:{port}" if scheme == "https" else f"{name}:{port}"
    proxied = (
        f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(target, safe=':')}/proxy{page.path}"
    )
    answer = await transport.request("GET", proxied, timeout=page.patience)
    return _page(answer, f"pod {namespace}/{name}, through the API server", page)


def _served(pod: dict[str, Any]) -> tuple[str, int]:
    """Scheme and port of the page: of the container whose readiness is asked for at /readyz."""
    for container in (pod.get("spec") or {}).get("containers") or ():
        probe = ((container.get("readinessProbe") or {}).get("httpGet")) or {}
        if probe.get("path") != "/readyz":
            continue
        ports = {port.get("name"): port["containerPort"] for port in container.get("ports") or ()}
        port = probe.get("port")
        port = port if isinstance(port, int) else ports.get(port)
        if port is not None:
            return str(probe.get("scheme") or "HTTP").lower(), int(port)
    raise Unreachable(
        f"pod {pod['metadata']['name']} has no readiness probe at /readyz that would say where it serves; "
        "name it with --server"
    )


async def _object(transport: Transport, path: str, what: str) -> dict[str, Any] | None:
    """None for what does not exist, by the API server's own word."""
    answer = await transport.request("GET", path, timeout=PATIENCE)
    if answer.status == 404 and (_json(answer) or {}).get("reason") == "NotFound":
        return None
    if answer.status != 200:
        raise Unreachable(f"{what} cannot be read: {_words(answer)}")
    found = _json(answer)
    if found is None:
        raise Unreachable(f"{what} cannot be read: the answer is no object")
    return found


# ---- answers


def _page(answer: Response, source: str, page: Page) -> dict[str, Any]:
    """Raises Unreachable for what is not the page."""
    found = _json(answer)
    if answer.status in (200, 404) and found is not None and page.keys <= found.keys():
        return found
    hint = ""
    if answer.status == 401:
        hint = "; give a token with --token"
    elif answer.status == 404:
        hint = f"; is it a scheduler that has {page.path.partition('?')[0]}?"
    raise Unreachable(f"{source} cannot tell: {_words(answer)}{hint}")


def _json(answer: Response) -> dict[str, Any] | None:
    try:
        found = json.loads(answer.body)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _words(answer: Response) -> str:
    """What an error says for itself: the message of a Status, or its text."""
    found = _json(answer)
    text = str(found.get("message", "")) if found else answer.body.decode(errors="replace")
    text = " ".join(text.split())
    return f"{answer.status} {text[:_QUOTED]}".strip()
