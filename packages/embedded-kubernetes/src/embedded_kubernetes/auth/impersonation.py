"""Impersonation by the `Impersonate-` headers, including constrained impersonation (KEP-5284).

Constrained modes are tried first. Each is for one type of user and requires two permissions: to make this
request as such a user (`impersonate-on:MODE:VERB`) and to impersonate the user (`impersonate:MODE`). The last
mode is the legacy one, which requires the verb `impersonate` only. The mode that succeeded last for a user is
tried before the others. If all fail, the error is the first one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple
from urllib.parse import unquote

from ..builtin import names
from ..errors import ApiError, bad_request
from .attributes import Attributes
from .identity import (
    ANONYMOUS,
    AUTHENTICATED,
    MASTERS,
    NODE_NAME,
    NODES,
    UNAUTHENTICATED,
    User,
    account_groups,
    as_account,
    as_node,
)
from .quoting import aggregate, quote
from .rbac import Authorizer
from .refusals import forbidden

PREFIX = "impersonate-"
_EXTRA = "impersonate-extra-"
_AUTHENTICATION = "authentication.k8s.io"
#: With this number of groups or extras, a constrained mode first checks a wildcard permission for all of
#: them.
_MANY = 4
#: Seconds for which a constrained mode's decision is cached.
_REMEMBERED = 10.0
_MOST_REMEMBERED = 4096


class _Mode(NamedTuple):
    name: str
    fits: Callable[[User, User], bool]

    @property
    def verb(self) -> str:
        return f"impersonate:{self.name}" if self.name else "impersonate"


def wanted_user(headers: Iterable[tuple[str, str]]) -> User | None:
    """Return the user that the headers (names in lower case) request; None without headers.

    Raises 400 without a name.
    """
    name = uid = ""
    groups: list[str] = []
    extra: dict[str, list[str]] = {}
    for header, value in headers:
        if header == "impersonate-user":
            name = name or value
        elif header == "impersonate-uid":
            uid = uid or value
        elif header == "impersonate-group":
            groups.append(value)
        elif header.startswith(_EXTRA):
            extra.setdefault(unquote(header.removeprefix(_EXTRA)), []).append(value)
    if name:
        return User(name, uid, tuple(groups), {key: tuple(values) for key, values in extra.items()})
    if uid or groups or extra:
        raise bad_request(f"requested {_printed(uid, groups, extra)} without impersonating a user name")
    return None


def _printed(uid: str, groups: list[str], extra: Mapping[str, list[str]]) -> str:
    """Return the user in the format of Go's `%#v`, as kube-apiserver prints it."""

    def strings(values: list[str]) -> str:
        return "[]string{" + ", ".join(map(quote, values)) + "}" if values else "[]string(nil)"

    entries = ", ".join(f"{quote(key)}:{strings(extra[key])}" for key in sorted(extra))
    shown = f"map[string][]string{{{entries}}}" if extra else "map[string][]string(nil)"
    return f'&user.DefaultInfo{{Name:"", UID:{quote(uid)}, Groups:{strings(groups)}, Extra:{shown}}}'


def _alone(wanted: User) -> bool:
    return not (wanted.uid or wanted.groups or wanted.extra)


def _is_own_node(wanted: User, requester: User) -> bool:
    node = as_node(wanted.name)
    return (
        _alone(wanted)
        and node is not None
        and as_account(requester.name) is not None
        and tuple(requester.extra.get(NODE_NAME, ())) == (node,)
    )


_ASSOCIATED_NODE = "associated-node"
_MODES = (
    _Mode(_ASSOCIATED_NODE, _is_own_node),
    _Mode("arbitrary-node", lambda wanted, _: _alone(wanted) and as_node(wanted.name) is not None),
    _Mode("serviceaccount", lambda wanted, _: _alone(wanted) and as_account(wanted.name) is not None),
    _Mode("user-info", lambda wanted, _: as_node(wanted.name) is None and as_account(wanted.name) is None),
    _Mode("", lambda wanted, _: True),
)


