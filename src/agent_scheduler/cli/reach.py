"""Requests a page of the scheduler: directly from a URL, or through the API server from the leader's pod.

Directly: first without credentials. Those of the kubeconfig are sent only if the page requires a token and the URL is
https, so an API server's token is neither sent unencrypted nor to a page that does not require it. Through the API
server: the Lease names the leader, its pod has the port and the scheme, and the pod's proxy subresource is used. The
API server does not forward the caller's identity, so a token for the page must be given separately. A leader outside
the cluster has no pod; if it runs on this host, it is asked directly at the default port, where another scheduler may
listen: only the one whose identity is in the Lease gets the request.

Every failure becomes one `Unreachable` with a complete message.
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
from agent_scheduler.serving.sources import TOKEN_HEADER
from kube_client.auth import load_endpoint
from kube_client.credentials import KubeConfigError
from kube_client.http1 import Http1Transport
from kube_client.transport import Endpoint, Response, Transport, TransportError

#: Prefix of a group's name on the command line.
GROUP_PREFIX = "podgroup/"
#: Seconds per request.
PATIENCE = 15.0
#: Seconds for a self-check, for which the scheduler lists the cluster.
CHECK_PATIENCE = 150.0
#: Longer foreign responses are truncated in messages.
_QUOTED = 300

Connect = Callable[[Endpoint], Transport]


class ServedPage(NamedTuple):
    """A page. `keys` are in every response that is the page. `patience` is in seconds."""

    path: str
    keys: frozenset[str]
    patience: float = PATIENCE


EXPLAIN = ServedPage("/debug/explain", frozenset({"pod", "place"}))
EXPLAIN_GROUP = ServedPage("/debug/explain", frozenset({"podgroup", "place"}))
FIGURES = ServedPage("/debug/figures", frozenset({"time", "attempts", "pending"}))
WAITING = ServedPage("/debug/queue", frozenset({"pending", "items"}))
CHECK = ServedPage("/debug/check", frozenset({"differences", "checked"}), CHECK_PATIENCE)


class Unreachable(Exception):
    """No scheduler answered. The message says what was tried, and what may help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """The command line's arguments for finding the scheduler."""

    server: str = ""
    token: str = ""
    certificate_authority: Path | None = None
    is_unverified: bool = False
    kubeconfig: Path | None = None
    context: str | None = None
    namespace: str = "agent-scheduler"
    lease: str = "agent-scheduler"
    #: This host's name, as used in a lease by a scheduler on it.
    host: str = field(default_factory=socket.gethostname)
    #: The address of a scheduler on this host.
    local: str = f"http://127.0.0.1:{Serving().port}"


async def ask(pod: str, ways: Ways, *, connect: Connect = Http1Transport) -> dict[str, Any]:
    """Return the page about a pod (namespace/name), or a group with the prefix `podgroup/`. Raises Unreachable.

    If the scheduler does not know it, `place` is unknown.
    """
    kind, page = ("podgroup", EXPLAIN_GROUP) if pod.startswith(GROUP_PREFIX) else ("pod", EXPLAIN)
    path = f"{page.path}?{urlencode({kind: pod.removeprefix(GROUP_PREFIX)}, safe='/')}"
    return await ask_page(page._replace(path=path), ways, connect=connect)


async def ask_page(page: ServedPage, ways: Ways, *, connect: Connect = Http1Transport) -> dict[str, Any]:
    """Return the content of a page. Raises Unreachable."""
    try:
        if ways.server:
            return await _straight(page, ways, connect)
        return await _through_the_api_server(page, ways, connect)
    except (TransportError, KubeConfigError) as error:
        raise Unreachable(str(error)) from error


# ---- direct


async def _straight(page: ServedPage, ways: Ways, connect: Connect) -> dict[str, Any]:
    base = ways.server.rstrip("/")
    given = {"Authorization": f"Bearer {ways.token}"} if ways.token else {}
    answer = await _get(_endpoint(base, given, ways), page, connect)
    if answer.status == 401 and not given:
        answer = await _get(_endpoint(base, await _own_token(base, ways), ways), page, connect)
    return _page(answer, base, page)


async def _own_token(base: str, ways: Ways) -> dict[str, str]:
    """Return the kubeconfig's authorization header. Raises Unreachable if there is none or it must not be sent."""
    if urlsplit(base).scheme != "https":
        raise Unreachable(f"{base} requires a token; over http only one given with --token is sent")
    if ways.is_unverified:
        raise Unreachable(f"{base} requires a token; with --insecure-skip-tls-verify only that of --token is sent")
    endpoint = load_endpoint(kubeconfig=ways.kubeconfig, context=ways.context)
    found = (await endpoint.headers()).get("Authorization", "")
    if not found.lower().startswith("bearer "):
        raise Unreachable(f"{base} requires a token, and {endpoint.source} has none; use --token")
    return {"Authorization": found}


def _endpoint(base: str, headers: dict[str, str], ways: Ways) -> Endpoint:
    async def given() -> dict[str, str]:
        return headers

    tls = None
    if base.startswith("https:"):
        try:
            tls = ssl.create_default_context(cafile=ways.certificate_authority)
        except (OSError, ssl.SSLError) as error:
            raise Unreachable(f"--certificate-authority {ways.certificate_authority}: {error}") from error
        if ways.is_unverified:
            tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    return Endpoint(base, ssl_context=tls, headers=given)


