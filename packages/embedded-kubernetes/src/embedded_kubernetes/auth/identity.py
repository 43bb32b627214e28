"""Users, as authentication finds them and as rules name them."""

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

#: Keys of what a user's `extra` says about a service account's token.
CREDENTIAL = "authentication.kubernetes.io/credential-id"
NODE_NAME = "authentication.kubernetes.io/node-name"
NODE_UID = "authentication.kubernetes.io/node-uid"
POD_NAME = "authentication.kubernetes.io/pod-name"
POD_UID = "authentication.kubernetes.io/pod-uid"


@dataclass(frozen=True, slots=True)
class User:
    """Name, UID and groups of who asks; `extra` has more that an authenticator knows, by its key."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, Sequence[str]] = field(default_factory=dict, hash=False)

    def in_group(self, group: str) -> User:
        """The same user, in this group too."""
        return self if group in self.groups else replace(self, groups=(*self.groups, group))

    def info(self) -> dict[str, Any]:
        """The `UserInfo` of authentication.k8s.io: what is empty is left out."""
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
#: The server itself, when it makes objects of its own.
SELF = User("system:apiserver", groups=(MASTERS, AUTHENTICATED))
#: Everybody, on a server that asks nobody who they are.
EVERYBODY = User("system:admin", groups=(MASTERS, AUTHENTICATED))


def account_name(namespace: str, name: str) -> str:
    """The user name of a service account."""
    return f"{_ACCOUNT}{namespace}:{name}"


def account_groups(namespace: str) -> tuple[str, ...]:
    """The groups that a service account is in because of its namespace."""
    return ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")


def as_account(username: str) -> tuple[str, str] | None:
    """Namespace and name of the service account with this user name; None for any other user."""
    if not username.startswith(_ACCOUNT):
        return None
    namespace, separator, name = username.removeprefix(_ACCOUNT).partition(":")
    if not separator or names.label(namespace) or not is_subdomain(name):
        return None
    return namespace, name


def as_node(username: str) -> str | None:
    """The node with this user name; None for any other user."""
    if not username.startswith(_NODE):
        return None
    name = username.removeprefix(_NODE)
    return name if is_subdomain(name) else None


def is_subdomain(name: str) -> bool:
    """Whether this is a DNS subdomain (RFC 1123), as most objects' names have to be."""
    return not names.subdomain(name)
