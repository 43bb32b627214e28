"""Users and groups, as authentication finds them and as rules name them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..builtin import names

ANONYMOUS = "system:anonymous"
AUTHENTICATED, UNAUTHENTICATED = "system:authenticated", "system:unauthenticated"
MASTERS = "system:masters"
NODES = "system:nodes"

_ACCOUNT, _NODE = "system:serviceaccount:", "system:node:"

#: Keys of a user's `extra` that come from a service account token.
CREDENTIAL = "authentication.kubernetes.io/credential-id"
NODE_NAME = "authentication.kubernetes.io/node-name"
NODE_UID = "authentication.kubernetes.io/node-uid"
POD_NAME = "authentication.kubernetes.io/pod-name"
POD_UID = "authentication.kubernetes.io/pod-uid"


@dataclass(frozen=True, slots=True)
class User:
    """An authenticated user. `extra` has further information from the authenticator, by key."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, Sequence[str]] = field(default_factory=dict, hash=False)

    def in_group(self, group: str) -> User:
        """Return the same user with this group added."""
        return self if group in self.groups else replace(self, groups=(*self.groups, group))

    def info(self) -> dict[str, Any]:
        """Return the `UserInfo` of authentication.k8s.io, without empty fields."""
        found: dict[str, Any] = {}
        if self.name:
            found["username"] = self.name
        if self.uid:
            found["uid"] = self.uid
        if self.groups:
            found["groups"] = list(self.groups)
        if self.extra:
            found["extra"] = {key: list(self.extra[key]) for key in sorted(self.extra)}
        return found


NOBODY = User(ANONYMOUS, groups=(UNAUTHENTICATED,))
#: The user of objects that the server itself creates.
SELF = User("system:apiserver", groups=(MASTERS, AUTHENTICATED))
#: The user of every request on a server that does not authenticate.
EVERYBODY = User("system:admin", groups=(MASTERS, AUTHENTICATED))


def account_name(namespace: str, name: str) -> str:
    """Return the user name of a service account."""
    return f"{_ACCOUNT}{namespace}:{name}"


def account_groups(namespace: str) -> tuple[str, ...]:
    """Return the groups that a service account has by its namespace."""
    return ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")


def as_account(username: str) -> tuple[str, str] | None:
    """Return the namespace and name of the service account with this user name; None for any other user."""
    if not username.startswith(_ACCOUNT):
        return None
    namespace, separator, name = username.removeprefix(_ACCOUNT).partition(":")
    if not separator or names.label(namespace) or not is_subdomain(name):
        return None
    return namespace, name


def as_node(username: str) -> str | None:
    """Return the name of the node with this user name; None for any other user."""
    if not username.startswith(_NODE):
        return None
    name = username.removeprefix(_NODE)
    return name if is_subdomain(name) else None


def is_subdomain(name: str) -> bool:
    """Return whether the name is a DNS subdomain (RFC 1123), as most object names must be."""
    return not names.subdomain(name)
