"""The network address of an `Endpoint`, direct or through a proxy, and the form of its request lines."""

from __future__ import annotations

import re
import ssl
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import SplitResult, unquote, urlsplit

from kube_client.transport import Endpoint

#: Matches a valid request target: visible ASCII.
is_target = re.compile(r"/[!-~]*").fullmatch

_PORTS = {"http": 80, "https": 443}
_USER = re.compile(r"(?<=//)[^/?#]*@")


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """An HTTP proxy that opens tunnels. `tls` is for the connection to the proxy; `authorization` is a header value."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    authorization: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """The address to connect to. `tls` is None for plain HTTP; `server_hostname` is the name in the certificate.

    With a `tunnel`, the connection is made to that proxy, and TLS runs inside the tunnel.
    """

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    server_hostname: str | None = None
    tunnel: Proxy | None = None

    def __str__(self) -> str:
        there = named(self.host, self.port)
        proxy = self.tunnel
        return there if proxy is None else f"{there} through the proxy {named(proxy.host, proxy.port)}"


@dataclass(frozen=True, slots=True)
class Target:
    """The address of a server with the host name of requests, the prefix of every path, and additional headers."""

    address: Address
    host: str
    prefix: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


def named(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def without_user(url: str) -> str:
    """Return the URL without user and password, for messages. It need not be valid."""
    return _USER.sub("", url)


def basic(username: str, password: str) -> str:
    """Return the value of an Authorization header."""
    return "Basic " + b64encode(f"{username}:{password}".encode()).decode("ascii")


def _split(what: str, url: str) -> tuple[SplitResult, int]:
    """Return the URL's parts, and its port or the scheme's. Raises ValueError without the password."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"{what} {without_user(url)!r}: {error}") from None
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ValueError(f"{what} {without_user(url)!r}: expected http://HOST[:PORT][/PATH] or https://...")
    return parts, port or _PORTS[parts.scheme]


def _trusting(cluster: ssl.SSLContext | None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    for authority in cluster.get_ca_certs(binary_form=True) if cluster is not None else ():
        context.load_verify_locations(cadata=authority)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def parse_proxy(url: str, *, what: str = "proxy", cluster: ssl.SSLContext | None = None) -> Proxy:
    """Parse `http[s]://[USER[:PASSWORD]@]HOST[:PORT]`. Raises ValueError without the password.

    An https proxy is trusted if the system or the `cluster`'s context trusts it; client-go only uses the latter.
    """
    if not url.lower().startswith(("http://", "https://")):
        why = ": SOCKS is not supported" if url.startswith("socks") else ""
        raise ValueError(f"{what} must be an http:// or https:// URL, not {without_user(url)!r}{why}")
    parts, port = _split(what, url)
    authorization = ""
    if parts.username is not None:
        authorization = basic(unquote(parts.username), unquote(parts.password or ""))
    return Proxy(
        host=parts.hostname or "",
        port=port,
        tls=_trusting(cluster) if parts.scheme == "https" else None,
        authorization=authorization,
    )


def target_of(endpoint: Endpoint, tls: ssl.SSLContext | None) -> Target:
    """Return the target of requests to `endpoint`. `tls` is required for an https server. Raises ValueError."""
    url = endpoint.base_url
    parts, port = _split("base_url", url)
    if parts.username is not None:
        raise ValueError(f"base_url {without_user(url)!r}: a user and a password have no place in it")
    if parts.query or parts.fragment:
        raise ValueError(f"base_url {url!r}: a query or fragment has no place in it")
    prefix = parts.path.rstrip("/")
    if not is_target(f"{prefix}/"):
        raise ValueError(f"base_url {url!r}: its path is not percent-encoded")
    host = parts.hostname or ""
    if ":" in host:
        # The zone selects an interface of this machine and means nothing to the server.
        shown = f"[{host.partition('%')[0]}]"
    else:
        shown = host if host.isascii() else host.encode("idna").decode()
    if port != _PORTS[parts.scheme]:
        shown = f"{shown}:{port}"
    proxy = parse_proxy(endpoint.proxy, cluster=tls) if endpoint.proxy else None
    if parts.scheme == "https":
        assert tls is not None
        name = endpoint.server_hostname or host.rstrip(".")
        address = Address(host=host, port=port, tls=tls, server_hostname=name, tunnel=proxy)
        return Target(address, shown, prefix)
    if proxy is None:
        return Target(Address(host=host, port=port), shown, prefix)
    # Without TLS a proxy needs the whole URL, and its credentials with every request.
    address = Address(host=proxy.host, port=proxy.port, tls=proxy.tls, server_hostname=proxy.host)
    given = {"Proxy-Authorization": proxy.authorization} if proxy.authorization else {}
    return Target(address, shown, f"http://{shown}{prefix}", given)
