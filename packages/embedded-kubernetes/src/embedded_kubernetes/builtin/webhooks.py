"""Webhook configurations, and the validation that admission policies share with them.

Follows pkg/apis/admissionregistration/validation, in its order. The package `admission` evaluates the configurations.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

from ..cel.names import Names
from ..cel.program import CelError, NotInstantiated, checked
from ..errors import Cause
from ..resource import Object
from . import names
from .causes import (
    check_choice,
    check_format,
    check_range,
    duplicate,
    internal,
    invalid,
    required,
    too_many,
    unsupported,
)
from .kind import Logic
from .selectors import check_label_selector

GROUP = "admissionregistration.k8s.io"
#: Supported versions of AdmissionReview, in order of preference.
REVIEW_VERSIONS = ("v1", "v1beta1")

_OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
_SCOPES = ("*", "Cluster", "Namespaced")
_FAILURES, _MATCHES = ("Fail", "Ignore"), ("Equivalent", "Exact")
REINVOCATIONS = ("IfNeeded", "Never")
_SIDE_EFFECTS = ("None", "NoneOnDryRun")
_MOST_CONDITIONS = 64
#: Match conditions of a webhook have no parameters or variables.
_NAMES = Names()
_FORM = "; desired format: https://host[/path]"


def _check_configuration(configuration: Object, old: Object | None) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, hook in enumerate(configuration.get("webhooks") or ()):
        at = f"webhooks[{index}]"
        yield from _check_hook(hook, at)
        yield from _check_review_versions(hook.get("admissionReviewVersions") or [], f"{at}.admissionReviewVersions")
        name = hook.get("name", "")
        if name in seen:
            yield duplicate(f"{at}.name", name)
        if name:
            seen.add(name)


def _check_hook(hook: Object, at: str) -> Iterator[Cause]:
    yield from _check_full_name(hook.get("name", ""), f"{at}.name")
    for index, rule in enumerate(hook.get("rules") or ()):
        yield from check_rule(rule, f"{at}.rules[{index}]")
    yield from check_choice(f"{at}.failurePolicy", hook.get("failurePolicy"), _FAILURES)
    yield from check_choice(f"{at}.matchPolicy", hook.get("matchPolicy"), _MATCHES)
    effects = hook.get("sideEffects")
    if effects is None:
        yield required(f"{at}.sideEffects", f"must specify one of {', '.join(_SIDE_EFFECTS)}")
    yield from check_choice(f"{at}.sideEffects", effects, _SIDE_EFFECTS)
    seconds = hook.get("timeoutSeconds", 10)
    if not 1 <= seconds <= 30:
        yield invalid(f"{at}.timeoutSeconds", seconds, "the timeout value must be between 1 and 30 seconds")
    yield from check_label_selector(hook.get("namespaceSelector"), f"{at}.namespaceSelector")
    yield from check_label_selector(hook.get("objectSelector"), f"{at}.objectSelector")
    yield from check_choice(f"{at}.reinvocationPolicy", hook.get("reinvocationPolicy"), REINVOCATIONS)
    yield from _check_client(hook.get("clientConfig") or {}, f"{at}.clientConfig")
    yield from check_match_conditions(hook.get("matchConditions") or (), f"{at}.matchConditions")


def _check_full_name(name: str, at: str) -> list[Cause]:
    if not name:
        return [required(at)]
    if problems := names.subdomain(name):
        return [invalid(at, name, ",".join(problems))]
    if len(name.split(".")) < 3:
        return [invalid(at, name, "should be a domain with at least three segments separated by dots")]
    return []


def _check_review_versions(versions: list[str], at: str) -> Iterator[Cause]:
    known = ", ".join(REVIEW_VERSIONS)
    if not versions:
        yield required(at, f"must specify one of {known}")
        return
    for index, version in enumerate(versions):
        if version in versions[:index]:
            yield invalid(f"{at}[{index}]", version, "duplicate version")
        else:
            yield from check_format(f"{at}[{index}]", version, names.label_1035)
    if not set(versions) & set(REVIEW_VERSIONS):
        yield invalid(at, versions, f"must include at least one of {known}")


def _check_client(client: Object, at: str) -> Iterator[Cause]:
    url, service = client.get("url"), client.get("service")
    if (url is None) == (service is None):
        yield required(at, "exactly one of url or service is required")
    if url is not None and service is None:
        yield from _check_url(url, f"{at}.url")
    if service is not None and url is None:
        yield from _check_service(service, f"{at}.service")


def _unparsed(url: str) -> str:
    """Return why Go's net/url cannot parse the URL; empty if it can."""
    if re.search(r"[\x00-\x1f\x7f]", url):
        return "net/url: invalid control character in URL"
    if url.startswith(":"):
        return "missing protocol scheme"
    scheme = re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", url)
    rest = url.partition("#")[0].partition("?")[0][scheme.end() if scheme else 0 :]
    if not scheme and ":" in rest.partition("/")[0]:
        return "first path segment in URL cannot contain colon"
    host, path = "", rest
    if rest.startswith("//"):
        host, _, path = rest[2:].partition("/")
        host = host.rpartition("@")[2]
    if escape := re.search(r"%(?![0-9A-Fa-f]{2}).{0,2}", host + path):
        return f"invalid URL escape {json.dumps(escape[0])}"
    if host.startswith("[") and "]" not in host:
        return "missing ']' in host"
    if bad := re.search(r"[ \"<>\\^`{|}]", host):
        return f"invalid character {json.dumps(bad[0])} in host name"
    port = host[host.rindex("]") + 1 :] if host.startswith("[") else host[host.find(":") :] if ":" in host else ""
    return f"invalid port {json.dumps(port)} after host" if port and not re.fullmatch(r":\d*", port) else ""


