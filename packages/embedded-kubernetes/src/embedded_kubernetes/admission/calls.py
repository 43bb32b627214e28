"""Calls of webhooks over HTTPS: the address of a `clientConfig`, and the errors of failed calls.

`Transport` is the interface that a simulation implements without sockets. Errors have the wording of Go's
net/http and crypto/tls, which kube-apiserver passes on.
"""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64decode
from functools import lru_cache
from ipaddress import ip_address
from types import SimpleNamespace
from typing import TYPE_CHECKING, NamedTuple, Protocol
from urllib.parse import urljoin, urlsplit

from ..registry import Registry
from ..resource import Object

if TYPE_CHECKING:
    import aiohttp

SERVICES = ("", "services")
_HEADERS = {"Content-Type": "application/json", "Accept": "application/json, */*"}
_MOST_REDIRECTS = 10


class CallFailed(Exception):
    """The call failed; the message is the reason."""


class NoClient(Exception):
    """The `clientConfig` is invalid; the message is the reason."""


class Call(NamedTuple):
    """A POST. `address` replaces host and port of the URL, but the certificate must be for the URL's host."""

    url: str
    body: bytes
    authority: bytes = b""
    address: str = ""


class Answer(NamedTuple):
    status: int
    content_type: str
    body: bytes


class Transport(Protocol):
    """Sends calls. Raises `CallFailed`; the caller limits the time."""

    async def __call__(self, call: Call) -> Answer: ...

    async def close(self) -> None: ...


def call_of(registry: Registry, client: Object, *, body: bytes, seconds: int) -> Call:
    """Return the call for a `clientConfig`. Raises `CallFailed` for a missing service."""
    authority = b64decode(client.get("caBundle") or "")
    if url := client.get("url"):
        parts = urlsplit(url)
        url = f"{parts.scheme}://{parts.netloc}{_clean(parts.path)}?timeout={seconds}s"
        return Call(url, body, authority)
    service = client["service"]
    name, namespace, port = service["name"], service["namespace"], service.get("port", 443)
    path = _clean(service.get("path") or "/")
    host = f"{name}.{namespace}.svc"
    url = f"https://{host}:{port}{path}?timeout={seconds}s"
    found = registry.object(SERVICES, f"{namespace}/{name}")
    if found is None:
        raise CallFailed(f'Post "{url}": service "{name}" not found')
    return Call(url, body, authority, _address(found, url, port))


def _clean(path: str) -> str:
    """Return the path with one leading slash and without a trailing one."""
    return "/" + path.strip("/")


def _address(service: Object, url: str, port: int) -> str:
    """Return host and port of a service, as kube-apiserver's resolver of cluster IPs does."""
    name, spec = service["metadata"]["name"], service.get("spec") or {}
    if spec.get("type") == "ExternalName":
        return f"{spec['externalName']}:{port}"
    address = spec.get("clusterIP") or ""
    if address in ("", "None"):
        why = f'cannot route to service with ClusterIP "{address}"'
        raise CallFailed(f'Post "{url}": {why}')
    if not any(each.get("port") == port for each in spec.get("ports") or ()):
        raise CallFailed(f'Post "{url}": no service port {port} found for service "{name}"')
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


