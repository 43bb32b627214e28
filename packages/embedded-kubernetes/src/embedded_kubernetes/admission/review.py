"""AdmissionReviews: the request to a webhook, and the verification of its response.

Errors are those of kube-apiserver's REST client, of its decoder, and of `VerifyAdmissionResponse` in
k8s.io/apiserver/pkg/admission/plugin/webhook/request.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from apimachinery.yaml_text import InvalidYaml, load

from .. import nesting
from ..errors import ApiError, json_name
from ..json_syntax import syntax_error
from ..resource import Object
from .attributes import Admission, ResourceForm

_GROUP, _KIND = "admission.k8s.io", "AdmissionReview"
_NO_KIND = "couldn't get version/kind; json parse error:"
_SCHEME = 'in scheme "k8s.io/apiserver/pkg/util/webhook/client.go:71"'


class BadAnswer(Exception):
    """The webhook's response is invalid; the message is the reason."""


class Verdict(NamedTuple):
    """A webhook's verified response. `patch` is empty if there is none; `status` may be set for a rejection."""

    allowed: bool
    patch: bytes
    patch_type: str
    status: Object | None
    warnings: list[str]
    annotations: Mapping[str, str]


def body(admission: Admission, form: ResourceForm, *, version: str, uid: str) -> bytes:
    """Return the review of a write in this form."""
    asked = admission.asked(form)
    options, dry = asked.pop("options"), asked.pop("dryRun")
    request = {
        "uid": uid,
        **asked,
        "object": form.shown(admission.obj),
        "oldObject": form.shown(admission.old),
        "dryRun": dry,
        "options": options,
    }
    return nesting.dumps({"kind": _KIND, "apiVersion": f"{_GROUP}/{version}", "request": request})


def decoded(status: int, content_type: str, text: bytes, *, version: str) -> Object:
    """Decode a response that has to be a review of the version that was sent. Raises `BadAnswer`."""
    if not 200 <= status <= 206:
        raise BadAnswer(_server_error(status, content_type, text))
    if not text:
        raise BadAnswer(f"0-length response with status code: {status} and content type: {content_type}")
    found = _parsed(text)
    if not isinstance(found, dict):
        wanted = r'struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }'
        raise BadAnswer(f"{_NO_KIND} json: cannot unmarshal {json_name(found)} into Go value of type {wanted}")
    wanted, kind = f"{_GROUP}/{version}", found.get("kind") or _KIND
    given = found.get("apiVersion") or wanted
    if kind == "Status" and given == "v1":
        if found.get("status") != "Success":
            raise BadAnswer(str(found.get("message", "")))
        return {}
    if kind != _KIND or given not in (f"{_GROUP}/v1", f"{_GROUP}/v1beta1"):
        raise BadAnswer(f'no kind "{kind}" is registered for version "{given}" {_SCHEME}')
    if given != wanted:
        other = given.rpartition("/")[2]
        raise BadAnswer(f"converting ({other}.{_KIND}) to ({version}.{_KIND}): unknown conversion")
    _check_types(found)
    return found


def _parsed(text: bytes) -> Any:
    """Parse the text as JSON if it begins like an object, otherwise as YAML. Raises `BadAnswer`."""
    try:
        if text.lstrip().startswith(b"{"):
            return nesting.loads(text)
        document = load(text, levels=nesting.MOST_YAML_LEVELS)
        return {} if document is None else nesting.loads(nesting.dumps(document))
    except orjson.JSONDecodeError:
        raise BadAnswer(f"{_NO_KIND} {syntax_error(text)}") from None
    except (InvalidYaml, TypeError, RecursionError) as error:
        raise BadAnswer(f"yaml: {error}") from None


_WANTED: tuple[tuple[str, str, type], ...] = (
    ("uid", "types.UID", str),
    ("allowed", "bool", bool),
    ("status", "v1.Status", dict),
    ("patch", "[]uint8", str),
    ("patchType", "v1.PatchType", str),
    ("auditAnnotations", "map[string]string", dict),
    ("warnings", "[]string", list),
)


def _check_types(review: Object) -> None:
    """Check field types in the order of Go's decoder, which ignores unknown fields. Raises `BadAnswer`."""
    response = review.get("response")
    if response is None:
        return
    if not isinstance(response, dict):
        raise _misplaced(response, "AdmissionReview.response", "v1.AdmissionResponse")
    for name, go, wanted in _WANTED:
        value = response.get(name)
        if value is not None and type(value) is not wanted:
            raise _misplaced(value, f"AdmissionResponse.response.{name}", go)
    texts = [("warnings", each) for each in response.get("warnings") or ()]
    texts += [("auditAnnotations", each) for each in (response.get("auditAnnotations") or {}).values()]
    for name, text in texts:
        if not isinstance(text, str):
            raise _misplaced(text, f"AdmissionResponse.response.{name}", "string")
    status = response.get("status") or {}
    for name, go, fit in (("message", "string", str), ("reason", "v1.StatusReason", str), ("code", "int32", int)):
        value = status.get(name)
        if value is not None and (not isinstance(value, fit) or isinstance(value, bool)):
            raise _misplaced(value, f"Status.response.status.{name}", go)


