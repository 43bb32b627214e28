"""CustomResourceDefinitions: validation, and the `Resource` of each version.

Versions are converted by strategy None, because conversion webhooks are not supported. Otherwise this follows
apiextensions-apiserver: structural schemas, defaulting, pruning, the status subresource, printer columns and
selectable fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from .builtin import metadata, names
from .builtin.causes import forbidden, invalid, required
from .crd_schema import Structural
from .errors import Cause
from .jsonpath import JSONPathError, compile_path
from .resource import Column, Object, Resource, ScalePaths, Subresource

_GROUP = "apiextensions.k8s.io"


def validate(crd: Object, old: Object | None = None) -> list[Cause]:
    """Return the causes of a 422 beyond the rules in `data/kinds.json`. `old` is the stored definition of an update."""
    spec = crd.get("spec") or {}
    naming = spec.get("names") or {}
    causes: list[Cause] = []
    group, name = spec.get("group") or "", crd["metadata"].get("name")
    if name != f"{naming.get('plural') or ''}.{group}":
        causes.append(invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group'))
    if group and "." not in group and not names.subdomain(group):
        causes.append(invalid("spec.group", group, "should be a domain with at least one dot"))
    if spec.get("preserveUnknownFields"):
        detail = "must be false in order to use defaults in the schema"
        causes.append(invalid("spec.preserveUnknownFields", True, detail))
    if naming.get("kind") and naming.get("kind") == naming.get("listKind"):
        detail = "kind and listKind may not be the same"
        causes.append(invalid("spec.names.listKind", naming["listKind"], detail))
    causes += _check_versions(spec.get("versions") or [])
    return causes if old is None or causes else list(_check_update(spec, old))


def _check_update(spec: Object, old: Object) -> list[Cause]:
    """Check that all stored versions are still listed."""
    listed = {version.get("name") for version in spec.get("versions") or ()}
    return [
        invalid(f"status.storedVersions[{index}]", stored, "must appear in spec.versions")
        for index, stored in enumerate((old.get("status") or {}).get("storedVersions") or ())
        if stored not in listed
    ]


def _check_versions(versions: list[Object]) -> Iterator[Cause]:
    for index, version in enumerate(versions):
        path = f"spec.versions[{index}]"
        root = (version.get("schema") or {}).get("openAPIV3Schema")
        if root is not None:
            yield from _check_root(root, f"{path}.schema.openAPIV3Schema")
        if (scale := (version.get("subresources") or {}).get("scale")) is not None:
            yield from _check_scale(scale, f"{path}.subresources.scale")
        for place, column in enumerate(version.get("additionalPrinterColumns") or ()):
            # As in kube-apiserver, the path ends in the name of the Go field.
            at, shown = f"{path}.additionalPrinterColumns[{place}].JSONPath", column.get("jsonPath")
            yield from _check_path(shown or "", at)
        for place, field in enumerate(version.get("selectableFields") or ()):
            at = f"{path}.selectableFields[{place}].jsonPath"
            yield from _check_path(field.get("jsonPath") or "", at)
    if versions and sum(bool(version.get("storage")) for version in versions) != 1:
        yield invalid("spec.versions", versions, "must have exactly one version marked as storage version")


def _check_path(text: str, path: str) -> list[Cause]:
    if not text:
        return [required(path)]
    try:
        compile_path(text)
    except JSONPathError as error:
        return [invalid(path, text, str(error))]
    return []


def _check_root(root: Mapping[str, Any], path: str) -> Iterator[Cause]:
    yield from _check_structural(root, path)
    if root.get("type") != "object":
        if root.get("type"):
            yield invalid(f"{path}.type", root["type"], "must be object at the root")
        else:
            yield required(f"{path}.type", "must not be empty at the root")


def _check_structural(node: Any, path: str) -> Iterator[Cause]:
    """Check that every field's type is outside of logical operators, which pruning requires."""
    if not isinstance(node, dict):
        return
    free = node.get("x-kubernetes-int-or-string") or node.get("x-kubernetes-preserve-unknown-fields")
    if not node.get("type") and not free:
        yield required(f"{path}.type", "must not be empty for specified object fields")
    if node.get("type") == "array" and not isinstance(node.get("items"), dict):
        yield required(f"{path}.items", "must be specified")
    if node.get("properties") and isinstance(node.get("additionalProperties"), dict):
        yield forbidden(f"{path}.additionalProperties", "additionalProperties and properties are mutual exclusive")
    if node.get("x-kubernetes-list-type") == "map" and not node.get("x-kubernetes-list-map-keys"):
        yield required(f"{path}.x-kubernetes-list-map-keys", "must not be empty if x-kubernetes-list-type is map")
    for name, inner in (node.get("properties") or {}).items():
        yield from _check_structural(inner, f"{path}.properties[{name}]")
    if isinstance(node.get("items"), dict):
        yield from _check_structural(node["items"], f"{path}.items")
    if isinstance(node.get("additionalProperties"), dict):
        yield from _check_structural(node["additionalProperties"], f"{path}.additionalProperties")


