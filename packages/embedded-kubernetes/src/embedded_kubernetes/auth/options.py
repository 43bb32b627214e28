"""How a server authenticates and authorizes: what kube-apiserver takes as flags."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .identity import AUTHENTICATED, MASTERS, User
from .jwt import Keys

ISSUER = "https://kubernetes.default.svc.cluster.local"
MODES = ("AlwaysAllow", "RBAC")

#: What is open on a server that asks everybody for one token.
OPEN_PATHS = frozenset({"/healthz", "/livez", "/readyz", "/version"})
ADMIN = User("kubernetes-admin", groups=(MASTERS, AUTHENTICATED))


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`tokens` are users by static token. `anonymous`: may be without one, everywhere or at these paths.

    `issuer` and `keys` are of the tokens of service accounts; `audiences`, the API server's own, are the issuer if none
    are given. With `rbac`, roles and bindings decide, otherwise everybody may do everything. Without `asks`, nobody is
    asked who they are: every request is an administrator's.
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
        """Everybody who has this token may do everything; others see health and version."""
        return cls(tokens={token: ADMIN}, anonymous=OPEN_PATHS)


def open_to_all() -> Options:
    """Everybody may do everything, and nobody is asked."""
    return Options(asks=False)
