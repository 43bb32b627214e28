"""Mutations of MutatingAdmissionPolicies: JSON patches and apply configurations.

Follows k8s.io/apiserver/pkg/admission/plugin/policy/mutating.
"""

from __future__ import annotations

from typing import Any

from .. import nesting
from ..apply import overlaid
from ..cel.initializers import TYPE, misplaced, plain
from ..cel.program import CelError
from ..errors import ApiError
from ..patch import PatchFailed, carried_out
from ..resource import Object
from ..schema import check_kind
from .attributes import Admission, internal
from .matching import Unmatched, conditions_hold
from .policies import MutationFailure, Policy, PolicyEvaluation, Scope, asked, denial
from .webhooks import Round, take


class _Unable(Exception):
    """The mutation failed; the message is the reason."""


def mutate(policies: tuple[Policy, ...], admission: Admission, state: Round) -> None:
    """Apply the matching policies in order.

    Raises 403 for failures of policies with failure policy Fail; invalid policies and bindings fail first.
    """
    every = list(asked(policies, admission))
    changed = False
    failed = [MutationFailure(one, one.problem) for one in every if one.problem]
    for one in every:
        if one.problem or admission.obj is None:
            continue
        scope = Scope(one, admission)
        conditions = one.policy.spec.get("matchConditions") or ()
        try:
            if not conditions_hold(conditions, scope.names, admission, fails=one.policy.fails):
                continue
        except Unmatched as unmatched:
            failed.append(MutationFailure(one, str(unmatched)))
            continue
        if not state.lets(one.uid):
            continue
        for mutation in one.policy.spec.get("mutations") or ():
            try:
                if _carry_out(mutation, one, admission):
                    changed = True
                    state.note_change()
            except (_Unable, CelError) as error:
                failed.append(MutationFailure(one, str(error)))
        if one.policy.spec.get("reinvocationPolicy") == "IfNeeded":
            state.invoked.add(one.uid)
    if changed:
        # Unlike a webhook, a policy is reinvoked after its own change, too.
        state.note_change()
    failed = [failure for failure in failed if failure.one.policy.fails]
    if failed:
        raise denial(failed, admission)


def _carry_out(mutation: Object, one: PolicyEvaluation, admission: Admission) -> bool:
    """Apply one mutation; return whether it changed the object.

    Raises `_Unable`, `CelError`, and 500 where kube-apiserver panics.
    """
    # Each mutation sees the changes of the earlier ones.
    scope = Scope(one, admission)
    before = one.form.shown(admission.obj)
    assert before is not None
    if mutation["patchType"] == "JSONPatch":
        changed = _patched(before, scope(mutation["jsonPatch"]["expression"]))
        if changed is not None:
            _check_fields(changed, one)
    else:
        changed = _applied(before, scope(mutation["applyConfiguration"]["expression"]), one)
    return changed is not None and take(admission, one.form, changed, before)


def _patched(before: Object, found: list[Object]) -> Object | None:
    """Return the patched object; None if a `test` operation fails, with which a patch skips itself."""
    operations = [_operation(each) for each in found]
    try:
        return carried_out(nesting.loads(nesting.dumps(before)), operations)
    except PatchFailed as failed:
        if failed.why.endswith("test failed"):
            return None
        raise _Unable(f"JSON Patch: {failed.why}") from None


def _check_fields(changed: Object, one: PolicyEvaluation) -> None:
    """Check that a patched object has no unknown field. Raises 500."""
    served = one.form.served
    if served is None or served.resource.custom:
        return
    group, version, name = one.form.kind
    copy = nesting.loads(nesting.dumps(changed))
    try:
        unknown = check_kind(group, version, name, copy)
    except ApiError:
        # The decoding of the object reports it.
        return
    if unknown:
        raise internal(f"strict decoding error: {', '.join(unknown)}")


def _operation(patch: Object) -> Object:
    value = patch.get("value")
    inside: list[Any] = value if isinstance(value, list) else []
    if isinstance(value, dict) and TYPE not in value:
        inside = list(value.values())
    if isinstance(value, dict) and TYPE in value and (problem := misplaced(value, value[TYPE])):
        raise _Unable(f"type mismatch: {problem}")
    if any(_holds_objects(each) for each in inside):
        # kube-apiserver panics, because it does not convert initializers inside lists and maps.
        raise internal("JSONPatch: a list or map of objects cannot be converted to a value")
    return plain(patch)  # type: ignore[no-any-return]


def _holds_objects(value: Any) -> bool:
    if isinstance(value, dict):
        return TYPE in value or any(map(_holds_objects, value.values()))
    return isinstance(value, list) and any(map(_holds_objects, value))


def _applied(before: Object, found: Object, one: PolicyEvaluation) -> Object:
    if problem := misplaced(found):
        raise _Unable(f"type mismatch: {problem}")
    config = {**plain(found), "apiVersion": before["apiVersion"], "kind": before["kind"]}
    served = one.form.served
    try:
        return overlaid(before, config, one.form.kind, served.resource if served is not None else None)
    except ValueError as error:
        raise _Unable(f"error applying patch: {error}") from None
    except ApiError as error:
        why = f"failed to convert patch object to typed object: {error.message}"
        raise _Unable(f"error applying patch: {why}") from None