def established(crd: Object, now: str) -> Object:
    """Return the status of an established definition: accepted names and stored versions."""
    spec, before = crd["spec"], crd.get("status") or {}
    storage = next((version["name"] for version in spec["versions"] if version.get("storage")), "")
    stored = list(before.get("storedVersions") or ())
    if storage and storage not in stored:
        stored.append(storage)
    accepted = {key: value for key, value in spec["names"].items() if value}
    conditions = [
        _condition("NamesAccepted", "NoConflicts", "no conflicts found", before, now),
        _condition("Established", "InitialNamesAccepted", "the initial names have been accepted", before, now),
    ]
    return {"conditions": conditions, "acceptedNames": accepted, "storedVersions": stored}


def _condition(kind: str, reason: str, message: str, before: Object, now: str) -> Object:
    for condition in before.get("conditions") or ():
        if condition.get("type") == kind and condition.get("status") == "True":
            return dict(condition)
    return {"type": kind, "status": "True", "lastTransitionTime": now, "reason": reason, "message": message}


_SCALE = Subresource("scale", "Scale", ("get", "patch", "update"), "autoscaling", "v1")
_SCALE_FIELDS = ("specReplicasPath", "statusReplicasPath", "labelSelectorPath")


def _steps(path: str | None) -> tuple[str, ...]:
    """Return the names in a simple JSONPath such as `.spec.replicas`."""
    return tuple((path or "").removeprefix(".").split(".")) if path else ()


def _check_scale(scale: Mapping[str, Any], path: str) -> Iterator[Cause]:
    """Check the paths of the subresource scale: fields under the spec or the status, without brackets."""
    for field, roots in zip(_SCALE_FIELDS, (("spec",), ("status",), ("spec", "status")), strict=True):
        text = scale.get(field) or ""
        if not text and field == "labelSelectorPath":
            continue
        if not text:
            yield required(f"{path}.{field}")
        elif "[" in text or not text.startswith("."):
            yield invalid(f"{path}.{field}", text, "should be a simple json path without index/map/filter")
        elif not any(text.startswith(f".{root}.") for root in roots):
            allowed = " or ".join(f".{root}" for root in roots)
            yield invalid(f"{path}.{field}", text, f"should be a json path under {allowed}")