class Impersonator:
    """Decides on impersonation by one authorizer. `clock` returns seconds."""

    def __init__(self, authorizer: Authorizer, clock: Callable[[], float]) -> None:
        self._authorizer = authorizer
        self._clock = clock
        #: The mode that succeeded last, by name of the requesting user.
        self._last: dict[str, _Mode] = {}
        self._passed: dict[object, tuple[float, User]] = {}

    def user(self, requester: User, wanted: User, asked: Attributes) -> User:
        """Return the user as which the request runs. Raises 403."""
        last = self._last.get(requester.name)
        modes = _MODES if last is None else (last, *(mode for mode in _MODES if mode is not last))
        refused: ApiError | None = None
        for mode in modes:
            if not mode.fits(wanted, requester):
                continue
            try:
                found = self._by_mode(mode, requester, wanted, asked)
            except ApiError as error:
                refused = refused or error
                continue
            if len(self._last) >= _MOST_REMEMBERED:
                self._last.clear()
            self._last[requester.name] = mode
            return found
        assert refused is not None  # the last mode fits every user
        raise refused

    def _by_mode(self, mode: _Mode, requester: User, wanted: User, asked: Attributes) -> User:
        if not mode.name:
            return self._become(mode, requester, wanted)
        who = (mode.name, _key(requester), _key(wanted))
        found = self._remembered((*who, asked))
        if found is not None:
            return found
        self._ask(requester, asked._replace(verb=f"impersonate-on:{mode.name}:{asked.verb}"))
        found = self._remembered(who)
        if found is None:
            found = self._become(mode, requester, wanted)
            self._remember(who, found)
        self._remember((*who, asked), found)
        return found

    def _remembered(self, key: object) -> User | None:
        known = self._passed.get(key)
        return known[1] if known is not None and known[0] > self._clock() else None

    def _remember(self, key: object, found: User) -> None:
        if len(self._passed) >= _MOST_REMEMBERED:
            self._passed.clear()
        self._passed[key] = (self._clock() + _REMEMBERED, found)

    def _ask(self, requester: User, asked: Attributes) -> None:
        decision = self._authorizer.authorize(requester, asked)
        if not decision.allowed:
            raise forbidden(requester, asked, decision.reason)

    def _become(self, mode: _Mode, requester: User, wanted: User) -> User:
        """Check the permission for each part of the wanted user; return that user with its groups."""
        constrained = bool(mode.name)
        group = _AUTHENTICATION if constrained else ""
        groups = wanted.groups
        name, account, node = wanted.name, as_account(wanted.name), as_node(wanted.name)
        asked = Attributes(mode.verb, group, "v1", "users", name=name)
        if constrained and node is not None:
            shown = "*" if mode.name == _ASSOCIATED_NODE else node
            asked = asked._replace(resource="nodes", name=shown)
            groups = (NODES,)
        elif account is not None:
            asked = asked._replace(resource="serviceaccounts", namespace=account[0], name=account[1])
            groups = groups or account_groups(account[0])
        self._ask(requester, asked)
        if wanted.uid:
            self._ask(requester, Attributes(mode.verb, _AUTHENTICATION, "v1", "uids", name=wanted.uid))
        if wanted.groups:
            self._ask_groups(mode, requester, wanted.groups, Attributes(mode.verb, group, "v1", "groups"))
        if wanted.extra:
            self._ask_extra(mode, requester, wanted.extra)
        became = replace(wanted, groups=groups)
        if name == ANONYMOUS:
            return became.in_group(UNAUTHENTICATED)
        return became if UNAUTHENTICATED in groups else became.in_group(AUTHENTICATED)

    def _ask_groups(self, mode: _Mode, requester: User, groups: tuple[str, ...], asked: Attributes) -> None:
        if mode.name:
            if "" in groups:
                raise forbidden(requester, asked, "impersonating the empty string group is not allowed")
            if MASTERS in groups:
                why = "impersonating the system:masters group is not allowed"
                raise forbidden(requester, asked._replace(name=MASTERS), why)
            if len(groups) >= _MANY and self._allows(requester, asked._replace(name="*")):
                return
        for group in groups:
            self._ask(requester, asked._replace(name=group))

    def _ask_extra(self, mode: _Mode, requester: User, extra: Mapping[str, Iterable[str]]) -> None:
        asked = Attributes(mode.verb, _AUTHENTICATION, "v1", "userextras")
        pairs = [(key, value) for key in sorted(extra) for value in extra[key]]
        if mode.name:
            for key, value in pairs:
                if problem := _extra_problem(key, value):
                    raise forbidden(requester, asked, problem)
            if len(pairs) >= _MANY and self._allows(requester, asked._replace(subresource="*", name="*")):
                return
        for key, value in pairs:
            self._ask(requester, asked._replace(subresource=key, name=value))

    def _allows(self, requester: User, asked: Attributes) -> bool:
        return self._authorizer.authorize(requester, asked).allowed


def _extra_problem(key: str, value: str) -> str:
    """Return why a constrained mode rejects an entry of `extra`; empty if it is accepted."""
    if not key:
        return "impersonating the empty string key in extra is not allowed"
    domain, _, path = key.partition("/")
    if not domain or not path:
        why = f'Invalid value: {quote(key)}: must be a domain-prefixed path (such as "acme.io/foo")'
        return f"impersonating an invalid key in extra is not allowed: extra.key: {why}"
    if problems := names.subdomain(domain):
        why = aggregate(f"extra.key: Invalid value: {quote(domain)}: {problem}" for problem in problems)
        return f"impersonating an invalid key in extra is not allowed: {why}"
    if key != key.lower():
        return f"impersonating a non-lowercase key in extra is not allowed: {quote(key)}"
    return "" if value else "impersonating the empty string value in extra is not allowed"


def _key(user: User) -> object:
    return (user.name, user.uid, user.groups, tuple((key, tuple(user.extra[key])) for key in sorted(user.extra)))