async def _get(endpoint: Endpoint, page: ServedPage, connect: Connect) -> Response:
    try:
        transport = connect(endpoint)
    except ValueError as error:
        raise Unreachable(f"--server: {error}") from error
    try:
        return await transport.request("GET", page.path, timeout=page.patience)
    except TransportError as error:
        hint = ""
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            hint = "; use --certificate-authority, or --insecure-skip-tls-verify behind kubectl port-forward"
        elif endpoint.base_url.startswith("http:") and "closed by the server" in str(error):
            hint = "; does it serve https?"
        raise Unreachable(f"no scheduler answers at {endpoint.base_url}: {error}{hint}") from error
    finally:
        await transport.close()


# ---- through the API server


async def _through_the_api_server(page: ServedPage, ways: Ways, connect: Connect) -> dict[str, Any]:
    endpoint = load_endpoint(kubeconfig=ways.kubeconfig, context=ways.context)
    if ways.token:
        endpoint = _with_page_token(endpoint, ways.token)
    transport = connect(endpoint)
    try:
        identity = await _holder(transport, ways)
        # The host name, which in a pod is the pod's name, is followed by a UUID that distinguishes its processes.
        holder = identity.rpartition("_")[0] or identity
        where = f"/api/v1/namespaces/{quote(ways.namespace, safe='')}/pods/{quote(holder, safe='')}"
        named = f"pod {ways.namespace}/{holder}, which lease {ways.lease} names as the leader,"
        pod = await _object(transport, where, named)
        if pod is not None:
            return await _at(transport, pod, page, ways.namespace)
    finally:
        await transport.close()
    if holder == ways.host:
        here = replace(ways, server=ways.local)
        answering = (await _straight(FIGURES, here, connect))["about"]["identity"]
        if answering != identity:
            raise Unreachable(
                f"lease {ways.namespace}/{ways.lease} of {endpoint.base_url} is held by {identity}, but {answering} "
                f"answers at {ways.local}; use --server with the address of the leader, or another --kubeconfig"
            )
        return await _straight(page, here, connect)
    raise Unreachable(
        f"lease {ways.namespace}/{ways.lease} is held by {holder}, which is not a pod of that namespace; "
        f"for a scheduler outside the cluster use --server, by default {ways.local} on its own host"
    )


def _with_page_token(endpoint: Endpoint, token: str) -> Endpoint:
    """Return `endpoint` with a token that the API server forwards."""

    async def headers() -> dict[str, str]:
        return {**await endpoint.headers(), TOKEN_HEADER: token}

    return replace(endpoint, headers=headers)


async def _holder(transport: Transport, ways: Ways) -> str:
    """Return the identity of the leader."""
    where = f"namespaces/{quote(ways.namespace, safe='')}/leases/{quote(ways.lease, safe='')}"
    named = f"lease {ways.namespace}/{ways.lease}"
    lease = await _object(transport, f"/apis/coordination.k8s.io/v1/{where}", named)
    if lease is None:
        raise Unreachable(f"{named} does not exist; use --server, or --namespace and --lease")
    holder = (lease.get("spec") or {}).get("holderIdentity") or ""
    if not holder:
        raise Unreachable(f"{named} has no holder: no scheduler is leading")
    return str(holder)


async def _at(transport: Transport, pod: dict[str, Any], page: ServedPage, namespace: str) -> dict[str, Any]:
    name = pod["metadata"]["name"]
    scheme, port = _served(pod)
    # The API server uses http by default.
    target = f"https:{name}:{port}" if scheme == "https" else f"{name}:{port}"
    proxied = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(target, safe=':')}/proxy{page.path}"
    answer = await transport.request("GET", proxied, timeout=page.patience)
    return _page(answer, f"pod {namespace}/{name}, through the API server", page)


def _served(pod: dict[str, Any]) -> tuple[str, int]:
    """Return scheme and port of the page: those of the readiness probe at /readyz."""
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
        f"pod {pod['metadata']['name']} has no readiness probe at /readyz to take the port from; use --server"
    )


async def _object(transport: Transport, path: str, what: str) -> dict[str, Any] | None:
    """Return an object, or None if the API server says that it does not exist."""
    answer = await transport.request("GET", path, timeout=PATIENCE)
    if answer.status == 404 and (_json(answer) or {}).get("reason") == "NotFound":
        return None
    if answer.status != 200:
        raise Unreachable(f"{what} cannot be read: {_words(answer)}")
    found = _json(answer)
    if found is None:
        raise Unreachable(f"{what} cannot be read: the response is not an object")
    return found


# ---- answers


def _page(answer: Response, source: str, page: ServedPage) -> dict[str, Any]:
    """Return the page of a response. Raises Unreachable if it is something else."""
    found = _json(answer)
    if answer.status in (200, 404) and found is not None and page.keys <= found.keys():
        return found
    hint = ""
    if answer.status == 401:
        hint = "; use --token"
    elif answer.status == 404:
        hint = f"; does this scheduler have {page.path.partition('?')[0]}?"
    raise Unreachable(f"{source} answered: {_words(answer)}{hint}")


def _json(answer: Response) -> dict[str, Any] | None:
    try:
        found = json.loads(answer.body)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _words(answer: Response) -> str:
    """Return the status with the message of a Status, or the body of another error."""
    found = _json(answer)
    text = str(found.get("message", "")) if found else answer.body.decode(errors="replace")
    text = " ".join(text.split())
    return f"{answer.status} {text[:_QUOTED]}".strip()
