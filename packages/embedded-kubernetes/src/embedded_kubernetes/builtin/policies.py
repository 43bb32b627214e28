"""Validation of CEL admission policies and their bindings.

Follows pkg/apis/admissionregistration/validation, in its order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ..cel.names import Names
from ..cel.program import CelError, checked
from ..cel.signatures import variable_type
from ..errors import Cause
from ..resource import Object
from . import names
from .causes import check_format, check_one_of, duplicate, forbidden, invalid, required, unsupported
from .conditions import check_conditions
from .kind import Logic
from .selectors import check_label_selector
from .webhooks import GROUP, REINVOCATIONS, check_expression, check_match_conditions, check_rule

_FAILURES, _MATCHES = ("Fail", "Ignore"), ("Equivalent", "Exact")
_REASONS = ("Forbidden", "Invalid", "RequestEntityTooLarge")
_ACTIONS = ("Audit", "Deny", "Warn")
_NOT_FOUND = ("Deny", "Allow")
#: Operations of mutating policies. A deleted object cannot be changed.
_MUTABLE = ("*", "CONNECT", "CREATE", "UPDATE")
_MOST_ANNOTATIONS = 20
_LONGEST_ANNOTATION = 5 * 1024
#: For each type of patch, its field and the type of its expression.
_PATCHES = {"ApplyConfiguration": ("applyConfiguration", "Object"), "JSONPatch": ("jsonPatch", "list(JSONPatch)")}
_UNSPECIFIED = "expression is not specified"
_identifier = re.compile(r"[A-Za-z_][A-Za-z0-9_]*").fullmatch
_reserved = re.compile(
    "true|false|null|in|as|break|const|continue|else|for|function|if|import|let|loop|package|namespace|return|var|void"
    "|while"
).fullmatch


def _check_common(spec: Object, *, mutating: bool) -> Iterator[Cause]:
    """Check the fields that both kinds of policy have, up to their variables."""
    yield from check_one_of("spec.failurePolicy", spec.get("failurePolicy"), _FAILURES)
    if spec.get("paramKind") is not None:
        yield from _check_param_kind(spec["paramKind"])
    constraints = spec.get("matchConstraints")
    if constraints is None:
        yield required("spec.matchConstraints")
    else:
        yield from _check_match_resources(constraints, "spec.matchConstraints")
        if not constraints.get("resourceRules"):
            yield required("spec.matchConstraints.resourceRules")
        if mutating:
            yield from _check_mutable(constraints, "spec.matchConstraints")
    yield from check_match_conditions(
        spec.get("matchConditions") or (), "spec.matchConditions", Names(params=spec.get("paramKind") is not None)
    )
    for index, (variable, known) in enumerate(
        zip(spec.get("variables") or (), _known(spec, patches=mutating), strict=False)
    ):
        at, name = f"spec.variables[{index}]", variable.get("name", "")
        if not name.strip():
            yield required(f"{at}.name", "name is not specified")
        elif not _identifier(name) or _reserved(name):
            yield invalid(f"{at}.name", name, "must be a valid CEL identifier")
        yield from _check_text(variable.get("expression", ""), f"{at}.expression", (), known)


def _known(spec: Object, *, patches: bool) -> Iterator[Names]:
    """Yield the names that each variable's expression may use, then those of the expressions after all variables."""
    variables: dict[str, str] = {}
    params = spec.get("paramKind") is not None
    for variable in (*(spec.get("variables") or ()), None):
        known = Names(params=params, variables=dict(variables), patches=patches)
        yield known
        if variable is not None:
            variables[variable.get("name", "")] = _type_of(variable, known)


def _names(spec: Object, *, patches: bool = False) -> Names:
    """Return the names that a policy's expressions after the match conditions may use."""
    *_, known = _known(spec, patches=patches)
    return known


def _type_of(variable: Object, known: Names) -> str:
    """Return the type signature of a variable; `dyn` if it does not compile."""
    try:
        return variable_type(checked(variable.get("expression", ""), known))
    except CelError:
        return "dyn"


def _check_text(text: str, at: str, results: tuple[str, ...], known: Names) -> list[Cause]:
    """Check an expression without stripping it, so that positions in errors include leading space."""
    return check_expression(text, at, results, known) if text.strip() else [required(at, _UNSPECIFIED)]


