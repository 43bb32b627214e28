"""API discovery, in the classic and the aggregated form (KEP-3352).

Documents list what is served, including subresources. The order of groups, verbs and hashes are kube-apiserver's.
`/version` returns the emulated release, because clients compare versions.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from hashlib import sha256
from typing import Any

from .resource import Resource, Subresource
from .schema_source import data

_JSON = "application/json"
_AGGREGATED = "APIGroupDiscoveryList"
_MEDIA = "application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"

_CUSTOM_VERBS = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]
_STATUS_VERBS = ("get", "patch", "update")

Document = dict[str, Any]


def respond(
    path: str, accept: str, resources: Iterable[Resource], *, address: str = "127.0.0.1:6443"
) -> tuple[Document | str, str] | None:
    """Return the discovery document at `path` and its content type; None for other paths.

    `address` is the server's own, which only `/api` includes.
    """
    parts = path.strip("/").split("/")
    if parts == ["version"]:
        return dict(data("discovery.json")["version"]), _JSON
    served = list(resources)
    if parts == [""]:
        return {"paths": _paths(served)}, _JSON
    if parts == ["api"]:
        if version := _aggregated_version(accept):
            return _aggregated(_by_group(served, core=True), version), _MEDIA.format(version=version)
        addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": addresses}, _JSON
    if parts == ["apis"]:
        groups = _by_group(served, core=False)
        if version := _aggregated_version(accept):
            return _aggregated(groups, version), _MEDIA.format(version=version)
        listed = [_group(name, list(versions)) for name, versions in groups.items()]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}, _JSON
    if parts[0] == "apis" and len(parts) == 2:
        versions = _by_group(served, core=False).get(parts[1])
        if versions is None:
            return None
        return {"kind": "APIGroup", "apiVersion": "v1", **_group(parts[1], list(versions))}, _JSON
    if parts[0] == "api" and len(parts) == 2:
        kinds = _by_group(served, core=True).get("", {}).get(parts[1])
    elif parts[0] == "apis" and len(parts) == 3:
        kinds = _by_group(served, core=False).get(parts[1], {}).get(parts[2])
    else:
        return None
    return None if kinds is None else (_resource_list(kinds), _JSON)


def _aggregated_version(accept: str) -> str:
    """Return the version of the aggregated form that the client prefers; empty for the classic form."""
    for choice in accept.split(","):
        media, *parameters = (part.strip() for part in choice.split(";"))
        found = dict(parameter.partition("=")[::2] for parameter in parameters)
        if media not in (_JSON, "*/*", "application/*"):
            continue
        if not found.get("as"):
            return ""
        if (
            found.get("as") == _AGGREGATED
            and found.get("g") == "apidiscovery.k8s.io"
            and found.get("v") in ("v2", "v2beta1")
        ):
            return found["v"]
    return ""


def _by_group(resources: list[Resource], *, core: bool) -> dict[str, dict[str, list[Resource]]]:
    """Return kinds by group and version, in the order of discovery."""
    groups: dict[str, dict[str, list[Resource]]] = {}
    for resource in resources:
        if (resource.group == "") == core:
            groups.setdefault(resource.group, {}).setdefault(resource.version, []).append(resource)

    # Groups of custom resources follow, ordered by name.
    order = data("discovery.json")["groups"]

    def place(name: str) -> tuple[int, str]:
        return (order.index(name), "") if name in order else (len(order), name)

    return {
        name: {
            version: sorted(groups[name][version], key=lambda resource: resource.plural)
            for version in sorted(groups[name], key=_version_key)
        }
        for name in sorted(groups, key=place)
    }


def _version_key(version: str) -> tuple[int, int, int, str]:
    """Return the sort key of a version: v2, v1, v1beta1, v1alpha1, then other names."""
    number, stage, iteration = version[1:], 0, ""
    for rank, name in ((1, "beta"), (2, "alpha")):
        if name in number:
            number, _, iteration = number.partition(name)
            stage = rank
            break
    if not version.startswith("v") or not number.isdigit() or (stage and not iteration.isdigit()):
        return (3, 0, 0, version)
    return (stage, -int(number), -int(iteration or 0), "")


def _group(name: str, versions: list[str]) -> Document:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def _verbs(resource: Resource) -> list[str]:
    return list(_CUSTOM_VERBS) if resource.custom else sorted(resource.verbs)


def _other_names(resource: Resource) -> Document:
    listed = {"shortNames": list(resource.short_names), "categories": list(resource.categories)}
    return {name: names for name, names in listed.items() if names}


def _subresources(resource: Resource) -> list[Subresource]:
    found = list(resource.subresources)
    if resource.status:
        found.append(Subresource("status", resource.kind, _STATUS_VERBS))
    return sorted(found)


def storage_hash(resource: Resource) -> str:
    """Return kube-apiserver's hash of the storage version. Kinds with the same storage have the same hash."""
    group, version = resource.group, resource.version
    if resource.shape is not None:
        group, version = resource.shape.stored[0], resource.shape.version
    elif group == "apiextensions.k8s.io":
        version = "v1beta1"  # definitions are stored as v1beta1
    digest = sha256(f"{group}/{version}/{resource.kind}".encode()).digest()
    return b64encode(digest[:8]).decode()


