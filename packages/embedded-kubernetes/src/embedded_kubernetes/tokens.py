"""Handles POST of a TokenRequest for a service account (authentication.k8s.io/v1).

Follows `TokenREST` of pkg/registry/core/serviceaccount, in its order: names, account, validation, bound object. The
token is signed with the server's key, and `auth.account_tokens` accepts it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from . import nesting, schema
from .admission.attributes import GroupVersionKind
from .admission.configured import Below, Review, review_of
from .auth.gate import Access
from .auth.identity import account_name
from .auth.quoting import quote
from .bodies import of_kind, parse
from .builtin.causes import invalid as cause_invalid
from .errors import Cause, bad_request, conflict, invalid, not_found, other_namespace
from .registry import Registry, Served
from .requests import Answer, Request, Response
from .resource import Object
from .store import Record
from .times import clock_text

SERVICE_ACCOUNTS = ("", "serviceaccounts")

_GROUP, _VERSION, _KIND = "authentication.k8s.io", "v1", "TokenRequest"
_BELOW = Below(subresource="token", kind=GroupVersionKind(_GROUP, _VERSION, _KIND))
#: Lifetimes in seconds: default, minimum and maximum.
_USUAL, _LEAST, _MOST = 3600, 600, 2**32
#: The lifetime that kubelets request for pods. Such a token is valid for a year, with its intended end as a claim.
_EXTENDED, _YEAR = 3607, 365 * 24 * 3600
_NO_TOKEN = {"token": "", "expirationTimestamp": None}
#: Kinds that a token can be bound to; it becomes invalid with the object.
_BOUND = {"Node": ("", "nodes"), "Pod": ("", "pods"), "Secret": ("", "secrets")}
_NODES = ("", "nodes")


class _Bound(NamedTuple):
    """The claims about the object that a token is bound to, and whether that is a pod."""

    claims: Object
    to_pod: bool = False


def request_token(registry: Registry, served: Served, namespace: str, name: str, request: Request) -> Answer:
    """Return a token for the service account. Raises 404 if that is missing, 422 for an invalid lifetime."""
    dry = request.dry_run("CreateOptions") if request.query else False
    asked = _read(request)
    if registry.is_reviewed:
        review = review_of(
            registry,
            served,
            request,
            operation="CREATE",
            obj=_defaulted(asked, namespace),
            namespace=namespace,
            name=name,
            options="CreateOptions",
            below=_BELOW,
        )
        if review is not None:
            return review.run(_token_reviewed(registry, served, dry, review))
    account = _complete(registry, served, asked, namespace, name)
    return _answer(registry, account, asked, dry=dry)


async def _token_reviewed(registry: Registry, served: Served, dry: bool, review: Review) -> Response:
    asked = await review.mutate()
    asked.pop("status", None)
    account = _complete(registry, served, asked, review.admission.namespace, review.admission.name)
    await review.validate({**asked, "status": dict(_NO_TOKEN)})
    return _answer(registry, account, asked, dry=dry)


def _defaulted(asked: Object, namespace: str) -> Object:
    """Return the request as webhooks see it before its completion: absent fields are null."""
    spec = {"audiences": None, "expirationSeconds": _USUAL, "boundObjectRef": None, **asked["spec"]}
    metadata = {**asked["metadata"], "namespace": asked["metadata"].get("namespace") or namespace}
    return {**asked, "metadata": metadata, "spec": spec, "status": dict(_NO_TOKEN)}


def _complete(registry: Registry, served: Served, asked: Object, namespace: str, name: str) -> Record:
    """Validate and complete a request in place; return its service account."""
    metadata: Object = asked["metadata"]
    _check_names(metadata, namespace, name)
    account = served.table.get(namespace, name)
    if account is None:
        raise not_found("serviceaccounts", "", name)
    spec: dict[str, Any] = asked["spec"]
    if not spec.get("audiences"):
        spec["audiences"] = list(Access.of(registry).issuer.audiences)
    if spec.get("expirationSeconds") is None:
        spec["expirationSeconds"] = _USUAL
    _check_lifetime(spec["expirationSeconds"])
    spec.setdefault("boundObjectRef", None)
    uid, now = registry.store.uid(), registry.now()
    asked["metadata"] = {**metadata, "name": name, "namespace": namespace, "uid": uid, "creationTimestamp": now}
    return account


def _answer(registry: Registry, account: Record, asked: Object, *, dry: bool) -> Response:
    issuer = Access.of(registry).issuer
    spec = asked["spec"]
    reference = spec["boundObjectRef"]
    bound = _bound(registry, reference, account.namespace, account.name) if reference else _Bound({})
    now = int(registry.store.clock())
    answer: Object = {
        "kind": _KIND,
        "apiVersion": f"{_GROUP}/{_VERSION}",
        "metadata": asked["metadata"],
        "spec": spec,
        "status": {"token": "", "expirationTimestamp": clock_text(now + spec["expirationSeconds"])},
    }
    if not dry:
        claims = _claims(registry, account, spec, bound, now)
        answer["status"]["token"] = issuer.keys.sign({"iss": issuer.name, **claims})
    return Response(201, nesting.dumps(answer))


def _claims(registry: Registry, account: Record, spec: Object, bound: _Bound, now: int) -> Object:
    seconds = spec["expirationSeconds"]
    private = {
        "namespace": account.namespace,
        "serviceaccount": {"name": account.name, "uid": account.uid},
        **bound.claims,
    }
    own = Access.of(registry).issuer.audiences
    if bound.to_pod and seconds == _EXTENDED and all(audience in own for audience in spec["audiences"]):
        private["warnafter"] = now + seconds
        seconds = _YEAR
    return {
        "aud": spec["audiences"],
        "exp": now + seconds,
        "iat": now,
        "jti": registry.store.uid(),
        "kubernetes.io": private,
        "nbf": now,
        "sub": account_name(account.namespace, account.name),
    }


def _read(request: Request) -> Object:
    body = of_kind(parse(request, _KIND), _KIND)
    asked: Object = {"metadata": {}, "spec": {}, **body, "kind": _KIND, "apiVersion": f"{_GROUP}/{_VERSION}"}
    schema.check_kind(_GROUP, _VERSION, _KIND, asked)
    asked["metadata"] = asked["metadata"] or {}
    asked["spec"] = asked["spec"] or {}
    return asked


def _check_names(metadata: Object, namespace: str, name: str) -> None:
    given = metadata.get("namespace")
    if given and given != namespace:
        raise other_namespace()
    given = metadata.get("name")
    if given and given != name:
        why = cause_invalid("metadata.name", given, "must match the service account name if specified")
        raise invalid(_KIND, _GROUP, name, [why])


def _check_lifetime(seconds: int) -> None:
    at = "spec.expirationSeconds"
    causes: list[Cause] = []
    if seconds < _LEAST:
        causes.append(cause_invalid(at, seconds, "may not specify a duration less than 10 minutes"))
    if seconds > _MOST:
        causes.append(cause_invalid(at, seconds, "may not specify a duration larger than 2^32 seconds"))
    if causes:
        raise invalid(_KIND, _GROUP, "", causes)


def _bound(registry: Registry, reference: Object, namespace: str, account: str) -> _Bound:
    """Return the claims of the referenced object.

    Raises 404 or 409 if it is missing or was replaced, 400 for a kind that no token is bound to.
    """
    kind, name, uid = reference.get("kind", ""), reference.get("name", ""), reference.get("uid", "")
    group, _, version = reference.get("apiVersion", "").rpartition("/")
    if group or kind not in _BOUND:
        raise bad_request(f"cannot bind token to object of type {group}/{version}, Kind={kind}")
    served = registry.stored(_BOUND[kind])
    record = served.table.get(namespace if served.resource.namespaced else "", name)
    if record is None:
        raise not_found(served.resource.plural, "", name)
    claims: Object = {kind.lower(): {"name": name, "uid": record.uid}}
    if kind == "Pod":
        spec = served.stored.decode(record.data)["spec"]
        if spec.get("serviceAccountName", "") != account:
            raise bad_request(
                f"cannot bind token for serviceaccount {quote(account)} to pod running with different "
                "serviceaccount name."
            )
        if node := spec.get("nodeName"):
            found = registry.stored(_NODES).table.get("", node)
            claims["node"] = {"name": node, **({"uid": found.uid} if found is not None else {})}
    if uid and uid != record.uid:
        why = (
            f"the UID in the bound object reference ({uid}) does not match the UID in record. The object might "
            "have been deleted and then recreated"
        )
        raise conflict(kind, "", name, why)
    return _Bound(claims, kind == "Pod")
