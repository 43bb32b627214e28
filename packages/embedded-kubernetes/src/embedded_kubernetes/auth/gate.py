"""The steps before every request: authentication, impersonation and authorization, in kube-apiserver's order.

A forbidden request gets 403 before any object is read and before its body is read. A server without a gate
allows every request.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field

from ..errors import ApiError
from ..registry import Registry
from ..requests import AT_ONCE, Answer, Pending, Request, Response, Stream, refusal
from .account_tokens import AccountTokens, Issuer
from .attributes import Attributes, NoRequest, attributes_of
from .audit import AuditedRequest, Observer
from .authentication import Authenticator, warns_of_space
from .identity import NOBODY, User
from .impersonation import Impersonator, wanted_user
from .options import Options
from .quoting import quote
from .rbac import AlwaysAllow, Authorizer, Rbac
from .refusals import forbidden, unauthorized

#: Other permissions that the current request required, besides those of its method and path. None if no
#: observer records them.
FURTHER: ContextVar[list[Attributes] | None] = ContextVar("further", default=None)

_NO_ATTRIBUTES = Attributes("")
_SPACE = (
    "Warning",
    '299 - "the provided Authorization header contains extra space before the bearer token, and is ignored"',
)


@dataclass(slots=True)
class Access:
    """Authentication and authorization for reviews and for writes that require a second permission."""

    authorizer: Authorizer
    issuer: Issuer
    #: Returns the current second as RFC 3339.
    now: Callable[[], str]
    #: None if the server does not authenticate.
    authenticator: Authenticator | None = None

    @classmethod
    def of(cls, registry: Registry) -> Access:
        """Return the access control of this registry's objects."""
        found: Access = registry.attached[cls]
        return found

    def allows(self, user: User, asked: Attributes) -> bool:
        """Return whether the user has this further permission, and record it for the audit log."""
        further = FURTHER.get()
        if further is not None:
            further.append(asked)
        return self.authorizer.authorize(user, asked).allowed

    def require(self, user: User, asked: Attributes) -> None:
        """Check a further permission of the user. Raises 403."""
        if not self.allows(user, asked):
            raise forbidden(user, asked, self.authorizer.authorize(user, asked).reason)


def attach(registry: Registry, options: Options) -> Access:
    """Configure access to the objects of a registry by the server's flags."""
    registry.attached[Access] = access = _access(registry, options)
    return access


def _access(registry: Registry, options: Options) -> Access:
    issuer = Issuer(options.issuer, options.audiences or (options.issuer,), options.keys)
    authorizer: Authorizer = Rbac(registry) if options.rbac else AlwaysAllow()
    if not options.asks:
        return Access(authorizer, issuer, registry.now)
    authenticator = Authenticator(
        AccountTokens(registry, issuer),
        static=options.tokens,
        audiences=issuer.audiences,
        anonymous=options.anonymous,
        clock=registry.store.clock,
    )
    return Access(authorizer, issuer, registry.now, authenticator)


def _uri(request: Request) -> str:
    return f"{request.path}?{request.query}" if request.query else request.path


def _no_request(uri: str) -> Response:
    why = f"failed to create RequestInfo: unable to determine kind and namespace from url, {uri}"
    text = f"Internal Server Error: {quote(uri)}: {why}\n"
    for letter, shown in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(letter, shown)
    return Response(500, text.encode(), "text/plain; charset=utf-8")


@dataclass(slots=True, eq=False)
class _Known:
    """The state of a request on its way through the gate."""

    attributes: Attributes = _NO_ATTRIBUTES
    user: User | None = None
    impersonated: User | None = None
    allowed: bool | None = None
    reason: str = ""
    further: list[Attributes] = field(default_factory=list)


class Gate:
    """Authenticates and authorizes requests and passes them to the handlers."""

    def __init__(self, registry: Registry, access: Access, observer: Observer | None) -> None:
        self._clock = registry.store.clock
        self._authenticator = access.authenticator
        self._authorizer = access.authorizer
        self._observer = observer
        self._impersonator = Impersonator(access.authorizer, self._clock)

    def handle(self, request: Request, answer: Callable[[Request], Answer | Stream]) -> Answer | Stream:
        """Return the response of `answer`, or the refusal. The observer receives the request in both cases."""
        known = _Known()
        token = FURTHER.set(known.further) if self._observer is not None else None
        result: Answer | Stream
        try:
            known.attributes = attributes_of(request.method, request.path, request.parameters)
            known.user = self._authenticate(request)
            if request.impersonate:
                wanted = wanted_user(request.impersonate)
                if wanted is not None:
                    known.impersonated = self._impersonator.user(known.user, wanted, known.attributes)
                    request.user = known.impersonated
            known.allowed, known.reason = self._authorizer.authorize(request.user, known.attributes)
            if not known.allowed:
                raise forbidden(request.user, known.attributes, known.reason)
            result = answer(request)
        except ApiError as error:
            result = refusal(error)
        except NoRequest:
            result = _no_request(_uri(request))
        finally:
            if token is not None:
                FURTHER.reset(token)
        if isinstance(result, AT_ONCE):
            return result if token is None and known.user is not NOBODY else self._told(request, known, result)
        return self._finish(request, known, result)

    async def _finish(self, request: Request, known: _Known, pending: Pending) -> Response:
        token = FURTHER.set(known.further if self._observer is not None else None)
        try:
            result = await pending
        except ApiError as error:
            result = refusal(error)
        finally:
            FURTHER.reset(token)
        response = self._told(request, known, result)
        assert isinstance(response, Response)
        return response

    def _told(self, request: Request, known: _Known, result: Response | Stream) -> Response | Stream:
        if known.user is NOBODY and warns_of_space(request.authorization) and isinstance(result, Response):
            # Responses may be shared between requests, so this makes a copy.
            result = Response(result.status, result.body, result.content_type, (*result.headers, _SPACE))
        if self._observer is not None:
            watches = isinstance(result, Stream)
            code = 200 if isinstance(result, Stream) else result.status
            asked = AuditedRequest(
                user=known.user,
                impersonated=known.impersonated,
                attributes=known.attributes,
                further=tuple(known.further),
                uri=_uri(request),
                code=code,
                watches=watches,
                allowed=known.allowed,
                reason=known.reason,
                at=self._clock(),
                annotations=request.annotations or {},
            )
            self._observer(asked)
        return result

    def _authenticate(self, request: Request) -> User:
        if self._authenticator is None:
            return request.user
        user = self._authenticator.user(request.authorization, request.path)
        if user is None:
            raise unauthorized()
        request.user = user
        return user
