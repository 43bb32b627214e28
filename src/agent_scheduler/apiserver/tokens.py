"""POST of a TokenRequest below a service account (authentication.k8s.io/v1).

The token has the claims of a real one and no signature: it is for clients that want a token and look into it. It
opens nothing. A server that was started with a token of its own accepts that one alone, and one without asks for
none.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from typing import Any

import orjson

from . import schema
from .bodies import parse
from .builtin.causes import invalid as cause_invalid
from .errors import bad_request, conflict, invalid, not_found
from .registry import Registry, Served
from .requests import Request, Response
from .resource import Object
from .times import clock_text

SERVICE_ACCOUNTS = ("", "serviceaccounts")

_GROUP, _VERSION, _KIND = "authentication.k8s.io", "v1", "TokenRequest"
_ISSUER = "https://kubernetes.default.svc.cluster.local"
#: Seconds: what is given if nothing is asked for, and the bounds of what may be.
_USUAL, _LEAST, _MOST = 3600, 600, 2**32
#: What a token can be bound to: it would end with that object.
_BOUND = {"Node": ("", "nodes"), "Pod": ("", "pods"), "Secret": ("", "secrets")}
_HEADER = {"alg": "none", "typ": "JWT"}


def request_token(
    registry: Registry, served: Served, namespace: str, name: str, request: Request
) -> Response:
    """Answer a token for the service account. Raises 404 if it is missing, 422 for a bad lifetime."""
    body: Any = parse(request, _KIND)
    if not isinstance(body, dict) or body.get("kind", _KIND) != _KIND:
        shown = body.get("kind") if isinstance(body, dict) else type(body).__name__
        raise bad_request(f"the body must be a {_KIND}, not {shown}")
    asked: Object = {"metadata": {}, **body, "kind": _KIND, "apiVersion": f"{_GROUP}/{_VERSION}"}
    schema.check_kind(_GROUP, _VERSION, _KIND, asked)
    spec: dict[str, Any] = asked["spec"]
    account = served.table.get(namespace, name)
    if account is None:
        raise not_found("serviceaccounts", "", name)
    given = (asked.get("metadata") or {}).get("name") or name
    if given != name:
        raise bad_request(f"the name of the object ({given}) does not match the name on the URL ({name})")
    seconds = spec.get("expirationSeconds")
    if seconds is None:
        seconds = spec["expirationSeconds"] = _USUAL
    _check_lifetime(seconds, name)
    if not spec.get("audiences"):
        spec["audiences"] = [_ISSUER]
    claims: dict[str, Any] = {
        "namespace": namespace,
        "serviceaccount": {"name": name, "uid": account.uid},
        **_bound(registry, spec.get("boundObjectRef"), namespace),
    }
    now = int(registry.store.clock())
    payload = {
        "aud": spec["audiences"],
        "exp": now + seconds,
        "iat": now,
        "iss": _ISSUER,
        "jti": registry.store.uid(),
        "kubernetes.io": claims,
        "nbf": now,
        "sub": f"system:serviceaccount:{namespace}:{name}",
    }
    answer = {
        "kind": _KIND,
        "apiVersion": f"{_GROUP}/{_VERSION}",
        "metadata": {"name": name, "namespace": namespace, "creationTimestamp": registry.now()},
        "spec": spec,
        "status": {"token": unsigned(payload), "expirationTimestamp": clock_text(now + seconds)},
    }
    return Response(201, orjson.dumps(answer))


def unsigned(payload: dict[str, Any]) -> str:
    """The claims as an unsecured JSON Web Token (RFC 7519, section 6)."""
    parts = [urlsafe_b64encode(orjson.dumps(part)).rstrip(b"=") for part in (_HEADER, payload)]
    return b".".join([*parts, b""]).decode()


def _check_lifetime(seconds: int, name: str) -> None:
    at = "spec.expirationSeconds"
    causes = []
    if seconds < _LEAST:
        causes.append(cause_invalid(at, seconds, "may not specify a duration less than 10 minutes"))
    if seconds > _MOST:
        causes.append(cause_invalid(at, seconds, "may not specify a duration larger than 2^32 seconds"))
    if causes:
        raise invalid(_KIND, _GROUP, name, causes)


def _bound(registry: Registry, reference: Any, namespace: str) -> dict[str, Any]:
    """The claim about the object that the token is bound to. Raises 404 or 409 if that is not there."""
    if not reference:
        return {}
    kind, name, uid = reference.get("kind", ""), reference.get("name", ""), reference.get("uid", "")
    if kind not in _BOUND:
        raise bad_request(f"cannot bind token for serviceaccount to object of type {kind or '<none>'}")
    served = registry.stored(_BOUND[kind])
    record = served.table.get(namespace if served.resource.namespaced else "", name)
    if record is None:
        raise not_found(served.resource.plural, "", name)
    if uid and uid != record.uid:
        why = (
            f"the UID in the bound object reference ({uid}) does not match the UID in record. The object might "
            "have been deleted and then recreated"
        )
        raise conflict(served.resource.plural, "", name, why)
    return {kind.lower(): {"name": name, "uid": record.uid}}
