"""Loads manifests into a server: YAML or JSON files with any number of documents of served kinds, or objects.

Every object passes through the API's create or server-side apply, as a request of the server itself. Namespaces and
custom resource definitions are created first, because other objects may need them. Fields that a dump of another
cluster has and a create must not (uid, resourceVersion and the like) are dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from apimachinery.yaml_text import InvalidYaml, load_all

from . import nesting
from .auth.identity import SELF
from .errors import ClusterError
from .handlers import Api
from .requests import Request, Response
from .resource import Object

_FIRST = {"Namespace": 0, "CustomResourceDefinition": 1, "PriorityClass": 2}
_NOT_FOR_CREATE = ("uid", "resourceVersion", "creationTimestamp", "managedFields", "selfLink")


#: The field manager of objects applied from inside the process.
MANAGER = "embedded-kubernetes"

#: A file, a YAML text, an object or List, or an iterable of these.
Manifests = Path | str | Mapping[str, Any] | Iterable["Manifests"]


class LoadError(ClusterError):
    """A manifest cannot be loaded; the message names the file, the document and the object."""


class _Manifest(NamedTuple):
    where: str
    obj: Object


def _read(given: object, where: str = "") -> Iterator[_Manifest]:
    match given:
        case Path():
            try:
                text = given.read_text(encoding="utf-8")
            except OSError as error:
                raise LoadError(f"{given}: cannot be read: {error.strerror or error}") from None
            except UnicodeDecodeError as error:
                raise LoadError(f"{given}: not UTF-8: {error.reason}") from None
            yield from _documents(text, str(given))
        case str():
            yield from _documents(given, where or "text")
        case Mapping():
            yield from _flat(where or "object", deepcopy(dict(given)))
        case Iterable():
            for number, each in enumerate(given, 1):
                yield from _read(each, f"{where}, item {number}" if where else f"item {number}")
        case _:
            what = "expected objects, YAML texts or files (pathlib.Path)"
            raise LoadError(f"{where or 'manifests'}: {what}, found {type(given).__name__}")


def _documents(text: str, where: str) -> Iterator[_Manifest]:
    try:
        documents = load_all(text, levels=nesting.MOST_YAML_LEVELS)
    except InvalidYaml as error:
        raise LoadError(f"{where}: not YAML: {error}") from None
    for number, document in enumerate(documents, 1):
        if document is not None:
            yield from _flat(f"{where}, document {number}", document)


def _flat(where: str, document: Any) -> Iterator[_Manifest]:
    """Yield the document, or the items of a list."""
    if not isinstance(document, dict):
        raise LoadError(f"{where}: expected an object with apiVersion and kind, found {type(document).__name__}")
    kind = document.get("kind")
    if isinstance(kind, str) and kind.endswith("List") and isinstance(document.get("items"), list):
        for index, item in enumerate(document["items"]):
            if isinstance(item, dict):
                # Items of a typed list omit kind and version.
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


def _in_order(given: Manifests) -> list[_Manifest]:
    manifests = sorted(_read(given), key=lambda manifest: _FIRST.get(manifest.obj["kind"], len(_FIRST)))
    for manifest in manifests:
        for name in _NOT_FOR_CREATE:
            manifest.obj["metadata"].pop(name, None)
    return manifests


def create(api: Api, given: Manifests) -> int:
    """Create all objects; return their number. Raises `LoadError`.

    An existing Namespace is left unchanged; any other existing object is an error.
    """
    manifests = _in_order(given)
    for manifest in manifests:
        status, answer = _post(api, manifest)
        exists = manifest.obj["kind"] == "Namespace" and answer.get("reason") == "AlreadyExists"
        if status != 201 and not exists:
            raise _refused(manifest, answer)
    return len(manifests)


def apply(api: Api, given: Manifests) -> list[Object]:
    """Create or change all objects by server-side apply; return them in order. Raises `LoadError`.

    An object without a name (`generateName`) is created.
    """
    found = []
    for manifest in _in_order(given):
        status, answer = _patch(api, manifest) if manifest.obj["metadata"].get("name") else _post(api, manifest)
        if status not in (200, 201):
            raise _refused(manifest, answer)
        found.append(answer)
    return found


def _post(api: Api, manifest: _Manifest) -> tuple[int, Object]:
    return _ask(api, "POST", _path(api, manifest), "application/json", manifest)


def _patch(api: Api, manifest: _Manifest) -> tuple[int, Object]:
    path = f"{_path(api, manifest)}/{quote(str(manifest.obj['metadata']['name']), safe='')}"
    query = f"fieldManager={MANAGER}&force=true"
    return _ask(api, "PATCH", path, "application/apply-patch+yaml", manifest, query)


def _ask(
    api: Api, method: str, path: str, content_type: str, manifest: _Manifest, query: str = ""
) -> tuple[int, Object]:
    # Only dates and the like have no JSON form; `str` restores the author's text.
    body = nesting.dumps(manifest.obj, default=str)
    answer = api.carry_out(Request(method, path, query, body=body, content_type=content_type, user=SELF))
    assert isinstance(answer, Response)
    return answer.status, nesting.loads(answer.body)


def _refused(manifest: _Manifest, status: Object) -> LoadError:
    metadata = manifest.obj["metadata"]
    name = metadata.get("name") or metadata.get("generateName")
    return LoadError(f"{manifest.where}, {manifest.obj['kind']} {name}: {status.get('message')}")
