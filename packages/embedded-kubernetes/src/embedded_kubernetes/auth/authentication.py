"""Authenticates requests by bearer token, or as anonymous.

A token is matched against the static token file, then validated as a service account token, as in
kube-apiserver's union of authenticators. An accepted token is cached for 10 s.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from .account_tokens import AccountTokens
from .identity import AUTHENTICATED, NOBODY, UNAUTHENTICATED, User
from .jwt import TokenError, Unaccepted

#: Seconds for which an accepted token is cached.
ACCEPTED_FOR = 10.0
_MOST_ACCEPTED = 4096


class Proof(NamedTuple):
    """An accepted token: its user, and the requested audiences that it is valid for."""

    user: User
    audiences: tuple[str, ...]


class Authenticator:
    """The authenticator of one server.

    `anonymous` is whether requests may lack a token, or the paths where they may.
    """

    def __init__(
        self,
        accounts: AccountTokens,
        *,
        static: Mapping[str, User],
        audiences: tuple[str, ...],
        anonymous: bool | frozenset[str],
        clock: Callable[[], float],
    ) -> None:
        self._accounts = accounts
        self._static = {
            token: user if UNAUTHENTICATED in user.groups else user.in_group(AUTHENTICATED)
            for token, user in static.items()
        }
        self._audiences = audiences
        self._anonymous = anonymous
        self._clock = clock
        self._accepted: dict[tuple[str, tuple[str, ...]], tuple[float, Proof]] = {}

    def user(self, authorization: str | None, path: str) -> User | None:
        """Return the user.

        None for an invalid token, or for a missing token where anonymous requests are not allowed.
        """
        token = bearer_token(authorization)
        if token:
            try:
                return self.review(token, ()).user
            except Unaccepted:
                return None
        if self._anonymous is True or (self._anonymous and path in self._anonymous):
            return NOBODY
        return None

    def review(self, token: str, audiences: Sequence[str]) -> Proof:
        """Validate a token for these audiences; without any, for the API server's. Raises `Unaccepted`."""
        wanted = tuple(audiences) or self._audiences
        now, key = self._clock(), (token, wanted)
        known = self._accepted.get(key)
        if known is not None and known[0] > now:
            return known[1]
        proof = self._find(token, wanted)
        if len(self._accepted) >= _MOST_ACCEPTED:
            self._accepted.clear()
        self._accepted[key] = (now + ACCEPTED_FOR, proof)
        return proof

    def _find(self, token: str, audiences: tuple[str, ...]) -> Proof:
        user = self._static.get(token)
        if user is not None:
            meant = tuple(audience for audience in self._audiences if audience in audiences)
            if meant:
                return Proof(user, meant)
        try:
            found = self._accounts.user(token, audiences)
        except TokenError as error:
            raise Unaccepted(f"[invalid bearer token, {error}]") from None
        if found is None:
            raise Unaccepted("invalid bearer token")
        return Proof(found[0].in_group(AUTHENTICATED), found[1])


def warns_of_space(authorization: str | None) -> bool:
    """Return whether an Authorization header has extra spaces before its token; such a token is ignored."""
    words = (authorization or "").strip().split(" ", 2)
    return len(words) == 3 and words[0].lower() == "bearer" and not words[1]


def bearer_token(authorization: str | None) -> str:
    """Return the token of an Authorization header; empty if the scheme is not Bearer."""
    words = (authorization or "").strip().split(" ", 2)
    return words[1] if len(words) > 1 and words[0].lower() == "bearer" else ""


def read_tokens(text: str) -> dict[str, User]:
    """Parse a static token file with lines `token,user,uid[,"group1,group2"]`; return users by token.

    Raises ValueError that names the line.
    """
    found: dict[str, User] = {}
    rows = csv.reader(io.StringIO(text), skipinitialspace=True)
    for row in rows:
        if not row or row[0].startswith("#"):
            continue
        if len(row) < 3:
            raise ValueError(f"line {rows.line_num}: at least a token, a user and a uid, not {len(row)} columns")
        token, name, uid = row[:3]
        if not token:
            raise ValueError(f"line {rows.line_num}: the token is empty")
        if token in found:
            raise ValueError(f"line {rows.line_num}: the token was given before")
        groups = tuple(row[3].split(",")) if len(row) > 3 and row[3] else ()
        found[token] = User(name, uid, groups)
    return found
