"""CEL admission policies: matching, parameters and evaluation.

Follows k8s.io/apiserver/pkg/admission/plugin/policy. A policy has no effect without a binding. A binding may
restrict the policy, and name parameter objects; the policy is evaluated for each of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from .. import nesting
from ..cel.names import inlined
from ..cel.program import CelError, Converted, Unheld, program
from ..errors import ApiError
from ..registry import Registry, Served
from ..resource import Object
from .attributes import Admission, ResourceForm
from .matching import Unmatched, conditions_hold, form_of, labels_match, selected


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy with its bindings, which are pairs of name and spec in order of names."""

    uid: str
    name: str
    spec: Object
    bindings: tuple[tuple[str, Object], ...]

    @property
    def fails(self) -> bool:
        return bool(self.spec.get("failurePolicy") != "Ignore")

    def form(self, admission: Admission) -> ResourceForm | None:
        """Return the form in which the policy receives the write; None if no rule of its constraints matches."""
        if not admission.for_policies:
            return None
        constraints = self.spec.get("matchConstraints") or {}
        return form_of(constraints.get("resourceRules") or (), _policy_of(constraints), admission)


class Misconfigured(Exception):
    """The parameters cannot be resolved; the message is the reason."""


class PolicyEvaluation(NamedTuple):
    """One evaluation of a policy: for one binding, with one parameter object or none.

    `problem` is why it cannot be evaluated; without `binding`, that holds for all bindings.
    """

    policy: Policy
    binding: str
    binding_spec: Object
    form: ResourceForm
    params: Object | None
    problem: str = ""

    @property
    def uid(self) -> str:
        params = (self.params or {}).get("metadata", {})
        return f"{self.policy.uid}/{self.binding}/{params.get('namespace', '')}/{params.get('name', '')}"


def _policy_of(match: Object) -> str:
    return match.get("matchPolicy") or "Equivalent"


def _matches(match: Object, admission: Admission) -> ResourceForm | None:
    """Return the form in which a policy's constraints or a binding's match the write; None if they do not."""
    if not selected(match, admission):
        return None
    excluded = match.get("excludeResourceRules") or ()
    if excluded and form_of(excluded, _policy_of(match), admission) is not None:
        return None
    rules = match.get("resourceRules") or ()
    return form_of(rules, _policy_of(match), admission) if rules else admission.forms[0]


def asked(policies: tuple[Policy, ...], admission: Admission) -> Iterator[PolicyEvaluation]:
    """Yield the evaluations for the write, in order."""
    for policy in policies if admission.for_policies else ():
        form = _matches(policy.spec.get("matchConstraints") or {}, admission)
        if form is None:
            continue
        kind = policy.spec.get("paramKind")
        if kind is not None and _served(admission.registry, kind) is None:
            group, _, version = kind["apiVersion"].rpartition("/")
            shown = f"{group}/{version}, Kind={kind['kind']}"
            why = f"failed to find resource referenced by paramKind: '{shown}'"
            yield PolicyEvaluation(policy, "", {}, form, None, f"failed to configure policy: {why}")
            continue
        for name, spec in policy.bindings:
            match = spec.get("matchResources")
            if match is not None and _matches(match, admission) is None:
                continue
            try:
                params = _params(kind, spec.get("paramRef"), admission)
            except Misconfigured as problem:
                yield PolicyEvaluation(policy, name, spec, form, None, f"failed to configure binding: {problem}")
                continue
            for each in params:
                yield PolicyEvaluation(policy, name, spec, form, each)