def _misplaced(value: Any, where: str, go: str) -> BadAnswer:
    return BadAnswer(f"json: cannot unmarshal {json_name(value)} into Go struct field {where} of type {go}")


def patch_of(review: Object) -> bytes:
    """Return the decoded patch. Raises `BadAnswer`."""
    text: str = (review.get("response") or {}).get("patch") or ""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        good = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
        at = next((place for place, letter in enumerate(text) if letter not in good), len(text))
        raise BadAnswer(f"illegal base64 data at input byte {at}") from None


def verified(review: Object, patch: bytes, *, version: str, uid: str, mutating: bool) -> Verdict:
    """Verify a decoded response against the request. Raises `BadAnswer`."""
    response = review.get("response")
    if response is None:
        raise BadAnswer("webhook response was absent")
    kind = response.get("patchType")
    if version == "v1":
        if (found := response.get("uid") or "") != uid:
            raise BadAnswer(f'expected response.uid="{uid}", got "{found}"')
        given, _, last = str(review.get("apiVersion") or "").rpartition("/")
        shown = f"{given}/{last}, Kind={review.get('kind') or ''}"
        if shown != f"{_GROUP}/v1, Kind={_KIND}":
            raise BadAnswer(f"expected webhook response of {_GROUP}/v1, Kind={_KIND}, got {shown}")
        _check_patch(patch, kind, mutating=mutating)
    elif mutating and patch:
        kind = "JSONPatch"
    return Verdict(
        bool(response.get("allowed")),
        patch if mutating else b"",
        kind or "",
        response.get("status"),
        response.get("warnings") or [],
        response.get("auditAnnotations") or {},
    )


def _check_patch(patch: bytes, kind: str | None, *, mutating: bool) -> None:
    if not mutating:
        if patch:
            raise BadAnswer("validating webhook may not return response.patch")
        if kind is not None:
            raise BadAnswer("validating webhook may not return response.patchType")
    elif patch and kind is None:
        raise BadAnswer("webhook returned response.patch but not response.patchType")
    elif not patch and kind is not None:
        raise BadAnswer("webhook returned response.patchType but not response.patch")
    elif kind == "":
        raise BadAnswer('webhook returned invalid response.patchType of ""')


def refusal(name: str, status: Object | None) -> ApiError:
    """Return the error for a webhook's rejection. The code defaults to 400; the reason may be empty."""
    given = status or {}
    denied = f'admission webhook "{name}" denied the request'
    text = given.get("message") or given.get("reason") or ""
    code = given.get("code") or 0
    details = given.get("details")
    return ApiError(
        code if code >= 400 else 400,
        given.get("reason") or "",
        f"{denied}: {text}" if text else f"{denied} without explanation",
        _details(details) if isinstance(details, dict) else None,
    )


def _details(given: Object) -> Object:
    """Return the known fields of StatusDetails, without empty ones."""
    found = {name: given[name] for name in ("name", "group", "kind", "uid") if given.get(name)}
    if causes := [_cause(cause) for cause in given.get("causes") or () if isinstance(cause, dict)]:
        found["causes"] = causes
    if given.get("retryAfterSeconds"):
        found["retryAfterSeconds"] = given["retryAfterSeconds"]
    return found


def _cause(given: Object) -> Object:
    return {name: given[name] for name in ("reason", "message", "field") if given.get(name)}


#: client-go's messages for failed requests by status code below 500.
_SAID = {
    400: "the server rejected our request for an unknown reason",
    401: "the server has asked for the client to provide credentials",
    404: "the server could not find the requested resource",
    405: "the server does not allow this method on the requested resource",
    409: "the server reported a conflict",
    422: "the server rejected our request due to an error in our request",
    429: "the server has received too many requests and has asked us to try again later",
    503: "the server is currently unable to handle the request",
    504: "the server was unable to return a response in the time allotted, but may still be processing the request",
}
_MOST_TEXT = 2048


def _server_error(status: int, content_type: str, text: bytes) -> str:
    """Return the error of `NewGenericServerResponse` in apimachinery, or the message of a Status in the body."""
    try:
        found = nesting.loads(text)
    except orjson.JSONDecodeError:
        found = None
    if isinstance(found, dict) and found.get("kind") == "Status" and found.get("status") == "Failure":
        return str(found.get("message", ""))
    media = content_type.partition(";")[0].strip().lower()
    shown = "unknown"
    if not media or media.startswith("text/"):
        shown = text[:_MOST_TEXT].decode("utf-8", "replace").strip()
    if status in (403, 415) or (status == 406 and shown not in ("", "unknown")):
        return shown
    if status == 406:
        return "the server was unable to respond with a content type that the client supports"
    if said := _SAID.get(status):
        return said
    if status >= 500:
        quoted = nesting.dumps(shown).decode()
        return f"an error on the server ({quoted}) has prevented the request from succeeding"
    return f"the server responded with the status code {status} but did not return more information"
