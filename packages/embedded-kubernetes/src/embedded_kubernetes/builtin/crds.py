"""CustomResourceDefinitions as objects: defaults and initial status. The module `crd` interprets them."""

from __future__ import annotations

from ..errors import Cause
from ..resource import Object
from .kind import Logic


def _default(definition: Object) -> None:
    spec = definition.setdefault("spec", {})
    names = spec.setdefault("names", {})
    kind = names.get("kind", "")
    if not names.get("singular") and kind:
        names["singular"] = kind.lower()
    if not names.get("listKind") and kind:
        names["listKind"] = f"{kind}List"
    if not (spec.get("conversion") or {}).get("strategy"):
        spec["conversion"] = {**(spec.get("conversion") or {}), "strategy": "None"}
    status = definition.setdefault("status", {})
    status.setdefault("conditions", None)
    status.setdefault("acceptedNames", {"plural": "", "kind": ""})
    if status.get("storedVersions") is None:
        status["storedVersions"] = None


def _on_create(definition: Object) -> None:
    stored = [
        version.get("name")
        for version in definition["spec"].get("versions") or ()
        if isinstance(version, dict) and version.get("storage")
    ]
    definition["status"] = {"conditions": None, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": stored}


def _check(definition: Object, old: Object | None) -> list[Cause]:
    # `crd` imports this package's names and metadata, so this cannot be at the top.
    from ..crd import validate

    return validate(definition, old)


LOGIC = {
    ("apiextensions.k8s.io", "CustomResourceDefinition"): Logic(default=_default, check=_check, on_create=_on_create)
}
