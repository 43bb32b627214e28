"""Options of authentication and authorization, which kube-apiserver has as flags."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .identity import AUTHENTICATED, MASTERS, User
from .jwt import Keys

ISSUER = "https://kubernetes.default.svc.cluster.local"
MODES = ("AlwaysAllow", "RBAC")

#: Paths that need no token on a server with a single token.
OPEN_PATHS = frozenset({"/healthz", "/livez", "/readyz", "/version"})
ADMIN = User("kubernetes-admin", groups=(MASTERS, AUTHENTICATED))


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Configures how a server authenticates and authorizes.

    `tokens` are users by static token. `anonymous` is whether requests may lack a token, or the paths where
    they may. `issuer` and `keys` are those of service account tokens; `audiences` are the API server's own
    and default to the issuer. If `rbac` is false, every request is allowed. If `asks` is false, the server
    does not authenticate, and every request is an administrator's.
    """

    asks: bool = True
    rbac: bool = False
    tokens: Mapping[str, User] = field(default_factory=dict)
    anonymous: bool | frozenset[str] = True
    issuer: str = ISSUER
    audiences: tuple[str, ...] = ()
    keys: Keys = field(default_factory=Keys)

    @classmethod
    def one_token(cls, token: str) -> Options:
        """Return options that allow every request with this token; others may only read health and version."""
        return cls(tokens={token: ADMIN}, anonymous=OPEN_PATHS)


def open_to_all() -> Options:
    """Return options that allow every request without authentication."""
    return Options(asks=False)