def _resource_list(kinds: list[Resource]) -> Document:
    first = kinds[0]
    entries: list[Document] = []
    for resource in kinds:
        entry: Document = {
            "name": resource.plural,
            "singularName": resource.singular,
            "namespaced": resource.namespaced,
            "kind": resource.kind,
            "verbs": _verbs(resource),
        }
        entry |= _other_names(resource)
        if not resource.asks:
            entry["storageVersionHash"] = storage_hash(resource)
        entries.append(entry)
        entries += [_below(resource, below) for below in _subresources(resource)]
        if resource.group == "" and resource.plural == "pods":
            entries.append(_NAMESPACE_BINDING)
    entries.sort(key=lambda entry: str(entry["name"]))
    listed: Document = {"kind": "APIResourceList"}
    if first.group:
        listed["apiVersion"] = "v1"
    return {**listed, "groupVersion": first.api_version, "resources": entries}


#: Bindings may also be posted to the namespace.
_NAMESPACE_BINDING: Document = {
    "name": "bindings",
    "singularName": "binding",
    "namespaced": True,
    "kind": "Binding",
    "verbs": ["create"],
}


def _below(resource: Resource, below: Subresource) -> Document:
    entry: Document = {"name": f"{resource.plural}/{below.name}", "singularName": "", "namespaced": resource.namespaced}
    if below.version:
        entry |= {"group": below.group, "version": below.version}
    return {**entry, "kind": below.kind, "verbs": list(below.verbs)}


def _aggregated(groups: dict[str, dict[str, list[Resource]]], version: str) -> Document:
    items: list[Document] = []
    for name, versions in groups.items():
        listed: list[Document] = []
        for found, kinds in versions.items():
            entries = [entry for resource in kinds for entry in _aggregated_entries(resource)]
            entries.sort(key=lambda entry: str(entry["resource"]))
            listed.append({"version": found, "resources": entries, "freshness": "Current"})
        items.append({"metadata": {"name": name} if name else {}, "versions": listed})
    return {"kind": _AGGREGATED, "apiVersion": f"apidiscovery.k8s.io/{version}", "metadata": {}, "items": items}


def _response_kind(kind: str, group: str, version: str) -> Document:
    # Empty names refer to the group version of the enclosing list.
    return {"group": group, "version": version, "kind": kind}


def _aggregated_entries(resource: Resource) -> list[Document]:
    own = (resource.group, resource.version) if resource.custom else ("", "")
    entry: Document = {
        "resource": resource.plural,
        "responseKind": _response_kind(resource.kind, *own),
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": _verbs(resource),
    }
    entry |= _other_names(resource)
    if below := _subresources(resource):
        entry["subresources"] = [
            {
                "subresource": found.name,
                "responseKind": _response_kind(found.kind, *((found.group, found.version) if found.version else own)),
                "verbs": list(found.verbs),
            }
            for found in below
        ]
    entries = [entry]
    if resource.group == "" and resource.plural == "pods":
        entries.append(
            {
                "resource": "bindings",
                "responseKind": _response_kind("Binding", "", ""),
                "scope": "Namespaced",
                "singularResource": "binding",
                "verbs": ["create"],
            }
        )
    return entries


def _paths(resources: list[Resource]) -> list[str]:
    """Return every path of the root document."""
    found = {"/api", "/apis", "/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz", "/version"}
    for resource in resources:
        found.add(resource.path)
        if resource.group:
            found.add(f"/apis/{resource.group}")
    return sorted(found)