def _check_param_kind(kind: Object) -> Iterator[Cause]:
    at = "spec.paramKind"
    version, name = kind.get("apiVersion", ""), kind.get("kind", "")
    if not version:
        yield required(f"{at}.apiVersion")
    elif version.count("/") > 1:
        yield invalid(f"{at}.apiVersion", version, f"unexpected GroupVersion string: {version}")
    else:
        group, _, last = version.rpartition("/")
        if group and (problems := names.subdomain(group)):
            yield invalid(f"{at}.apiVersion", group, ",".join(problems))
        if not last:
            yield invalid(f"{at}.apiVersion", version, "version must be specified")
        elif problems := names.label_1035(last):
            yield invalid(f"{at}.apiVersion", last, ",".join(problems))
    if not name:
        yield required(f"{at}.kind")
    else:
        if problems := names.label_1035(name.lower()):
            why = f"may have mixed case, but should otherwise match: {','.join(problems)}"
            yield invalid(f"{at}.kind", name, why)


def _check_match_resources(match: Object, at: str) -> Iterator[Cause]:
    yield from check_one_of(f"{at}.matchPolicy", match.get("matchPolicy"), _MATCHES)
    for field in ("namespaceSelector", "objectSelector"):
        yield from check_label_selector(match.get(field), f"{at}.{field}")
    for field in ("resourceRules", "excludeResourceRules"):
        for index, rule in enumerate(match.get(field) or ()):
            where = f"{at}.{field}[{index}]"
            resource_names = rule.get("resourceNames") or []
            for number, name in enumerate(resource_names):
                yield from check_format(f"{where}.resourceNames[{number}]", name, names.path_segment)
                if name in resource_names[:number]:
                    yield duplicate(f"{where}.resourceNames[{number}]", name)
            yield from check_rule(rule, where)


def _check_mutable(match: Object, at: str) -> Iterator[Cause]:
    for rule in match.get("resourceRules") or ():
        for operation in rule.get("operations") or ():
            if operation not in _MUTABLE:
                yield unsupported(f"{at}.resourceRules.operations", operation, _MUTABLE)


def _check_validating(policy: Object, old: Object | None) -> Iterator[Cause]:
    spec = policy.get("spec") or {}
    yield from _check_common(spec, mutating=False)
    validations, annotations = spec.get("validations") or (), spec.get("auditAnnotations") or ()
    if not validations and not annotations:
        why = "validations or auditAnnotations must contain at least one item"
        yield required("spec.validations", why)
        yield required("spec.auditAnnotations", why)
    known = _names(spec)
    for index, validation in enumerate(validations):
        yield from _check_validation(validation, f"spec.validations[{index}]", known)
    if len(annotations) > _MOST_ANNOTATIONS:
        shown = [
            {"Key": each.get("key", ""), "ValueExpression": each.get("valueExpression", "")} for each in annotations
        ]
        why = f"must not have more than {_MOST_ANNOTATIONS} auditAnnotations"
        yield invalid("spec.auditAnnotations", shown, why)
    seen: set[str] = set()
    for index, annotation in enumerate(annotations):
        at, key = f"spec.auditAnnotations[{index}]", annotation.get("key", "")
        full = f"{policy['metadata'].get('name', '')}/{key}"
        yield from (invalid(f"{at}.key", full, problem) for problem in names.qualified(full))
        yield from _check_value(annotation.get("valueExpression", ""), f"{at}.valueExpression", known)
        if key in seen:
            yield duplicate(f"{at}.key", key)
        seen.add(key)


def _check_value(written: str, at: str, known: Names) -> Iterator[Cause]:
    """Check the value of an audit annotation. It is compiled stripped and quoted unstripped."""
    text = written.strip()
    if not text:
        yield required(at, "valueExpression is not specified")
    elif len(text.encode()) > _LONGEST_ANNOTATION:
        yield required(at, f"must not exceed {_LONGEST_ANNOTATION} bytes in length")
    else:
        yield from check_expression(text, at, ("string", "null_type"), known, written=written)


def _check_validation(validation: Object, at: str, known: Names) -> Iterator[Cause]:
    yield from _check_text(validation.get("expression", ""), f"{at}.expression", ("bool",), known)
    message, expression = validation.get("message", ""), validation.get("messageExpression", "")
    if expression and not expression.strip():
        yield invalid(f"{at}.messageExpression", expression, "must be non-empty if specified")
    elif expression:
        # A message expression has no authorizer.
        less = known._replace(authorizer=False)
        yield from check_expression(expression, f"{at}.messageExpression", ("string",), less)
    if message and not message.strip():
        yield invalid(f"{at}.message", message, "must be non-empty if specified")
    elif re.search(r"[\n\r]", message.strip()):
        yield invalid(f"{at}.message", message, "must not contain line breaks")
    reason = validation.get("reason")
    if reason is not None and reason not in _REASONS:
        yield unsupported(f"{at}.reason", reason, _REASONS)