def _params(kind: Object | None, reference: Object | None, admission: Admission) -> list[Object | None]:
    """Return the parameter objects; a single None if the policy has no parameters."""
    if kind is None or reference is None:
        return [None]
    served = _served(admission.registry, kind)
    assert served is not None, "a policy with parameters of an unknown kind is not asked"
    namespace = reference.get("namespace") or ""
    if served.resource.namespaced:
        namespace = namespace or admission.namespace
        if not namespace:
            raise Misconfigured(
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
            )
    elif namespace:
        raise Misconfigured("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
    if name := reference.get("name"):
        record = served.table.get(namespace, name)
        found = [record] if record is not None else []
    else:
        selector = reference.get("selector") or {}
        found = [one for one in served.table.scan(namespace) if labels_match(selector, one.labels)]
    if not found and reference.get("parameterNotFoundAction") == "Deny":
        raise Misconfigured("no params found for policy binding with `Deny` parameterNotFoundAction")
    return [served.view.decode(record.data) for record in found]


def _served(registry: Registry, kind: Object) -> Served | None:
    group, _, version = kind.get("apiVersion", "").rpartition("/")
    kinds = registry.served.get((group, version), {})
    return next((each for each in kinds.values() if each.resource.kind == kind.get("kind")), None)


class Scope:
    """The variables of one evaluation of a policy for one write."""

    def __init__(self, one: PolicyEvaluation, admission: Admission) -> None:
        self._admission = admission
        namespace = None
        if admission.namespace and not admission.is_namespace:
            namespace = admission.registry.object(("", "namespaces"), admission.namespace)
        #: The variables of match conditions.
        self.names: Mapping[str, Any] = {**admission.variables(one.form), "params": one.params, "variables": {}}
        #: The variables of other expressions, and of those that use no variable of the policy.
        self._names = self._plain = Converted(self.names, namespaceObject=namespace)
        #: Errors of variables that failed, by name. An expression that uses one fails with its error.
        self._failed: dict[str, str] = {}
        #: The expressions of variables whose values have no JSON form. They are inlined.
        self._inlined: dict[str, str] = {}
        for variable in one.policy.spec.get("variables") or ():
            name = variable["name"]
            try:
                value = self._evaluated(variable["expression"], held=True)
            except Unheld:
                self._inlined[name] = inlined(variable["expression"], self._inlined)
            except CelError as error:
                self._failed[name] = str(error)
            else:
                self._names = Converted(self._names, variables={**self._names["variables"], name: value})

    def __call__(self, expression: str) -> Any:
        """Evaluate an expression. Raises `CelError` that contains it."""
        try:
            return self._evaluated(expression)
        except CelError as error:
            raise CelError(f"expression '{expression}' resulted in error: {error}") from None

    def _evaluated(self, expression: str, *, held: bool = False) -> Any:
        """Evaluate an expression. Raises `CelError` that names a failed variable.

        With `held`, returns the value in the form that other expressions accept.
        """
        try:
            compiled = program(inlined(expression, self._inlined) if self._inlined else expression)
            evaluate = compiled.held if held else compiled.evaluate
            names = self._names if "variables" in expression else self._plain
            return evaluate(names, self._admission.allowed)
        except Unheld:
            raise
        except CelError as error:
            missing = str(error).rpartition("no such key: ")[2]
            if f"variables.{missing}" not in expression or missing not in self._failed:
                raise
            why = f'composited variable "{missing}" fails to evaluate: {self._failed[missing]}'
            raise CelError(why) from None


class _Denied(NamedTuple):
    """A failed validation. `place` is its index. `always` denies regardless of the binding's actions."""

    one: PolicyEvaluation
    message: str
    reason: str = "Invalid"
    place: int = 0
    always: bool = False


_CODES = {"Forbidden": 403, "Unauthorized": 401, "RequestEntityTooLarge": 413, "Invalid": 422}
_LONGEST_MESSAGE, _LONGEST_ANNOTATION = 5 * 1024, 10 * 1024
#: The audit annotation for failed validations.
_FAILURE = "validation.policy.admission.k8s.io/validation_failure"


def validate(policies: tuple[Policy, ...], admission: Admission) -> None:
    """Evaluate the validating policies. Raises the error of the first that denies; others may add warnings."""
    denied: list[_Denied] = []
    failures: list[Object] = []
    published: dict[str, list[str]] = {}
    for one in asked(policies, admission):
        for found in _decisions(one, admission, published):
            actions = one.binding_spec.get("validationActions") or ()
            if "Deny" in actions or found.always:
                denied.append(found)
            if found.always:
                continue
            if "Warn" in actions:
                admission.warnings.add(
                    f"Validation failed for ValidatingAdmissionPolicy '{one.policy.name}' with binding "
                    f"'{one.binding}': {found.message}"
                )
            if "Audit" in actions:
                failures.append(
                    {
                        "message": found.message,
                        "policy": one.policy.name,
                        "binding": one.binding,
                        "expressionIndex": found.place,
                        "validationActions": list(actions),
                    }
                )
    if failures:
        # An annotation is set once, so only the first failure is reported.
        admission.annotate(_FAILURE, nesting.dumps(failures[:1]).decode())
    for key, values in published.items():
        admission.annotate(key, ", ".join(values))
    if denied:
        one, message, reason = denied[0][:3]
        binding = f" with binding '{one.binding}'" if one.binding else ""
        text = f"ValidatingAdmissionPolicy '{one.policy.name}'{binding} denied request: {message}"
        refused = admission.forbidden_object(text)
        refused.code, refused.reason = _CODES[reason], reason
        refused.details = {**(refused.details or {}), "causes": [{"message": text}]}
        raise refused


def _decisions(one: PolicyEvaluation, admission: Admission, published: dict[str, list[str]]) -> Iterator[_Denied]:
    """Yield the failed validations. Adds audit annotations to `published`, each value once."""
    spec, fails = one.policy.spec, one.policy.fails
    if one.problem:
        if fails:
            yield _Denied(one, one.problem, always=True)
        return
    scope = Scope(one, admission)
    try:
        if not conditions_hold(spec.get("matchConditions") or (), scope.names, admission, fails=fails):
            return
    except Unmatched as unmatched:
        yield _Denied(one, str(unmatched))
        return
    for place, validation in enumerate(spec.get("validations") or ()):
        try:
            if scope(validation["expression"]) is not True:
                reason = validation.get("reason") or "Invalid"
                yield _Denied(one, _message(validation, scope), reason, place)
        except CelError as error:
            if fails:
                yield _Denied(one, str(error), place=place)
    for annotation in spec.get("auditAnnotations") or ():
        try:
            value = scope(annotation["valueExpression"])
        except CelError as error:
            if fails:
                yield _Denied(one, str(error), always=True)
            continue
        if isinstance(value, str) and (value := value.strip()):
            value = value.encode()[:_LONGEST_ANNOTATION].decode(errors="ignore")
            earlier = published.setdefault(f"{one.policy.name}/{annotation['key']}", [])
            if value not in earlier:
                earlier.append(value)


def _message(validation: Object, scope: Scope) -> str:
    message = ""
    if expression := validation.get("messageExpression"):
        try:
            found = scope(expression)
        except CelError:
            found = None
        message = found.strip() if isinstance(found, str) else ""
        if len(message.encode()) > _LONGEST_MESSAGE or "\n" in message:
            message = ""
    return message or validation.get("message", "").strip() or f"failed expression: {validation['expression'].strip()}"


class MutationFailure(NamedTuple):
    """The failed evaluation of a mutating policy."""

    one: PolicyEvaluation
    why: str

    @property
    def text(self) -> str:
        policy, binding = self.one.policy.name, self.one.binding
        who = f"policy '{policy}' with binding '{binding}'" if binding else f'policy "{policy}"'
        return f"{who} denied request: {self.why}"


def denial(failures: list[MutationFailure], admission: Admission) -> ApiError:
    """Return the error for failed mutating policies: the first as message, all as causes."""
    refused = admission.forbidden_object("")
    first = failures[0]
    refused.message = first.text
    if not first.one.problem:
        refused.reason = "Invalid"
    refused.details = {**(refused.details or {}), "causes": [{"message": each.text} for each in failures]}
    return refused
