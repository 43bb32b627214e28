"""Decodes request bodies.

Errors before the kind's own validation have kube-apiserver's order: media type (415), syntax, kind and version (400),
unknown fields by `fieldValidation` and types (400).
"""

from __future__ import annotations

from typing import Any

from apimachinery.yaml_text import InvalidYaml, load

from . import nesting, protobuf, schema
from .errors import ApiError, bad_request, unknown_format
from .json_syntax import syntax_error
from .requests import Request, check_delete_options
from .resource import Object, Resource

_YAML_TYPES = frozenset({"application/yaml", "application/x-yaml", "text/yaml"})


def media_type(request: Request) -> str:
    return request.content_type.partition(";")[0].strip().lower()


def _yaml(body: bytes, kind: str) -> Any:
    try:
        document = load(body, levels=nesting.MOST_YAML_LEVELS)
        # YAML has dates and non-string keys; the round trip reduces the document to JSON.
        return nesting.loads(nesting.dumps(document))
    except (InvalidYaml, TypeError, RecursionError) as error:
        raise bad_request(f"error converting YAML to JSON for {kind}: {error}") from None


def parse(request: Request, kind: str, *, may_be_yaml: bool = False) -> Any:
    """Return the body as JSON values. Raises 415 or 400."""
    if may_be_yaml or request.content_type != "application/json":
        media = media_type(request)
        if may_be_yaml or media in _YAML_TYPES:
            try:
                return nesting.loads(request.body)
            except ValueError:
                return _yaml(request.body, kind)
        if media == protobuf.MEDIA_TYPE:
            return protobuf.decode(request.body)
        if media not in ("", "application/json"):
            raise unknown_format("application/json, application/yaml")
    try:
        return nesting.loads(request.body)
    except ValueError as error:
        shown = request.body[:64].decode("utf-8", "replace")
        raise bad_request(
            f"the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json "
            f"parse error: {syntax_error(request.body) or error} ({shown})"
        ) from None


def of_kind(body: Any, kind: str) -> Object:
    """Return the body if it is an object of this kind or without kind. Raises 400."""
    if isinstance(body, dict) and body.get("kind", kind) == kind:
        return body
    shown = body.get("kind") if isinstance(body, dict) else type(body).__name__
    raise bad_request(f"the body must be a {kind}, not {shown}")


def check_names(obj: Any, resource: Resource) -> Object:
    """Check that the object is of the expected kind. Bodies of built-in kinds may omit kind and version."""
    if not isinstance(obj, dict):
        raise bad_request(
            f"the object provided is unrecognized (must be of type {resource.kind}): it is not a JSON object"
        )
    kind, version = obj.get("kind"), obj.get("apiVersion")
    if kind == resource.kind and version == resource.api_version:
        return obj
    if resource.custom and (not kind or not version):
        missing = "Kind" if not kind else "apiVersion"
        raise bad_request(f"Object '{missing}' is missing in the body sent for {resource.kind}")
    if kind and kind != resource.kind:
        # The wording of kube-apiserver's decoder, which attempts a conversion between Go types.
        shown, target = str(version or resource.api_version), resource.group or "core"
        raise bad_request(
            f'{kind} in version "{shown}" cannot be handled as a {resource.kind}: converting '
            f"({shown}.{kind}) to ({target}.{resource.kind}): unknown conversion"
        )
    if version and version != resource.api_version:
        raise bad_request(
            f"the API version in the data ({version}) does not match the expected API version ({resource.api_version})"
        )
    obj["kind"], obj["apiVersion"] = resource.kind, resource.api_version
    return obj


def check_fields(
    request: Request, obj: Object, resource: Resource, known: Object | None = None
) -> tuple[tuple[str, str], ...]:
    """Drop unknown fields; return Warning headers for them. Raises 400 if fieldValidation is Strict.

    `known` is the stored object, if `obj` shares parts with it.
    """
    unknown = schema.check(resource, obj, known)
    mode = request.parameters.get("fieldValidation", "") if request.parameters else ""
    if not isinstance(obj.get("metadata"), dict):
        obj["metadata"] = {}
    if not unknown or mode == "Ignore":
        return ()
    found = [text if text.startswith("unknown field") else f'unknown field "{text}"' for text in unknown]
    if mode == "Strict":
        raise bad_request(
            f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: strict '
            f"decoding error: {', '.join(found)}"
        )
    return tuple([("Warning", '299 - "' + text.replace('"', '\\"') + '"') for text in found])


def decode(request: Request, resource: Resource) -> tuple[Object, tuple[tuple[str, str], ...]]:
    """Return the object in the body of a create or update, and Warning headers."""
    obj = check_names(parse(request, resource.kind), resource)
    return obj, check_fields(request, obj, resource)


def delete_options(request: Request) -> Object:
    """Return the DeleteOptions in the body, or in the query if there is no body.

    A malformed body is a 500 without reason, because kube-apiserver does not classify this error.
    """
    options: Object = {}
    if request.body:
        try:
            body = parse(request, "DeleteOptions")
        except ApiError as refused:
            raise refused if refused.code == 415 else ApiError(500, "", refused.message) from None
        if not isinstance(body, dict):
            raise ApiError(500, "", "the body of a delete must be a DeleteOptions object")
        kind = body.get("kind")
        if kind not in (None, "", "DeleteOptions"):
            version = body.get("apiVersion") or "v1"
            raise ApiError(500, "", f'no kind "{kind}" is registered for version "{version}"')
        options.update(body)
    else:
        grace = request.number("gracePeriodSeconds")
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        for name in ("propagationPolicy", "orphanDependents"):
            if name in request.parameters:
                text = request.parameters[name]
                options[name] = text if name == "propagationPolicy" else request.flag(name)
        if "dryRun" in request.parameters:
            options["dryRun"] = [request.parameters["dryRun"]]
    for field, fits, wanted in (
        ("gracePeriodSeconds", _is_whole, "a whole number"),
        ("orphanDependents", lambda value: isinstance(value, bool), "true or false"),
        ("propagationPolicy", lambda value: isinstance(value, str), "a string"),
        ("preconditions", lambda value: isinstance(value, dict), "an object"),
        ("dryRun", _is_texts, "a list of strings"),
    ):
        value = options.get(field)
        if value is not None and not fits(value):
            raise ApiError(500, "", f"DeleteOptions: {field} must be {wanted}")
    check_delete_options(options)
    return options


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)
