"""Namespaces: the label with their name, and the finalizer that keeps them until they are empty."""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import Cause
from ..resource import Object
from .causes import invalid
from .kind import Logic

_LABEL = "kubernetes.io/metadata.name"


def _default(namespace: Object) -> None:
    metadata = namespace["metadata"]
    if name := metadata.get("name"):
        metadata["labels"] = {**(metadata.get("labels") or {}), _LABEL: name}


def _on_create(namespace: Object) -> None:
    finalizers = namespace["spec"].setdefault("finalizers", [])
    if "kubernetes" not in finalizers:
        finalizers.append("kubernetes")
    # Defaulting runs before a generated name is set.
    _default(namespace)


def _on_update(namespace: Object, old: Object) -> None:
    # Only the subresource finalize may change the finalizers.
    namespace["spec"] = {**namespace.get("spec", {}), **old.get("spec", {})}


def _check_status(namespace: Object, old: Object) -> Iterator[Cause]:
    phase = (namespace.get("status") or {}).get("phase")
    if "deletionTimestamp" not in namespace["metadata"]:
        if phase != "Active":
            yield invalid("status.Phase", phase, "may only be 'Active' if `deletionTimestamp` is empty")
            return
    elif phase != "Terminating":
        yield invalid("status.Phase", phase, "may only be 'Terminating' if `deletionTimestamp` is not empty")
        return


LOGIC = {
    ("", "Namespace"): Logic(default=_default, on_create=_on_create, on_update=_on_update, check_status=_check_status)
}
