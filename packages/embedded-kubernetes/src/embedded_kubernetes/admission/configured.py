"""The webhooks and policies of a server, parsed, and the run of a write through them.

`Reviewers` subscribes to the tables of their kinds. While there are none, a write only checks
`Registry.is_reviewed`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import orjson

from .. import nesting
from ..auth.identity import SELF
from ..builtin.webhooks import GROUP
from ..errors import ApiError
from ..registry import Registry, Served
from ..requests import Answer, Request, Response, refusal
from ..resource import Object
from ..store import Event, Record
from . import mutations, policies, webhooks
from .attributes import Admission, GroupVersionKind, ResourceForm
from .calls import Transport

_MUTATING, _VALIDATING = "mutatingwebhookconfigurations", "validatingwebhookconfigurations"
_POLICIES = {
    "mutatingadmissionpolicies": "mutatingadmissionpolicybindings",
    "validatingadmissionpolicies": "validatingadmissionpolicybindings",
}
_KINDS = frozenset({_MUTATING, _VALIDATING, *_POLICIES, *_POLICIES.values()})


class Overtaken(Exception):
    """The object changed after the request read it, so the request has to start again."""


def check_current(served: Served, old: Record) -> None:
    """Check that `old` is still the stored record. Raises `Overtaken`."""
    if served.table.records.get(old.key) is not old:
        raise Overtaken


class Reviewers:
    """Owns the parsed configurations of one server, which are derived from the store."""

    def __init__(self, registry: Registry, transport: Transport) -> None:
        self._registry = registry
        registry.attached[Reviewers] = self
        self._caller = webhooks.Caller(transport, registry.store.uid)
        self.mutating: tuple[webhooks.Webhook, ...] = ()
        self.validating: tuple[webhooks.Webhook, ...] = ()
        self.mutating_policies: tuple[policies.Policy, ...] = ()
        self.validating_policies: tuple[policies.Policy, ...] = ()
        tables = registry.store.tables
        for plural in _KINDS:
            if (GROUP, plural) in tables:
                tables[(GROUP, plural)].subscribers.append(self._changed)

    @classmethod
    def of(cls, registry: Registry) -> Reviewers:
        """Return the reviewers of this registry's objects."""
        found: Reviewers = registry.attached[cls]
        return found

    def _changed(self, event: Event) -> None:
        self.mutating = self._webhooks(_MUTATING, mutating=True)
        self.validating = self._webhooks(_VALIDATING, mutating=False)
        self.mutating_policies, self.validating_policies = map(self._policies, _POLICIES)
        anybody = self.mutating or self.validating or self.mutating_policies or self.validating_policies
        self._registry.is_reviewed = bool(anybody)

    def _stored(self, plural: str) -> list[Object]:
        served = self._registry.stored((GROUP, plural))
        return [nesting.loads(record.data) for record in served.table.scan("")]

    def _webhooks(self, plural: str, *, mutating: bool) -> tuple[webhooks.Webhook, ...]:
        return tuple(
            webhooks.Webhook(f"{found['metadata']['uid']}/{hook['name']}", hook["name"], hook, mutating)
            for found in self._stored(plural)
            for hook in found.get("webhooks") or ()
        )

    def _policies(self, plural: str) -> tuple[policies.Policy, ...]:
        bindings: dict[str, list[tuple[str, Object]]] = {}
        for binding in self._stored(_POLICIES[plural]):
            spec = binding["spec"]
            bindings.setdefault(spec["policyName"], []).append((binding["metadata"]["name"], spec))
        return tuple(
            policies.Policy(metadata["uid"], name, found["spec"], tuple(bindings[name]))
            for found in self._stored(plural)
            if (name := (metadata := found["metadata"])["name"]) in bindings
        )

    def concerned(self, admission: Admission) -> bool:
        """Return whether any webhook's or policy's rules match this write."""
        return self.calls(admission) or any(
            policy.form(admission) is not None for policy in (*self.mutating_policies, *self.validating_policies)
        )

    def calls(self, admission: Admission) -> bool:
        """Return whether any webhook's rules match this write."""
        return any(hook.form(admission) is not None for hook in (*self.mutating, *self.validating))

    async def mutate(self, admission: Admission, again: Callable[[Object], None] | None) -> None:
        """Run the mutating policies and webhooks.

        `again` repeats the built-in admission if any of them made a change.
        """
        by_policies, by_webhooks = webhooks.Round(), webhooks.Round()
        mutations.mutate(self.mutating_policies, admission, by_policies)
        after_policies = _snapshot(admission)
        await webhooks.mutate(self.mutating, admission, self._caller, by_webhooks)
        if not by_policies.changed and not by_webhooks.changed:
            return
        after_webhooks = _snapshot(admission)
        by_policies.second = by_webhooks.second = True
        if again is not None and admission.obj is not None:
            again(admission.obj)
        if _snapshot(admission) != after_policies:
            by_policies.note_change()
        mutations.mutate(self.mutating_policies, admission, by_policies)
        if _snapshot(admission) != after_webhooks:
            by_webhooks.note_change()
        await webhooks.mutate(self.mutating, admission, self._caller, by_webhooks)

    async def validate(self, admission: Admission) -> None:
        """Run the validating policies and webhooks."""
        admission.named()
        policies.validate(self.validating_policies, admission)
        await webhooks.validate(self.validating, admission, self._caller)


