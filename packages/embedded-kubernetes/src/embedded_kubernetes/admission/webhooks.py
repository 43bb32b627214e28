"""Calls the matching webhooks of a write and applies their responses.

Follows the dispatchers of k8s.io/apiserver/pkg/admission/plugin/webhook. Mutating webhooks run sequentially,
ordered by their configuration's name and their position in it; validating webhooks run concurrently.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import orjson

from .. import nesting
from ..builtin.webhooks import REVIEW_VERSIONS
from ..errors import ApiError, json_name
from ..json_syntax import syntax_error
from ..patch import PatchFailed, carried_out
from ..resource import Object
from ..schema import Refused
from . import review
from .attributes import Admission, ResourceForm, internal
from .calls import CallFailed, NoClient, Transport, call_of, send
from .matching import Unmatched, conditions_hold, form_of, selected


@dataclass(frozen=True, slots=True)
class Webhook:
    """One webhook of a configuration. `uid` is unique among all webhooks."""

    uid: str
    name: str
    spec: Object
    mutating: bool

    @property
    def ignores_failures(self) -> bool:
        return bool(self.spec.get("failurePolicy") == "Ignore")

    def form(self, admission: Admission) -> ResourceForm | None:
        """Return the form in which the webhook receives the write; None if no rule matches."""
        if not admission.for_webhooks:
            return None
        return form_of(self.spec.get("rules") or (), self.spec.get("matchPolicy") or "Equivalent", admission)

    def called_for(self, admission: Admission) -> ResourceForm | None:
        """Return `form` if selectors and match conditions match, too. Raises 403 for a failed condition."""
        form = self.form(admission)
        if form is None or not selected(self.spec, admission):
            return None
        conditions = self.spec.get("matchConditions") or ()
        if conditions:
            variables = admission.variables(form)
            try:
                if not conditions_hold(conditions, variables, admission, fails=not self.ignores_failures):
                    return None
            except Unmatched as unmatched:
                raise admission.forbidden(str(unmatched)) from None
        return form


class Failed(Exception):
    """The call failed, so the failure policy applies; the message is the reason."""

    def __init__(self, webhook: Webhook, why: str) -> None:
        super().__init__(f'failed calling webhook "{webhook.name}": {why}')


class Caller(NamedTuple):
    """Calls webhooks over a transport. `uid` generates UIDs of reviews."""

    transport: Transport
    uid: Callable[[], str]

    async def ask(self, webhook: Webhook, admission: Admission, form: ResourceForm) -> review.Verdict:
        """Send the review and verify the response. Raises `Failed`, and 400 for a dry run without support."""
        spec = webhook.spec
        if admission.dry and spec.get("sideEffects") not in ("None", "NoneOnDryRun"):
            why = f'admission webhook "{webhook.name}" does not support dry run'
            raise ApiError(400, "BadRequest", why)
        known = [each for each in spec.get("admissionReviewVersions") or () if each in REVIEW_VERSIONS]
        if not known:
            why = f"webhook does not accept known AdmissionReview versions ({', '.join(REVIEW_VERSIONS)})"
            raise Failed(webhook, f"could not create admission objects: {why}")
        version, uid = known[0], self.uid()
        seconds = spec.get("timeoutSeconds") or 10
        body = review.body(admission, form, version=version, uid=uid)
        try:
            call = call_of(admission.registry, spec.get("clientConfig") or {}, body=body, seconds=seconds)
            answer = await send(self.transport, call, seconds=seconds)
            found = review.decoded(*answer[:2], answer.body, version=version)
            patch = review.patch_of(found)
        except NoClient as error:
            raise Failed(webhook, f"could not get REST client: {error}") from None
        except (CallFailed, review.BadAnswer) as error:
            raise Failed(webhook, f"failed to call webhook: {error}") from None
        try:
            verdict = review.verified(found, patch, version=version, uid=uid, mutating=webhook.mutating)
        except review.BadAnswer as error:
            raise Failed(webhook, f"received invalid webhook response: {error}") from None
        for key, value in verdict.annotations.items():
            admission.annotate(f"{webhook.name}/{key}", value)
        for text in verdict.warnings:
            admission.warnings.add(text)
        if not verdict.allowed:
            raise review.refusal(webhook.name, verdict.status)
        return verdict


class Round:
    """State across the two rounds of mutation, which decides what is reinvoked.

    `invoked` are webhooks and policies with reinvocation policy IfNeeded that ran since the last change;
    `due` are those after which something changed.
    """

    def __init__(self) -> None:
        self.second = False
        self.changed = False
        self.invoked: set[str] = set()
        self.due: set[str] = set()

    def note_change(self) -> None:
        """Record a change, after which everything invoked so far is due again."""
        self.changed = True
        self.due |= self.invoked
        self.invoked.clear()

    def lets(self, uid: str) -> bool:
        return not self.second or uid in self.due


async def mutate(webhooks: Sequence[Webhook], admission: Admission, caller: Caller, state: Round) -> None:
    """Call the matching webhooks in order. Raises `ApiError` for a rejection, or a failure that is not ignored."""
    for webhook in webhooks:
        form = webhook.called_for(admission)
        if form is None or not state.lets(webhook.uid):
            continue
        try:
            verdict = await caller.ask(webhook, admission, form)
            if _patched(webhook, admission, form, verdict):
                state.note_change()
        except Failed as failed:
            if not webhook.ignores_failures:
                raise internal(str(failed)) from None
        if webhook.spec.get("reinvocationPolicy") == "IfNeeded":
            state.invoked.add(webhook.uid)


async def validate(webhooks: Sequence[Webhook], admission: Admission, caller: Caller) -> None:
    """Call all matching webhooks concurrently. Raises the first error."""
    forms = [(webhook, form) for webhook in webhooks if (form := webhook.called_for(admission)) is not None]
    if not forms:
        return
    errors: list[ApiError] = []

    async def ask(webhook: Webhook, form: ResourceForm) -> None:
        try:
            await caller.ask(webhook, admission, form)
        except Failed as failed:
            if not webhook.ignores_failures:
                errors.append(internal(str(failed)))
        except ApiError as refused:
            errors.append(refused)

    async with asyncio.TaskGroup() as tasks:
        for webhook, form in forms:
            tasks.create_task(ask(webhook, form))
    if errors:
        raise errors[0]


def _patched(webhook: Webhook, admission: Admission, form: ResourceForm, verdict: review.Verdict) -> bool:
    """Apply the patch of a response; return whether it changed the object.

    Raises `Failed` for a malformed patch, and 500 for one that does not apply, regardless of the failure
    policy.
    """
    if not verdict.patch:
        return False
    operations = _operations(webhook, verdict.patch)
    if not operations:
        return False
    if admission.obj is None:
        why = "attempted to modify the object, which is not supported for this operation"
        raise internal(f'admission webhook "{webhook.name}" {why}')
    if verdict.patch_type != "JSONPatch":
        raise Failed(webhook, f'unsupported patch type "{verdict.patch_type}"')
    before = form.shown(admission.obj)
    try:
        patched = carried_out(nesting.loads(nesting.dumps(before)), operations)
    except PatchFailed as failed:
        raise internal(failed.why) from None
    return take(admission, form, patched, before)


def take(admission: Admission, form: ResourceForm, changed: Object, before: Object | None) -> bool:
    """Replace the admission's object with one changed in this form; return whether it differs.

    Raises 500 if it cannot be decoded.
    """
    same = changed == before
    try:
        admission.obj = form.read(changed)
    except Refused as refused:
        raise internal(str(refused)) from None
    return not same


def _operations(webhook: Webhook, patch: bytes) -> list[Object]:
    problem = "received undecodable patch in webhook response"
    try:
        found = nesting.loads(patch)
    except orjson.JSONDecodeError:
        raise Failed(webhook, f"{problem}: {syntax_error(patch)}") from None
    if found is None:
        return []
    if not isinstance(found, list):
        why = f"json: cannot unmarshal {json_name(found)} into Go value of type jsonpatch.Patch"
        raise Failed(webhook, f"{problem}: {why}")
    for operation in found:
        if operation is not None and not isinstance(operation, dict):
            why = f"json: cannot unmarshal {json_name(operation)} into Go value of type jsonpatch.Operation"
            raise Failed(webhook, f"{problem}: {why}")
    return [operation or {} for operation in found]