def resource_of(crd: Object, version: str) -> Resource:
    """Return the resource of a version of an established definition. Raises KeyError for an unknown version."""
    spec = crd["spec"]
    found = next((one for one in spec["versions"] if one["name"] == version), None)
    if found is None:
        raise KeyError(version)
    naming = spec["names"]
    namespaced = spec["scope"] == "Namespaced"
    structural = Structural((found.get("schema") or {}).get("openAPIV3Schema") or {"type": "object"})
    status = (found.get("subresources") or {}).get("status") is not None
    rules = _CustomStrategy(structural, namespaced=namespaced, status=status)
    scale = (found.get("subresources") or {}).get("scale")
    selectable = tuple(field["jsonPath"] for field in found.get("selectableFields") or ())
    in_namespace = ("metadata.namespace",) if namespaced else ()
    return Resource(
        group=spec["group"],
        version=version,
        kind=naming["kind"],
        plural=naming["plural"],
        singular=naming.get("singular") or naming["kind"].lower(),
        list_kind=naming.get("listKind") or naming["kind"] + "List",
        namespaced=namespaced,
        short_names=tuple(naming.get("shortNames") or ()),
        categories=tuple(naming.get("categories") or ()),
        status=status,
        custom=True,
        conditional_update=True,
        default=structural.default,
        prepare_create=rules.prepare_create,
        prepare_update=rules.prepare_update,
        validate=rules.validate,
        field_names=("metadata.name", *in_namespace, *(path.removeprefix(".") for path in selectable)),
        fields=_fields(selectable),
        schema=structural,
        subresources=() if scale is None else (_SCALE,),
        scale=None if scale is None else ScalePaths(*(_steps(scale.get(field)) for field in _SCALE_FIELDS)),
        columns=_columns(found),
    )


class _CustomStrategy(NamedTuple):
    """The strategy of a custom kind: the fields that its writes reset, keep and validate."""

    structural: Structural
    namespaced: bool
    status: bool

    def prepare_create(self, obj: Object) -> None:
        if self.status:
            obj.pop("status", None)
        obj["metadata"]["generation"] = 1

    def prepare_update(self, obj: Object, old: Object, subresource: str) -> None:
        metadata.carry_over(obj, old)
        if subresource == "status":
            self._keep_all_but_status(obj, old)
            return
        if self.status:
            metadata.restore(obj, old, ("status",))
        aside = {"metadata", "apiVersion", "kind"} | ({"status"} if self.status else set())
        if {key: obj[key] for key in obj.keys() - aside} != {key: old[key] for key in old.keys() - aside}:
            metadata.raise_generation(obj)

    @staticmethod
    def _keep_all_but_status(obj: Object, old: Object) -> None:
        """Restore everything but the status and the metadata that records the write."""
        kept = {key: obj["metadata"][key] for key in ("resourceVersion", "managedFields") if key in obj["metadata"]}
        status = obj.get("status")
        head = {key: value for key, value in obj.items() if key in ("apiVersion", "kind")}
        obj.clear()
        obj.update(head)
        obj.update({key: value for key, value in old.items() if key not in ("status", "apiVersion", "kind")})
        obj["metadata"] = {**old["metadata"], **kept}
        if status is not None:
            obj["status"] = status

    def validate(self, obj: Object, old: Object | None) -> Iterator[Cause]:
        if old is None:
            yield from metadata.check(obj["metadata"], namespaced=self.namespaced, custom=True)
        else:
            yield from metadata.check_update(obj["metadata"], old["metadata"], rechecks="change", custom=True)
        yield from self.structural.validate(obj, old)


def _fields(selectable: tuple[str, ...]) -> Callable[[Object], dict[str, str]]:
    paths = [(path.removeprefix("."), compile_path(path)) for path in selectable]

    def fields(obj: Object) -> dict[str, str]:
        meta = obj["metadata"]
        found = {"metadata.name": meta["name"], "metadata.namespace": meta.get("namespace", "")}
        for name, path in paths:
            matches = path(obj)
            found[name] = _text(matches[0]) if matches else ""
        return found

    return fields


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def _columns(version: Mapping[str, Any]) -> tuple[Column, ...]:
    return tuple(
        Column(
            name=column["name"],
            type=column["type"],
            cell=column["jsonPath"],
            format=column.get("format") or "",
            description=column.get("description")
            or f"Custom resource definition column (in JSONPath format): {column['jsonPath']}",
            priority=column.get("priority") or 0,
        )
        for column in version.get("additionalPrinterColumns") or ()
    )
