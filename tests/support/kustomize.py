"""Renders a folder as `kubectl apply -k FOLDER` does, by kubectl's own kustomize or by a subset of it.

The subset supports the fields of the project's kustomizations and refuses others. It is compared with kubectl where
that is available, including its surprises: a generated ConfigMap's name is replaced wherever a field may name a
ConfigMap, even in a Role's resourceNames (kustomize's `namereference.yaml`).
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

Object = dict[str, Any]

#: The first kubectl whose kustomize (4.1 or later) supports `labels` and components.
OLDEST = (1, 22)
#: Kinds without a namespace. kustomize does not know that newer kinds, such as FlowSchema, are cluster-wide; API
#: servers ignore a namespace in them.
_CLUSTER_WIDE = {"Namespace", "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition"}
_FIRST = ("Namespace", "CustomResourceDefinition", "ServiceAccount", "Role", "ClusterRole")
_FIELDS = {*("apiVersion", "kind", "namespace", "labels", "resources", "components", "configMapGenerator", "images")}


@cache
def unusable() -> str:
    """Return why kubectl cannot render here; empty if it can."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        return "there is no kubectl on the PATH"
    command = [kubectl, "version", "--client", "-o", "json"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    try:
        version = json.loads(done.stdout)["clientVersion"]
        found = int(version["major"]), int(re.match(r"\d+", version["minor"])[0])  # type: ignore[index]
    except (ValueError, KeyError, TypeError):
        return f"{kubectl} does not say its version: {done.stderr.strip()}"
    if found < OLDEST:
        return f"{kubectl} is {found[0]}.{found[1]}, and its kustomize too old: needed is {OLDEST[0]}.{OLDEST[1]}"
    return ""


def render(folder: Path) -> list[Object]:
    """Return the objects in an order in which they can be created, by either implementation."""
    objects = plainly(folder) if unusable() else by_kubectl(folder)
    return sorted(objects, key=lambda each: _FIRST.index(each["kind"]) if each["kind"] in _FIRST else 99)


def by_kubectl(folder: Path) -> list[Object]:
    built = subprocess.run(
        ["kubectl", "kustomize", str(folder)], capture_output=True, text=True, check=True, timeout=60
    )
    return [*yaml.safe_load_all(built.stdout)]


def plainly(folder: Path) -> list[Object]:
    """Render without kubectl. Raises ValueError for a kustomization with unsupported fields."""
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    unknown = kustomization.keys() - _FIELDS
    if unknown:
        raise ValueError(f"{folder}: {', '.join(sorted(unknown))}: not known here, only to kubectl")
    objects: list[Object] = []
    for name in (*kustomization.get("resources", ()), *kustomization.get("components", ())):
        path = folder / name
        objects += plainly(path) if path.is_dir() else filter(None, yaml.safe_load_all(path.read_text()))
    generated = [_config_map(folder, each) for each in kustomization.get("configMapGenerator", ())]
    objects += [made for _, made in generated]
    for each in objects:
        for labels in kustomization.get("labels", ()):
            each["metadata"].setdefault("labels", {}).update(labels["pairs"])
        if "namespace" in kustomization and each["kind"] not in _CLUSTER_WIDE:
            each["metadata"]["namespace"] = kustomization["namespace"]
    for name, made in generated:
        for each in objects:
            _rename(each, name, made["metadata"]["name"])
    for image in kustomization.get("images", ()):
        for each in objects:
            for container in _containers(each):
                if container["image"] == image["name"]:
                    container["image"] = f"{image.get('newName', image['name'])}:{image['newTag']}"
    return objects


def _config_map(folder: Path, generator: Object) -> tuple[str, Object]:
    """Return the name in references, and the object."""
    name = generator["name"]
    data = {Path(file).name: (folder / file).read_text() for file in generator["files"]}
    suffix = "" if (generator.get("options") or {}).get("disableNameSuffixHash") else f"-{_hash(data)}"
    metadata: Object = {"name": name + suffix}
    if labels := (generator.get("options") or {}).get("labels"):
        metadata["labels"] = dict(labels)
    if "namespace" in generator:
        metadata["namespace"] = generator["namespace"]
    return name, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def _hash(data: dict[str, str]) -> str:
    """Return the suffix of kustomize's `hasher.go`: ten digits of SHA-256 in an alphabet without vowels."""
    text = json.dumps({"data": data, "kind": "ConfigMap", "name": ""}, sort_keys=True, separators=(",", ":"))
    for raw, escaped in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026")):
        text = text.replace(raw, escaped)
    return hashlib.sha256(text.encode()).hexdigest()[:10].translate(str.maketrans("013ae", "ghkmt"))


def _rename(each: Object, old: str, new: str) -> None:
    rename: Callable[[Any], Any] = lambda name: new if name == old else name  # noqa: E731
    for rule in each.get("rules", ()) if each["kind"] in ("Role", "ClusterRole") else ():
        if "resourceNames" in rule:
            rule["resourceNames"] = [rename(name) for name in rule["resourceNames"]]
    for volume in _pod(each).get("volumes", ()):
        sources = [volume, *(volume.get("projected") or {}).get("sources", ())]
        for source in sources:
            if "configMap" in source:
                source["configMap"]["name"] = rename(source["configMap"]["name"])


def _pod(each: Object) -> Object:
    spec: Object = ((each.get("spec") or {}).get("template") or {}).get("spec") or {}
    return spec


def _containers(each: Object) -> Iterator[Object]:
    yield from _pod(each).get("containers", ())
