"""Validation of service account tokens.

Follows the claims and the validator of pkg/serviceaccount: the signature, issuer, audiences and times are
checked, and the service account and the object that the token is bound to must still exist with the same
UIDs. The subject claim is ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..registry import Registry
from ..store import Record
from ..times import parse
from . import jwt
from .identity import CREDENTIAL, NODE_NAME, NODE_UID, POD_NAME, POD_UID, User, account_groups, account_name
from .jwt import Keys, TokenError
from .quoting import quoted

ACCOUNTS = ("", "serviceaccounts")
_PODS, _SECRETS, _NODES = ("", "pods"), ("", "secrets"), ("", "nodes")
#: Seconds of allowed clock skew, during which an object that is being deleted also still counts as existing.
_LEEWAY = 60


@dataclass(frozen=True, slots=True)
class Issuer:
    """The service account issuer. `name` is the `iss` of its tokens; `audiences` are the API server's own."""

    name: str
    audiences: tuple[str, ...]
    keys: Keys

    def audiences_of(self, claims: dict[str, Any]) -> tuple[str, ...]:
        given = claims.get("aud")
        if isinstance(given, str):
            return (given,)
        return tuple(given) if isinstance(given, list) and given else self.audiences


class AccountTokens(NamedTuple):
    """Authenticates service accounts by their tokens."""

    registry: Registry
    issuer: Issuer

    def user(self, token: str, audiences: Sequence[str]) -> tuple[User, tuple[str, ...]] | None:
        """Return the token's user and the accepted ones of `audiences`; None for a token of another issuer.

        Raises `TokenError` for an invalid token.
        """
        found = jwt.claims(token)
        if found is None or found.get("iss") != self.issuer.name:
            return None
        self.issuer.keys.verify(token)
        own = self.issuer.audiences_of(found)
        meant = tuple(audience for audience in own if audience in audiences)
        if not meant:
            raise TokenError(f"token audiences {quoted(own)} is invalid for the target audiences {quoted(audiences)}")
        now = self.registry.store.clock()
        _check_times(found, now)
        return self._account(found, now), meant

    def _account(self, claims: dict[str, Any], now: float) -> User:
        private = claims.get("kubernetes.io")
        private = private if isinstance(private, dict) else {}
        namespace = str(private.get("namespace", ""))
        account = _reference(private, "serviceaccount")
        name, uid = account or ("", "")
        record = self.registry.stored(ACCOUNTS).table.get(namespace, name)
        if record is None:
            raise TokenError(f'serviceaccounts "{name}" not found')
        if self._deleted(ACCOUNTS, record, now):
            raise TokenError(f"service account {namespace}/{name} has been deleted")
        if record.uid != uid:
            raise TokenError(f"service account UID ({record.uid}) does not match claim ({uid})")
        secret, pod, node = (_reference(private, kind) for kind in ("secret", "pod", "node"))
        extra: dict[str, Sequence[str]] = {}
        if isinstance(claims.get("jti"), str) and claims["jti"]:
            extra[CREDENTIAL] = (f"JTI={claims['jti']}",)
        if secret is not None:
            self._check_bound(_SECRETS, namespace, secret, now)
        if pod is not None:
            self._check_bound(_PODS, namespace, pod, now)
            extra[POD_NAME], extra[POD_UID] = (pod[0],), (pod[1],)
        if node is not None:
            if pod is None:
                self._check_bound(_NODES, "", node, now)
            extra[NODE_NAME] = (node[0],)
            if node[1]:
                extra[NODE_UID] = (node[1],)
        return User(account_name(namespace, name), uid, account_groups(namespace), extra)

    def _check_bound(self, kind: tuple[str, str], namespace: str, reference: tuple[str, str], now: float) -> None:
        name, uid = reference
        record = self.registry.stored(kind).table.get(namespace, name)
        if record is None or self._deleted(kind, record, now):
            raise TokenError("service account token has been invalidated")
        if record.uid != uid:
            shown = kind[1].removesuffix("s")
            raise TokenError(f"{shown} UID ({record.uid}) does not match service account {shown} ref claim ({uid})")

    def _deleted(self, kind: tuple[str, str], record: Record, now: float) -> bool:
        """Return whether the object was marked for deletion longer ago than the allowed clock skew."""
        if not record.deleting:
            return False
        obj = self.registry.stored(kind).stored.decode(record.data)
        return parse(obj["metadata"]["deletionTimestamp"]).timestamp() < now - _LEEWAY


def _check_times(claims: dict[str, Any], now: float) -> None:
    begins, ends, issued = (_time(claims, name) for name in ("nbf", "exp", "iat"))
    if begins is not None and now + _LEEWAY < begins:
        raise TokenError("service account token is not valid yet")
    if ends is not None and now - _LEEWAY > ends:
        raise TokenError("service account token has expired")
    if issued is not None and now + _LEEWAY < issued:
        raise TokenError("service account token claims could not be validated due to unexpected validation error")


def _time(claims: dict[str, Any], name: str) -> float | None:
    found = claims.get(name)
    return float(found) if isinstance(found, int | float) else None


def _reference(private: dict[str, Any], kind: str) -> tuple[str, str] | None:
    """Return the name and UID of an object that the token refers to."""
    found = private.get(kind)
    if not isinstance(found, dict):
        return None
    return str(found.get("name", "")), str(found.get("uid", ""))