def _check_url(url: str, at: str) -> Iterator[Cause]:
    if problem := _unparsed(url):
        yield required(at, f"url must be a valid URL: parse {json.dumps(url)}: {problem}{_FORM}")
        return
    parts = urlsplit(url)
    user, _, host = parts.netloc.rpartition("@")
    if parts.scheme != "https":
        yield invalid(at, parts.scheme, f"'https' is the only allowed URL scheme{_FORM}")
    if not host:
        yield invalid(at, host, f"host must be provided{_FORM}")
    if user:
        yield invalid(at, user, "user information is not permitted in the URL")
    if parts.fragment:
        yield invalid(at, parts.fragment, "fragments are not permitted in the URL")
    if parts.query:
        yield invalid(at, parts.query, "query parameters are not permitted in the URL")


def _check_service(service: Object, at: str) -> Iterator[Cause]:
    for field in ("name", "namespace"):
        if not service.get(field):
            yield required(f"{at}.{field}", f"service {field} is required")
    for cause in check_range("", service.get("port", 443), low=1, high=65535):
        why = cause.message.partition(": ")[2].partition(": ")[2]
        yield invalid(f"{at}.port", service.get("port"), f"port is not valid: {why}")
    path = service.get("path") or "/"
    if path == "/":
        return
    if path == "//":
        yield invalid(f"{at}.path", path, "segment[0] may not be empty")
        return
    if not path.startswith("/"):
        yield invalid(f"{at}.path", path, "must start with a '/'")
    for index, step in enumerate(path[1:].removesuffix("/").split("/")):
        problems = names.subdomain(step) if step else ()
        if not step:
            yield invalid(f"{at}.path", path, f"segment[{index}] may not be empty")
        yield from (invalid(f"{at}.path", path, f"segment[{index}]: {problem}") for problem in problems)


def check_rule(rule: Object, at: str) -> Iterator[Cause]:
    """Check a webhook's rule or a policy's resource rule."""
    operations = rule.get("operations") or []
    yield from _check_wildcard(operations, f"{at}.operations", "operations")
    for index, operation in enumerate(operations):
        if operation not in _OPERATIONS:
            yield unsupported(f"{at}.operations[{index}]", operation, _OPERATIONS)
    yield from _check_wildcard(rule.get("apiGroups") or [], f"{at}.apiGroups", "API groups")
    versions = rule.get("apiVersions") or []
    yield from _check_wildcard(versions, f"{at}.apiVersions", "API versions")
    yield from (required(f"{at}.apiVersions[{index}]") for index, version in enumerate(versions) if not version)
    yield from _check_resources(rule.get("resources") or [], f"{at}.resources")
    yield from check_choice(f"{at}.scope", rule.get("scope"), _SCOPES)


def _check_wildcard(values: list[str], at: str, what: str) -> list[Cause]:
    if not values:
        return [required(at)]
    if len(values) > 1 and "*" in values:
        return [invalid(at, values, f"if '*' is present, must not specify other {what}")]
    return []


def _check_resources(resources: list[str], at: str) -> Iterator[Cause]:
    if not resources:
        yield required(at)
    of_any, below_any = set[str](), set[str]()
    for index, text in enumerate(resources):
        resource, slash, below = text.partition("/")
        if not text:
            yield required(f"{at}[{index}]")
        if not slash:
            continue
        if resource in below_any:
            yield invalid(f"{at}[{index}]", text, f"if '{resource}/*' is present, must not specify {text}")
        if below in of_any:
            yield invalid(f"{at}[{index}]", text, f"if '*/{below}' is present, must not specify {text}")
        if below == "*":
            below_any.add(resource)
        if resource == "*":
            of_any.add(below)
    if len(resources) > 1 and "*/*" in resources:
        yield invalid(at, resources, "if '*/*' is present, must not specify other resources")
    # As in kube-apiserver, the last resource without a slash decides.
    last = next((text for text in reversed(resources) if text and "/" not in text), "*")
    if "*" in resources and last != "*":
        why = "if '*' is present, must not specify other resources without subresources"
        yield invalid(at, resources, why)


def check_match_conditions(conditions: Sequence[Object], at: str, known: Names = _NAMES) -> Iterator[Cause]:
    """Check the `matchConditions` of a webhook or policy."""
    if len(conditions) > _MOST_CONDITIONS:
        yield too_many(at, len(conditions), _MOST_CONDITIONS)
    seen: set[str] = set()
    for index, condition in enumerate(conditions):
        name, text = condition.get("name", ""), condition.get("expression", "").strip()
        where = f"{at}[{index}]"
        if text:
            yield from check_expression(text, f"{where}.expression", ("bool",), known)
        else:
            yield required(f"{where}.expression")
        if not name:
            yield required(f"{where}.name")
            continue
        yield from check_format(f"{where}.name", name, names.qualified)
        if name in seen:
            yield duplicate(f"{where}.name", name)
        seen.add(name)


def check_expression(text: str, at: str, results: tuple[str, ...], known: Names, *, written: str = "") -> list[Cause]:
    """Check that an expression compiles to one of these types, or to any if there are none.

    `written` is the quoted form, if that differs from the compiled text.
    """
    try:
        found = checked(text, known)
    except NotInstantiated as error:
        return [internal(at, f"program instantiation failed: {error}")]
    except CelError as error:
        return [invalid(at, written or text, f"compilation failed: {error}")]
    if not results or found in results:
        return []
    if len(results) == 1:
        return [invalid(at, written or text, f"must evaluate to {results[0]} but got {found}")]
    return [invalid(at, written or text, f"must evaluate to one of [{' '.join(results)}] but got {found}")]


LOGIC: dict[tuple[str, str], Logic] = {
    (GROUP, kind): Logic(check=_check_configuration)
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
}
