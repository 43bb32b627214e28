"""Reads manifests for `cluster --load`: YAML or JSON, many documents a file, of any served kind.

Every object goes through the API's own create, with all its rules. Namespaces and custom resource definitions
are created first, whatever the order in the files, since others may need them. What a dump of another cluster
carries and a create may not (uid, resourceVersion and the like) is dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import yaml

from .auth.identity import SELF
from .handlers import Api
from .requests import Request, Response
from .resource import Object

_FIRST = {"Namespace": 0, "CustomResourceDefinition": 1, "PriorityClass": 2}
_NOT_FOR_CREATE = ("uid", "resourceVersion", "creationTimestamp", "managedFields", "selfLink")
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class LoadError(Exception):
    """A manifest that cannot be loaded; the text names the file, the document and the object."""


class _Manifest(NamedTuple):
    where: str
    obj: Object


def _documents(file: Path) -> Iterator[_Manifest]:
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise LoadError(f"{file}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise LoadError(f"{file}: not UTF-8: {error.reason}") from None
    try:
        for number, document in enumerate(yaml.load_all(text, _Loader), 1):
            if document is not None:
                yield from _flat(f"{file}, document {number}", document)
    except yaml.YAMLError as error:
        raise LoadError(f"{file}: not YAML: {' '.join(str(error).split())}") from None


def _flat(where: str, document: Any) -> Iterator[_Manifest]:
    """The document, or what it lists."""
    if not isinstance(document, dict):
        raise LoadError(
            f"{where}: expected an object with apiVersion and kind, found {type(document).__name__}"
        )
    kind = document.get("kind")
    if isinstance(kind, str) and kind.endswith("List") and isinstance(document.get("items"), list):
        for index, item in enumerate(document["items"]):
            if isinstance(item, dict):
                # Items of a typed list leave out what the list says.
                item.setdefault("kind", kind[: -len("List")] or None)
                item.setdefault("apiVersion", document.get("apiVersion"))
            yield from _flat(f"{where}, item {index + 1}", item)
        return
    if not isinstance(kind, str) or not isinstance(document.get("apiVersion"), str):
        raise LoadError(f"{where}: expected an object with apiVersion and kind")
    if not isinstance(document.get("metadata"), dict):
        raise LoadError(f"{where}: expected metadata of the {kind}")
    yield _Manifest(where, document)


def _path(api: Api, manifest: _Manifest) -> str:
    obj = manifest.obj
    group, _, version = obj["apiVersion"].rpartition("/")
    kinds = api.registry.served.get((group, version), {})
    served = next((each for each in kinds.values() if each.resource.kind == obj["kind"]), None)
    if served is None:
        raise LoadError(f"{manifest.where}: {obj['apiVersion']} {obj['kind']} is not served by this cluster")
    resource = served.resource
    if not resource.namespaced:
        return f"{resource.path}/{resource.plural}"
    namespace = obj["metadata"].setdefault("namespace", "default")
    return f"{resource.path}/namespaces/{namespace}/{resource.plural}"


def load_files(api: Api, files: Sequence[Path]) -> int:
    """Creates everything that the files hold, and says how many objects that was. Raises `LoadError`.

    A Namespace that exists already is left as it is; any other object that exists is an error.
    """
    manifests = [manifest for file in files for manifest in _documents(file)]
    manifests.sort(key=lambda manifest: _FIRST.get(manifest.obj["kind"], len(_FIRST)))
    for manifest in manifests:
        obj = manifest.obj
        for name in _NOT_FOR_CREATE:
            obj["metadata"].pop(name, None)
        # Only dates and the like are no JSON; as text they are what the author wrote.
        body = orjson.dumps(obj, default=str)
        request = Request("POST", _path(api, manifest), body=body, content_type="application/json", user=SELF)
        answer = api.carry_out(request)
        assert isinstance(answer, Response)
        if answer.status != 201:
            status = orjson.loads(answer.body)
            if obj["kind"] == "Namespace" and status.get("reason") == "AlreadyExists":
                continue
            name = obj["metadata"].get("name") or obj["metadata"].get("generateName")
            raise LoadError(f"{manifest.where}, {obj['kind']} {name}: {status.get('message')}")
    return len(manifests)
