"""JSON Patch (RFC 6902) and JSON Merge Patch (RFC 7386), with kube-apiserver's errors.

`strategic_merge_patch` is re-exported, so that callers find every patch type here. All functions take plain JSON
objects. A JSON patch changes the document in place. The merges return a new document that shares unpatched parts with
the old one, so that callers detect changes by identity and skip the rest. Merges consume the patch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import nesting
from .errors import ApiError, bad_request, json_name
from .resource import Object
from .strategic import strategic_merge_patch

__all__ = ["json_patch", "merge_patch", "strategic_merge_patch"]

#: kube-apiserver rejects longer JSON patches (maxJSONPatchOperations).
MAX_OPERATIONS = 10_000


def json_patch(doc: Object, operations: object) -> Object:
    """Apply the operations in order, in place. Raises 400 for a malformed patch, 422 for one that does not apply."""
    if not isinstance(operations, list):
        raise bad_request(
            f"error decoding patch: json: cannot unmarshal {json_name(operations)}"
            " into Go value of type []handlers.jsonPatchOp"
        )
    for operation in operations:
        _check_operation(operation)
    if len(operations) > MAX_OPERATIONS:
        raise ApiError(
            413,
            "RequestEntityTooLarge",
            f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(operations)}",
        )
    return carried_out(doc, operations)


def carried_out(doc: Object, operations: list[Object]) -> Object:
    """Apply operations that were not checked. Raises `PatchFailed`."""
    for operation in operations:
        kind = operation.get("op")
        apply = _OPERATIONS.get(kind) if isinstance(kind, str) else None
        if apply is None:
            raise PatchFailed(f"Unexpected kind: {kind if isinstance(kind, str) else 'unknown'}")
        apply(doc, operation)
    return doc


def merge_patch(doc: Object, patch: object, *, nulls: bool = True) -> Object:
    """Apply a merge patch: objects merge, null removes, other values replace. Raises 400 unless it is an object.

    `nulls` is whether the patch may contain null.
    """
    if not isinstance(patch, dict):
        raise bad_request(
            f"error decoding patch: json: cannot unmarshal {json_name(patch)}"
            " into Go value of type map[string]interface {}"
        )
    return _merged(doc, patch, nulls)


def copy_json(value: Any) -> Any:
    return nesting.loads(nesting.dumps(value))


def _merged(target: Object, patch: Object, nulls: bool) -> Object:
    merged = target.copy()
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif type(value) is dict and type(held := merged.get(key)) is dict:
            merged[key] = _merged(held, value, nulls)
        else:
            if nulls:
                _prune_nulls(value)
            merged[key] = value
    return merged


def _prune_nulls(value: Any) -> None:
    """Remove nulls from a new value, where they mean absent, too."""
    if isinstance(value, dict):
        for key in [key for key, inner in value.items() if inner is None]:
            del value[key]
        for inner in value.values():
            _prune_nulls(inner)
    elif isinstance(value, list):
        for inner in value:
            _prune_nulls(inner)


class PatchFailed(ApiError):
    """A JSON patch that does not apply. Its author does not get `why`, but a webhook's failure includes it.

    `why` has the wording of the library that kube-apiserver uses.
    """

    def __init__(self, why: str) -> None:
        text = "the server rejected our request due to an error in our request"
        super().__init__(422, "Invalid", text, {})
        self.why = why


#: The ends of its messages.
_MISSING_VALUE, _BAD_INDEX, _TEST = "missing value", "invalid index referenced", "test failed"


def _check_operation(operation: object) -> None:
    if not isinstance(operation, dict):
        raise bad_request(
            f"error decoding patch: json: cannot unmarshal {json_name(operation)}"
            " into Go value of type handlers.jsonPatchOp"
        )
    for name in ("op", "path", "from"):
        value = operation.get(name, "")
        if value is not None and not isinstance(value, str):
            raise bad_request(
                f"error decoding patch: json: cannot unmarshal {json_name(value)}"
                f" into Go struct field jsonPatchOp.{name} of type string"
            )


def _find(doc: Any, pointer: object, problem: str) -> tuple[Any, str]:
    """Return the container of a pointer's target, and the last token. `problem` is the error if it is missing."""
    if not isinstance(pointer, str):
        field = "from" if "from path" in problem else "path"
        raise PatchFailed(f"{problem.split()[0]} operation failed to decode {field}: {_MISSING_VALUE}")
    if not pointer.startswith("/"):
        raise PatchFailed(f"{problem.format(pointer)}: {_MISSING_VALUE}")
    *parents, last = (token.replace("~1", "/").replace("~0", "~") for token in pointer[1:].split("/"))
    try:
        for token in parents:
            doc = _get(doc, token)
    except PatchFailed:
        doc = None
    if not isinstance(doc, dict | list):
        raise PatchFailed(f"{problem.format(pointer)}: {_MISSING_VALUE}")
    return doc, last