@lru_cache(maxsize=256)
def _context(authority: bytes) -> ssl.SSLContext:
    """Return a TLS context. Without `authority`, it trusts the system's certificates.

    Raises `NoClient` for invalid PEM.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if not authority:
        context.load_default_certs()
        return context
    # Every certificate of the bundle is a trust anchor, also if it is not self-signed.
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cadata=authority.decode("ascii"))
    except (ssl.SSLError, ValueError):
        raise NoClient("unable to load root certificates: unable to parse bytes as PEM block") from None
    return context


class Https:
    """The transport over sockets. It owns one session, created in the event loop of the first call."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    async def __call__(self, call: Call) -> Answer:
        context = _context(call.authority)
        # Imported here because the library loads slowly and most servers never call a webhook.
        import aiohttp

        if self._session is None or self._session.closed:
            traces = aiohttp.TraceConfig()
            traces.on_connection_reuseconn.append(_note_reuse)
            self._session = aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar(), trace_configs=[traces])
        method, url, body = "POST", call.url, call.body
        for _ in range(_MOST_REDIRECTS):
            try:
                answer, location = await self._sent(method, url, body, call, context)
            except aiohttp.ClientConnectorCertificateError as error:
                where = call.address if call.address and url == call.url else _authority(url)
                why = await _untrusted(error.certificate_error, urlsplit(url).hostname or "", where)
                raise CallFailed(f'Post "{url}": {why}') from None
            except aiohttp.ClientError as error:
                raise CallFailed(f'Post "{url}": {_why(error, url)}') from None
            except OSError as error:
                raise CallFailed(f'Post "{url}": {error.strerror or error}') from None
            if not location:
                return answer
            if answer.status in (301, 302, 303):
                method, body = "GET", b""
            url = urljoin(url, location)
        raise CallFailed(f'Post "{url}": stopped after {_MOST_REDIRECTS} redirects')

    async def _sent(
        self, method: str, url: str, body: bytes, call: Call, context: ssl.SSLContext
    ) -> tuple[Answer, str]:
        """Send a request; retry if a reused connection turned out to be closed by the peer."""
        import aiohttp

        while True:
            reused: list[bool] = []
            try:
                return await self._once(method, url, body, call, context, reused)
            except (aiohttp.ServerDisconnectedError, ConnectionResetError):
                if not reused:
                    raise

    async def _once(
        self, method: str, url: str, body: bytes, call: Call, context: ssl.SSLContext, reused: list[bool]
    ) -> tuple[Answer, str]:
        """Send a request once; return the answer and a redirect's target.

        `reused` gets an item for a reused connection.
        """
        assert self._session is not None
        parts = urlsplit(url)
        sent, headers, name = url, dict(_HEADERS), None
        if call.address and parts.netloc == urlsplit(call.url).netloc:
            sent = parts._replace(netloc=call.address).geturl()
            headers["Host"], name = parts.netloc, parts.hostname
        async with self._session.request(
            method,
            sent,
            data=body or None,
            headers=headers,
            ssl=context,
            server_hostname=name,
            allow_redirects=False,
            trace_request_ctx=reused,
        ) as response:
            found = Answer(response.status, response.headers.get("Content-Type", ""), await response.read())
            redirected = response.status in (301, 302, 303, 307, 308)
            return found, response.headers.get("Location", "") if redirected else ""

    async def close(self) -> None:
        """Close the session and its connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()


async def _note_reuse(session: object, context: SimpleNamespace, parameters: object) -> None:
    context.trace_request_ctx.append(True)


def _authority(url: str) -> str:
    """Return host and port."""
    parts = urlsplit(url)
    return parts.netloc if parts.port is not None else f"{parts.netloc}:443"


def _why(error: Exception, url: str) -> str:
    """Return the error in Go's wording."""
    import aiohttp

    host = _authority(url)
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"dial tcp: lookup {urlsplit(url).hostname}: no such host"
    if isinstance(error, aiohttp.ClientConnectorSSLError):
        return "tls: first record does not look like a TLS handshake"
    if isinstance(error, aiohttp.ClientConnectorError):
        why = error.os_error
        if isinstance(why, ConnectionRefusedError):
            return f"dial tcp {host}: connect: connection refused"
        return f"dial tcp {host}: {why.strerror or why}"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "EOF"
    return str(error)


#: OpenSSL's verification errors for a certificate without a trusted signer.
_UNKNOWN_AUTHORITY = (2, 18, 19, 20, 21)
_WRONG_TIME = (9, 10)


async def _untrusted(error: Exception, host: str, where: str) -> str:
    """Return crypto/tls's error about a certificate. For a wrong name, fetches the certificate again from `where`."""
    code = getattr(error, "verify_code", 0)
    if code in _UNKNOWN_AUTHORITY:
        why = "certificate signed by unknown authority"
    elif code in _WRONG_TIME:
        why = "certificate has expired or is not yet valid"
    else:
        why = _misnamed(host, *await _names(where))
    return f"tls: failed to verify certificate: x509: {why}"


def _misnamed(host: str, names: list[str], addresses: list[str]) -> str:
    """Return the message of x509.HostnameError."""
    try:
        ip_address(host)
    except ValueError:
        if not names:
            return f"certificate is not valid for any names, but wanted to match {host}"
        return f"certificate is valid for {', '.join(names)}, not {host}"
    if not addresses:
        return f"cannot validate certificate for {host} because it doesn't contain any IP SANs"
    return f"certificate is valid for {', '.join(addresses)}, not {host}"


async def _names(where: str) -> tuple[list[str], list[str]]:
    """Return the names and addresses in a server's certificate; empty lists if it cannot be fetched."""
    from cryptography import x509

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    host, _, port = where.rpartition(":")
    try:
        _, writer = await asyncio.open_connection(host.strip("[]"), int(port), ssl=context)
    except (OSError, ValueError):
        return [], []
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.transport.abort()
    try:
        certificate = x509.load_der_x509_certificate(shown)
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound):
        return [], []
    addresses = found.get_values_for_type(x509.IPAddress)
    return found.get_values_for_type(x509.DNSName), [str(address) for address in addresses]


async def send(transport: Transport, call: Call, *, seconds: float) -> Answer:
    """Send a call with a time limit. Raises `CallFailed`, also on timeout."""
    try:
        async with asyncio.timeout(seconds):
            return await transport(call)
    except TimeoutError:
        raise CallFailed(f'Post "{call.url}": context deadline exceeded') from None
