"""The audit log: one event per request, in the form of audit.k8s.io/v1 at level Metadata.

An observer receives every request once the status of its response is known; a watch, when it begins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import orjson

from apimachinery.output import LogOutput

from ..errors import qualified
from ..times import micro_clock_text
from .attributes import Attributes
from .identity import User

#: Annotation of an event with the other permissions that the request required.
FURTHER = "agent-scheduler.io/further"


_NOTHING: Mapping[str, str] = MappingProxyType({})


class AuditedRequest(NamedTuple):
    """One request.

    `user` is who authenticated, or None if authentication failed; `impersonated` is the user that the request
    acts as. `attributes` are those of the request. `further` are other permissions that it required: the
    `create` of an object that a PUT or an apply creates, the `bind` of a role, the `resourceclaims/binding`
    of an allocation. `allowed` and `reason` are the authorizer's decision; `allowed` is None if the
    authorizer did not run. `at` is the store's clock, in seconds. `annotations` come from webhooks and
    admission policies.
    """

    user: User | None
    impersonated: User | None
    attributes: Attributes
    further: tuple[Attributes, ...]
    uri: str
    code: int
    watches: bool
    allowed: bool | None
    reason: str
    at: float
    annotations: Mapping[str, str] = _NOTHING

    @property
    def by(self) -> str:
        """The name of the user whose permissions were checked; empty if authentication failed."""
        user = self.impersonated or self.user
        return user.name if user is not None else ""


Observer = Callable[[AuditedRequest], None]


@dataclass(frozen=True, slots=True)
class AuditLog:
    """Writes each request as a line of JSON. Lines that the output does not accept are lost."""

    output: LogOutput
    uid: Callable[[], str]

    def __call__(self, asked: AuditedRequest) -> None:
        self.output.write(orjson.dumps(event(asked, self.uid())) + b"\n")


def event(asked: AuditedRequest, uid: str) -> dict[str, Any]:
    """Return the request as an `Event` of audit.k8s.io/v1."""
    moment = micro_clock_text(asked.at)
    found: dict[str, Any] = {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "Metadata",
        "auditID": uid,
        "stage": "ResponseStarted" if asked.watches else "ResponseComplete",
        "requestURI": asked.uri,
        "verb": asked.attributes.verb,
        "user": asked.user.info() if asked.user is not None else {},
    }
    if asked.impersonated is not None:
        found["impersonatedUser"] = asked.impersonated.info()
    if asked.attributes.of_resource:
        found["objectRef"] = _reference(asked.attributes)
    found["responseStatus"] = {"metadata": {}, "code": asked.code}
    found["requestReceivedTimestamp"] = found["stageTimestamp"] = moment
    if asked.allowed is not None:
        found["annotations"] = {
            "authorization.k8s.io/decision": "allow" if asked.allowed else "forbid",
            "authorization.k8s.io/reason": asked.reason,
        }
    if asked.further:
        texts = "; ".join(map(_text, asked.further))
        found.setdefault("annotations", {})[FURTHER] = texts
    if asked.annotations:
        found["annotations"] = {**asked.annotations, **found.get("annotations", {})}
    return found


def _text(asked: Attributes) -> str:
    """Return the attributes as text: `create leases.coordination.k8s.io in default: mine`."""
    where = f" in {asked.namespace}" if asked.namespace else ""
    named = f": {asked.name}" if asked.name else ""
    return f"{asked.verb} {qualified(asked.combined, asked.group)}{where}{named}"


def _reference(asked: Attributes) -> dict[str, str]:
    fields = {
        "resource": asked.resource,
        "namespace": asked.namespace,
        "name": asked.name,
        "apiGroup": asked.group,
        "apiVersion": asked.version,
        "subresource": asked.subresource,
    }
    return {name: value for name, value in fields.items() if value}
