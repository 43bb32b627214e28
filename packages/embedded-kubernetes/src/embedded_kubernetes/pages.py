"""Paths that are not objects: discovery, schemas, health, metrics and the token issuer's documents."""

from __future__ import annotations

import orjson

from . import discovery, openapi
from .auth.gate import Access
from .auth.jwt import ALGORITHM
from .errors import method_not_allowed, not_found_path
from .registry import Registry
from .requests import Request, Response

_HEALTH = frozenset({"healthz", "readyz", "livez"})
_CHECKS = frozenset(
    {
        *("ping", "log", "etcd", "poststarthook/rbac/bootstrap-roles"),
        "poststarthook/scheduling/bootstrap-system-priority-classes",
        *("poststarthook/crd-informer-synced", "poststarthook/start-apiextensions-informers"),
        *("poststarthook/generic-apiserver-start-informers", "poststarthook/start-kube-aggregator-informers"),
    }
)
_READINESS = _CHECKS | {"etcd-readiness", "informer-sync", "shutdown"}
_TEXT = "text/plain; charset=utf-8"
_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores"
_METRIC = "apiserver_resource_objects"
#: The paths of OpenID Connect discovery.
_CONFIGURATION, _KEYS = "/.well-known/openid-configuration", "/openid/v1/jwks"
#: Unknown paths below these get a 404 Status instead of a plain page.
_SERVICES = tuple(f"{path}/" for path in ("/version", _CONFIGURATION, _KEYS))


def page_not_found() -> Response:
    return Response(404, b"404 page not found\n", _TEXT)


class Pages:
    """The pages of one server. `address` is its host and port."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self.address = "127.0.0.1:6443"

    def answer(self, request: Request, segments: list[str]) -> Response:
        """Return the page at the path with these segments. Raises 404 or 405."""
        first = segments[0]
        if request.path.endswith("/") and (first in _HEALTH or segments == ["metrics"]):
            return page_not_found()
        if first in _HEALTH:
            return _health(first, segments[1:], request)
        path = "/" + "/".join(segments)
        if path.startswith(_SERVICES):
            raise not_found_path()
        accept = request.accept or ""
        if first == "openapi":
            found = openapi.respond(path, accept, self._registry.resources())
            if found is None:
                return page_not_found()
            body, content_type, etag = found
            return Response(200, body, content_type, (("ETag", f'"{etag}"'), ("Vary", "Accept")))
        if path in ("/metrics", "/metrics/slis"):
            return Response(200, _metrics(self._registry).encode(), _METRICS_TYPE)
        answer = self._issuer(path) or discovery.respond(path, accept, self._registry.resources(), address=self.address)
        if answer is None:
            if first in ("api", "apis") and len(segments) > 1:
                return self.no_version("" if first == "api" else segments[1])
            return page_not_found()
        if request.method not in ("GET", "HEAD"):
            raise method_not_allowed()
        document, content_type = answer
        text = document.encode() if isinstance(document, str) else orjson.dumps(document)
        return Response(200, text, content_type)

    def no_version(self, group: str) -> Response:
        """Return the response for an unknown version: a 404 Status in a built-in group, otherwise a plain page."""
        resources = self._registry.resources()
        if any(resource.group == group and not resource.custom for resource in resources):
            raise not_found_path()
        return page_not_found()

    def _issuer(self, path: str) -> tuple[object, str] | None:
        """Return the documents of OpenID Connect discovery and their content types."""
        issuer = Access.of(self._registry).issuer
        if path == _CONFIGURATION:
            document = {
                "issuer": issuer.name,
                "jwks_uri": f"https://{self.address}{_KEYS}",
                "response_types_supported": ["id_token"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": [ALGORITHM],
            }
            return document, "application/json"
        return (issuer.keys.document(), "application/jwk-set+json") if path == _KEYS else None


def _health(name: str, checks: list[str], request: Request) -> Response:
    """Return the health. The only check is that the server responds, under the names of kube-apiserver's checks."""
    known = _READINESS if name == "readyz" else _CHECKS
    if checks and "/".join(checks) not in known:
        return page_not_found()
    body = b"ok"
    if "verbose" in request.parameters and not checks:
        body = b"[+]ping ok\n" + name.encode() + b" check passed\n"
    return Response(200, body, _TEXT)


def _metrics(registry: Registry) -> str:
    """Return the number of stored objects of each kind in the Prometheus text format."""
    lines = [f"# HELP {_METRIC} Number of stored objects, by group and resource.", f"# TYPE {_METRIC} gauge"]
    for served in sorted(registry.tables(), key=lambda served: served.name):
        if not served.resource.asks:
            group, resource = served.name
            lines.append(f'{_METRIC}{{group="{group}",resource="{resource}"}} {len(served.table.records)}')
    return "\n".join(lines) + "\n"