def _check_status(policy: Object, old: Object) -> Iterator[Cause]:
    status = policy.get("status") or {}
    at = "status.typeChecking.expressionWarnings"
    for index, warning in enumerate((status.get("typeChecking") or {}).get("expressionWarnings") or ()):
        if not warning.get("warning"):
            yield required(f"{at}[{index}].warning")
        if not warning.get("fieldRef", "").strip():
            yield required(f"{at}[{index}].fieldRef")
    yield from check_conditions(status.get("conditions") or (), "status.conditions")


def _check_mutating(policy: Object, old: Object | None) -> Iterator[Cause]:
    spec = policy.get("spec") or {}
    yield from _check_common(spec, mutating=True)
    mutations = spec.get("mutations") or ()
    if not mutations:
        yield required("spec.mutations", "mutations must contain at least one item")
    known = _names(spec, patches=True)
    for index, mutation in enumerate(mutations):
        yield from _check_mutation(mutation, f"spec.mutations[{index}]", known)
    yield from check_one_of("spec.reinvocationPolicy", spec.get("reinvocationPolicy"), REINVOCATIONS)


def _check_mutation(mutation: Object, at: str, known: Names) -> Iterator[Cause]:
    kind = mutation.get("patchType", "")
    if kind not in _PATCHES:
        yield from check_one_of(f"{at}.patchType", kind, tuple(_PATCHES))
        return
    field, result = _PATCHES[kind]
    held: Any = mutation.get(field)
    if held is None:
        yield required(f"{at}.{field}", f"must be specified when patchType is {kind}")
    elif text := held.get("expression", "").strip():
        yield from check_expression(text, f"{at}.{field}.expression", (result,), known)
    else:
        yield required(f"{at}.{field}.expression")
    for other, _ in _PATCHES.values():
        if other != field and mutation.get(other) is not None:
            why = f"must not be specified when patchType is {kind}"
            yield invalid(f"{at}.{other}", f"{{{other}}}", why)


def _check_binding(binding: Object, old: Object | None) -> Iterator[Cause]:
    spec = binding.get("spec") or {}
    name = spec.get("policyName", "")
    if not name:
        yield required("spec.policyName")
    else:
        yield from check_format("spec.policyName", name, names.subdomain)
    if spec.get("paramRef") is not None:
        yield from _check_param_ref(spec["paramRef"], "spec.paramRef")
    if spec.get("matchResources") is not None:
        yield from _check_match_resources(spec["matchResources"], "spec.matchResources")


def _check_mutating_binding(binding: Object, old: Object | None) -> Iterator[Cause]:
    yield from _check_binding(binding, old)
    match = (binding.get("spec") or {}).get("matchResources") or {}
    yield from _check_mutable(match, "spec.matchResources")


def _check_param_ref(reference: Object, at: str) -> Iterator[Cause]:
    name, selector = reference.get("name", ""), reference.get("selector")
    both = "name and selector are mutually exclusive"
    if name:
        yield from check_format(f"{at}.name", name, names.path_segment)
        if selector is not None:
            yield forbidden(f"{at}.name", both)
    if selector is not None:
        yield from check_label_selector(selector, f"{at}.selector")
        if name:
            yield forbidden(f"{at}.selector", both)
    if not name and selector is None:
        yield required(at, "one of name or selector must be specified")
    yield from check_one_of(f"{at}.parameterNotFoundAction", reference.get("parameterNotFoundAction"), _NOT_FOUND)


def _check_validating_binding(binding: Object, old: Object | None) -> Iterator[Cause]:
    yield from _check_binding(binding, old)
    actions, at = (binding.get("spec") or {}).get("validationActions") or [], "spec.validationActions"
    for index, action in enumerate(actions):
        if action not in _ACTIONS:
            yield unsupported(f"{at}[{index}]", action, _ACTIONS)
        if action in actions[:index]:
            yield duplicate(f"{at}[{index}]", action)
    if "Deny" in actions and "Warn" in actions:
        why = (
            "must not contain both Deny and Warn (repeating the same validation failure information in the API "
            "response and headers serves no purpose)"
        )
        yield invalid(at, actions, why)
    if not actions:
        yield required(at, "at least one validation action is required")


LOGIC: dict[tuple[str, str], Logic] = {
    (GROUP, "ValidatingAdmissionPolicy"): Logic(check=_check_validating, check_status=_check_status),
    (GROUP, "MutatingAdmissionPolicy"): Logic(check=_check_mutating),
    (GROUP, "ValidatingAdmissionPolicyBinding"): Logic(check=_check_validating_binding),
    (GROUP, "MutatingAdmissionPolicyBinding"): Logic(check=_check_mutating_binding),
}