def _index(items: list[Any], token: str, size: int) -> int:
    """Return the index that a token names among `size` places.

    As in kube-apiserver, negative ones count from the end.
    """
    try:
        index = int(token) if token.lstrip("+-").isascii() and token.lstrip("+-").isdigit() else None
    except ValueError:
        index = None
    if index is None:
        raise PatchFailed(f'strconv.Atoi: parsing "{token}": invalid syntax')
    if not -size <= index < size:
        raise PatchFailed(f"Unable to access invalid index: {index}: {_BAD_INDEX}")
    return index + size if index < 0 else index


_MISSING = object()


def _get(container: Any, token: str) -> Any:
    if isinstance(container, dict):
        value = container.get(token, _MISSING)
        if value is _MISSING:
            raise PatchFailed(f"unable to get nonexistent key: {token}: {_MISSING_VALUE}")
        return value
    if isinstance(container, list):
        return container[_index(container, token, len(container))]
    raise PatchFailed(_MISSING_VALUE)


def _put(container: Any, token: str, value: Any) -> None:
    if isinstance(container, dict):
        container[token] = value
    elif token == "-":  # noqa: S105 - a place in a list, not a secret
        container.append(value)
    else:
        try:
            index = _index(container, token, len(container) + 1)
        except PatchFailed as failed:
            if not failed.why.startswith("strconv"):
                raise
            why = f"value was not a proper array index: '{token}': {failed.why}"
            raise PatchFailed(why) from None
        container.insert(index, value)


def _take(container: Any, token: str) -> Any:
    if isinstance(container, dict):
        if token not in container:
            raise PatchFailed(f"Unable to remove nonexistent key: {token}: {_MISSING_VALUE}")
        return container.pop(token)
    return container.pop(_index(container, token, len(container)))


def _at(problem: str, does: Callable[..., Any], *given: Any) -> Any:
    """Return what `does` returns; prefix an error with `problem`."""
    try:
        return does(*given)
    except PatchFailed as failed:
        raise PatchFailed(f"{problem}: {failed.why}") from None


def _add(doc: Object, operation: Object) -> None:
    path = operation.get("path")
    container, token = _find(doc, path, 'add operation does not apply: doc is missing path: "{}"')
    _at(f"error in add for path: '{path}'", _put, container, token, copy_json(operation.get("value")))


def _remove(doc: Object, operation: Object) -> None:
    path = operation.get("path")
    container, token = _find(doc, path, 'remove operation does not apply: doc is missing path: "{}"')
    _at(f"error in remove for path: '{path}'", _take, container, token)


def _replace(doc: Object, operation: Object) -> None:
    path = operation.get("path")
    container, token = _find(doc, path, "replace operation does not apply: doc is missing path: {}")
    try:
        _get(container, token)
    except PatchFailed:
        why = f"replace operation does not apply: doc is missing key: {path}: {_MISSING_VALUE}"
        raise PatchFailed(why) from None
    key = token if isinstance(container, dict) else _index(container, token, len(container))
    container[key] = copy_json(operation.get("value"))


def _move(doc: Object, operation: Object) -> None:
    container, token = _find(doc, operation.get("from"), "move operation does not apply: doc is missing from path: {}")
    value = _at(f"error in move for path: '{token}'", _get, container, token)
    _take(container, token)
    path = operation.get("path")
    container, token = _find(doc, path, "move operation does not apply: doc is missing destination path: {}")
    _at(f"error in move for path: '{path}'", _put, container, token, value)


def _copy(doc: Object, operation: Object) -> None:
    source, path = operation.get("from"), operation.get("path")
    container, token = _find(doc, source, "copy operation does not apply: doc is missing from path: {}")
    value = copy_json(_at(f"error in copy for from: '{source}'", _get, container, token))
    container, token = _find(doc, path, "copy operation does not apply: doc is missing destination path: {}")
    _at("error while adding value during copy", _put, container, token, value)


def _test(doc: Object, operation: Object) -> None:
    path, wanted = operation.get("path"), operation.get("value")
    container, token = _find(doc, path, "test operation does not apply: is missing path: {}")
    if isinstance(container, dict):
        # An absent field passes a test for null.
        found = container.get(token)
    else:
        found = _at(f"error in test for path: '{path}'", _get, container, token)
    if not _equal(found, wanted):
        what = "path" if found is None or wanted is None else "value"
        raise PatchFailed(f"testing {what} {path} failed: {_TEST}")


def _equal(one: Any, other: Any) -> bool:
    """Return whether two JSON values are equal. Unlike in Python, true does not equal 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(value, other[key]) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    return bool(one == other)


_OPERATIONS: dict[str, Callable[[Object, Object], None]] = {
    "add": _add,
    "remove": _remove,
    "replace": _replace,
    "move": _move,
    "copy": _copy,
    "test": _test,
}