def _snapshot(admission: Admission) -> bytes:
    return nesting.dumps(admission.obj, option=orjson.OPT_SORT_KEYS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Below:
    """The subresource that is written, and its kind if that differs from the object's: a Binding, a Scale.

    `resource` is set if the path is not below the object's resource.
    """

    subresource: str = ""
    kind: GroupVersionKind | None = None
    resource: str = ""


ITSELF = Below()


@dataclass(frozen=True, slots=True)
class Review:
    """The run of one write through the reviewers."""

    reviewers: Reviewers
    admission: Admission

    async def mutate(self, again: Callable[[Object], None] | None = None) -> Object:
        """Return the object after mutation. Raises `ApiError` for a rejection."""
        await self.reviewers.mutate(self.admission, again)
        assert self.admission.obj is not None
        return self.admission.obj

    async def validate(self, obj: Object | None) -> None:
        """Validate the object to be stored. Raises `ApiError` for a rejection."""
        self.admission.obj = obj
        await self.reviewers.validate(self.admission)

    async def admit(self) -> None:
        """Mutate and validate, for a write without further checks in between."""
        await self.reviewers.mutate(self.admission, None)
        await self.reviewers.validate(self.admission)

    def run(self, work: Coroutine[Any, Any, Response]) -> Answer:
        """Return the answer of `work` with warnings. It is complete unless a webhook has to be called."""
        steps = self._told(work)
        if self.reviewers.calls(self.admission):
            return steps
        try:
            steps.send(None)
        except StopIteration as done:
            answer: Response = done.value
            return answer
        raise AssertionError("policies do not wait for anything")

    async def _told(self, work: Coroutine[Any, Any, Response]) -> Response:
        try:
            answer = await work
        except ApiError as refused:
            answer = refusal(refused)
        if headers := self.admission.warnings.headers():
            return Response(answer.status, answer.body, answer.content_type, (*answer.headers, *headers))
        return answer


def review_of(
    registry: Registry,
    served: Served,
    request: Request,
    *,
    operation: str,
    obj: Object | None,
    namespace: str,
    name: str,
    options: str = "",
    delete_options: Object | None = None,
    old: Object | None = None,
    below: Below = ITSELF,
) -> Review | None:
    """Return the review of a write by the registry's reviewers; None if no reviewer's rules match.

    Writes by the server itself are not reviewed. `options` is the kind of the options in the query.
    """
    if not registry.is_reviewed or request.user is SELF:
        return None
    reviewers, resource = Reviewers.of(registry), served.resource
    dry = "dryRun" in request.parameters
    asked = _write_options(options, request) if options else delete_options
    if delete_options is not None:
        dry = bool(delete_options.get("dryRun"))
        asked = {**delete_options, "kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"}
    admission = Admission(
        registry=registry,
        request=request,
        operation=operation,
        forms=_forms(registry, served, below),
        subresource=below.subresource,
        # A Namespace's admission namespace is its own name.
        namespace=name if resource.plural == "namespaces" and not resource.group else namespace,
        name=name,
        dry=dry,
        options=asked,
        obj=obj,
        old=old,
    )
    return Review(reviewers, admission) if reviewers.concerned(admission) else None


def _write_options(kind: str, request: Request) -> Object:
    given = request.parameters
    found: Object = {"kind": kind, "apiVersion": "meta.k8s.io/v1"}
    if "dryRun" in given:
        found["dryRun"] = [given["dryRun"]]
    for name in ("fieldManager", "fieldValidation"):
        if given.get(name):
            found[name] = given[name]
    return found


def _forms(registry: Registry, served: Served, below: Below) -> tuple[ResourceForm, ...]:
    """Return the request's form, followed by the other versions in which the same objects are served."""
    own = served.resource
    if below.kind is not None:
        place = GroupVersionKind(own.group, own.version, below.resource or own.plural)
        return (ResourceForm(place, below.kind, None),)
    others = [each for each in registry.all() if each.name == served.name and each.resource is not own]
    return tuple(
        ResourceForm(
            GroupVersionKind(each.resource.group, each.resource.version, each.resource.plural),
            GroupVersionKind(each.resource.group, each.resource.version, each.resource.kind),
            each,
        )
        for each in (served, *others)
    )
